"""Control groups: each process has one, its limits are in it, and none is left behind."""

import os
import shutil
import signal
import tempfile
import threading
import time
import unittest
from pathlib import Path

import pytest

from cgroups import groups, mounts
from client import until
from harness import ROOTLESS, Server, service, site
from slow_programs import with_missing_libraries

pytestmark = pytest.mark.alone


def delegate(test):
    """Version 2: the words that start a program in an empty group, as systemd does for `Delegate=yes`."""
    top = mounts().get("")
    if top is None or "pids" not in (top / "cgroup.subtree_control").read_text().split():
        return []
    group = top / f"delegated-{os.getpid()}-{time.monotonic_ns()}"
    group.mkdir()

    def remove():
        for folder in [*sorted(group.glob("**/"), reverse=True)]:
            folder.rmdir()

    test.addCleanup(until, lambda: removed(remove), 5)
    anew = 'find "$0" -mindepth 1 -depth -type d -exec rmdir {} + ; rmdir "$0"; mkdir "$0"'
    return ["sh", "-c", f'{anew}; echo $$ > "$0/cgroup.procs" && exec "$@"', str(group)]


def removed(remove):
    """Whether the groups could be removed: the last process leaves them a moment after its end."""
    try:
        remove()
    except OSError:
        return False
    return True


@unittest.skipIf(ROOTLESS, "control groups are root's")
class Groups(unittest.TestCase):
    def server(self):
        limits = {"memory_max": "64MiB", "memory_high": "48MiB", "processes_max": 9, "cpu_percent": 20}
        server = Server([site(services=[service(**limits)])], server={"isolation": "degraded"})
        server.prefix = delegate(self)
        return self.enterContext(server)

    def setUp(self):
        self.made = self.server()
        if "control groups v" not in self.made.stderr():
            self.skipTest("no control group can be made here")

    def setting(self, process, controller, version_1, version_2):
        found = groups(process)
        path = found[controller] / version_1 if "control groups v1" in self.made.stderr() else found[""] / version_2
        return path.read_text().split()

    def test_limits(self):
        probe = self.made.process("bin/probe")
        expected = {
            ("memory", "memory.limit_in_bytes", "memory.max"): [str(64 << 20)],
            ("memory", "memory.soft_limit_in_bytes", "memory.high"): [str(48 << 20)],
            ("pids", "pids.max", "pids.max"): ["9"],
        }
        for where, value in expected.items():
            self.assertEqual(self.setting(probe, *where), value, where)
        quota = self.setting(probe, "cpu", "cpu.cfs_quota_us", "cpu.max")
        self.assertEqual(quota[0], "20000")
        for process in self.made.processes():
            self.assertTrue(any("/bulkhead-" in str(path) for path in groups(process).values()), process)

    def test_weights(self):
        """The worker of a site has more of a processor than its services, and gates have more than other processes."""
        weights = {role: self.setting(self.made.process(name), "cpu", "cpu.shares", "cpu.weight")
                   for role, name in {"site": "site main", "gate": "gate 0", "service": "bin/probe"}.items()}
        one = int(weights["service"][0])
        self.assertEqual(weights, {"site": [str(4 * one)], "gate": [str(2 * one)], "service": [str(one)]})

    def test_another_pid_namespace(self):
        """A launcher that does not see the pid of this one leaves its groups alone."""
        if "control groups v1" not in self.made.stderr():
            self.skipTest("with version 2 a launcher has a group of its own to make others in")
        probe = groups(self.made.process("bin/probe")).values()
        empty = [path.parent / "empty" for path in probe if path.parent.name.startswith("bulkhead-")]
        self.assertTrue(empty)
        for path in empty:
            path.mkdir()
            self.addCleanup(path.rmdir)
        other = Server([site()], server={"isolation": "degraded"})
        other.prefix = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
        with other:
            self.assertEqual(other.status("/"), 200)
            self.assertEqual([path for path in empty if not path.exists()], [])
            unshared = other.launcher.pid
            launcher = int(Path(f"/proc/{unshared}/task/{unshared}/children").read_text())
            os.kill(launcher, signal.SIGTERM)
            self.assertEqual(other.wait(15), 0)

    def test_a_processor_is_shared(self):
        """A service that wants all of a processor gets a fifth of it."""
        probe = self.made.process("bin/probe")
        used = lambda: sum(int(n) for n in probe.folder.joinpath("stat").read_text().rpartition(")")[2].split()[11:13])
        stat = next(path for path in groups(probe).values() if (path / "cpu.stat").exists()) / "cpu.stat"
        throttled = lambda: int(dict(line.split() for line in stat.read_text().splitlines())["nr_throttled"])
        before, began = used(), time.monotonic()
        while time.monotonic() - began < 2:
            self.made.status("/probe/allocate?mib=40", timeout=10)
        share = (used() - before) / os.sysconf("SC_CLK_TCK") / (time.monotonic() - began)
        self.assertLess(share, 0.35)
        self.assertGreater(throttled(), 0, "it was never held back, so nothing is shown")

    def test_none_is_left(self):
        tops = {path.parent for process in self.made.processes() for path in groups(process).values()}
        tops = {path for path in tops if path.name.startswith("bulkhead-")}
        self.assertTrue(tops)
        old = set(groups(self.made.process("bin/probe")).values())
        self.made.relaunch("main/probe")
        gone = lambda: not any(path.exists() for path in old if "/bulkhead-" in str(path))
        self.assertTrue(until(gone, 5), "the group of a process that has gone")
        self.made.stop()
        self.assertTrue(until(lambda: not any(path.exists() for path in tops), 5))
        # A launcher that was killed leaves its groups to the next one.
        self.made.start()
        tops = {path.parent for process in self.made.processes() for path in groups(process).values()}
        tops = {path for path in tops if path.name.startswith("bulkhead-")}
        self.made.launcher.kill()
        self.made.launcher.wait(5)
        self.assertTrue(until(lambda: not self.made.left(), 5))
        self.made.start()
        self.assertTrue(until(lambda: not any(path.exists() for path in tops), 5))

    def test_copies_of_the_launcher_work_in_the_background(self):
        """They have a sixteenth of the weight of a service, and as much as that has when they take long."""
        one = int(self.setting(self.made.process("bin/probe"), "cpu", "cpu.shares", "cpu.weight")[0])
        group = groups(self.made.process("bin/probe"))
        group = (group.get("cpu") or group[""]).parent / "background"
        with tempfile.TemporaryDirectory() as folder:
            shutil.copyfile(with_missing_libraries(Path(folder)), self.made.folder / "bin/probe.new")
        (self.made.folder / "bin/probe.new").chmod(0o755)
        (self.made.folder / "bin/probe.new").rename(self.made.folder / "bin/probe")
        order = threading.Thread(target=self.made.command, args=("relaunch", "--run-dir", "run", "main/probe"))
        order.start()
        self.addCleanup(order.join)
        inside = lambda: [int(pid) for pid in (group / "cgroup.procs").read_text().split()]
        self.assertTrue(until(inside, 10))
        weight = lambda: int(next(path for path in (group / "cpu.shares", group / "cpu.weight") if path.exists()).read_text())
        self.assertEqual(weight(), one // 16)
        copies = [process for process in self.made.processes() if process.pid in inside()]
        self.assertTrue(copies, inside())
        for copy in copies:
            os.kill(copy.pid, signal.SIGSTOP)
        self.assertTrue(until(lambda: weight() == one, 10))
        for copy in copies:
            os.kill(copy.pid, signal.SIGCONT)
        self.assertTrue(until(lambda: not inside() and weight() == one // 16, 20))


@unittest.skipIf(ROOTLESS, "control groups are root's")
class Publishers(unittest.TestCase):
    def test_a_publisher_steps_back_when_it_serves(self):
        sites = [site(services=[service("pages", "/pages", command=["bin/pages"], templates=True)], templates={"folder": "templates"})]
        server = Server(sites, ("pages",), files={"templates/page.html": "page\n"}, server={"isolation": "degraded"})
        server.prefix = delegate(self)
        with server:
            if "control groups v" not in server.stderr():
                self.skipTest("no control group can be made here")
            weights = []
            for name in ("bin/pages", "publisher main"):
                found = groups(server.process(name))
                folder = found.get("cpu") or found[""]
                file = next(path for path in (folder / "cpu.shares", folder / "cpu.weight") if path.exists())
                weights.append(int(file.read_text()))
            self.assertEqual(weights[1], weights[0] // 16)


if __name__ == "__main__":
    unittest.main()
