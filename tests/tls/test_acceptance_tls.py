"""The acceptance configuration of TLS and the static side as it stands, but for its ports."""

import os
import shutil
import subprocess
import unittest

from backend import Fpm, Raw, php_fpm, response
from client import until
from harness import ROOTLESS, TOP, Server, free_port, rootless_too
from tls_server import certificate

CONFIG = TOP / "tests/config/acceptance-tls.toml"


@rootless_too
class Acceptance(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tls = free_port()
        cls.server = Server([], (), text=cls.configuration)
        files = {
            "a/index.html": "<h1>a</h1>\n" * 200, "a/errors/404.html": "no such page\n", "a/new/x.html": "new\n",
            "a/hello.php": "<?php echo 'from php ', 6 * 7;", "b/index.html": "b\n", "vhosts/one.test/index.html": "one\n",
        }
        for name, content in files.items():
            cls.server.write(name, content)
        keys = cls.server.folder / "keys"
        keys.mkdir()
        kinds = {"a-ecdsa": ("ec", "a.test", "www.a.test"), "a-rsa": ("rsa", "a.test", "www.a.test"),
                 "b": ("ec", "b.test"), "wildcard": ("ec", "*.test")}
        for name, (kind, *hosts) in kinds.items():
            pem = cls.server.write(f"{name}.pem", b"".join(certificate(keys, name, kind, *hosts)))
            pem.chmod(0o600)
        folder = cls.server.folder
        app = lambda request: response(f"app {request.line.split()[1]} {request.field('x-forwarded-proto')}".encode())
        cls.enterClassContext(Raw(path=str(folder / "app.sock"), answer=app))
        os.chmod(folder / "app.sock", 0o666)
        if php_fpm():
            cls.addClassCleanup(Fpm(folder).close)
        if ROOTLESS and os.geteuid() == 0:
            for path in [folder, *folder.rglob("*")]:
                shutil.chown(path, 65534, 65534)
        cls.enterClassContext(cls.server)

    @classmethod
    def configuration(cls, port):
        text = CONFIG.read_text()
        changed = text.replace("127.0.0.1:8080", f"127.0.0.1:{port}").replace("127.0.0.1:8443", f"127.0.0.1:{cls.tls}")
        assert changed.count("127.0.0.1:") == text.count("127.0.0.1:") and changed != text
        return changed

    def curl(self, host, target="/", *words, scheme="https"):
        """The status, the fields by their names, and the body."""
        port = self.tls if scheme == "https" else self.server.port
        command = [
            "curl", "-s", "-k", "--max-time", "10", "--resolve", f"{host}:{port}:127.0.0.1", "-D", "/dev/stderr", *words,
            f"{scheme}://{host}:{port}{target}",
        ]
        done = subprocess.run(command, capture_output=True, timeout=20, check=True)
        first, *lines = done.stderr.decode().strip().splitlines()
        fields = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        return int(first.split()[1]), fields, done.stdout

    def test_plaintext_leads_to_tls(self):
        status, fields, _ = self.curl("a.test", "/new/x.html?y", scheme="http")
        self.assertIn(status, (301, 308))
        self.assertEqual(fields["location"], f"https://a.test:{self.tls}/new/x.html?y")

    def test_files(self):
        status, fields, body = self.curl("www.a.test", "/", "-H", "Accept-Encoding: gzip;q=0.5, br")
        self.assertEqual((status, fields["content-encoding"]), (200, "br"))
        self.assertLess(len(body), 200)
        self.assertIn("max-age=300", fields["cache-control"])
        self.assertIn("s-maxage=900", fields["cache-control"])
        self.assertEqual(fields["strict-transport-security"], "max-age=31536000; includeSubDomains")
        self.assertEqual(self.curl("b.test")[2], b"b\n")

    def test_error_page_and_redirect(self):
        status, _, body = self.curl("a.test", "/nothing")
        self.assertEqual((status, body), (404, b"no such page\n"))
        status, fields, _ = self.curl("a.test", "/old/x.html")
        self.assertEqual(status, 301)
        self.assertTrue(fields["location"].endswith("/new/x.html"), fields)

    def test_upstream(self):
        for version in ("--http1.1", "--http2"):
            status, _, body = self.curl("a.test", "/app/y?z", version)
            self.assertEqual((status, body), (200, b"app /app/y?z https"))

    @unittest.skipUnless(php_fpm(), "php-fpm is not installed")
    def test_php(self):
        status, _, body = self.curl("a.test", "/hello.php")
        self.assertEqual((status, body), (200, b"from php 42"))

    def test_a_new_folder_is_a_new_site(self):
        self.assertEqual(self.curl("one.test")[2], b"one\n")
        self.assertEqual(self.curl("two.test")[0], 404)
        self.server.write("vhosts/two.test/index.html", "two\n")
        self.assertTrue(until(lambda: self.curl("two.test")[2] == b"two\n", 5))

    def test_certificates(self):
        def whose(name, *words):
            command = ["openssl", "s_client", "-connect", f"127.0.0.1:{self.tls}", "-servername", name, *words]
            done = subprocess.run(command, input="", capture_output=True, text=True, timeout=20, check=False)
            return next((line for line in done.stdout.splitlines() if line.startswith("subject=")), None)

        self.assertEqual(whose("a.test"), "subject=CN = a-ecdsa")
        self.assertEqual(whose("a.test", "-tls1_2", "-cipher", "ECDHE-RSA-AES128-GCM-SHA256"), "subject=CN = a-rsa")
        self.assertEqual(whose("b.test"), "subject=CN = b")
        self.assertEqual(whose("one.test"), "subject=CN = wildcard")


if __name__ == "__main__":
    unittest.main()
