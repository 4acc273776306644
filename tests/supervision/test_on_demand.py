"""Sites and services that start with the first connection, and go when nobody has come for a while."""

import os
import select
import threading
import time
import unittest
from pathlib import Path

import client
from client import Load, until
from harness import Server, rootless_too, service, site
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
        loads = [Load(server.port, path, host, seconds=2, connections=8)
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


class OneProgram(unittest.TestCase):
    def test_services_that_share_a_program_start_together(self):
        """The file is given to the group of the one that is to execute it, and to no other's before it has."""
        services = [service(f"probe{number}", f"/probe{number}", command=["bin/probe"]) for number in range(8)]
        resting = [site(f"site{number}", [service("probe")]) | DEMAND for number in range(8)]
        with Server([site("main", services), *resting]) as server:
            self.assertEqual(len(server.processes("bin/probe")), len(services))
            loads = [Load(server.port, "/probe", about["host"][0], seconds=1, connections=1) for about in resting]
            for load in loads:
                load.finish().assert_clean(self, at_least=1)
            self.assertNotIn("Permission denied", server.log())


@rootless_too
class Logs(unittest.TestCase):
    """Those of sites that rest are not open, and no line is lost for it."""

    def setUp(self):
        self.launch()

    def launch(self, **more):
        sites = [site(f"s{number}") | DEMAND for number in range(20)]
        sites += [site("other", [service("taker", takes=True, command=["bin/probe"])]) | DEMAND, site("busy")]
        self.server = self.enterContext(Reloading(sites, server={"gates": 2}, **more))
        self.logs = self.server.folder / "log"
        return self.server

    def names(self):
        return sorted(path.name.removesuffix(".access.log") for path in self.logs.glob("*.access.log"))

    def open_ones(self):
        links = [os.readlink(link) for link in Path(f"/proc/{self.server.launcher.pid}/fd").iterdir() if link.is_symlink()]
        return sorted(Path(link).name.removesuffix(".access.log") for link in links if link.endswith(".access.log"))

    def assert_line(self, name, text):
        path = self.logs / f"{name}.access.log"
        self.assertTrue(until(lambda: path.exists() and text in path.read_text(), 10), f"{text} in {path}")

    def test_each_is_opened_when_there_is_something_to_write(self):
        server = self.server
        self.assertEqual((self.names(), self.open_ones()), (["busy", "no-site"],) * 2)
        self.assertEqual(server.status("/?first", "s1.test"), 200)
        self.assert_line("s1", "/?first")
        self.assertEqual((self.names(), self.open_ones()), (["busy", "no-site", "s1"],) * 2)
        old = server.process("logger")
        old.kill()
        self.assertEqual(server.status("/?second", "s2.test"), 200)
        self.assertEqual(server.status("/?second", "s1.test"), 200)
        for name in ("s1", "s2"):
            self.assert_line(name, "/?second")
        server.relaunch("logger")
        self.assertEqual(server.status("/?third", "s3.test"), 200)
        self.assert_line("s3", "/?third")
        (self.logs / "s1.access.log").rename(self.logs / "moved")
        self.assertEqual(server.command("reopen", "--run-dir", "run").returncode, 0)
        self.assertEqual(self.names(), ["busy", "no-site", "s1", "s2", "s3"])
        self.assertEqual(server.status("/?fourth", "s1.test"), 200)
        self.assert_line("s1", "/?fourth")
        self.assertEqual(server.stop(), 0)
        lines = lambda name: (self.logs / name).read_text().count("GET /?")
        self.assertEqual([lines(name) for name in ("moved", "s1.access.log", "s2.access.log", "s3.access.log")], [2, 1, 1, 1])

    def test_a_gate_has_a_line_for_a_site_that_never_had_a_process(self):
        server = self.launch(restart={"broken_after": 1})
        server.copy_program(server.write("nothing", "no program"), "probe")
        self.assertIn(server.status("/probe?broken", "other.test", timeout=20), (500, 503))
        self.assertNotIn("site other", [process.title for process in server.processes()])
        self.assert_line("other", "/probe?broken")
        self.assertIn("other", self.open_ones())

    def test_one_that_cannot_be_opened_keeps_no_site_from_serving(self):
        server = self.server
        (self.logs / "s1.access.log").mkdir()
        self.assertEqual(server.status("/?elsewhere", "s1.test"), 200)
        self.assert_line("no-site", "/?elsewhere")
        self.assertIn("the access log of site s1 cannot be opened", server.log())
        (self.logs / "s1.access.log").rmdir()
        self.assertEqual(server.command("reopen", "--run-dir", "run").returncode, 0)
        self.assertEqual(server.status("/?found", "s1.test"), 200)
        self.assert_line("s1", "/?found")

    def test_sites_come_and_go(self):
        server = self.server
        self.assertEqual(server.status("/?before", "s1.test"), 200)
        changed = [site(f"s{number}") | DEMAND | {"index": ["index.html", "x"]} for number in range(5)] + [site("s19")]
        self.assertIsNone(server.reload(changed, server={"gates": 2}))
        for name in ("s1", "s2", "s19"):
            self.assertEqual(server.status("/?after", f"{name}.test"), 200)
            self.assert_line(name, "/?after")
        self.assertEqual((self.logs / "s1.access.log").read_text().count("GET /?"), 2)
        self.assertLessEqual(set(self.names()), {"busy", "no-site", "s1", "s2", "s19"})


@rootless_too
class ManySites(unittest.TestCase):
    """Many that nobody needs any more, from the same moment on."""

    COUNT = 30
    # Long enough for all of them to start before the first goes.
    IDLE_STOP = "3s"

    def setUp(self):
        self.names = [f"s{number}" for number in range(self.COUNT)]
        sites = [site(name, start="on-demand", idle_stop=self.IDLE_STOP) for name in self.names]
        self.server = self.enterContext(Reloading(sites, server={"gates": 1}))
        self.request(self.names)

    def sites(self):
        return self.server.processes("site")

    def request(self, names):
        """A request to each, at the same time."""
        clients = [threading.Thread(target=self.server.status, args=("/", f"{name}.test")) for name in names]
        for one in clients:
            one.start()
        for one in clients:
            one.join()

    def ask(self, processes):
        self.request([process.title.removeprefix("site ") for process in processes])


class Many(ManySites):
    PAUSE = 0.02

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


class UsedAgain(ManySites):
    """A gate says of a site once in ten seconds that it is used: these were idle for longer when they wait."""

    IDLE_STOP = "12s"

    def test_those_that_are_used_again_lose_their_turns(self):
        self.assertTrue(until(lambda: len(self.sites()) < self.COUNT // 2, 30))
        waiting = self.sites()
        self.ask(waiting)
        # One goes at a time, and may have done so meanwhile or be about to.
        used = [process for process in waiting if process.alive]
        self.assertGreater(len(used), 2)
        name = next(name for name in self.names if f"site {name}" not in [process.title for process in waiting])
        self.assertEqual(self.server.status("/", f"{name}.test"), 200)
        later = self.server.process(f"site {name}")

        def is_over():
            self.ask(used)
            return not later.alive

        self.assertTrue(until(is_over, 40, 0.2), "one that is idle after them has no turn")
        self.assertGreaterEqual(sum(process.alive for process in used), len(used) - 1)
        # Nobody asks for them any more.
        self.assertTrue(until(lambda: not self.sites(), 20))


class UnderTls(unittest.TestCase):
    def test_the_name_of_the_handshake_starts_the_site(self):
        with Tls(more='start = "on-demand"\nidle_stop = "1s"\n') as server:
            sites = lambda: [process.title for process in server.processes("site")]
            self.assertEqual(sites(), ["site a", "site plain"])
            for _ in range(2):
                self.assertIn(b"200 OK", server.get_tls("b.test"))
                self.assertIn("site b", sites())
                self.assertTrue(until(lambda: "site b" not in sites(), 10))
