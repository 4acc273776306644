"""curl against the server, over every pair of a TLS version and an HTTP version."""

import hashlib
import json
import os
import random
import unittest

from secured import TLS, ours, run, serve

LARGE = random.Random(5).randbytes(3_000_000)
WRITE = "%{http_code} %{http_version} %{ssl_verify_result} %{num_connects}\\n"
PAIRS = [(tls, http) for tls in ("1.2", "1.3") for http in ("1.1", "2")]


def options(tls, http):
    """What makes curl use just these versions."""
    return (f"--tlsv{tls}", "--tls-max", tls, f"--http{http}")


@unittest.skipUnless(TLS, "this build has no TLS")
class Curl(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(serve(files={"large.bin": LARGE}))

    def test_a_page(self):
        for tls, http in PAIRS:
            with self.subTest(tls=tls, http=http):
                told = self.server.curl(*options(tls, http), "-w", WRITE)
                self.assertEqual(told.stdout, f"<h1>main</h1>\n200 {http} 0 1\n")

    def test_head_and_status(self):
        for tls, http in PAIRS:
            with self.subTest(tls=tls, http=http):
                told = self.server.curl(*options(tls, http), "-I", "-o", os.devnull, "-w", WRITE)
                self.assertEqual(told.stdout, f"200 {http} 0 1\n")
                told = self.server.curl(*options(tls, http), "-o", os.devnull, "-w", WRITE, target="/no-such-page")
                self.assertEqual(told.stdout, f"404 {http} 0 1\n")

    def test_a_large_file(self):
        for tls, http in PAIRS:
            with self.subTest(tls=tls, http=http):
                path = self.server.folder / "fetched"
                told = self.server.curl(*options(tls, http), "-o", path, "-w", WRITE, target="/large.bin")
                self.assertEqual(told.stdout, f"200 {http} 0 1\n")
                self.assertEqual(hashlib.sha256(path.read_bytes()).digest(), hashlib.sha256(LARGE).digest())

    def test_a_part_of_a_file(self):
        for tls, http in PAIRS:
            with self.subTest(tls=tls, http=http):
                path = self.server.folder / "fetched"
                asked = ("-r", "1000000-1999999", "-o", path, "-w", WRITE)
                told = self.server.curl(*options(tls, http), *asked, target="/large.bin")
                self.assertEqual(told.stdout, f"206 {http} 0 1\n")
                self.assertEqual(path.read_bytes(), LARGE[1_000_000:2_000_000])

    def test_one_connection_for_many(self):
        for tls, http in PAIRS:
            with self.subTest(tls=tls, http=http):
                told = self.server.curl(*options(tls, http), "-o", os.devnull, "-w", WRITE, target="/?[1-20]")
                self.assertEqual(told.stdout.split("\n")[1:-1], [f"200 {http} 0 0"] * 19)

    def test_at_once(self):
        path = self.server.folder / "many"
        path.mkdir()
        asked = ("--parallel", "--parallel-immediate", "--parallel-max", "50", "-o", f"{path}/#1")
        told = self.server.curl(*options("1.3", "2"), *asked, target="/large.bin?[1-30]")
        self.assertEqual(told.returncode, 0, told.stdout)
        self.assertEqual([len(file.read_bytes()) for file in path.iterdir()], [len(LARGE)] * 30)

    def test_hsts(self):
        for tls, http in PAIRS:
            with self.subTest(tls=tls, http=http):
                told = self.server.curl(*options(tls, http), "-D", "-", "-o", os.devnull)
                self.assertIn("strict-transport-security: max-age=31536000", told.stdout.lower())
        self.assertNotIn("strict-transport-security", self.server.get("/").headers)

    @ours
    def test_a_service(self):
        sent = self.server.write("sent", b"x" * 300_000)
        for tls, http in PAIRS:
            with self.subTest(tls=tls, http=http):
                told = self.server.curl(*options(tls, http), "--data-binary", f"@{sent}", target="/probe/echo?a=b")
                report = json.loads(told.stdout)
                self.assertEqual((report["method"], report["query"], report["body_length"]), ("POST", "a=b", 300_000))
                self.assertIn(["x-forwarded-proto", "https"], report["headers"])

    def test_a_body_that_nobody_wants(self):
        """The answer comes before the body has: it must not be lost for that."""
        for size in (3, 300_000):
            sent = self.server.write("unwanted", b"x" * size)
            for tls, http in PAIRS:
                with self.subTest(tls=tls, http=http, size=size):
                    for _ in range(20):
                        told = self.server.curl(*options(tls, http), "--data-binary", f"@{sent}", "-o", os.devnull, "-w", WRITE)
                        self.assertIn(f"405 {http}", told.stdout)

    def test_not_its_host(self):
        # The name in the ClientHello is one of ours, the one in the request is not.
        for http in ("1.1", "2"):
            with self.subTest(http=http):
                asked = ("-H", "Host: other.test", "-o", os.devnull, "-w", "%{http_code}")
                told = self.server.curl(*options("1.3", http), *asked)
                self.assertIn(told.stdout, ("404", "421"))

    def test_old_versions(self):
        for version in ("1.0", "1.1"):
            with self.subTest(version=version):
                asked = ("--ciphers", "DEFAULT:@SECLEVEL=0", f"--tlsv{version}", "--tls-max", version)
                told = self.server.curl(*asked, "-w", WRITE)
                self.assertEqual(told.returncode, 35, told.stdout)

    def test_plaintext_where_tls_is_spoken(self):
        told = run("curl", "-sS", "--max-time", "10", "-w", "%{http_code}", f"http://127.0.0.1:{self.server.tls_port}/")
        self.assertTrue(told.stdout.endswith("400"), told.stdout)


if __name__ == "__main__":
    unittest.main()
