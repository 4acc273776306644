"""Ten thousand connections at once, each with half a request."""

import collections
import resource
import time
import unittest

import pytest

from client import Connection
from harness import Server, rootless_too, service, site

pytestmark = pytest.mark.alone

CONNECTIONS = 10_000
#: A source address has some 28,000 ports for one server; several leave room for those that linger.
SOURCES = ("127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5")


@rootless_too
class Many(unittest.TestCase):
    def test_ten_thousand(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard < CONNECTIONS + 500:
            self.skipTest(f"only {hard} descriptors are allowed here")
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        limits = {"connections": 16384, "head_timeout": "60s", "idle_timeout": "60s", "drain_timeout": "2s"}
        with Server([site("main", [service()])], limits=limits) as server:
            connections = []
            try:
                for number in range(CONNECTIONS):
                    connections.append(Connection(server.port, SOURCES[number % len(SOURCES)], timeout=20))
                    connections[-1].send(b"GET / HTTP/1.1\r\nHost: ma")
                self.fresh(server)
                for connection in connections:
                    connection.send(b"in.test\r\n\r\n")
                answers = [connection.response() for connection in connections]
                found = collections.Counter((answer.status, answer.text) for answer in answers)
                self.assertEqual(found, {(200, "<h1>main</h1>\n"): CONNECTIONS})
                # They are all at the site's worker now, idle.
                self.fresh(server)
            finally:
                for connection in connections:
                    connection.close()
            self.fresh(server)

    def fresh(self, server):
        """A new client is answered within a second."""
        for target in ("/", "/probe"):
            began = time.monotonic()
            self.assertEqual(server.status(target), 200)
            self.assertLess(time.monotonic() - began, 1)


if __name__ == "__main__":
    unittest.main()
