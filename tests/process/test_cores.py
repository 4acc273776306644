"""Core files: none by default; where they are asked for, they are root's alone once the process is gone."""

import os
import unittest
from pathlib import Path

from client import until
from harness import ROOTLESS, Server, service, site

#: The kernel writes into the working directory only under such a pattern; others name a place or a program.
PATTERN = Path("/proc/sys/kernel/core_pattern").read_text().strip()


@unittest.skipIf(ROOTLESS, "uids of their own are root's to give")
class Cores(unittest.TestCase):
    def die(self, server, path):
        old = server.process("bin/crash")
        server.get(path)
        self.assertTrue(until(lambda: not old.alive, 5))
        return old

    def test_none_by_default(self):
        crash = service("crash", "/crash")
        with Server([site(services=[crash])], programs=("crash",)) as server:
            old = self.die(server, "/crash/now")
            self.assertTrue(until(lambda: f"(pid {old.pid}) ended with" in server.log(), 3))
            found = [path for path in server.folder.rglob("core*")]
            self.assertEqual(found, [])

    @unittest.skipIf(PATTERN.startswith(("|", "/")) or "/" in PATTERN, f"core_pattern is {PATTERN}")
    def test_roots_alone_when_wanted(self):
        crash = service("crash", "/crash", core_max="64MiB")
        with Server([site(services=[crash])], programs=("crash",)) as server:
            uid = server.process("bin/crash").uid
            writable = server.folder / "state/cores/main.crash"
            self.assertEqual((writable.stat().st_uid, writable.stat().st_mode & 0o777), (uid, 0o700))
            self.assertEqual(writable.parent.stat().st_mode & 0o777, 0o700, "others do not come so far")
            for number in range(1, 7):
                self.die(server, "/crash/now")
                said = f"left a core file in {server.folder}/state/cores/main.crash-{number}"
                self.assertTrue(until(lambda: said in server.log(), 5), server.log())
            kept = sorted(path.name for path in writable.parent.glob("main.crash-*"))
            self.assertEqual(kept, [f"main.crash-{number}" for number in range(3, 7)], "the latest four")
            for folder in writable.parent.glob("main.crash-*"):
                self.assertEqual((folder.stat().st_uid, folder.stat().st_mode & 0o777), (0, 0o700))
                (core,) = folder.iterdir()
                self.assertTrue(core.name.startswith("core"), core)
                self.assertGreater(core.stat().st_size, 4096)
                self.assertEqual((core.stat().st_uid, core.stat().st_mode & 0o777), (0, 0o400))
                with open(core, "rb") as file:
                    self.assertEqual(file.read(4), b"\x7fELF")
            self.assertTrue(until(lambda: writable.exists() and not os.listdir(writable), 5), "a new one is made")


if __name__ == "__main__":
    unittest.main()
