"""The SDK's WebSocket, with real clients: relayed and on a client's own connection, under TLS and over HTTP/2; its ends and limits."""

import contextlib
import socket
import unittest

import client as http
from client import until
from harness import Server, rootless_too, service, site
from stream_client import Streams, message, read_message
from tls_server import Tls, insecure
from websocket_client import Client

HANDSHAKE = [
    "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
]
HOSTS = ("main.test", "direct.test")
TALK = '[[site.service]]\nname = "talk"\npath = "/talk"\ncommand = ["bin/talk"]\n'


class Raw:
    """A client that reads only when it is told to, and answers nothing by itself."""

    def __init__(self, server, target="/talk", host="main.test", small=False):
        self.socket = socket.socket()
        if small:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.settimeout(10)
        self.socket.connect(("127.0.0.1", server.port))
        self.socket.sendall(http.request(target, host, HANDSHAKE))
        self.unread = b""
        while b"\r\n\r\n" not in self.unread:
            self.unread += self.more()
        self.head, _, self.unread = self.unread.partition(b"\r\n\r\n")

    def more(self):
        data = self.socket.recv(65536)
        if not data:
            raise EOFError
        return data

    def send(self, content, kind=1):
        self.socket.sendall(message(content, kind))

    def read(self, count):
        while len(self.unread) < count:
            self.unread += self.more()
        data, self.unread = self.unread[:count], self.unread[count:]
        return data

    def frame(self):
        return read_message(self.read)

    def close(self):
        self.socket.close()


class Base(unittest.TestCase):
    def setUp(self):
        try:
            from websockets.exceptions import ConnectionClosed, InvalidStatus
        except ImportError:
            self.skipTest("python's websockets is not installed")
        self.closed, self.refused = ConnectionClosed, InvalidStatus


@rootless_too
class Talk(Base):
    def setUp(self):
        super().setUp()
        relayed = service("talk", "/talk", command=["bin/talk"])
        direct = service("talk", "/talk", takes=True, command=["bin/direct"])
        # A worker that waited for its WebSockets would last far longer than the tests do.
        self.server = Server([site("main", [relayed]), site("direct", [direct])], ("talk",),
                             limits={"drain_timeout": "60s", "idle_timeout": "60s"})
        self.server.copy_program("talk", "direct")
        self.enterContext(self.server)

    def open(self, host, path="/talk", **more):
        return self.enterContext(contextlib.closing(
            Client(f"ws://{host}:{self.server.port}{path}", self.server.port, **more)))

    def raw(self, host, target="/talk", **more):
        return self.enterContext(contextlib.closing(Raw(self.server, target, host, **more)))

    def sees(self, words):
        """What says, later, whether a service has said that once more."""
        before = self.server.log().count(words)
        return lambda: until(lambda: self.server.log().count(words) > before, 10)

    def code(self, socket):
        """That with which the service ends it."""
        with self.assertRaises(self.closed):
            while True:
                socket.recv(timeout=10)
        return socket.closed_with[1]

    def test_messages_come_back_as_they_were(self):
        for host in HOSTS:
            with self.subTest(host):
                both = self.open(host, subprotocols=["other", "echo.v1"])
                self.assertEqual(both.socket.subprotocol, "echo.v1")
                for content in ("hello", "ä" * 50_000, b"", bytes(range(256)) * 4096):
                    both.send(content)
                    self.assertEqual(both.recv(), content)
                both.ping()
                both.close(4002, "enough")
                self.assertEqual(both.closed_with, (4002, 4002), "said by the other side")

    def test_a_page_of_another_site_is_refused(self):
        for host in HOSTS:
            own = f"http://{host}:{self.server.port}"
            for origin, path, granted in (
                (own, "/talk", True), ("https://friend.test", "/talk", True), ("https://evil.test", "/talk", False),
                ("null", "/talk", False), (f"http://{host}", "/talk", False), ("https://evil.test", "/talk/all", True),
            ):
                with self.subTest(host=host, origin=origin, path=path):
                    if granted:
                        both = self.open(host, path, origin=origin)
                        both.send("x")
                        self.assertEqual(both.recv(), "x")
                    else:
                        with self.assertRaises(self.refused) as refused:
                            self.open(host, path, origin=origin)
                        self.assertEqual(refused.exception.response.status_code, 403)
            with self.subTest(host), self.server.connect() as connection:
                answer = connection.get("/talk", host)
                self.assertEqual((answer.status, answer.headers["sec-websocket-version"]), (426, "13"))

    def test_each_end_has_its_code(self):
        for host in HOSTS:
            with self.subTest(host):
                both = self.open(host, "/talk?bytes=1000")
                both.send("x" * 1000)
                self.assertEqual(both.recv(), "x" * 1000)
                both.send("x" * 1001)
                self.assertEqual(self.code(both), 1009)
                both = self.open(host)
                both.send("leave")
                self.assertEqual(self.code(both), 4001)
                both, failed = self.open(host), self.sees("a WebSocket has ended: it was told to fail")
                both.send("fail")
                self.assertEqual(self.code(both), 1011)
                self.assertTrue(failed())
                raw = self.raw(host)
                raw.socket.sendall(b"\x81\x01x")
                self.assertEqual(raw.frame(), (8, b"\x03\xea"), "1002: a client masks what it sends")
        self.assertNotIn("a WebSocket has ended: a message", self.server.log(), "the client's fault is no error")

    def test_a_relaunched_service_tells_its_clients_and_ends(self):
        for host, name in zip(HOSTS, ("main/talk", "direct/talk"), strict=True):
            with self.subTest(host):
                title = "bin/talk" if host == "main.test" else "bin/direct"
                old = self.server.process(title)
                both = self.open(host)
                both.send("before")
                self.assertEqual(both.recv(), "before")
                deaf = self.raw(host)
                self.server.relaunch(name)
                self.assertEqual(self.code(both), 1001)
                self.assertEqual(deaf.frame(), (8, b"\x03\xe9"))
                self.assertTrue(until(lambda: not old.alive, 20), "long before `drain_timeout`, also by who does not answer")
                again = self.open(host)
                again.send("after")
                self.assertEqual(again.recv(), "after")

    def test_who_does_not_read_is_sent_no_more(self):
        for host in HOSTS:
            with self.subTest(host):
                sent = lambda: int(self.server.get("/talk/sent", host).text)
                raw, gone = self.raw(host, small=True), self.sees("the talk has ended: Err(Gone)")
                raw.send(b"flood")
                seen = []
                still = lambda: seen.append(sent()) or len(seen) > 20 and seen[-1] > 0 and len(set(seen[-20:])) == 1
                self.assertTrue(until(still, 20, 0.05), seen[-30:])
                self.assertLess(seen[-1] << 16, 32 << 20, "what buffers on the way hold")
                for _ in range(seen[-1] + 10):
                    self.assertEqual(raw.frame()[0], 2)
                self.assertGreater(sent(), seen[-1], "it goes on when there is room")
                raw.close()
                self.assertTrue(gone())

    def test_a_silent_client_is_asked_and_then_left(self):
        for host in HOSTS:
            with self.subTest(host):
                raw, silent = self.raw(host, "/talk?quiet=200"), self.sees("the talk has ended: Err(Silent)")
                self.assertEqual(raw.frame(), (9, b""), "a ping")
                raw.send(b"", 10)
                self.assertEqual(raw.frame(), (9, b""), "another, as it has answered")
                self.assertEqual(raw.frame(), (8, b"\x03\xf0"), "1008")
                self.assertTrue(silent())


@rootless_too
class Secured(Base):
    """Under TLS, over HTTP/1.1 and HTTP/2."""

    def setUp(self):
        super().setUp()
        self.server = Tls(more=TALK)
        self.server.copy_program("talk")
        self.enterContext(self.server)

    def test_over_http1(self):
        own = f"https://b.test:{self.server.tls}"
        with Client(f"wss://b.test:{self.server.tls}/talk", self.server.tls, ssl=insecure(), server_hostname="b.test",
                    origin=own) as both:
            for content in ("hello", bytes(range(256)) * 1000):
                both.send(content)
                self.assertEqual(both.recv(), content)

    def test_over_http2(self):
        with Streams(self.server.tls) as client:
            stream = client.open("/talk", ("origin", "https://b.test"), ("sec-websocket-protocol", "echo.v1, echo.v2"))
            self.assertEqual(client.heads[stream]["sec-websocket-protocol"], "echo.v2", "the service's first")
            client.send(stream, message(b"x" * 70_000))
            self.assertEqual(read_message(lambda count: client.read(stream, count)), (2, b"x" * 70_000))
            refused = client.ask("/talk", ("sec-websocket-version", "13"), ("origin", "https://evil.test"))
            self.assertEqual(client.status(refused), "403")
            self.server.relaunch("b/talk")
            self.assertEqual(read_message(lambda count: client.read(stream, count)), (8, b"\x03\xe9"))
            client.send(stream, message(b"\x03\xe9", 8))
            client.until(lambda: stream in client.ended, "END_STREAM after the service's end")


if __name__ == "__main__":
    unittest.main()
