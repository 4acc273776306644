"""Uids are those of one server on a machine: ranges that overlap are refused, and who has no range of its own chooses one."""

import os
import subprocess
import unittest

import pytest

from client import until
from harness import USER_RANGE, Server, free_uids, site
from uids import UNSHARED, Overlapping

pytestmark = pytest.mark.alone

class Default(Server):
    """A server whose configuration says nothing of uids."""

    def with_uids(self, text):
        return text.replace(f'user_range = "{USER_RANGE}"\n', "")

    def given(self):
        return {process.uid for process in self.processes()}


class UidRange(unittest.TestCase):
    def refused(self, server):
        """What a server says that does not start."""
        done = server.command("run", server.config)
        self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
        return done.stderr

    def other(self, uids):
        server = Overlapping(uids)
        self.addCleanup(server._end, failed=False)
        return server

    def test_ranges_that_overlap(self):
        uids = free_uids()
        for name, signal in (("stopped", None), ("killed", 9)):
            with self.subTest(name), Overlapping(uids) as first:
                for same in (uids, uids[-5:], range(uids[-1], uids[-1] + 900)):
                    said = self.refused(self.other(same))
                    self.assertIn(f"`user_range` {same[0]}-{same[-1]} overlaps {uids[0]}-{uids[-1]} of the server of", said)
                    self.assertIn(f"{first.folder} (pid {first.launcher.pid})", said)
                    self.assertIn("give one of the two another `user_range`", said)
                with Overlapping(range(uids[-1] + 1, uids[-1] + 900)) as beside:
                    self.assertEqual(beside.status(), 200)
                self.assertEqual(first.status(), 200)
                if signal:
                    first.launcher.send_signal(signal)
                    first.launcher.wait(10)
                else:
                    self.assertEqual(first.stop(), 0)
                with Overlapping(uids) as second:
                    self.assertEqual(second.status(), 200)

    def test_whoever_names_none_gets_another(self):
        with Default([site()], ()) as first, Default([site()], ()) as second:
            self.assertFalse(first.given() & second.given())
            chosen = (second.folder / "state/user_range").read_text().strip()
            self.assertRegex(second.stderr(), rf"the default `user_range` is in use by .*; this server has {chosen} from now on")
            begin, end = map(int, chosen.split("-"))
            self.assertLessEqual(second.given(), set(range(begin, end + 1)))
            # Files of its uids may be left, so it keeps the range when it could have the default.
            before = second.given()
            for server in (second, first):
                self.assertEqual(server.stop(), 0)
            second.start()
            self.assertEqual(second.given(), before)
            self.assertNotIn("user_range", second.stderr())

    def test_a_process_of_somebody_else(self):
        uids = free_uids()
        sleeping = subprocess.Popen(["sleep", "600"], user=uids[7], group=uids[7], extra_groups=[])
        self.addCleanup(sleeping.wait)
        self.addCleanup(sleeping.kill)
        # It has its uid once it runs.
        self.assertTrue(until(lambda: os.readlink(f"/proc/{sleeping.pid}/exe").endswith("/sleep")))
        said = self.refused(self.other(uids))
        self.assertIn(f"uid {uids[7]} of `user_range` {uids[0]}-{uids[-1]} is in use by process {sleeping.pid}", said)
        sleeping.kill()
        # One that nobody has waited for has no uid any more.
        with Overlapping(uids) as server:
            self.assertEqual(server.status(), 200)

    def test_where_nothing_can_be_locked(self):
        server = Server([site()], ())
        server.prefix = [*UNSHARED, 'mount -t tmpfs -o ro tmpfs /run && exec "$0" "$@"']
        with server:
            self.assertEqual(server.status(), 200)
            self.assertRegex(server.stderr(), "`user_range` is not reserved: .*Read-only file system.*may have the same uids")

    def test_a_server_that_sees_another_run(self):
        uids = free_uids()
        with Overlapping(uids) as first:
            second = self.other(uids)
            second.prefix = [*UNSHARED, 'mount -t tmpfs tmpfs /run && exec "$0" "$@"']
            with self.assertRaisesRegex(AssertionError, "the server ended with 1"):
                second.start()
            self.assertRegex(second.stderr(), f"uid [0-9]+ of `user_range` {uids[0]}-{uids[-1]} is in use by process")
            self.assertEqual(first.status(), 200)


if __name__ == "__main__":
    unittest.main()
