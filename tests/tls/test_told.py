"""The signer and the stapler are told what a reload changes of certificates, and go on; what has gone is forgotten, keys too."""

import re
import unittest

from client import until
from tls_server import Tls, openssl

BROKEN = '\n[[site.service]]\nname = "none"\npath = "/none"\ncommand = ["bin/none"]\n'


def site(name, more=""):
    return f'\n[[site]]\nname = "{name}"\nhost = ["{name}.test"]\nroot = "a"\ncertificates = ["{name}.pem"]\n{more}'


class Told(unittest.TestCase):
    def setUp(self):
        self.server = self.enterContext(Tls(settings="ocsp = true"))
        self.text = self.server.config.read_text()
        self.kept = lambda: [[process.pid for process in self.server.processes(title)] for title in ("signer", "stapler", "site a")]
        self.before = self.kept()

    def reload(self, text):
        self.server.config.write_text(text)
        return self.server.command("reload", "--run-dir", "run")

    def answers(self, name):
        return b" 200 OK" in self.server.get_tls(f"{name}.test")

    def has_key(self, name):
        """Whether the signer has a key in its memory."""
        text = openssl("ec", "-in", self.server.keys / f"{name}.key", "-noout", "-text").decode()
        secret = bytes.fromhex(re.sub(r"[:\s]", "", re.search(r"priv:\s*([0-9a-f:\s]+)pub:", text)[1]))[-32:]
        memory = self.server.process("signer").memory()
        return secret in memory or secret[::-1] in memory

    def test_a_change_of_one_site_is_read_and_no_other(self):
        server = self.server
        server.get_tls("b.test")
        done = self.reload(self.text.replace('certificates = ["b.pem"]', 'certificates = ["b.pem"]\ncache_control = "1h"'))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(self.answers("a") and self.answers("b"))
        self.assertEqual(self.kept(), self.before)
        used = re.findall(r"`certificates` \S*/(\S+) of site \w+ is in use", server.log())
        self.assertEqual(used, ["b.pem"])

    def test_sites_come_and_go_with_their_keys(self):
        server = self.server
        server.install("c", "ec", "c.test")
        done = self.reload(self.text + site("c"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(self.answers("c") and self.has_key("c"))
        listed = lambda: [one["file"].rpartition("/")[2] for one in server.order(command="certificates")["certificates"]]
        self.assertIn("c.pem", listed())
        done = self.reload(self.text)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(until(lambda: not server.processes("site c"), 10))
        self.assertTrue(until(lambda: not self.has_key("c"), 10), "the key of a site that has gone is kept")
        self.assertNotIn("c.pem", listed())
        # Another site by its number.
        server.install("d", "ec", "d.test")
        for _ in range(2):
            self.assertEqual(self.reload(self.text + site("d")).returncode, 0)
            self.assertTrue(self.answers("d") and self.answers("a"))
            self.assertEqual(self.reload(self.text).returncode, 0)
        self.assertEqual(self.kept(), self.before)

    def test_what_is_refused_is_forgotten(self):
        server = self.server
        server.install("c", "ec", "c.test")
        done = self.reload(self.text + site("c", BROKEN))
        self.assertNotEqual(done.returncode, 0)
        self.assertTrue(until(lambda: not self.has_key("c"), 10), "the key of a site that was refused is kept")
        self.assertTrue(self.answers("a") and self.answers("b"))
        self.assertEqual(self.kept(), self.before)
        done = self.reload(self.text + site("c"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(self.answers("c"))

    def test_a_signer_that_ends_meanwhile_comes_back_with_all(self):
        server = self.server
        server.install("c", "ec", "c.test")
        self.assertEqual(self.reload(self.text + site("c")).returncode, 0)
        signer = server.process("signer")
        signer.kill()
        self.assertTrue(until(lambda: [one for one in server.processes("signer") if one != signer], 10))
        self.assertTrue(until(lambda: all(map(self.answers, "abc")), 10))


if __name__ == "__main__":
    unittest.main()
