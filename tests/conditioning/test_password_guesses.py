"""Clients that guess passwords, as many at once as they like, and clients that log in for the first time meanwhile.

Run by the tests, over a whole server on 127.0.0.1; clients' ranges are those of the loopback network. Waiting is told in
verifications: how many guesses of others were answered while somebody waited.
"""

import base64
import itertools
import selectors
import socket
import ssl
import struct
import subprocess
import unittest

import pytest

from client import Connection, until
from frames import END_HEADERS, END_STREAM, HEADERS, RST_STREAM, Http2, block, frame
from harness import rootless_too
from secured import TLS, ours, serve

pytestmark = [pytest.mark.alone, pytest.mark.attack]

#: A tenth of a second for each verification, and four times as long between two of one client's.
COST = 11
USERS = [f"user{number}" for number in range(12)]
GUESSER, OTHERS = "127.0.0.1", "127.9.9.%d"
GUESSES = 60
CANCEL = 8
NUMBERS = itertools.count()


def basic(name, password):
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


def wrong():
    """Another wrong password each time."""
    return basic(USERS[0], f"guess {next(NUMBERS)}")


def asking(field, behind=b"", path="/members/"):
    """A request for what only users may have."""
    return f"GET {path} HTTP/1.1\r\nHost: main.test\r\nAuthorization: {field}\r\n\r\n".encode() + behind


def over_http2(stream, field):
    lines = [(b":method", b"GET"), (b":scheme", b"https"), (b":authority", b"main.test"), (b":path", b"/members/")]
    return frame(HEADERS, END_HEADERS | END_STREAM, stream, block([*lines, (b"authorization", field.encode())]))


class Guesser:
    """Connections of one address that guess again as soon as they are answered, unless they are told to come later."""

    def __init__(self, connections):
        self.connections, self.answered, self.refused = connections, 0, 0
        self.selector = selectors.DefaultSelector()
        for connection in connections:
            connection.sendall(asking(wrong()))
            self.selector.register(connection, selectors.EVENT_READ)

    def look(self, wait=0.0):
        """Takes what has been answered, and guesses again; how many guesses were found wrong in all."""
        for key, _ in self.selector.select(wait):
            said = key.fileobj.recv(65536)
            if b"HTTP/1.1 503" in said:
                self.refused += 1
                continue
            self.answered += 1
            key.fileobj.sendall(asking(wrong()))
        return self.answered

    def close(self):
        for connection in self.connections:
            connection.close()


@unittest.skipUnless(TLS, "this build has no TLS")
@ours
@rootless_too
class PasswordGuesses(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        made = [subprocess.run(["htpasswd", "-nbB", "-C", str(COST), name, "secret"], capture_output=True, check=True)
                for name in USERS]
        cls.users = b"".join(one.stdout.strip() + b"\n" for one in made)

    def setUp(self):
        self.server = serve(
            programs=(), files={"members/index.html": "members", "../users": self.users},
            routes=[{"path": "/members/", "auth": {"users": "users", "realm": "Members"}},
                    {"path": "/alias/", "rewrite": "/members/"}],
            server={"gates": 1}, log={"flush": "10ms"},
        )
        self.enterContext(self.server)

    def plain(self, source):
        return socket.create_connection(("127.0.0.1", self.server.port), 20, (source, 0))

    def secure(self, source):
        raw = socket.create_connection(("127.0.0.1", self.server.tls_port), 20, (source, 0))
        return self.server.context().wrap_socket(raw, server_hostname="main.test")

    def http2(self, source):
        context = self.server.context()
        context.set_alpn_protocols(["h2"])
        raw = socket.create_connection(("127.0.0.1", self.server.tls_port), 20, (source, 0))
        connection = Http2.__new__(Http2)
        connection.begin(context.wrap_socket(raw, server_hostname="main.test"))
        return connection

    def log_in(self, guesser, send, status):
        """Logs in for the first time; how many guesses were found wrong in the meantime, one after another."""
        before = guesser.look()
        send()
        found = []
        # The answer is looked for as often as those of the others are.
        while not found:
            guesser.look(0.01)
            found = status()
        return found[0], guesser.look() - before

    def first_logins(self, guesser):
        """The status of a first login over each protocol, and how many guesses were before it."""
        for number, name in enumerate(USERS[1:], 1):
            source, field = OTHERS % number, basic(name, "secret")
            if number % 3 == 2:
                with self.http2(source) as connection:
                    send = lambda: connection.send(over_http2(1, field))
                    # What has come is looked at without waiting for more.
                    status = lambda: [one for one in [connection.outcome(1, 0.001)] if one != "nothing"]
                    yield (name, *self.log_in(guesser, send, status))
                continue
            connection = self.secure(source) if number % 3 else self.plain(source)
            with connection:
                connection.settimeout(0.001)
                yield (name, *self.log_in(guesser, lambda: connection.sendall(asking(field)), lambda: answer(connection)))

    def test_a_first_login_waits_for_one_guess_at_most(self):
        guesser = Guesser([self.plain(GUESSER) for _ in range(GUESSES)])
        self.addCleanup(guesser.close)
        self.assertTrue(until(lambda: guesser.look(0.1) > 0, 20), "the queue is full")
        for name, status, before in self.first_logins(guesser):
            with self.subTest(name=name):
                self.assertEqual(status, 200)
                # The one that was under way, and those that this test was too slow to see in time; never the queue.
                self.assertLessEqual(before, 5)
            with Connection(self.server.port, source=OTHERS % 100) as public:
                self.assertEqual(public.get("/").status, 200)
        self.assertEqual(guesser.refused, 0, "there is room for as many")

    def test_who_guesses_too_much_is_told_so_and_nobody_else(self):
        guesser = Guesser([self.plain(GUESSER) for _ in range(100)])
        self.addCleanup(guesser.close)
        self.assertTrue(until(lambda: guesser.look(0.1) > 0 and guesser.refused > 0, 20))
        for name, status, _ in self.first_logins(guesser):
            self.assertEqual(status, 200, name)

    def logged(self, status):
        """How many requests ended so, as the log says; 499 is for clients that went before they were answered."""
        return self.server.log("main.access").count(f'" {status} ')

    def test_what_a_client_that_has_gone_left_is_not_verified(self):
        for what, leave in {
            "HTTP/1.1": lambda: [self.leave(self.plain, asking(wrong())) for _ in range(40)],
            "HTTP/1.1, with another request behind": lambda: [
                self.leave(self.plain, asking(wrong(), asking(wrong()))) for _ in range(40)
            ],
            "a path that is rewritten": lambda: [
                self.leave(self.plain, asking(wrong(), path="/alias/")) for _ in range(40)
            ],
            "TLS": lambda: [self.leave(self.secure, asking(wrong())) for _ in range(40)],
            "HTTP/2, each stream reset": self.leave_streams,
            "HTTP/2, the connection closed": self.leave_http2,
        }.items():
            with self.subTest(what):
                gone, wrong_ones = self.logged(499), self.logged(401)
                left = leave()
                self.assertTrue(until(lambda: self.logged(401) > wrong_ones, 20), "they have come as far as to the queue")
                for one in left:
                    one()
                # Not each: some may have been verified before.
                self.assertTrue(until(lambda: self.logged(499) - gone >= 30, 20), self.logged(499) - gone)

    @staticmethod
    def leave(connect, data):
        connection = connect(GUESSER)
        connection.sendall(data)
        return connection.close

    def leave_streams(self):
        connection = self.enterContext(self.http2(GUESSER))
        streams = [2 * number + 1 for number in range(40)]
        connection.send(b"".join(over_http2(stream, wrong()) for stream in streams))
        reset = b"".join(frame(RST_STREAM, 0, stream, struct.pack(">I", CANCEL)) for stream in streams)
        return [lambda: connection.send(reset)]

    def leave_http2(self):
        connection = self.http2(GUESSER)
        connection.send(b"".join(over_http2(2 * number + 1, wrong()) for number in range(40)))
        return [connection.socket.close]


def answer(connection):
    """The status of an answer, if there is one; a first piece of it has its status line."""
    try:
        said = connection.recv(65536)
    except (TimeoutError, ssl.SSLWantReadError):
        return []
    return [int(said.split()[1])] if said else ["closed"]


if __name__ == "__main__":
    unittest.main()
