"""Publishers that are killed: what was decided once holds everywhere, and nothing else is ever served."""

import os
import random
import threading
import time
import unittest

from client import until
from harness import Process, rootless_too
from pages import Pages, Readers, renders
from upgrading import Upgrading

PATHS = ("pages", "direct")
#: One service with several processes, and one that has connections of its own.
SERVICES = (renders(workers=2), renders("direct", takes_connections=True))
#: The successor says so when it has understood what was kept, and when not.
HELD = "holds, as before"
LOST = "the version that held cannot be told"
MISTAKE = "{% if %}"
#: Half of the memory, and the head of a version in it.
HALF = 8 << 20
HEAD = 32


class UpgradingPages(Upgrading, Pages):
    """A server with templates whose programs are its own."""


class KilledPublishers(unittest.TestCase):
    def publish(self, server, number):
        done = server.publish(number)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def kill(self, server, says=HELD):
        """Kills the publisher, and waits until its successor has said what it has found."""
        publisher, before = server.process("publisher"), server.log().count(says)
        publisher.kill()
        self.assertTrue(until(lambda: server.log().count(says) > before, 20), server.log())
        self.assertFalse(publisher.alive)

    def agreed(self, server):
        """The version that each process has, once it is one in all; nobody gives an order meanwhile."""
        found = lambda: {number for _ in range(6) for path in PATHS for number in server.of_version(path)}
        self.assertTrue(until(lambda: len(found()) == 1, 15), found)
        versions = found()
        self.assertEqual(len(versions), 1, "it was left again")
        return versions.pop()

    def memories(self, server):
        """The memory of publishers, as the launcher has it."""
        of_launcher = Process(server.launcher.pid).descriptors().items()
        return [f"/proc/{server.launcher.pid}/fd/{number}" for number, what in of_launcher if what.startswith("/memfd:versions")]

    def write_into(self, server, at, data):
        """As a publisher could that was taken over: into what its successor will read."""
        (memory,) = self.memories(server)
        with open(memory, "r+b") as file:
            file.seek(at)
            file.write(data)


@rootless_too
class WhilePublishing(KilledPublishers):
    """At any moment of it."""

    PADDING = {f"templates/padding/{number}.txt": "x" * 20_000 for number in range(20)}

    def test_thirty_moments_under_load(self):
        with Pages(SERVICES, restart={"broken_after": 1000, "backoff_max": "50ms"}) as server:
            for name, text in self.PADDING.items():
                server.write(name, text)
            begun = time.monotonic()
            self.assertTrue(self.order(server, 2))
            took = time.monotonic() - begun
            readers = [self.enterContext(Readers(server.port, f"/{path}/page?wait=3", count=3)) for path in PATHS]
            held = 2
            for number in range(3, 33):
                said_so, publisher = self.killed(server, number, random.uniform(0, 1.2 * took))
                self.assertTrue(until(lambda: not publisher.alive and server.processes("publisher"), 20), server.log())
                before, held = held, self.agreed(server)
                self.assertIn(held, (before, number))
                self.assertTrue(held == number or not said_so, f"{number} was published, and {held} holds")
                seen = any(number in one.seen for one in readers)
                self.assertTrue(held == number or not seen, f"{number} was decided and served, and {held} holds")
            for one in readers:
                until(lambda one=one: one.pages > 100, 30)
                one.__exit__()
                one.assert_clean(self)
            self.assertNotIn(LOST, server.log())

    def order(self, server, number):
        """Publishes a version; whether that is said to have been done."""
        server.write_version(number)
        answer = server.order(command="republish")
        report = (answer.get("sites") or [{}])[0].get("report")
        return bool(report and report["published"])

    def killed(self, server, number, after):
        """Kills the publisher so many seconds after it was told to publish; whether that was said to be done, and who it was."""
        publisher, said = server.process("publisher"), []
        order = threading.Thread(target=lambda: said.append(self.order(server, number)))
        order.start()
        time.sleep(after)
        publisher.kill()
        order.join()
        return said == [True], publisher


@rootless_too
class Edited(KilledPublishers):
    """The folder has what nobody has published yet."""

    def test_edits_are_not_served_and_need_not_compile(self):
        with Pages(SERVICES) as server:
            self.publish(server, 2)
            server.write_version(3)
            for mistake in (None, MISTAKE, None):
                server.write("templates/new.html", mistake or "")
                self.kill(server)
                self.assertEqual(self.agreed(server), 2)
            # A process that starts now has what the others have.
            server.write("templates/new.html", MISTAKE)
            self.kill(server)
            for worker in server.processes("bin/pages"):
                worker.kill()
                self.assertTrue(until(lambda worker=worker: not worker.alive, 5))
            self.assertTrue(until(lambda: len(server.processes("bin/pages")) == 3 and server.page()[0] == 200, 15))
            self.assertEqual(self.agreed(server), 2)
            self.assertEqual(server.republish().returncode, 1)
            server.write("templates/new.html", "")
            self.publish(server, 3)
            self.kill(server)
            self.assertEqual(self.agreed(server), 3)

    def test_the_first_version_goes_on_too(self):
        with Pages(SERVICES) as server:
            server.write("templates/head.html", MISTAKE)
            self.kill(server)
            self.assertEqual(self.agreed(server), 1)

    def test_a_relaunch_reads_the_folder(self):
        with Pages(SERVICES) as server:
            self.publish(server, 2)
            server.write_version(3)
            server.relaunch("main:templates")
            self.assertEqual(self.agreed(server), 3)
            # One that fails has changed nothing, also for a successor.
            server.write_version(4)
            server.write("templates/head.html", MISTAKE)
            self.assertNotEqual(server.command("relaunch", "--run-dir", "run", "main:templates").returncode, 0)
            self.kill(server)
            self.assertEqual(self.agreed(server), 3)

    def test_an_upgrade_goes_on_with_what_holds(self):
        with UpgradingPages(SERVICES) as server:
            self.publish(server, 2)
            server.write_version(3)
            server.write("templates/head.html", MISTAKE)
            server.put_programs(version="0.1.1")
            publisher = server.process("publisher")
            done = server.command("upgrade", "--run-dir", "run", timeout=60)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertTrue(until(lambda: not publisher.alive, 15))
            self.assertEqual(self.agreed(server), 2)
            self.kill(server)
            self.assertEqual(self.agreed(server), 2)


@rootless_too
class Memory(KilledPublishers):
    """What the successor reads may be anything."""

    def test_a_torn_version_leaves_the_one_before_in_all_processes(self):
        with Pages(SERVICES) as server:
            self.publish(server, 2)
            # The first version is in the first half, the second one in the other.
            self.write_into(server, HALF + HEAD + 100, b"torn")
            self.kill(server)
            self.assertEqual(self.agreed(server), 1)
            # Nobody but the successor has memory now.
            self.assertTrue(until(lambda: len(self.memories(server)) == 1, 5), self.memories(server))

    def test_nonsense_has_the_folder_hold(self):
        with Pages(SERVICES) as server:
            for number, nonsense in enumerate((b"\0" * HALF, os.urandom(HALF), b"versions" + b"\xff" * (HALF - 8)), 2):
                server.write_version(number)
                self.write_into(server, 0, nonsense)
                self.write_into(server, HALF, nonsense)
                self.kill(server, LOST)
                self.assertEqual(self.agreed(server), number)
            self.assertIsNone(server.launcher.poll())

    def test_nonsense_and_a_mistake_cost_nobody_a_page(self):
        with Pages(SERVICES, restart={"broken_after": 2, "within": "60s"}) as server:
            readers = self.enterContext(Readers(server.port))
            self.write_into(server, 0, b"\0" * HEAD)
            server.write("templates/head.html", MISTAKE)
            others = server.pids("site", "gate", "bin/pages")
            self.kill(server, LOST)
            self.assertTrue(until(lambda: "head.html:1: syntax error" in server.log(), 15), server.log())
            self.assertEqual((server.of_version(), server.pids("site", "gate", "bin/pages")), ({1}, others))
            server.write_version(2)
            self.assertTrue(until(lambda: server.command("relaunch", "--run-dir", "run", "main:templates").returncode == 0, 20), server.log())
            self.assertEqual(self.agreed(server), 2)
            readers.__exit__()
            readers.assert_clean(self, 10)

    def test_it_cannot_grow(self):
        with Pages(SERVICES) as server:
            (memory,) = self.memories(server)
            self.assertEqual(os.stat(memory).st_size, 2 * HALF)
            with self.assertRaises(PermissionError), open(memory, "r+b") as file:
                file.truncate(2 * HALF + 1)
