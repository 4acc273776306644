"""Request heads that are wrong, or odd: each gets its status, and the server goes on."""

import socket
import time
import unittest

from client import Connection
from harness import Server, rootless_too, service, site

GET = b"GET / HTTP/1.1\r\nHost: main.test\r\n"
POST = b"POST /probe/echo HTTP/1.1\r\nHost: main.test\r\n"
#: A TLS 1.2 ClientHello, as far as its first bytes.
CLIENT_HELLO = b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03" + bytes(range(160))

#: What it is, the bytes, and the status; none stands for a connection that is closed without an answer.
HEADS = [
    ("good", GET + b"\r\n", 200),
    ("empty lines before", b"\r\n\r\n" + GET + b"\r\n", 200),
    ("HTTP/1.0 with a host", b"GET / HTTP/1.0\r\nHost: main.test\r\n\r\n", 200),
    ("HTTP/1.0 without a host", b"GET / HTTP/1.0\r\n\r\n", 404),
    ("length and chunked", POST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    ("chunked and length", POST + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n", 400),
    ("two lengths", POST + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 400),
    ("two lengths in one", POST + b"Content-Length: 3, 4\r\n\r\nabcd", 400),
    ("negative length", POST + b"Content-Length: -1\r\n\r\n", 400),
    ("length with a sign", POST + b"Content-Length: +3\r\n\r\nabc", 400),
    ("length in hexadecimal", POST + b"Content-Length: 0x3\r\n\r\nabc", 400),
    ("length of 30 digits", POST + b"Content-Length: " + b"9" * 30 + b"\r\n\r\n", 400),
    ("body too long", POST + b"Content-Length: 99999999\r\n\r\n", 413),
    ("unknown coding", POST + b"Transfer-Encoding: gzip\r\n\r\n", (400, 501)),
    ("coding after chunked", POST + b"Transfer-Encoding: chunked, gzip\r\n\r\n", (400, 501)),
    ("chunked twice", POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n", (400, 501)),
    ("chunked in HTTP/1.0", POST.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    ("bad chunk size", POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
    ("folded line", GET + b"X-One: a\r\n  b\r\n\r\n", 400),
    ("folded first line", b"GET / HTTP/1.1\r\n Host: main.test\r\n\r\n", 400),
    ("bare line feeds", b"GET / HTTP/1.1\nHost: main.test\n\n", 400),
    ("one bare line feed", GET + b"X-One: a\nX-Two: b\r\n\r\n", 400),
    ("bare carriage return", GET + b"X-One: a\rb\r\n\r\n", 400),
    ("NUL in a value", GET + b"X-One: a\0b\r\n\r\n", 400),
    ("NUL in the target", b"GET /\0 HTTP/1.1\r\nHost: main.test\r\n\r\n", 400),
    ("two hosts", GET + b"Host: main.test\r\n\r\n", 400),
    ("two different hosts", GET + b"Host: other.test\r\n\r\n", 400),
    ("no host", b"GET / HTTP/1.1\r\n\r\n", 400),
    ("host with a path", b"GET / HTTP/1.1\r\nHost: main.test/x\r\n\r\n", 400),
    ("host with a user", b"GET / HTTP/1.1\r\nHost: a@main.test\r\n\r\n", 400),
    ("unknown host", b"GET / HTTP/1.1\r\nHost: nobody.test\r\n\r\n", 404),
    ("absolute target, same host", b"GET http://main.test/ HTTP/1.1\r\nHost: main.test\r\n\r\n", 200),
    ("absolute target, another host", b"GET http://other.test/ HTTP/1.1\r\nHost: main.test\r\n\r\n", (200, 400)),
    ("absolute target, another scheme", b"GET ftp://main.test/ HTTP/1.1\r\nHost: main.test\r\n\r\n", 400),
    ("CONNECT", b"CONNECT main.test:80 HTTP/1.1\r\nHost: main.test\r\n\r\n", (400, 501)),
    ("asterisk with GET", b"GET * HTTP/1.1\r\nHost: main.test\r\n\r\n", 400),
    ("no slash", b"GET index.html HTTP/1.1\r\nHost: main.test\r\n\r\n", 400),
    ("blank before the colon", GET + b"X-One : a\r\n\r\n", 400),
    ("no colon", GET + b"X-One\r\n\r\n", 400),
    ("no name", GET + b": a\r\n\r\n", 400),
    ("blank in the target", b"GET /a b HTTP/1.1\r\nHost: main.test\r\n\r\n", 400),
    ("HTTP/2.0", b"GET / HTTP/2.0\r\nHost: main.test\r\n\r\n", 505),
    ("HTTP/0.9", b"GET /\r\n\r\n", 400),
    ("HTTP/2 preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", (400, 505)),
    ("not HTTP's version", b"GET / FTP/1.1\r\nHost: main.test\r\n\r\n", 400),
    ("no words", b"\x01\x02\x03\x04\r\n\r\n", 400),
    ("TLS", CLIENT_HELLO, (400, None)),
    ("odd expectation", POST + b"Expect: a miracle\r\nContent-Length: 0\r\n\r\n", 417),
    ("70,000 bytes", GET + b"X-One: " + b"a" * 70_000 + b"\r\n\r\n", 431),
    ("a target of 16,384 bytes", b"GET /" + b"a" * 16_383 + b" HTTP/1.1\r\nHost: main.test\r\n\r\n", 404),
    ("a target of 16,385 bytes", b"GET /" + b"a" * 16_384 + b" HTTP/1.1\r\nHost: main.test\r\n\r\n", 414),
    ("a target of 70,000 bytes", b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: main.test\r\n\r\n", 414),
    ("HTTP/1.2, which is HTTP/1.1 and more", GET.replace(b"1.1", b"1.2") + b"\r\n", 200),
    ("200 lines", GET + b"X-One: a\r\n" * 200 + b"\r\n", 431),
    ("escaped NUL", b"GET /%00 HTTP/1.1\r\nHost: main.test\r\n\r\n", (400, 404)),
    ("bad escape", b"GET /%zz HTTP/1.1\r\nHost: main.test\r\n\r\n", (400, 404)),
]


@rootless_too
class Heads(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        sites = [site("main", [service()]), site("other")]
        cls.server = cls.enterClassContext(Server(sites, limits={"head_timeout": "1s"}))

    def answer(self, data):
        """The status that the bytes get; None if the connection is closed without one."""
        with Connection(self.server.port, timeout=5) as connection:
            try:
                connection.send(data)
            except OSError:
                pass
            try:
                return connection.response().status
            except ConnectionError:
                return None

    def test_table(self):
        pids = [process.pid for process in self.server.processes()]
        for name, data, expected in HEADS:
            with self.subTest(name):
                expected = expected if isinstance(expected, tuple) else (expected,)
                self.assertIn(self.answer(data), expected)
                self.assertEqual(self.server.get("/").text, "<h1>main</h1>\n", "the server does not go on")
        self.assertEqual([process.pid for process in self.server.processes()], pids, "a process ended")

    def test_the_second_head_of_a_connection(self):
        for name, data, expected in HEADS:
            if expected != 400 or b"probe" in data:
                continue
            with self.subTest(name), self.server.connect() as connection:
                self.assertEqual(connection.get("/").status, 200)
                connection.send(data)
                self.assertEqual(connection.response().status, 400)
                self.assertTrue(connection.is_closed(), "it goes on after a malformed head")

    def test_nothing_is_smuggled(self):
        hidden = b"GET /hidden HTTP/1.1\r\nHost: main.test\r\n\r\n"
        for name, head in (
            ("length and chunked", b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
            ("two lengths", b"Content-Length: 0\r\nContent-Length: 5\r\n\r\n"),
        ):
            with self.subTest(name), self.server.connect(timeout=3) as connection:
                connection.send(POST + head + hidden)
                self.assertEqual(connection.response().status, 400)
                self.assertTrue(connection.is_closed())
        self.assertNotIn("/hidden", self.server.log("main.access"))

    def test_byte_by_byte(self):
        with self.server.connect() as connection:
            for byte in GET + b"\r\n":
                connection.send(bytes([byte]))
                time.sleep(0.005)
            self.assertEqual(connection.response().text, "<h1>main</h1>\n")
            # The second one is read by the site's worker.
            for byte in GET + b"\r\n":
                connection.send(bytes([byte]))
                time.sleep(0.005)
            self.assertEqual(connection.response().text, "<h1>main</h1>\n")

    def test_incomplete(self):
        for first in (False, True):
            with self.subTest(second_head=first), self.server.connect() as connection:
                if first:
                    self.assertEqual(connection.get("/").status, 200)
                began = time.monotonic()
                connection.send(GET)
                self.assertEqual(connection.response().status, 408)
                self.assertTrue(0.8 < time.monotonic() - began < 3)
                self.assertTrue(connection.is_closed())

    def test_dribbling_does_not_help(self):
        with self.server.connect() as connection:
            began = time.monotonic()
            try:
                while time.monotonic() - began < 6:
                    connection.send(b"X: y\r\n" if time.monotonic() - began > 0.1 else GET)
                    time.sleep(0.2)
            except OSError:
                pass
            # After the answer it lingers for 2 s, so that the client gets to read it.
            self.assertLess(time.monotonic() - began, 4.5, "one that sends a little at a time is kept")

    def test_reset_at_any_place(self):
        for size in range(0, len(GET) + 2, 3):
            connection = self.server.connect()
            connection.send((GET + b"\r\n")[:size])
            connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            connection.close()
        self.assertEqual(self.server.status("/"), 200)


if __name__ == "__main__":
    unittest.main()
