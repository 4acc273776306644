"""Programs that others wrote, as services and as filters: they try every way out with system calls of their own.

`foreign/attack` is C and uses nothing of ours; `foreign/attack.py` is what an interpreter can do. Each is told by a
request what to try, tries it in a child, and says by another request what came of everything.
"""

import contextlib
import errno
import os
import shutil
import socket
import struct
import subprocess
import tempfile
import unittest
from pathlib import Path

import client
import guarded
from client import until
from filter_program import PYTHON, library
from harness import ROOTLESS, Server, children, rootless_too, service, site

SOURCES = Path(__file__).resolve().parent / "foreign"


def built(case):
    """The program in C, if the test is not given one."""
    if "BULKHEAD_FOREIGN" in os.environ:
        return Path(os.environ["BULKHEAD_FOREIGN"])
    folder = tempfile.mkdtemp(prefix="bulkhead-foreign-", dir="/tmp")
    case.addClassCleanup(shutil.rmtree, folder)
    made = Path(folder) / "attack"
    command = ["cc", "-O1", "-Wall", "-Werror", "-static", "-pthread", "-o", made, *sorted(SOURCES.glob("*.c"))]
    subprocess.run(command, check=True, timeout=60)
    return made


def listening(case):
    """A listener of the test's, to which nobody is to come."""
    listener = socket.create_server(("127.0.0.1", 0))
    case.addClassCleanup(listener.close)
    listener.setblocking(False)
    return listener


def came(listener):
    """How many have connected to it."""
    count = 0
    while True:
        try:
            listener.accept()[0].close()
        except BlockingIOError:
            return count
        count += 1


def make(server, path, name, on_connection):
    """Has an attempt made, and waits until it has begun; one on the connection ends that as it likes."""
    with server.connect() as connection:
        connection.send(client.request(f"{path}/{name}"))
        if not on_connection:
            assert connection.response().status == 200, name
            return
        with contextlib.suppress(ConnectionError):
            connection.socket.recv(1)
            if name.startswith("closed-"):
                connection.socket.shutdown(socket.SHUT_WR)
            elif name.startswith("reset-"):
                connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def results(server, path, attempts):
    """What came of each of the attempts: `got`, or what refused it; and the details of what was got."""
    for name, kind in attempts.items():
        make(server, path, name, kind == "connection")
    said = {}

    def complete():
        answer = server.get(f"{path}/report")
        lines = [line.split("\t") for line in answer.text.splitlines()] if answer.status == 200 else []
        said.update({name: (result, detail) for name, result, detail in lines})
        return set(said) >= set(attempts)

    if not until(complete, 20):
        raise AssertionError(f"{path}: nothing is said of {sorted(set(attempts) - set(said))}")
    return said


def told(said):
    """Results, to be read in a failure."""
    words = {str(number): name for number, name in errno.errorcode.items()}
    line = lambda result: f"{words.get(result.split()[-1], result)}" if result.startswith("errno") else result
    return "\n".join(f"{name}: {line(result)} {detail}" for name, (result, detail) in sorted(said.items()))


class Attack:
    """What each program is tried for; `NAME` is its path."""

    NAME = ""

    def test_it_gets_nothing(self):
        said = results(self.server, self.NAME, self.attempts)
        got = {name for name, (result, _) in said.items() if result == "got"}
        self.assertEqual(got, self.may(), told({name: said[name] for name in got}))
        self.assertEqual(came(self.listener), 0)

    def may(self):
        """What it may get, as that is no way out: without a root of its own, zeros as code that nobody can write."""
        return {"device-mapped"} & set(self.attempts) if ROOTLESS else set()


def attempts_of(*command):
    """The attempts of a program, and whether each is made on a connection."""
    text = subprocess.run([*command, "list"], capture_output=True, text=True, check=True, timeout=20).stdout
    return dict(line.split("\t") for line in text.splitlines())


class Foreign(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.program, cls.listener = built(cls), listening(cls)
        cls.attempts = attempts_of(cls.program)
        port = str(cls.listener.getsockname()[1])
        own = lambda name, **more: service(name, f"/{name}", command=["bin/attack", "service", port], **more)
        services = [
            own("owned"), own("taking", takes=True), own("granted", network=["tcp:1"], takes=True),
            own("compiling", jit=True),
        ]
        # What ctypes needs besides the interpreter's own.
        read = [library(), "foreign", *{str(path.parent) for path in Path("/usr/lib").glob("*/libffi.so.*")}]
        filters = [
            {"command": ["bin/attack", "filter", port]},
            {"command": [PYTHON, "-I", "foreign/attack.py", port], "read": read},
        ]
        files = {"foreign/attack.py": (SOURCES / "attack.py").read_text()}
        cls.server = Server([site("main", services)], programs=(), files=files, conditioning={"filters": filters})
        cls.server.copy_program(str(cls.program), "attack")
        cls.enterClassContext(cls.server)


@rootless_too
class Owned(Attack, Foreign):
    NAME = "/owned"


@rootless_too
class Taking(Attack, Foreign):
    NAME = "/taking"


@rootless_too
class Granted(Attack, Foreign):
    NAME = "/granted"


@rootless_too
class Compiling(Attack, Foreign):
    """With `jit`, memory of its own may become code; a file of its own is neither mapped as code nor executed.

    Memory that has a descriptor (`memfd_create`) is memory: it can be mapped as code, and cannot be executed.
    """

    NAME = "/compiling"
    OWN_CODE = {
        "anonymous-both", "anonymous-code", "anonymous-grows", "anonymous-shared-code", "memfd-mapped",
        "memfd-mapped-private", "memfd-sealed", "mprotect", "mprotect-both", "rewritten", "stack",
    }

    def may(self):
        return super().may() | self.OWN_CODE


@rootless_too
class Filter(Attack, Foreign):
    NAME = "/filter"


class GuardServer:
    """A guard, as `results` talks to a server."""

    def __init__(self, guard):
        self.guard = guard

    def connect(self):
        return client.Connection(self.guard.port)

    def get(self, target):
        return client.get(self.guard.port, target)


@rootless_too
class GuardFilter(Attack, unittest.TestCase):
    """The filter of a server that is guarded, which never sees these requests."""

    NAME = "/filter"

    @classmethod
    def setUpClass(cls):
        program, cls.listener = built(cls), listening(cls)
        cls.attempts = attempts_of(program)
        # Whoever the filter runs as is to reach it.
        program.parent.chmod(0o755)
        words = f"{program} filter {cls.listener.getsockname()[1]}"
        serve = lambda port: [PYTHON, "-m", "http.server", "--bind", "127.0.0.1", port]
        cls.server = GuardServer(cls.enterClassContext(guarded.Guarded(serve, "--filter", words)))


@rootless_too
class Interpreter(Attack, Foreign):
    NAME = "/python"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.attempts = attempts_of(PYTHON, "-I", SOURCES / "attack.py")


#: A thread that executes a program takes the first one's place, and a thread has no signal for its parent's death. The
#: only program in sight is the loader, which is kept by a pipe that nobody reads.
THREAD = """
import os, sys, threading, time
_, full = os.pipe()
if os.fork() == 0:
    time.sleep(1000)
os.set_blocking(full, False)
try:
    while True:
        os.write(full, bytes(4096))
except BlockingIOError:
    pass
os.set_blocking(full, True)
os.dup2(full, 1)
loader = sys.argv[1]
threading.Thread(target=os.execv, args=(loader, ["stays", "--help"])).start()
time.sleep(1000)
"""


#: What a service does to live on without the launcher; children of children end with its PID namespace.
WAYS_TO_STAY = ("without", "none", "urgent", "term") + (() if ROOTLESS else ("orphan", "session", "thread"))


@rootless_too
class Survivors(unittest.TestCase):
    def test_nothing_outlives_the_launcher(self):
        program = built(type(self))
        stays = lambda how: service(how, f"/{how}", command=["bin/attack", "service", "0", how])
        server = Server([site("main", [stays(how) for how in WAYS_TO_STAY])], programs=())
        server.copy_program(str(program), "attack")
        with server:
            made = lambda: all(f"stay {how}: " in server.log() for how in WAYS_TO_STAY if how != "thread")
            self.assertTrue(until(made), server.log())
            server.processes()
            server.launcher.kill()
            server.wait(5)
            # The folder is what they all start in; a child's child is not the launcher's.
            until(lambda: not server.left())
            left = {tuple(process.words[3:]): process.status()["State"] for process in server.left()}
            for process in server.left():
                process.kill()
            self.assertEqual(left, {})

    def test_a_thread_that_executes_a_program_does_not(self):
        loaders = [str(path) for path in Path("/lib64").glob("ld-linux*")] or ["/lib/ld-linux-aarch64.so.1"]
        command = [PYTHON, "-I", "filters/thread.py", loaders[0]]
        chain = [{"command": command, "read": [library(), "filters"]}]
        files = {"filters/thread.py": THREAD}
        with Server([site()], programs=(), files=files, conditioning={"filters": chain}) as server:
            stays = lambda: [process for process in server.processes() if process.words[:1] == ["stays"]]
            self.assertTrue(until(stays), server.log())
            # Its child, which its PID namespace ends with it; rootless there is none, and nobody knows of the child.
            own = stays()
            also = [] if ROOTLESS else children(own[0].pid)
            orphans = children(own[0].pid) if ROOTLESS else []
            self.assertEqual(len(also + orphans), 1)
            server.launcher.kill()
            server.wait(5)
            gone = until(lambda: not any(process.alive for process in own + also))
            for process in [*own, *also, *orphans]:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
            self.assertTrue(gone, "it lives on")


if __name__ == "__main__":
    unittest.main()
