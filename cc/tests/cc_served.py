"""What a CCServer is to do, alone and behind a guard: a folder that it serves, and the tests of both."""

import os
import shutil
import socket
import tempfile
import time
import unittest

from cc_world import Client, Program, built, free_port, until, wait_for_port

LARGE = 4 * 1024 * 1024


class Served(unittest.TestCase):
    """A folder and a CCServer for it."""

    guard = {}

    @classmethod
    def setUpClass(cls):
        top = tempfile.mkdtemp(prefix="cc-served-")
        cls.addClassCleanup(shutil.rmtree, top)
        cls.folder = os.path.join(top, "site")
        os.makedirs(os.path.join(cls.folder, "sub"))
        cls.large = os.urandom(LARGE)
        files = {"index.html": b"front\n", "sub/index.html": b"below\n", "a b.txt": b"blank\n", "empty": b"",
                 "large": cls.large, "../secret": b"secret\n"}
        for name, content in files.items():
            with open(os.path.join(cls.folder, name), "wb") as file:
                file.write(content)
        os.symlink("../secret", os.path.join(cls.folder, "out"))
        os.symlink("/etc/passwd", os.path.join(cls.folder, "far"))
        os.symlink("sub/index.html", os.path.join(cls.folder, "in"))
        os.mkfifo(os.path.join(cls.folder, "fifo"))

    def setUp(self):
        self.port = free_port()
        self.program = self.enterContext(
            Program([built("ccserver"), f"127.0.0.1:{self.port}", self.folder], **self.guard))
        wait_for_port(self.port, self.program)

    def client(self):
        client = Client(self.port)
        self.addCleanup(client.close)
        return client


class Server(Served):
    def test_files(self):
        client = self.client()
        for target, body, kind in [("/", b"front\n", "text/html; charset=utf-8"),
                                   ("/sub/", b"below\n", "text/html; charset=utf-8"),
                                   ("/a%20b.txt?query=1", b"blank\n", "text/plain; charset=utf-8"),
                                   ("/in", b"below\n", "application/octet-stream"),
                                   ("http://a.test/sub/index.html", b"below\n", "text/html; charset=utf-8"),
                                   ("/empty", b"", "application/octet-stream")]:
            with self.subTest(target):
                status, fields, got = client.get(target)
                self.assertEqual((status, got, fields["content-type"]), (200, body, kind))
                self.assertEqual(fields["connection"], "keep-alive")

    def test_refusals(self):
        client = self.client()
        for target, expected in [("/none", 404), ("/index.html/x", 404), ("/sub", 404), ("/" + "n" * 300, 404),
                                 ("/../secret", 403), ("/sub/../../secret", 403), ("/%2e%2e/secret", 403),
                                 ("/sub/..%2f..%2fsecret", 403), ("/out", 403), ("/far", 403), ("/fifo", 403)]:
            with self.subTest(target):
                status, _, body = client.get(target)
                self.assertEqual(status, expected)
                self.assertNotIn(b"secret", body)

    def test_malformed(self):
        for target in ("/a%00b", "/" + "x" * 5000):
            with self.subTest(target[:10]):
                client = self.client()
                self.assertEqual(client.get(target)[0], 400)
                self.assertTrue(client.is_ended())

    def test_head(self):
        client = self.client()
        for _ in range(2):
            status, fields, _ = client.get("/large", method="HEAD")
            self.assertEqual((status, fields["content-length"]), (200, str(LARGE)))
        self.assertEqual(client.get("/none", method="HEAD")[0], 404)
        self.assertEqual(client.get("/")[2], b"front\n")

    def test_connection_ends(self):
        for more in ({"version": "1.0"}, {"headers": "Connection: close\r\n"}, {"headers": "Content-Length: 0\r\n"}):
            with self.subTest(more):
                client = self.client()
                self.assertEqual(client.get("/", **more)[2], b"front\n")
                self.assertTrue(client.is_ended())
        client = self.client()
        status, fields, _ = client.get("/", method="POST", headers="Content-Length: 0\r\n")
        self.assertEqual((status, fields["allow"]), (405, "GET, HEAD"))
        self.assertTrue(client.is_ended())

    def test_pipelined(self):
        client = self.client()
        for _ in range(20):
            client.send("/")
        self.assertEqual([client.answer()[2] for _ in range(20)], [b"front\n"] * 20)

    def test_large_by_child(self):
        client = self.client()
        for _ in range(3):
            self.assertEqual(client.get("/large")[2], self.large)
        self.assertEqual(client.get("/")[2], b"front\n")

    def test_slow_readers_block_nobody(self):
        slow = []
        for _ in range(8):
            client = socket.socket()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", self.port))
            client.sendall(b"GET /large HTTP/1.1\r\nHost: a.test\r\n\r\n")
            slow.append(client)
            self.addCleanup(client.close)
        self.assertTrue(until(lambda: len(self.children()) >= 8))
        began = time.monotonic()
        for _ in range(20):
            self.assertEqual(self.client().get("/")[2], b"front\n")
        self.assertLess(time.monotonic() - began, 5)
        # And each of them is cut off, when a piece takes too long.
        self.assertTrue(until(lambda: not [one for one in self.children() if not self.is_zombie(one)], 25))

    def test_pipelining_reader_blocks_nobody(self):
        """Small responses that nobody takes fill the socket's buffer too; a child waits, and not the server."""
        client = socket.create_connection(("127.0.0.1", self.port))
        self.addCleanup(client.close)
        client.setblocking(False)
        sent, end = 0, time.monotonic() + 3
        while time.monotonic() < end and not self.children():
            try:
                sent += client.send(b"GET /none HTTP/1.1\r\nHost: a.test\r\n\r\n" * 100)
            except BlockingIOError:
                time.sleep(0.01)
        self.assertEqual(self.client().get("/")[2], b"front\n")

    def children(self):
        path = f"/proc/{self.program.process.pid}/task/{self.program.process.pid}/children"
        with open(path, encoding="ascii") as file:
            return file.read().split()

    @staticmethod
    def is_zombie(pid):
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii") as file:
                return file.read().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            return True

    def test_many_at_once(self):
        clients = [self.client() for _ in range(50)]
        for _ in range(3):
            for client in clients:
                client.send("/")
            for client in clients:
                self.assertEqual(client.answer()[2], b"front\n")
