"""One process is a rogue, in the place of a role or as a service, and sends on each of its channels what it must not.

`examples/rogue` says which; here is what it may cost: itself. Every other process keeps its pid, its descriptors and
its memory, every other site answers every request, and `error.log` has what was refused.
"""

import os
import re
import shutil
import signal
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "process"))

import harness
from client import Connection, Load, get, request, until
from harness import Server, service, site, wait_for_time

#: How many descriptors and how much memory another process may have more at the end than at the beginning. Caches
#: and buffers fill once; what grows with each message is far beyond that.
DESCRIPTORS_MORE = 8
MEMORY_MORE_KIB = 24 << 10
#: How often each kind of request must be answered while the rogue is at work.
ANSWERS = 200
#: Connections that a rogue is sent while it reads nothing.
UNREAD = 150
#: The stages of a rogue, and by when each is over.
STAGES = {"deeds": 15, "silence": 10, "end": 40}
#: A rogue does not go when it is asked to.
LIMITS = {"start_timeout": "2s", "drain_timeout": "1s", "connections": 400}


class Rogue(Server):
    """A server whose role `role` is a rogue."""

    def __init__(self, sites, role=None, **more):
        super().__init__(sites, limits=LIMITS, **more)
        self.role = role
        programs = self.folder / "programs"
        programs.mkdir(exist_ok=True)
        for name in harness.ROLES:
            shutil.copy(harness.program("rogue" if name == role else name), programs / name)

    @staticmethod
    def own(name, folder):
        return folder / "programs" / name


def memory_kib(process):
    return int(process.status().get("VmRSS", "0 kB").split()[0])


class Channels(unittest.TestCase):
    """What is the same for every role."""

    def others(self, title):
        """Every process but the rogue, with what it has: the launcher among them."""
        processes = [process for process in self.server.processes() if not process.title.startswith(title)]
        processes.append(harness.Process(self.server.launcher.pid))
        return {process: (len(process.descriptors()), memory_kib(process)) for process in processes}

    def stage(self, name):
        self.assertTrue(until(lambda: f"rogue: stage {name}" in self.server.log(), STAGES[name]), f"no end of {name}")

    def misbehave(self, server, title, loads, refused, victims=()):
        """Lets the rogue called `title` do all that it does, while `loads` are answered.

        `refused` are patterns of lines that tell of it; `victims` are hosts and paths at which it is asked itself.
        """
        self.server = self.enterContext(server)
        rogue = server.process(title)
        before = self.others(title)
        running = [Load(server.port, target, host, seconds=9, connections=4) for host, target in loads]
        asked = [connection for host, target in victims for connection in ask(server.port, host, target)]
        self.stage("deeds")
        # It reads nothing for a while, whatever is sent to it.
        asked += [connection for host, target in victims for connection in ask(server.port, host, target, UNREAD)]
        self.stage("silence")
        # The rogue is ended for what it sends at last, and nobody else is.
        self.assertTrue(until(lambda: not rogue.alive, STAGES["end"]), "the rogue is not ended")
        for load in running:
            load.finish().assert_clean(self, ANSWERS)
        for connection in asked:
            connection.close()
        wait_for_time(1)
        after = self.others(title)
        self.assertEqual(set(before), set(after), "another process was ended")
        for process, (descriptors, memory) in before.items():
            with self.subTest(process=process):
                self.assertLessEqual(after[process][0], descriptors + DESCRIPTORS_MORE, process.descriptors())
                self.assertLessEqual(after[process][1], memory + MEMORY_MORE_KIB)
        log = server.log()
        for pattern in refused:
            with self.subTest(pattern=pattern):
                self.assertRegex(log, pattern)
        self.no_line_is_forged()
        for host, target in loads:
            self.assertEqual(server.status(target, host), 200)

    def no_line_is_forged(self):
        """No line of the error log pretends to be another's, and no access log of another has one of the rogue's."""
        for line in self.server.log().splitlines():
            self.assertNotRegex(line, r"^\S+ \w+ \[bulkheadd\] forged")
            self.assertNotIn("\x1b", line)
            if "forged-by-rogue" in line:
                self.assertRegex(line, r"\[(gate 1|site rogue|service rogue/\w+|admin)\] ")
        for path in (self.server.folder / "log").glob("*.access.log"):
            if not path.name.startswith("rogue.") and not self.may_write_all:
                self.assertNotIn("forged-by-rogue", path.read_text(errors="replace"), path.name)

    may_write_all = False


#: What the launcher and the logger say of every rogue that has a channel to each.
def ended(title):
    return [
        rf"\[bulkheadd\] {title} sent a message that it may not send",
        rf"\[bulkheadd\] {title} sent 100 such messages and was ended",
    ]


def logged(title):
    return [
        rf"\[logger\] .*malformed batches of {title}",
        rf"\[logger\] \d+ batches of {title} have numbers that were used before",
        rf"\[logger\] suppressed \d+ lines of {title}",
    ]


GOOD = [site("main", [service("probe")]), site("other", [])]
LOADS = [("main.test", "/"), ("main.test", "/probe"), ("other.test", "/")]


class Gate(Channels):
    # Gates answer for every site what cannot be passed on, so a rogue among them may write to every access log.
    may_write_all = True

    def test_gate(self):
        victims = [site(f"victim{number}", []) for number in range(12)]
        server = Rogue([*GOOD, *victims], "gate")
        self.misbehave(server, "gate 1", LOADS, [
            *ended("gate 1"), *logged("gate 1"),
            r"\[site victim\d+\] .*from a source of connections: malformed message",
            r"\[site victim\d+\] .*more connections than it has credits for",
            r"\[site victim\d+\] .*a bundle without a connection",
        ])
        for victim in victims:
            # Those that the good gate accepts are answered as before.
            answers = {server.status("/", f"{victim['name']}.test", timeout=1) for _ in range(12)}
            self.assertIn(200, answers, victim["name"])


class Site(Channels):
    def test_site(self):
        names = ["s0", "s1", "s2", "s3"]
        rogue = site("rogue", [service(name, f"/{name}") for name in names])
        server = Rogue([*GOOD, rogue], "site")
        for name in names:
            server.copy_program("probe", name)
        self.misbehave(server, "site rogue", LOADS, [
            *ended("site rogue"), *logged("site rogue"),
            r"\[logger\] .*refused \d+ records of site rogue",
            r"\[gate \d\] .*its worker sent",
            r"\[gate \d\] .*its worker sends nonsense; its channel is closed",
            r"\[service rogue/s\d\] .*malformed message",
            r"\[service rogue/s\d\] .*more connections than it has credits for",
        ], [("rogue.test", "/")])


class Service(Channels):
    def test_services(self):
        relayed, handed = service("relayed", "/relayed"), service("handed", "/handed", takes=True)
        server = Rogue([*GOOD, site("rogue", [relayed, handed])])
        for name in ("relayed", "handed"):
            server.copy_program("rogue", name)
        # The site's own files are answered all the while.
        self.misbehave(server, "bin/", [*LOADS[:1], *LOADS[2:], ("rogue.test", "/")], [
            *ended("service rogue/relayed"), *ended("service rogue/handed"),
            *logged("service rogue/relayed"), *logged("service rogue/handed"),
            r"\[logger\] .*refused \d+ records of service rogue/handed",
            r"\[gate \d\] .*its worker sends nonsense; its channel is closed",
            r"\[site rogue\] .*its worker sends nonsense; its channel is closed",
        ], [("rogue.test", "/relayed"), ("rogue.test", "/handed")])


class Logger(Channels):
    def test_logger(self):
        # What the logger itself says goes nowhere: only the launcher writes what is said of it.
        self.misbehave(Rogue(GOOD, "logger"), "logger", LOADS, ended("logger"))

    def stage(self, name):
        """Its words are lost with it; the time that it takes is known."""
        wait_for_time({"deeds": 2, "silence": 2.5}[name])

    may_write_all = True


class SilentLogger(unittest.TestCase):
    """A pipe holds 64 KiB; whoever prints more needs somebody who reads, or makes room."""

    LOST = r"\[bulkheadd\] the logger does not keep up with what service main/probe prints: [1-9]\d+ bytes are lost"

    def print_much(self, server):
        """Has a service print 1 MiB while nobody reads it."""
        answers = [get(server.port, f"/probe/print?kib={kib}", timeout=60) for kib in (1024, 1)]
        self.assertEqual([answer.text for answer in answers], ["printed 1024 KiB\n", "printed 1 KiB\n"])
        self.assertRegex(server.log(), self.LOST)

    def test_a_rogue(self):
        """It answers the launcher, or not, and never reads."""
        with Rogue(GOOD, "logger") as server:
            probe = server.process("bin/probe")
            self.print_much(server)
            self.assertEqual(server.process("bin/probe"), probe)

    def test_one_that_hangs(self):
        """It is ended, and its successor reads what it had left."""
        with Server(GOOD) as server:
            logger = server.process("logger")
            logger.signal(signal.SIGSTOP)
            self.print_much(server)
            self.assertTrue(until(lambda: not logger.alive, 40), server.log())
            self.assertRegex(server.log(), rf"\[bulkheadd\] logger \(pid {logger.pid}\) left what others print unread")
            self.assertTrue(until(lambda: re.search(r"\[service main/probe\] x{100}", server.log()), 10))
            self.assertEqual(server.status("/probe"), 200)


class Admin(Channels):
    def test_admin(self):
        # It is ended for what it asks for and does not read.
        self.misbehave(Rogue(GOOD, "admin"), "admin", LOADS, [
            ended("admin")[0], *logged("admin"), r"\[logger\] .*refused \d+ records of admin",
            r"\[bulkheadd\] admin \(pid \d+\) does not read what it is told and was ended"])


def ask(port, host, target, count=6):
    """Connections on which something was asked, to be kept."""
    connections = [Connection(port) for _ in range(count)]
    for connection in connections:
        connection.send(request(target, host))
    return connections


if __name__ == "__main__":
    unittest.main()
