"""The servers under test: their files and configuration in a temporary directory, started pinned, stopped by pid."""

import http.client
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import time

from . import proc, tools

PEERS = pathlib.Path(__file__).resolve().parent.parent / "peers"
TREE = PEERS.parent.parent
SIZES = {"100b": ("100.bin", 100), "10k": ("10k.bin", 10 * 1024)}
NAMES = ["ours", "nginx", "h2o", "bare"]


def our_program():
    """Where cargo leaves the release build: target/HOST/release/bulkhead, since the workspace builds for its host."""
    said = subprocess.run(["rustc", "-vV"], capture_output=True, text=True, check=True, cwd=TREE).stdout
    host = re.search(r"^host: (.*)$", said, re.M).group(1)
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", TREE / "target"))
    return target / host / "release" / "bulkhead"


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


def write_site(directory):
    """Writes public/100.bin and public/10k.bin, the same bytes for every server, readable by all."""
    public = directory / "public"
    public.mkdir(mode=0o755)
    public.chmod(0o755)
    for name, size in SIZES.values():
        (public / name).write_bytes(random.Random(size).randbytes(size))
        (public / name).chmod(0o644)


class Server:
    """One server: `start` it, `check` what it answers, look at its `pid`, `stop` it."""

    def __init__(self, name, work, port, core, program=None):
        self.name, self.port, self.core = name, port, core
        self.directory = work / name
        self.program = program
        self.process = None
        self.family = {}

    def start(self):
        """Prepares the server's directory, starts it on its core and waits until its port answers."""
        self.directory.mkdir(mode=0o755)
        self.directory.chmod(0o755)
        write_site(self.directory)
        argv = ["taskset", "-c", str(self.core), *self.argv()]
        with open(self.directory / "output.txt", "wb") as output:
            self.process = subprocess.Popen(argv, cwd=self.directory, stdin=subprocess.DEVNULL, stdout=output,
                                            stderr=output, start_new_session=True)
        self.wait()
        self.family = proc.family(self.process.pid)

    def argv(self):
        """The command line, after writing the configuration it names."""
        if self.name == "bare":
            program = self.directory / "bare"
            subprocess.run([tools.find("cc"), "-O2", "-o", str(program), str(PEERS / "bare.c")], check=True)
            return [str(program), str(self.port), str(self.directory / "public")]
        config = self.configure("ours.toml" if self.name == "ours" else f"{self.name}.conf")
        if self.name == "ours":
            return [str(self.program), "run", config]
        return [tools.find(self.name), "-c", config]

    def configure(self, template):
        text = (PEERS / template).read_text(encoding="utf-8")
        text = text.replace("@PORT@", str(self.port)).replace("@DIR@", str(self.directory))
        path = self.directory / template
        path.write_text(text, encoding="utf-8")
        path.chmod(0o644)
        return str(path)

    def command(self):
        """The same command line as anyone may type it: no path of this machine."""
        line = {"ours": "target/HOST/release/bulkhead run ours.toml", "nginx": "nginx -c nginx.conf",
                "h2o": "h2o -c h2o.conf", "bare": "bare PORT public"}[self.name]
        return f"taskset -c {self.core} {line}"

    def wait(self, seconds=20):
        """Waits for the first answer; says what the server printed if none comes."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                self.get("100.bin", {})
                return
            except (OSError, http.client.HTTPException):
                time.sleep(0.05)
        said = (self.directory / "output.txt").read_text(errors="replace")[-2000:]
        state = "ended" if self.process.poll() is not None else "does not answer"
        raise RuntimeError(f"{self.name} {state} after start. It said:\n{said}")

    def get(self, path, headers):
        """One request on its own connection: (status, body, bytes of head)."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", "/" + path, headers=headers)
            answer = connection.getresponse()
            body = answer.read()
            head = sum(len(name) + len(value) + 4 for name, value in answer.getheaders())
            return answer.status, body, head + len(f"HTTP/1.1 {answer.status} {answer.reason}\r\n\r\n")
        finally:
            connection.close()

    def check(self):
        """Refuses to measure a server that does not do the work. Returns the bytes of head it sends with 100.bin."""
        for name, size in SIZES.values():
            expected = random.Random(size).randbytes(size)
            for headers in ({}, {"Connection": "close"}):
                status, body, _ = self.get(name, headers)
                if status != 200 or body != expected:
                    raise RuntimeError(f"{self.name} answers /{name} with status {status} and {len(body)} bytes")
        self.check_connections()
        return self.get("100.bin", {})[2]

    def check_connections(self):
        """The connection must stay open when kept alive, and end when the client asked for that."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as plain:
            for extra, ends in (("", False), ("Connection: close\r\n", True)):
                plain.sendall(f"GET /100.bin HTTP/1.1\r\nHost: bench\r\n{extra}\r\n".encode())
                text, plain_end = b"", False
                plain.settimeout(0.5)
                try:
                    while not plain_end:
                        piece = plain.recv(65536)
                        text, plain_end = text + piece, not piece
                except TimeoutError:
                    pass
                if not text.startswith(b"HTTP/1.1 200") or plain_end != ends:
                    raise RuntimeError(f"{self.name} {'closed' if plain_end else 'kept'} a connection wrongly")

    def log(self):
        """The access log so far, proof that it is on: (bytes written, bytes of a line). None for bare, without one."""
        if self.name == "bare":
            return None
        place = self.directory / "log" if self.name == "ours" else self.directory / "access.log"
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
                self.process.wait(8)
            except subprocess.TimeoutExpired:
                print(f"{self.name} did not end within 8 s of SIGTERM; killing it")
                self.process.kill()
                self.process.wait()
        for pid, start in self.family.items():
            if pid != self.process.pid and proc.alive(pid, start):
                os.kill(pid, signal.SIGKILL)
        self.process = None


def enough_room(work, gigabytes=6):
    """Access logs grow by gigabytes in a long run: whether the disk has room for them."""
    return shutil.disk_usage(work).free > gigabytes << 30
