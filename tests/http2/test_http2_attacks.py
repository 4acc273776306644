"""What a client of HTTP/2 can do over TLS at no cost of its own: each of it ends its connection, and nobody else's.

Sources: CVE-2023-44487 (rapid reset), CVE-2025-8671 (MadeYouReset), CVE-2024-27316 and others (CONTINUATION), CVE-2019-9511
to 9518 (ping, settings, empty frames, priorities, windows), CVE-2016-1544 and 2016-6581 (HPACK bombs).
"""

import json
import socket
import ssl
import struct
import unittest

import pytest

import client
from backend import Raw, response
from frames import DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, RST_STREAM, SETTINGS, WINDOW_UPDATE, Http2, block, frame
from secured import TLS, ours, serve

pytestmark = [pytest.mark.alone, pytest.mark.attack]

PRIORITY, PING, CONTINUATION = 2, 6, 9
CALM, CANCEL = 11, 8
#: LIMIT: after so many rounds an attack has not been noticed; the largest limit is one of some hundreds.
ROUNDS_MAX = 5000
#: LIMIT: KiB that an attack may cost a worker, many times what a connection of HTTP/2 may hold.
COST_MAX = 24 << 10


def lines(path=b"/never/x", method=b"GET", *more):
    return [(b":method", method), (b":scheme", b"https"), (b":authority", b"main.test"), (b":path", path), *more]


def request(number, flags=END_HEADERS | END_STREAM, method=b"GET", *more):
    """A request that nobody answers, on a stream of its own."""
    return frame(HEADERS, flags, 2 * number + 1, block(lines(b"/never/x", method, *more)))


def then(kind, flags, body):
    """A request, and a frame on its stream."""
    return lambda number: request(number) + frame(kind, flags, 2 * number + 1, body)


def open_then(*bodies):
    """A request with a body of 3 bytes, and DATA frames on its stream."""
    head = lambda number: request(number, END_HEADERS, b"POST", (b"content-length", b"3"))
    data = lambda number: b"".join(frame(DATA, END_STREAM, 2 * number + 1, body) for body in bodies)
    return lambda number: head(number) + data(number)


def first(start, rest):
    return lambda number: start if number == 0 else rest(number)


HALF = frame(HEADERS, END_STREAM, 1, block(lines()))
OPEN = request(0, END_HEADERS, b"POST")
FIELDS = block([(b"x", b"y" * 100)])
#: By name: what is sent in each round, until the server has had enough.
FLOODS = {
    "rapid reset": then(RST_STREAM, 0, struct.pack(">I", CANCEL)),
    "made to reset: a window that overflows": then(WINDOW_UPDATE, 0, struct.pack(">I", 0x7FFFFFFF)),
    "made to reset: a window by nothing": then(WINDOW_UPDATE, 0, struct.pack(">I", 0)),
    "made to reset: data after the end": then(DATA, 0, b"abc"),
    "made to reset: a head after the end": lambda number: request(number) + request(number),
    "made to reset: a stream that depends on itself": lambda number: request(number)
    + frame(PRIORITY, 0, 2 * number + 1, struct.pack(">IB", 2 * number + 1, 1)),
    "made to reset: a priority of another size": then(PRIORITY, 0, b"abcd"),
    "made to reset: more than the length": open_then(b"abcdef"),
    "made to reset: less than the length": open_then(b"a"),
    "made to reset: a head that is malformed": lambda number: request(number, END_HEADERS | END_STREAM, b"GET", (b"connection", b"x")),
    "continuation, empty": first(HALF, lambda _: frame(CONTINUATION, 0, 1)),
    "continuation, a byte each": first(HALF, lambda _: frame(CONTINUATION, 0, 1, b"\x80")),
    "continuation, large": first(HALF, lambda _: frame(CONTINUATION, 0, 1, FIELDS * 100)),
    "settings": lambda _: frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 65536)),
    "settings, empty": lambda _: frame(SETTINGS, 0, 0),
    "settings of the table": lambda number: frame(SETTINGS, 0, 0, struct.pack(">HI", 1, number % 2 * 0xFFFFFFFF)),
    "pings": lambda number: frame(PING, 0, 0, struct.pack(">Q", number)),
    "acknowledgements of settings": lambda _: frame(SETTINGS, 1, 0),
    "acknowledgements of pings": lambda number: frame(PING, 1, 0, struct.pack(">Q", number)),
    "a byte of data each": first(OPEN, lambda _: frame(DATA, 0, 1, b"a") * 200),
    "priorities": lambda _: frame(PRIORITY, 0, 1, struct.pack(">IB", 3, 1)),
    "windows": lambda _: frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 1)),
    "empty data": first(OPEN, lambda _: frame(DATA, 0, 1)),
    "data that is padding": first(OPEN, lambda _: frame(DATA, 8, 1, b"\xc8a" + b"\0" * 200)),
    "frames that nobody knows": lambda _: frame(0x77, 0, 0, b"x"),
}


class Attacker(Http2):
    """Goes on until the server has had enough."""

    def flood(self, attack, piece=None):
        """How many rounds it took, or None if the server took them all."""
        self.socket.settimeout(20)
        for number in range(ROUNDS_MAX):
            data = attack(number)
            try:
                for at in range(0, len(data), piece or len(data)):
                    self.send(data[at : at + (piece or len(data))])
                if number % 50 == 49 and self.over():
                    return number
            except OSError:
                return number
        return ROUNDS_MAX if self.ended_within(5) else None

    def over(self):
        """Whether a GOAWAY or the end has come; takes what has."""
        self.socket.setblocking(False)
        try:
            while True:
                more = self.socket.recv(65536)
                if not more:
                    return True
                self.unread += more
        except (BlockingIOError, ssl.SSLWantReadError):
            pass
        finally:
            self.socket.settimeout(20)
        return self.reason() is not None

    def ended_within(self, seconds):
        return bool(client.until(self.over, seconds))

    def reason(self):
        """The reason of a GOAWAY that is no farewell."""
        data = self.unread
        while len(data) >= 9 and len(data) >= 9 + int.from_bytes(data[:3], "big"):
            size = int.from_bytes(data[:3], "big")
            if data[3] == GOAWAY and (reason := int.from_bytes(data[13:17], "big")):
                return reason
            data = data[9 + size :]
        return None


@unittest.skipUnless(TLS, "this build has no TLS")
@ours
class Http2Attacks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # It reads what comes, and answers nothing under /never/.
        cls.behind = cls.enterClassContext(Raw(answer=cls.answer))
        routes = [{"path": "/never/", "upstream": cls.behind.at}, {"path": "/echo/", "upstream": cls.behind.at}]
        # Of 16 KiB, the largest frame, a block is to be too large.
        limits = {"head_bytes": "8KiB"}
        settings = {"conditioning": {"ban_after": 0}, "limits": limits}
        cls.server = cls.enterClassContext(serve(programs=(), routes=routes, **settings))

    @staticmethod
    def answer(request):
        if "/never/" not in request.line:
            return response(str(len(request.head)).encode())
        request.connection.settimeout(60)
        while request.connection.recv(65536):
            pass
        return None

    def connect(self):
        return Attacker(self.server.context(), self.server.tls_port)

    def shed(self):
        """How many connections the worker has ended for abuse."""
        said = self.server.command("status", "--conditioning", "--config", self.server.config, "--json")
        sites = [process for process in json.loads(said.stdout)["processes"] if process["role"] == "site"]
        return sum(process["shed"]["abusive"] for process in sites)

    def memory(self):
        return int(self.server.process("site main").status()["VmRSS"].split()[0])

    def assert_served(self, what):
        with self.connect() as other:
            other.request(1, lines(b"/"))
            self.assertEqual(other.outcome(1, 20), 200, what)

    def test_floods_end_the_connection(self):
        pid = self.server.process("site main").pid
        self.assert_served("before")
        before = self.memory()
        for name, attack in FLOODS.items():
            with self.subTest(name), self.connect() as attacker, self.connect() as neighbour:
                neighbour.request(1, lines(b"/"))
                self.assertEqual(neighbour.outcome(1, 20), 200)
                rounds = attacker.flood(attack)
                self.assertIsNotNone(rounds, "it was not ended")
                # A reason may be lost where the client goes on sending after the end.
                self.assertIn(attacker.reason(), (None, CALM, 1, 3, 5, 6, 9))
                # Whoever was there before, and whoever comes, is answered.
                neighbour.request(3, lines(b"/"))
                self.assertEqual(neighbour.outcome(3, 20), 200)
                self.assert_served(name)
        self.assertEqual(self.server.process("site main").pid, pid, "the worker ended")
        self.assertLess(self.memory() - before, COST_MAX, "KiB more than before")
        # What was asked of the server behind has been cancelled.
        self.assert_nothing_is_left()

    def test_they_are_counted(self):
        for name in ("rapid reset", "made to reset: a window that overflows", "pings", "settings", "continuation, empty"):
            before = self.shed()
            with self.connect() as attacker:
                self.assertIsNotNone(attacker.flood(FLOODS[name]))
            self.assertTrue(client.until(lambda: self.shed() == before + 1, 10), name)

    def test_however_they_are_cut_into_records(self):
        for name in ("rapid reset", "pings", "continuation, a byte each"):
            for piece in (1, 7, 10):
                with self.subTest(name, piece=piece), self.connect() as attacker:
                    attacker.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self.assertIsNotNone(attacker.flood(FLOODS[name], piece))

    def assert_nothing_is_left(self):
        """The streams of those who are gone hold nothing of the server behind."""

        def held():
            tcp = [line.split() for line in open("/proc/net/tcp").read().splitlines()[1:]]
            port = ":%04X" % int(self.behind.at.rpartition(":")[2])
            return sum(line[2].endswith(port) and line[3] == "01" for line in tcp)

        # One or a few may be kept for further requests.
        self.assertTrue(client.until(lambda: held() <= 4, 10), f"{held()} connections are left")

    def test_small_heads_that_decompress_into_large_ones(self):
        """Refused by status, by reset, or by the end of the connection; nothing of it reaches the server behind."""
        path = lines(b"/echo/x")
        indexed = b"\x40\x01x" + b"\x64" + b"y" * 100
        bombs = {
            "an entry, 4000 times": block(path) + b"\xbe" * 4000,
            "an entry, 16000 times": block(path) + b"\xbe" * 16000,
            "crumbs of a cookie": block(path) + b"\x40\x06cookie\x64" + b"z" * 100 + b"\xbe" * 4000,
            "five hundred names": block(path) + block([(b"x-%d" % number, b"") for number in range(500)]),
            "changes of the table": b"\x20\x3f\xe1\x1f" * 3000 + block(path),
        }
        for name, bomb in bombs.items():
            count = len(self.behind.requests)
            with self.subTest(name), self.connect() as attacker:
                attacker.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, block(path) + indexed))
                self.assertEqual(attacker.outcome(1, 20), 200)
                attacker.send(frame(HEADERS, END_HEADERS | END_STREAM, 3, bomb[: 16384]))
                outcome = attacker.outcome(3, 20)
                self.assertIn(outcome, (400, 431, "reset", "goaway", "closed"))
                self.assertEqual(len(self.behind.requests), count + 1)
            self.assert_served(name)


@unittest.skipUnless(TLS, "this build has no TLS")
@ours
class Offences(unittest.TestCase):
    def test_who_is_ended_again_and_again_is_refused_by_this_site_alone(self):
        with serve(programs=(), conditioning={"ban_after": 3, "exempt": []}) as server:
            for _ in range(3):
                with Attacker(server.context(), server.tls_port) as attacker:
                    self.assertIsNotNone(attacker.flood(FLOODS["pings"]))
            refused = lambda: server.status("/", "main.test", timeout=2) is None
            self.assertTrue(client.until(refused, 10), "it was not banned")
            self.assertEqual(server.status("/", "nobody.test"), 404)


if __name__ == "__main__":
    unittest.main()
