"""What each process has and is, as the kernel tells it; and that identities last and are not shared."""

import json
import os
import unittest

from harness import ROOTLESS, Server, rootless_too, service, site


def identities(server):
    return {process.title: process.uid for process in server.processes()}


class View(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        sites = [site("main", [service(), service("direct", "/direct", takes=True)]), site("other")]
        cls.server = Server(sites)
        cls.server.copy_program("probe", "direct")
        cls.enterClassContext(cls.server)

    def check_identity(self, process):
        status = process.status()
        uids, gids = status["Uid"].split(), status["Gid"].split()
        self.assertEqual(len(set(uids + gids)), 1, status)
        self.assertIn(int(uids[0]), self.server.uids)
        self.assertEqual(status["Groups"].split(), gids[:1])
        for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            self.assertEqual(int(status[name], 16), 0, name)
        self.assertEqual(status["NoNewPrivs"], "1")
        self.assertEqual(int(status["Umask"], 8), 0o077)

    def test_every_process(self):
        processes = self.server.processes()
        self.assertEqual(len(processes), 8, processes)
        for process in processes:
            with self.subTest(process.title):
                self.check_identity(process)
                limits = process.folder.joinpath("limits").read_text().splitlines()
                core = next(line for line in limits if line.startswith("Max core file size"))
                self.assertEqual(core.split()[4:6], ["0", "0"])

    def test_roots(self):
        for process in self.server.processes():
            root = process.folder / "root"
            with self.subTest(process.title):
                if process.title.startswith("bin/"):
                    self.assertEqual(os.readlink(process.folder / "cwd"), f"/inside{self.server.folder}")
                    self.assertEqual(sorted(os.listdir(root)), ["dev", "tmp"])
                else:
                    self.assertEqual(os.listdir(root), [])
                    self.assertEqual(os.stat(root).st_mode & 0o7777, 0o555)
                    self.assertEqual(os.stat(root).st_uid, 0)

    def test_descriptors(self):
        """Null, standard error, control, log, and channels: one to each that it works with; nothing else."""
        # The kernel's names of what a runtime makes for itself.
        runtime = ("anon_inode:[eventpoll]", "anon_inode:[eventfd]", "anon_inode:[signalfd]", "anon_inode:[timerfd]")
        for process in self.server.processes():
            with self.subTest(process.title):
                found = process.descriptors()
                self.assertEqual((found[0], found[1]), ("/dev/null", "/dev/null"))
                self.assertTrue(found[2].startswith("pipe:"))
                self.assertTrue(found[3].startswith("socket:"))
                rest = [what for number, what in found.items() if number > 3 and what not in runtime]
                files = [what for what in rest if not what.startswith(("socket:", "pipe:"))]
                name = process.title.split()[-1]
                folder = str(self.server.folder)
                if process.title == "logger":
                    logs = [f"{folder}/log/{log}" for log in os.listdir(f"{folder}/log")]
                    self.assertEqual(set(files), set(logs))
                elif process.title.startswith("site"):
                    # A view of its directory, which is the top of a mount of its own.
                    # And what tells of changes below it.
                    self.assertEqual(set(files) - {"anon_inode:inotify"}, {"/"})
                    root = next(number for number, what in found.items() if what == "/")
                    self.assertTrue(os.path.samefile(process.folder / "fd" / str(root), f"{folder}/{name}"))
                else:
                    self.assertEqual(files, [])
                if process.title.startswith("bin/"):
                    # log, its control again as a copy is not allowed, two gates or one site, tokio's pair.
                    self.assertLessEqual(len(rest), 8, found)

    def test_a_service_about_itself(self):
        view = json.loads(self.server.get("/probe").body)
        process = self.server.process("bin/probe")
        self.assertEqual(view["pid"], 1, "it is the first process of its PID namespace")
        self.assertIsNone(view["fds"], "it has no /proc")
        self.assertEqual((view["uid"], view["gid"], view["groups"]), (process.uid, process.uid, [process.uid]))
        self.assertEqual(view["env"], {})
        self.assertEqual(view["umask"], "0077")

    def test_program_files(self):
        for name in ("probe", "direct"):
            stat = (self.server.folder / "bin" / name).stat()
            gid = self.server.process(f"bin/{name}").uid
            self.assertEqual((stat.st_uid, stat.st_gid, stat.st_mode & 0o7777), (0, gid, 0o410))

    def test_what_is_the_launchers(self):
        folder = self.server.folder
        self.assertEqual((folder / "run/admin.sock").stat().st_mode & 0o777, 0o600)
        for log in (folder / "log").iterdir():
            self.assertEqual((log.stat().st_uid, log.stat().st_mode & 0o777), (0, 0o640), log)
        self.assertEqual(self.server.launcher.pid, int((folder / "run/bulkheadd.pid").read_text()))


class Lasting(unittest.TestCase):
    def test_uids_over_starts(self):
        sites = [site("main", [service()]), site("other"), site("third")]
        with Server(sites) as server:
            first = identities(server)
            # The gates share theirs, as they are one role.
            self.assertEqual(len(set(first.values())), len(first) - 1, first)
            server.stop()
            server.start()
            self.assertEqual(identities(server), first)
            server.stop()
            # One site goes, and another comes, in front of the rest.
            text = server.config.read_text()
            server.write("new/index.html", "new")
            text = text.replace('name = "other"', 'name = "new"').replace('["other.test"]', '["new.test"]')
            server.config.write_text(text.replace('root = "other"', 'root = "new"'))
            server.start()
            second = identities(server)
            same = {title: uid for title, uid in first.items() if title != "site other"}
            self.assertEqual({title: uid for title, uid in second.items() if title != "site new"}, same)
            self.assertNotIn(second["site new"], first.values(), "a uid of a site that is gone is not given on")


@rootless_too
class Rootless(unittest.TestCase):
    def test_what_a_rootless_run_still_has(self):
        with Server() as server:
            for process in server.processes():
                status = process.status()
                self.assertEqual((status["NoNewPrivs"], int(status["CapEff"], 16)), ("1", 0), process)
            if ROOTLESS:
                self.assertIn("without the layers", server.stderr())
                self.assertIn("identity", server.stderr())


if __name__ == "__main__":
    unittest.main()
