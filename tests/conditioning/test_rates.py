"""`rate_max` on connections that stay with a site's worker: kept-alive ones, TLS, HTTP/2, and through several gates.

Run by the tests, over a whole server on 127.0.0.1. How many requests may pass depends on how long the test takes, which
it measures: a bucket, and what has come into it since.
"""

import json
import socket
import ssl
import time
import unittest

import pytest

from client import Connection, until
from frames import END_HEADERS, END_STREAM, HEADERS, Http2, block, frame
from harness import rootless_too
from secured import TLS, ours, serve

pytestmark = [pytest.mark.alone, pytest.mark.attack]

BURST = 10
#: One a second.
LIMIT = {"rate_max": 1, "rate_burst": BURST, "exempt": [], "ban_after": 0}
OFTEN, OTHER = "127.0.0.1", "127.9.9.9"
GET = b"GET /%b HTTP/1.1\r\nHost: main.test\r\n\r\n"


def over_http2(stream, host=b"main.test"):
    lines = [(b":method", b"GET"), (b":scheme", b"https"), (b":authority", host), (b":path", b"/")]
    return frame(HEADERS, END_HEADERS | END_STREAM, stream, block(lines))


class Rated(unittest.TestCase):
    def serve(self, gates=1, **conditioning):
        policies = LIMIT | conditioning
        self.server = serve(conditioning={key: value for key, value in policies.items() if value is not None},
                            server={"gates": gates}, routes=[{"path": "/old/", "redirect": "/"}])
        self.enterContext(self.server)
        self.began = time.monotonic()
        return self.server

    def http2(self, source=OFTEN):
        context = self.server.context()
        context.set_alpn_protocols(["h2"])
        raw = socket.create_connection(("127.0.0.1", self.server.tls_port), 20, (source, 0))
        connection = Http2.__new__(Http2)
        connection.begin(context.wrap_socket(raw, server_hostname="main.test"))
        self.addCleanup(connection.socket.close)
        return connection

    def secure(self, source=OFTEN):
        raw = socket.create_connection(("127.0.0.1", self.server.tls_port), 20, (source, 0))
        return self.server.context().wrap_socket(raw, server_hostname="main.test")

    def assert_limited(self, passed):
        """That as many as there may be have passed since the server has come up, which had a client before."""
        self.assertGreaterEqual(passed, BURST - 1)
        self.assertLessEqual(passed, BURST + time.monotonic() - self.began + 1)

    def shed(self, role):
        said = self.server.command("status", "--conditioning", "--config", self.server.config, "--json")
        found = [process["shed"] for process in json.loads(said.stdout)["processes"] if process["role"] == role]
        return sum(one["over_rate"] for one in found)


def until_refused(connection):
    """All that is answered on a connection of HTTP/1.1 before it ends: the statuses, and the last answer."""
    said = b""
    try:
        while more := connection.recv(65536):
            said += more
    except (ConnectionError, ssl.SSLError):
        pass
    answers = said.split(b"HTTP/1.1 ")[1:]
    return [int(answer[:3]) for answer in answers], answers[-1]


@unittest.skipUnless(TLS, "this build has no TLS")
@ours
@rootless_too
class Rates(Rated):
    def test_a_kept_connection(self):
        for what in ("in the clear", "TLS"):
            for paths in ([b""], [b"probe/x", b"none", b"old/x", b""]):
                with self.subTest(what, paths=paths):
                    self.serve()
                    secure = what == "TLS"
                    connection = self.secure() if secure else socket.create_connection(("127.0.0.1", self.server.port), 20)
                    with connection:
                        wanted = [GET % paths[number % len(paths)] for number in range(40)]
                        connection.sendall(b"".join(wanted))
                        statuses, last = until_refused(connection)
                    self.assertEqual(statuses[-1], 429, statuses)
                    self.assert_limited(len(statuses) - 1)
                    self.assertNotIn(429, statuses[:-1])
                    self.assertIn(b"\r\nRetry-After: 1\r\n", last)
                    self.assertEqual(self.shed("site"), 1)
                    with Connection(self.server.port, source=OTHER) as other:
                        self.assertEqual(other.get("/").status, 200, "nobody else pays")

    def test_streams_of_http2(self):
        self.serve()
        connection = self.http2()
        streams = [2 * number + 1 for number in range(60)]
        # Some are refused for another reason; they count as well.
        hosts = {stream: b"main.test" if number % 3 else b"other.test" for number, stream in enumerate(streams)}
        connection.send(b"".join(over_http2(stream, hosts[stream]) for stream in streams))
        statuses = [connection.outcome(stream, 20) for stream in streams]
        self.assert_limited(len(statuses) - statuses.count(429))
        self.assertGreater(statuses.count(200), statuses.count(421))
        # The connection goes on, and so does its client once it has waited.
        following = iter(range(121, 100_000, 2))

        def passes():
            stream = next(following)
            connection.send(over_http2(stream))
            return connection.outcome(stream, 20) == 200

        self.assertTrue(until(passes, 20, 0.5))
        other = self.http2(OTHER)
        other.send(over_http2(1))
        self.assertEqual(other.outcome(1, 20), 200)

    def test_the_limit_is_one_for_all_gates_connections_and_protocols(self):
        self.serve(gates=2)
        connections = [Connection(self.server.port, source=OFTEN) for _ in range(6)]
        for connection in connections:
            self.addCleanup(connection.close)
        secure = [self.http2() for _ in range(2)]
        statuses, stream = [], 1
        for _ in range(10):
            for connection in connections:
                try:
                    statuses.append(connection.get("/").status)
                except OSError:
                    # It was ended with its 429.
                    statuses.append(429)
            for connection in secure:
                connection.send(over_http2(stream))
                statuses.append(connection.outcome(stream, 20))
            stream += 2
        self.assert_limited(statuses.count(200))
        self.assertEqual(statuses.count(200) + statuses.count(429), len(statuses), statuses)

    def test_gates_hear_who_is_over_the_limit(self):
        self.serve(gates=2)
        connection = self.http2()
        connection.send(b"".join(over_http2(2 * number + 1) for number in range(60)))
        self.assertEqual(connection.outcome(119, 20), 429)
        before = self.shed("site")

        def refused():
            with Connection(self.server.port, source=OFTEN) as new:
                new.get("/")
            return self.shed("gate") > 0

        self.assertTrue(until(refused, 10, 0.1))
        with Connection(self.server.port, source=OTHER) as other:
            self.assertEqual(other.get("/").status, 200)
        self.assertGreaterEqual(self.shed("site"), before)

    def test_without_the_key_there_is_no_limit(self):
        self.serve(rate_max=None, rate_burst=None)
        with Connection(self.server.port, source=OFTEN) as connection:
            connection.send(GET % b"" * 300)
            self.assertEqual([connection.response().status for _ in range(300)], [200] * 300)

    def test_exempt_clients_have_no_limit(self):
        self.serve(exempt=["127.0.0.0/16"])
        with Connection(self.server.port, source=OFTEN) as connection:
            connection.send(GET % b"" * 50)
            self.assertEqual([connection.response().status for _ in range(50)], [200] * 50)
        with Connection(self.server.port, source=OTHER) as connection:
            connection.send(GET % b"" * 50)
            self.assertEqual(until_refused(connection.socket)[0][-1], 429)

    def test_behind_shared_connections_an_address_says_nothing(self):
        server = serve(conditioning=LIMIT, server={"gates": 1})
        text = server.config.read_text()
        server.config.write_text(text.replace("[[listen]]\n", "[[listen]]\nshared_connections = true\n", 1))
        with server, Connection(server.port, source=OFTEN) as connection:
            connection.send(GET % b"" * 50)
            self.assertEqual([connection.response().status for _ in range(50)], [200] * 50)


if __name__ == "__main__":
    unittest.main()
