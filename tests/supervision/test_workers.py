"""Sites and services with several processes: who gets what, how many there are, and how they are replaced."""

import threading
import unittest

import client
from client import Load, until
from harness import rootless_too, service, site
from reloading import Reloading

SETTINGS = {"server": {"gates": 1}}
GROWS = {"min": 1, "max": 3}
QUICK = SETTINGS | {"limits": {"start_timeout": "2s"}}


class Workers(Reloading):
    """A server whose processes of sites can be asked for."""

    def held(self, name):
        """How many connections each process of a site or a service holds, by its label."""
        lines = self.order(command="status")["processes"]
        return {line["name"]: line["connections_now"] for line in lines if line["name"].partition("#")[0] == name}

    def count(self, title):
        return len(self.processes(title))

    def serving(self, name):
        """The pid of each process of a site or a service that does not retire, by its label."""
        lines = self.order(command="status")["processes"]
        return {line["name"]: line["pid"] for line in lines if line["name"].partition("#")[0] == name and line["state"] == "serving"}


@rootless_too
class Shared(unittest.TestCase):
    """Two processes each of a site, of a service behind it, and of one that takes connections."""

    @classmethod
    def setUpClass(cls):
        taker = service("taker", "/probe", takes=True, command=["bin/probe"], workers=2)
        cls.sites = [site("main", [service(workers=2)], workers=2), site("direct", [taker]), site("one", [service(workers=2)])]
        cls.server = cls.enterClassContext(Workers(cls.sites, **SETTINGS))

    def at_once(self, count, target, host):
        """So many requests at the same time; returns what ends them."""
        answers = []
        ask = lambda: answers.append(self.server.get(target, host, timeout=20).status)
        threads = [threading.Thread(target=ask) for _ in range(count)]
        for thread in threads:
            thread.start()

        def finish():
            for thread in threads:
                thread.join()
            self.assertEqual(answers, [200] * count)
        return finish

    def test_both_get_as_many_connections(self):
        server = self.server
        kept = [self.enterContext(client.Connection(server.port)) for _ in range(4)]
        for one in kept:
            self.assertEqual(one.get("/").text, "<h1>main</h1>\n")
        # The status is told over another way.
        self.assertEqual(server.held("main"), {"main": 2, "main#2": 2})
        for name, host in (("main/probe", "main.test"), ("direct/taker", "direct.test")):
            finish = self.at_once(4, "/probe/sleep?ms=1500", host)
            both = {name: 2, f"{name}#2": 2}
            self.assertTrue(until(lambda: server.held(name) == both, 5), server.held(name))
            finish()
        self.assertEqual(server.count("site main"), 2)

    def test_one_that_is_blocked_keeps_nobody_waiting(self):
        # Each gate, and each worker of a site, knows what it has given out itself; a few requests may come before it is
        # seen that one is blocked.
        for host, name in (("one.test", "one/probe"), ("direct.test", "direct/taker")):
            finish = self.at_once(1, "/probe/block?ms=4000", host)
            load = Load(self.server.port, "/probe", host, seconds=2, connections=8)
            load.finish().assert_clean(self)
            finish()
            self.assertEqual(len(self.server.held(name)), 2)

    def test_one_that_is_killed_takes_with_it_what_it_holds(self):
        server = self.server
        self.assertTrue(until(lambda: set(server.held("main").values()) == {0}, 5))
        kept = [self.enterContext(client.Connection(server.port)) for _ in range(4)]
        for one in kept:
            one.get("/")
        loads = [Load(server.port, path, seconds=3, connections=4) for path in ("/", "/probe")]
        self.assertTrue(until(lambda: min(server.held("main").values()) >= 4))
        before = server.processes("site main")
        before[0].kill()
        loads = [load.end() for load in loads]
        lost = sum(sum(load.errors) for load in loads)
        self.assertLessEqual(lost, 8, [load.text for load in loads])
        self.assertEqual([load.refused for load in loads], [0, 0])
        alive = 0
        for one in kept:
            try:
                alive += one.get("/").text == "<h1>main</h1>\n"
            except (OSError, AssertionError, EOFError):
                pass
        self.assertEqual(alive, 2)
        self.assertTrue(until(lambda: server.count("site main") == 2))
        self.assertIn(before[1], server.processes("site main"))

    def test_a_relaunch_under_load_fails_no_request(self):
        server = self.server
        for name, title, targets in (("main", "site main", ("/", "/probe")), ("main/probe", "bin/probe", ("/probe",))):
            loads = [Load(server.port, target, seconds=3, connections=4, close=close)
                     for target in targets for close in (False, True)]
            old = set(server.processes(title))
            server.relaunch(name)
            server.relaunch(name)
            for load in loads:
                load.end().assert_clean(self)
            if title == "site main":
                self.assertTrue(until(lambda: not old & set(server.processes(title)) and server.count(title) == 2))
        self.assertEqual(len(server.held("main/probe")), 2)

    def test_one_of_them_can_be_replaced_alone(self):
        server = self.server
        for name, path in (("main", "/"), ("main/probe", "/probe")):
            load = Load(server.port, path, seconds=2, connections=4, close=True)
            first = server.serving(name)
            server.relaunch(f"{name}#2")
            second = server.serving(name)
            self.assertEqual((second[name], second[f"{name}#2"] != first[f"{name}#2"]), (first[name], True))
            server.relaunch(f"{name}#1")
            third = server.serving(name)
            self.assertEqual((third[name] != second[name], third[f"{name}#2"]), (True, second[f"{name}#2"]))
            load.end().assert_clean(self)
        answer = server.order(command="relaunch", name="main#3")
        self.assertRegex(answer["error"], r'there is no "main#3"; .*the names are: [^#]*$')

    def test_a_program_that_fails_replaces_none(self):
        server = self.server
        before = server.pids("site main", "bin/probe")
        server.copy_program("/bin/false", "probe")
        self.addCleanup(server.copy_program, "probe")
        load = Load(server.port, "/probe", seconds=3, connections=4)
        with self.assertRaises(AssertionError):
            server.relaunch("main/probe")
        # Its site and its service are another's with any change of either.
        changed = [self.sites[0] | {"index": ["index.html", "x.html"]}, *self.sites[1:]]
        self.assertIsNotNone(server.reload(changed, **SETTINGS))
        load.end().assert_clean(self)
        self.assertTrue(until(lambda: server.pids("site main", "bin/probe") == before))


@rootless_too
class FirstAlone(unittest.TestCase):
    """Of several new processes the first is tried alone."""

    def setUp(self):
        self.sites = [site("main", [service(workers=4)], workers=4)]
        self.server = self.enterContext(Workers(self.sites, **QUICK))
        self.before = self.server.pids("site main", "bin/probe")
        self.assertEqual(len(self.before[1]), 4)

    def test_a_program_that_fails_costs_one_process(self):
        server = self.server
        server.copy_program("/bin/false", "probe")
        with self.assertRaises(AssertionError):
            server.relaunch("main/probe")
        self.assertEqual(server.log().count("service main/probe: the new process ended with"), 1)
        self.assertNotIn("service main/probe#", server.log())
        self.assertEqual(server.pids("site main", "bin/probe"), self.before)
        server.copy_program("probe")
        server.relaunch("main/probe")
        self.assertTrue(until(lambda: len(server.processes("bin/probe")) == 4))
        self.assertFalse(set(self.before[1]) & set(server.pids("bin/probe")[0]))

    def test_one_that_hangs_keeps_the_others_from_being_started(self):
        server, answers = self.server, []
        changed = [site("main", [service(workers=4, command=["bin/probe", "--hang-init"])], workers=4)]
        asking = threading.Thread(target=lambda: answers.append(server.reload(changed, **QUICK)))
        asking.start()
        most = 0
        while asking.is_alive():
            most = max(most, server.count("bin/probe --hang-init"))
            self.assertLessEqual(server.count("site main"), 5)
        asking.join()
        self.assertEqual((most, answers[0] is None), (1, False))
        self.assertIn("nothing has changed", server.log())
        self.assertTrue(until(lambda: server.pids("site main", "bin/probe") == self.before))

    def test_a_reload_and_a_relaunch_replace_all(self):
        server = self.server
        loads = [Load(server.port, path, seconds=4, connections=4) for path in ("/", "/probe")]
        changed = [self.sites[0] | {"index": ["index.html", "x.html"]}]
        self.assertIsNone(server.reload(changed, **QUICK))
        server.relaunch("main")
        server.relaunch("main/probe")
        for load in loads:
            load.end().assert_clean(self)
        counts = lambda: (server.count("site main"), server.count("bin/probe"))
        self.assertTrue(until(lambda: counts() == (4, 4), 10), counts())
        old = {pid for pids in self.before for pid in pids}
        self.assertFalse(old & {pid for pids in server.pids("site main", "bin/probe") for pid in pids})


@rootless_too
class Elastic(unittest.TestCase):
    """As many processes as there is work for."""

    def setUp(self):
        self.sites = [site("main", [service(workers=GROWS)], idle_stop="1s"),
                      site("direct", [service("taker", "/probe", takes=True, command=["bin/taker"], workers=GROWS)], idle_stop="1s"),
                      site("still", workers=2),
                      site("counts", route=[{"suffix": ".primes", "hook": "primes"}], worker=["bin/hook"], workers=GROWS, idle_stop="1s")]
        server = Workers(self.sites, programs=("probe", "hook"), **SETTINGS)
        server.copy_program("probe", "taker")
        self.server = self.enterContext(server)

    def grows(self, host, title, most, path="/probe/block?ms=250", idle_path="/probe"):
        """Under the load of requests that block their process, there are more of them; and fewer afterwards."""
        counts = set()
        with Load(self.server.port, path, host, seconds=8, connections=8, close=True) as load:
            until(lambda: counts.add(self.server.count(title)) or load.process.poll() is not None, 12)
            load.finish()
        self.assertEqual((load.refused, max(counts)), (0, most), load.text)
        self.assertTrue(until(lambda: self.server.count(title) == 1, 10), self.server.processes(title))
        self.assertEqual(self.server.status(idle_path, host), 200)

    def test_there_are_more_under_load_and_fewer_afterwards(self):
        server = self.server
        self.assertEqual([server.count(title) for title in ("bin/probe", "bin/taker", "site still")], [1, 1, 2])
        self.grows("main.test", "bin/probe", 3)
        self.grows("direct.test", "bin/taker", 3)
        self.assertEqual([server.count("site main"), server.count("site still")], [1, 2])
        self.assertIn("service main/probe#3 is started: the processes beside it do not keep up", server.log())
        # Which of the three has stayed is nobody's choice.
        resting = next(name for name in ("main/probe#2", "main/probe#3") if name not in server.serving("main/probe"))
        answer = server.order(command="relaunch", name=resting)
        self.assertEqual((answer["ok"], "it has no process now" in answer["error"]), (False, True))

    def test_a_site_that_calculates_has_more_under_load_and_fewer_afterwards(self):
        self.grows("counts.test", "site counts", 3, "/1000000.primes", "/")
        self.assertIn("site counts#3 is started: the processes beside it do not keep up", self.server.log())

    def test_a_reload_changes_how_many_there_are(self):
        server = self.server
        with client.Connection(server.port) as kept, Load(server.port, "/probe", seconds=5, connections=4) as load:
            self.assertEqual(kept.get("/", "still.test").text, "<h1>still</h1>\n")
            before = server.pids("site still", "bin/taker")
            for workers in ({"min": 3, "max": 4}, 1, 2):
                changed = site("main", [service(workers=workers)], workers=workers, idle_stop="1s")
                self.assertIsNone(server.reload([changed, *self.sites[1:]], **SETTINGS))
                least = workers["min"] if isinstance(workers, dict) else workers
                self.assertTrue(until(lambda least=least: server.count("site main") == least, 10), (workers, server.processes()))
            load.end().assert_clean(self)
            self.assertEqual(server.pids("site still", "bin/taker"), before)
            self.assertEqual(kept.get("/", "still.test").text, "<h1>still</h1>\n")

    def test_on_demand_the_least_of_them_start_and_all_go(self):
        server = self.server
        workers = {"min": 2, "max": 3}
        resting = site("main", [service(workers=workers)], workers=workers, start="on-demand", idle_stop="1s")
        self.assertIsNone(server.reload([resting, *self.sites[1:]], **SETTINGS))
        counts = lambda: (server.count("site main"), server.count("bin/probe"))
        self.assertTrue(until(lambda: counts() == (0, 0), 15), counts())
        self.assertEqual(server.held("main"), {"main": 0})
        self.assertEqual(server.get("/probe").status, 200)
        self.assertTrue(until(lambda: counts() == (2, 2), 5), counts())
        self.assertTrue(until(lambda: counts() == (0, 0), 15), counts())
        server.relaunch("main")
        self.assertEqual(server.count("site main"), 2)


if __name__ == "__main__":
    unittest.main()
