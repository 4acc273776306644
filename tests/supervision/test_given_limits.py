"""A server whose limits are lower than what is configured needs: roles come up first, and it is said what to raise."""

import os
import subprocess
import unittest
from collections import Counter

import pytest

from cgroups import with_limit
from harness import ROOTLESS, Process, Server, rootless_too, site

pytestmark = pytest.mark.alone

CAP_SYS_RESOURCE = 24


@unittest.skipIf(ROOTLESS, "control groups are root's")
class Processes(unittest.TestCase):
    def test_roles_come_first_and_the_limit_is_said(self):
        names = ["main", *(f"s{number}" for number in range(40))]
        server = Server([site(name) for name in names])
        server.prefix = with_limit(self, "pids", ("pids.max", "pids.max"), 30)
        if not server.prefix:
            server._end(failed=False)
            self.skipTest("no control group with a limit of processes can be made here")
        with server:
            running = lambda: Counter(process.title.split(" ")[0] for process in server.processes())
            found = running()
            self.assertEqual((found["logger"], found["admin"], found["gate"]), (1, 1, 2))
            self.assertTrue(5 < found["site"] < len(names), found)
            log = server.log()
            self.assertIn("warning [bulkheadd] the configuration may need 62 processes and threads, and the control group", log)
            self.assertIn("may have 30: raise `TasksMax=`", log)
            self.assertNotIn("`isolation = ", log)
            command = [*server.prefix, str(server.own("bulkhead", server.folder)), "check", str(server.config)]
            checked = subprocess.run(command, capture_output=True, text=True, check=True)
            self.assertIn("warning: a server that is started from here with this configuration may need 62 processes", checked.stderr)


@rootless_too
class Descriptors(unittest.TestCase):
    def test_each_limit_above_1024_is_one_to_work_with(self):
        if not ROOTLESS and int(Process(os.getpid()).status()["CapEff"], 16) >> CAP_SYS_RESOURCE & 1:
            self.skipTest("root raises the limit here")
        for most in (1025, 1280, 1400):
            with self.subTest(most):
                server = Server([site()])
                server.prefix = ["prlimit", f"--nofile={most}:{most}"]
                with server:
                    self.assertEqual(server.status("/"), 200)


if __name__ == "__main__":
    unittest.main()
