"""Certificates of clients, made by OpenSSL: who is let in, and who is told what they say."""

import base64
import calendar
import hashlib
import json
import shutil
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

import pytest

import backend
from client import until
from issuer import Issuer
from tls_server import Tls, certificate, client_certificate, insecure, openssl

SHOWN = """
client_ca = "clients.pem"
client_certificates = "{demand}"

  [[site.service]]
  name = "probe"
  path = "/probe"
  command = ["bin/probe"]

  [[site.route]]
  path = "/up/"
  upstream = "{up}"

  [[site.route]]
  suffix = ".php"
  fastcgi = "{php}"
"""

#: A script that tells what it is told of a certificate.
SCRIPT = """<?php foreach ($_SERVER as $key => $value)
if (str_starts_with($key, "SSL_") || str_contains($key, "CERT")) echo "$key=", json_encode($value), "\n";
"""


class Clients(unittest.TestCase):
    def test_a_site_may_ask_for_certificates_of_its_clients(self):
        server = Tls(more='client_ca = "clients.pem"')
        cert, _ = certificate(server.keys, "clients", "ec", "clients.test")
        certificate(server.keys, "others", "ec", "clients.test")
        server.write("clients.pem", cert)

        def get(authority=None):
            context = insecure()
            if authority:
                context.load_cert_chain(server.write("pair", client_certificate(server.keys, "me", authority)))
            try:
                return server.get_tls("b.test", context=context)
            except OSError:
                return b""

        with server:
            self.assertIn(b" 200 OK", server.get_tls("a.test"), "another site asks for none")
            self.assertEqual(get(), b"")
            self.assertIn(b" 200 OK", get("clients"))
            self.assertEqual(get("others"), b"")

    def test_authorities_are_read_again_when_they_change(self):
        server = Tls(more='client_ca = "clients.pem"')
        old, _ = certificate(server.keys, "clients", "ec", "clients.test")
        new, _ = certificate(server.keys, "others", "ec", "clients.test")
        server.write("clients.pem", old)
        pairs = {name: server.write(f"{name}.pair", client_certificate(server.keys, "me", name)) for name in ("clients", "others")}
        place = server.folder / "clients.pem"

        def passes(name, *words):
            said = server.s_client("b.test", "-tls1_3", "-ign_eof", "-cert", pairs[name], "-key", pairs[name], *words)
            return " 421 Misdirected" in said, "Reused, TLSv1.3" in said

        with server:
            site = server.process("site b")
            session = server.folder / "session"
            self.assertEqual(passes("clients", "-sess_out", session), (True, False))
            self.assertEqual(passes("clients", "-sess_in", session), (True, True), "a session is taken up")
            self.assertEqual(passes("others"), (False, False))
            # What is wrong is told, with its place, and changes nothing.
            for content, what in (
                (b"nothing\n", "there is no certificate in it"), (old[:200], "certificate 1 of it is broken"),
                (old + new.replace(b"MII", b"AAA", 1), "certificate 2 of it is broken"),
            ):
                server.write("clients.pem", content)
                told = f"`client_ca` {place} has changed, and what it said before still holds: {what}"
                self.assertTrue(until(lambda: told in server.log(), 10), server.log())
                self.assertEqual(passes("clients"), (True, False))
            server.write("clients.pem", new)
            self.assertTrue(until(lambda: passes("others")[0], 10))
            in_use = f"`client_ca` {place} has changed and is in use"
            self.assertTrue(until(lambda: in_use in server.log(), 5), server.log())
            self.assertEqual(passes("clients"), (False, False))
            # SECURITY: a ticket stands for a certificate, which would not be checked again.
            self.assertEqual(passes("clients", "-sess_in", session), (False, False))
            self.assertEqual(server.process("site b"), site, "the site's worker is the same")
            # The next worker begins with what holds now.
            server.relaunch("b")
            self.assertEqual((passes("others")[0], passes("clients")[0]), (True, False))


class Revoked(unittest.TestCase):
    """Lists of what authorities have revoked."""

    def begin(self, settings="", demand="require", **lists):
        """A server whose site `b` trusts the root, by the lists `root` and `middle`."""
        names = ", ".join(f'"{name}.crl"' for name in lists or ("root", "middle"))
        more = f'client_ca = "clients.pem"\nclient_crl = [{names}]\nclient_certificates = "{demand}"\n'
        self.server = server = Tls(more=more, settings=settings)
        self.root = Issuer(server.keys, "root")
        self.middle = Issuer(server.keys, "middle", self.root)
        self.near, self.bad, self.far = self.root.client("near"), self.root.client("bad"), self.middle.client("far")
        self.root.revoke(self.root.folder / "bad.crt")
        server.write("clients.pem", self.root.cert)
        lists = lists or {"root": self.root.crl(), "middle": self.middle.crl("DER")}
        for name, content in lists.items():
            server.write(f"{name}.crl", content)
        return server

    def passes(self, pair, *words, version="-tls1_3"):
        shown = ["-cert", pair, "-key", pair, "-cert_chain", pair] if pair else []
        said = self.server.s_client("b.test", version, "-ign_eof", *shown, *words)
        return " 421 Misdirected" in said, "Reused, TLSv1." in said

    def lets_in(self, pair, version="-tls1_3"):
        return self.passes(pair, version=version)[0]

    def becomes(self, name, content, what="has changed and is in use"):
        """Writes a list, and waits for what becomes of it."""
        told = f"`client_crl` {self.server.folder / name} {what}"
        before = self.server.log().count(told)
        self.server.write(name, content)
        self.assertTrue(until(lambda: self.server.log().count(told) > before, 20), self.server.log())

    def test_who_is_revoked_is_refused(self):
        with self.begin():
            for version in ("-tls1_2", "-tls1_3"):
                with self.subTest(version):
                    who = (self.near, self.bad, self.far, None)
                    self.assertEqual([self.lets_in(pair, version) for pair in who], [True, False, True, False])

    def test_who_need_not_show_one_must_not_show_a_revoked_one(self):
        with self.begin(demand="request"):
            who = (self.near, self.bad, self.far, None)
            self.assertEqual([self.lets_in(pair) for pair in who], [True, False, True, True])

    def check_reread(self, resumption):
        with self.begin(f'resumption = "{resumption}"') as server:
            site = server.process("site b")
            for version in ("-tls1_2", "-tls1_3"):
                # Those before were revoked for good.
                name = f"late{version}"
                late = self.root.client(name)
                kept = server.keys / "session"
                kept.unlink(missing_ok=True)
                resumes = lambda: self.passes(late, "-sess_in", kept, version=version)
                self.assertEqual(self.passes(late, "-sess_out", kept, version=version), (True, False))
                self.assertEqual(resumes(), (True, True), "a session is taken up")
                self.root.revoke(self.root.folder / f"{name}.crt")
                self.becomes("root.crl", self.root.crl())
                self.assertFalse(self.lets_in(late, version))
                self.assertEqual(resumes()[0], False, "a session of who is revoked is none")
                # SECURITY: not even with the session alone.
                alone = self.passes(None, "-sess_in", kept, version=version)
                self.assertEqual(alone, (False, False))
                self.assertTrue(self.lets_in(self.near, version))
            self.assertEqual(server.process("site b"), site, "the site's worker is the same")

    def test_a_list_that_changes_revokes_at_once_tickets_as_well(self):
        self.check_reread("tickets")

    def test_a_list_that_changes_revokes_at_once_remembered_sessions_as_well(self):
        self.check_reread("stateful")

    def test_an_authority_in_between_is_revoked(self):
        with self.begin():
            self.assertTrue(self.lets_in(self.far))
            self.root.revoke(self.middle.folder / "ca.crt")
            self.becomes("root.crl", self.root.crl())
            self.assertEqual([self.lets_in(pair) for pair in (self.near, self.far)], [True, False])

    def test_without_a_list_nothing_is_known(self):
        server = self.begin(root=b"")
        server.write("root.crl", self.root.crl())
        with server:
            # Nothing says that what `middle` has signed is not revoked.
            self.assertEqual([self.lets_in(pair) for pair in (self.near, self.far)], [True, False])

    def test_a_list_that_somebody_else_has_signed(self):
        with self.begin() as server:
            forger = Issuer(server.keys / "root", "root")
            self.becomes("root.crl", forger.crl())
            self.assertFalse(self.lets_in(self.near))

    @pytest.mark.slow
    def test_a_list_that_is_over(self):
        with self.begin() as server:
            over = f"`client_crl` {server.folder}/root.crl: a list in it is out of date"
            kept = server.keys / "session"
            # It ends while it is in use, and what was let in by it is let in no more.
            self.becomes("root.crl", self.root.crl(hold=("-crlsec", "15")))
            self.assertEqual(self.passes(self.near, "-sess_out", kept), (True, False))
            self.assertTrue(until(lambda: over in server.log(), 60), server.log())
            self.assertTrue(until(lambda: not self.passes(self.near, "-sess_in", kept)[0], 10))
            self.assertFalse(self.lets_in(self.near))
            # The next worker begins with it, and says so.
            server.relaunch("b")
            self.assertTrue(until(lambda: server.log().count(over) == 2, 10), server.log())
            self.assertFalse(self.lets_in(self.near))
            self.becomes("root.crl", self.root.crl())
            self.assertTrue(self.lets_in(self.near))

    def test_a_newer_list_counts_wherever_it_is(self):
        with self.begin() as server:
            old = self.root.crl()
            self.root.revoke(self.root.folder / "near.crt")
            time.sleep(1.1)
            new = self.root.crl()
            for both in (old + new, new + old):
                self.becomes("root.crl", both)
                self.assertFalse(self.lets_in(self.near))

    def test_a_file_that_is_wrong_changes_nothing(self):
        with self.begin() as server:
            good = self.root.crl()
            first = self.root.folder / "crlnumber"
            for content, what in (
                (b"nothing\n", "there is no list in it"),
                (good[:200], "list 1 of it: its PEM is not whole"),
                (good + good.replace(b"CRL-----\nM", b"CRL-----\nA", 1), "list 2 of it: it is broken"),
                (self.root.crl("DER")[:-1], "it is broken"),
                (self.root.cert, "there is no list in it"),
            ):
                with self.subTest(what):
                    self.becomes("root.crl", content, f"has changed, and what it said before still holds: {what}")
                    self.assertEqual([self.lets_in(pair) for pair in (self.near, self.bad)], [True, False])
            # Of version 1: what has no number.
            settings = self.root.settings.read_text()
            self.root.settings.write_text(settings.replace(f"crlnumber = {first}\n", ""))
            self.becomes("root.crl", self.root.crl(), "has changed, and what it said before still holds: list 1 of it: it is of version 1")
            self.assertEqual([self.lets_in(pair) for pair in (self.near, self.bad)], [True, False])


class Shown(unittest.TestCase):
    """What a client's certificate says reaches who answers for the site; what a client says of itself does not."""

    def setUp(self):
        self.behind = backend.Raw(answer=lambda request: backend.response(request.head))
        self.addCleanup(self.behind.close)
        place = Path(tempfile.mkdtemp(prefix="bulkhead-php-", dir="/tmp"))
        place.chmod(0o755)
        self.addCleanup(shutil.rmtree, place, True)
        self.php = backend.Fpm(place) if backend.php_fpm() else None
        if self.php:
            self.addCleanup(self.php.close)

    def begin(self, demand):
        php = f"unix:{self.php.socket}" if self.php else "unix:/nothing"
        more = SHOWN.format(demand=demand, up=self.behind.at, php=php)
        server = Tls(more=more, conditioning="lenient")
        server.copy_program("probe")
        server.write("b/shown.php", SCRIPT)
        ca, _ = certificate(server.keys, "clients", "ec", "clients.test")
        certificate(server.keys, "others", "ec", "clients.test")
        server.write("clients.pem", ca)
        self.pairs = {}
        for authority in ("clients", "others"):
            self.pairs[authority] = server.keys / f"{authority}.pair"
            self.pairs[authority].write_bytes(client_certificate(server.keys, "ann", authority))
            (server.keys / f"{authority}.ann").write_bytes((server.keys / "ann.crt").read_bytes())
        self.own = server.keys / "clients.ann"
        return self.enterContext(server)

    def ask(self, server, path, authority=None, *words, scheme="https"):
        """The body of the answer; nothing if the handshake fails."""
        forged = base64.b64encode(openssl("x509", "-in", self.own, "-outform", "DER")).decode()
        lies = ["-H", f"Client-Cert: :{forged}:", "-H", "client-cert-chain: :AAAA:", "-H", "SSL-Client-Verify: SUCCESS"]
        shown = ["--cert", self.pairs[authority]] if authority else []
        port = "{tls}" if scheme == "https" else "{port}"
        status, body = server.curl(f"{scheme}://b.test:{port}{path}", *lies, *shown, *words)
        return body if status == 0 else ""

    def header(self):
        return ":" + base64.b64encode(openssl("x509", "-in", self.own, "-outform", "DER")).decode() + ":"

    def said(self, head):
        """What a head, as the server behind the site has got it, says of certificates."""
        lines = [line.split(": ", 1) for line in head.splitlines()[1:] if ": " in line]
        return {name.lower(): value for name, value in lines if "cert" in name.lower()}

    def check_nobody(self, server, **more):
        told = json.loads(self.ask(server, "/probe/echo", **more))
        self.assertIsNone(told["certificate"])
        self.assertEqual([name for name, _ in told["headers"] if "cert" in name], [])
        self.assertEqual(self.said(self.ask(server, "/up/", **more)), {})
        if self.php:
            verify = "" if more.get("scheme") == "http" else 'SSL_CLIENT_VERIFY="NONE"\n'
            self.assertEqual(self.ask(server, "/shown.php", **more), verify)

    def check_ann(self, server):
        fingerprint = hashlib.sha256(openssl("x509", "-in", self.own, "-outform", "DER")).hexdigest()
        serial = openssl("x509", "-in", self.own, "-noout", "-serial").decode().strip().split("=")[1]
        until_text = openssl("x509", "-in", self.own, "-noout", "-enddate").decode().strip().split("=")[1]
        until_time = calendar.timegm(time.strptime(until_text, "%b %d %H:%M:%S %Y GMT"))
        left_out = self.ask(server, "/probe/echo", "clients", "--http1.1", "-H", "Connection: client-cert")
        self.assertIn("400 Bad Request", left_out)
        for words in (["--http1.1"], ["--http2"]):
            told = json.loads(self.ask(server, "/probe/echo", "clients", *words))
            expected = {"subject": "CN=ann", "issuer": "CN=clients", "serial": serial, "fingerprint": fingerprint, "not_after": until_time}
            self.assertEqual(told["certificate"], expected)
            self.assertEqual(self.said(self.ask(server, "/up/", "clients", *words)), {"client-cert": self.header()})
            if not self.php:
                continue
            lines = dict(line.split("=", 1) for line in self.ask(server, "/shown.php", "clients", *words).splitlines())
            found = {name: json.loads(value) for name, value in lines.items()}
            self.assertEqual(found.pop("SSL_CLIENT_CERT").split(), self.own.read_text().split())
            self.assertEqual(found, {
                "SSL_CLIENT_VERIFY": "SUCCESS", "SSL_CLIENT_S_DN": "CN=ann", "SSL_CLIENT_I_DN": "CN=clients",
                "SSL_CLIENT_SERIAL": serial, "SSL_CLIENT_M_SERIAL": serial, "SSL_CLIENT_V_END": until_text,
                "SSL_CLIENT_FINGERPRINT_SHA256": fingerprint, "HTTP_CLIENT_CERT": self.header(),
            })

    def test_who_may_show_one(self):
        server = self.begin("request")
        self.check_ann(server)
        self.check_nobody(server)
        self.assertEqual(self.ask(server, "/probe/echo", "others"), "", "one that is wrong is worse than none")

    def test_who_must_show_one(self):
        server = self.begin("require")
        self.check_ann(server)
        for authority in (None, "others"):
            self.assertEqual(self.ask(server, "/probe/echo", authority), "")

    def test_a_session_that_is_taken_up_is_still_anns(self):
        server = self.begin("require")
        session, pair = server.folder / "session", self.pairs["clients"]
        request = "GET /probe/echo HTTP/1.1\r\nHost: b.test\r\nConnection: close\r\n\r\n"
        for version in ("-tls1_3", "-tls1_2"):
            for words in (["-sess_out", session, "-cert", pair, "-key", pair], ["-sess_in", session]):
                command = ["openssl", "s_client", "-connect", f"127.0.0.1:{server.tls}", "-servername", "b.test", version, "-ign_eof"]
                said = subprocess.run([*command, *words], input=request, capture_output=True, text=True, timeout=20, check=False).stdout
                self.assertEqual("Reused, TLSv1" in said, "-sess_in" in words, said)
                self.assertIn('"subject":"CN=ann"', said)

    def test_nobody_says_so_in_plaintext(self):
        server = self.begin("request")
        # `b` is on the listener without TLS as well, which redirects; what is asked without a redirection is.
        text = server.config.read_text().replace("redirect_to_https = true\n", "")
        self.assertNotIn("redirect_to_https", text)
        server.stop()
        server.config.write_text(text)
        server.start()
        self.check_nobody(server, scheme="http")
