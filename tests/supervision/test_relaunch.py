"""Relaunches: no request fails, and what is under way is answered by who has it."""

import threading
import unittest

import client
from client import Load, until
from harness import Server, rootless_too, service, site, wait_for_time

SITES = [site("main", [service("probe")]), site("direct", [service("direct", "/probe", takes=True)])]
TIMES = 5


@rootless_too
class Relaunch(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(SITES)
        cls.server.copy_program("probe", "direct")
        cls.enterClassContext(cls.server)

    def relaunched_under_load(self, name, title, loads):
        """Relaunches `name` five times under load; nothing may fail."""
        loads = [Load(self.server.port, path, host, seconds=4, connections=4, close=close)
                 for host, path, close in loads]
        seen = {process.pid for process in self.server.processes(title)}
        for _ in range(TIMES):
            wait_for_time(0.2)
            self.server.relaunch(name)
            pids = {process.pid for process in self.server.processes(title)}
            self.assertTrue(pids - seen, f"{name} was not relaunched")
            seen |= pids
        for load in [load.end() for load in loads]:
            load.assert_clean(self)

    def both(self, host, path):
        return [(host, path, False), (host, path, True)]

    def test_site(self):
        self.relaunched_under_load("main", "site main", self.both("main.test", "/"))

    def test_site_that_relays(self):
        self.relaunched_under_load("main", "site main", self.both("main.test", "/probe"))

    def test_relayed_service(self):
        self.relaunched_under_load("main/probe", "bin/probe", self.both("main.test", "/probe"))

    def test_service_with_connections(self):
        self.relaunched_under_load("direct/direct", "bin/direct", self.both("direct.test", "/probe"))

    def test_gate(self):
        self.relaunched_under_load("gate", "gate", self.both("main.test", "/") + self.both("direct.test", "/probe"))

    def test_logger(self):
        self.relaunched_under_load("logger", "logger", self.both("main.test", "/") + self.both("main.test", "/probe"))

    def test_admin(self):
        self.relaunched_under_load("admin", "admin", self.both("main.test", "/"))

    def test_orders_that_meet_an_admin_process_that_ends_are_answered_by_the_next(self):
        answers, ended = [], threading.Event()

        def ask():
            while not ended.is_set():
                answers.append(self.server.command("status", "--run-dir", "run"))

        asking = [threading.Thread(target=ask) for _ in range(3)]
        [thread.start() for thread in asking]
        relaunched = []
        for _ in range(20):
            relaunched.append(self.server.command("relaunch", "--run-dir", "run", "admin"))
            self.assertTrue(until(lambda: len(self.server.processes("admin")) == 1, 10))
        ended.set()
        [thread.join() for thread in asking]
        self.assertGreater(len(answers), 20)
        self.assertEqual([answer.stderr for answer in [*answers, *relaunched] if answer.returncode], [])

    def test_unknown_name(self):
        answer = self.server.order(command="relaunch", name="nobody")
        self.assertFalse(answer["ok"])
        self.assertIn("main/probe", answer["error"])
        self.assertNotEqual(self.server.command("relaunch", "--config", self.server.config, "nobody").returncode, 0)

    def slow_over(self, host, *names):
        """A slow request is begun before relaunches, and answered after them."""
        answers = []
        slow = threading.Thread(target=lambda: answers.append(self.server.get("/probe/sleep?ms=1500", host)))
        slow.start()
        wait_for_time(0.3)
        for name in names:
            self.server.relaunch(name)
        self.assertFalse(answers, "the request was to be under way during the relaunch")
        # The new one serves while the old one finishes.
        self.assertEqual(self.server.status("/probe", host), 200)
        slow.join(10)
        self.assertEqual([(answer.status, answer.text.startswith("slept")) for answer in answers], [(200, True)])

    def test_idle_connections_go_on_whatever_is_relaunched(self):
        """A worker that retires hands them back, also to a gate that it did not have them from."""
        pids = lambda: {process.pid for process in self.server.processes("site main")}
        for names in (["gate", "main"], ["main", "gate"], ["gate", "gate", "main"]):
            with client.Connection(self.server.port) as kept:
                self.assertEqual(kept.get("/").text, "<h1>main</h1>\n")
                old = pids()
                for name in names:
                    self.server.relaunch(name)
                self.assertTrue(until(lambda: not old & pids(), 10), names)
                self.assertEqual(kept.get("/").text, "<h1>main</h1>\n", names)

    def test_slow_request_over_its_service(self):
        self.slow_over("main.test", "main/probe")

    def test_slow_request_over_its_site(self):
        self.slow_over("main.test", "main")

    def test_slow_request_over_both_and_the_gates(self):
        self.slow_over("main.test", "main/probe", "main", "gate")

    def test_slow_request_in_a_service_with_connections(self):
        self.slow_over("direct.test", "direct/direct", "gate")


if __name__ == "__main__":
    unittest.main()
