"""What systemd and the launcher say to each other, at a socket of the test: states, the watchdog, and sockets that are passed."""

import os
import signal
import socket
import time
import unittest
from pathlib import Path

import client
from client import until
from harness import ROOTLESS, free_port, rootless_too, site, wait_for_time
from service_manager import Managed, Notified, listening

MAIN, OTHER = site("main"), site("other")
VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES")


def inode(of):
    return f"socket:[{os.fstat(of.fileno()).st_ino}]"


@rootless_too
class States(unittest.TestCase):
    def setUp(self):
        self.server = Managed([MAIN], ())
        self.notified = self.enterContext(Notified(self.server.folder / "notify"))

    def start(self, **environment):
        self.enterContext(self.server.given(NOTIFY_SOCKET=self.notified.name, **environment))

    def test_from_the_start_to_the_end(self):
        self.start()
        ready = self.notified.after(0, "READY")
        self.assertRegex(ready["STATUS"], r"^sites: 1, workers: 1, processes: \d+$")
        before = len(self.notified.read())
        self.assertEqual(self.server.stop(), 0)
        self.assertEqual(self.notified.read()[before:], [{"STOPPING": "1", "STATUS": "stopping"}])
        self.assertEqual(self.notified.states(), ["READY", "STOPPING"])

    def test_a_reload_is_between_two_messages(self):
        self.start()
        self.assertTrue(self.notified.after(0, "READY"))
        before, began = len(self.notified.read()), time.monotonic_ns() // 1000
        self.assertIsNone(self.server.reload([MAIN, OTHER]))
        ready = self.notified.after(before, "READY")
        self.assertIn("sites: 2, workers: 2", ready["STATUS"])
        reloading = self.notified.after(before, "RELOADING")
        self.assertLessEqual(began, int(reloading["MONOTONIC_USEC"]))
        self.assertLessEqual(int(reloading["MONOTONIC_USEC"]), time.monotonic_ns() // 1000)
        self.assertEqual(self.notified.states(), ["READY", "RELOADING", "READY"])

    def test_a_reload_that_is_refused_ends_as_well_and_a_plan_is_none(self):
        self.start()
        self.assertTrue(self.notified.after(0, "READY"))
        good = self.server.config.read_text()
        self.server.config.write_text("nonsense")
        self.server.launcher.send_signal(signal.SIGHUP)
        self.assertTrue(until(lambda: self.notified.states() == ["READY", "RELOADING", "READY"]))
        self.assertIn("the last reload was refused", self.notified.read()[-1]["STATUS"])
        self.server.config.write_text(good)
        self.server.plan("--dry-run")
        self.server.launcher.send_signal(signal.SIGHUP)
        self.assertTrue(until(lambda: len(self.notified.states()) == 5), self.notified.read())
        self.assertNotIn("refused", self.notified.read()[-1]["STATUS"])

    def test_the_status_follows(self):
        self.start()
        self.assertTrue(self.notified.after(0, "READY"))
        before = len(self.notified.read())
        rests = [MAIN, OTHER | {"start": "on-demand"}]
        self.assertIsNone(self.server.reload(rests))
        self.assertIn("sites: 2, workers: 1", self.notified.after(before, "READY")["STATUS"])
        before = len(self.notified.read())
        self.assertEqual(self.server.status("/", "other.test"), 200)
        self.assertIn("sites: 2, workers: 2", self.notified.after(before, "STATUS")["STATUS"])

    def test_an_abstract_socket(self):
        self.notified = self.enterContext(Notified())
        self.start()
        self.assertTrue(self.notified.after(0, "READY"))

    def test_a_socket_that_is_gone_is_told_of_and_ends_nothing(self):
        self.notified.name = str(self.server.folder / "none")
        self.start()
        self.assertTrue(until(lambda: "the service manager cannot be told" in self.server.stderr()))
        self.assertEqual(self.server.status("/"), 200)

    def test_nonsense_in_the_environment_is_named(self):
        self.notified.name = "vsock:2:1234"
        self.server.given(NOTIFY_SOCKET=self.notified.name)
        self.assertIn("NOTIFY_SOCKET=`vsock:2:1234`", self.server.refusal())


@rootless_too
class Watchdog(unittest.TestCase):
    SECONDS = 0.4

    def setUp(self):
        self.server = Managed([MAIN], ())
        self.notified = self.enterContext(Notified(self.server.folder / "notify"))

    def start(self, pid):
        words = {"WATCHDOG_USEC": round(self.SECONDS * 1e6), "WATCHDOG_PID": pid}
        # In single quotes, `$$` would be no number.
        self.server.given(NOTIFY_SOCKET=self.notified.name)
        self.server.prefix[2] = " ".join(f"{name}={value}" for name, value in words.items()) + " " + self.server.prefix[2]
        self.enterContext(self.server)
        self.assertTrue(self.notified.after(0, "READY"))

    def signs(self):
        return sum("WATCHDOG" in message for message in self.notified.read())

    def test_a_loop_that_stands_still_gives_no_sign_of_life(self):
        self.start("$$")
        self.assertTrue(until(lambda: self.signs() >= 5))
        self.server.launcher.send_signal(signal.SIGSTOP)
        stopped = lambda: "T" in (Path("/proc") / str(self.server.launcher.pid) / "stat").read_text().rpartition(")")[2].split()[0]
        self.assertTrue(until(stopped))
        before = self.signs()
        wait_for_time(4 * self.SECONDS)
        self.assertEqual(self.signs(), before)
        self.assertEqual(self.server.status("/"), 200)
        self.server.launcher.send_signal(signal.SIGCONT)
        self.assertTrue(until(lambda: self.signs() > before))

    def test_the_watchdog_of_another_process(self):
        self.start("1")
        self.assertIsNone(self.notified.after(0, "WATCHDOG", seconds=3 * self.SECONDS))


@rootless_too
class Passed(unittest.TestCase):
    def setUp(self):
        self.server = Managed([MAIN], (), server={"gates": 2})
        self.socket = self.enterContext(listening(port=self.server.port))

    def refused(self, sockets, *texts):
        why = self.server.given(sockets).refusal()
        for text in texts:
            self.assertIn(text, why)

    def test_all_gates_take_connections_from_it(self):
        self.enterContext(self.server.given([self.socket], "web"))
        gates = [gate.descriptors().values() for gate in self.server.processes("gate")]
        self.assertEqual([inode(self.socket) in has for has in gates], [True, True])
        self.assertEqual([self.server.status("/") for _ in range(20)], [200] * 20)
        self.server.processes("gate")[0].kill()
        self.assertTrue(until(lambda: len(self.server.processes("gate")) == 2))
        self.assertEqual([self.server.status("/") for _ in range(20)], [200] * 20)

    def test_it_outlives_the_server(self):
        """As the service manager keeps it, a connection that comes between two starts waits."""
        with self.server.given([self.socket]):
            self.assertEqual(self.server.status("/"), 200)
            self.server.stop()
            with client.Connection(self.server.port) as waits:
                waits.send(client.request("/"))
                self.server.start()
                self.assertEqual(waits.response().status, 200)

    def test_no_child_has_a_variable_or_a_socket_of_another(self):
        notified = self.enterContext(Notified(self.server.folder / "notify"))
        environment = {"NOTIFY_SOCKET": notified.name, "WATCHDOG_USEC": "60000000"}
        self.enterContext(self.server.given([self.socket], "web", **environment))
        launcher = Path(f"/proc/{self.server.launcher.pid}/environ").read_bytes() if not ROOTLESS or os.geteuid() == 0 else b""
        self.assertTrue(not launcher or all(name.encode() in launcher for name in VARIABLES if name != "WATCHDOG_PID"))
        children = [Path("/proc") / name for name in self.every_child()]
        self.assertGreater(len(children), 4)
        for child in children:
            environ = (child / "environ").read_bytes() if os.geteuid() == 0 else b""
            self.assertFalse([name for name in VARIABLES if name.encode() in environ], child)
        for process in self.server.processes():
            if os.geteuid() == 0 and not process.title.startswith("gate"):
                self.assertNotIn(inode(self.socket), process.descriptors().values(), process)
        # The numbers at which it came are those of a child's channels.
        if os.geteuid() == 0:
            links = {number: os.readlink(f"/proc/{self.server.launcher.pid}/fd/{number}") for number in (3, 4)}
            self.assertEqual(set(links.values()), {"/dev/null"})

    def every_child(self):
        """The numbers of all children, the reaper among them."""
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                if Path("/proc", name, "stat").read_text().rpartition(")")[2].split()[1] == str(self.server.launcher.pid):
                    yield name
            except OSError:
                continue

    def test_one_that_no_listener_has(self):
        other = self.enterContext(listening())
        address = "{}:{}".format(*other.getsockname())
        self.refused([self.socket, other], "`4`", f"listens on {address}", f'`address = "{address}"`', f"ListenStream={address}")

    def test_one_of_another_kind(self):
        datagrams = self.enterContext(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        unix = self.enterContext(socket.socket(socket.AF_UNIX))
        deaf = self.enterContext(socket.socket())
        for bound in (datagrams, deaf):
            bound.bind(("127.0.0.1", 0))
        for other in (datagrams, unix, deaf):
            with self.subTest(other.type):
                self.server = Managed([MAIN], ())
                self.refused([other], "`3` is no listening TCP socket", "ListenStream=")

    def test_a_socket_of_both_families(self):
        try:
            both = self.enterContext(listening("::", free_port(), socket.AF_INET6, both=True))
        except OSError:
            self.skipTest("no IPv6 here")
        self.refused([self.socket, both], "BindIPv6Only=ipv6-only")

    def test_more_than_there_are_gates(self):
        self.refused([self.socket] * 3, f"one of 3 on 127.0.0.1:{self.server.port}", "raise `gates`")

    def test_one_for_another_process(self):
        self.socket.close()
        with listening() as other, self.server.given([other], pid=1) as server:
            self.assertEqual(server.status("/"), 200)

    def test_a_descriptor_that_is_not_open(self):
        self.socket.close()
        self.server.prefix = ["bash", "-c", 'exec 3<&-; LISTEN_FDS=1 LISTEN_PID=$$ exec "$@"', "bash"]
        self.assertIn("LISTEN_FDS", self.server.refusal())

    def test_a_reload_lets_go_of_it_and_takes_it_again(self):
        passed = self.enterContext(listening(port=free_port()))
        port = passed.getsockname()[1]
        self.server.write_config([MAIN], [port], server={"gates": 2})
        self.enterContext(self.server.given([self.socket, passed]))
        uses = lambda: [inode(passed) in gate.descriptors().values() for gate in self.server.processes("gate")]
        self.assertEqual(client.status(port), 200)
        self.assertEqual(uses(), [True, True])
        self.assertIsNone(self.server.reload([MAIN], server={"gates": 2}))
        self.assertTrue(until(lambda: uses() == [False, False]))
        self.assertEqual(self.server.status("/"), 200)
        with client.Connection(port) as waits:
            waits.send(client.request("/"))
            self.assertIsNone(self.server.reload([MAIN], listeners=[port], server={"gates": 2}))
            self.assertEqual(waits.response().status, 200)
        self.assertEqual(uses(), [True, True])
        # The test has it as well, which then is the only one.
        self.server.stop()
        self.server.close_given()
        passed.close()
        self.assertIsNone(client.status(port))

    @unittest.skipUnless(os.geteuid() == 0, "only root can make what is to be passed")
    def test_a_privileged_port_without_any_right_to_it(self):
        port = next(port for port in range(1023, 900, -1) if client.status(port) is None)
        passed = self.enterContext(listening(port=port))
        self.server.write_config([MAIN], [port], server={"gates": 2})
        self.enterContext(self.server.given([self.socket, passed]))
        self.assertEqual(client.status(port), 200)


@rootless_too
class Alone(unittest.TestCase):
    def test_without_a_service_manager_nothing_happens(self):
        with Managed([MAIN], ()) as server:
            self.assertEqual(server.status("/"), 200)
            self.assertNotIn("service manager", server.stderr())


if __name__ == "__main__":
    unittest.main()
