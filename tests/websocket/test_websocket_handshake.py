"""The handshake of WebSocket, both ways: nothing but what was asked for, and proved, opens a tunnel (RFC 6455 4).

The server behind the site is hostile, or no WebSocket server at all: a program that is made to answer 101. What a client
sends after such an answer passes no rule, so it must not get there.
"""

import base64
import os
import socket
import ssl
import unittest

import backend
from backend import FastCgi, Raw
from harness import rootless_too
from tls_server import Tls

#: What a rule of the site refuses, and a tunnel does not.
HIDDEN = b"GET /up/hidden HTTP/1.1\r\nHost: b.test\r\n\r\n"
SWITCHING = "HTTP/1.1 101 Switching Protocols"
GOOD = ("Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Accept: {accept}")


def answer(*lines, status=SWITCHING):
    return lambda accept: "\r\n".join([status, *(line.format(accept=accept) for line in lines)]).encode() + b"\r\n\r\n"


#: Answers by the path's end; none of these grants what was asked for.
BAD = {
    "bare": answer(),
    "no-accept": answer(*GOOD[:2]),
    "wrong-accept": answer(*GOOD[:2], "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo="),
    "short-accept": answer(*GOOD[:2], "Sec-WebSocket-Accept: A"),
    "two-accepts": answer(*GOOD, "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo="),
    "same-accept-twice": answer(*GOOD, GOOD[2]),
    "no-upgrade": answer(*GOOD[1:]),
    "other-upgrade": answer("Upgrade: h2c", *GOOD[1:]),
    "two-upgrades": answer(*GOOD, "Upgrade: h2c"),
    "no-connection": answer(GOOD[0], GOOD[2]),
    "close": answer(GOOD[0], "Connection: close", GOOD[2]),
    "protocol": answer(*GOOD, "Sec-WebSocket-Protocol: chat"),
    "extension": answer(*GOOD, "Sec-WebSocket-Extensions: permessage-deflate"),
    "old": answer(*GOOD, status="HTTP/1.0 101 Switching Protocols"),
}
#: What does.
FINE = {
    "good": answer(*GOOD),
    "odd-letters": answer("UPGRADE: WebSocket", "connection: keep-alive, upgrade", GOOD[2]),
    "length": answer(*GOOD, "Content-Length: 0"),
}
ROUTES = """
[[site.route]]
path = "/up/"
upstream = "{up}"

[[site.route]]
path = "/up/hidden"
deny = ["127.0.0.0/8"]

[[site.route]]
path = "/fc/"
fastcgi = "{fc}"

[[site.service]]
name = "socket"
path = "/service"
command = ["bin/socket"]
"""


class Hostile(Raw):
    """Says 101 as the path tells it, and keeps what comes then."""

    def __init__(self):
        super().__init__(answer=self.switch)
        self.after = []

    def switch(self, request):
        name = request.line.split()[1].rsplit("/", 1)[-1]
        accept = backend.websocket_accept(request.field("sec-websocket-key") or "")
        request.connection.sendall({**BAD, **FINE}[name](accept))
        while data := request.connection.recv(65536):
            self.after.append(data)
            request.connection.sendall(b"echo " + data)


class Fcgi(FastCgi):
    def answered(self, told, body):
        return b"Status: 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"


@rootless_too
class Handshake(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.behind, cls.fcgi = Hostile(), Fcgi()
        cls.addClassCleanup(cls.behind.close)
        cls.addClassCleanup(cls.fcgi.close)
        cls.server = Tls(more=ROUTES.format(up=cls.behind.at, fc=cls.fcgi.at))
        text = cls.server.config.read_text()
        cls.server.config.write_text(text.replace("redirect_to_https = true", ""))
        cls.server.copy_program("socket")
        cls.enterClassContext(cls.server)

    def connect(self, tls):
        raw = socket.create_connection(("127.0.0.1", self.server.tls if tls else self.server.port), 20)
        self.addCleanup(raw.close)
        if not tls:
            return raw
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        wrapped = context.wrap_socket(raw, server_hostname="b.test")
        self.addCleanup(wrapped.close)
        return wrapped

    def ask(self, path, *more, tls=False, without=(), method="GET", version="1.1", body=b""):
        """The connection, and the head of the answer to a handshake."""
        lines = {
            "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(),
        }
        lines = [f"{name}: {value}" for name, value in lines.items() if name not in without]
        head = "\r\n".join([f"{method} {path} HTTP/{version}", "Host: b.test", *lines, *more])
        connection = self.connect(tls)
        connection.sendall(head.encode() + b"\r\n\r\n" + body)
        said = b""
        while b"\r\n\r\n" not in said:
            data = connection.recv(65536)
            self.assertTrue(data, f"an answer, not {said}")
            said += data
        return connection, said

    def check(self, path, status, *more, **others):
        for tls in (False, True):
            with self.subTest(path=path, more=more, tls=tls, **others):
                before = len(self.behind.after)
                connection, said = self.ask(path, *more, tls=tls, **others)
                self.assertEqual(said.split()[1].decode(), str(status), said)
                # What follows is a request like any other, and a rule refuses it, or the end.
                try:
                    connection.sendall(HIDDEN)
                    while data := connection.recv(65536):
                        said += data
                        self.assertNotIn(b"echo", said)
                        if b" 403 " in said:
                            break
                except OSError:
                    pass
                self.assertEqual(self.behind.after[before:], [])
                if status == 426:
                    self.assertIn(b"sec-websocket-version: 13", said.lower())
                    self.assertIn(b"upgrade: websocket", said.lower())

    def test_answers_that_grant_nothing(self):
        for name in BAD:
            self.check(f"/up/{name}", 502)
        self.check("/up/protocol", 502, "Sec-WebSocket-Protocol: other, chats")
        self.check("/up/extension", 502, "Sec-WebSocket-Extensions: x-other")

    def test_answers_that_nobody_asked_for(self):
        """A 101 to what was no handshake: to a plain request, a POST, HTTP/1.0, one with a body, another protocol."""
        self.check("/up/good", 502, without=("Upgrade", "Connection"))
        self.check("/up/good", 502, without=("Connection",))
        self.check("/up/good", 502, without=("Upgrade",))
        self.check("/up/good", 502, method="POST")
        self.check("/up/good", 502, "Content-Length: 1", body=b"x")
        self.check("/up/good", 502, "Content-Length: 1", body=b"x", method="POST")
        self.check("/up/good", 502, version="1.0")
        self.check("/up/good", 502, "Upgrade: h2c", without=("Upgrade",))
        self.check("/up/good", 502, "Upgrade: h2c, websocket", without=("Upgrade",))
        for path in ("/fc/good", "/fc/bare"):
            self.check(path, 502)
            self.check(path, 502, without=("Upgrade", "Connection"))

    def test_requests_that_are_no_handshake(self):
        for path in ("/up/good", "/service", "/index.html"):
            for key in ("", "AAAA", "x" * 24, "dGhlIHNhbXBsZSBub25jZQ=", "dGhlIHNhbXBsZSBub25jZQ==, x"):
                self.check(path, 400, f"Sec-WebSocket-Key: {key}", without=("Sec-WebSocket-Key",))
            self.check(path, 400, without=("Sec-WebSocket-Key",))
            self.check(path, 400, "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==")
            for version in ("1337", "8", "", "13, 8"):
                self.check(path, 426, f"Sec-WebSocket-Version: {version}", without=("Sec-WebSocket-Version",))
            self.check(path, 426, without=("Sec-WebSocket-Version",))
            self.check(path, 426, "Sec-WebSocket-Version: 13")

    def test_what_is_asked_for_and_granted(self):
        for name in FINE:
            self.open(f"/up/{name}")
        self.open("/up/protocol", "Sec-WebSocket-Protocol: other", "Sec-WebSocket-Protocol: chat")
        self.open("/up/extension", "Sec-WebSocket-Extensions: x-other; a=1, permessage-deflate; b")

    def open(self, path, *more):
        for tls in (False, True):
            with self.subTest(path=path, tls=tls):
                connection, said = self.ask(path, *more, tls=tls)
                head, rest = said.split(b"\r\n\r\n", 1)
                self.assertTrue(head.startswith(b"HTTP/1.1 101 "), head)
                self.assertNotIn(b"content-length", head.lower())
                connection.sendall(b"hello")
                while len(rest) < 10:
                    rest += connection.recv(100)
                self.assertEqual(rest, b"echo hello")
