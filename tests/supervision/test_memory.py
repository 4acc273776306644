"""Memory runs out: what the kernel kills takes nothing else with it, and before that processes go that nobody needs."""

import contextlib
import json
import os
import re
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

import pytest

from cgroups import with_memory
from client import until
from every_role import FILTERS, every_role
from harness import ROOTLESS, TOP, Process, Server, rootless_too, service, site

pytestmark = pytest.mark.alone

MIB = 1 << 20
CAP_SYS_RESOURCE = 24
PAGE = TOP / "docs" / "internals" / "roles.md"
#: So long the long form of the test with 600 sites goes on, in seconds.
LONG = int(os.environ.get("BULKHEAD_MEMORY_SECONDS", 0))


def steps():
    """Of docs/internals/roles.md, which a test compares with the code: how much above the launcher's the score of each role is."""
    part = PAGE.read_text().partition("<!-- oom steps: begin -->")[2].partition("<!-- oom steps: end -->")[0]
    rows = re.findall(r"^\| (\d+) \| (.+) \|$", part, re.MULTILINE)
    return {name: int(step) for step, names in rows for name in names.split(", ")}


def role_of(process):
    """The name of a process's role."""
    if not process.words[0].startswith("bulkhead: "):
        return "filter" if process.words[0] in FILTERS else "service"
    return process.title.split(" ")[0]


def score_of(process):
    return int((process.folder / "oom_score_adj").read_text())


def tried_as(uid, path, text):
    """What becomes of an attempt to write a file as a user without any right."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            path.write_text(text)
            os.write(writing, b"written")
        except OSError as error:
            os.write(writing, str(error.errno).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as said:
        text = said.read()
    os.waitpid(child, 0)
    return text


def counts(server):
    """How many processes the kernel has killed, by names; of all, under that of the launcher."""
    answer = server.command("status", "--json", "--run-dir", "run")
    processes = json.loads(answer.stdout)["processes"]
    return {process["name"] or process["role"]: process["oom_kills"] for process in processes}


@rootless_too
class Scores(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(every_role(cls))
        launcher = Process(cls.server.launcher.pid)
        cls.own, cls.steps = score_of(launcher), steps()
        if cls.own + max(cls.steps.values()) > 1000:
            raise unittest.SkipTest("the score of this process is so high that the steps are smaller")

    def test_each_process_has_that_of_its_role(self):
        for process in [*self.server.processes(), self.server.reaper()]:
            with self.subTest(process.title):
                self.assertEqual(score_of(process) - self.own, self.steps[role_of(process)])
        found = {role_of(process) for process in self.server.processes()}
        helpers = {"bulkheadd", "reaper", "closer", "a helper", "or a copy of the launcher"}
        self.assertEqual(found, set(self.steps) - helpers, "a role was not looked at")

    @unittest.skipIf(ROOTLESS, "processes have the uid and the root directory of whoever started them")
    def test_it_cannot_be_lowered(self):
        """Not from inside, where there is no file for it; nor from outside under the process's uid, unless its broker may look into the
        process: then it is the kernel that keeps the least score, if the launcher may set one."""
        sets_least = int(Process(self.server.launcher.pid).status()["CapEff"], 16) >> CAP_SYS_RESOURCE & 1
        for process in self.server.processes():
            with self.subTest(process.title):
                self.assertFalse((process.folder / "root/proc").exists())
                before = score_of(process)
                if process.title == "bin/net" and not sets_least:
                    continue
                self.assertIn(tried_as(process.uid, process.folder / "oom_score_adj", str(before - 1)), ("1", "13"))
                self.assertEqual(score_of(process), before)


def limited(case, sites, mib, **more):
    """A server in a control group with so much memory."""
    server = Server(sites, **more)
    server.prefix = with_memory(case, mib * MIB)
    if not server.prefix:
        server._end(failed=False)
        case.skipTest("no control group with a limit of memory can be made here")
    return case.enterContext(server)


@unittest.skipIf(ROOTLESS, "control groups are root's")
class Killed(unittest.TestCase):
    def test_a_service_that_takes_all_goes_alone(self):
        services = [service("probe"), service("other", "/other", command=["bin/probe"])]
        server = limited(self, [site("main", services), site("second")], 96)
        greedy = server.order(command="status")["processes"]
        pid = next(process["pid"] for process in greedy if process["name"] == "main/probe")
        others = [process for process in server.processes() if process.pid != pid]

        def is_killed():
            with contextlib.suppress(OSError):
                server.status("/probe/keep?mib=8")
            return "the kernel has killed it for want of memory" in server.log()

        self.assertTrue(until(is_killed, 20), server.log())
        self.assertEqual(([process for process in others if not process.alive], server.launcher.poll()), ([], None))
        self.assertIn(f"service main/probe (pid {pid}): the kernel has killed it", server.log())
        self.assertIn("the server's control group has reached its limit of 96 MiB", server.log())
        self.assertTrue(until(lambda: server.status("/probe") == 200, 10))
        self.assertEqual({name: count for name, count in counts(server).items() if count}, {"main/probe": 1, "bulkheadd": 1})


@unittest.skipIf(ROOTLESS, "control groups are root's")
class Scarce(unittest.TestCase):
    def ask(self, server, hosts, seconds):
        """Asks each host once in so many seconds, side by side; answers that were no successes."""
        bad = []
        with ThreadPoolExecutor(16) as pool:
            began = time.monotonic()
            for number, host in enumerate(hosts):
                time.sleep(max(0, began + number * seconds / len(hosts) - time.monotonic()))
                done = pool.submit(server.status, "/", host, 30)
                done.add_done_callback(lambda done: bad.append(done) if done.exception() or done.result() != 200 else None)
        return [done.exception() or done.result() for done in bad]

    def run_with(self, count, mib, rounds, seconds):
        """So many sites, asked in rounds of so many seconds."""
        names = [f"s{number}" for number in range(count)]
        server = limited(self, [site(name, start="on-demand") for name in names], mib, answers=True, server={"gates": 1})
        for _ in range(rounds):
            self.assertEqual(self.ask(server, [f"{name}.test" for name in names], seconds), [])
        self.assertEqual(sum(counts(server).values()), 0, server.log())
        self.assertIsNone(server.launcher.poll())
        return [process.title.removeprefix("site ") for process in server.processes("site ")]

    def test_idle_sites_make_room(self):
        running = self.run_with(100, 48, 1, 5)
        self.assertLess(len(running), 95, "there was room for all of them, so that nothing is shown")
        self.assertIn("s99", running)
        self.assertNotIn("s0", running)

    @unittest.skipUnless(LONG, "BULKHEAD_MEMORY_SECONDS is not set")
    def test_600_sites_that_are_asked_once_a_minute(self):
        self.run_with(600, 150, max(1, LONG // 60), 60)


if __name__ == "__main__":
    unittest.main()
