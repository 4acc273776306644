"""Attacks on a gate: whoever makes them, others are served, and what was shed is told."""

import contextlib
import json
import time
import unittest

import pytest

from attack import Attack, fire, head
from client import until
from harness import Server, configuration, rootless_too, site
from netns import Networks, addresses

pytestmark = [pytest.mark.alone, pytest.mark.attack]

ATTACKERS = "20.1.0.0/16"
#: Somebody else, far away.
OTHER = "30.2.3.4"


def shed(server):
    """What the gates have shed, by reason."""
    answer = server.command("status", "--conditioning", "--config", server.config, "--json")
    assert answer.returncode == 0, answer.stderr
    gates = [process["shed"] for process in json.loads(answer.stdout)["processes"] if process["role"] == "gate"]
    return {reason: sum(gate[reason] for gate in gates) for reason in gates[0]}


class Attacked(unittest.TestCase):
    """A server with one gate, in a namespace where clients come from anywhere."""

    def setUp(self):
        self.enterContext(Networks())

    def server(self, connections=300, files=None, **conditioning):
        settings = {"limits": {"connections": connections}, "server": {"gates": 1}, "conditioning": conditioning}
        return self.enterContext(Server([site()], programs=(), files=files, **settings))

    def attack(self, kind, server, count, sources=ATTACKERS, **more):
        where = ("127.0.0.1", server.port)
        return self.enterContext(Attack(kind, where, count, sources=addresses(sources, min(count, 200)), **more))

    def others_are_served(self, server, within=0.5, times=20):
        slowest = 0
        for _ in range(times):
            status, seconds = fire(("127.0.0.1", server.port), head(), source=OTHER)
            self.assertEqual(status, 200)
            slowest = max(slowest, seconds)
        self.assertLess(slowest, within)


class Starvation(Attacked):
    def test_incomplete_connections_push_each_other_out(self):
        server = self.server()
        for kind in ("silent", "incomplete", "trickle"):
            with self.subTest(kind):
                before = shed(server)["evicted"]
                attack = self.attack(kind, server, 2000, seconds=20)
                attack.settle(10)
                self.others_are_served(server)
                self.assertGreater(shed(server)["evicted"], before + 1000)
                self.assertLessEqual(shed(server)["incomplete_now"], 300)

    def test_whoever_was_there_first_stays(self):
        server = self.server()
        with server.connect(source=OTHER) as early:
            early.send(head()[:10])
            self.attack("incomplete", server, 1000, seconds=20).settle(10)
            early.send(head()[10:])
            self.assertEqual(early.response().status, 200)

    def test_idle_connections_do_not_keep_others_out(self):
        server = self.server()
        self.attack("idle", server, 600, seconds=20).settle(10)
        self.others_are_served(server, within=2)


class Shares(Attacked):
    def test_slow_readers_of_one_range_have_its_share(self):
        server = self.server(connections=400, files={"main/large.bin": b"a" * 3_000_000})
        attack = self.attack("slow-reader", server, 200, sources="20.1.1.0/24", seconds=30, target="/large.bin")
        attack.settle(10)
        refused = lambda counts: counts["delayed"] + counts["over_share"]
        self.assertTrue(until(lambda: refused(shed(server)) >= 150), shed(server))
        self.others_are_served(server)
        # A tenth of 400.
        self.assertLessEqual(shed(server)["admitted"], 40 + 20)


class Offenders(Attacked):
    def test_who_asks_too_often_is_told_to_come_later(self):
        server = self.server(rate_max="5/s", rate_burst=10)
        statuses = [fire(("127.0.0.1", server.port), head(), source="20.1.1.1")[0] for _ in range(40)]
        self.assertGreaterEqual(statuses.count(200), 10)
        self.assertGreater(statuses.count(429), 10)
        self.assertEqual(fire(("127.0.0.1", server.port), head(), source=OTHER)[0], 200)

    def test_who_sends_nonsense_is_not_heard_for_a_while(self):
        server = self.server(ban_after=5, ban_time="1s")
        where = ("127.0.0.1", server.port)
        statuses = [fire(where, b"\0nonsense\r\n\r\n", source="20.1.1.1")[0] for _ in range(8)]
        self.assertEqual(statuses, [400] * 5 + [None] * 3)
        self.assertEqual(fire(where, head(), source="20.1.1.1")[0], None)
        self.assertEqual(fire(where, head(), source=OTHER)[0], 200)
        counts = shed(server)
        self.assertEqual((counts["bans"], counts["banned"], counts["banned_now"]), (1, 4, 1))
        time.sleep(1.1)
        self.assertEqual(fire(where, head(), source="20.1.1.1")[0], 200)


@rootless_too
class Memory(unittest.TestCase):
    """A gate looks at what has come, and leaves it with the kernel until the head is whole."""

    CONNECTIONS, SENT = 500, 6 << 10
    #: KiB for each connection: what is known of it, and nothing that it has sent.
    EACH = 3

    def test_an_incomplete_head_costs_little_however_long_it_is(self):
        with Server([site()], (), server={"gates": 1}) as server, contextlib.ExitStack() as stack:
            gate = server.process("gate")
            memory = lambda: int(gate.status()["VmRSS"].split()[0])
            before = memory()
            begun = f"GET / HTTP/1.1\r\nHost: main.test\r\nX: {'x' * self.SENT}".encode()
            for _ in range(self.CONNECTIONS):
                stack.enter_context(server.connect()).send(begun)
            self.assertTrue(until(lambda: shed(server)["incomplete_now"] == self.CONNECTIONS, 10))
            self.assertLess((memory() - before) / self.CONNECTIONS, self.EACH)


class Exempt(unittest.TestCase):
    def test_exempt_networks_are_neither_limited_nor_banned(self):
        policies = {"rate_max": "1/s", "ban_after": 1, "exempt": ["127.0.0.0/8"]}
        with Server([site()], programs=(), conditioning=policies) as server:
            where = ("127.0.0.1", server.port)
            self.assertEqual([fire(where, b"\0\r\n\r\n")[0] for _ in range(5)], [400] * 5)
            self.assertEqual([fire(where, head())[0] for _ in range(10)], [200] * 10)

    def test_behind_shared_connections_an_address_says_nothing(self):
        """A balancer's address is that of all its users: one of them is not to have the others refused."""
        policies = {"rate_max": "1/s", "ban_after": 1, "exempt": []}
        text = lambda port: configuration(port, [site()], {"conditioning": policies}).replace(
            "[[listen]]\n", "[[listen]]\nshared_connections = true\n", 1)
        with Server([site()], programs=(), text=text) as server:
            where = ("127.0.0.1", server.port)
            self.assertEqual([fire(where, b"\0\r\n\r\n")[0] for _ in range(5)], [400] * 5)
            self.assertEqual([fire(where, head())[0] for _ in range(10)], [200] * 10)


if __name__ == "__main__":
    unittest.main()
