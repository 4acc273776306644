"""TLS, with curl and OpenSSL as clients: names and certificates, resumption, the signer, and what is no TLS."""

import re
import socket
import ssl
import threading
import unittest

import backend
import client
from client import until
from harness import rootless_too, wait_for_time
from tls_server import Tls, certificate, insecure, openssl


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
        self.assertIn("Strict-Transport-Security: max-age=31536000", text)
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
class Versions(unittest.TestCase):
    def test_min_version(self):
        for settings, of_1_2 in (("", "b"), ('min_version = "1.2"', "b"), ('min_version = "1.3"', None)):
            with self.subTest(settings), Tls(settings) as server:
                self.assertEqual(server.subject("b.test", "-tls1_3"), "b")
                self.assertEqual(server.subject("b.test", "-tls1_2"), of_1_2)


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


@rootless_too
class Noise(unittest.TestCase):
    """`X-NB`, random bytes of random length, where TLS and compression of an answer made for one request meet (BREACH)."""

    PAGE = "<p>a page that is worth compressing\n" * 100

    def test_only_where_lengths_tell_something(self):
        html = lambda body: backend.response(body.encode(), "200 OK", "Content-Type: text/html")
        behind = backend.Raw(answer=lambda request: html("small" if "small" in request.line else self.PAGE))
        self.addCleanup(behind.close)
        route = f'[[site.route]]\npath = "/up/"\nupstream = "{behind.at}"'
        server = Tls(more=route)
        server.write("b/page.html", self.PAGE)
        server.config.write_text(server.config.read_text().replace("redirect_to_https = true", ""))

        def noise(path, *words, scheme="https"):
            port = "{tls}" if scheme == "https" else "{port}"
            said = server.curl(f"{scheme}://b.test:{port}{path}", "-D", "-", "-o", "/dev/null", *words)[1].lower()
            self.assertIn(" 200", said)
            found = re.search(r"^x-nb:[ \t]*(.*?)\r?$", said, re.M)
            return "content-encoding" in said, found and found[1]

        with server:
            for version in ("--http1.1", "--http2"):
                zipped = [version, "-H", "Accept-Encoding: gzip"]
                found = [noise("/up/page", *zipped) for _ in range(20)]
                for coded, value in found:
                    self.assertTrue(coded)
                    self.assertRegex(value, r"^([0-9a-f]{2}){0,48}$")
                self.assertGreater(len({len(value) for _, value in found}), 4, found)
                self.assertEqual(noise("/up/page", version), (False, None))
                self.assertEqual(noise("/up/small", *zipped), (False, None))
                self.assertEqual(noise("/page.html", *zipped), (True, None), "a file is the same for all")
            self.assertEqual(noise("/up/page", "-H", "Accept-Encoding: gzip", scheme="http"), (True, None))


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

    def test_a_certificate_that_is_bad_when_the_signer_starts_anew_costs_nobody_else(self):
        with Tls() as server:
            cert, _ = certificate(server.keys, "one", "ec", "b.test")
            _, key = certificate(server.keys, "two", "ec", "b.test")
            server.write("b.pem", cert + key)
            server.process("signer").kill()
            wrong = "b.pem of site b: the file has no certificate that belongs to its key"
            self.assertTrue(until(lambda: wrong in server.stderr(), 10), server.stderr())
            self.assertTrue(until(lambda: b" 200 OK" in server.get_tls("a.test"), 10))


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
