"""A service that has a whole host to itself: it keeps clients' connections, and limits them as a site's worker does."""

import time
import unittest

from client import request
from harness import Server, rootless_too, service, site

#: In seconds; a head gets less time than there may be between two requests.
HEAD, IDLE = 1, 5


@rootless_too
class OwnHost(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        limits = {"head_timeout": f"{HEAD}s", "idle_timeout": f"{IDLE}s"}
        cls.server = cls.enterClassContext(Server([site(services=[service(path="/", takes=True)])], limits=limits))

    def kept(self):
        """A connection that the service has."""
        connection = self.enterContext(self.server.connect())
        pids = {connection.get("/probe").text for _ in range(2)}
        self.assertEqual(len(pids), 1)
        return connection

    def test_idle(self):
        connection, began = self.kept(), time.monotonic()
        self.assertTrue(connection.is_closed(within=IDLE + 3))
        self.assertGreater(time.monotonic() - began, IDLE - 0.5)

    def test_incomplete(self):
        connection = self.kept()
        time.sleep(HEAD + 0.5)
        self.assertEqual(connection.get("/probe").status, 200, "a head's time begins with its first byte")
        began = time.monotonic()
        connection.send(request("/probe")[:-2])
        self.assertEqual(connection.response().status, 408)
        self.assertTrue(connection.is_closed())
        self.assertTrue(HEAD - 0.2 < time.monotonic() - began < IDLE - 0.5)

    def test_dribbling_does_not_help(self):
        connection, began = self.kept(), time.monotonic()
        try:
            for byte in request("/probe", headers=["X-One: " + "a" * 100]):
                connection.send(bytes([byte]))
                time.sleep(0.1)
        except OSError:
            pass
        # A site's worker lingers for 2 s after its answer; the service does not.
        self.assertLess(time.monotonic() - began, HEAD + 2.5)


if __name__ == "__main__":
    unittest.main()
