"""Every way in which the server asks "has this changed?": each thing that is read again is written again in place, with the size,
the time and the inode that it had, and is seen to have its effect by the way that the documentation names.

Files that are served, and their time, are in test_file_versions.py, authorities of a database server in test_server_tls.py. Programs
are not here: one that runs cannot be written in place.
"""

import base64
import gzip
import os
import shutil
import ssl
import unittest

import client
from client import until
from database_servers import PASSWORD
from databases import AtPostgresql, DataServer
from harness import ROOTLESS, rootless_too
from issuer import Issuer
from pages import Pages, version
from renewing import HOLDS, Renewing
from test_file_versions import SECRET
from tls_server import Tls, certificate, client_certificate, insecure
from written_again import alike, write_again

EXTRA = """
[[site]]
name = "extra"
host = ["{host}.test"]
root = "../extra"

  [[site.route]]
  path = "/members/"
  auth = {{ users = "../users", realm = "Members" }}

[[site]]
name = "many"
vhosts = "../many"
"""


def compressed(text):
    return gzip.compress(text.encode() * 1000, mtime=0)


@rootless_too
class WrittenAgain(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = server = Tls(more='client_ca = "clients.pem"')
        server.config.write_text('include = "sites/*.toml"\n' + server.config.read_text())
        cls.old, cls.new = alike(*(cls.pair(name) for name in ("first", "other")))
        cls.clients, cls.others = alike(*(certificate(server.keys, name, "ec", "x.test")[0] for name in ("clients", "others")))
        cls.pairs = {}
        for name in ("clients", "others"):
            cls.pairs[name] = server.write(f"{name}.pair", client_certificate(server.keys, "me", name))
        files = {
            "plain/style.css": "raw\n" * 1000, "plain/style.css.gz": compressed("old\n"), "extra/members/list": "members\n",
            "many/three.test/index.html": "old\n", "sites/extra.toml": EXTRA.format(host="one"), "clients.pem": cls.clients,
        }
        for name, content in files.items():
            server.write(name, content)
        for name, content in {"users": SECRET, "a-wildcard.pem": cls.old}.items():
            cls.keep(server.write(name, content))
        cls.enterClassContext(server)

    @classmethod
    def pair(cls, name):
        return b"".join(certificate(cls.server.keys, name, "ec", "*.a.test"))

    @staticmethod
    def keep(path):
        path.chmod(0o600)
        if ROOTLESS and os.geteuid() == 0:
            shutil.chown(path, 65534, 65534)

    def becomes(self, name, old, new, see, reload=False):
        """Both ways, twice: what is read again once is so the next time as well."""
        self.assertTrue(until(lambda: see() == "old", 10), f"{name}: {see()}")
        for content, what in ((new, "new"), (old, "old")) * 2:
            write_again(self.server.folder / name, content)
            if reload:
                said = self.server.command("reload", "--config", self.server.config)
                self.assertEqual(said.returncode, 0, said.stdout + said.stderr)
            self.assertTrue(until(lambda: see() == what, 10), f"{name}: {see()}, and not {what}")

    def get(self, target, host, *headers):
        return client.get(self.server.port, target, host, headers=headers)

    def test_a_precompressed_file(self):
        see = lambda: gzip.decompress(self.get("/style.css", "plain.test", "Accept-Encoding: gzip").body).decode()[:3]
        self.becomes("plain/style.css.gz", compressed("old\n"), compressed("new\n"), see)

    def test_a_file_of_a_folder_of_hosts(self):
        see = lambda: self.get("/", "three.test").text.strip()
        self.becomes("many/three.test/index.html", b"old\n", b"new\n", see)

    def test_users(self):
        word = "Authorization: Basic " + base64.b64encode(b"ann:secret").decode()
        see = lambda: {200: "old", 401: "new"}.get(self.get("/members/list", "one.test", word).status)
        self.becomes("users", SECRET.encode(), SECRET.replace("ann:", "bob:").encode(), see)

    def test_a_file_of_sites(self):
        hosts = lambda: [self.get("/members/list", f"{host}.test").status == 401 for host in ("one", "two")]
        see = lambda: {(True, False): "old", (False, True): "new"}.get(tuple(hosts()))
        old, new = (EXTRA.format(host=host).encode() for host in ("one", "two"))
        self.becomes("sites/extra.toml", old, new, see, reload=True)

    def test_a_certificate_with_its_key(self):
        def see():
            with self.server.connect_tls("x.a.test") as stream:
                der = stream.getpeercert(True)
            own = [ssl.PEM_cert_to_DER_cert(pem[: pem.index(b"-----END CERT") + 25].decode()) for pem in (self.old, self.new)]
            return ("old", "new")[own.index(der)]

        self.becomes("a-wildcard.pem", self.old, self.new, see)

    def test_authorities_of_clients(self):
        def lets_in(name):
            context = insecure()
            context.load_cert_chain(self.pairs[name])
            try:
                return b" 200 OK" in self.server.get_tls("b.test", context=context)
            except OSError:
                return False

        see = lambda: {(True, False): "old", (False, True): "new"}.get((lets_in("clients"), lets_in("others")))
        self.becomes("clients.pem", self.clients, self.others, see)


class ListWrittenAgain(unittest.TestCase):
    def test_a_list_of_revoked_certificates(self):
        server = Tls(more='client_ca = "clients.pem"\nclient_crl = ["root.crl"]\n')
        root = Issuer(server.keys, "root")
        pair = root.client("bad")
        old = root.crl()
        root.revoke(root.folder / "bad.crt")
        new = root.crl()
        old, new = alike(old, new)
        server.write("clients.pem", root.cert)
        server.write("root.crl", old)

        def lets_in():
            context = insecure()
            context.load_cert_chain(pair)
            try:
                return b" 200 OK" in server.get_tls("b.test", context=context)
            except OSError:
                return False

        with server:
            self.assertTrue(until(lets_in, 10))
            write_again(server.folder / "root.crl", new)
            self.assertTrue(until(lambda: not lets_in(), 10))


@rootless_too
class TemplatesWrittenAgain(unittest.TestCase):
    def test_templates(self):
        with Pages() as server:
            for number in (2, 3):
                for name, source in version(number).items():
                    write_again(server.folder / "templates" / name, source.encode())
                self.assertTrue(server.order(command="republish")["sites"])
                self.assertTrue(until(lambda: server.of_version() == {number}, 10), server.of_version())


@rootless_too
class StatementsWrittenAgain(unittest.TestCase):
    def test_statements(self):
        old = "SELECT id, name, balance FROM users ORDER BY id;"
        new = "SELECT id, name, balance FROM users WHERE id=2;"
        with DataServer(tls={"reread": "1s"}) as server:
            names = lambda: [user["name"] for user in server.ask("many", "users")[1]]
            path = server.folder / "catalog.sql"
            before = path.read_bytes()
            after = before.replace(old.encode(), new.encode().ljust(len(old)))
            for content, expected in ((before, ["ann", "bob"]), (after, ["bob"]), (before, ["ann", "bob"]), (after, ["bob"])):
                write_again(path, content)
                self.assertTrue(until(lambda: names() == expected, 10), names())


@unittest.skipUnless(AtPostgresql.installed(), "there is no PostgreSQL")
class PasswordWrittenAgain(unittest.TestCase):
    def test_a_password(self):
        engine = AtPostgresql()
        self.addCleanup(engine.at.change_password, PASSWORD)
        with Renewing(engine) as server:
            for times, password in enumerate((PASSWORD[::-1], PASSWORD), 1):
                engine.at.change_password(password)
                write_again(server.folder / "password", password.encode() + b"\n")
                server.reread()
                self.assertTrue(until(lambda: server.log().count(f"`password`: {HOLDS}") == times, 10), server.log())
                self.assertTrue(server.answers_anew(), server.log())
