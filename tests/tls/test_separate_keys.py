"""A certificate and its key in two files, behind symbolic links, as certbot lays them out and renews them."""

import hashlib
import os
import shutil
import subprocess
import unittest

from client import until
from harness import NOBODY, ROOTLESS, Server, free_port, rootless_too
from tls_server import certificate

CONFIG = """
[[listen]]
address = "127.0.0.1:{tls}"
tls = true

[log]
flush = "100ms"

[tls]
reread = "1s"

[[site]]
name = "a"
host = ["a.test"]
root = "a"
certificate = "live/fullchain.pem"
key = "live/privkey.pem"
"""


class Certbot(Server):
    """A site whose files are links in `live` to those of one renewal in `archive`."""

    def __init__(self):
        self.tls = free_port()
        super().__init__(sites=[], programs=(), text=lambda port: CONFIG.format(tls=self.tls), files={"a/index.html": "A"}, answers="A")
        for name in ("live", "archive", "made"):
            (self.folder / name).mkdir()
        self.renew(1)

    def make(self, number):
        """The files of one renewal, that nothing leads to yet."""
        for name, content in zip(("fullchain", "privkey"), certificate(self.folder / "made", f"a{number}", "ec", "a.test"), strict=True):
            file = self.write(f"archive/{name}{number}.pem", content.decode())
            file.chmod(0o600)
            if ROOTLESS and os.geteuid() == 0:
                shutil.chown(file, NOBODY, NOBODY)

    def link(self, name, number):
        new = self.folder / "live" / "new"
        new.symlink_to(f"../archive/{name}{number}.pem")
        new.rename(self.folder / "live" / f"{name}.pem")

    def renew(self, number):
        self.make(number)
        self.link("fullchain", number)
        self.link("privkey", number)

    def status(self, *_, timeout=10):
        url = f"https://a.test:{self.tls}/"
        command = ["curl", "-sk", "--max-time", "10", "--resolve", f"a.test:{self.tls}:127.0.0.1", url]
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=False).stdout or None

    def shown(self):
        """The hash of the certificate that a client is shown."""
        command = ["openssl", "s_client", "-connect", f"127.0.0.1:{self.tls}", "-servername", "a.test"]
        pem = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=20, check=False).stdout
        return self.hash(pem)

    @staticmethod
    def hash(pem):
        begin, end = b"-----BEGIN CERTIFICATE-----", b"-----END CERTIFICATE-----"
        return hashlib.sha256(pem.partition(begin)[2].partition(end)[0]).hexdigest()

    def of(self, number):
        return self.hash((self.folder / "archive" / f"fullchain{number}.pem").read_bytes())


@rootless_too
class SeparateKeys(unittest.TestCase):
    def test_a_renewal_is_noticed_and_half_of_one_changes_nothing(self):
        with Certbot() as server:
            self.assertEqual(server.shown(), server.of(1))
            server.make(2)
            server.link("fullchain", 2)
            about = f"`certificate` {server.folder}/live/fullchain.pem with the key {server.folder}/live/privkey.pem of site a: "
            wrong = f"warning [bulkheadd] {about}the file has no certificate that belongs to its key; "
            self.assertTrue(until(lambda: wrong in server.log(), 10), server.log())
            self.assertEqual((server.shown(), server.status()), (server.of(1), "A"))
            server.link("privkey", 2)
            self.assertTrue(until(lambda: server.shown() == server.of(2), 10), server.log())
            self.assertIn(f"{about[:-2]} is in use", server.log())


if __name__ == "__main__":
    unittest.main()
