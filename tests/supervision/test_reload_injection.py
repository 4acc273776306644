"""A reload that fails, or whose launcher is killed, at any of its system calls leaves the old or the new, never half of each.

Afterwards every client sees the configuration of before, or every one that of after; a reload without a fault then brings the
new one. Which calls are tried, and how, is in lib/injecting.py.
"""

import collections
import os
import unittest

import pytest

from client import until
from harness import ROOTLESS, rootless_too
from injecting import Injecting, ends, failures
from steady import Changing

pytestmark = [pytest.mark.alone, pytest.mark.slow]

#: How many calls are tried by default: with a failure, and with the launcher's end.
FAILURES, ENDS = 8, 2


class Faulty(Changing):
    """A server whose launcher can be made to fail while it reloads."""

    def changed(self, which):
        """Has the file say one of two configurations that differ in all that can differ."""
        self.roots = {"other": "another", "new0": "other"} if which else {"other": "other", "new1": "other"}
        self.listeners, self.certificates = [self.ports[which]], which
        self.config.write_text(self.with_uids(self.text(self.port)))

    def settled(self):
        """What clients see, once all of them see the same; the last that they saw, if that never is."""
        seen = []

        def same():
            seen[:] = self.state()
            return all(len(answers) == 1 for answers in seen)

        until(same, 10, pause=0.1)
        return list(seen)


@rootless_too
@unittest.skipUnless(os.geteuid() == 0, "the launcher can be traced by root alone")
class Injected(Injecting, unittest.TestCase):
    def setUp(self):
        self.server = self.enterContext(Faulty())
        self.states = []
        for which in (1, 0):
            self.assertIsNone(self.reload_to(which))
            self.states.insert(0, self.server.settled())
        self.assertNotEqual(*self.states)

    def reload_to(self, which):
        self.server.changed(which)
        return self.server.reload()

    def both_ways(self, count, faults):
        """The calls of a reload there and one back."""
        return self.tries(self.calls(lambda: self.reload_to(1), lambda: self.reload_to(0)), count, faults)

    def try_one(self, name, number, fault, which):
        """One fault on the way from the other configuration to this one."""
        server = self.server
        server.changed(which)
        why = self.inject(name, number, fault, server.reload)
        if server.launcher.poll() is not None:
            ended = lambda: not [process for process in server.seen if process.alive]
            self.assertTrue(until(ended, 10), "processes are left")
            server.start()
            self.assertEqual(server.settled(), self.states[which], "a start reads what there is")
            return "ended"
        seen = server.settled()
        self.assertIn(seen, self.states, f"half of it: {why}")
        if why is None:
            self.assertEqual(seen, self.states[which])
        rehearsed = server.command("upgrade", "--dry-run", "--run-dir", "run", timeout=60)
        self.assertEqual(rehearsed.returncode, 0, f"no upgrade is possible after {why}: {rehearsed.stderr}")
        again = server.reload()
        self.assertIsNone(again, f"the next reload is refused, after {why}")
        self.assertEqual(server.settled(), self.states[which])
        return "refused" if why else "done"

    def test_a_failure_leaves_the_old_or_the_new(self):
        which, found = 0, collections.Counter()
        for name, number, fault in self.both_ways(FAILURES, failures):
            with self.subTest(call=name, number=number, fault=fault):
                which ^= 1
                found[self.try_one(name, number, fault, which)] += 1
        print(f"failures: {dict(found)}")

    def test_a_site_whose_folder_could_not_be_looked_at_is_the_same_when_it_comes_back(self):
        server = self.server
        server.changed(1)
        why, count = self.inject_at("statx", str(server.folder / "other"), "error=ENOMEM", server.reload)
        self.assertGreater(count, 0, "the launcher does not look at the folder")
        # Without root, the launcher itself compares the site with the one of before, and says that it cannot.
        if why is not None:
            self.assertIn("cannot be looked at now", why)
            self.assertIsNone(server.reload())
        for which in (0, 1):
            self.assertIsNone(self.reload_to(which))
            self.assertEqual(server.settled(), self.states[which])

    @unittest.skipIf(ROOTLESS, "without root there is nobody to be given a folder")
    def test_a_folder_that_could_not_be_given_away_is_given_by_the_next_reload(self):
        server = self.server
        server.changed(1)
        server.config.write_text(server.config.read_text().replace('name = "probe"\n', 'name = "probe"\nfiles = true\n'))
        why, count = self.inject_at("fchown", str(server.folder / "state/files/new0/probe"), "error=ENOMEM", server.reload)
        self.assertEqual((count, why and "give away" in why), (1, True), why)
        self.assertIsNone(server.reload())
        self.assertEqual(server.settled(), self.states[1])

    def test_the_launchers_end_leaves_the_new(self):
        which = 0
        for name, number, fault in self.both_ways(ENDS, ends):
            with self.subTest(call=name, number=number):
                which ^= 1
                self.try_one(name, number, fault, which)


if __name__ == "__main__":
    unittest.main()
