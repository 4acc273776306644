"""The units of the examples under a real systemd, which the test boots in namespaces of its own."""

import os
import shutil
import unittest

import client
from booted_systemd import SYSTEMD, Systemd, control_groups, example
from client import until
from harness import program, service, site

MAIN, OTHER = site("main"), site("other")
LARGE = b"0123456789abcdef" * 512 * 1024


def why_not():
    """Why no systemd can be booted here."""
    if os.geteuid() != 0:
        return "only root can boot a systemd"
    if SYSTEMD is None or not shutil.which("systemctl"):
        return "there is no systemd"
    return None if control_groups() else "control groups of version 2 are not mounted"


@unittest.skipIf(why_not(), why_not())
class Booted(unittest.TestCase):
    def setUp(self):
        self.systemd = self.enterContext(Systemd())
        self.port = self.systemd.port
        self.systemd.configure(MAIN)
        self.systemd.unit("bulkhead.service", example("bulkhead.service"))

    def start(self, unit="bulkhead.service"):
        started = self.systemd.systemctl("start", unit)
        self.assertEqual(started.returncode, 0, started.stderr + self.systemd.journal())

    def status(self, host="main.test", target="/"):
        return client.status(self.port, target, host)

    def test_start_reload_and_a_stop_that_drains(self):
        self.start()
        self.assertEqual(self.systemd.show("ActiveState"), "active")
        # `systemctl start` returned when it was ready: nothing is waited for.
        self.assertEqual(self.status(), 200)
        self.assertRegex(self.systemd.show("StatusText"), "^sites: 1, workers: 1, processes: ")
        self.systemd.configure(MAIN, OTHER)
        reloaded = self.systemd.systemctl("reload", "bulkhead.service")
        self.assertEqual(reloaded.returncode, 0, reloaded.stderr)
        self.assertEqual(self.status("other.test"), 200)
        self.assertTrue(until(lambda: "sites: 2" in self.systemd.show("StatusText")))
        good = (self.systemd.srv / "bulkhead.toml").read_text()
        (self.systemd.srv / "bulkhead.toml").write_text("nonsense")
        self.assertNotEqual(self.systemd.systemctl("reload", "bulkhead.service").returncode, 0)
        self.assertTrue(until(lambda: "refused" in self.systemd.show("StatusText")))
        self.assertEqual((self.systemd.show("ActiveState"), self.status()), ("active", 200))
        (self.systemd.srv / "bulkhead.toml").write_text(good)
        (self.systemd.srv / "main/large").write_bytes(LARGE)
        with client.Connection(self.port) as download:
            download.send(client.request("/large"))
            download._until(lambda: len(download.unread) > 1000)
            self.systemd.systemctl("stop", "--no-block", "bulkhead.service")
            self.assertTrue(until(lambda: self.systemd.show("StatusText") == "stopping"))
            self.assertTrue(until(lambda: self.status() is None))
            self.assertEqual(self.systemd.show("ActiveState"), "deactivating")
            self.assertEqual(download.response().body, LARGE)
        self.assertTrue(until(lambda: self.systemd.show("ActiveState") == "inactive", 15))
        self.assertEqual(self.systemd.show("Result"), "success")

    def test_no_layer_of_a_jail_is_missing(self):
        """What the unit takes away from the launcher is nothing that a jail is made with."""
        shutil.copy(program("probe"), self.systemd.srv / "bin/probe")
        self.systemd.configure(site("main", [service("probe")]))
        self.start()
        self.assertEqual([self.status(target=target) for target in ("/", "/probe")], [200, 200])
        log = self.systemd.journal()
        self.assertNotIn("isolation is degraded", log)
        self.assertNotIn("not started as root", log)

    def test_a_launcher_that_hangs_is_started_again(self):
        self.systemd.unit("bulkhead.service.d/soon.conf", "[Service]\nWatchdogSec=1s\nRestartSec=0\n")
        self.start()
        before = self.systemd.show("MainPID")
        self.systemd.systemctl("kill", "-s", "STOP", "--kill-whom=main", "bulkhead.service")
        self.assertTrue(until(lambda: self.systemd.show("NRestarts") == "1", 15), self.systemd.journal())
        self.assertTrue(until(lambda: self.systemd.show("ActiveState") == "active", 15), self.systemd.journal())
        self.assertNotEqual(self.systemd.show("MainPID"), before)
        self.assertEqual(self.status(), 200)

    def test_it_is_started_by_its_first_client_and_refuses_none(self):
        port = next(port for port in range(1023, 900, -1) if client.status(port) is None)
        privileged = f"127.0.0.1:{port}"
        self.systemd.configure(MAIN, more=f'\n[[listen]]\naddress = "{privileged}"\n')
        streams = f"ListenStream=127.0.0.1:{self.port}\nListenStream={privileged}\n"
        text = example("bulkhead.socket").replace("ListenStream=0.0.0.0:80\nListenStream=0.0.0.0:443\n", streams)
        self.assertIn(streams, text)
        self.systemd.unit("bulkhead.socket", text)
        self.systemd.unit("bulkhead.service.d/ports.conf", "[Service]\nCapabilityBoundingSet=~CAP_NET_BIND_SERVICE\n")
        self.start("bulkhead.socket")
        self.assertEqual(self.systemd.show("ActiveState"), "inactive")
        self.assertEqual(self.status(), 200)
        self.assertEqual(client.status(port), 200)
        load = client.Load(self.port, "/", "main.test", seconds=3, connections=2)
        self.assertEqual(self.systemd.systemctl("restart", "bulkhead.service").returncode, 0, self.systemd.journal())
        # The sockets stay with systemd meanwhile.
        self.assertEqual(load.end().errors[0], 0, load.text)
        self.assertEqual(self.status(), 200)


if __name__ == "__main__":
    unittest.main()
