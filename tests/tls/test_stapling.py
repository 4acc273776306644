"""OCSP stapling: real authorities and responders (`openssl ocsp`), responders that answer nonsense, and those that are dead."""

import calendar
import contextlib
import http.server
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
import unittest

import pytest

from client import until
from harness import ROOTLESS, Server, free_port, rootless_too

EC = ("ec", "-pkeyopt", "ec_paramgen_curve:P-256")
ANSWER_MAX = 16 * 1024


def openssl(*words, **more):
    return subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True, timeout=20, **more).stdout


class Authority:
    """An authority with its certificates, in a folder."""

    def __init__(self, folder):
        self.folder, self.issued, self.indexes = folder, [], itertools.count()
        folder.mkdir()
        openssl("req", "-x509", "-newkey", *EC, "-nodes", "-days", "9", "-subj", "/CN=authority", "-keyout",
                folder / "ca.key", "-out", folder / "ca.pem", "-addext", "basicConstraints=critical,CA:TRUE")

    def issue(self, name, host, url, usage="serverAuth", serial=None):
        """A certificate that names a responder: the text of a file with its key and chain."""
        key, asked, made, ends = (self.folder / f"{name}.{end}" for end in ("key", "csr", "crt", "ends"))
        serial = serial or 4096 + len(self.issued)
        self.issued.append(serial)
        responder = f"authorityInfoAccess=OCSP;URI:{url}\n" if url else ""
        ends.write_text(f"basicConstraints=CA:FALSE\nextendedKeyUsage={usage}\nsubjectAltName=DNS:{host}\n{responder}")
        openssl("req", "-new", "-newkey", *EC, "-nodes", "-subj", f"/CN={host}", "-keyout", key, "-out", asked)
        openssl("x509", "-req", "-in", asked, "-CA", self.folder / "ca.pem", "-CAkey", self.folder / "ca.key", "-days",
                "9", "-set_serial", serial, "-extfile", ends, "-out", made)
        return key.read_text() + made.read_text() + self.folder.joinpath("ca.pem").read_text()

    def index(self, revoked=(), unknown=()):
        """What a responder knows."""
        lines = [
            f"R\t350101000000Z\t250101000000Z\t{serial:X}\tunknown\t/CN=x{serial}" if serial in revoked else
            f"V\t350101000000Z\t\t{serial:X}\tunknown\t/CN=x{serial}"
            for serial in self.issued if serial not in unknown
        ]
        # A file for each: a responder reads its own again when that has changed.
        index = self.folder / f"index{next(self.indexes)}.txt"
        index.write_text("".join(f"{line}\n" for line in lines))
        return index

    def signed_by(self, signer):
        """As what a responder signs: the authority itself, or a delegate of its."""
        name = signer or "ca"
        crt = self.folder / ("ca.pem" if name == "ca" else f"{name}.crt")
        return ["-CA", self.folder / "ca.pem", "-rsigner", crt, "-rkey", self.folder / f"{name}.key"]

    @contextlib.contextmanager
    def responder(self, port, signer=None, **index):
        """`openssl ocsp`, while it is in use."""
        words = ["ocsp", "-port", port, "-index", self.index(**index), *self.signed_by(signer), "-nmin", "60"]
        # A stapler that is relaunched leaves its connections without a question; they would be waited for in vain.
        words += ["-timeout", "3"]
        said = ""

        def begin():
            # It is asked when it says that it can be.
            nonlocal said
            running = subprocess.Popen(["openssl", *map(str, words)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                       stderr=subprocess.PIPE, text=True)
            said = running.stderr.readline()
            if "waiting for OCSP client connections" in said:
                return running
            # Somebody's connection may have been given this port meanwhile.
            running.kill()
            running.communicate()
            return None

        running = until(begin, 20, 0.2)
        if not running:
            raise AssertionError(f"openssl ocsp does not come up: {said}")
        try:
            yield running
        finally:
            running.kill()
            running.communicate()

    def answer(self, question, **index):
        """What the authority answers to a question, as bytes."""
        asked, answered = self.folder / "question", self.folder / "answer"
        asked.write_bytes(question)
        openssl("ocsp", "-index", self.index(**index), *self.signed_by(None), "-reqin", asked, "-respout", answered,
                "-nmin", "60", "-resp_no_certs")
        return answered.read_bytes()

    def question(self, name):
        """The question about a certificate."""
        out = self.folder / "asked"
        openssl("ocsp", "-issuer", self.folder / "ca.pem", "-cert", self.folder / f"{name}.crt", "-no_nonce", "-reqout", out)
        return out.read_bytes()


class Strange(http.server.ThreadingHTTPServer):
    """A responder that answers by the path of its URL."""

    daemon_threads = True

    def __init__(self, port, answers):
        self.answers, self.end = answers, threading.Event()
        super().__init__(("127.0.0.1", port), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def __exit__(self, *_):
        self.end.set()
        self.shutdown()
        self.server_close()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        question = self.rfile.read(int(self.headers["Content-Length"]))
        answer = self.server.answers[self.path.strip("/")]
        answer = answer(question) if callable(answer) else answer
        if answer is None:
            self.server.end.wait(30)
            return
        status, body = answer
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(body)

    def log_message(self, *_):
        pass


class Stapled(Server):
    """A server with a site of each of NAMES, whose certificate names the responder URL."""

    def __init__(self, urls, ports, settings="", chain=True, site=""):
        self.tls = free_port()
        sites = "".join(
            f'\n[[site]]\nname = "{name}"\nhost = ["{name}.test"]\nroot = "root"\ncertificates = ["{name}.pem"]\n{site}\n'
            for name in urls
        )
        text = lambda port: (
            f'[[listen]]\naddress = "127.0.0.1:{port}"\n\n[[listen]]\naddress = "127.0.0.1:{self.tls}"\ntls = true\n'
            f'\n[log]\nflush = "100ms"\n\n[tls]\nreread = "1s"\nocsp_ports = {ports}\n{settings}\n{sites}'
        )
        super().__init__(sites=[], programs=(), text=text)
        self.write("root/index.html", "hello\n")
        self.authority = Authority(self.folder / "authority")
        self.write("clients.pem", self.authority.folder.joinpath("ca.pem").read_bytes())
        for name, url in urls.items():
            made = self.authority.issue(name, f"{name}.test", url)
            self.install(name, made if chain else made[:made.rindex("-----BEGIN CERT")])

    def install(self, name, text):
        new = self.write(f"{name}.new", text)
        new.chmod(0o600)
        if ROOTLESS and os.geteuid() == 0:
            shutil.chown(new, 65534, 65534)
        new.rename(self.folder / f"{name}.pem")

    def s_client(self, name, *words):
        command = ["openssl", "s_client", "-connect", f"127.0.0.1:{self.tls}", "-servername", f"{name}.test", "-status",
                   "-CAfile", str(self.authority.folder / "ca.pem"), *words]
        request = f"GET / HTTP/1.1\r\nHost: {name}.test\r\nConnection: close\r\n\r\n"
        done = subprocess.run([*command, "-ign_eof"], input=request, capture_output=True, text=True, timeout=20, check=False)
        return done.stdout + done.stderr

    def state(self, name, *words):
        """What is stapled: `good`, `revoked`, or None."""
        text = self.s_client(name, *words)
        if "hello" not in text:
            raise AssertionError(text)
        found = re.search(r"Cert Status: (\w+)", text)
        return found[1] if found and "OCSP Response Status: successful" in text else None

    def serial(self, name):
        """The certificate that the staple is about."""
        return int(re.search(r"Serial Number: ([0-9A-F]+)", self.s_client(name))[1], 16)

    def becomes(self, name, state):
        return until(lambda: self.state(name) == state, 20, 0.2)

    def says(self, pattern):
        return until(lambda: re.search(pattern, self.log()), 20, 0.1)

    def curl(self, name, *words):
        resolve = f"{name}.test:{self.tls}:127.0.0.1"
        command = ["curl", "-sS", "--cacert", str(self.authority.folder / "ca.pem"), "--max-time", "15", "--resolve",
                   resolve, "--cert-status", *words, f"https://{name}.test:{self.tls}/"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
        return done.returncode, done.stdout + done.stderr


@rootless_too
class Stapling(unittest.TestCase):
    def test_what_a_responder_says_is_stapled(self):
        port = free_port()
        urls = {"a": f"http://127.0.0.1:{port}/x", "b": f"http://localhost:{port}", "c": None}
        with Stapled(urls, [port]) as server:
            with server.authority.responder(port):
                server.relaunch("stapler")
                for name in ("a", "b"):
                    self.assertTrue(server.becomes(name, "good"), server.log())
                    self.assertEqual(server.curl(name), (0, "hello\n"))
                    self.assertEqual(server.state(name, "-tls1_2"), "good")
                self.assertIsNone(server.state("c"))
                self.assertEqual(server.curl("c")[0], 91, "curl misses what is not there")
            # With the responder gone: a new worker has it from the stapler; the old one keeps it without that.
            old = server.process("site a")
            old.kill()
            self.assertTrue(until(lambda: [p for p in server.processes("site a") if p != old], 10))
            self.assertTrue(server.becomes("a", "good"))
            server.process("signer").kill()
            self.assertTrue(until(lambda: "hello" in server.s_client("a"), 10, 0.2))
            self.assertTrue(server.becomes("a", "good"), "the chains of a new signer are stapled to as well")
            server.process("stapler").kill()
            self.assertEqual(server.state("b"), "good")

    def test_one_that_hangs_is_replaced(self):
        port = free_port()
        settings = '[restart]\nhang_after = "5s"'
        with Stapled({"a": f"http://127.0.0.1:{port}/x"}, [port], settings) as server, server.authority.responder(port):
            server.relaunch("stapler")
            self.assertTrue(server.becomes("a", "good"), server.log())
            old = server.process("stapler")
            old.signal(signal.SIGSTOP)

            def is_replaced():
                self.assertEqual(server.state("a"), "good", "handshakes go on, with what was stapled before")
                return any(process.pid != old.pid for process in server.processes("stapler"))

            self.assertTrue(until(is_replaced, 30, 0.2), server.log())
            self.assertTrue(server.says(rf"stapler \(pid {old.pid}\) has not answered for 5"), server.log())
            # A worker that comes now asks the successor.
            server.process("site a").kill()
            self.assertTrue(server.becomes("a", "good"), server.log())

    def test_a_dead_responder(self):
        port = free_port()
        with Stapled({"a": f"http://127.0.0.1:{port}/"}, [port]) as server:
            said = rf"a\.pem of site a: nothing is stapled: http://127\.0\.0\.1:{port}/ was asked in vain: .*refused.*again every 5 min"
            self.assertTrue(server.says(said), server.log())
            began = time.monotonic()
            for _ in range(3):
                self.assertIsNone(server.state("a"))
            self.assertLess(time.monotonic() - began, 9)
            self.assertEqual(len(re.findall("asked in vain", server.log())), 1)
            with server.authority.responder(port):
                server.relaunch("stapler")
                self.assertTrue(server.becomes("a", "good"), server.log())
            self.assertTrue(server.says("a.pem of site a: is stapled with what http"))

    def test_a_delegate_may_sign_and_others_may_not(self):
        port, other = free_port(), free_port()
        urls = {"a": f"http://127.0.0.1:{port}/", "b": f"http://127.0.0.1:{other}/"}
        with Stapled(urls, [port, other]) as server:
            authority = server.authority
            authority.issue("delegate", "ocsp.test", None, usage="OCSPSigning")
            authority.issue("stranger", "web.test", None, usage="serverAuth")
            with authority.responder(port, signer="delegate"), authority.responder(other, signer="stranger"):
                server.relaunch("stapler")
                self.assertTrue(server.becomes("a", "good"), server.log())
                self.assertTrue(server.says("site b: nothing .* not signed by the certificate's issuer or a delegate"))
                self.assertIsNone(server.state("b"))

    def test_a_revoked_certificate_is_said_to_be_one(self):
        port = free_port()
        with Stapled({"a": f"http://127.0.0.1:{port}/"}, [port]) as server:
            with server.authority.responder(port, revoked=server.authority.issued):
                server.relaunch("stapler")
                self.assertTrue(server.becomes("a", "revoked"), server.log())
                self.assertTrue(server.says("a.pem of site a: THE CERTIFICATE IS REVOKED"))
                self.assertEqual(server.curl("a")[0], 91)

    def test_a_renewed_certificate_gets_a_staple_of_its_own(self):
        port = free_port()
        with Stapled({"a": f"http://127.0.0.1:{port}/"}, [port]) as server:
            new = server.authority.issue("new", "a.test", f"http://127.0.0.1:{port}/")
            with server.authority.responder(port):
                server.relaunch("stapler")
                self.assertTrue(server.becomes("a", "good"), server.log())
                first, second = server.authority.issued
                self.assertEqual(server.serial("a"), first)
                site = server.process("site a")
                server.install("a", new)

                def renewed():
                    text = server.s_client("a")
                    return re.search(rf"Serial Number: {second:X}\n", text) and "Cert Status: good" in text

                self.assertTrue(until(renewed, 20, 0.2), server.log())
                self.assertEqual(server.curl("a"), (0, "hello\n"))
                self.assertEqual(server.process("site a"), site)


@rootless_too
class Nonsense(unittest.TestCase):
    @pytest.mark.slow
    def test_what_is_no_answer_is_not_stapled(self):
        port = free_port()
        made = {}

        def of(kind):
            return lambda question: made[kind](question)

        cases = {
            "garbage": ((200, b"\x30\x80garbage"), "its answer is no answer of OCSP"),
            "empty": ((200, b""), "its answer is no answer of OCSP"),
            "later": ((200, bytes.fromhex("30030a0103")), "it is to be asked later"),
            "missing": ((404, b"no"), "HTTP status 404"),
            "moved": ((302, b""), "HTTP status 302"),
            "long": ((200, b"\x30" * (ANSWER_MAX + 1)), "longer than 16384 bytes"),
            "other": (of("other"), "about another certificate"),
            "forged": (of("forged"), "not signed by the certificate's issuer"),
            "changed": (of("changed"), "not signed by the certificate's issuer"),
            "unknown": (of("unknown"), "does not know the certificate"),
            "never": (None, "not answered within 10 s"),
            "right": (of("right"), "is stapled with what"),
        }
        urls = {name: f"http://127.0.0.1:{port}/{name}" for name in cases}
        lock = threading.Lock()
        with Stapled(urls, [port]) as server, Strange(port, {name: answer for name, (answer, _) in cases.items()}):
            authority, forger = server.authority, Authority(server.folder / "forger")
            forger.issued = authority.issued

            def locked(answer):
                def call(question):
                    with lock:
                        return 200, answer(question)
                return call

            def changed(question):
                """In the signature, which is the last of it."""
                answer = bytearray(authority.answer(question))
                answer[-1] ^= 1
                return bytes(answer)

            def forged(question):
                """As the authority's, of its name, with another key."""
                own = authority.folder / "ca.key"
                kept = own.read_bytes()
                try:
                    authority.folder.joinpath("ca.key").write_bytes(forger.folder.joinpath("ca.key").read_bytes())
                    authority.folder.joinpath("ca.pem").rename(authority.folder / "kept.pem")
                    openssl("req", "-x509", "-key", own, "-days", "9", "-subj", "/CN=authority", "-out",
                            authority.folder / "ca.pem")
                    # The question names the true authority's key, so the answer is made of whole cloth: by its words,
                    # under the forger's signature.
                    signed = ["-rsigner", authority.folder / "ca.pem", "-rkey", own, "-CA", authority.folder / "kept.pem"]
                    asked, answered = authority.folder / "question", authority.folder / "answer"
                    asked.write_bytes(question)
                    openssl("ocsp", "-index", authority.index(), *signed, "-reqin", asked, "-respout", answered, "-nmin", "60")
                    return answered.read_bytes()
                finally:
                    own.write_bytes(kept)
                    authority.folder.joinpath("kept.pem").rename(authority.folder / "ca.pem")

            made |= {
                "right": locked(authority.answer),
                "other": locked(lambda _: authority.answer(authority.question("right"))),
                "changed": locked(changed),
                "forged": locked(forged),
                "unknown": locked(lambda question: authority.answer(question, unknown=authority.issued)),
            }
            server.relaunch("stapler")
            for name, (_, said) in cases.items():
                with self.subTest(name):
                    self.assertTrue(server.says(rf"site {name}: .*{said}"), server.log())
            for name in cases:
                with self.subTest(name):
                    self.assertEqual(server.state(name), "good" if name == "right" else None)

    def test_what_cannot_be_asked(self):
        port = free_port()
        urls = {
            "a": f"http://127.0.0.1:{port + 1}/", "b": f"https://127.0.0.1:{port}/", "c": f"http://nobody.invalid:{port}/",
        }
        with Stapled(urls, [port]) as server:
            self.assertTrue(server.says(rf"site a: .* its port is not in `ocsp_ports`; add {port + 1} there"), server.log())
            self.assertTrue(server.says("site b: .* its responder is not asked by `http://`"), server.log())
            self.assertTrue(server.says("site c: .* its name "), server.log())
            self.assertEqual([server.state(name) for name in urls], [None] * 3)

    def test_a_chain_without_the_issuer(self):
        port = free_port()
        with Stapled({"a": f"http://127.0.0.1:{port}/"}, [port], chain=False) as server:
            self.assertTrue(server.says("site a: nothing is stapled: its file has no certificate of its issuer"))
            server.process("signer").kill()
            self.assertTrue(until(lambda: "hello" in server.s_client("a"), 10, 0.2))
            self.assertEqual(len(re.findall("no certificate of its issuer", server.log())), 1)

    def test_off(self):
        port = free_port()
        with Stapled({"a": f"http://127.0.0.1:{port}/"}, [port], "ocsp = false") as server:
            self.assertEqual(server.processes("stapler"), [])
            self.assertIsNone(server.state("a"))


@rootless_too
class Listed(unittest.TestCase):
    """`bulkhead status --certificates`."""

    def listed(self, server, *words):
        said = server.command("status", "--certificates", "--config", server.config, *words)
        self.assertEqual((said.returncode, said.stderr), (0, ""))
        return said.stdout

    def certificates(self, server):
        return {one["site"]: one for one in json.loads(self.listed(server, "--json"))["certificates"]}

    @staticmethod
    def staples(certificates):
        return {name: (one["staple"]["state"], one["staple"]["trouble"]) for name, one in certificates.items()}

    def becomes(self, server, expected):
        """The certificates, once this is said of their staples: a stapler that has no time is not waited for."""
        seen = []

        def is_so():
            seen[:] = [self.certificates(server)]
            return self.staples(seen[0]) == expected

        self.assertTrue(until(is_so, 30, 0.1), f"{seen} {server.log()}")
        return seen[0]

    def test_what_is_stapled_and_why_nothing(self):
        ports = [free_port() for _ in range(3)]
        urls = {
            "a": f"http://127.0.0.1:{ports[0]}/", "b": f"http://127.0.0.1:{ports[1]}/", "c": None,
            "d": f"http://127.0.0.1:{ports[2]}/", "e": f"https://127.0.0.1:{ports[0]}/", "f": f"http://127.0.0.1:{ports[0]}/",
        }
        with Stapled(urls, ports) as server:
            authority, began = server.authority, int(time.time())
            revoked, unknown = authority.issued[1], authority.issued[5]
            with authority.responder(ports[0], unknown=[unknown]), authority.responder(ports[1], revoked=[revoked]):
                server.relaunch("stapler")
                expected = {
                    "a": ("good", None), "b": ("revoked", None), "c": (None, "no_responder"), "d": (None, "unanswered"),
                    "e": (None, "unaskable"), "f": (None, "unknown"),
                }
                found = self.becomes(server, expected)
            for name, one in found.items():
                with self.subTest(name):
                    self.assertEqual((one["file"], one["fault"], one["key"]), (str(server.folder / f"{name}.pem"), None, "ECDSA P-256"))
                    ends = openssl("x509", "-in", authority.folder / f"{name}.crt", "-noout", "-enddate").decode()
                    ends = calendar.timegm(time.strptime(ends.strip().split("=")[1], "%b %d %H:%M:%S %Y GMT"))
                    self.assertEqual(one["not_after"], ends)
                    staple = one["staple"]
                    self.assertEqual(staple["until"] is not None, name in "ab")
                    self.assertEqual(staple["asked"] is not None, name in "abdf")
                    if staple["asked"]:
                        self.assertTrue(began <= staple["asked"] <= time.time(), staple)
                    if staple["until"]:
                        # An answer of these is good for an hour from when it was made.
                        self.assertTrue(began + 3600 <= staple["until"] <= staple["asked"] + 3600, staple)
            before = time.time()
            text = until(lambda: None if "stapler does not say" in (said := self.listed(server)) else said, 30, 0.1)
            left = "|".join(str((found["a"]["not_after"] - int(now)) // 86400) for now in (before, time.time()))
            self.assertRegex(text, rf"(?m)^a +/.*/a\.pem +ECDSA P-256 +({left}) +good +\w+ +\w+ ago$")
            self.assertRegex(text, rf"(?m)^warning: .*/a\.pem of site a: it ends in ({left}) days; renew it$")
            self.assertRegex(text, r"(?m)^warning: .*/b\.pem of site b: its authority says that it is revoked")

    def test_a_stapler_that_does_not_say(self):
        port = free_port()
        with Stapled({"a": f"http://127.0.0.1:{port}/"}, [port]) as server:
            with server.authority.responder(port):
                server.relaunch("stapler")
                self.becomes(server, {"a": ("good", None)})
            stapler = server.process("stapler")
            stapler.signal(signal.SIGSTOP)
            self.addCleanup(lambda: stapler.alive and stapler.signal(signal.SIGCONT))
            for _ in range(2):
                self.assertEqual(self.staples(self.certificates(server)), {"a": (None, "unsaid")})
            stapler.signal(signal.SIGCONT)
            # Its answer to the first question is late, and that to the next one is not.
            self.becomes(server, {"a": ("good", None)})
            self.assertNotIn("sent a message that it may not send", server.log())

    def test_a_file_that_has_become_wrong(self):
        with Stapled({"a": None}, [80], "ocsp = false") as server:
            server.install("a", "nothing")
            said = lambda: json.loads(self.listed(server, "--json"))["certificates"][0]
            self.assertTrue(until(lambda: said()["fault"], 20))
            one = said()
            self.assertIn("needs exactly one private key", one["fault"])
            self.assertEqual((one["key"], one["staple"]["trouble"]), ("ECDSA P-256", "off"), "what it said before is in use")
            # For the next signer there is nothing before.
            server.process("signer").kill()
            self.assertTrue(until(lambda: said()["key"] is None, 20), said())
            self.assertIn("; the site goes on without it", self.listed(server))


class Names(unittest.TestCase):
    """What the machine knows of names."""

    @rootless_too
    def test_nobody_is_woken_by_what_is_as_it_was(self):
        with Stapled({"a": None}, [80], site='client_ca = "clients.pem"') as server:
            stapler = server.process("stapler")
            woken = lambda: stapler.status()["voluntary_ctxt_switches"]

            def looked(content):
                """Waits until the launcher has looked at all files: what is wrong with one of them is told of."""
                server.write("clients.pem", content)
                told = "has changed, and what it said before still holds"
                before = server.log().count(told)
                self.assertTrue(until(lambda: server.log().count(told) > before, 20, 0.05), server.log())

            looked("nothing")
            before = woken()
            for content in ("still nothing", "nor now", "nor ever"):
                looked(content)
            self.assertEqual(woken(), before)
            # It is woken by what concerns it.
            server.command("status", "--config", server.config)
            self.assertNotEqual(woken(), before)

    def test_what_has_changed_arrives(self):
        port = free_port()
        url = f"http://ocsp.names.test:{port}/"
        with Stapled({"a": url}, [port]) as server:
            server.stop()
            hosts = server.write("hosts", "127.0.0.1 localhost\n")
            # A machine of its own, as far as this file goes.
            own = 'mount --bind "$0" /etc/hosts && exec "$@"'
            server.prefix = ["unshare", "--mount", "--propagation", "private", "sh", "-c", own, str(hosts)]
            server.start()
            stapler = server.process("stapler")
            new = [server.authority.issue(f"new{number}", "a.test", url) for number in range(5)]
            with server.authority.responder(port):
                self.assertTrue(server.says("site a: nothing is stapled.* its name "), server.log())
                with open(hosts, "a") as file:
                    file.write("127.0.0.1 ocsp.names.test\n")

                def renewed():
                    # A new one is asked about at once, unlike one whose responder was asked in vain.
                    server.install("a", new.pop())
                    return until(lambda: server.state("a") == "good", 6, 0.2)

                self.assertTrue(until(lambda: not new or renewed(), 60) and server.state("a") == "good", server.log())
            self.assertEqual(server.process("stapler"), stapler)


@rootless_too
class Alone(unittest.TestCase):
    def test_it_has_channels_and_nothing_else(self):
        with Stapled({"a": None}, [80]) as server:
            stapler = server.process("stapler")
            kinds = {target.split(":")[0] for target in stapler.descriptors().values()}
            self.assertLessEqual(kinds, {"socket", "pipe", "anon_inode", "/dev/null"})
            if not ROOTLESS:
                self.assertEqual([process.uid for process in server.processes()].count(stapler.uid), 1)


if __name__ == "__main__":
    unittest.main()
