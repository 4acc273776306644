"""CCServer and chains of filters behind the real guard: its gate, its jails.

$BULKHEAD is the guard's program, with `bulkheadd` and `gate` beside it, unless it is in the folder of the programs in C
(`make OUT=...`); without it there is nothing to test here.
"""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest

import cc_served
from cc_world import BULKHEAD, TOP, Client, Program, built, free_port, until, wait_for_port

PYTHON = os.path.join(TOP, "..", "python")


@unittest.skipUnless(os.path.exists(BULKHEAD), "there is no guard: see $BULKHEAD")
class GuardedServer(cc_served.Server):
    """All that CCServer does, behind the gate. What the gate's own checks refuse does not reach it."""

    guard = {"guard": BULKHEAD}

    def test_refusals(self):
        client = self.client()
        for target, expected in [("/none", {404}), ("/sub", {404}), ("/out", {403}), ("/far", {403}),
                                 ("/../secret", {400, 403}), ("/%2e%2e/secret", {400, 403})]:
            with self.subTest(target):
                status, _, body = client.get(target)
                self.assertIn(status, expected)
                self.assertNotIn(b"secret", body)
                if status == 400:
                    client = self.client()

    def test_incomplete_connections_do_not_reach_it(self):
        idle = [socket.create_connection(("127.0.0.1", self.port)) for _ in range(200)]
        for one in idle[::2]:
            one.sendall(b"GET / HTTP/1.1\r\nHost:")
        for one in idle:
            self.addCleanup(one.close)
        began = time.monotonic()
        for _ in range(20):
            self.assertEqual(self.client().get("/")[2], b"front\n")
        self.assertLess(time.monotonic() - began, 5)
        held = os.listdir(f"/proc/{self.program.process.pid}/fd")
        self.assertLess(len(held), 20)

    def test_idle_connections_are_the_gates(self):
        clients = [self.client() for _ in range(30)]
        for client in clients:
            self.assertEqual(client.get("/")[2], b"front\n")
        self.assertLess(len(os.listdir(f"/proc/{self.program.process.pid}/fd")), 20)
        for client in reversed(clients):
            self.assertEqual(client.get("/")[2], b"front\n")

    def test_the_guard_ends_with_the_server(self):
        self.assertEqual(self.client().get("/")[2], b"front\n")
        os.kill(self.program.process.pid, signal.SIGKILL)
        # Nobody has the listening socket any more.
        self.assertTrue(until(self.is_refused), "somebody still listens")

    def is_refused(self):
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except ConnectionRefusedError:
            return True
        return False


@unittest.skipUnless(os.path.exists(BULKHEAD), "there is no guard: see $BULKHEAD")
class GuardedChain(unittest.TestCase):
    """Filters in their jails: their programs and folders are readable by any user."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="cc-chain-", dir="/var/tmp")
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        os.chmod(cls.folder, 0o755)
        shutil.copytree(PYTHON, os.path.join(cls.folder, "python"))
        for name in ("pass", "collapse"):
            shutil.copy(built(name), cls.folder)
        os.mkdir(os.path.join(cls.folder, "site"))
        with open(os.path.join(cls.folder, "site/a"), "w", encoding="ascii") as file:
            file.write("plain\n")

    def start(self, *filters):
        port = free_port()
        program = self.enterContext(Program(
            [built("ccserver"), f"127.0.0.1:{port}", self.folder + "/site", "flt_request", "flt_persist", *filters],
            guard=BULKHEAD))
        wait_for_port(port, program)
        client = Client(port)
        self.addCleanup(client.close)
        return client, program

    def python(self, name):
        """The words for a filter in Python: the system's own interpreter, whose library is in a folder of its own."""
        library = subprocess.run(
            ["/usr/bin/python3", "-c", "import os; print(os.path.dirname(os.__file__))"],
            capture_output=True, text=True, check=True).stdout.strip()
        reads = f"--filter-read={library}", f"--filter-read={self.folder}/python"
        return f"/usr/bin/python3 -I {self.folder}/python/filters/{name}", *reads

    def test_c(self):
        for count in (1, 3):
            with self.subTest(count=count):
                client, program = self.start(*[self.folder + "/pass"] * count)
                for _ in range(10):
                    answer = client.get("/a")
                    self.assertIsNotNone(answer, program.text())
                    self.assertEqual(answer[2], b"plain\n")

    def test_collapse(self):
        client, _ = self.start(self.folder + "/collapse 4")
        self.assertEqual(client.get("/x/../a")[2], b"plain\n")
        self.assertEqual(client.get("/1/2/3/4/5")[0], 400)
        self.assertTrue(client.is_ended())

    @unittest.skipUnless(os.path.exists("/usr/bin/python3"), "the system has no Python")
    def test_python(self):
        refuse, *reads = self.python("refuse.py --path /private")
        client, program = self.start(refuse, self.folder + "/pass", *reads)
        for _ in range(10):
            answer = client.get("/a")
            self.assertIsNotNone(answer, program.text())
            self.assertEqual(answer[2], b"plain\n")
        self.assertEqual(client.get("//private")[0], 403)
        self.assertTrue(client.is_ended())


if __name__ == "__main__":
    unittest.main()
