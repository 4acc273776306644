"""What is known of certificates is known after an upgrade, and of hundreds each is looked at."""

import json
import os
import re
import shutil
import time
import unittest

from client import until
from dated import DAY, Dated
from harness import NOBODY, ROOTLESS, Server, free_port, rootless_too
from opens import Opens
from tls_server import certificate

EXPIRED = "has expired: clients refuse it"
OTHER = "names none of the site's hosts: clients refuse it"
#: More than are looked at in one turn of the launcher's loop, and than a signer is given before it has answered.
MANY = 300


def upgrade(server):
    return server.command("upgrade", "--config", server.config, timeout=90)


@rootless_too
class Upgraded(unittest.TestCase):
    def setUp(self):
        sites = {
            "good": (["good.test"], ["DNS:good.test"], -1, 90),
            "expired": (["expired.test"], ["DNS:expired.test"], -9, -1),
            "other": (["other.test"], ["DNS:another.test"], -1, 90),
            "soon": (["soon.test"], ["DNS:soon.test"], -1, 9.5),
        }
        self.server = self.enterContext(Dated(sites))
        self.expected = {"good": [], "expired": [EXPIRED], "other": [OTHER], "soon": ["ends in 9 days"]}
        self.assertTrue(until(lambda: self.said() == self.expected, 10), self.server.log())

    def said(self):
        return {name: self.server.said(name) for name in self.expected}

    def test_each_objection_is_said_once(self):
        server = self.server
        for _ in range(2):
            done = upgrade(server)
            self.assertEqual(done.returncode, 0, done.stderr)
            # All certificates were read by then.
            self.assertEqual(self.said(), self.expected)
            warnings = {name: server.warnings(name) for name in self.expected}
            self.assertEqual(warnings, self.expected)
        # What is new is said.
        server.install("good", ["DNS:elsewhere.test"], time.time() - DAY, time.time() + 90 * DAY)
        self.assertTrue(until(lambda: server.said("good") == [OTHER], 20), server.log())
        self.assertEqual(self.said(), self.expected | {"good": [OTHER]})

    @unittest.skipIf(ROOTLESS, "there the launcher examines the configuration itself")
    def test_what_has_not_changed_is_read_by_the_new_signer_alone(self):
        server = self.server
        with Opens(server.folder) as opens:
            done = upgrade(server)
            self.assertEqual(done.returncode, 0, done.stderr)
            opened = [name for name in opens.names() if name.endswith(".pem")]
        self.assertEqual(set(opened), {f"{name}.pem" for name in self.expected})
        # Each of them, and one for all whose keys are of one kind: a signer of another version may not know that kind.
        self.assertLessEqual(len(opened), len(self.expected) + 1, opened)

    def test_what_has_changed_is_judged_by_the_new_signer_alone(self):
        """A key that does not fit is no fault of the new programs, and its site's alone."""
        server = self.server
        key, certificate = (server.folder / "made" / name for name in ("soon.key", "other.crt"))
        server.write("other.pem", key.read_text() + certificate.read_text())
        before = [process.pid for process in server.processes("signer")]
        done = upgrade(server)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("has no certificate that belongs to its key", done.stderr)
        self.assertTrue(until(lambda: [process.pid for process in server.processes("signer")] != before, 10))
        self.assertEqual((server.page("good"), server.page("other")), ("good", ""))


class Many(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tls = free_port()
        text = lambda port: (
            f'include = "sites/*.toml"\n[[listen]]\naddress = "127.0.0.1:{cls.tls}"\ntls = true\n\n[log]\nflush = "100ms"\n\n'
            '[tls]\nreread = "1s"\n'
        )
        site = lambda n: (
            f'[[site]]\nname = "s{n}"\nhost = ["s{n}.test"]\nroot = "../main"\ncertificates = ["../keys/s{n}.pem"]\n'
            + 'start = "on-demand"\n' * (n > 0)
        )
        files = {"main/index.html": "main"} | {f"sites/s{n}.toml": site(n) for n in range(MANY)}
        cls.server = Server(sites=[], programs=(), text=text, files=files)
        cls.made = cls.server.folder / "made"
        cls.made.mkdir()
        hosts = [f"s{n}.test" for n in range(MANY)]
        cls.good, cls.other = (b"".join(certificate(cls.made, name, "ec", *hosts)) for name in ("good", "other"))
        for n in range(MANY):
            cls.install(n, cls.good)
        cls.enterClassContext(cls.server)

    @classmethod
    def install(cls, n, text):
        new = cls.server.write("keys/new", text)
        new.chmod(0o600)
        if ROOTLESS and os.geteuid() == 0:
            shutil.chown(new, NOBODY, NOBODY)
        new.rename(cls.server.folder / f"keys/s{n}.pem")

    def listed(self):
        done = self.server.command("status", "--certificates", "--json", "--config", self.server.config)
        return {one["site"]: one["fault"] for one in json.loads(done.stdout)["certificates"]}

    def test_each_is_read_and_read_again_when_it_has_changed(self):
        server, good = self.server, {f"s{n}": None for n in range(MANY)}
        self.assertEqual(self.listed(), good)
        changed = [0, 63, 64, 255, 256, MANY - 1]
        for n in changed:
            self.install(n, self.other)
        # What is so young that it may change unnoticed is read once more.
        used = lambda: sorted({int(n) for n in re.findall(r"keys/s(\d+)\.pem of site \w+ is in use", server.log())})
        self.assertTrue(until(lambda: used() == changed, 20), used())
        server.relaunch("signer")
        self.assertEqual((self.listed(), used()), (good, changed))

    def test_the_last_that_is_of_no_use_keeps_the_signer_of_before(self):
        server, pids = self.server, lambda: [process.pid for process in self.server.processes("signer")]
        self.assertTrue(until(lambda: len(pids()) == 1, 10))
        before = pids()
        key = (self.made / "good.key").read_bytes()
        self.install(MANY - 1, (self.made / "other.crt").read_bytes() + key)
        done = server.command("relaunch", "--config", server.config, "signer")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("has no certificate that belongs to its key", done.stderr)
        self.assertTrue(until(lambda: pids() == before, 10), pids())
        self.install(MANY - 1, self.good)
        server.relaunch("signer")
        self.assertEqual(set(self.listed().values()), {None})

    @unittest.skipIf(ROOTLESS, "there the launcher examines the configuration itself")
    def test_an_upgrade_has_each_read_once(self):
        server = self.server
        # A file of a site that is younger than a second is read again by the reload below.
        newest = max(file.stat().st_ctime for file in (server.folder / "sites").iterdir())
        self.assertTrue(until(lambda: time.time() > newest + 1.1, 5))
        with Opens(server.folder / "keys") as opens:
            done = upgrade(server)
            self.assertEqual(done.returncode, 0, done.stderr)
            # Until then all files of sites are read in the background.
            reloaded = lambda: server.command("reload", "--config", server.config).returncode == 0
            self.assertTrue(until(reloaded, 30))
            opened = opens.names()
        self.assertEqual(set(opened), {f"s{n}.pem" for n in range(MANY)})
        self.assertLessEqual(len(opened), MANY + 1)


if __name__ == "__main__":
    unittest.main()
