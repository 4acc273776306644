"""Services that fail again and again: throttled, then given up, and healed; programs that are refused."""

import os
import unittest

from client import until
from harness import Server, rootless_too, service, site, wait_for_time

RULE = {"broken_after": 5, "within": "10s"}


def exits(server, title):
    """How many ends of a process the error log tells of."""
    return sum(f"service {title} (pid " in line and "ended with" in line for line in server.log().splitlines())


@rootless_too
class CrashLoop(unittest.TestCase):
    def crash_until_broken(self, server):
        """Asks for crashes until the service is given up."""
        for _ in range(5):
            before = exits(server, "main/crash")
            self.assertNotEqual(server.status("/crash/now"), 200)
            self.assertTrue(until(lambda: exits(server, "main/crash") > before, 5), "it did not crash")
        self.assertTrue(until(lambda: "main/crash is broken" in server.log(), 5))
        self.assertEqual(exits(server, "main/crash"), 5)

    def check_healing(self, heal):
        crash = service("crash", "/crash")
        with Server([site("main", [crash, service("probe")])], ("crash", "probe"), restart=RULE) as server:
            self.crash_until_broken(server)
            self.assertEqual(server.processes("bin/crash"), [])
            for _ in range(3):
                self.assertEqual(server.status("/crash/now"), 500)
                self.assertEqual(server.status("/probe"), 200)
                self.assertEqual(server.status("/"), 200)
            heal(server)
            self.assertTrue(until(lambda: server.processes("bin/crash"), 3), "it is not started again")
            # It runs again, and does what it does: it crashes for the request, and not with 500 as a broken one.
            before = exits(server, "main/crash")
            server.status("/crash/now")
            self.assertTrue(until(lambda: exits(server, "main/crash") > before, 3))

    def test_relaunch_heals(self):
        self.check_healing(lambda server: server.relaunch("main/crash"))

    def test_a_changed_program_heals(self):
        self.check_healing(lambda server: server.copy_program("crash"))

    def test_a_changed_program_heals_while_another_is_not_up_yet(self):
        fails, hangs = service("probe", command=["bin/probe", "--fail-init"]), service("slow", "/slow", command=["bin/slow", "--hang-init"])
        server = Server([site("main", [fails, hangs])], restart=RULE, limits={"start_timeout": "60s"}, answers=False)
        server.copy_program("probe", under="slow")
        with server:
            self.assertTrue(until(lambda: "main/probe is broken" in server.log(), 10), server.log())
            server.copy_program("crash", under="probe")
            self.assertTrue(until(lambda: server.processes("bin/probe"), 5), server.log())
            self.assertNotIn("was not examined", server.log())

    def test_broken_while_it_takes_connections(self):
        sites = [site("main", [service("crash", "/crash", takes=True)])]
        with Server(sites, ("crash",), restart=RULE) as server:
            self.crash_until_broken(server)
            # One that comes before a gate has heard of it waits until then.
            self.assertEqual(server.status("/crash/now"), 500)
            self.assertEqual(server.status("/"), 200)
            # A new gate, and a new site, know it from their start.
            server.relaunch("gate")
            server.relaunch("main")
            self.assertEqual(server.status("/crash/now"), 500)

    def test_who_waits_when_it_breaks_is_told_at_once(self):
        for takes in (False, True):
            dies = service("probe", command=["bin/probe", "--fail-init"], takes=takes)
            limits = {"start_timeout": "60s"}
            with self.subTest(takes=takes), Server([site("main", [dies])], restart=RULE, limits=limits, answers=False) as server:
                # By way of a gate's queue, or of a site's: whichever, nobody comes to serve it.
                self.assertNotIn("is broken", server.log())
                self.assertEqual(server.status("/probe", timeout=30), 500)
                self.assertIn("main/probe is broken", server.log())

    def test_one_that_never_comes_up(self):
        dies = service("probe", command=["bin/probe", "--fail-init"])
        rule = {"broken_after": 8, "within": "10s"}
        with Server([site("main", [dies]), site("other")], restart=rule) as server:
            self.assertTrue(until(lambda: "main/probe is broken" in server.log(), 10))
            self.assertEqual(exits(server, "main/probe"), 8)
            times = [line.split()[0] for line in server.log().splitlines() if "service main/probe (pid " in line]
            seconds = [float(time[17:23]) for time in times]
            self.assertGreater((seconds[-1] - seconds[0]) % 60, 0.6, f"not throttled: {times}")
            self.assertEqual(server.status("/probe"), 500)
            self.assertEqual(server.status("/", "other.test"), 200)
            wait_for_time(1.5)
            self.assertEqual(exits(server, "main/probe"), 8, "a broken one is left alone")

    def test_one_that_hangs_as_it_starts(self):
        hangs = service("probe", command=["bin/probe", "--hang-init"])
        rule = {"broken_after": 2, "within": "30s"}
        sites, limits = [site("main", [hangs]), site("other")], {"start_timeout": "300ms"}
        with Server(sites, restart=rule, limits=limits, answers=False) as server:
            self.assertTrue(until(lambda: server.processes("bin/probe") and server.processes("gate"), 5))
            first = server.process("bin/probe")
            # Nobody waits longer than the deadline, and others not at all.
            answer = server.get("/probe")
            self.assertEqual((answer.status, "retry-after" in answer.headers), (503, True))
            self.assertEqual(server.status("/", "other.test"), 200)
            self.assertTrue(until(lambda: not first.alive, 10))
            late = f"service main/probe (pid {first.pid}) was starting for too long"
            self.assertTrue(until(lambda: late in server.log(), 10))
            self.assertTrue(until(lambda: "main/probe is broken" in server.log(), 10))
            self.assertEqual(server.status("/probe"), 500)

    def test_a_panic_of_a_tower_service_ends_the_process(self):
        hello = service("hello", "/hello", command=["bin/axum-hello"])
        with Server([site("main", [hello])], ("axum-hello",)) as server:
            self.assertIn("You are number 1", server.get("/hello/Ann").body.decode())
            old = server.process("bin/axum-hello")
            self.assertNotEqual(server.status("/hello/trouble/now"), 200)
            self.assertTrue(until(lambda: not old.alive, 5), "a panic is not the end")
            self.assertTrue(until(lambda: server.status("/hello/Ben") == 200, 5))
            self.assertIn("You are number 2", server.get("/hello/Ann").body.decode())
            self.assertIn('asked for trouble: "now"', server.log())

    def test_a_relaunch_that_fails_leaves_the_old_one(self):
        with Server() as server:
            old = server.process("bin/probe")
            server.copy_program("/bin/false", "probe")
            answer = server.order(command="relaunch", name="main/probe")
            self.assertFalse(answer["ok"])
            self.assertTrue(old.alive)
            self.assertEqual(server.get("/probe").status, 200)


class Refused(unittest.TestCase):
    """A program that cannot be one service's own is refused, and the other partitions go on."""

    def refused(self, spoil, message):
        """A program that is replaced by such a one while the server runs; at the start, the whole start is refused."""
        with Server([site("main", [service()]), site("other")], restart=RULE) as server:
            self.assertTrue(until(lambda: server.status("/probe") == 200, 5))
            new = server.write("bin/new", (server.folder / "bin/probe").read_bytes())
            spoil(new)
            new.rename(server.folder / "bin/probe")
            server.process("bin/probe").kill()
            self.assertTrue(until(lambda: message in server.log(), 5), server.log())
            self.assertTrue(until(lambda: server.status("/probe") == 500, 10))
            self.assertEqual(server.status("/", "other.test"), 200)
            self.assertEqual(server.status("/"), 200)
            server.copy_program("probe")
            self.assertTrue(until(lambda: server.status("/probe") == 200, 5))

    def test_the_target_of_a_hard_link_is_left_alone(self):
        server = Server(restart=RULE)
        other = server.folder / "elsewhere"
        os.link(server.folder / "bin/probe", other)
        before = other.stat()
        with server:
            self.assertTrue(until(lambda: server.status("/probe") == 200, 5))
            after = other.stat()
            self.assertEqual((before.st_uid, before.st_gid, before.st_mode), (after.st_uid, after.st_gid, after.st_mode))

    def test_what_is_another_services_is_not_copied(self):
        def spoil(path):
            path.chmod(0o410)
            os.chown(path, 0, 12345)
            os.link(path, path.with_name("again"))
        self.refused(spoil, "has several hard links and is another service's")

    def test_setuid(self):
        self.refused(lambda path: path.chmod(0o4755), "is setuid or setgid")

    def test_for_everybody_to_write(self):
        self.refused(lambda path: path.chmod(0o757), "can be written by everybody")

    def test_a_script(self):
        def spoil(path):
            path.write_text("#!/bin/sh\n")
            path.chmod(0o755)
        self.refused(spoil, "is not an ELF executable")


if __name__ == "__main__":
    unittest.main()
