"""Targets that are too long, in whatever way they come: one limit, and one sentence about it (RFC 9110 15.5.15)."""

import socket
import unittest

import client
from frames import Http2
from secured import TLS, ours, serve

#: What the log says can be done about it.
REMEDY = "a target has at most 16 KiB, 4 KiB with `checks = \"strict\"` of [conditioning], and never more than `head_bytes` of [limits]"
SENTENCE = "The address is longer than this server allows."


@unittest.skipUnless(TLS, "this build has no TLS")
@ours
class LongTargets(unittest.TestCase):
    def one(self, secure, target, padding):
        """The answer to one request of HTTP/1.1."""
        with client.Connection(self.server.port) as connection:
            if secure:
                connection.socket.close()
                plain = socket.create_connection(("127.0.0.1", self.server.tls_port), 10)
                connection.socket = self.server.context().wrap_socket(plain, server_hostname="main.test")
            try:
                connection.send(client.request(target, headers=[f"X-Padding: {padding}"] if padding else []))
            except OSError:
                # It has been refused before all of it was sent.
                pass
            return connection.response()

    def two(self, target, padding):
        """The status of one request of HTTP/2."""
        with Http2(self.server.context(), self.server.tls_port) as connection:
            more = [(b"x-padding", padding.encode())] if padding else []
            head = [(b":method", b"GET"), (b":scheme", b"https"), (b":authority", b"main.test"), (b":path", target.encode()), *more]
            connection.request(1, head)
            return connection.outcome(1)

    def check(self, target, padding, status):
        with self.subTest(target=len(target), padding=len(padding), status=status):
            for secure in (False, True):
                answer = self.one(secure, target, padding)
                self.assertEqual(answer.status, status, secure)
                self.assertEqual(SENTENCE in answer.text, status == 414, answer.text)
            self.assertEqual(self.two(target, padding), status)

    def test_by_the_room_of_a_head(self):
        with serve(programs=(), limits={"head_bytes": "8KiB"}) as self.server:
            self.check("/" + "a" * 7_000, "", 404)
            self.check("/" + "a" * 8_192, "", 414)
            self.check("/" + "a" * 7_000, "b" * 2_000, 431)
            self.assertTrue(client.until(lambda: REMEDY in self.server.log()), self.server.log())

    def test_by_the_limit_of_targets(self):
        with serve(programs=(), limits={"head_bytes": "32KiB"}) as self.server:
            self.check("/" + "a" * 16_200, "", 404)
            self.assertEqual(self.one(False, "/" + "a" * 16_384, "").status, 414)
            self.assertEqual(self.one(True, "/" + "a" * 16_384, "").status, 414)
            self.assertTrue(client.until(lambda: REMEDY in self.server.log()), self.server.log())
