"""A whole server for one test: its folder, its configuration, its processes, and its end.

The server is what a user gets with `bulkhead run`. Processes are found as children of the launcher and told
apart by their command lines; nothing is ever ended by its name.
"""

import contextlib
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

import client

ROOTLESS = bool(os.environ.get("BULKHEAD_TEST_ROOTLESS"))
NOBODY = 65534
TOP = Path(__file__).resolve().parents[2]


def ports():
    """The ports of this process: of the ten thousand of its run, the share that no other process of pytest has.

    They are below those that the kernel gives to clients (net.ipv4.ip_local_port_range begins at 32768 unless it is
    changed). A rootless run has others, as it may go on beside this one.
    """
    first = 22_000 if ROOTLESS else 12_000
    share = 10_000 // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 1))
    index = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % (10_000 // share)
    return range(first + index * share, first + (index + 1) * share)


PORTS = ports()
GIVEN = set()
#: What configurations say that are written for one server on a machine; each server of a test gets a range of its own.
USER_RANGE = "51001-51999"
#: The programs of our own that have to lie side by side.
ROLES = ("bulkhead", *(TOP / "crates/wire/roles.txt").read_text().split(), "bulkhead-guard", "datadoor", "inspector", "bulkhead-probe")

SETTINGS = {
    "server": {"user_range": USER_RANGE, "state_dir": "state", "run_dir": "run", "log_dir": "log", "gates": 2},
    "tls": {},
    "log": {"access_format": "combined", "flush": "200ms"},
    "restart": {},
    "limits": {},
    "conditioning": {},
}


def rootless_too(thing):
    """Marks a test (or a class of them) that is also run rootless."""
    thing.rootless = True
    return thing


def program(name):
    """A program that was built, from `BULKHEAD_BIN` or the target folder."""
    folders = os.environ.get("BULKHEAD_BIN")
    if folders is None:
        text = subprocess.run(["rustc", "-vV"], capture_output=True, text=True, check=True).stdout
        host = next(line.split()[1] for line in text.splitlines() if line.startswith("host:"))
        os.environ["BULKHEAD_BIN"] = folders = str(TOP / "target" / host / "release")
    for folder in folders.split(":"):
        if (Path(folder) / name).is_file():
            return Path(folder) / name
    raise FileNotFoundError(f"there is no program {name} in {folders}; `make build` makes it")


def service(name="probe", path="/probe", takes=False, command=None, **more):
    """A service of a site, to be passed to `site`."""
    settings = {"name": name, "path": path, "command": command or [f"bin/{name}"], "takes_connections": takes}
    return settings | more


def site(name="main", services=(), **more):
    """A site called NAME on the host NAME.test, whose files are in the folder NAME."""
    return {"name": name, "host": [f"{name}.test"], "root": name, "services": list(services)} | more


def toml(value):
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {toml(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


def configuration(port, sites, settings):
    """The text of a configuration file."""
    lines = ["[[listen]]", f'address = "127.0.0.1:{port}"']
    for table, defaults in SETTINGS.items():
        lines.append(f"\n[{table}]")
        lines += [f"{key} = {toml(value)}" for key, value in (defaults | settings.get(table, {})).items()]
    for about in sites:
        lines.append("\n[[site]]")
        lines += [f"{key} = {toml(value)}" for key, value in about.items() if key != "services"]
        for one in about["services"]:
            lines.append("\n  [[site.service]]")
            lines += [f"  {key} = {toml(value)}" for key, value in one.items()]
    return "\n".join(lines) + "\n"


def end(process, seconds=10):
    """Ends a program that may not end by itself."""
    process.send_signal(signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    process.kill()
    process.wait()


def free_uids():
    """Uids that no other server of this machine has, be it of another run: there are two million such ranges."""
    first = random.randrange(100, 2_000_000) * 1000
    return range(first + 1, first + 1000)


def free_port():
    """A port that nobody has now, and that nobody else is given before the server takes it."""
    while True:
        port = random.choice(PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            if port not in GIVEN:
                GIVEN.add(port)
                return port


class Process:
    """A process: its pid, what it is called, and when it began (so that a pid used again is not it)."""

    def __init__(self, pid):
        self.pid = pid
        self.folder = Path("/proc") / str(pid)
        self.words = self.folder.joinpath("cmdline").read_bytes().decode("utf-8", "replace").split("\0")[:-1]
        self.began = self._stat()[19]

    def _stat(self):
        return self.folder.joinpath("stat").read_text().rpartition(")")[2].split()

    @property
    def title(self):
        return " ".join(self.words).removeprefix("bulkhead: ")

    @property
    def alive(self):
        try:
            stat = self._stat()
        except OSError:
            return False
        return stat[19] == self.began and stat[0] not in "ZX"

    def status(self):
        """The kernel's words on it, by name."""
        lines = self.folder.joinpath("status").read_text().splitlines()
        return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}

    @property
    def uid(self):
        """Whose it is; nobody's, if it has gone meanwhile."""
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            return int(self.status()["Uid"].split()[0])
        return None

    def memory(self, rights="r"):
        """What is in those parts of its memory whose rights begin with `rights`."""
        parts = []
        with open(self.folder / "mem", "rb", 0) as file:
            for line in (self.folder / "maps").read_text().splitlines():
                span, has = line.split()[:2]
                begin, end = (int(at, 16) for at in span.split("-"))
                # The kernel's own pages cannot be read.
                if has.startswith(rights) and not line.endswith(("[vvar]", "[vvar_vclock]", "[vsyscall]")):
                    file.seek(begin)
                    parts.append(file.read(end - begin))
        return b"".join(parts)

    def descriptors(self):
        """What it has open: number and what that is."""
        found = {}
        for path in (self.folder / "fd").iterdir():
            # One may be closed meanwhile.
            with contextlib.suppress(FileNotFoundError):
                found[int(path.name)] = os.readlink(path)
        return found

    def signal(self, number):
        os.kill(self.pid, number)

    def kill(self):
        self.signal(signal.SIGKILL)

    def __eq__(self, other):
        return (self.pid, self.began) == (other.pid, other.began)

    def __hash__(self):
        return hash((self.pid, self.began))

    def __repr__(self):
        return f"<{self.title} {self.pid}>"


#: Ends what the launcher leaves; and, where there was something to close, who closes it: no processes of the server's.
REAPER, CLOSER = "bulkhead: reaper", "bulkhead: closer"


def children(pid):
    """The child processes of `pid` that are alive, without the reaper and the closer."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            stat = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()
            if int(stat[1]) == pid and stat[0] not in "ZX":
                process = Process(int(name))
                if process.words[:1] not in ([REAPER], [CLOSER]):
                    found.append(process)
        except (OSError, IndexError):
            continue
    return found


class Server:
    """A running server; use it with `with`. `sites` from `site()`, or `text` for a configuration as it is.

    `answers` is false if a process never says that it is ready, or the status of all answers if none is ever good.
    """

    #: Who starts a server that is not root's, if the tests are.
    uid = NOBODY

    def __init__(self, sites=None, programs=("probe",), answers=True, files=None, text=None, **settings):
        self.folder = Path(tempfile.mkdtemp(prefix="bulkhead-test-", dir="/tmp"))
        self.folder.chmod(0o755)
        self.answers = answers
        self.port = free_port()
        self.sites = sites if sites is not None else [site(services=[service()])]
        self.launcher, self.seen, self.log_at = None, set(), None
        # Words before the command that starts it.
        self.prefix = []
        # Descriptors of the test that this has as well.
        self.pass_fds = ()
        for about in self.sites:
            if "root" in about:
                self.write(f"{about['root']}/index.html", f"<h1>{about['name']}</h1>\n")
        for name, content in (files or {}).items():
            self.write(name, content)
        self.config, self.uids = self.folder / "bulkhead.toml", free_uids()
        text = text(self.port) if text else configuration(self.port, self.sites, settings)
        self.config.write_text(self.with_uids(text))
        (self.folder / "bin").mkdir(exist_ok=True)
        for name in programs:
            self.copy_program(name)
        if ROOTLESS:
            (self.folder / "programs").mkdir()
            for name in ROLES:
                shutil.copy(program(name), self.folder / "programs" / name)
            if os.geteuid() == 0:
                for path in [self.folder, *self.folder.rglob("*")]:
                    os.chown(path, self.uid, self.uid)

    def with_uids(self, text):
        """A configuration with this server's uids, where it does not name others."""
        said = f'user_range = "{self.uids[0]}-{self.uids[-1]}"'
        if "user_range" in text:
            return re.sub(rf'user_range *= *"{USER_RANGE}"', said, text)
        server = f"[server]\n{said}\n"
        return text.replace("[server]\n", server, 1) if "[server]\n" in text else f"{text}\n{server}"

    def write(self, name, content):
        """Writes a file of the server's folder, for everybody to read."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        path.chmod(0o644)
        return path

    def copy_program(self, name, under=None):
        """Puts a program into the server's `bin`; replaces what is there, whether it runs or not."""
        new = self.folder / "bin" / "new"
        shutil.copyfile(name if os.path.isabs(name) else program(name), new)
        new.chmod(0o755)
        if ROOTLESS and os.geteuid() == 0:
            os.chown(new, self.uid, self.uid)
        new.rename(self.folder / "bin" / (under or os.path.basename(name)))

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self._end(failed=True)
            raise
        client.SERVERS[self.port] = self
        return self

    def __exit__(self, kind, error, _):
        self._end(failed=kind is not None and not issubclass(kind, unittest.SkipTest))

    @staticmethod
    def own(name, folder):
        return folder / "programs" / name if ROOTLESS else program(name)

    def command(self, *words, timeout=20):
        """Runs the `bulkhead` command to its end."""
        command = [str(self.own("bulkhead", self.folder)), *map(str, words)]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=timeout, cwd=self.folder, check=False, **self._user()
        )

    @classmethod
    def _user(cls):
        if ROOTLESS and os.geteuid() == 0:
            return {"user": cls.uid, "group": cls.uid, "extra_groups": []}
        return {}

    def start(self):
        """Starts the launcher and waits until every process is up."""
        self.log_at = self.folder / "stderr"
        self.log_from = self.log_at.stat().st_size if self.log_at.exists() else 0
        command = [*self.prefix, str(self.own("bulkhead", self.folder)), "run", str(self.config)]
        with open(self.log_at, "ab") as stderr:
            self.launcher = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr, cwd="/", pass_fds=self.pass_fds, **self._user()
            )
        # Not everything is ever up if a service is one that says nothing; then files have to do.
        answer = self.answers or 200
        ready = lambda: "serving on" in self.stderr() if answer is True else self.status("/", timeout=1) == answer
        up = lambda: self.launcher.poll() is not None or ready()
        if not client.until(up, 15):
            raise AssertionError("the server does not come up")
        if self.launcher.poll() is not None:
            raise AssertionError(f"the server ended with {self.launcher.returncode}")
        self.processes()

    def stderr(self):
        """What this start of the server has printed."""
        with open(self.log_at, "rb") as file:
            file.seek(self.log_from)
            return file.read().decode("utf-8", "replace")

    def processes(self, title=None):
        """The launcher's children, of which all are remembered; `title` as `site main`, `gate`, `bin/probe`."""
        found = children(self.launcher.pid)
        self.seen.update(found)
        fits = lambda process: title is None or process.title.startswith(title)
        return sorted(filter(fits, found), key=lambda process: process.pid)

    def process(self, title):
        """The one child that is called so."""
        # Between fork and exec a child still has the launcher's name; one that retires has a successor.
        found = client.until(lambda: self.processes(title), 5)
        if not found:
            raise AssertionError(f"no process {title}; there are {self.processes()}")
        return found[-1]

    def reaper(self):
        """The process that ends others with the launcher, if there is one."""
        pid = self.launcher.pid
        found = []
        for name in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            # One may end meanwhile.
            with contextlib.suppress(OSError):
                found.append(Process(int(name)))
        return next((process for process in found if process.words[:1] == [REAPER] and process.alive), None)

    def order(self, seconds=75, **order):
        """Gives an order over the administration socket. A probe may take a minute, and does on an emulated machine."""
        with socket.socket(socket.AF_UNIX) as admin:
            admin.settimeout(seconds)
            admin.connect(str(self.folder / "run/admin.sock"))
            secret = (self.folder / "run/admin.secret").read_bytes()
            admin.sendall(secret + json.dumps(order).encode() + b"\n")
            return json.loads(admin.makefile().readline())

    def relaunch(self, name):
        """Relaunches a site, a service or a role, and raises if that fails."""
        answer = self.command("relaunch", "--config", self.config, name)
        if answer.returncode:
            raise AssertionError(f"relaunch of {name}: {answer.stdout}{answer.stderr}")

    def log(self, name="error"):
        """The text of a log: `error`, or `main.access`."""
        path = self.folder / "log" / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def refusals(self):
        """The last lines of each log that are no successes, for whoever met one."""
        time.sleep(1.5)  # Longer than lines wait in any process.
        found = []
        for path in sorted((self.folder / "log").glob("*.log")):
            lines = [line for line in path.read_text(errors="replace").splitlines() if not re.search(r'" [123]\d\d ', line)]
            found += [f"{path.name}: {line}" for line in lines[-12:]]
        return "\n" + "\n".join(found)

    def get(self, target="/", host="main.test", **more):
        return client.get(self.port, target, host, **more)

    def status(self, target="/", host="main.test", timeout=10):
        return client.status(self.port, target, host, timeout)

    def connect(self, **more):
        return client.Connection(self.port, **more)

    def stop(self, seconds=15):
        """Asks the server to stop, and returns its exit status."""
        self.processes()
        self.launcher.send_signal(signal.SIGTERM)
        return self.wait(seconds)

    def wait(self, seconds):
        return self.launcher.wait(seconds)

    def left(self):
        """Processes of this server that still live, its launcher not counted."""
        living = [process for process in self.seen if process.alive]
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                cwd = os.readlink(f"/proc/{name}/cwd")
                if cwd.startswith(str(self.folder)):
                    living.append(Process(int(name)))
            except OSError:
                continue
        return list(set(living))

    def _end(self, failed):
        problem = None
        try:
            problem = self._stop_all()
        finally:
            if failed or problem:
                self._tell()
            shutil.rmtree(self.folder, ignore_errors=True)
        if problem and not failed:
            raise AssertionError(problem)

    def _stop_all(self):
        """Ends the server; returns what was wrong with its end."""
        if self.launcher is None:
            return None
        problem = None
        if self.launcher.poll() is None:
            try:
                self.processes()
                self.stop()
            except subprocess.TimeoutExpired:
                problem = f"the server does not stop; left: {self.processes()}"
                self.processes()
                self.launcher.kill()
                self.launcher.wait(5)
        client.until(lambda: not self.left(), 2)
        for process in self.left():
            problem = problem or f"left after the end: {self.left()}"
            process.kill()
        return problem

    def _tell(self):
        for name in ("stderr", "log/error.log"):
            path = self.folder / name
            if path.exists():
                text = path.read_text(errors="replace")[-4000:]
                print(f"\n---- {name} of the server\n{text}----", flush=True)


def wait_for_time(seconds):
    """Sleeps; so named that a search finds every place where a test depends on time."""
    time.sleep(seconds)
