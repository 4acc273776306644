"""nginx, Apache and Node behind a site: what they answer to a client that asks them comes through as it was.

Each is asked directly first, so that what is compared is what it really says.
"""

import contextlib
import socket
import threading
import unittest

import behind
import client
from harness import Server, site
from websocket_client import frame

MIB = 1 << 20


class Behind:
    """The tests; a class for each server says which."""

    peer = None
    limits = {"body_bytes": "64MiB"}

    @classmethod
    def setUpClass(cls):
        if not cls.peer.program():
            raise unittest.SkipTest(f"{cls.peer.name} is not installed")
        cls.behind = cls.enterClassContext(cls.peer())
        routes = [
            {"path": "/app/", "upstream": cls.behind.at},
            {"path": "/app/echo", "upstream": cls.behind.at, "buffer": False},
        ]
        cls.server = Server(sites=[site(route=routes, compress=False)], programs=(), limits=cls.limits)
        cls.enterClassContext(cls.server)

    def both(self, target, **more):
        """The server's own answer, and the one that comes through the site."""
        return client.get(self.behind.port, target, **more), self.server.get(target, **more)

    def test_pages_heads_conditions_and_ranges(self):
        own, ours = self.both("/app/page")
        self.assertEqual((ours.status, ours.body), (200, behind.PAGE.encode()))
        tag = own.headers["etag"]
        for name in ("etag", "content-type", "content-length"):
            self.assertEqual(ours.headers[name], own.headers[name])
        _, head = self.both("/app/page", method="HEAD")
        self.assertEqual((head.status, head.headers["content-length"]), (200, own.headers["content-length"]))
        own, ours = self.both("/app/page", headers=[f"If-None-Match: {tag}"])
        self.assertEqual((own.status, ours.status, ours.body), (304, 304, b""))
        self.assertEqual(ours.headers["etag"], tag)
        own, ours = self.both("/app/page", headers=["Range: bytes=10-19"])
        self.assertEqual((ours.status, ours.body), (own.status, own.body))

    def test_what_has_no_body_leaves_the_connection_in_order(self):
        """HEAD, 304 and a page in turn, on one connection of the client's and few of the server's."""
        tag = self.server.get("/app/page").headers["etag"]
        with self.server.connect() as connection:
            for _ in range(5):
                self.assertEqual(connection.get("/app/page", method="HEAD").status, 200)
                self.assertEqual(connection.get("/app/page", headers=[f"If-None-Match: {tag}"]).status, 304)
                self.assertEqual(connection.get("/app/page").body, behind.PAGE.encode())

    def test_an_answer_without_a_length(self):
        own, ours = self.both("/app/chunks")
        self.assertNotIn("content-length", own.headers)
        self.assertEqual((ours.status, ours.body), (200, behind.PAGE.encode()))
        # HTTP/1.0 knows no chunks: the end of the connection is the end of the answer.
        with self.server.connect() as connection:
            connection.send(b"GET /app/chunks HTTP/1.0\r\nHost: main.test\r\n\r\n")
            old = connection.response()
        self.assertNotIn("transfer-encoding", old.headers)
        self.assertEqual(old.body, behind.PAGE.encode())

    def test_connections_are_kept(self):
        seen = [self.server.get("/app/page").headers["x-connection"] for _ in range(30)]
        # One that is still being given back when the next request comes costs another one.
        self.assertLessEqual(len(set(seen)), 10, seen)

    def test_bodies_with_a_length_and_in_chunks(self):
        whole = bytes(range(256)) * (20 * MIB // 256)
        with self.server.connect(timeout=60) as connection:
            put = connection.get("/app/dav/length", method="PUT", body=whole)
            self.assertIn(put.status, (200, 201, 204))
            self.assertEqual(connection.get("/app/dav/length").body, whole)
        # After a body in chunks the site closes the connection: nothing behind it can be taken for a request.
        with self.server.connect(timeout=60) as connection:
            connection.send(b"PUT /app/dav/chunks HTTP/1.1\r\nHost: main.test\r\nTransfer-Encoding: chunked\r\n\r\n")
            for at in range(0, MIB, 10_000):
                piece = whole[at : at + 10_000]
                connection.send(b"%x\r\n%s\r\n" % (len(piece), piece))
            connection.send(b"0\r\nX-Trailer: of the client\r\nContent-Length: 7\r\n\r\n")
            put = connection.response()
            self.assertEqual((put.status in (200, 201, 204), put.headers["connection"]), (True, "close"))
        kept = self.server.get("/app/dav/chunks").body
        self.assertEqual((len(kept), kept), ((MIB + 9_999) // 10_000 * 10_000, whole[: len(kept)]))

    def test_a_body_that_is_announced(self):
        with self.server.connect() as connection:
            connection.send(
                b"PUT /app/dav/expected HTTP/1.1\r\nHost: main.test\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"
            )
            line = b""
            while not line.endswith(b"\r\n\r\n"):
                line += connection.socket.recv(1)
            self.assertTrue(line.startswith(b"HTTP/1.1 100"), line)
            connection.send(b"hello")
            self.assertIn(connection.response().status, (200, 201, 204))
            self.assertEqual(connection.get("/app/dav/expected").body, b"hello")

    def test_a_refusal_before_the_end_of_the_body(self):
        """What the server says of a body that it does not want reaches the client; it is not a 502."""
        for _ in range(15):
            with self.server.connect(timeout=20) as connection:
                head = "PUT /app/small HTTP/1.1\r\nHost: main.test\r\nContent-Length: %d\r\n\r\n" % (8 * MIB)
                connection.send(head.encode())
                # The server closes with the refusal, which may break off what is still being sent.
                with contextlib.suppress(OSError):
                    for _ in range(128):
                        connection.send(b"x" * 65536)
                self.assertEqual(connection.response().status, 413)

    def test_reloads_lose_no_request(self):
        """The server is reloaded under load; what is safe to repeat always gets its answer."""
        if not hasattr(self.behind, "reload"):
            self.skipTest(f"{self.peer.name} has no reload")
        statuses, done = [], threading.Event()

        def ask():
            while not done.is_set():
                statuses.append(self.server.status("/app/page"))

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(5):
            count = len(statuses)
            self.behind.reload()
            self.assertTrue(client.until(lambda: len(statuses) > count + 40, 30), "requests go on")
        done.set()
        for thread in threads:
            thread.join()
        self.assertEqual(set(statuses), {200}, f"{len(statuses)} answers")


class BehindNginx(Behind, unittest.TestCase):
    peer = behind.Nginx


class BehindApache(Behind, unittest.TestCase):
    peer = behind.Apache


class BehindNode(Behind, unittest.TestCase):
    peer = behind.Node

    def test_hints_before_the_answer_are_not_the_answer(self):
        with self.server.connect() as connection:
            for _ in range(3):
                answer = connection.get("/app/early")
                self.assertEqual((answer.status, answer.body), (200, b"after hints"))
                self.assertEqual(connection.get("/app/page").status, 200)

    def test_both_ways_at_once(self):
        """The answer comes while the request is still being sent."""
        with self.server.connect() as connection:
            connection.send(b"POST /app/echo HTTP/1.1\r\nHost: main.test\r\nTransfer-Encoding: chunked\r\n\r\n")
            connection.send(b"5\r\nfirst\r\n")
            said = b""
            while b"first" not in said:
                said += connection.socket.recv(65536)
            connection.send(b"6\r\nsecond\r\n0\r\n\r\n")
            while b"0\r\n\r\n" not in said:
                said += connection.socket.recv(65536)
            self.assertIn(b"second", said)

    def test_websocket(self):
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=10) as peer:
            peer.sendall(
                b"GET /app/ws HTTP/1.1\r\nHost: main.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
            )
            said = b""
            while b"\r\n\r\n" not in said:
                said += peer.recv(65536)
            self.assertTrue(said.startswith(b"HTTP/1.1 101"), said)
            self.assertIn(b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", said)
            for text in (b"hello", b"x" * 60_000):
                sent, came = frame(text), b""
                peer.sendall(sent)
                while len(came) < len(sent):
                    came += peer.recv(65536)
                self.assertEqual(came, sent)


if __name__ == "__main__":
    unittest.main()
