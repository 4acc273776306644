"""Each role is killed under load: the others go on, and the killed one is back at once."""

import signal
import threading
import time
import unittest

from client import Load, get, request, status, until
from harness import Process, Server, service, site, wait_for_time
from machine import Waits

#: From the end of a killed process to the first answer, without what the machine had the others wait: each of `KILLS`.
BACK_WITHIN = 0.1
KILLS = 5

#: `main` relays to its service, `direct` has one that takes connections, `other` is not touched. Each service has a
#: program file of its own, as their uids are not shared.
SITES = [
    site("main", [service("probe")]),
    site("direct", [service("direct", "/probe", takes=True)]),
    site("other", [service("steady", "/probe")]),
]


def server():
    """A server for all of these tests."""
    made = Server(SITES)
    made.copy_program("probe", "direct")
    made.copy_program("probe", "steady")
    return made


class Killed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(server())

    def back_after_kill(self, title, answers):
        """Kills `title` some times; it must come back as itself, and `answers()` within BACK_WITHIN."""
        times = []
        for _ in range(KILLS):
            # A process that lived for a second is healthy, and is started again without delay.
            wait_for_time(1.1)
            old = self.server.process(title)
            uid = old.uid
            old.kill()
            self.assertTrue(until(lambda old=old: not old.alive, 5, pause=0.001))
            waits, began = Waits(self.on_the_way(title)), time.monotonic()
            self.assertTrue(until(answers, 5, pause=0.001), f"{title} does not come back")
            took = time.monotonic() - began
            times.append((took, took - waits.seconds(self.on_the_way(title))))
            new = until(lambda: [p for p in self.server.processes(title) if p != old], 5)
            self.assertTrue(new, f"{title} does not come back")
            self.assertEqual(new[0].uid, uid)
        slow = [f"{took:.3f} s, {own:.3f} s of them own" for took, own in times if own > BACK_WITHIN]
        self.assertEqual(slow, [], f"{title} is not back within {BACK_WITHIN} s")

    def on_the_way(self, title):
        """The processes that a request passes until `title` answers it, and the one that starts it."""
        titles = {"bin/probe": ("gate", "site main", title)}.get(title, ("gate", "admin", title))
        passed = [one for one in self.server.processes() if one.title.startswith(titles)]
        return [Process(self.server.launcher.pid), *passed]

    def site_and_service(self, title, target, elsewhere):
        """Kills `title`, which answers `target`, while others have load; each is a host and a path."""
        host, inside = target
        loads = [Load(self.server.port, path, host, seconds=7, connections=4) for host, path in elsewhere]
        try:
            self.back_after_kill(title, lambda: status(self.server.port, inside, host) == 200)
        finally:
            loads = [load.end() for load in loads]
        for load in loads:
            load.assert_clean(self)

    def test_site(self):
        self.site_and_service("site main", ("main.test", "/"),
                              [("other.test", "/"), ("other.test", "/probe"), ("direct.test", "/probe")])

    def test_relayed_service(self):
        self.site_and_service("bin/probe", ("main.test", "/probe"),
                              [("main.test", "/"), ("other.test", "/probe")])

    def test_service_with_connections(self):
        self.site_and_service("bin/direct", ("direct.test", "/probe"),
                              [("direct.test", "/"), ("other.test", "/probe")])

    def test_logger(self):
        self.role_without_answers("logger")

    def test_admin(self):
        self.role_without_answers("admin")

    def role_without_answers(self, title):
        """Kills a role on which no answer depends: no request fails."""
        everything = [("main.test", "/"), ("main.test", "/probe"), ("direct.test", "/probe")]
        loads = [Load(self.server.port, path, host, seconds=7, connections=4) for host, path in everything]
        known = set()
        self.assertTrue(self.serves_anew(title, known))
        try:
            self.back_after_kill(title, lambda: self.serves_anew(title, known))
        finally:
            loads = [load.end() for load in loads]
        for load in loads:
            load.assert_clean(self)
        self.assertEqual(len(known), KILLS + 1, "each time it was another process")

    def serves_anew(self, role, known):
        """Whether `bulkhead status` shows a process of this role that serves and is not `known`, which it then is."""
        try:
            answer = self.server.order(command="status")
        except (OSError, ValueError):
            # The one that was asked has died over it.
            return False
        found = [about for about in answer.get("processes", []) if about["role"] == role]
        anew = [about["pid"] for about in found if about["state"] == "serving" and about["pid"] not in known]
        known.update(anew)
        return bool(anew)

    def test_gate(self):
        # What a gate held is lost with it: connections between two requests. Those at workers go on.
        with self.server.connect() as held:
            self.assertEqual(held.get("/").status, 200)
            self.back_after_kill("gate 0", lambda: status(self.server.port, "/") == 200)
            self.assertEqual(held.get("/").status, 200, "a connection at the site's worker needs no gate")

    def test_gate_under_load(self):
        kept = Load(self.server.port, seconds=4, connections=4)
        passing = Load(self.server.port, "/probe", "direct.test", seconds=4, connections=4)
        wait_for_time(0.5)
        for _ in range(2):
            self.server.process("gate 0").kill()
            wait_for_time(1.2)
        # Those connections had been handed on before the gate died, and are not its concern any more.
        kept.end().assert_clean(self)
        # These pass a gate for each request; each kill takes at most as many with it as there are.
        passing.end()
        self.assertEqual(passing.refused, 0, passing.text)
        self.assertLessEqual(sum(passing.errors), 2 * 4, passing.text)
        self.assertGreater(passing.requests, 100, passing.text)


class AcceptQueue(unittest.TestCase):
    def test_it_survives_its_gates(self):
        with Server() as server:
            gates = server.processes("gate")
            self.assertEqual(len(gates), 2)
            for gate in gates:
                gate.signal(signal.SIGSTOP)
            connections = [server.connect() for _ in range(60)]
            for connection in connections:
                connection.send(request("/", headers=["Connection: close"]))
            wait_for_time(0.2)
            for gate in gates:
                gate.kill()
            for connection in connections:
                with connection:
                    self.assertEqual(connection.response().status, 200)
            self.assertFalse(set(server.processes("gate")) & set(gates))


class Launcher(unittest.TestCase):
    rootless = True

    def test_nothing_outlives_it(self):
        with Server() as server:
            slow = threading.Thread(target=lambda: status(server.port, "/probe/sleep?ms=20000"), daemon=True)
            slow.start()
            with server.connect() as held:
                self.assertEqual(held.get("/").status, 200)
                wait_for_time(0.2)
                children = server.processes()
                self.assertEqual(len(children), 6, children)
                server.launcher.kill()
                server.wait(2)
                self.assertTrue(until(lambda: not any(child.alive for child in children), 2), server.left())
            with self.assertRaises(OSError):
                get(server.port, timeout=1)
            slow.join(5)
            server.start()
            self.assertEqual(server.status("/"), 200)


if __name__ == "__main__":
    unittest.main()
