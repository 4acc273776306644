"""Processes that hang are ended and started again; those that are old, large or have done enough are replaced."""

import unittest

import client
from client import Load, until
from harness import Server, rootless_too, service, site


@rootless_too
class Hung(unittest.TestCase):
    def test_a_service_that_hangs_is_ended_with_a_word_of_where_it_was(self):
        sites = [site("main", [service("probe"), service("other", "/other", command=["bin/probe"])])]
        with Server(sites, restart={"hang_after": "5s"}) as server:
            for path, doing in (("/probe/hang", "waits in "), ("/probe/spin", "runs")):
                pids = {process.pid for process in server.processes("bin/probe")}
                with client.Connection(server.port) as stuck:
                    stuck.send(client.request(path))
                    self.assertEqual(server.status("/"), 200, "files go on")
                    ended = lambda: "service main/probe (pid" in server.log() and doing in server.log()
                    self.assertTrue(until(ended, 30), server.log())
                self.assertTrue(until(lambda: server.status("/probe", timeout=2) == 200, 20))
                now = {process.pid for process in server.processes("bin/probe")}
                self.assertEqual(len(now & pids), 1, "the other one goes on")

    def test_who_takes_its_time_is_not_ended(self):
        with Server(restart={"hang_after": "5s"}) as server:
            pid = server.process("bin/probe").pid
            self.assertEqual(server.get("/probe/sleep?ms=12000", timeout=20).status, 200)
            self.assertEqual(server.process("bin/probe").pid, pid)
            self.assertNotIn("has not answered", server.log())


@rootless_too
class Recycled(unittest.TestCase):
    def replaced(self, path, expected, **limits):
        with Server([site("main", [service("probe", **limits)])]) as server:
            pid = server.process("bin/probe").pid
            load = Load(server.port, path, "main.test", seconds=16, connections=4)
            self.assertTrue(until(lambda: expected in server.log(), 20), server.log())
            load.end().assert_clean(self)
            self.assertTrue(until(lambda: pid not in [process.pid for process in server.processes("bin/probe")], 10))

    def test_after_so_many_requests(self):
        self.replaced("/probe", "service main/probe is replaced because it has answered", max_requests=200)

    def test_after_so_long(self):
        self.replaced("/probe", "service main/probe is replaced because it is old enough", max_age="10s")

    def test_with_so_much_memory(self):
        self.replaced("/probe/keep?mib=1", "MiB of memory (`recycle_memory`)", recycle_memory="32MiB")
