"""One connection, several partitions: each request gets to its own; and partitions that take nothing."""

import json
import time
import unittest

import pytest

from client import Load
from harness import Server, rootless_too, service, site

pytestmark = pytest.mark.alone

SITES = [
    site("main", [service("probe")]),
    site("other", [service("direct", "/probe", takes=True)]),
]


@rootless_too
class HandBack(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(SITES)
        cls.server.copy_program("probe", "direct")
        cls.enterClassContext(cls.server)

    def test_fifty_times_between_two_sites(self):
        with self.server.connect() as connection:
            for turn in range(50):
                name = ("main", "other")[turn % 2]
                answer = connection.get("/", f"{name}.test")
                self.assertEqual((answer.status, answer.text), (200, f"<h1>{name}</h1>\n"), turn)

    def test_all_sent_at_once(self):
        hosts = ["main.test", "main.test", "other.test", "main.test", "other.test", "other.test"]
        with self.server.connect() as connection:
            connection.send(b"".join(b"GET / HTTP/1.1\r\nHost: %s\r\n\r\n" % host.encode() for host in hosts))
            found = [connection.response().text for _ in hosts]
        self.assertEqual(found, [f"<h1>{host.removesuffix('.test')}</h1>\n" for host in hosts])

    def test_between_files_and_a_relayed_service(self):
        with self.server.connect() as connection:
            for turn in range(20):
                body = f"turn {turn}".encode()
                echo = connection.get("/probe/echo", method="POST", body=body)
                self.assertEqual((echo.status, json.loads(echo.body)["body_length"]), (200, len(body)))
                self.assertEqual(connection.get("/").text, "<h1>main</h1>\n")

    def test_from_a_site_to_a_service_that_takes_connections(self):
        with self.server.connect() as connection:
            self.assertEqual(connection.get("/").text, "<h1>main</h1>\n")
            self.assertEqual(connection.get("/", "other.test").text, "<h1>other</h1>\n")
            echo = connection.get("/probe/echo", "other.test", method="POST", body=b"to be kept")
            self.assertEqual((echo.status, json.loads(echo.body)["body_length"]), (200, len(b"to be kept")))

    def test_an_unknown_host_in_between(self):
        with self.server.connect() as connection:
            self.assertEqual(connection.get("/").status, 200)
            self.assertEqual(connection.get("/", "unknown.test").status, 404)


@rootless_too
class Stuck(unittest.TestCase):
    """A worker that never says anything: here one that knows nothing of Bulkhead."""

    def stuck(self, takes):
        name = "stuck"
        main = site("main", [service(name, "/stuck", takes, ["bin/stuck", "1000"])])
        server = Server([main, site("other")], (), answers=False, limits={"start_timeout": "500ms", "drain_timeout": "1s"})
        server.copy_program("/bin/sleep", name)
        with server, Load(server.port, host="other.test", seconds=4) as load:
            # What goes through the same gates and the same site goes on.
            beside = Load(server.port, "/", seconds=4, connections=4)
            for _ in range(3):
                began = time.monotonic()
                answer = server.get("/stuck")
                took = time.monotonic() - began
                self.assertEqual(answer.status, 503)
                self.assertIn("retry-after", answer.headers)
                self.assertGreater(took, 0.4)
                self.assertLess(took, 1.5)
            load.end().assert_clean(self)
            beside.end().assert_clean(self)

    def test_taking_connections(self):
        self.stuck(takes=True)

    def test_relayed_to(self):
        self.stuck(takes=False)


if __name__ == "__main__":
    unittest.main()
