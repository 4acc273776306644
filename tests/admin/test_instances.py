"""Commands find the server: `bulkhead ps`, and `status`, `stop`, `bans` without a configuration that could be read.

Each test has a machine's `/run` of its own, in a mount namespace, so that only its own servers are running there.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import unittest
from pathlib import Path

import harness
from client import until
from harness import NOBODY, ROOTLESS, Server, free_port, program, rootless_too, site

#: Where a user's servers are written down if there is no `$XDG_RUNTIME_DIR`.
USERS = f"/run/user/{NOBODY}/bulkhead/instances"
INSTANCES = USERS if ROOTLESS else "/run/bulkhead/instances"
#: Nobody's folder below /tmp is read as well, and servers of other tests may be in it: here it is empty.
MACHINE = f"""
set -e
mount -t tmpfs -o mode=755 none /run
mkdir -p -m 755 /run/user
install -d -m 700 -o {NOBODY} -g {NOBODY} /run/user/{NOBODY}
mount -t tmpfs -o mode=700,uid={NOBODY},gid={NOBODY} none /tmp/bulkhead-{NOBODY}
echo ready
exec sleep infinity
"""


class Machine:
    """A mount namespace with a `/run` and a folder of nobody's of its own; use it with `with`."""

    def __enter__(self):
        with contextlib.suppress(FileExistsError):
            os.mkdir(f"/tmp/bulkhead-{NOBODY}", 0o700)
            os.chown(f"/tmp/bulkhead-{NOBODY}", NOBODY, NOBODY)
        command = ["unshare", "--mount", "sh", "-c", MACHINE]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        if self.process.stdout.readline() != "ready\n":
            raise AssertionError("there is no such machine")
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def words(self, *words, cwd="/", rootless=ROOTLESS):
        """A command line that runs there; with the same pid, as each program in it executes the next."""
        user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"] if rootless else []
        unset = ["env", "--unset=XDG_RUNTIME_DIR"]
        return ["nsenter", f"--mount=/proc/{self.process.pid}/ns/mnt", f"--wd={cwd}", "--", *unset, *user, *map(str, words)]

    def path(self, path):
        """The place of a file of the machine, as seen from outside."""
        return Path(f"/proc/{self.process.pid}/root{path}")

    def run(self, *words, timeout=30, **more):
        return subprocess.run(self.words(*words, **more), capture_output=True, text=True, timeout=timeout, check=False)


class Here(Server):
    """A server on such a machine."""

    def __init__(self, machine, sites=None, **more):
        super().__init__(sites if sites is not None else [site()], more.pop("programs", ()), **more)
        self.machine, self.prefix = machine, machine.words()

    @staticmethod
    def _user():
        return {}

    def command(self, *words, cwd=None, **more):
        return self.machine.run(self.own("bulkhead", self.folder), *words, cwd=cwd or "/", **more)


@unittest.skipUnless(os.geteuid() == 0, "only root can have a /run of its own")
class Case(unittest.TestCase):
    def setUp(self):
        self.machine = self.enterContext(Machine())

    def server(self, *sites, **more):
        return self.enterContext(Here(self.machine, *sites, **more))

    def bulkhead(self, *words, fails=0, **more):
        """Runs a command there; returns what it prints."""
        done = self.machine.run(self.programs / "bulkhead", *words, **more)
        self.assertEqual(done.returncode, fails, done)
        return done.stderr if fails else done.stdout

    @property
    def programs(self):
        """Where nobody, too, may start the programs."""
        if not hasattr(self, "_programs"):
            folder = Path(tempfile.mkdtemp(prefix="bulkhead-programs-", dir="/tmp"))
            folder.chmod(0o755)
            self.addCleanup(shutil.rmtree, folder)
            for name in [*harness.ROLES, "libbulkhead-guard.so"]:
                shutil.copy(program(name), folder / name)
            self._programs = folder
        return self._programs

    def listed(self, **more):
        return json.loads(self.bulkhead("ps", "--json", **more))["servers"]

    def entries(self):
        folder = self.machine.path(INSTANCES)
        return sorted(path.name for path in folder.iterdir()) if folder.exists() else []

    def plant(self, name, content, mode=0o600, uid=None):
        """Writes a file as this user's servers do."""
        path = self.machine.path(INSTANCES) / name
        path.write_bytes(content)
        path.chmod(mode)
        os.chown(path, NOBODY if ROOTLESS and uid is None else uid or 0, 0)
        return path


@rootless_too
class Found(Case):
    def test_with_a_configuration_that_is_broken_or_gone(self):
        server = self.server()
        server.config.write_text("listen = broken")
        named = ("--config", server.config)
        for words in (("status",), ("status", *named), ("bans", *named), ("bans",)):
            with self.subTest(words):
                self.assertTrue(self.bulkhead(*words))
        self.assertIn("1 error", self.bulkhead("check", server.config, fails=2))
        # Also beside the broken file, which is then what is meant.
        self.assertIn("gate", self.bulkhead("status", cwd=server.folder))
        server.config.unlink()
        self.assertIn("gate", self.bulkhead("status", *named))
        self.assertIn("stopped in", self.bulkhead("stop", *named))
        self.assertEqual(server.wait(5), 0)
        self.assertEqual((self.listed(), self.entries()), ([], []))
        self.assertIn("no server of this user is running", self.bulkhead("stop", fails=1))

    def test_by_a_link_to_its_configuration(self):
        server = self.server()
        link = server.folder / "link.toml"
        link.symlink_to(server.config)
        self.assertIn("gate", self.bulkhead("status", "--config", link))
        link.unlink()
        self.assertIn("gate", self.bulkhead("status", "--config", "bulkhead.toml", cwd=server.folder))

    def test_one_of_two(self):
        first, second = self.server(), self.server()
        listed = self.listed()
        self.assertEqual([one["pid"] for one in listed], [first.launcher.pid, second.launcher.pid])
        for one, server in zip(listed, (first, second)):
            self.assertEqual((one["kind"], one["state"], one["config"]), ("run", "serving", str(server.config)))
            self.assertEqual(one["listen"], [f"http://127.0.0.1:{server.port}"])
            self.assertEqual(one["run_dir"], str(server.folder / "run"))
        said = self.bulkhead("relaunch", "main", fails=2)
        self.assertIn("there are 2 such servers; choose one:\n", said)
        # The command lines that are proposed are ones that work.
        lines = re.findall(r"^  bulkhead (.*?)    run (.*)$", said, re.MULTILINE)
        self.assertEqual(lines[1], (f"relaunch main --pid {second.launcher.pid}", str(second.config)))
        before = first.process("site main"), second.process("site main")
        self.assertIn("main: relaunched", self.bulkhead(*lines[1][0].split()))
        self.assertTrue(before[0].alive and until(lambda: not before[1].alive, 5))
        # Whoever stands beside a configuration means its server.
        self.assertIn("stopped in", self.bulkhead("stop", cwd=second.folder))
        self.assertEqual(second.wait(5), 0)
        said = self.bulkhead("stop", fails=1, cwd=second.folder)
        self.assertIn("no server runs with ./bulkhead.toml; these are running:", said)
        self.assertIsNone(first.launcher.poll())
        self.assertIn("stopped in", self.bulkhead("stop"))
        self.assertEqual(first.wait(5), 0)

    def test_one_that_was_killed(self):
        server = self.server()
        pid = server.launcher.pid
        server.processes()
        server.launcher.kill()
        server.launcher.wait()
        self.assertEqual(len(self.entries()), 1)
        self.assertIn(f"the server with pid {pid} (run {server.config}) has died", self.bulkhead("stop", "--pid", pid, fails=1))
        self.assertIn("no server of this user is running", self.bulkhead("stop", fails=1))
        self.assertRegex(self.bulkhead("ps"), rf"(?m)^ *{pid}  dead  ")
        self.assertEqual((self.listed(), self.entries()), ([], []))
        # The next server removes such a file as well.
        self.plant("1-1", b"bulkhead instance 1\npid 1\n")
        server.start()
        server.launcher.kill()
        server.launcher.wait()
        again = self.server()
        self.assertEqual([one["pid"] for one in self.listed()], [again.launcher.pid])

    def test_a_pid_that_another_process_has_by_now(self):
        server = self.server()
        (name,) = self.entries()
        text = (self.machine.path(INSTANCES) / name).read_text()
        with subprocess.Popen(["sleep", "60"]) as other:
            self.addCleanup(other.kill)
            left = text.replace(f"pid {server.launcher.pid}\n", f"pid {other.pid}\n").replace("/bulkhead.toml", "/other.toml")
            started = re.search(r"started (\d+)", text).group(1)
            self.plant(f"{other.pid}-{started}", left.encode())
            self.assertIn("has died", self.bulkhead("stop", "--pid", other.pid, fails=1))
            self.assertIn("stopped in", self.bulkhead("stop"))
            self.assertEqual(server.wait(5), 0)
            self.assertIsNone(other.poll(), "it is not what was written down")
            other.kill()

    def test_without_its_run_directory(self):
        """Nobody can be asked any more: the launcher is told by a signal."""
        server = self.server()
        shutil.rmtree(server.folder / "run")
        self.assertIn("no server is running: nobody answers", self.bulkhead("status", fails=1))
        self.assertIn("stopped in", self.bulkhead("stop"))
        self.assertEqual(server.wait(5), 0)

    def test_a_reload_changes_what_is_listed(self):
        server = self.server()
        port = free_port()
        more = f'\n[[listen]]\naddress = "127.0.0.1:{port}"\n'
        server.config.write_text(server.config.read_text() + more)
        self.bulkhead("reload")
        (one,) = self.listed()
        self.assertIn(f"http://127.0.0.1:{port}", one["listen"])

    def test_a_guard(self):
        port = free_port()
        words = ("guard", "--", "python3", "-m", "http.server", str(port), "--bind", "127.0.0.1")
        said = tempfile.TemporaryFile()
        guard = subprocess.Popen(self.machine.words(self.programs / "bulkhead", *words), stdout=said, stderr=said,
                                 start_new_session=True)
        self.addCleanup(said.close)
        self.addCleanup(guard.wait)
        self.addCleanup(guard.kill)
        serves = lambda: [one for one in self.listed() if one["state"] == "serving" and one["listen"]]
        self.assertTrue(until(serves, 20))
        (one,) = self.listed()
        self.assertEqual((one["pid"], one["kind"], one["command"]), (guard.pid, "guard", "python3"))
        self.assertEqual(one["listen"], [f"127.0.0.1:{port}"])
        self.assertIn("is a guard, which takes no commands", self.bulkhead("status", "--pid", guard.pid, fails=1))
        self.assertIn("no server of this user is running", self.bulkhead("status", fails=1))
        self.assertIn("stopped in", self.bulkhead("stop"))
        guard.wait(5)
        self.assertEqual(self.entries(), [])


class Hostile(Case):
    """What others have written, or could have, is not looked at; as root, where that would cost the most."""

    def test_files(self):
        server = self.server()
        (name,) = self.entries()
        text = (self.machine.path(INSTANCES) / name).read_bytes()
        evil = text.replace(b"/bulkhead.toml", b"/evil.toml").replace(str(server.folder / "run").encode(), b"/tmp/evil")
        outside = server.folder / "outside"
        outside.write_bytes(evil)
        self.plant("11-1", evil, uid=NOBODY)
        self.plant("12-1", evil, mode=0o666)
        (self.machine.path(INSTANCES) / "13-1").symlink_to(outside)
        self.plant("14-1", os.urandom(1000))
        self.plant("15-1", b"x" * (8 << 20))
        self.plant("16-1", text)
        os.mkfifo(self.machine.path(INSTANCES) / "17-1")
        self.plant("not-a-server", evil)
        done = self.machine.run(program("bulkhead"), "status")
        self.assertEqual(done.returncode, 0, done)
        for number in range(11, 18):
            self.assertRegex(done.stderr, rf"warning: .*/{number}-1")
        self.assertNotIn("not-a-server", done.stderr)
        self.assertEqual([one["pid"] for one in self.listed()], [server.launcher.pid])

    def test_folders(self):
        server = self.server()
        folder = self.machine.path("/run/bulkhead")
        for path, mode, uid in ((folder, 0o777, 0), (folder, 0o755, NOBODY), (folder / "instances", 0o777, 0)):
            before = path.stat().st_mode & 0o7777
            path.chmod(mode)
            os.chown(path, uid, 0)
            with self.subTest(path=path, mode=mode, uid=uid):
                self.assertIn("is not this user's alone", self.bulkhead("stop", fails=1))
                # A server starts all the same, and says how it is found.
                with Here(self.machine) as other:
                    self.assertIn(f"they do with --run-dir {other.folder}/run", other.log())
                    self.assertIn("gate", self.bulkhead("status", "--run-dir", other.folder / "run"))
            path.chmod(before)
            os.chown(path, 0, 0)
        shutil.move(folder, self.machine.path("/run/moved"))
        folder.symlink_to("moved")
        self.assertIn("cannot open /run/bulkhead", self.bulkhead("stop", fails=1))
        folder.unlink()
        shutil.move(self.machine.path("/run/moved"), folder)
        self.assertIn("stopped in", self.bulkhead("stop"))
        self.assertEqual(server.wait(5), 0)

    def test_servers_of_others(self):
        self.server()
        self.assertEqual(len(self.listed()), 1)
        self.assertEqual(self.listed(rootless=True), [])
        self.assertIn("no server of this user is running", self.bulkhead("stop", fails=1, rootless=True))
        self.assertEqual(self.machine.path(INSTANCES).stat().st_mode & 0o7777, 0o700)


class Serving(Case):
    """`bulkhead serve`, and what is said to serve."""

    def serve(self, *words):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory(prefix="bulkhead-test-", dir="/tmp")))
        self.folder.chmod(0o755)
        (self.folder / "public").mkdir()
        (self.folder / "public/index.html").write_text("x\n")
        said = open(self.folder / "said", "w")
        command = self.machine.words(program("bulkhead"), "serve", *words, cwd=self.folder)
        process = subprocess.Popen(command, stdout=said, stderr=said, stdin=subprocess.DEVNULL)
        said.close()
        self.addCleanup(process.wait, 20)
        self.addCleanup(process.terminate)
        return process

    def said(self):
        return (self.folder / "said").read_text()

    def test_by_its_folder(self):
        serve = self.serve("public", "--listen", free_port())
        self.assertTrue(until(lambda: "; Ctrl-C ends it" in self.said(), 15), self.said())
        (one,) = self.listed()
        self.assertEqual((one["kind"], one["state"], one["config"]), ("serve", "serving", None))
        self.assertEqual(one["folders"], [str(self.folder / "public")])
        for named in (("--folder", "public"), ("--pid", serve.pid), ("--pid", one["pid"]), ()):
            self.assertIn("gate", self.bulkhead("status", *named, cwd=self.folder), named)
        said = self.bulkhead("stop", "--folder", "other", cwd=self.folder, fails=1)
        self.assertIn(f"no server of this user serves other; these are running:\n  bulkhead stop --pid {one['pid']}", said)
        self.assertIn("stopped in", self.bulkhead("stop", "--folder", self.folder / "public"))
        self.assertEqual(serve.wait(5), 0)

    def test_nothing_is_served_at_a_port_of_somebody_elses(self):
        server = self.server()
        serve = self.serve("public", "--listen", server.port)
        self.assertEqual(serve.wait(15), 1)
        self.assertIn("in use", self.said().lower())
        self.assertNotIn("serves", self.said())

    def test_a_server_without_a_gate_does_not_say_that_it_serves(self):
        server = Here(self.machine, answers=False)
        programs = self.programs
        server.own = lambda name, folder: programs / name
        # It has the version of the launcher, and ends, as it is told nothing that a stapler understands.
        (programs / "gate").unlink(missing_ok=True)
        shutil.copy(programs / "stapler", programs / "gate")
        launcher = subprocess.Popen([*server.prefix, programs / "bulkhead", "run", str(server.config)],
                                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(shutil.rmtree, server.folder, ignore_errors=True)
        self.addCleanup(launcher.wait, 20)
        self.addCleanup(launcher.terminate)
        self.assertTrue(until(lambda: server.log().count("gate 1 (pid") > 2, 15), server.log())
        self.assertNotIn("serving on", server.log())
        (one,) = self.listed()
        self.assertEqual(one["state"], "starting")
        # It stops, although no gate is there that could be waited for.
        self.assertIn("stopped in", self.bulkhead("stop"))
        self.assertEqual(launcher.wait(5), 0)


if __name__ == "__main__":
    unittest.main()
