"""Small servers in Python under the preload library, each of which does one thing.

Runs in: the tests.
"""

import os
import sys
import tempfile
import textwrap
import unittest

from guard_driver import Client, Server
from harness import free_port

BEGIN = """
import ctypes, errno, fcntl, os, resource, select, socket, struct, subprocess, sys, termios, time
port = int(sys.argv[1])
ANSWER = b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok"
CLOSING = b"HTTP/1.1 200 OK\\r\\nConnection: close\\r\\nContent-Length: 2\\r\\n\\r\\nok"
def listen(family=socket.AF_INET, host="127.0.0.1"):
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, port))
    listener.listen(16)
    return listener
def head(client):
    text = b""
    while not text.endswith(b"\\r\\n\\r\\n"):
        part = client.recv(4096)
        if not part:
            return text
        text += part
    return text
def say(*what):
    print(*what, flush=True)
"""


class SmallServer(unittest.TestCase):
    """Each test is a server, and a client's questions to it."""

    def serve(self, script, take=False, environment=None):
        """Starts a server in Python; it begins with BEGIN."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = os.path.join(folder.name, "server.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write(BEGIN + textwrap.dedent(script))
        return self.serve_command([sys.executable, path], take, environment)

    def serve_command(self, command, take=False, environment=None):
        """Starts a server, which is told its port."""
        self.port = free_port()
        self.server = Server([*command, str(self.port)], self.port, take, environment)
        self.addCleanup(self.finish, self.server)
        return self.server

    def finish(self, server):
        said = server.output()
        server.stop()
        self.assertNotIn("AddressSanitizer", said)
        self.assertNotIn("Traceback", said)

    def asks(self, count=3, size=0):
        """One client asks `count` times on one connection."""
        with Client(self.server) as client:
            for _ in range(count):
                body = b"z" * size
                self.assertEqual(client.get("/", method="POST" if size else "GET", body=body)[0::2], (200, b"ok"))

    def said(self, what):
        self.server.wait_for(lambda: what in self.server.output(), f"{what!r} in what the server says")
