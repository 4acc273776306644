"""What every real server under the preload library is asked: what a client sees, and what the gate is told.

Runs in: the tests; the servers are in test_guard_servers.py.
"""

import concurrent.futures
import contextlib
import glob
import os
import shutil
import signal
import socket
import tempfile
import textwrap
import time

from guard_driver import Client, Server
from harness import free_port

LARGE = os.urandom(1 << 20) * 12
CGI = """#!/bin/sh
read_all() { cat | wc -c; }
echo "Content-Type: text/plain"; echo
echo "got $(read_all) from $REMOTE_ADDR"
"""


def children(pid):
    """The processes below `pid`."""
    found = []
    for path in glob.glob(f"/proc/{pid}/task/*/children"):
        # A thread may end meanwhile.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(path, encoding="ascii") as lines:
            for child in lines.read().split():
                found += [int(child), *children(int(child))]
    return found


class Served:
    """A server in `self.folder`. `command` makes its command line for `self.port`."""

    program, keeps, posts, chunks = None, True, True, True
    reads_chunks, reload, workers, killed, environment = True, None, False, None, {}

    def setUp(self):
        if not shutil.which(self.program):
            self.skipTest(f"{self.program} is not installed")
        self.folder = tempfile.mkdtemp(prefix="guard-")
        os.chmod(self.folder, 0o755)
        os.mkdir(self.folder + "/root")
        self.put("root/index.html", "<p>hello</p>\n")
        with open(self.folder + "/root/large.bin", "wb") as large:
            large.write(LARGE)
        self.put("root/post.cgi", CGI, 0o755)
        self.port = free_port()
        self.server = None

    def tearDown(self):
        if self.server:
            said = self.server.output()
            self.server.stop()
            self.assertNotIn("AddressSanitizer", said)
            self.assertNotIn("runtime error", said)
        shutil.rmtree(self.folder)

    def put(self, name, text, mode=0o644):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(textwrap.dedent(text))
        os.chmod(path, mode)
        return path

    def start(self, take=False, keep=0):
        self.server = Server(self.command(), self.port, take, self.environment, cwd=self.folder, keep=keep)
        return self.server

    def log(self):
        """What the server has logged about requests."""
        said = self.server.output()
        for path in glob.glob(self.folder + "/*.log"):
            with open(path, encoding="utf-8", errors="replace") as file:
                said += file.read()
        return said

    def client(self, source="127.0.0.1"):
        client = Client.__new__(Client)
        client.socket = socket.create_connection(("127.0.0.1", self.port), 10, (source, 0))
        client.buffer = b""
        return client

    def hello(self, client, headers=""):
        status, fields, body = client.get("/index.html", headers)
        self.assertEqual((status, body), (200, b"<p>hello</p>\n"))
        return fields

    def all_quiet(self):
        """The server holds nothing, and the gate was told of everything once."""
        gate = self.server.gate
        self.server.wait_for(gate.is_quiet, "the server to let go of all connections, each once")
        self.assertEqual(gate.unknown, [])

    def all_quiet_but_killed(self):
        self.server.wait_for(lambda: self.server.gate.held() == 0, "the server to let go of all connections")
        self.assertEqual(self.server.gate.unknown, [])


class Questions(Served):
    """What every server is asked."""

    def test_answers_and_sees_the_true_address(self):
        self.start()
        with self.client("127.0.0.5") as client:
            self.hello(client, "Connection: close\r\n")
        self.server.wait_for(lambda: "127.0.0.5" in self.log(), "the client's address in the log")
        self.all_quiet()
        self.assertEqual(self.server.gate.accepted, 1)

    def test_connection_comes_back_after_each_answer(self):
        if not self.keeps:
            self.skipTest("this server keeps no connection")
        gate = self.start().gate
        with self.client() as client:
            for number in range(1, 6):
                self.hello(client)
                self.server.wait_for(lambda n=number: len(gate.back) == n, "the connection to come back")
            self.assertEqual(gate.held(), 0)
        self.assertEqual((gate.accepted, sorted(gate.back)), (1, sorted(set(gate.took))))

    def test_head_304_and_chunked(self):
        gate = self.start().gate
        asked = 0
        with self.client() as client:
            fields = self.hello(client)
            if self.keeps:
                status, fields, _ = client.get("/index.html", method="HEAD")
                self.assertEqual(status, 200)
                asked = 2
                if "last-modified" in fields:
                    since = f"If-Modified-Since: {fields['last-modified']}\r\n"
                    self.assertEqual(client.get("/index.html", since)[0], 304)
                    asked += 1
                if self.chunks:
                    status, fields, body = client.get("/post.cgi", "Accept-Encoding: gzip\r\n")
                    self.assertEqual((status, fields.get("transfer-encoding")), (200, "chunked"), body)
                    asked += 1
                self.hello(client)
                self.server.wait_for(lambda: len(gate.back) == asked + 1, "all to come back")
        self.all_quiet()

    def test_post(self):
        if not self.posts:
            self.skipTest("this server has nothing to post to")
        gate = self.start().gate
        with self.client() as client:
            for number, size in enumerate((5, 300_000) if self.keeps else (300_000,), 1):
                status, _, body = client.get("/post.cgi", method="POST", body=b"x" * size)
                self.assertEqual((status, body.split()[1]), (200, str(size).encode()))
                if self.keeps:
                    self.server.wait_for(lambda n=number: len(gate.back) == n, "the connection to come back")
        if self.keeps and self.reads_chunks:
            with self.client() as client:
                client.send(b"POST /post.cgi HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
                time.sleep(0.05)
                client.send(b"4\r\nabcd\r\n")
                client.send(b"0\r\n\r\n")
                self.assertEqual(client.answer()[0], 200)
        self.all_quiet()

    def test_large(self):
        gate = self.start().gate
        with self.client() as client:
            for number in range(1, 4 if self.keeps else 2):
                status, _, body = client.get("/large.bin")
                self.assertTrue(status == 200 and body == LARGE)
                if self.keeps:
                    self.server.wait_for(lambda n=number: len(gate.back) == n, "the connection to come back")
        self.all_quiet()

    def test_pipelined(self):
        if not self.keeps:
            self.skipTest("this server keeps no connection")
        self.start()
        with self.client() as client:
            client.send(b"GET /index.html HTTP/1.1\r\nHost: x\r\n\r\n" * 4)
            for _ in range(4):
                self.assertEqual(client.answer()[0::2], (200, b"<p>hello</p>\n"))
            self.hello(client)
        self.all_quiet()

    def test_request_and_a_byte(self):
        """The start of a next request does not stay with the server: it waits at the gate for its end."""
        if not self.keeps:
            self.skipTest("this server keeps no connection")
        gate = self.start().gate
        with self.client() as client:
            client.send(b"GET /index.html HTTP/1.1\r\nHost: x\r\n\r\nG")
            self.assertEqual(client.answer()[0::2], (200, b"<p>hello</p>\n"))
            self.server.wait_for(lambda: len(gate.back) == 1, "the connection to come back")
            client.send(b"ET /index.html HTTP/1.1\r\nHost: x\r\n\r\n")
            self.assertEqual(client.answer()[0::2], (200, b"<p>hello</p>\n"))
            self.server.wait_for(lambda: len(gate.back) == 2, "the connection to come back again")
        self.all_quiet()
        self.assertEqual((gate.accepted, len(set(gate.took))), (1, 2))

    def test_200_in_sequence(self):
        self.start()
        for _ in range(100):
            with self.client() as client:
                self.hello(client)
        if self.keeps:
            with self.client() as client:
                for _ in range(100):
                    self.hello(client)
        self.all_quiet()

    def test_50_at_once(self):
        self.start()

        def one(number):
            with self.client(f"127.0.1.{number + 1}") as client:
                for _ in range(4 if self.keeps else 1):
                    self.hello(client)

        with concurrent.futures.ThreadPoolExecutor(50) as pool:
            list(pool.map(one, range(50)))
        self.all_quiet()
        self.assertEqual(self.server.gate.accepted, 50)

    def test_taken_bytes_come_first(self):
        gate = self.start(take=True).gate
        with self.client() as client:
            for _ in range(5 if self.keeps else 1):
                self.hello(client)
            if self.keeps and self.posts:
                status, _, body = client.get("/post.cgi", method="POST", body=b"y" * 200_000)
                self.assertEqual((status, body.split()[1]), (200, b"200000"))
        self.all_quiet()

        def one(_):
            with self.client() as client:
                self.hello(client)

        with concurrent.futures.ThreadPoolExecutor(20) as pool:
            list(pool.map(one, range(40)))
        self.all_quiet()
        self.assertEqual(gate.leftover, 0)

    def test_client_that_leaves(self):
        """Half of an answer is read; the next client is served as if nothing had been."""
        self.start()
        for _ in range(5):
            client = self.client()
            client.send(b"GET /large.bin HTTP/1.1\r\nHost: x\r\n\r\n")
            client.socket.recv(1000)
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            client.close()
        with self.client() as client:
            self.hello(client)
        self.all_quiet()

    def test_worker_that_is_killed(self):
        if not self.workers:
            self.skipTest("one process")
        gate = self.start().gate
        with self.client() as client:
            self.hello(client)
        self.server.wait_for(lambda: gate.processes, "a process channel")
        for child in children(self.server.process.pid)[:self.killed]:
            os.kill(child, signal.SIGKILL)
        self.server.wait_for(lambda: gate.ended_processes >= 1 or not gate.processes or self.killed,
                             "the end of a process channel")
        time.sleep(0.3)
        for _ in range(10):
            with self.client() as client:
                self.hello(client)
        self.all_quiet_but_killed()

    def test_graceful_reload(self):
        if self.reload is None:
            self.skipTest("this server does not reload")
        self.start()
        for _ in range(3):
            with self.client() as client:
                self.hello(client)
            self.server.signal(self.reload)
            # While it reloads, and after.
            end = time.monotonic() + 0.7
            while time.monotonic() < end:
                with self.client() as client:
                    self.hello(client)
                time.sleep(0.01)
        self.all_quiet_but_killed()
        self.assertNotIn("bulkhead guard:", self.server.output())
