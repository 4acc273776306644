"""Sites and services that start with the first connection, and go when nobody has come for a while."""

import os
import select
import threading
import time
import unittest

import client
from client import Load, until
from harness import rootless_too, service, site
from reloading import Reloading
from tls_server import Tls

DEMAND = {"start": "on-demand", "idle_stop": "1s"}


@rootless_too
class OnDemand(unittest.TestCase):
    def setUp(self):
        self.sites = [site("main", [service("probe")]) | DEMAND, site("other", [service("taker", takes=True, command=["bin/probe"])]) | DEMAND,
                      site("busy")]
        self.server = self.enterContext(Reloading(self.sites, server={"gates": 2}))

    def running(self):
        """The titles of what runs of sites."""
        titles = [process.title for process in self.server.processes()]
        return sorted(title for title in titles if title.startswith(("site", "bin/")))

    def rests(self):
        return until(lambda: self.running() == ["site busy"], 10)

    def test_the_first_connection_starts_what_it_needs_and_nothing_else(self):
        server = self.server
        self.assertEqual(self.running(), ["site busy"])
        self.assertEqual(server.get("/").text, "<h1>main</h1>\n")
        self.assertEqual(self.running(), ["site busy", "site main"])
        self.assertEqual(server.get("/probe").status, 200)
        self.assertEqual(self.running(), ["bin/probe", "site busy", "site main"])
        self.assertEqual(server.get("/probe", "other.test").status, 200)
        self.assertTrue(self.rests(), self.running())
        # Again, with what waits while it starts.
        loads = [Load(server.port, path, host, seconds=3, connections=8)
                 for path, host in (("/", "main.test"), ("/probe", "main.test"), ("/probe", "other.test"))]
        for load in loads:
            load.finish().assert_clean(self)
        self.assertTrue(self.rests(), self.running())
        self.assertNotIn("warning", server.log().partition("serving on")[2].lower())

    def test_who_holds_a_connection_keeps_the_process(self):
        kept = client.Connection(self.server.port)
        self.assertEqual(kept.get("/").text, "<h1>main</h1>\n")
        pid = self.server.process("site main").pid
        self.assertFalse(until(lambda: "site main" not in self.running(), 3))
        self.assertEqual(kept.get("/").text, "<h1>main</h1>\n")
        self.assertEqual(self.server.process("site main").pid, pid)

    def test_requests_at_the_very_time_it_goes(self):
        """A connection comes whenever a process has just had none for `idle_stop`, again and again."""
        server, failed, stop = self.server, [], threading.Event()

        def ask():
            while not stop.is_set():
                if server.status("/") != 200 or server.status("/probe") != 200:
                    failed.append(1)
                until(lambda: "site main" not in self.running() or stop.is_set(), 5, 0.001)

        threads = [threading.Thread(target=ask) for _ in range(2)]
        for thread in threads:
            thread.start()
        starts = set()
        until(lambda: starts.update(process.pid for process in server.processes("site main")) or len(starts) > 4, 30)
        stop.set()
        for thread in threads:
            thread.join()
        self.assertEqual((failed, len(starts) > 4), ([], True))

    def test_a_reload_starts_only_what_it_replaces(self):
        server = self.server
        server.get("/")
        changed = [one | {"index": ["index.html", "x.html"]} for one in self.sites]
        self.assertIsNone(server.reload(changed, server={"gates": 2}))
        self.assertTrue(until(lambda: self.running() == ["site busy", "site main"]), self.running())
        self.assertEqual(server.status("/", "other.test"), 200)
        self.assertIsNone(server.reload([site("busy"), site("main", [service("probe")])], server={"gates": 2}))
        self.assertTrue(until(lambda: self.running() == ["bin/probe", "site busy", "site main"]), self.running())

    def test_a_relaunch_starts_what_rests(self):
        self.server.relaunch("main/probe")
        self.assertIn("bin/probe", self.running())
        self.assertTrue(self.rests())

    def test_a_program_that_fails_is_said_to_those_who_wait(self):
        self.server.copy_program("/bin/false", "probe")
        self.assertIn(self.server.status("/probe", timeout=20), (500, 503))
        self.assertEqual(self.server.status("/", "busy.test"), 200)


@rootless_too
class Many(unittest.TestCase):
    """Many that nobody needs any more, from the same moment on."""

    COUNT, PAUSE = 30, 0.02

    def setUp(self):
        names = [f"s{number}" for number in range(self.COUNT)]
        # Long enough for all of them to start before the first goes.
        sites = [site(name, start="on-demand", idle_stop="3s") for name in names]
        self.server = self.enterContext(Reloading(sites, server={"gates": 1}))
        clients = [threading.Thread(target=self.server.status, args=("/", f"{name}.test")) for name in names]
        for one in clients:
            one.start()
        for one in clients:
            one.join()

    def sites(self):
        return self.server.processes("site")

    def test_they_go_one_after_the_other(self):
        ended = {os.pidfd_open(process.pid): None for process in self.sites()}
        self.assertEqual(len(ended), self.COUNT)
        ends = select.poll()
        for descriptor in ended:
            self.addCleanup(os.close, descriptor)
            ends.register(descriptor, select.POLLIN)
        while None in ended.values():
            ready = ends.poll(10_000)
            self.assertTrue(ready, "no process ends")
            for descriptor, _ in ready:
                ended[descriptor] = time.monotonic()
                ends.unregister(descriptor)
        # The first may be seen late, the last not before it ends.
        took = max(ended.values()) - min(ended.values())
        self.assertGreater(took, (self.COUNT - 1) * self.PAUSE / 2)
        self.assertEqual(self.server.status("/", "s0.test"), 200)

    def test_the_end_of_the_server_waits_for_no_turn(self):
        self.assertTrue(until(lambda: len(self.sites()) < self.COUNT, 10))
        left = self.sites()
        self.assertEqual(self.server.stop(), 0)
        self.assertFalse([process for process in left if process.alive])


class UnderTls(unittest.TestCase):
    def test_the_name_of_the_handshake_starts_the_site(self):
        with Tls(more='start = "on-demand"\nidle_stop = "1s"\n') as server:
            sites = lambda: [process.title for process in server.processes("site")]
            self.assertEqual(sites(), ["site a", "site plain"])
            for _ in range(2):
                self.assertIn(b"200 OK", server.get_tls("b.test"))
                self.assertIn("site b", sites())
                self.assertTrue(until(lambda: "site b" not in sites(), 10))
