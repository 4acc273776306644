"""WebSocket over HTTP/2 (RFC 8441), to a server behind a site and to a service; and what a client may try with it."""

import base64
import socket
import struct
import threading
import unittest

import backend
from backend import Raw, response
from client import until
from harness import rootless_too
from stream_client import Streams, message, read_message
from tls_server import Tls

#: Answers of a server that open no tunnel, by the path's end.
NO_GRANTS = ("page", "wrong", "two", "other", "bare", "protocol", "extension")
CANCEL, REFUSED_STREAM, ENHANCE_YOUR_CALM = 8, 7, 11
RULES = """
[[site.route]]
path = "/private"
upstream = "{at}"
auth = {{ realm = "r", users = "users" }}

[[site.route]]
path = "/denied"
upstream = "{at}"
deny = ["127.0.0.0/8"]

[[site.route]]
path = "/moved"
redirect = "/elsewhere"
"""


def switch(request, accept=None, *more):
    """The answer that grants."""
    accept = accept or backend.websocket_accept(request.field("sec-websocket-key"))
    lines = ["Upgrade: websocket", "Connection: Upgrade", f"Sec-WebSocket-Accept: {accept}", *more]
    return "\r\n".join(["HTTP/1.1 101 Switching Protocols", *lines]).encode() + b"\r\n\r\n"


class Behind:
    """A server behind the site: what it does is said by the path's end."""

    def __init__(self):
        self.ends, self.sent, self.release = [], 0, threading.Event()
        self.raw = Raw(answer=self.answer)
        self.at = self.raw.at

    def close(self):
        self.release.set()
        self.raw.close()

    def answer(self, request):
        what = request.line.split()[1].partition("?")[0].rsplit("/", 1)[-1]
        connection = request.connection
        plain = {
            "page": response(b"a page"),
            "wrong": switch(request, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="),
            "two": switch(request, None, "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo="),
            "other": switch(request).replace(b"Upgrade: websocket", b"Upgrade: h2c"),
            "bare": b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
            "protocol": switch(request, None, "Sec-WebSocket-Protocol: chat"),
            "extension": switch(request, None, "Sec-WebSocket-Extensions: permessage-deflate"),
        }
        if what in plain:
            return plain[what]
        granted = ["Sec-WebSocket-Protocol: chat"] if request.field("sec-websocket-protocol") else []
        connection.sendall(switch(request, None, *granted))
        try:
            getattr(self, what)(connection)
        except OSError as error:
            self.ends.append(type(error).__name__)
            raise
        return None

    def echo(self, connection):
        while data := connection.recv(65536):
            connection.sendall(data)
        connection.sendall(b"the end")
        self.ends.append("end")

    def leave(self, connection):
        connection.recv(1)
        connection.sendall(b"bye")

    def break_off(self, connection):
        connection.recv(1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def flood(self, connection):
        while not self.release.is_set():
            self.sent += connection.send(bytes(65536))

    def deaf(self, _):
        self.release.wait(60)


@rootless_too
class OverHttp2(unittest.TestCase):
    def setUp(self):
        try:
            import h2  # noqa: F401
        except ImportError:
            self.skipTest("python's h2 is not installed")
        self.behind = Behind()
        self.addCleanup(self.behind.close)

    def start(self, limits="", more=""):
        service = '[[site.service]]\nname = "socket"\npath = "/service"\ncommand = ["bin/socket"]\n'
        route = f'[[site.route]]\npath = "/upstream"\nupstream = "{self.behind.at}"\n'
        self.server = Tls(more=service + route + more.format(at=self.behind.at), limits=limits)
        self.server.copy_program("socket")
        self.server.write("users", "ann:$2y$05$cl7EWDk9wPWsXpkxUjCrMuDu9ed1TDYVjLL/Hkgs4CD2jALBwBUzm\n")
        return self.enterContext(self.server)

    def connect(self, **more):
        return self.enterContext(Streams(self.server.tls, **more))

    def worker(self):
        return self.server.process("site b")

    def test_messages(self):
        """Frames of WebSocket with a service of the SDK, many of them at once with one connection."""
        self.start()
        client = self.connect()
        streams = [client.open("/service") for _ in range(5)]
        for content in (b"hello", b"x" * 100_000, bytes(range(256)) * 8_000):
            for stream in streams:
                client.send(stream, message(content))
            for stream in streams:
                kind, back = read_message(lambda count: client.read(stream, count))
                self.assertEqual((kind, back == content), (2, True), (len(content), back[:20]))
        for stream in streams:
            client.send(stream, message(b"\x0f\xa1", 8))
            self.assertEqual(read_message(lambda count: client.read(stream, count)), (8, b"\x0f\xa1"))
            client.until(lambda: stream in client.ended, "END_STREAM after the service's end")
            client.end(stream)
        self.assertEqual(client.resets, {})
        logged = lambda: self.server.log("b.access").count('"GET /service HTTP/2.0" 200 ') == len(streams)
        self.assertTrue(until(logged, 5), self.server.log("b.access"))

    def test_what_the_other_side_sees(self):
        self.start()
        client = self.connect()
        stream = client.open(
            "/upstream/echo?a=b", ("origin", "https://b.test"), ("sec-websocket-key", "AAAA"), ("cookie", "a=1"),
            ("sec-websocket-protocol", "chat, more"), ("x-forwarded-for", "6.6.6.6"), ("client-cert", ":AAAA:"),
        )
        head = client.heads[stream]
        self.assertEqual(head["sec-websocket-protocol"], "chat")
        for name in ("sec-websocket-accept", "connection", "upgrade", "content-length", "transfer-encoding"):
            self.assertNotIn(name, head)
        request = self.behind.raw.requests[0]
        self.assertEqual(request.line, "GET /upstream/echo?a=b HTTP/1.1")
        (key,) = request.all("sec-websocket-key")
        self.assertEqual(len(base64.b64decode(key, validate=True)), 16)
        expected = {
            "host": "b.test", "upgrade": "websocket", "connection": "upgrade", "sec-websocket-version": "13",
            "origin": "https://b.test", "cookie": "a=1", "sec-websocket-protocol": "chat, more",
            "x-forwarded-for": "127.0.0.1", "x-forwarded-proto": "https",
        }
        self.assertEqual({name: request.all(name) for name in expected}, {name: [one] for name, one in expected.items()})
        for name in (":protocol", "content-length", "transfer-encoding", "client-cert"):
            self.assertEqual(request.all(name), [], name)
        # The next one has another key.
        client.open("/upstream/echo")
        self.assertNotEqual(self.behind.raw.requests[1].field("sec-websocket-key"), key)

    def test_ends(self):
        self.start('idle_timeout = "6s"')
        client = self.connect()
        # The client's end is passed on, and what the other side still says comes.
        stream = client.open("/upstream/echo")
        client.send(stream, b"all")
        client.end(stream)
        self.assertEqual(client.read(stream, 10), b"allthe end")
        client.until(lambda: stream in client.ended, "END_STREAM")
        logged = lambda: '"GET /upstream/echo HTTP/2.0" 200 13 ' in self.server.log("b.access")
        self.assertTrue(until(logged, 5), self.server.log("b.access"))
        # The other side's end is, too.
        stream = client.open("/upstream/leave")
        client.send(stream, b"x")
        self.assertEqual(client.read(stream, 3), b"bye")
        client.until(lambda: stream in client.ended, "END_STREAM")
        client.end(stream)
        # A break is one.
        stream = client.open("/upstream/break_off")
        client.send(stream, b"x")
        client.until(lambda: client.resets.get(stream) == CANCEL, "RST_STREAM(CANCEL)")
        # A client's break reaches the other side.
        before = len(self.behind.ends)
        client.reset(client.open("/upstream/echo"))
        self.assertTrue(until(lambda: len(self.behind.ends) > before, 10))
        # Silence ends it.
        stream = client.open("/upstream/echo")
        client.until(lambda: client.resets.get(stream) == CANCEL, "RST_STREAM(CANCEL) after idle_timeout")
        # None of it was the connection's end.
        self.assertIsNone(client.gone)
        self.assertEqual(client.status(client.ask("/", method="GET", protocol=None, end=True)), "200")

    def test_data_after_the_end(self):
        self.start()
        client = self.connect()
        stream = client.open("/upstream/echo")
        client.end(stream)
        client.until(lambda: stream in client.ended, "END_STREAM")
        client.socket.sendall(b"\0\0\4\0\0" + stream.to_bytes(4, "big") + b"late")
        client.until(lambda: (stream, 5) in client.told, "RST_STREAM(STREAM_CLOSED)")
        self.assertEqual(client.data[stream], b"the end")
        # Where the other side has not ended, the tunnel ends with it (RFC 9113 5.1).
        stream = client.open("/upstream/deaf")
        client.end(stream)
        client.socket.sendall(b"\0\0\4\0\0" + stream.to_bytes(4, "big") + b"late")
        client.until(lambda: (stream, 5) in client.told, "RST_STREAM(STREAM_CLOSED)")
        held = self.behind.raw.held[-1]
        held.settimeout(10)
        self.assertEqual(held.recv(100), b"")

    def test_refused(self):
        self.start(more=RULES)
        client = self.connect()
        for path, more, status in (
            # Whatever answers a GET, without a tunnel.
            ("/index.html", {}, "405"), ("/nothing", {}, "404"), ("/upstream/page", {}, "405"), ("/moved", {}, "302"),
            # Terms are asked before anybody behind the site is.
            ("/private/echo", {}, "401"), ("/denied/echo", {}, "403"),
            # Other protocols, and other hosts.
            ("/upstream/echo", {"protocol": "connect-udp"}, "501"), ("/upstream/echo", {"protocol": "h2c"}, "501"),
            ("/upstream/echo", {"authority": "c.test"}, "421"),
            # Grants that are none (RFC 6455 4.1).
            ("/upstream/wrong", {}, "502"), ("/upstream/two", {}, "502"), ("/upstream/other", {}, "502"),
            ("/upstream/bare", {}, "502"), ("/upstream/protocol", {}, "502"), ("/upstream/extension", {}, "502"),
            # Other versions (RFC 6455 4.4).
            ("/upstream/echo", {"version": "8"}, "426"), ("/index.html", {"version": "8"}, "426"),
        ):
            with self.subTest(path=path, more=more):
                more = dict(more)
                stream = client.ask(path, ("sec-websocket-version", more.pop("version", "13")), **more)
                self.assertEqual(client.status(stream), status)
                client.until(lambda: stream in client.ended, "the end of the answer")
                if status == "405":
                    self.assertEqual(client.heads[stream]["allow"], "GET, HEAD")
                if status == "426":
                    self.assertEqual(client.heads[stream]["sec-websocket-version"], "13")
        asked = [request.line.split()[1] for request in self.behind.raw.requests]
        self.assertEqual(asked, [f"/upstream/{name}" for name in NO_GRANTS])

    def test_nothing_is_smuggled(self):
        """Into the request that a server behind the site gets: each is refused, and none reaches it."""
        self.start()
        hidden = "GET /upstream/hidden HTTP/1.1\r\nHost: b.test\r\n\r\n"
        for name, path, more, others in (
            ("CR LF in the path", "/upstream/echo HTTP/1.1\r\nHost: b.test\r\n\r\n" + hidden, (), {}),
            ("LF in the path", "/upstream/echo\nX: y", (), {}),
            ("blank in the path", "/upstream/echo x", (), {}),
            ("absolute path", "https://c.test/upstream/echo", (), {}),
            ("CR LF in the authority", "/upstream/echo", (), {"authority": "b.test\r\nX: y"}),
            ("user in the authority", "/upstream/echo", (), {"authority": "a@b.test"}),
            ("another host", "/upstream/echo", (("host", "c.test"),), {}),
            ("CR LF in a value", "/upstream/echo", (("x-one", "a\r\n\r\n" + hidden),), {}),
            ("CR LF in a name", "/upstream/echo", (("x-one: a\r\nx-two", "b"),), {}),
            ("CR LF in the protocol", "/upstream/echo", (), {"protocol": "websocket\r\nX: y"}),
            ("Upgrade", "/upstream/echo", (("upgrade", "h2c"),), {}),
            ("Connection", "/upstream/echo", (("connection", "sec-websocket-key"),), {}),
            ("Transfer-Encoding", "/upstream/echo", (("transfer-encoding", "chunked"),), {}),
            ("Content-Length", "/upstream/echo", (("content-length", "5"),), {}),
            ("Content-Length of 0", "/upstream/echo", (("content-length", "0"),), {}),
            ("two protocols", "/upstream/echo", ((":protocol", "websocket"),), {}),
            ("another method", "/upstream/echo", (), {"method": "POST"}),
        ):
            with self.subTest(name):
                client = self.connect(strict=False)
                stream = client.ask(path, ("sec-websocket-version", "13"), *more, **others)
                try:
                    self.assertIn(client.status(stream), ("400", "421", "501", "reset", "gone"))
                finally:
                    self.assertEqual([request.line for request in self.behind.raw.requests], [])

    def test_plain_connect(self):
        self.start()
        client = self.connect(strict=False)
        stream = client.http.get_next_available_stream_id()
        client.http.send_headers(stream, [(":method", "CONNECT"), (":authority", "b.test:443")])
        client.flush()
        self.assertIn(client.status(stream), ("501", "400"))
        self.assertEqual(self.behind.raw.connections, 0)

    def test_a_client_that_reads_nothing(self):
        """What comes for it stays with those who send it; others on the connection are answered."""
        self.start()
        client = self.connect(greedy=False, window=100 * 65535)
        client.open("/upstream/echo")
        before = self.worker().status()["VmRSS"]
        streams = [client.open("/upstream/flood") for _ in range(50)]
        full = lambda: all(len(client.data.get(stream, b"")) == 65535 for stream in streams)
        client.until(full, "a window's worth of every stream")
        other = client.ask("/", method="GET", protocol=None, end=True)
        self.assertEqual(client.status(other), "200")
        # The senders come to a stop, at what sockets hold.
        sent = -1
        def still():
            nonlocal sent
            was, sent = sent, self.behind.sent
            return was == sent
        self.assertTrue(until(still, 20, 1))
        grown = kilobytes(self.worker().status()["VmRSS"]) - kilobytes(before)
        self.assertLess(grown, 50 * 128, "KiB: two buffers and a window's worth of each")
        self.assertIsNone(client.gone)

    def test_a_server_that_reads_nothing(self):
        """A client can send what a window and the socket hold, and no more; its other streams go on."""
        self.start()
        client = self.connect()
        deaf = client.open("/upstream/deaf")
        sent = 0
        while client.http.local_flow_control_window(deaf) > 0 and sent < 64 << 20:
            piece = bytes(min(client.http.local_flow_control_window(deaf), 16384))
            client.http.send_data(deaf, piece)
            sent += len(piece)
            client.flush()
            # What comes back is taken into account with the next answer.
            self.assertEqual(client.status(client.ask("/", method="GET", protocol=None, end=True)), "200")
        self.assertLess(sent, 64 << 20)
        echo = client.open("/upstream/echo")
        client.send(echo, b"still")
        self.assertEqual(client.read(echo, 5), b"still")

    def test_floods(self):
        self.start()
        # More at once than there may be.
        client = self.connect()
        client.until(lambda: client.http.remote_settings.max_concurrent_streams == 128, "the limit")
        streams = [client.ask("/upstream/deaf", ("sec-websocket-version", "13")) for _ in range(128)]
        client.until(lambda: all(stream in client.heads for stream in streams), "128 tunnels")
        client.http.remote_settings.max_concurrent_streams = 1000
        client.http.remote_settings.acknowledge()
        more = client.ask("/upstream/deaf")
        client.until(lambda: client.resets.get(more) == REFUSED_STREAM, "REFUSED_STREAM")
        client.socket.close()
        self.assertTrue(until(lambda: self.open_behind() == 0, 20), f"{self.open_behind()} connections are left")
        # Ended, and then reset: nothing is kept for those who would still have been told something.
        client, before = self.connect(), len(self.worker().descriptors())
        streams = [client.open("/upstream/deaf", end=True) for _ in range(50)]
        self.assertGreaterEqual(len(self.worker().descriptors()), before + 50)
        for stream in streams:
            client.reset(stream)
        self.assertTrue(until(lambda: len(self.worker().descriptors()) <= before + 1, 30), "before idle_timeout")
        # One after the other, reset at once.
        client = self.connect()
        try:
            for _ in range(5000):
                client.reset(client.ask("/upstream/deaf", ("sec-websocket-version", "13")))
            client.until(lambda: client.gone is not None, "GOAWAY")
            self.assertEqual(client.gone, ENHANCE_YOUR_CALM)
        except OSError:
            pass
        self.assertTrue(until(lambda: self.open_behind() == 0, 20), f"{self.open_behind()} connections are left")
        client = self.connect()
        self.assertEqual(client.status(client.ask("/", method="GET", protocol=None, end=True)), "200")

    def open_behind(self):
        """Connections that the site has with the server behind it."""
        def is_open(connection):
            try:
                return connection.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK) != b""
            except BlockingIOError:
                return True
            except OSError:
                return False
        return sum(is_open(connection) for connection in self.behind.raw.held)

    def test_relaunch(self):
        """A tunnel is a request at work: it goes on for `drain_timeout`, and the client is told to open no more."""
        self.start('drain_timeout = "6s"')
        old = self.worker()
        client = self.connect()
        stream = client.open("/service")
        self.server.relaunch("b")
        client.until(lambda: client.gone == 0, "GOAWAY without an error")
        client.send(stream, message(b"still"))
        self.assertEqual(read_message(lambda count: client.read(stream, count)), (2, b"still"))
        self.assertTrue(until(lambda: old not in self.server.processes("site b"), 30), "it is ended")


def kilobytes(text):
    return int(str(text).split()[0])


if __name__ == "__main__":
    unittest.main()
