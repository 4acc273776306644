"""One client asks for much over few connections and takes, or sends, nothing: others are answered by the same backends.

Real Node and php-fpm, and a service of ours; clients of several networks, in a network namespace.
"""

import contextlib
import shutil
import unittest

import pytest

from backend import php_fpm
from client import until
from conditioning_status import told
from held import ATTACKS, PATHS, Held, ask, under

pytestmark = [pytest.mark.alone, pytest.mark.attack]

#: KiB that the worker may grow by. Without a limit it grew by 180,000, and kept them.
GROWN_MAX, KEPT_MAX = 64 << 10, 24 << 10
#: LIMIT: seconds until a worker gives back what it held, and some more.
REST = 60


@unittest.skipUnless(php_fpm() and shutil.which("node"), "php-fpm or node is not installed")
class HeldRoutes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        stack = contextlib.ExitStack()
        cls.addClassCleanup(stack.close)
        cls.server = stack.enter_context(Held(stack))

    def test_others_are_answered(self):
        for name, path in PATHS.items():
            statuses, _ = ask(self.server, path, 1)
            self.assertEqual(statuses, {(200, True)}, name)
            for attack in ATTACKS:
                with self.subTest(name, attack=attack), under(self.server, attack, path):
                    statuses, _ = ask(self.server, path, 5)
                    self.assertEqual(statuses, {(200, True)})

    def test_a_process_of_php_is_free_as_soon_as_it_has_answered(self):
        """Also where more requests may be with php-fpm than it has processes: nobody waits for who takes nothing."""
        for attack in ("shut windows", "windows of a byte"):
            with self.subTest(attack), under(self.server, attack, "/free/x"):
                statuses, _ = ask(self.server, "/free/x", 5)
                self.assertEqual(statuses, {(200, True)})

    def test_memory_is_bounded_and_given_back(self):
        before = self.server.memory()
        for path in (PATHS["upstream"], "/index.html"):
            for attack in ("shut windows", "windows of a byte"):
                with self.subTest(path, attack=attack), under(self.server, attack, path):
                    self.assertLess(self.server.memory() - before, GROWN_MAX, "KiB more than before")
        kept = lambda: self.server.memory() - before
        self.assertTrue(until(lambda: kept() < KEPT_MAX, REST), f"{kept()} KiB more than before")

    def test_what_waits_and_what_is_refused_is_counted(self):
        shed = lambda: told(self.server)["site main"]["shed"]
        before = shed()
        with under(self.server, "shut windows", PATHS["upstream of 8"]):
            now = shed()
            self.assertGreater(now["waiting_now"], 0)
            self.assertGreater(now["delayed"], before["delayed"])
            self.assertGreater(now["over_share"], before["over_share"])
            self.assertEqual(now["unavailable"], before["unavailable"])
            heavy = told(self.server)["site main"]["top_ranges"]
            self.assertTrue(any(of["range"].startswith("20.1.1.") and of["waiting"] for of in heavy), heavy)
        self.assertTrue(until(lambda: shed()["waiting_now"] == 0, REST))


if __name__ == "__main__":
    unittest.main()
