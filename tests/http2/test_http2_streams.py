"""What is wrong with one stream of HTTP/2, and nothing to the others of its connection."""

import threading
import unittest

from backend import Raw, response
from frames import DATA, END_HEADERS, HEADERS, Http2, block, frame
from secured import TLS, ours, serve

PROTOCOL_ERROR = 1
#: More than what may come for nobody in a window of time.
USELESS_BYTES = 4 << 20
FRAME = b"a" * 16_000


def lines(path=b"/", *more, method=b"GET"):
    return [(b":method", method), (b":scheme", b"https"), (b":authority", b"main.test"), (b":path", path), *more]


@unittest.skipUnless(TLS, "this build has no TLS")
@ours
class Http2Streams(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.released = threading.Event()
        cls.behind = cls.enterClassContext(Raw(answer=cls.answer))
        # Of 16 KiB, the largest frame, a block is to be too large.
        settings = {"limits": {"head_bytes": "8KiB"}, "conditioning": {"ban_after": 0}}
        routes = [{"path": "/held/", "upstream": cls.behind.at}]
        cls.server = cls.enterClassContext(serve(programs=(), routes=routes, **settings))

    @classmethod
    def answer(cls, _):
        cls.released.wait(20)
        return response(b"at last")

    def connect(self):
        return Http2(self.server.context(), self.server.tls_port)

    def beside(self, stream, connection):
        """A stream that goes on beside others, to its end."""
        connection.request(stream, lines())
        self.assertEqual(connection.outcome(stream), 200)

    def test_a_head_that_is_too_long(self):
        self.released.clear()
        with self.connect() as connection:
            connection.request(1, lines(b"/held/"))
            for stream in range(3, 43, 4):
                connection.request(stream, lines(b"/", (b"x-long", b"y" * 9_000)))
                self.assertEqual(connection.outcome(stream), 431)
                self.beside(stream + 2, connection)
            self.released.set()
            self.assertEqual((connection.outcome(1), connection.bodies[1]), (200, b"at last"))
            self.assertEqual(connection.resets, [])

    def test_blanks_around_values(self):
        self.released.clear()
        with self.connect() as connection:
            connection.request(1, lines(b"/held/"))
            for number, value in enumerate((b" x", b"x ", b"\tx", b"x\t", b" ", b"\t")):
                stream = 3 + 4 * number
                connection.request(stream, lines(b"/", (b"x-one", value)))
                self.assertEqual(connection.outcome(stream), "reset", value)
                self.assertIn((stream, PROTOCOL_ERROR), connection.resets)
                self.beside(stream + 2, connection)
            # Within a value they are a part of it.
            connection.request(61, lines(b"/", (b"x-one", b"x \t y"), (b"x-two", b"")))
            self.assertEqual(connection.outcome(61), 200)
            self.released.set()
            self.assertEqual(connection.outcome(1), 200)

    def reset_stream(self, connection):
        """A stream that the server has reset while its body was to come."""
        malformed = lines(b"/", (b"x-one", b" x"), method=b"POST")
        connection.send(frame(HEADERS, END_HEADERS, 1, block(malformed)))
        self.assertEqual(connection.outcome(1), "reset")

    def test_a_little_data_after_a_reset(self):
        with self.connect() as connection:
            self.reset_stream(connection)
            for stream in range(3, 23, 2):
                connection.send(frame(DATA, 0, 1, FRAME))
                self.beside(stream, connection)
            self.assertEqual(connection.resets, [(1, PROTOCOL_ERROR)])

    def test_much_data_after_a_reset(self):
        with self.connect() as connection:
            self.reset_stream(connection)
            sent, stream, outcome = 0, 1, 200
            while outcome == 200 and sent < USELESS_BYTES:
                stream += 2
                try:
                    connection.send(frame(DATA, 0, 1, FRAME) * 4)
                    connection.request(stream, lines())
                except OSError:
                    outcome = "closed"
                    break
                sent += 4 * len(FRAME)
                outcome = connection.outcome(stream)
            self.assertIn(outcome, ("goaway", "closed"))
            self.assertGreater(sent, 1 << 20, "not while it is little")
        with self.connect() as other:
            self.beside(1, other)
