"""openssl s_client against the server: versions, groups, signatures, names, resumption, the end of a connection."""

import contextlib
import re
import subprocess
import time
import unittest

from client import until
from harness import free_port
from secured import TLS, certificates, must, ours, run, serve

REQUEST = "GET / HTTP/1.1\r\nHost: main.test\r\nConnection: close\r\n\r\n"
#: Cipher suites that no server of today should speak, for a client that would.
WEAK = ("AES128-SHA", "AES256-GCM-SHA384", "ECDHE-RSA-AES128-SHA", "ECDHE-ECDSA-AES256-SHA384", "DHE-RSA-AES128-GCM-SHA256",
        "NULL-SHA256", "ADH-AES128-GCM-SHA256", "PSK-AES128-GCM-SHA256")
STRONG = ("ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-ECDSA-CHACHA20-POLY1305",
          "ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-RSA-CHACHA20-POLY1305")


def told(text, pattern):
    found = re.search(pattern, text)
    return found.group(1).strip() if found else None


def version(text):
    """The version that was agreed on, None if there was no handshake."""
    found = told(text, r"(?m)^New, (\S+), Cipher is (?!\(NONE\))") or told(text, r"(?m)^Reused, (\S+), Cipher is")
    return found and (told(text, r"Protocol\s*: (\S+)") or found)


@unittest.skipUnless(TLS, "this build has no TLS")
class OpenSsl(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(serve())

    def ask(self, *words, request=REQUEST):
        return self.server.s_client(*words, request=request).stdout

    def test_versions(self):
        for flag, name in (("-tls1_2", "TLSv1.2"), ("-tls1_3", "TLSv1.3")):
            with self.subTest(name):
                text = self.ask(flag)
                self.assertEqual(version(text), name, text)
                self.assertIn("Verify return code: 0 (ok)", text)
                self.assertIn("<h1>main</h1>", text)
        for flag in ("-tls1", "-tls1_1"):
            with self.subTest(flag):
                text = self.ask(flag, "-cipher", "ALL:@SECLEVEL=0", request="")
                self.assertIsNone(version(text), text)

    def test_groups(self):
        for flag in ("-tls1_2", "-tls1_3"):
            for group in ("X25519", "P-256", "P-384"):
                with self.subTest(group, version=flag):
                    text = self.ask(flag, "-groups", group)
                    self.assertIn("<h1>main</h1>", text)
                    self.assertIn(told(text, r"Server Temp Key: (?:ECDH, )?([\w-]+)"), (group, "prime256v1", "secp384r1"))

    def test_the_hybrid_group(self):
        if "X25519MLKEM768" not in run("openssl", "list", "-all-tls-groups").stdout:
            self.skipTest("this openssl does not know X25519MLKEM768; Chromium's test sees it")
        text = self.ask("-tls1_3", "-groups", "X25519MLKEM768")
        self.assertIn("<h1>main</h1>", text)

    def test_a_group_that_is_asked_for_anew(self):
        # The client's first key share is of a group that the server does not take: HelloRetryRequest.
        text = self.ask("-tls1_3", "-groups", "P-521:P-256")
        self.assertIn("<h1>main</h1>", text)

    def test_application_protocols(self):
        for offered, agreed in (("h2,http/1.1", "h2"), ("http/1.1,h2", ("h2", "http/1.1")), ("http/1.1", "http/1.1"), ("h2", "h2")):
            with self.subTest(offered):
                text = self.ask("-alpn", offered, request="")
                self.assertIn(told(text, r"ALPN protocol: (\S+)"), agreed)
        # RFC 7301 3.2: no_application_protocol, or no word of one at all.
        text = self.ask("-alpn", "gopher", request="")
        self.assertTrue("No ALPN negotiated" in text or "no application protocol" in text, text)

    def test_certificates_by_what_the_client_verifies(self):
        for signatures, kind in (("ECDSA+SHA256", "ecdsa"), ("RSA-PSS+SHA256", "rsa"), ("RSA-PSS+SHA256:ECDSA+SHA256", "ecdsa")):
            for flag in ("-tls1_2", "-tls1_3"):
                with self.subTest(signatures, version=flag):
                    # The whole chain is signed by ECDSA, which only matters to those who take signature_algorithms for
                    # it.
                    text = self.ask(flag, "-sigalgs", signatures, "-showcerts", request="")
                    certificate = (certificates() / f"{kind}.crt").read_text().strip().split("\n")
                    lines = [line for line in certificate if line and not line.startswith("-")]
                    self.assertIn(lines[3], text, f"it is not the {kind} certificate")

    def test_ciphers_of_tls_1_2(self):
        for cipher in STRONG:
            with self.subTest(cipher):
                self.assertIn(f"Cipher is {cipher}", self.ask("-tls1_2", "-cipher", cipher, request=""))
        for cipher in WEAK:
            with self.subTest(cipher):
                text = self.ask("-tls1_2", "-cipher", f"{cipher}:@SECLEVEL=0", request="")
                self.assertTrue("Cipher is (NONE)" in text or "no ciphers available" in text or "no cipher match" in text, text)

    def test_aes_128_is_preferred_and_no_client_has_to_speak_it(self):
        # OpenSSL prefers AES-256 itself.
        for flag, preferred in (("-tls1_3", "TLS_AES_128_GCM_SHA256"), ("-tls1_2", "ECDHE-ECDSA-AES128-GCM-SHA256")):
            with self.subTest(preferred):
                self.assertIn(f"Cipher is {preferred}", self.ask(flag, request=""))
        for suite in ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"):
            with self.subTest(suite):
                text = self.ask("-tls1_3", "-ciphersuites", suite)
                self.assertIn(f"Cipher is {suite}", text)
                self.assertIn("<h1>main</h1>", text)

    def test_the_end_is_announced(self):
        for flag in ("-tls1_2", "-tls1_3"):
            with self.subTest(flag):
                done = self.server.s_client(flag, request=REQUEST)
                self.assertNotIn("unexpected eof", done.stdout)
                self.assertEqual(done.returncode, 0, done.stdout)

    def test_no_renegotiation(self):
        # A line of just R makes s_client ask for a renegotiation.
        text = self.renegotiate()
        self.assertIn("RENEGOTIATING", text)
        self.assertNotIn("<h1>main</h1>", text.split("RENEGOTIATING")[1])

    def renegotiate(self):
        words = ["openssl", "s_client", "-connect", f"127.0.0.1:{self.server.tls_port}", "-servername", "main.test", "-tls1_2"]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            time.sleep(0.5)
            process.stdin.write("R\n")
            process.stdin.flush()
            time.sleep(0.5)
            with contextlib.suppress(OSError):
                process.stdin.write(REQUEST)
            try:
                return process.communicate(timeout=10)[0]
            except subprocess.TimeoutExpired:
                process.kill()
                return process.communicate()[0]

    def test_secure_renegotiation_and_extended_master_secret(self):
        text = self.ask("-tls1_2")
        self.assertIn("Secure Renegotiation IS supported", text)
        self.assertIn("Extended master secret: yes", text)
        self.assertIn("Compression: NONE", text)

    def test_unknown_name(self):
        text = self.server.s_client("-servername", "unknown.test", request=REQUEST).stdout
        self.assertIn("unrecognized name", text)

    def resume(self, flag, before=lambda: None):
        """Whether the second of two connections resumes the first one's session."""
        session = self.server.folder / "session"
        session.unlink(missing_ok=True)
        first = self.ask(flag, "-sess_out", session)
        self.assertIn("New, TLS", first)
        self.assertTrue(session.exists(), first)
        before()
        second = self.ask(flag, "-sess_in", session)
        self.assertIn("<h1>main</h1>", second)
        return "Reused, TLS" in second

    def test_resumption(self):
        for flag in ("-tls1_2", "-tls1_3"):
            with self.subTest(flag):
                self.assertTrue(self.resume(flag))

    @ours
    def test_resumption_with_another_worker(self):
        def kill():
            worker = self.server.process("site main")
            worker.kill()
            self.assertTrue(until(lambda: not worker.alive, 5))

        for flag in ("-tls1_2", "-tls1_3"):
            with self.subTest(flag):
                self.assertTrue(self.resume(flag, kill), "not resumed after the worker was killed")

    @ours
    def test_records_that_do_not_decrypt(self):
        """One byte of the handshake is changed on its way: an alert, and the server goes on."""
        from tampering import tampered

        for kind in ("handshake", "request"):
            with self.subTest(kind):
                self.assertIn(tampered(self.server, kind), ("alert", "closed"))
        self.assertIn("<h1>main</h1>", self.ask("-tls1_3"))


@unittest.skipUnless(TLS, "this build has no TLS")
class Stapling(unittest.TestCase):
    """A certificate that names a responder, which is `openssl ocsp`."""

    @ours
    def test_the_response_is_stapled(self):
        port = free_port()
        with served_with_responder(port) as server:
            stapled = lambda: "OCSP Response Status: successful" in server.s_client("-status", request=REQUEST).stdout
            self.assertTrue(until(stapled, 15, 0.5), "no OCSP response is stapled")
            text = server.s_client("-status", request=REQUEST).stdout
            self.assertIn("Cert Status: good", text)
            self.assertIn("Verify return code: 0 (ok)", text)
            # curl checks who has signed it, for which certificate, and when.
            self.assertIn("<h1>main</h1>", server.curl("--cert-status").stdout)

    @ours
    def test_a_dead_responder_delays_nothing(self):
        with served_with_responder(free_port(), alive=False) as server:
            began = time.monotonic()
            text = server.s_client("-status", request=REQUEST).stdout
            self.assertIn("<h1>main</h1>", text)
            self.assertLess(time.monotonic() - began, 2)


@contextlib.contextmanager
def served_with_responder(port, alive=True):
    """A server whose certificate names a responder at this port."""
    folder = certificates()
    extensions = folder / "extensions-ocsp"
    extensions.write_text((folder / "extensions").read_text() + f"authorityInfoAccess=OCSP;URI:http://127.0.0.1:{port}\n")
    made = folder / "stapled.crt"
    must(
        "openssl", "x509", "-req", "-in", folder / "ecdsa.csr", "-CA", folder / "ca.pem", "-CAkey", folder / "ca.key",
        "-days", "300", "-set_serial", "4660", "-extfile", extensions, "-out", made,
    )
    whole = (folder / "ecdsa.key").read_text() + made.read_text() + (folder / "ca.pem").read_text()
    index = folder / "index.txt"
    index.write_text("V\t350101000000Z\t\t1234\tunknown\t/CN=main.test\n")
    words = ["openssl", "ocsp", "-port", str(port), "-index", index, "-CA", folder / "ca.pem", "-rsigner", folder / "ca.pem",
             "-rkey", folder / "ca.key", "-nmin", "60"]
    responder = subprocess.Popen(
        [str(word) for word in words], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) if alive else None
    try:
        if responder and "waiting" not in responder.stderr.readline():
            raise AssertionError("openssl ocsp does not come up")
        with serve(certificate=whole, tls={"ocsp_ports": [port]}) as server:
            yield server
    finally:
        if responder:
            responder.kill()
            responder.communicate()


if __name__ == "__main__":
    unittest.main()
