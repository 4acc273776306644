"""The servers under test: their files and configuration in a temporary directory, started pinned, stopped by pid.

`Server` is one program. What a figure is about may be several of them (a proxy and the program behind it): `case.Subject`.
"""

import http.client
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import ssl
import subprocess
import time

from . import proc, tools

PEERS = pathlib.Path(__file__).resolve().parent.parent / "peers"
TREE = PEERS.parent.parent
#: The files that are served, the same bytes by every server: {name: bytes}
FILES = {"100.bin": 100, "10k.bin": 10 * 1024, "1m.bin": 1 << 20}
HOST = "bench.test"


def target():
    """Cargo's folder for what is built for this machine, such as target/x86_64-unknown-linux-gnu."""
    said = subprocess.run(["rustc", "-vV"], capture_output=True, text=True, check=True, cwd=TREE).stdout
    host = re.search(r"^host: (.*)$", said, re.M).group(1)
    return pathlib.Path(os.environ.get("CARGO_TARGET_DIR", TREE / "target")) / host


def our_program(profile="release"):
    """Where cargo leaves our program."""
    return target() / profile / "bulkhead"


def axum_alone():
    """Where `make bench` leaves the axum program that runs alone."""
    return TREE / "target" / "bench" / target().name / "release" / "axum-alone"


def free_ports(count):
    """Ports nobody listens on, below the range that outgoing connections take theirs from."""
    held = []
    while len(held) < count:
        probe = socket.socket()
        try:
            probe.bind(("127.0.0.1", random.randrange(20000, 32000)))
            held.append(probe)
        except OSError:
            probe.close()
    ports = [probe.getsockname()[1] for probe in held]
    for probe in held:
        probe.close()
    return ports


def free_users(count=999):
    """A range of uids that no other server of this machine has: ranges of thousands, chosen at random."""
    first = random.randrange(100, 2_000_000) * 1000
    return f"{first + 1}-{first + count}"


def body(name):
    """What is in a file of the site."""
    return random.Random(FILES[name]).randbytes(FILES[name])


def write_site(directory):
    """Writes the files of the site into `public`, readable by all."""
    public = directory / "public"
    public.mkdir(mode=0o755)
    public.chmod(0o755)
    for name in FILES:
        (public / name).write_bytes(body(name))
    (public / "hello.php").write_text('<?php echo "Hello from PHP.\\n";')
    for path in public.iterdir():
        path.chmod(0o644)


class Server:
    """One server: `start` it, look at its `process`, `get` an answer, `stop` it.

    `kind` says how the program is started, `config` which file of bench/peers it reads, `values` what replaces the
    @WORDS@ of that file. With `guard`, `bulkhead guard` stands before it.
    """

    tls, guard, kind, config, values = False, False, "ours", "static-ours.toml", {}
    first = "/100.bin"      #: what is asked for until the server answers
    hosts = (HOST,)         #: hosts that have to answer before it is up
    processes_min = 0       #: how many processes it has to have before it is up
    patience = 20           #: seconds until it must be up
    copies = {}             #: files that it needs in its directory: {name there: (from, mode)}

    def __init__(self, name, work, port, core, program=None):
        self.name, self.port, self.core, self.program = name, port, core, program
        self.directory = work / name
        self.process, self.family, self.users = None, {}, free_users()
        self.ready_s, self.used_at_start = None, None

    def start(self):
        """Prepares the server's directory, starts it on its core and waits until its port answers."""
        self.directory.mkdir(mode=0o755)
        self.directory.chmod(0o755)
        write_site(self.directory)
        for name, (source, mode) in self.copies.items():
            (self.directory / name).parent.mkdir(exist_ok=True)
            shutil.copy(source, self.directory / name)
            (self.directory / name).chmod(mode)
        argv = ["taskset", "-c", str(self.core), *self.argv()]
        began = time.monotonic()
        with open(self.directory / "output.txt", "wb") as output:
            self.process = subprocess.Popen(argv, cwd=self.directory, stdin=subprocess.DEVNULL, stdout=output,
                                            stderr=output, start_new_session=True)
        self.wait()
        self.ready_s, self.used_at_start = time.monotonic() - began, proc.usage(self.process.pid)
        self.family = proc.family(self.process.pid)

    def argv(self):
        """The command line, after writing the configuration it names."""
        words = [str(word) for word in getattr(self, "start_" + self.kind.replace("-", "_"))()]
        if not self.guard:
            return words
        return [str(self.program), "guard", "--user-range", self.users, "--", *words]

    def start_ours(self):
        return [self.program, "run", self.configure(self.config)]

    def start_nginx(self):
        self.configure("nginx-common.conf")
        return [tools.find("nginx"), "-c", self.configure(self.config)]

    def start_h2o(self):
        return [tools.find("h2o"), "-c", self.configure(self.config)]

    def start_haproxy(self):
        return [tools.find("haproxy"), "-db", "-f", self.configure(self.config)]

    def start_apache(self):
        return [tools.find("apache2"), "-f", self.configure(self.config), "-DFOREGROUND"]

    def start_php_fpm(self):
        return [tools.find("php-fpm"), "--nodaemonize", "--allow-to-run-as-root", "--fpm-config", self.configure(self.config)]

    def start_axum(self):
        return [axum_alone(), f"127.0.0.1:{self.port}"]

    def start_bare(self):
        program = self.directory / "bare"
        subprocess.run([tools.find("cc"), "-O2", "-o", str(program), str(PEERS / "bare.c")], check=True)
        return [program, self.port, self.directory / "public"]

    def configure(self, template):
        """Writes a configuration of bench/peers with its @WORDS@ replaced; returns its path."""
        text = (PEERS / template).read_text(encoding="utf-8")
        # Ours may have other words in them, and come first.
        values = self.values | {"PORT": self.port, "DIR": self.directory, "USERS": self.users, "MODULES": modules() or "",
                                "HUNDRED": "x" * 100}
        values.setdefault("SENDFILE", "on")
        values.setdefault("SUITES", "off")
        for word, value in values.items():
            text = text.replace(f"@{word}@", str(value))
        path = self.directory / template
        path.write_text(text, encoding="utf-8")
        path.chmod(0o644)
        return str(path)

    def command(self):
        """The same command line as anyone may type it: no path of this machine."""
        line = {"ours": "bulkhead run {}", "nginx": "nginx -c {}", "h2o": "h2o -c {}", "haproxy": "haproxy -db -f {}",
                "apache": "apache2 -f {} -DFOREGROUND", "php-fpm": "php-fpm --nodaemonize --fpm-config {}",
                "axum": "axum-alone 127.0.0.1:PORT", "bare": "bare PORT public"}[self.kind].format(self.config)
        return f"taskset -c {self.core} {'bulkhead guard -- ' if self.guard else ''}{line}"

    def wait(self):
        """Waits for the first answer; says what the server printed if none comes."""
        deadline, last = time.monotonic() + self.patience, "no answer"
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                if self.answers():
                    return
            except (OSError, http.client.HTTPException) as error:
                last = error
            time.sleep(0.02)
        said = (self.directory / "output.txt").read_text(errors="replace")[-2000:]
        state = "ended" if self.process.poll() is not None else f"does not answer ({last})"
        raise RuntimeError(f"{self.name} {state} after start. It said:\n{said}")

    def answers(self):
        """Whether it is up: each of its hosts answers with 200, and its processes are there. php-fpm is when its socket can be connected to."""
        if self.kind == "php-fpm":
            with socket.socket(socket.AF_UNIX) as probe:
                probe.connect(str(self.directory / "php.sock"))
            return True
        up = all(self.get(self.first, {"Host": host})[0] == 200 for host in self.hosts)
        # Counted last, since looking at all processes takes time from the cores.
        return up and (not self.processes_min or len(proc.family(self.process.pid)) >= self.processes_min)

    def get(self, path, headers):
        """One request on its own connection: (status, body, bytes of head)."""
        if self.tls:
            context = ssl._create_unverified_context()
            connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=5, context=context)
        else:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            text = answer.read()
            head = sum(len(name) + len(value) + 4 for name, value in answer.getheaders())
            return answer.status, text, head + len(f"HTTP/1.1 {answer.status} {answer.reason}\r\n\r\n")
        finally:
            connection.close()

    def log(self):
        """The access log so far, proof that it is on: (bytes written, bytes of a line); None for those without one."""
        if self.kind in ("bare", "axum", "php-fpm"):
            return None
        place = {"ours": "log", "haproxy": "output.txt"}.get(self.kind, "access.log")
        place = self.directory / place
        files = [path for path in place.rglob("*") if path.is_file()] if place.is_dir() else [place]
        sizes = {path: path.stat().st_size for path in files if path.exists()}
        if not sizes:
            return 0, 0
        with open(max(sizes, key=sizes.get), "rb") as file:
            file.seek(max(0, max(sizes.values()) - 65536))
            lines = file.read().splitlines()[1:-1]
        return sum(sizes.values()), round(sum(len(line) + 1 for line in lines) / max(len(lines), 1))

    def stop(self):
        """Asks the server to end, then ends what is left of it; by pid, and only if it is still the same process."""
        if not self.process:
            return
        self.family.update(proc.family(self.process.pid))
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                print(f"{self.name} did not end within 15 s of SIGTERM; killing it")
                self.process.kill()
                self.process.wait()
        for pid, start in self.family.items():
            if pid != self.process.pid and proc.alive(pid, start):
                os.kill(pid, signal.SIGKILL)
        self.process = None


def modules():
    """The folder of Apache's modules."""
    places = ("/usr/lib/apache2/modules", "/usr/lib64/httpd/modules", "/usr/lib/httpd/modules")
    return next((place for place in places if pathlib.Path(place).is_dir()), None)


def enough_room(work, gigabytes=6):
    """Access logs grow by gigabytes in a long run: whether the disk has room for them."""
    return shutil.disk_usage(work).free > gigabytes << 30
