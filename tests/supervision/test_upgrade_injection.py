"""An upgrade that fails, or whose launcher is killed, at any system call of the old launcher leaves the old, or all is gone.

What fails before the new program runs is refused, and each process is the one that it was; a launcher that is killed ends all others.
Afterwards an upgrade, or a start, works. Which calls are tried, and how, is in lib/injecting.py.
"""

import collections
import os
import unittest

import pytest

from client import until
from harness import Server, rootless_too, service, site
from injecting import Injecting, ends, failures

pytestmark = [pytest.mark.alone, pytest.mark.slow]

#: How many calls are tried by default: with a failure, and with the launcher's end.
FAILURES, ENDS = 4, 2
#: What the new launcher says when it was too late for a refusal.
GOES_ON = "some processes of"


@rootless_too
@unittest.skipUnless(os.geteuid() == 0, "the launcher can be traced by root alone")
class Injected(Injecting, unittest.TestCase):
    def setUp(self):
        self.server = self.enterContext(Server([site("main", [service("probe")])], server={"gates": 1}))

    def upgrade(self):
        """Has all programs replaced by those that lie where they did; why that is refused, if it is."""
        answer = self.server.command("upgrade", "--run-dir", "run", timeout=60)
        return answer.stderr or "?" if answer.returncode else None

    def before_the_exec(self, count, faults):
        """The calls of the old launcher."""
        found = self.tries(self.calls(self.upgrade, last="execveat"), count, faults)
        self.all_replaced(set())
        return found

    def all_replaced(self, before):
        """Waits until those of before have gone, and one of each kind is left."""
        names = lambda: sorted(process.title for process in self.server.processes())
        is_done = lambda: not before & set(self.server.processes()) and len(names()) == 5
        self.assertTrue(until(is_done, 15), names())
        self.assertEqual(self.server.status("/probe"), 200)

    def try_one(self, name, number, fault):
        server, before = self.server, set(self.server.processes())
        why = self.inject(name, number, fault, self.upgrade)
        # The process that ends may still be on its way.
        if fault.startswith("signal") and until(lambda: server.launcher.poll() is not None, 1):
            self.assertTrue(until(lambda: not server.left(), 10), server.left())
            server.start()
            self.assertEqual(server.status("/probe"), 200)
            return "ended"
        self.assertIsNone(server.launcher.poll(), f"{why}: {server.stderr()}")
        if why is None:
            self.all_replaced(before)
        elif GOES_ON not in why:
            self.assertLessEqual(before, set(server.processes()), why)
            self.assertEqual((server.status("/"), server.status("/probe")), (200, 200))
        after = set(server.processes())
        self.assertIsNone(self.upgrade(), f"the next upgrade is refused, after {why}")
        self.all_replaced(before | after)
        return "refused" if why else "done"

    def test_a_failure_is_refused_and_the_old_serves(self):
        found = collections.Counter()
        for name, number, fault in self.before_the_exec(FAILURES, failures):
            with self.subTest(call=name, number=number, fault=fault):
                found[self.try_one(name, number, fault)] += 1
        print(f"failures: {dict(found)}")

    def test_the_launchers_end_is_that_of_all(self):
        found = collections.Counter()
        for name, number, fault in self.before_the_exec(ENDS, ends):
            with self.subTest(call=name, number=number):
                found[self.try_one(name, number, fault)] += 1
        print(f"ends: {dict(found)}")


if __name__ == "__main__":
    unittest.main()
