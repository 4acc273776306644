"""What the tests of the C library share: where the programs are, ports, a client, and a server behind a guard.

Runs in: the tests. $BULKHEAD_CC_OUT is the folder of the built programs; $BULKHEAD_CC_WRAP, if set, goes before every
program, such as `valgrind -q --error-exitcode=9 --leak-check=full --child-silent-after-fork=yes`. Valgrind 3.19 does
not know openat2(2): CCServer opens nothing under it.
"""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time

import sessions
from harness import free_port  # noqa: F401

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(HERE)
OUT = os.path.abspath(os.environ.get("BULKHEAD_CC_OUT", os.path.join(TOP, "build")))
WRAP = os.environ.get("BULKHEAD_CC_WRAP", "").split()
PEER = os.path.join(HERE, "peer.py")
# The guard's program: named, or built beside the programs in C; else there is none.
BULKHEAD = os.environ.get("BULKHEAD") or os.path.join(OUT, "bulkhead")


def until(condition, seconds=10.0):
    """Waits for a condition; returns its last value."""
    end = time.monotonic() + seconds
    while not (value := condition()) and time.monotonic() < end:
        time.sleep(0.01)
    return value


def built(name):
    path = os.path.join(OUT, name)
    assert os.path.exists(path), f"{path} is missing: make -C cc OUT={OUT}"
    return path


def is_sanitized():
    with open(built("libbulkheadcc.a"), "rb") as library:
        return b"__asan_init" in library.read()


def compile_program(folder, *sources):
    """Builds a test's program with the library; returns its path. It has the name of the first source."""
    program = os.path.join(folder, os.path.basename(sources[0]).removesuffix(".c"))
    extra = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"] if is_sanitized() else []
    subprocess.run(
        [os.environ.get("CC", "cc"), "-std=c11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", *extra,
         f"-I{TOP}/include", f"-I{TOP}/core", *sources, built("libbulkheadcc.a"), "-pthread", "-o", program],
        check=True)
    return program


class Program(contextlib.AbstractContextManager):
    """A program of the library, behind the peer of the tests or a real guard."""

    def __init__(self, command, guard=PEER, take=False):
        self.folder = tempfile.mkdtemp(prefix="cc-test-")
        self.report_path = os.path.join(self.folder, "report")
        self.log = open(os.path.join(self.folder, "log"), "w+b")
        variables = dict(os.environ, BULKHEAD=guard, PEER_REPORT=self.report_path, BULKHEAD_CC_OUT=OUT)
        variables.update({"PEER_TAKE": "1"} if take else {})
        self.process = sessions.start([*WRAP, *command], env=variables, stdout=self.log, stderr=self.log)

    def __exit__(self, *_):
        # The guard ends by itself when its server has, and takes its jails along.
        sessions.stop(self.process, patience=5)
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def text(self):
        self.log.flush()
        self.log.seek(0)
        return self.log.read().decode(errors="replace")

    def report(self):
        """What the peer has heard; None before it is up."""
        try:
            with open(self.report_path, encoding="utf-8") as file:
                return json.load(file)
        except FileNotFoundError:
            return None


class Client:
    """A client with one connection that it keeps."""

    def __init__(self, port, seconds=10):
        self.socket = socket.create_connection(("127.0.0.1", port), seconds)
        self.file = self.socket.makefile("rb")

    def send(self, target, method="GET", headers="", version="1.1"):
        self.socket.sendall(f"{method} {target} HTTP/{version}\r\nHost: a.test\r\n{headers}\r\n".encode("latin-1"))

    def answer(self, with_body=True):
        """Status, header fields and body of the next response; None at the end of the connection."""
        line = self.file.readline()
        if not line:
            return None
        fields = {}
        while (field := self.file.readline().strip()):
            name, _, value = field.decode("latin-1").partition(":")
            fields[name.lower()] = value.strip()
        body = self.file.read(int(fields.get("content-length", 0))) if with_body else b""
        return int(line.split()[1]), fields, body

    def get(self, target, **more):
        self.send(target, **more)
        return self.answer(with_body=more.get("method") != "HEAD")

    def is_ended(self):
        try:
            return self.file.read(1) == b""
        except ConnectionError:
            return True

    def close(self):
        self.file.close()
        self.socket.close()


def wait_for_port(port, program):
    """Waits until somebody listens, or the program has ended."""
    def listens():
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return True
        return program.process.poll() is not None
    assert until(listens) and program.process.poll() is None, program.text()
