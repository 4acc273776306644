"""The loads themselves: that they do what they say, to nobody else; that a namespace has the addresses it claims."""

import unittest

import pytest

from attack import KINDS, Attack, bombs, fire
from client import until
from harness import Server, rootless_too, site
from netns import Networks, addresses

pytestmark = [pytest.mark.alone, pytest.mark.attack]


@rootless_too
class Bounds(unittest.TestCase):
    def test_nobody_else_is_attacked(self):
        for address in ("192.0.2.77", "10.255.255.1", "2001:db8:77::1"):
            with self.subTest(address):
                with self.assertRaises(ValueError):
                    Attack("silent", (address, 80), 1)
                with self.assertRaises(ValueError):
                    fire((address, 80), b"")

    def test_number_rate_and_time_are_bounded(self):
        for more in ({"count": 10**6}, {"count": 1, "seconds": 10**6}, {"count": 1, "rate": 10**6}):
            with self.subTest(more), self.assertRaises(ValueError):
                Attack("silent", ("127.0.0.1", 80), **more)

    def test_addresses_are_spread_over_their_network(self):
        found = addresses("20.1.0.0/16", 256)
        self.assertEqual(len(set(found)), 256)
        self.assertGreater(len({one.rsplit(".", 1)[0] for one in found}), 250)
        with self.assertRaises(ValueError):
            addresses("20.1.2.0/24", 300)


@rootless_too
class Loads(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(Server([site()], programs=(), files={"main/large.bin": b"a" * 3_000_000}))

    def test_every_kind_arrives_and_leaves_the_server_alive(self):
        for kind in KINDS:
            target = "/large.bin" if kind in ("bulk", "slow-reader") else "/"
            with self.subTest(kind), Attack(kind, ("127.0.0.1", self.server.port), 100, seconds=20, target=target,
                                            pace=0.05, piece=4096) as attack:
                counts = attack.settle(10)
                self.assertGreaterEqual(counts["opened"], 100, counts)
                self.assertEqual(self.server.status("/"), 200)
                if kind in ("idle", "persistent"):
                    self.assertTrue(until(lambda: attack.counts()["answered"] >= 100), attack.counts())
                if kind in ("bulk", "slow-reader"):
                    self.assertTrue(until(lambda: attack.counts()["bytes"] >= 100_000), attack.counts())
                self.assertEqual(attack.counts()["failed"], 0)

    def test_bombs_are_answered_in_ordinary_time(self):
        pids = [process.pid for process in self.server.processes()]
        for name, data in bombs().items():
            with self.subTest(name):
                status, seconds = fire(("127.0.0.1", self.server.port), data)
                self.assertIsNotNone(status, "closed without an answer")
                self.assertLess(status, 500)
                self.assertLess(seconds, 1)
        self.assertEqual([process.pid for process in self.server.processes()], pids, "a process ended")


class Namespace(unittest.TestCase):
    def test_the_server_sees_clients_of_many_networks(self):
        sources = [addresses(f"{first}.0.0.0/8", 3)[1] for first in (20, 27, 39)]
        with Networks(), Server([site()], programs=()) as server:
            for source in sources:
                self.assertEqual(fire(("127.0.0.1", server.port), b"GET /seen HTTP/1.1\r\nHost: main.test\r\n\r\n",
                                      source)[0], 404)
            self.assertTrue(until(lambda: all(source in server.log("main.access") for source in sources)),
                            server.log("main.access"))
        with self.assertRaises(ValueError, msg="the address is still local outside of the namespace"):
            fire((sources[0], server.port), b"")


if __name__ == "__main__":
    unittest.main()
