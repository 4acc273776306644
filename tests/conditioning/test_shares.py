"""`share_max` and `share_max_v6`: how many connections of one range of addresses workers have at once."""

import contextlib
import json
import socket
import unittest
from concurrent.futures import ThreadPoolExecutor

import client
from attack import fire
from client import until
from harness import Server, configuration, service, site
from netns import Networks

#: Connections of the server, so that 0.03 of them are three.
CONNECTIONS = 100
SLOW = client.request("/probe/sleep?ms=60000")
QUICK = client.request("/")
#: A whole network of IPv6 is local by a route alone, which does not suffice for `bind`.
NONLOCAL = {"net/ipv6/ip_nonlocal_bind": "1"}


class Shares(unittest.TestCase):
    def setUp(self):
        self.enterContext(Networks(settings=NONLOCAL))
        self.held = self.enterContext(contextlib.ExitStack())

    def server(self, address, **conditioning):
        limits = {"connections": CONNECTIONS, "start_timeout": "2s", "drain_timeout": "500ms"}
        settings = {"limits": limits, "server": {"gates": 1}, "conditioning": conditioning}
        sites = [site(services=[service("probe")])]
        text = lambda port: configuration(port, sites, settings).replace("127.0.0.1:", f"{address}:")
        return self.enterContext(Server(sites, text=text))

    def hold(self, where, sources):
        """Requests from these addresses, none of which is answered soon."""
        for source in sources:
            stream = self.held.enter_context(socket.create_connection(where, 10, (source, 0)))
            stream.sendall(SLOW)

    @staticmethod
    def admitted(server):
        answer = json.loads(server.command("status", "--conditioning", "--config", server.config, "--json").stdout)
        return sum(process["shed"]["admitted"] for process in answer["processes"] if process["role"] == "gate")

    def limited(self, server, where, held, others):
        """A range with so many held connections gets no more; other ranges do."""
        before = self.admitted(server)
        self.hold(where, held)
        self.assertTrue(until(lambda: self.admitted(server) - before >= len(held), 10), server.log())
        full, free = others
        with ThreadPoolExecutor(len(full)) as pool:
            late = list(pool.map(lambda source: fire(where, QUICK, source=source)[0], full))
        self.assertEqual(late, [503] * len(full))
        self.assertEqual([fire(where, QUICK, source=source)[0] for source in free], [200] * len(free))

    def test_share_max_of_each_kind_of_range(self):
        near, next_24, next_16 = "20.1.1.9", "20.1.7.9", "20.9.9.9"
        for bits, full in ((24, [near]), (16, [near, next_24]), (8, [near, next_24, next_16])):
            with self.subTest(bits=bits):
                share_max = {"/8": 1, "/16": 1, "/24": 1} | {f"/{bits}": 0.03}
                server = self.server("127.0.0.1", share_max=share_max)
                held = [f"20.1.1.{number}" for number in (1, 2, 3)]
                free = [one for one in (next_24, next_16, "30.1.1.1") if one not in full]
                self.limited(server, ("127.0.0.1", server.port), held, (full, free))

    def test_share_max_v6_of_each_kind_of_range(self):
        near, next_56, next_48 = "2001:db8:1:1::9", "2001:db8:1:700::9", "2001:db8:7::9"
        for bits, full in ((56, [near]), (48, [near, next_56]), (32, [near, next_56, next_48])):
            with self.subTest(bits=bits):
                share_max = {"/32": 1, "/48": 1, "/56": 1} | {f"/{bits}": 0.03}
                server = self.server("[::1]", share_max_v6=share_max)
                held = [f"2001:db8:1:1::{number}" for number in (1, 2, 3)]
                free = [one for one in (next_56, next_48) if one not in full]
                self.limited(server, ("::1", server.port), held, (full, free))

    def test_a_larger_share_max_lets_more_of_the_same_range_in(self):
        server = self.server("127.0.0.1", share_max={"/8": 1, "/16": 1, "/24": 0.06})
        where = ("127.0.0.1", server.port)
        self.limited(server, where, [f"20.1.1.{number}" for number in range(1, 7)], (["20.1.1.9"], ["20.1.2.1"]))
