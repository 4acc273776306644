"""A server of somebody else's under `bulkhead guard`, and its clients."""

import contextlib
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from harness import NOBODY, ROOTLESS, children, free_port, program

PATIENCE = 20


class Guarded:
    """A guarded command; use it with `with`. `command` makes it of the port, in a folder that is `self.folder`."""

    #: The program, and the word that makes it guard. `bulkhead-guard` has no such word, and takes a whole configuration
    #: as an option.
    program, verb = "bulkhead", ("guard",)

    def __init__(self, command, *options, files=None, port=None, settled=True):
        self.folder = Path(tempfile.mkdtemp(prefix="bulkhead-test-", dir="/tmp"))
        self.folder.chmod(0o777)
        self.port, self.settled = port or free_port(), settled
        for name, content in (files or {}).items():
            self.folder.joinpath(name).write_text(content(self) if callable(content) else content)
        self.options = [str(option) for option in options]
        self.words = [str(word) for word in (command(self.port) if callable(command) else command)]

    def __enter__(self):
        words = [program(self.program), *self.verb, *self.options, "--", *self.words]
        as_user = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if ROOTLESS else {}
        self.said = open(self.folder / "said", "w+")
        # Apache ends its whole group of processes.
        more = {"start_new_session": True, **as_user}
        self.process = subprocess.Popen(words, cwd=self.folder, stdout=self.said, stderr=self.said, **more)
        if self.settled and not any(option.startswith("--listen") for option in self.options):
            self.until(lambda: not refuses(self.port), "it listens")
        elif self.settled:
            self.until(lambda: len(children(self.process.pid)) > 1, "the command runs")
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(10)
        self.process.kill()
        self.process.wait()
        self.said.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def until(self, what, name):
        """Waits until `what` is true."""
        end = time.monotonic() + PATIENCE
        while not what():
            if self.process.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"not so: {name}; status {self.process.poll()}; it said:\n{self.output()}")
            time.sleep(0.05)

    def output(self):
        """What the guard and the command have said."""
        return (self.folder / "said").read_text(errors="replace")

    def wait(self):
        """The exit status, once it has ended."""
        return self.process.wait(PATIENCE)

    @property
    def gate(self):
        """The gate's process, if there is one."""
        # One that has ended, or has only just been made, has no words.
        titled = (child for child in children(self.process.pid) if child.words[:1] == ["bulkhead guard: gate"])
        return next(titled, None)

    @property
    def command(self):
        """The command's first process."""
        return next(child for child in children(self.process.pid) if child.words[:1] not in ([], ["bulkhead guard: gate"]))

    def sockets_held(self):
        """How many TCP connections at its port the command's processes hold."""
        tcp = Path("/proc/net/tcp").read_text().splitlines()[1:]
        inodes = {line.split()[9] for line in tcp if line.split()[1].endswith(f":{self.port:04X}")}
        held = set()
        for process in [self.command, *children(self.command.pid)]:
            with contextlib.suppress(OSError):
                held |= {what for what in process.descriptors().values() if what.startswith("socket:")}
        return len({what for what in held if what[8:-1] in inodes})


class Client:
    """A kept-alive connection."""

    def __init__(self, guard, port=None, source="127.0.0.1"):
        at = ("127.0.0.1", port or guard.port)
        self.socket = socket.create_connection(at, timeout=PATIENCE, source_address=(source, 0))
        host, at = self.socket.getsockname()
        self.address = f"{host}:{at}"
        self.buffer = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def get(self, path):
        """The body of the answer; the status must be 200."""
        self.socket.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        while b"\r\n\r\n" not in self.buffer:
            self._more()
        head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        if lines[0].split()[1] != "200":
            raise AssertionError(lines[0])
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        if fields.get("transfer-encoding") == "chunked":
            return self._chunks()
        if "content-length" not in fields:
            with contextlib.suppress(AssertionError):
                while True:
                    self._more()
            return self.buffer.decode()
        return self._take(int(fields["content-length"])).decode()

    def _chunks(self):
        body = b""
        while True:
            while b"\r\n" not in self.buffer:
                self._more()
            size, _, self.buffer = self.buffer.partition(b"\r\n")
            chunk = self._take(int(size, 16) + 2)[:-2]
            if not chunk:
                return body.decode()
            body += chunk

    def _take(self, count):
        while len(self.buffer) < count:
            self._more()
        taken, self.buffer = self.buffer[:count], self.buffer[count:]
        return taken

    def _more(self):
        got = self.socket.recv(65536)
        if not got:
            raise AssertionError("the connection was closed")
        self.buffer += got


@contextlib.contextmanager
def incomplete(guard, count):
    """Connections on which half of a head was sent."""
    with contextlib.ExitStack() as all_of_them:
        for _ in range(count):
            client = all_of_them.enter_context(Client(guard))
            client.socket.sendall(b"GET / HTTP/1.1\r\nHost: local")
        yield


def refuses(port):
    """Whether nobody listens at a port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


__all__ = ["Client", "Guarded", "free_port", "incomplete", "program", "refuses"]
