"""Whatever a tenant puts in the place of programs and files, no step of the launcher's loop takes long."""

import concurrent.futures
import contextlib
import os
import re
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

import pytest

from client import until
from harness import ROOTLESS, Process, Server, service, site
from slow_programs import STEP_MS, examining, step_ms, with_missing_libraries

#: A user of a file of users.
USER = "a:$2y$04$CCCCCCCCCCCCCCCCCCCCCu6Ry1Yy8D0LpHlAr5zQ3LVvY3YF8XPqS\n"
#: They measure time.
pytestmark = pytest.mark.alone
#: What is said of a program with too many missing libraries.
SAID = r"libn0|more than 256 libraries|does not list its libraries in time"


def built(folder, text, *words):
    """A program in C."""
    (folder / "made.c").write_text(text)
    subprocess.run(["cc", "made.c", "-o", "made", *words], check=True, cwd=folder)
    return folder / "made"


@unittest.skipIf(ROOTLESS, "how far a child has come is told by its namespace of mounts")
class Starts(unittest.TestCase):
    @staticmethod
    def stopped_on_its_way(server, process):
        """The pid of a child that is stopped before it executes the program of a process, which is ended until one is found."""
        launcher = Process(server.launcher.pid)
        children = launcher.folder / f"task/{launcher.pid}/children"
        known = children.read_text().split()
        process.kill()
        end = time.monotonic() + 30
        while time.monotonic() < end:
            for pid in map(int, set(children.read_text().split()).difference(known)):
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
                    # What it is doing is done by then.
                    until(lambda: Process(pid).status()["State"][0] in "TZX", 10)
                    child = Process(pid)
                    if child.words != launcher.words:
                        child.kill()
                    elif os.readlink(child.folder / "ns/mnt") == os.readlink(launcher.folder / "ns/mnt"):
                        # The launcher waits until it has descriptors of its own, which it has by then.
                        child.signal(signal.SIGCONT)
                    else:
                        return pid
        raise AssertionError("none was found on its way")

    def test_a_child_on_its_way_to_its_program_is_not_waited_for(self):
        with Server([site("main", [service()])], restart={"broken_after": 1000}) as server:
            other = server.process("admin")
            child = self.stopped_on_its_way(server, server.process("bin/probe"))
            other.kill()
            self.assertTrue(until(lambda: not Path(f"/proc/{other.pid}").exists(), 5), "the launcher waits")
            self.assertTrue(until(lambda: server.processes("admin"), 5), "the launcher starts no other")
            os.kill(child, signal.SIGCONT)
            self.assertTrue(until(lambda: server.status("/probe") == 200, 10), server.log())

    def test_nor_where_isolation_is_degraded(self):
        """It may have to begin once more, without a layer of its jail."""
        with Server([site("main", [service()])], restart={"broken_after": 1000}, server={"isolation": "degraded"}) as server:
            child = self.stopped_on_its_way(server, server.process("bin/probe"))
            self.assertEqual(server.command("status", "--run-dir", "run", timeout=5).returncode, 0)
            os.kill(child, signal.SIGCONT)
            self.assertTrue(until(lambda: server.status("/probe") == 200, 10), server.log())

    def test_nor_is_a_filter_and_no_gate_hears_of_its_chain(self):
        with Server([site()], ("pass",), restart={"broken_after": 1000}, conditioning={"filters": [["bin/pass"]]}) as server:
            child = self.stopped_on_its_way(server, server.process("bin/pass"))
            self.assertEqual(server.command("status", "--run-dir", "run", timeout=5).returncode, 0)
            self.assertFalse(self.is_served(server))
            os.kill(child, signal.SIGCONT)
            self.assertTrue(until(lambda: self.is_served(server), 10), server.log())

    def test_filters_of_one_program_are_given_that_in_turn(self):
        filters = {"conditioning": {"filters": [["bin/pass"], ["bin/pass"], ["bin/pass"]]}}
        with Server([site()], ("pass",), restart={"broken_after": 1000}, **filters) as server:
            for again in (lambda: before[0].kill(), lambda: server.relaunch("filter")):
                before = server.processes("bin/pass")
                again()
                self.assertTrue(until(lambda: not any(process.alive for process in before), 10), server.log())
                self.assertTrue(until(lambda: self.is_served(server), 10), server.log())
                self.assertEqual(len(server.processes("bin/pass")), 3)
            self.assertNotIn("ermission denied", server.log())

    @staticmethod
    def is_served(server):
        with contextlib.suppress(OSError):
            return server.status("/", timeout=1) == 200

    def test_who_needs_the_same_program_waits_and_nobody_else(self):
        """A program is given to one uid at a time: whoever is to have it next waits, and the launcher does not."""
        services = [service(), service("twin", "/twin", command=["bin/probe"])]
        with Server([site("main", services)], restart={"broken_after": 1000}) as server:
            child = self.stopped_on_its_way(server, server.processes("bin/probe")[0])
            relaunch = lambda name: server.command("relaunch", "--run-dir", "run", name)
            with concurrent.futures.ThreadPoolExecutor() as pool:
                orders = [pool.submit(relaunch, f"main/{name}") for name in ("probe", "twin")]
                self.assertTrue(until(lambda: "relaunched" in server.log(), 10), server.log())
                self.assertEqual(server.command("status", "--run-dir", "run", timeout=10).returncode, 0)
                self.assertEqual(server.log().count("relaunched"), 1, server.log())
                os.kill(child, signal.SIGCONT)
                for order in orders:
                    self.assertEqual(order.result().returncode, 0, order.result().stderr)
            self.assertEqual(server.status("/probe"), 200)

    def test_a_program_of_many_services_is_given_to_each_in_turn(self):
        """Whatever else is examined and starts meanwhile: nobody takes the program away from a child on its way to it."""
        names = [f"probe{number}" for number in range(6)]
        services = [service(name, f"/{name}", command=["bin/probe"]) for name in names]
        with Server([site("main", services)], restart={"broken_after": 1000}) as server:
            relaunch = lambda name: server.command("relaunch", "--run-dir", "run", name)
            for _ in range(6):
                # One of which nothing is known.
                server.copy_program("probe")
                with concurrent.futures.ThreadPoolExecutor(len(names) + 1) as pool:
                    orders = [pool.submit(relaunch, f"main/{name}") for name in names]
                    orders.append(pool.submit(relaunch, "logger"))
                    for order in orders:
                        self.assertEqual(order.result().returncode, 0, order.result().stderr)
            self.assertTrue(until(lambda: len(server.processes("bin/probe")) == len(names), 10), server.log())

    def test_a_logger_on_its_way_is_told_when_it_is_there(self):
        """Logs that are opened anew meanwhile are those that it gets."""
        sites = [site("main", [service()], access_log="access.log")]
        with Server(sites, restart={"broken_after": 1000}, log={"flush": "10ms"}) as server:
            child = self.stopped_on_its_way(server, server.process("logger"))
            (server.folder / "log/access.log").rename(server.folder / "log/old")
            answer = server.command("reopen", "--config", server.config)
            self.assertEqual(answer.returncode, 0, answer.stderr)
            os.kill(child, signal.SIGCONT)
            self.assertEqual(server.status("/probe?new"), 200)
            self.assertTrue(until(lambda: "?new" in (server.folder / "log/access.log").read_text(), 10))
            self.assertNotIn("?new", (server.folder / "log/old").read_text())


class Programs(unittest.TestCase):
    """A program that takes two seconds to examine, wherever it may come from."""

    @classmethod
    def setUpClass(cls):
        made = tempfile.TemporaryDirectory()
        cls.addClassCleanup(made.cleanup)
        cls.slow = with_missing_libraries(Path(made.name))
        cls.waiting = built(Path(made.name), "#include <unistd.h>\nint main(void) { char text[4096]; while (read(3, text, sizeof text) > 0); }")

    def assert_quick(self, server):
        longest = step_ms(server)
        self.assertLess(longest, STEP_MS, server.log())

    def assert_said(self, server):
        self.assertTrue(until(lambda: re.search(SAID, server.log()), 20), server.log())

    def test_a_restart(self):
        with Server([site("main", [service()])]) as server:
            self.assertTrue(until(lambda: server.status("/probe") == 200))
            server.copy_program(str(self.slow), under="probe")
            server.process("bin/probe").kill()
            self.assert_said(server)
            self.assert_quick(server)
            server.copy_program("probe")
            self.assertTrue(until(lambda: server.status("/probe") == 200, 15), server.log())

    def test_a_relaunch(self):
        with Server([site("main", [service()])]) as server:
            self.assertTrue(until(lambda: server.status("/probe") == 200))
            running = server.process("bin/probe")
            server.copy_program(str(self.slow), under="probe")
            answer = server.command("relaunch", "--run-dir", "run", "main/probe")
            self.assertNotEqual(answer.returncode, 0)
            self.assertRegex(answer.stderr, SAID)
            self.assertTrue(running.alive)
            self.assert_quick(server)
            server.copy_program("probe")
            server.relaunch("main/probe")
            self.assertTrue(until(lambda: not running.alive))
            self.assert_quick(server)

    def test_a_reload(self):
        sites = [site("main", [service()])]
        server = Server(sites)
        with server:
            server.copy_program(str(self.slow), under="slow")
            text = server.config.read_text()
            with_slow = text + '\n  [[site.service]]\n  name = "slow"\n  path = "/slow"\n  command = ["bin/slow"]\n'
            server.config.write_text(with_slow)
            answer = server.command("reload", "--run-dir", "run")
            self.assertNotEqual(answer.returncode, 0)
            self.assertRegex(answer.stderr, SAID)
            self.assertEqual(server.status("/probe"), 200)
            self.assert_quick(server)
            server.copy_program("probe", under="slow")
            self.assertEqual(server.command("reload", "--run-dir", "run").returncode, 0)
            self.assertTrue(server.process("bin/slow").alive)
            self.assert_quick(server)

    def test_a_start_on_demand(self):
        with Server([site(), site("lazy", [service()], start="on-demand", idle_stop="1s")], limits={"start_timeout": "3s"}) as server:
            server.copy_program(str(self.slow), under="probe")
            self.assertNotEqual(server.status("/probe", "lazy.test", timeout=20), 200)
            self.assert_said(server)
            self.assert_quick(server)
            server.copy_program("probe")
            self.assertTrue(until(lambda: server.status("/probe", "lazy.test") == 200, 15), server.log())

    def test_filters(self):
        filters = [["bin/one"], ["bin/other"]]
        server = Server([site()], programs=(), conditioning={"filters": filters})
        for name in ("one", "other"):
            server.copy_program(str(self.waiting), under=name)
        with server:
            running = server.processes("bin/o")
            server.copy_program(str(self.slow), under="other")
            answer = server.command("relaunch", "--run-dir", "run", "filter")
            self.assertNotEqual(answer.returncode, 0)
            self.assertRegex(answer.stderr, SAID)
            self.assertTrue(until(lambda: server.processes("bin/o") == running), server.log())
            server.copy_program(str(self.slow), under="one")
            running[0].kill()
            self.assertTrue(until(lambda: re.search(f"filter 0: .*({SAID})", server.log()), 20), server.log())
            self.assert_quick(server)
            for name in ("one", "other"):
                server.copy_program(str(self.waiting), under=name)
            self.assertTrue(until(lambda: len(server.processes("bin/o")) == 2, 15), server.log())
            server.relaunch("filter")
            self.assert_quick(server)

    def test_an_upgrade_leaves_none_behind(self):
        """Who examines ends with the launcher, also if another takes the place of that."""
        with Server([site("main", [service()])]) as server:
            server.copy_program(str(self.slow), under="probe")
            server.process("bin/probe").kill()
            helper = until(lambda: examining(server), 5)
            self.assertIsNotNone(helper, server.log())
            helper.signal(signal.SIGSTOP)
            server.copy_program("probe")
            answer = server.command("upgrade", "--run-dir", "run", timeout=40)
            self.assertEqual(answer.returncode, 0, answer.stderr)
            self.assertFalse(helper.folder.exists(), "not even its exit status")
            self.assertTrue(until(lambda: server.status("/probe") == 200, 15), server.log())


class Files(unittest.TestCase):
    """Files of tenants', whatever is in their place, at a reload."""

    COUNT = 24

    def setUp(self):
        names = ["main", *(f"s{number}" for number in range(1, self.COUNT))]
        about = [site(name, auth={"users": f"tenants/users{number}", "realm": "x"}) for number, name in enumerate(names)]
        self.server = Server(about, programs=(), tls={"reread": "1s"})
        self.server.answers = 401
        self.folder = self.server.folder / "tenants"
        self.folder.mkdir()
        os.chown(self.folder, 1001, 1001)
        for number in range(self.COUNT):
            self.put(number, USER)

    def put(self, number, text):
        path = self.folder / f"users{number}"
        path.unlink(missing_ok=True)
        path.write_text(text)
        os.chown(path, 1001, 1001)
        return path

    def reload(self):
        """A reload for which every file is looked at."""
        text = self.server.config.read_text()
        self.server.config.write_text(text.replace('"realm" = "x"', '"realm" = "y"', 1))
        return self.server.command("reload", "--run-dir", "run")

    def assert_quick(self):
        longest = step_ms(self.server)
        self.assertLess(longest, STEP_MS, self.server.log())

    def put_large(self):
        """As large as they may be, and all of them together."""
        line = "u{:06}:" + USER.partition(":")[2]
        text = "".join(line.format(number) for number in range((1 << 20) // len(line.format(0))))
        for number in range(self.COUNT):
            self.put(number, text)

    def test_a_reload_that_is_ordered_while_they_are_read_after_an_upgrade(self):
        (self.server.folder / "sites").mkdir()
        self.server.config.write_text('include = "sites/*.toml"\n' + self.server.config.read_text())
        with self.server:
            self.put_large()
            done = self.server.command("upgrade", "--run-dir", "run", timeout=40)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.server.launcher.send_signal(signal.SIGHUP)
            self.assertTrue(until(lambda: "reloaded in" in self.server.log(), 20), self.server.log())

    def test_large_ones_are_read_beside_the_loop(self):
        with self.server:
            self.put_large()
            done = self.reload()
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assert_quick()

    def test_pipes_and_what_has_no_end_are_refused(self):
        with self.server:
            path = self.put(0, "")
            os.truncate(path, 3 << 30)
            done = self.reload()
            self.assertNotEqual(done.returncode, 0)
            path.unlink()
            os.mkfifo(path)
            done = self.reload()
            self.assertNotEqual(done.returncode, 0)
            self.assertEqual(self.server.status("/", "s1.test"), 401)
            self.assert_quick()
            self.put(0, USER)
            done = self.reload()
            self.assertEqual(done.returncode, 0, done.stderr)


class Loaders(unittest.TestCase):
    def test_what_the_inspector_refuses_is_said_with_its_reason(self):
        loader = Path("/lib/ld-musl-x86_64.so.1")
        if loader.exists():
            self.skipTest("this machine has the loader in whose place the test puts something else")
        with Server([site("main", [service()])]) as server:
            with tempfile.TemporaryDirectory() as made:
                app = built(Path(made), "int main(void) { return 0; }", f"-Wl,--dynamic-linker={loader}")
                server.copy_program(str(app), under="probe")
            self.addCleanup(loader.unlink)
            loader.write_bytes(b"\x7fELF" + b"\xff" * 200)
            loader.chmod(0o755)
            server.process("bin/probe").kill()
            self.assertTrue(until(lambda: "service main/probe: " in server.log(), 10), server.log())
            refusal = next(line for line in server.log().splitlines() if "service main/probe: " in line)
            self.assertIn(f"program {loader}: ", refusal)
            self.assertNotIn("was not examined in time", server.log())


if __name__ == "__main__":
    unittest.main()
