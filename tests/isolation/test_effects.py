"""What one service can do to the others: take all it can get, fork, crash, flood the log, leave something behind."""

import contextlib
import os
import threading
import time
import unittest

import pytest

from client import until
from jail_probe import by_id, probe
from harness import Server, children, rootless_too, service, site, wait_for_time

pytestmark = pytest.mark.alone

#: "A sibling's p99 at most doubles" (docs/security/attempts.md, F), and what a scheduler's tick adds on a machine with
#: few cores.
SLOWER, TICK = 2.0, 0.010
#: Programs that are no services of ours do not end when they are asked to.
DRAIN = {"drain_timeout": "300ms"}
#: How long others are asked with the attack and without, in turn, how often, and how long after one request the next.
SECONDS, ROUNDS, PACE = 1.5, 3, 0.004


class Paced:
    """One client that asks at a steady pace, on connections that it keeps, and notes how long answers take."""

    def __init__(self, server, host, targets):
        self.times, self.wrong = [], []
        end = time.monotonic() + SECONDS
        with server.connect() as connection:
            for number in range(int(SECONDS / PACE)):
                began = time.monotonic()
                if began >= end:
                    break
                answer = connection.get(targets[number % len(targets)], host)
                self.times.append(time.monotonic() - began)
                if answer.status != 200:
                    self.wrong.append(answer)
                time.sleep(max(0, PACE - self.times[-1]))


def p99(rounds):
    """Of all answers of some rounds."""
    times = sorted(seconds for one in rounds for seconds in one.times)
    return times[int(len(times) * 0.99)]


class Greedy(unittest.TestCase):
    """A service that takes all it can get of memory, descriptors, processes, disk and processors."""

    def setUp(self):
        greedy = service("probe", processes_max=24, memory_max="96MiB", cpu_percent=30)
        crash = service("crash", "/crash", processes_max=24)
        sites = [site("main", [greedy, crash]), site("other", [service("steady", "/probe")])]
        server = Server(sites, ("probe", "crash"), restart={"backoff_max": "100ms"})
        server.copy_program("probe", "steady")
        self.server = self.enterContext(server)

    def attack(self, ended, found):
        """Every attempt there is from the jail of the greedy one, memory in its process, and crashes beside it."""
        while not ended.is_set():
            found.append(by_id(probe(self.server, "main/probe")))
            found.append(self.server.status("/probe/allocate?mib=512"))
            self.server.status("/crash/now")

    def paced_under_attack(self):
        """Asks the others during the attack, which must have been one."""
        ended, found = threading.Event(), []
        attack = threading.Thread(target=self.attack, args=(ended, found))
        attack.start()
        try:
            paced = Paced(self.server, "other.test", ["/", "/probe"])
        finally:
            ended.set()
            attack.join(30)
        self.assertIn(507, found, "it asks for more memory than it may have")
        for id in ("fork-bomb", "fill-threads", "fill-descriptors", "touch-memory"):
            self.assertEqual(found[0][id]["result"], "refused", found[0][id])
        return paced

    def test_others_do_not_notice(self):
        others = [process for process in self.server.processes()
                  if process.title in ("site other", "bin/steady", "site main") or process.title.startswith("gate")]
        quiet, attacked = [], []
        for _ in range(ROUNDS):
            # In turn, so that what else the machine has to do comes to both.
            quiet.append(Paced(self.server, "other.test", ["/", "/probe"]))
            attacked.append(self.paced_under_attack())
        quiet.append(Paced(self.server, "other.test", ["/", "/probe"]))
        self.assertEqual([one.wrong for one in quiet + attacked], [[]] * (2 * ROUNDS + 1))
        self.assertGreater(min(len(one.times) for one in attacked), 100)
        usual = p99(quiet)
        self.assertLessEqual(p99(attacked), SLOWER * usual + TICK, f"p99 in seconds; without the attack {usual}")
        self.assertTrue(all(process.alive for process in others), self.server.log())

    def test_a_full_disk_is_its_own(self):
        """/tmp has a size, and is nobody else's: full in one service, it is empty in the next one's."""
        found = by_id(probe(self.server, "main/probe"))
        self.assertEqual((found["fill-disk"]["result"], found["write-anywhere"]["result"]), ("succeeded", "succeeded"))
        mounts = [
            next(line for line in process.folder.joinpath("mountinfo").read_text().splitlines() if " /tmp " in line)
            for process in (self.server.process("bin/probe"), self.server.process("bin/steady"))
        ]
        self.assertEqual(len({line.split()[2] for line in mounts}), 2, mounts)
        for line in mounts:
            self.assertIn("size=65536k", line)


class Survivors(unittest.TestCase):
    """A service whose child cannot be ended by a signal other than SIGKILL: it stops itself for ever."""

    COMMAND = ["bin/stays", "-c", "(while :; do kill -STOP 0; done) & wait"]

    def serve(self, **settings):
        stays = service("stays", "/stays", command=self.COMMAND)
        settings = {"server": settings, "limits": DRAIN}
        server = Server([site("main", [stays])], (), answers=False, **settings)
        server.copy_program("/bin/sh", "stays")
        return self.enterContext(server)

    def child(self, server):
        """The service's process and its child, once that has stopped itself."""
        def stopped():
            for parent in server.processes("bin/stays"):
                for child in children(parent.pid):
                    if child.status()["State"].startswith("T"):
                        return parent, child
            return None
        found = until(stopped, 5)
        self.assertTrue(found, f"{server.processes()} {server.log()}")
        return found

    def test_none_after_the_service_has_ended(self):
        server = self.serve()
        parent, child = self.child(server)
        parent.kill()
        self.assertTrue(until(lambda: not child.alive, 2))
        self.assertNotEqual(self.child(server)[0], parent, "another one has taken its place")

    def test_none_after_the_end(self):
        server = self.serve()
        parent, child = self.child(server)
        self.assertEqual(server.stop(), 0)
        self.assertFalse(parent.alive or child.alive)

    def test_none_after_the_launcher_was_killed(self):
        server = self.serve()
        parent, child = self.child(server)
        server.launcher.kill()
        server.wait(5)
        self.assertTrue(until(lambda: not parent.alive and not child.alive, 2))

    def test_none_after_the_reaper_was_killed_before_the_launcher(self):
        """Without the layer by which the kernel ends a process with its parent; a program can shake that off by itself."""
        server = self.serve(isolation="degraded", danger_without=["parent death"])
        parent, child = self.child(server)
        self.addCleanup(lambda: parent.alive and parent.kill())
        for _ in range(2):
            # The list of children may lack one while another one comes or goes.
            reaper = until(server.reaper, 5)
            reaper.kill()
            self.assertTrue(until(lambda reaper=reaper: (new := server.reaper()) and new != reaper, 10), server.log())
        # It is there before it has been given all of them.
        given = lambda: [what for what in server.reaper().descriptors().values() if "pidfd" in what]
        self.assertTrue(until(given, 5), server.log())
        self.assertIn("the reaper, which ends services and filters with the launcher, has ended", server.log())
        server.launcher.kill()
        server.wait(5)
        self.assertTrue(until(lambda: not parent.alive and not child.alive, 5))

    def test_without_a_pid_namespace_the_launcher_ends_them(self):
        server = self.serve(isolation="degraded", danger_without=["pid namespace"])
        parent, child = self.child(server)
        try:
            parent.kill()
            self.assertTrue(until(lambda: not parent.alive and not child.alive, 5))
            self.assertTrue(until(lambda: "left 1 process, which is ended" in server.log(), 5), server.log())
        finally:
            server.stop()
            if child.alive:
                child.kill()
            for name in filter(str.isdigit, os.listdir("/proc")):
                self.end_if_ours(name, child)

    @staticmethod
    def end_if_ours(name, like):
        """Ends what else was left by the same service, started again: it has the words of `like`."""
        try:
            words = open(f"/proc/{name}/cmdline", "rb").read().split(b"\0")[:-1]
            ours = [word.decode() for word in words] == like.words and os.stat(f"/proc/{name}").st_uid == like.uid
        except (OSError, UnicodeDecodeError):
            return
        if ours:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(name), 9)


@rootless_too
class Flood(unittest.TestCase):
    REQUESTS = 60

    def test_the_log_of_one_does_not_stop_the_others(self):
        flood = service("flood", "/flood", command=["bin/flood", "-c", "while :; do echo flood of words >&2; done"])
        complains = service("ls", "/ls", command=["bin/ls", "--no-such-option"])
        sites = [site("main", [flood]), site("other", [complains])]
        server = Server(sites, (), answers=False, limits=DRAIN)
        server.copy_program("/bin/sh", "flood")
        server.copy_program("/bin/ls")
        with server:
            self.assertTrue(until(lambda: server.log().count("flood of words") > 10, 5), server.log())
            began = server.folder.joinpath("log/error.log").stat().st_size
            for number in range(self.REQUESTS):
                self.assertEqual(server.status(f"/?beside={number}", "other.test"), 200)
                wait_for_time(0.02)
            counted = lambda: server.log("other.access").count("?beside=")
            self.assertTrue(until(lambda: counted() >= self.REQUESTS, 3), counted())
            self.assertEqual(counted(), self.REQUESTS)
            self.assertTrue(until(lambda: "no-such-option" in server.log(), 5))
            grown = server.folder.joinpath("log/error.log").stat().st_size - began
            print(f"[{grown >> 10} KiB of flood] ", end="")


if __name__ == "__main__":
    unittest.main()
