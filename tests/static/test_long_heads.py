"""Heads as long as nginx takes them, to everything that answers, and heads that come byte by byte."""

import shutil
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

import backend
from backend import Fpm, Raw, response
from client import Connection
from harness import Server, free_port, rootless_too

TEXT = """
[[listen]]
address = "127.0.0.1:{port}"

[[listen]]
address = "127.0.0.1:{h2c}"
h2c = true

[[site]]
name = "main"
host = ["main.test"]
root = "main"

  [[site.service]]
  name = "probe"
  path = "/probe"
  command = ["bin/probe"]

  [[site.route]]
  path = "/up/"
  upstream = "{upstream}"

  [[site.route]]
  suffix = ".php"
  fastcgi = "unix:{socket}"
"""
COOKIE = "a=" + "c" * 20_000
QUERY = "q" * 8_000


@unittest.skipUnless(backend.php_fpm(), "php-fpm is not installed")
@rootless_too
class LongHeads(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        place = Path(tempfile.mkdtemp(prefix="bulkhead-php-", dir="/tmp"))
        place.chmod(0o755)
        cls.addClassCleanup(shutil.rmtree, place, True)
        fpm = Fpm(place)
        cls.addClassCleanup(fpm.close)
        cls.upstream = cls.enterClassContext(Raw(answer=lambda request: response(request.head)))
        cls.h2c = free_port()
        cls.server = Server(
            text=lambda port: TEXT.format(port=port, h2c=cls.h2c, upstream=cls.upstream.at, socket=fpm.socket),
            files={"main/index.html": "a page", "main/say.php": '<?php echo $_SERVER["HTTP_COOKIE"], $_SERVER["QUERY_STRING"];'},
        )
        cls.enterClassContext(cls.server)

    def curl(self, target, *options):
        port = self.h2c if options else self.server.port
        url = f"http://main.test:{port}{target}"
        with tempfile.NamedTemporaryFile("w") as headers:
            headers.write(f"Cookie: {COOKIE}\n")
            headers.flush()
            command = ["curl", "-sS", *options, "--resolve", f"main.test:{port}:127.0.0.1", "-H", f"@{headers.name}"]
            done = subprocess.run([*command, "-w", "\n%{http_code}", url], capture_output=True, timeout=20, check=True)
        body, _, status = done.stdout.rpartition(b"\n")
        return int(status), body

    def test_everything_that_answers_gets_them(self):
        for options in ((), ("--http2-prior-knowledge",)):
            for target, told in (("/", False), ("/probe", False), ("/up/x", True), ("/say.php", True)):
                with self.subTest(target=target, options=options):
                    status, body = self.curl(f"{target}?{QUERY}", *options)
                    self.assertEqual(status, 200, body[:200])
                    if told:
                        self.assertIn(COOKIE.encode(), body)
                        self.assertIn(QUERY.encode(), body)

    def test_longer_ones_are_refused(self):
        with self.server.connect() as connection:
            self.assertEqual(connection.get("/", headers=["X: " + "x" * 33_000]).status, 431)
        with self.server.connect() as connection:
            self.assertEqual(connection.get("/").status, 200)
            self.assertEqual(connection.get("/", headers=["X: " + "x" * 33_000]).status, 431)


@rootless_too
class ByteByByte(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(Server())

    def test_each_head_of_a_connection_is_found(self):
        head = b"GET / HTTP/1.1\r\nHost: main.test\r\n\r\n"
        with self.server.connect() as connection:
            for _ in range(3):
                # One in pieces, with the beginning of the next at its end.
                for piece in (head[:1], *(head[at:at + 1] for at in range(1, len(head) - 1)), head[-1:]):
                    connection.send(piece)
                    time.sleep(0.002)
                self.assertEqual(connection.response().status, 200)
            connection.send(head + head[:20])
            self.assertEqual(connection.response().status, 200)
            connection.send(head[20:])
            self.assertEqual(connection.response().status, 200)

    def test_lone_line_feeds_are_refused_at_once(self):
        for first in (b"", b"GET / HTTP/1.1\r\nHost: main.test\r\n\r\n"):
            with self.subTest(first=first), Connection(self.server.port, timeout=5) as connection:
                if first:
                    connection.send(first)
                    self.assertEqual(connection.response().status, 200)
                for piece in (b"GET / HTTP/1.1\nHo", b"st: main.test\n", b"\n"):
                    connection.send(piece)
                    time.sleep(0.05)
                # The time for a head is ten seconds.
                self.assertEqual(connection.response().status, 400)
