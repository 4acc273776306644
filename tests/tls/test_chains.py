"""Files in which several certificates have one subject: clients are sent all that lead somewhere, in the file's order, valid ones first."""

import os
import shutil
import socket
import ssl
import subprocess
import time
import unittest

from client import until
from harness import NOBODY, ROOTLESS, Server, free_port, rootless_too
from tls_server import KINDS, openssl

DAY = 86_400
CONFIG = """\
listen = [{{ address = "127.0.0.1:{port}" }}, {{ address = "127.0.0.1:{tls}", tls = true }}]

[server]
state_dir = "state"
run_dir = "run"
log_dir = "log"

[[site]]
name = "a"
host = ["a.test"]
root = "a"
certificates = ["a.pem"]
"""
CA = """\
[ca]
default_ca = own
[own]
database = {folder}/index.txt
new_certs_dir = {folder}
rand_serial = yes
default_md = sha256
policy = any
unique_subject = no
[any]
commonName = supplied
"""
AUTHORITY = "basicConstraints=critical,CA:TRUE\nsubjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n"
SITE = "subjectAltName=DNS:a.test\nsubjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n"
#: Names in a folder of keys, and days from now.
GOOD, OLD = (-9, 9), (-9, -1)


class Authorities:
    """Keys, and certificates that one of them has signed for another's, whatever both are called."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir()
        (folder / "index.txt").write_text("")
        (folder / "ca.cnf").write_text(CA.format(folder=folder))

    def key(self, name, subject):
        openssl("req", "-new", "-newkey", *KINDS["ec"], "-nodes", "-subj", f"/CN={subject}", "-keyout", self.folder / f"{name}.key",
                "-out", self.folder / f"{name}.csr")

    def sign(self, name, by, days=GOOD, ends=AUTHORITY):
        """A certificate of key `name`, by key `by`, whose own certificate is `by.crt` if it is another."""
        (self.folder / "ends").write_text(ends)
        dates = [time.strftime("%Y%m%d%H%M%SZ", time.gmtime(time.time() + day * DAY)) for day in days]
        made = self.folder / "made"
        signer = ["-selfsign"] if name == by else ["-cert", self.folder / f"{by}.crt"]
        openssl("ca", "-config", self.folder / "ca.cnf", *signer, "-batch", "-notext", "-keyfile", self.folder / f"{by}.key", "-in",
                self.folder / f"{name}.csr", "-startdate", dates[0], "-enddate", dates[1], "-extfile", self.folder / "ends", "-out", made)
        return made.read_text()

    def root(self, name, subject):
        self.key(name, subject)
        pem = self.sign(name, name)
        (self.folder / f"{name}.crt").write_text(pem)
        return pem


def sent(port, *words):
    """The certificates that a client gets, in their order."""
    command = ["openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-servername", "a.test", "-showcerts", *words]
    text = subprocess.run(command, input="", capture_output=True, text=True, timeout=20, check=False).stdout
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    return [begin + part.partition(end)[0] + end + "\n" for part in text.split(begin)[1:]]


@rootless_too
class OneSubject(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tls = free_port()
        text = lambda port: CONFIG.format(port=port, tls=cls.tls)
        cls.server = Server(sites=[], programs=(), text=text, files={"a/index.html": "a\n"})
        made = Authorities(cls.server.folder / "made")
        cls.roots = {name: made.root(name, name) for name in ("one", "two")}
        # Two keys of one name: what the second has is none of this chain.
        made.key("between", "between")
        made.key("namesake", "between")
        cls.by_one, cls.by_two = made.sign("between", "one"), made.sign("between", "two")
        cls.expired, cls.namesake = made.sign("between", "one", OLD), made.sign("namesake", "one")
        (made.folder / "between.crt").write_text(cls.by_one)
        made.key("a", "a.test")
        cls.own = made.sign("a", "between", ends=SITE)
        cls.key = (made.folder / "a.key").read_text()
        cls.put([cls.namesake, cls.expired, cls.own, cls.by_one, cls.by_two])
        cls.enterClassContext(cls.server)

    @classmethod
    def put(cls, certificates):
        """Makes these the site's file."""
        new = cls.server.write("a.new", cls.key + "".join(certificates))
        new.chmod(0o600)
        if ROOTLESS and os.geteuid() == 0:
            shutil.chown(new, NOBODY, NOBODY)
        new.rename(cls.server.folder / "a.pem")

    def test_all_that_lead_somewhere_are_sent_and_valid_ones_first(self):
        for words in (["-tls1_2"], ["-tls1_3"]):
            with self.subTest(words):
                self.assertEqual(sent(self.tls, *words), [self.own, self.by_one, self.by_two, self.expired])

    def assert_accepted(self, root):
        """By a client that knows this root, and tries the first certificate that fits (OpenSSL)."""
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.load_verify_locations(cadata=self.roots[root])
            context.minimum_version = context.maximum_version = version
            with socket.create_connection(("127.0.0.1", self.tls), 10) as raw:
                with context.wrap_socket(raw, server_hostname="a.test") as stream:
                    self.assertEqual(stream.version(), version.name.replace("_", "."))

    def test_a_client_that_takes_the_first_that_fits_accepts_it(self):
        self.assert_accepted("one")

    def test_the_check_warns_of_both(self):
        checked = self.server.command("check", self.server.config)
        self.assertEqual(checked.returncode, 0, checked.stderr)
        self.assertIn("has 1 certificate of authorities out of date, sent last", checked.stderr)
        self.assertIn("has 1 certificate outside of its chain, not sent", checked.stderr)

    def test_the_order_follows_the_file(self):
        self.put([self.own, self.by_two, self.by_one])
        done = self.server.command("reload", "--config", self.server.config)
        self.assertEqual(done.returncode, 0, done.stderr)
        expected = [self.own, self.by_two, self.by_one]
        self.assertTrue(until(lambda: sent(self.tls) == expected, 10), sent(self.tls))
        self.assert_accepted("two")
        checked = self.server.command("check", self.server.config)
        self.assertNotIn("of authorities out of date", checked.stderr)
        self.assertNotIn("outside of its chain", checked.stderr)


if __name__ == "__main__":
    unittest.main()
