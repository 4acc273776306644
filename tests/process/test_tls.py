"""TLS, with curl and OpenSSL as clients: names and certificates, resumption, the signer, and what is no TLS."""

import base64
import calendar
import hashlib
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import unittest
from pathlib import Path

import backend
import client
from client import until
from harness import ROOTLESS, Server, free_port, rootless_too, wait_for_time

CONFIG = """
[[listen]]
address = "127.0.0.1:{port}"
redirect_to_https = true

[[listen]]
address = "127.0.0.1:{tls}"
tls = true

[server]
gates = 2

[log]
flush = "100ms"

[conditioning]
checks = "{conditioning}"

[tls]
reread = "1s"
tamper_exempt = []
{settings}

[[site]]
name = "a"
host = ["a.test", "*.a.test"]
root = "a"
certificates = ["a-ecdsa.pem", "a-rsa.pem", "a-wildcard.pem"]

[[site]]
name = "b"
host = ["b.test"]
root = "b"
certificates = ["b.pem"]
{more}

[[site]]
name = "plain"
host = ["plain.test"]
root = "plain"
"""

KINDS = {"ec": ["ec", "-pkeyopt", "ec_paramgen_curve:P-256"], "rsa": ["rsa:2048"], "ed25519": ["ed25519"]}


def openssl(*words, **more):
    return subprocess.run(["openssl", *words], check=True, capture_output=True, timeout=20, **more).stdout


def certificate(folder, name, kind, *hosts):
    """A self-signed certificate, with its key, in one file; the key alone in another, which no configuration names."""
    key, cert = folder / f"{name}.key", folder / f"{name}.crt"
    openssl(
        "req", "-x509", "-newkey", *KINDS[kind], "-nodes", "-days", "2", "-subj", f"/CN={name}", "-keyout", key,
        "-out", cert, "-addext", "subjectAltName=" + ",".join(f"DNS:{host}" for host in hosts),
    )
    return cert.read_bytes(), key.read_bytes()


def client_certificate(folder, name, authority):
    """A client's certificate with its key, signed by the certificate AUTHORITY of the folder."""
    key, asked, cert = (folder / f"{name}.{end}" for end in ("key", "csr", "crt"))
    subject = ["-subj", f"/CN={name}"]
    openssl("req", "-new", "-newkey", *KINDS["ec"], "-nodes", *subject, "-keyout", key, "-out", asked)
    ends = folder / "ends"
    ends.write_text("basicConstraints=CA:FALSE\nextendedKeyUsage=clientAuth\n")
    by = ["-CA", folder / f"{authority}.crt", "-CAkey", folder / f"{authority}.key", "-CAcreateserial"]
    openssl("x509", "-req", "-in", asked, *by, "-days", "2", "-extfile", ends, "-out", cert)
    return cert.read_bytes() + key.read_bytes()


class Tls(Server):
    """A server with TLS, and clients of it."""

    def __init__(self, settings="", more="", conditioning="strict", **others):
        self.tls = free_port()
        text = lambda port: CONFIG.format(
            port=port, tls=self.tls, settings=settings, more=more, conditioning=conditioning
        )
        super().__init__(sites=[], programs=(), text=text, **others)
        self.keys = self.folder / "keys"
        self.keys.mkdir()
        for name in ("a", "b", "plain"):
            self.write(f"{name}/index.html", f"{name}\n")
            self.write(f"{name}/large", b"x" * 3_000_000)
        # Key and chain in both orders.
        self.install("a-ecdsa", "ec", "a.test", key_first=True)
        self.install("a-rsa", "rsa", "a.test", "*.a.test")
        self.install("a-wildcard", "ec", "*.a.test")
        self.install("b", "ed25519", "b.test")

    def install(self, name, kind, *hosts, key_first=False):
        cert, key = certificate(self.keys, name, kind, *hosts)
        new = self.write(f"{name}.new", key + cert if key_first else cert + key)
        new.chmod(0o600)
        if ROOTLESS and os.geteuid() == 0:
            shutil.chown(new, 65534, 65534)
        new.rename(self.folder / f"{name}.pem")
        return cert

    def curl(self, url, *words):
        """What curl says: its exit status and its output."""
        resolve = []
        for host in ("a.test", "x.a.test", "b.test", "c.test"):
            for port in (self.tls, self.port):
                resolve += ["--resolve", f"{host}:{port}:127.0.0.1"]
        command = ["curl", "-sS", "-k", "--max-time", "10", *resolve, *words, url.format(tls=self.tls, port=self.port)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
        return done.returncode, done.stdout + done.stderr

    def s_client(self, name, *words):
        command = ["openssl", "s_client", "-connect", f"127.0.0.1:{self.tls}", "-servername", name, *words]
        return subprocess.run(
            command, input="GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n", capture_output=True, text=True,
            timeout=20, check=False,
        ).stdout

    def subject(self, name, *words):
        """Whose certificate a client gets."""
        found = re.search(r"subject=CN = (\S+)", self.s_client(name, *words))
        return found and found[1]

    def connect_tls(self, name="a.test", source=None, context=None):
        context = context or insecure()
        raw = socket.create_connection(("127.0.0.1", self.tls), 10, source and (source, 0))
        return context.wrap_socket(raw, server_hostname=name)

    def get_tls(self, name="a.test", source=None, context=None):
        with self.connect_tls(name, source, context) as stream:
            stream.sendall(f"GET / HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n".encode())
            return b"".join(iter(lambda: stream.recv(65536), b""))


def insecure():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


@rootless_too
class Names(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(Tls())

    def test_each_site_answers_under_its_name(self):
        for host, body in (("a.test", "a\n"), ("x.a.test", "a\n"), ("b.test", "b\n")):
            self.assertEqual(self.server.curl(f"https://{host}:{{tls}}/", "--http1.1"), (0, body))
        status, text = self.server.curl("https://a.test:{tls}/", "--http1.1", "-i", "-o", "/dev/null", "-D", "-")
        self.assertEqual(status, 0)
        self.assertIn("Strict-Transport-Security: max-age=31536000; includeSubDomains", text)
        self.assertEqual(len(self.server.curl("https://a.test:{tls}/large", "--http1.1")[1]), 3_000_000)
        by_choice = self.server.curl("https://a.test:{tls}/", "-w", "%{http_version}")
        self.assertEqual(by_choice, (0, "a\n2"), "HTTP/2 where the client has it")

    def test_the_certificate_is_the_one_for_the_name_that_the_client_can_check(self):
        self.assertEqual(self.server.subject("a.test"), "a-ecdsa")
        self.assertEqual(self.server.subject("x.a.test"), "a-wildcard")
        self.assertEqual(self.server.subject("b.test"), "b")
        old = ["-tls1_2", "-sigalgs", "RSA+SHA256"]
        self.assertEqual(self.server.subject("a.test", *old), "a-rsa")
        self.assertEqual(self.server.subject("a.test", "-tls1_2", "-cipher", "ECDHE-RSA-AES128-GCM-SHA256"), "a-rsa")
        self.assertEqual(self.server.subject("a.test", "-tls1_2"), "a-ecdsa")

    def test_tls_1_1_is_refused(self):
        self.assertIsNone(self.server.subject("a.test", "-tls1_1", "-cipher", "ALL:@SECLEVEL=0"))

    def test_a_client_that_names_nobody_gets_the_first_site(self):
        self.assertEqual(self.server.curl("https://127.0.0.1:{tls}/", "--http1.1", "-H", "Host: a.test"), (0, "a\n"))

    def test_a_name_that_nobody_has_gets_an_alert(self):
        for name in ("c.test", "plain.test"):
            with self.assertRaises(ssl.SSLError) as raised:
                self.server.get_tls(name)
            self.assertIn("UNRECOGNIZED_NAME", raised.exception.reason)

    def test_a_request_for_another_host_on_the_connection_is_misdirected(self):
        with self.server.connect_tls("a.test") as stream:
            stream.sendall(b"GET / HTTP/1.1\r\nHost: b.test\r\n\r\n")
            self.assertTrue(stream.recv(65536).startswith(b"HTTP/1.1 421 "))

    def test_what_is_no_tls_is_told_so(self):
        with socket.create_connection(("127.0.0.1", self.server.tls), 5) as stream:
            stream.sendall(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n")
            answer = b"".join(iter(lambda: stream.recv(65536), b""))
        self.assertTrue(answer.startswith(b"HTTP/1.1 400 "), answer)
        self.assertIn(b"This port speaks TLS", answer)

    def test_a_hello_in_many_pieces_is_understood(self):
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = insecure().wrap_bio(incoming, outgoing, server_hostname="b.test")
        with socket.create_connection(("127.0.0.1", self.server.tls), 5) as stream:
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while True:
                try:
                    tls.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    hello = outgoing.read()
                    for at in range(0, len(hello), 60):
                        stream.sendall(hello[at:at + 60])
                        wait_for_time(0.002)
                    incoming.write(stream.recv(65536))
        self.assertEqual(tls.version(), "TLSv1.3")

    def test_plaintext_is_redirected_where_there_is_https(self):
        words = ["-o", "/dev/null", "-w", "%{http_code} %{redirect_url}"]
        moved = f"301 https://a.test:{self.server.tls}/x?y=1"
        self.assertEqual(self.server.curl("http://a.test:{port}/x?y=1", *words), (0, moved))
        posted = f"308 https://b.test:{self.server.tls}/"
        self.assertEqual(self.server.curl("http://b.test:{port}/", "-d", "x", *words), (0, posted))
        self.assertEqual(client.status(self.server.port, "/", "plain.test"), 200)


@rootless_too
class Challenges(unittest.TestCase):
    """An authority asks for /.well-known/acme-challenge/ over plain HTTP before there is a certificate."""

    def test_what_proves_a_host_is_not_redirected(self):
        everything = 'redirect = { to = "https://elsewhere.test/", status = 301 }'
        server = Tls(more=everything)
        for site in ("a", "b"):
            server.write(f"{site}/.well-known/acme-challenge/token", f"{site} token\n")
        with server:
            show = ["-w", " %{http_code} %{redirect_url}"]
            get = lambda host, path: server.curl(f"http://{host}:{{port}}{path}", "--path-as-is", *show)[1]
            folder = "/.well-known/acme-challenge"
            self.assertEqual(get("a.test", f"{folder}/token"), "a token\n 200 ")
            self.assertEqual(get("b.test", f"{folder}/token"), "b token\n 200 ")
            self.assertEqual(get("a.test", f"{folder}/%74oken"), "a token\n 200 ")
            # What is not there is none of these.
            self.assertIn(" 404 ", get("a.test", f"{folder}/none"))
            self.assertTrue(get("b.test", f"{folder}/none").endswith(f" 301 https://elsewhere.test{folder}/none"))
            # Nor is what only looks like it.
            for path in ("/", f"{folder}", f"{folder}-not/token", f"{folder}/../../index.html", f"{folder}/%2e%2e/../index.html"):
                self.assertIn(f" 301 https://a.test:{server.tls}/", get("a.test", path), path)
            self.assertIn(" 308 ", server.curl("http://b.test:{port}/", "-X", "POST", *show)[1])
            self.assertIn(" 301 ", server.curl("https://b.test:{tls}/index.html", *show)[1])
            self.assertIn("b token\n 200 ", server.curl(f"https://b.test:{{tls}}{folder}/token", *show)[1])


class Keys(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(Tls())

    def test_a_private_key_is_in_the_memory_of_the_signer_alone(self):
        text = openssl("ec", "-in", self.server.keys / "a-ecdsa.key", "-noout", "-text").decode()
        secret = bytes.fromhex(re.search(r"priv:\s*([0-9a-f:\s]+)pub:", text)[1].replace(":", "").replace(" ", "").replace("\n", ""))
        secret = secret[-32:]
        self.server.get_tls("a.test")
        has = lambda process: any(form in process.memory() for form in (secret, secret[::-1]))
        self.assertTrue(has(self.server.process("signer")), "the search finds it where it is")
        for title in ("site a", "site b", "gate", "logger", "admin"):
            self.assertFalse(has(self.server.process(title)), title)

    def test_the_signer_has_no_file_and_no_network(self):
        signer = self.server.process("signer")
        kinds = {target.split(":")[0] for target in signer.descriptors().values()}
        self.assertLessEqual(kinds, {"socket", "pipe", "anon_inode", "/dev/null"})
        uids = [process.uid for process in self.server.processes()]
        self.assertEqual(uids.count(signer.uid), 1)

    def test_a_signer_that_is_killed_under_load_comes_back(self):
        failed, done, stop = [], [], threading.Event()

        def load():
            while not stop.is_set():
                try:
                    self.assertIn(b" 200 OK", self.server.get_tls("b.test"))
                    done.append(1)
                except (OSError, AssertionError) as error:
                    failed.append(error)

        threads = [threading.Thread(target=load) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(3):
                wait_for_time(1.2)
                before = len(done)
                old, site = self.server.process("signer"), self.server.process("site b")
                old.kill()
                self.assertTrue(until(lambda: [p for p in self.server.processes("signer") if p != old], 5))
                self.assertTrue(until(lambda: len(done) > before + 20, 10), "handshakes go on")
                self.assertEqual(self.server.process("site b"), site, "the site's worker is the same")
        finally:
            stop.set()
            for thread in threads:
                thread.join(20)
        # Those whose signature was under way, and no others: three clients, three times.
        self.assertLessEqual(len(failed), 9, failed)


class Renewal(unittest.TestCase):
    def test_a_replaced_certificate_is_used_without_a_restart(self):
        with Tls() as server:
            site = server.process("site b")
            context = insecure()
            with server.connect_tls("b.test", context=context) as stream:
                old = stream.getpeercert(binary_form=True)
            new = ssl.PEM_cert_to_DER_cert(server.install("b", "ec", "b.test").decode())
            self.assertNotEqual(old, new)

            def shown():
                with server.connect_tls("b.test") as stream:
                    return stream.getpeercert(binary_form=True)

            self.assertTrue(until(lambda: shown() == new, 5))
            self.assertIn("b.pem of site b is in use", server.stderr())
            # What is wrong is told, and changes nothing.
            server.write("b.pem", "nothing\n")
            told = lambda: "b.pem of site b: the file needs exactly one private key" in server.stderr()
            self.assertTrue(until(told, 5), server.stderr())
            self.assertEqual(shown(), new)
            self.assertEqual(server.process("site b"), site)

    def test_a_bad_certificate_at_the_start_costs_nobody_else(self):
        server = Tls()
        cert, _ = certificate(server.keys, "one", "ec", "b.test")
        _, key = certificate(server.keys, "two", "ec", "b.test")
        server.write("b.pem", cert + key)
        with server:
            self.assertIn("b.pem of site b: the file has no certificate that belongs to its key", server.stderr())
            self.assertIn(b" 200 OK", server.get_tls("a.test"))


class Resumption(unittest.TestCase):
    def resumed(self, server, version):
        """Whether a session outlives the worker that it began with."""
        file = server.folder / "session"
        first = server.s_client("a.test", version, "-sess_out", file, "-ign_eof")
        self.assertIn("New, TLSv1", first)
        old = server.process("site a")
        old.kill()
        self.assertTrue(until(lambda: [p for p in server.processes("site a") if p != old], 5))
        second = server.s_client("a.test", version, "-sess_in", file, "-ign_eof")
        self.assertIn("200 OK", second)
        return "Reused, TLSv1" in second

    def test_tickets_are_good_for_the_next_worker(self):
        with Tls() as server:
            self.assertTrue(self.resumed(server, "-tls1_3"))
            wait_for_time(1.1)
            self.assertTrue(self.resumed(server, "-tls1_2"))

    def test_what_a_worker_remembers_goes_with_it(self):
        with Tls(settings='resumption = "stateful"') as server:
            self.assertFalse(self.resumed(server, "-tls1_3"))
            wait_for_time(1.1)
            file = server.folder / "session"
            server.s_client("a.test", "-tls1_3", "-sess_out", file, "-ign_eof")
            self.assertIn("Reused, TLSv1.3", server.s_client("a.test", "-tls1_3", "-sess_in", file, "-ign_eof"))


class Tampering(unittest.TestCase):
    def tamper(self, server, source):
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = insecure().wrap_bio(incoming, outgoing, server_hostname="a.test")
        with socket.create_connection(("127.0.0.1", server.tls), 5, (source, 0)) as stream:
            while True:
                try:
                    tls.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    stream.sendall(outgoing.read())
                    incoming.write(stream.recv(65536))
            stream.sendall(outgoing.read())
            tls.write(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n")
            record = bytearray(outgoing.read())
            record[-1] ^= 1
            stream.sendall(record)
            # The alert, perhaps session tickets before it, and the end.
            while stream.recv(65536):
                pass

    def test_a_client_whose_records_fail_to_decrypt_is_refused_by_the_site(self):
        with Tls() as server:
            self.assertIn(b" 200 OK", server.get_tls("a.test", "127.7.7.7"))
            self.tamper(server, "127.7.7.7")

            def refused():
                try:
                    server.get_tls("a.test", "127.7.7.7")
                except OSError:
                    return True
                return False

            self.assertTrue(until(refused, 5))
            for _ in range(6):
                self.assertTrue(refused(), "every gate has been told")
            self.assertIn("records of 127.7.7.7 failed to decrypt", server.stderr())
            listed = server.command("bans", "--config", server.config)
            self.assertRegex(listed.stdout, r"127\.7\.7\.7 +a +8[0-9]{4}")
            self.assertIn(b" 200 OK", server.get_tls("a.test", "127.7.7.8"))
            self.assertIn(b" 200 OK", server.get_tls("b.test", "127.7.7.7"))
            # A new gate is told as well.
            old = server.process("gate")
            for gate in server.processes("gate"):
                gate.kill()
            self.assertTrue(until(lambda: all(p != old for p in server.processes("gate")) and len(server.processes("gate")) == 2, 5))
            self.assertTrue(until(refused, 5))
            for _ in range(6):
                self.assertTrue(refused())
            cleared = server.command("bans", "--config", server.config, "--clear", "127.7.7.7")
            self.assertEqual((cleared.returncode, cleared.stdout), (0, "127.7.7.7: refused no more\n"))
            self.assertTrue(until(lambda: not refused(), 5))
            again = server.command("bans", "--config", server.config, "--clear", "127.7.7.7")
            self.assertIn("no site refuses this client", again.stderr)
            self.assertEqual(server.command("bans", "--config", server.config).stdout, "no client is refused\n")

    def test_it_can_be_turned_off(self):
        with Tls(settings='tamper_ban = "0"') as server:
            self.tamper(server, "127.7.7.7")
            wait_for_time(0.3)
            self.assertIn(b" 200 OK", server.get_tls("a.test", "127.7.7.7"))


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


@rootless_too
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
