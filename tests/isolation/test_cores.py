"""Core files: none by default; where they are asked for, they are root's alone once the process is gone."""

import errno
import json
import os
import unittest
from pathlib import Path

from client import until
from harness import ROOTLESS, Server, service, site
from uids import UNSHARED

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
            kept = server.folder / "state/cores"
            for number in range(1, 7):
                self.die(server, "/crash/now")
                said = f"left a core file in {kept}/main.crash-{number}"
                self.assertTrue(until(lambda: said in server.log(), 5), server.log())
            self.assertEqual(kept.stat().st_mode & 0o777, 0o700)
            self.assertEqual(sorted(path.name for path in kept.iterdir()), [f"main.crash-{n}" for n in range(3, 7)])
            for core in kept.iterdir():
                self.assertGreater(core.stat().st_size, 4096)
                self.assertEqual((core.stat().st_uid, core.stat().st_mode & 0o777), (0, 0o400))
                with open(core, "rb") as file:
                    self.assertEqual(file.read(4), b"\x7fELF")


    def size(self, folder):
        """Bytes that a folder takes of its disk."""
        return sum(path.lstat().st_blocks * 512 for path in folder.rglob("*"))

    def test_the_folder_is_as_large_as_a_core_file_may_be(self):
        with Server([site(services=[service(core_max="8MiB")])]) as server:
            before = self.size(server.folder / "state")
            for _ in range(2):
                filled = json.loads(server.get("/probe/fill?files=20000&mib=400").text)
                self.assertLess(filled["files"], 16)
                self.assertEqual(filled["error"], errno.ENOSPC)
                self.assertLessEqual(filled["bytes"], (8 << 20) + (64 << 10))
                self.assertEqual(self.size(server.folder / "state"), before)
                # Its successor has a folder of its own.
                old = server.process("bin/probe")
                server.relaunch("main/probe")
                self.assertTrue(until(lambda: not old.alive))

    @unittest.skipIf(PATTERN.startswith(("|", "/")) or "/" in PATTERN, f"core_pattern is {PATTERN}")
    def test_what_is_planted_there_does_no_harm(self):
        with Server([site(services=[service(core_max="8MiB")])]) as server:
            kept = server.folder / "state/cores"
            for kind in ("link", "folder", "pipe", "unreadable", "many"):
                with self.subTest(kind=kind):
                    old = server.process("bin/probe")
                    server.get(f"/probe/plant?kind={kind}")
                    if kind == "many":
                        server.get("/probe/fill?files=1&mib=400")
                    server.status("/probe/abort")
                    # A large one takes the kernel a while.
                    self.assertTrue(until(lambda: not old.alive, 20))
                    self.assertTrue(until(lambda: server.status("/probe") == 200, 20))
            # The next one is kept, so what came before it is decided.
            old = server.process("bin/probe")
            server.status("/probe/abort")
            after = lambda: server.log().partition(f"(pid {old.pid}) ended")[2]
            self.assertTrue(until(lambda: "left a core file" in after(), 20), server.log())
            # One that is not whole yet has another name, which it loses.
            self.assertTrue(until(lambda: all(path.name[-1].isdigit() for path in kept.iterdir()), 20))
            self.assertTrue(any(is_core(path) for path in kept.iterdir()))
            for path in kept.iterdir():
                self.assertTrue(path.is_file() and not path.is_symlink())
                self.assertEqual((path.stat().st_uid, path.stat().st_mode & 0o777), (0, 0o400))
                self.assertLessEqual(path.stat().st_size, 8 << 20)
                self.assertNotIn(b"root:x:0:0", path.read_bytes()[:4096])
            self.assertNotIn("its core file is lost", server.log())

    @unittest.skipIf(PATTERN.startswith(("|", "/")) or "/" in PATTERN, f"core_pattern is {PATTERN}")
    def test_a_full_disk_keeps_nothing_by_halves(self):
        server = Server([site(services=[service(core_max="8MiB")])])
        (server.folder / "state").mkdir()
        full = 'mount -t tmpfs -o size=64k,mode=0755 tmpfs "$STATE" && exec "$0" "$@"'
        server.prefix = ["env", f"STATE={server.folder}/state", *UNSHARED, full]
        with server:
            server.status("/probe/abort")
            self.assertTrue(until(lambda: "its core file is lost: No space left on device" in server.log()), server.log())
            seen = Path(f"/proc/{server.launcher.pid}/root{server.folder}/state/cores")
            self.assertTrue(until(lambda: not os.listdir(seen)))
            self.assertTrue(until(lambda: server.status("/probe") == 200))


def is_core(path):
    """Whether it is one, and still there."""
    try:
        return path.read_bytes()[:4] == b"\x7fELF"
    except FileNotFoundError:
        return False


if __name__ == "__main__":
    unittest.main()
