"""What a launcher leaves that was killed: nothing, or else the next start ends it before it gives a uid away."""

import contextlib
import os
import shutil
import subprocess
import unittest

import pytest

from cgroups import groups
from client import until
from filter_program import PYTHON
from harness import ROOTLESS, Server, service, site
from uids import UNSHARED, Overlapping

pytestmark = pytest.mark.alone

#: Its first thread ends, so that it looks like a zombie, and another one goes on.
HEADLESS = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
ctypes.CDLL(None).syscall(60, 0)
"""
#: One process after the other, each of which ends when it has made the next one; for half a minute at most.
CHAIN = """
import os, time
end = time.monotonic() + 30
while time.monotonic() < end:
    if os.fork():
        os._exit(0)
"""


@unittest.skipIf(ROOTLESS, "there is one uid")
class Survivors(unittest.TestCase):
    def beside(self, uid, *command):
        """A process that nobody of the server has started, under a uid."""
        process = subprocess.Popen(command or ["sleep", "600"], user=uid, group=uid, extra_groups=[])
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        own = lambda: open(f"/proc/{process.pid}/stat").read() and os.stat(f"/proc/{process.pid}").st_uid in (uid, 0)
        self.assertTrue(until(own))
        self.assertTrue(until(lambda: b"python3 tests" not in open(f"/proc/{process.pid}/cmdline", "rb").read()))
        return process

    def kill(self, server):
        server.processes()
        server.launcher.kill()
        server.launcher.wait(10)

    def test_nothing_is_left_and_the_next_start_works_at_once(self):
        with Server() as server:
            for _ in range(3):
                self.kill(server)
                self.assertTrue(until(lambda: not server.left()), server.left())
                server.start()
                self.assertEqual(server.status("/probe"), 200)
                self.assertNotIn("was left running", server.stderr())

    def test_what_lives_under_a_uid_that_was_given_out_is_ended(self):
        with Server() as server:
            uid = server.process("bin/probe").uid
            self.kill(server)
            self.assertTrue(until(lambda: not server.left()))
            plain, headless = self.beside(uid), self.beside(uid, PYTHON, "-c", HEADLESS)
            self.assertTrue(until(lambda: "Z (zombie)" in open(f"/proc/{headless.pid}/status").read()))
            server.start()
            self.assertEqual(server.status("/probe"), 200)
            for process in (plain, headless):
                self.assertEqual(process.wait(5), -9)
                line = f"process {process.pid} (uid {uid}, service/main/probe) was left running and is ended"
                self.assertIn(line, server.stderr())
                self.assertIn(line, server.log())

    def test_so_is_one_that_makes_another_all_the_time(self):
        with Server() as server:
            uid = server.process("bin/probe").uid
            self.kill(server)
            self.assertTrue(until(lambda: not server.left()))
            self.beside(uid, PYTHON, "-c", CHAIN)
            server.start()
            self.assertEqual(server.status("/probe"), 200)
            self.assertIn(f"(uid {uid}, service/main/probe) was left running and is ended", server.stderr())
            living = [process for process in server.processes() if process.uid == uid]
            self.assertEqual(len(living), 1)

    def test_what_lives_under_another_uid_of_the_range_is_not(self):
        with Server() as server:
            self.kill(server)
            other = server.uids[-1]
            process = self.beside(other)
            with self.assertRaisesRegex(AssertionError, "the server ended with 1"):
                server.start()
            self.assertIn(f"uid {other} of `user_range`", server.stderr())
            self.assertIn(f"is in use by process {process.pid}", server.stderr())
            self.assertIsNone(process.poll())
            process.kill()
            process.wait()
            server.start()
            self.assertEqual(server.status(), 200)

    def test_the_processes_of_a_launcher_that_lives_are_not(self):
        """Its state was copied, and its locks cannot be seen: the table says that its uids are one's own."""
        with Server() as first:
            with contextlib.ExitStack() as stack:
                second = Overlapping(first.uids)
                stack.callback(second._end, failed=False)
                (second.folder / "state").mkdir()
                shutil.copy(first.folder / "state/uids", second.folder / "state/uids")
                second.prefix = [*UNSHARED, 'mount -t tmpfs tmpfs /run && exec "$0" "$@"']
                before = first.processes()
                with self.assertRaisesRegex(AssertionError, "the server ended with 1"):
                    second.start()
                self.assertRegex(second.stderr(), "uid [0-9]+ of `user_range` .* is in use by process")
            self.assertEqual(first.processes(), before)

    def in_group(self, server, uid):
        """A process in the control group of the service."""
        group = groups(server.process("bin/probe")).get("pids")
        if group is None or "/bulkhead-" not in str(group):
            self.skipTest("no control group can be made here")
        process = self.beside(uid)
        (group / "cgroup.procs").write_text(str(process.pid))
        return process

    def test_what_is_in_a_control_group_of_ours_is_ended_whoever_it_is(self):
        with Server() as server:
            process = self.in_group(server, 65534)
            self.kill(server)
            self.assertIsNone(process.poll())
            server.start()
            self.assertEqual(process.wait(5), -9)
            self.assertRegex(server.stderr(), rf"process {process.pid} \(uid 65534, service\.main\.probe\.[0-9]+\) was left")

    def test_without_pid_namespaces_a_successor_begins_when_its_predecessors_have_gone(self):
        settings = {"isolation": "degraded", "danger_without": ["pid namespace"]}
        with Server([site(services=[service()])], server=settings) as server:
            probe = server.process("bin/probe")
            process = self.in_group(server, probe.uid)
            probe.kill()
            self.assertEqual(process.wait(5), -9)
            self.assertTrue(until(lambda: server.status("/probe") == 200))
            self.assertIn(f"service main/probe (pid {probe.pid}) left 1 process, which is ended", server.stderr())


if __name__ == "__main__":
    unittest.main()
