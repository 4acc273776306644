"""Every file of a tree is asked for in every spelling and through every feature that resolves names, and each answer is
held against one table: who may have the file; nobody ever gets the source of a script.

The cases are made from a seed. `BULKHEAD_NAMES_CASES=20000` makes so many (CI makes fewer), `BULKHEAD_NAMES_SEED=7` others.
"""

import base64
import gzip
import os
import random
import re
import shutil
import tempfile
import unittest

import pytest
import urllib.parse
import zlib
from pathlib import Path

import backend
import client
import tls_server
from asking import Http1, Http2
from backend import Echo, Fpm, HttpServer
from harness import Server, free_port, rootless_too
from serving import Serving

CASES = int(os.environ.get("BULKHEAD_NAMES_CASES", "3000"))
SEED = int(os.environ.get("BULKHEAD_NAMES_SEED", "1"))
#: The hash of `secret`, of the least cost.
USERS = "ann:$2y$04$pXmKKN4LVrl/pi.63jVWLuHlaQPdiA9nAsfQDJjjvLo3dW3mdoazO\n"
PASSWORD = "Authorization: Basic " + base64.b64encode(b"ann:secret").decode()


def script(name, more=""):
    return f"<?php /* {'<<SOURCE>> ' * 40}{name} */ echo 'RAN {name} ', $_SERVER['REQUEST_URI']; {more}"


def text(kind, name):
    """So that any 40 bytes of it show what it is."""
    return f"<<{kind}>> " * 40 + f"{name}\n"


#: The tree. What a file's content begins with says who may have it.
TREE = {
    "index.php": script("index.php"),
    "index.html": text("PUBLIC", "index.html"),
    "style.css": text("PUBLIC", "style.css"),
    "docs/page.html": text("PUBLIC", "docs/page.html"),
    "docs/a b.txt": text("PUBLIC", "docs/a b.txt"),
    "docs/index.html": text("PUBLIC", "docs/index.html"),
    "app/index.php": script("app/index.php"),
    "app/form.php": script("app/form.php"),
    "app/old.phtml": script("app/old.phtml"),
    "app/pack.phar": script("app/pack.phar"),
    "app/UPPER.PHP": script("app/UPPER.PHP"),
    "app/form.php~": script("app/form.php~"),
    "app/form.php.bak": script("app/form.php.bak"),
    "app/form.php.gz": gzip.compress(script("app/form.php.gz").encode()),
    "run/tool.cgi": text("SOURCE", "run/tool.cgi"),
    "run/index.cgi": text("SOURCE", "run/index.cgi"),
    "errors/404.php": script("errors/404.php"),
    "errors/403.html": text("PUBLIC", "errors/403.html"),
    "members/index.html": text("MEMBERS", "members/index.html"),
    "members/list.txt": text("MEMBERS", "members/list.txt"),
    "members/own.php": script("members/own.php"),
    "closed/index.html": text("CLOSED", "closed/index.html"),
    "closed/410.html": text("CLOSED", "closed/410.html"),
    "closed/file.txt": text("CLOSED", "closed/file.txt"),
    "internal/file.txt": text("INTERNAL", "internal/file.txt"),
    "plain.css": text("PUBLIC", "plain.css"),
    "plain.css.gz": gzip.compress(text("CLOSED", "plain.css.gz").encode()),
    "accel.php": "<?php /* " + "<<SOURCE>> " * 40 + "*/ header('X-Accel-Redirect: ' . $_GET['to']); echo 'no';",
    "sendfile.php": "<?php /* " + "<<SOURCE>> " * 40 + "*/ header('X-Sendfile: ' . $_SERVER['DOCUMENT_ROOT'] . $_GET['to']); echo 'no';",
    ".env": text("HIDDEN", ".env"),
    "docs/.htaccess": text("HIDDEN", "docs/.htaccess"),
    ".git/config": text("HIDDEN", ".git/config"),
}

RULES = """
  [[site.route]]
  path = "/members/"
  auth = {{ users = "users", realm = "Members" }}

  [[site.route]]
  path = "/closed/"
  deny = ["0.0.0.0/0", "::/0"]

  [[site.route]]
  path = "/internal/"
  internal = true

  [[site.route]]
  suffix = ".gz"
  deny = ["0.0.0.0/0", "::/0"]
"""
PHP = """
  [[site.route]]
  suffix = ".php"
  fastcgi = "unix:{php}"
"""
CGI = """
  [[site.route]]
  suffix = ".cgi"
  upstream = "127.0.0.1:{upstream}"
"""
PAGES = 'error_page = {{ 404 = "errors/404.php", 403 = "errors/403.html", 410 = "closed/410.html" }}\n'
INDEX = 'index = ["index.php", "index.cgi", "index.html"]\n'
REWRITES = """
  [[site.route]]
  path = "/front/"
  rewrite = "/"

  [[site.route]]
  path = "/to-source"
  rewrite = "/app/form.php"

  [[site.route]]
  path = "/to-members/"
  rewrite = "/members/"
"""
#: Sites that resolve names in different ways, by their hosts.
SITES = {
    "php.test": INDEX + PAGES + RULES + PHP + CGI + REWRITES,
    "fallback.test": INDEX + PAGES + RULES + PHP.replace("fastcgi", "fallback = true\n  fastcgi") + CGI.replace(
        "upstream =", "fallback = true\n  upstream ="),
    "front.test": INDEX + RULES + """
  [[site.route]]
  path = "/"
  fastcgi = "unix:{php}"
  script = "/index.php"
  fallback = true

  [[site.route]]
  suffix = ".cgi"
  deny = ["0.0.0.0/0"]
""",
    "below.test": INDEX + RULES + """
  [[site.route]]
  path = "/"
  fastcgi = "unix:{php}"
  fallback = true
""" + CGI,
    "none.test": INDEX + "listing = true\n" + PAGES + RULES + CGI + REWRITES,
    "spa.test": INDEX + RULES + CGI + """
  [[site.route]]
  path = "/"
  rewrite = "/index.php"
  fallback = true
""",
}
#: One host, two sites on one tree: what one has closed the other does not open.
SPLIT = """
[[site]]
name = "split-members"
host = ["split.test"]
path = "/members/"
root = "tree"
auth = {{ users = "users", realm = "Members" }}

[[site]]
name = "split-closed"
host = ["split.test"]
path = "/closed/"
root = "tree"
deny = ["0.0.0.0/0"]

[[site]]
name = "split-internal"
host = ["split.test"]
path = "/internal/"
root = "tree"
deny = ["0.0.0.0/0"]

[[site]]
name = "split"
host = ["split.test"]
root = "tree"

  [[site.route]]
  suffix = ".cgi"
  upstream = "127.0.0.1:{upstream}"

  [[site.route]]
  suffix = ".gz"
  deny = ["0.0.0.0/0"]
"""
BEHIND = """
  [[site.route]]
  path = "/"
  upstream = "127.0.0.1:{upstream}"

  [[site.route]]
  path = "/api/admin/"
  deny = ["0.0.0.0/0"]
"""


def generous(path):
    """What the most generous backend makes of a path: decoded twice, without parameters, any slash a separator."""
    for _ in range(2):
        path = urllib.parse.unquote(path, "latin-1")
    names = []
    for name in re.split(r"[/\\]", path):
        name = name.split(";")[0]
        if name == "..":
            names = names[:-1]
        elif name not in ("", "."):
            names.append(name)
    return "/" + "/".join(names)


class Spellings:
    """Ways to write a path, good and bad."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def of(self, name):
        path = "/" + urllib.parse.quote(name)
        for _ in range(self.random.choice((0, 0, 1, 1, 1, 2, 3))):
            path = self.random.choice(self.CHANGES)(self, path)
        return path if path.startswith("/") else "/" + path

    def somewhere(self, path):
        """A place behind a slash."""
        return self.random.choice([at + 1 for at, byte in enumerate(path) if byte == "/"] or [1])

    def insert(self, path, what):
        at = self.somewhere(path)
        return path[:at] + what + path[at:]

    def slashes(self, path):
        return self.insert(path, self.random.choice(("/", "//", "///")))

    def escape(self, path, twice=False):
        at = self.random.randrange(1, len(path)) if len(path) > 1 else 0
        code = f"%{ord(path[at]):02x}" if at else "/"
        code = code.upper() if self.random.random() < 0.5 else code
        return path[:at] + (code.replace("%", "%25") if twice and at else code) + path[at + 1:]

    def escape_all(self, path):
        return "/" + "".join(byte if byte == "/" else f"%{ord(byte):02X}" for byte in path[1:] if byte != "%")

    def dots(self, path):
        return self.insert(path, self.random.choice((
            "./", "../", "x/../", "x/..;/", ".;/", "%2e/", "%2e%2e/", "x%2f..%2f", "x/..%2f", "..%5c", "x/%252e%252e/", "..;x=1/",
        )))

    def separators(self, path):
        at = self.somewhere(path) - 1
        other = self.random.choice(("%2f", "%2F", "%5c", "%252f", ";/", ";a=b/", "/;/", "%3b/"))
        return (path[:at] + other + path[at + 1:]) if at else path + other

    def ends(self, path):
        return path + self.random.choice((
            "/", "//", ".", "%20", "%00", "%00.html", "::$DATA", ";x", "%3bx", "/x.php", "/.php", "/index.html", "~", ".bak", ".gz",
            "/a/b", "?x=1", "?x=.php", "%0a", "#", "%23", "/..", "/.", "%2e", "%252e", "%c0%ae",
        ))

    def case(self, path):
        return self.random.choice((path.upper(), path.swapcase(), path.title()))

    def prefix(self, path):
        return self.random.choice(("/front", "/to-members", "/to-source", "/docs", "/members/..", "/app")) + path

    def folder(self, path):
        return path.rsplit("/", 1)[0] + "/"

    CHANGES = (slashes, escape, lambda self, path: self.escape(path, True), escape_all, dots, separators, ends, case, prefix, folder)


HEADERS = ((), (), ("Range: bytes=3-40",), ("Range: bytes=-50",), ("Accept-Encoding: gzip, br, zstd",), ("Accept-Encoding: gzip",),
           ('If-None-Match: "x"',), ("Accept: application/json",), (PASSWORD,), (PASSWORD, "Accept-Encoding: gzip"))
METHODS = ("GET", "GET", "GET", "HEAD", "POST", "OPTIONS")


def plain(headers, body):
    """The body without its encoding; a part of one as it is."""
    coding = headers.get("content-encoding")
    if coding == "gzip" or body[:2] == b"\x1f\x8b":
        try:
            return zlib.decompressobj(31).decompress(body)
        except zlib.error:
            return body
    if coding in ("br", "zstd") and body:
        # The same answer is asked for without an encoding in other cases.
        return b""
    return body


@unittest.skipUnless(backend.php_fpm(), "php-fpm is not installed")
@rootless_too
class Names(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.place = Path(tempfile.mkdtemp(prefix="bulkhead-names-", dir="/tmp"))
        cls.addClassCleanup(shutil.rmtree, cls.place, True)
        cls.place.chmod(0o755)
        cls.fpm = Fpm(cls.place)
        cls.addClassCleanup(cls.fpm.close)
        cls.echo = cls.enterClassContext(HttpServer(Echo))
        hosts = [*SITES, "vhost.test", "behind.test"]
        certificate = b"".join(tls_server.certificate(cls.place, "all", "ec", *hosts))
        cls.tls_port = free_port()
        files = {f"tree/{name}": content for name, content in TREE.items()} | {"users": USERS, "all.pem": certificate}
        files |= {f"hosts/vhost.test/{name}": content for name, content in TREE.items()}
        cls.server = Server(sites=[], programs=(), files=files, text=cls.configuration)
        cls.enterClassContext(cls.server)

    @classmethod
    def configuration(cls, port):
        words = {"php": cls.fpm.socket, "upstream": cls.echo.port}
        lines = [
            f'[[listen]]\naddress = "127.0.0.1:{port}"\n[[listen]]\naddress = "127.0.0.1:{cls.tls_port}"\ntls = true\n'
            '[server]\ngates = 1\nlog_dir = "log"\n[conditioning]\nchecks = "lenient"\n[limits]\nconnections = 4000\n'
        ]
        certificate = 'certificates = ["all.pem"]\n'
        for host, rules in SITES.items():
            lines.append(f'[[site]]\nname = "{host.split(".")[0]}"\nhost = ["{host}"]\nroot = "tree"\n{certificate}')
            lines.append(rules.format(**words))
        lines.append(f'[[site]]\nname = "vhost"\nhost = ["vhost.test"]\nvhosts = "hosts"\n{certificate}')
        lines.append((INDEX + RULES + PHP + CGI + REWRITES).format(**words))
        lines.append(f'[[site]]\nname = "behind"\nhost = ["behind.test"]\n{certificate}' + BEHIND.format(**words))
        lines.append(SPLIT.format(**words))
        return "\n".join(lines)

    def hold(self, what, headers, answer, is_internal=False):
        """Holds an answer against the table."""
        status, fields, body = answer
        content = plain(fields, body)
        has_password = PASSWORD in headers
        self.assertLess(status, 500, what)
        for kind, allowed in {
            b"<<SOURCE>>": False, b"<<HIDDEN>>": False, b"<<CLOSED>>": False, b"<<MEMBERS>>": has_password,
            b"<<INTERNAL>>": is_internal,
        }.items():
            self.assertFalse(kind in content and not allowed, f"{what}: {status} {kind} {content[:80]}")
        if status in (200, 206) and not has_password and not is_internal:
            self.assertNotIn(int(fields.get("content-length", -1)), self.secret_lengths(), f"{what}: {status} {fields}")

    def secret_lengths(self):
        """Lengths that only files have which nobody may have: HEAD tells no more of them."""
        of = lambda is_secret: {
            len(content) for content in TREE.values()
            if is_secret(content if isinstance(content, bytes) else content.encode())
        }
        return of(lambda content: not content.startswith(b"<<PUBLIC>>")) - of(lambda content: content.startswith(b"<<PUBLIC>>"))

    def case(self, spell):
        """The host, target, method and headers of the next case."""
        at_random = spell.random
        host = at_random.choice([*SITES, "vhost.test", "split.test", "php.test"])
        if at_random.random() < 0.15 and host in ("php.test", "vhost.test"):
            target = at_random.choice(("/accel.php?to=", "/sendfile.php?to=")) + urllib.parse.quote(spell.of(at_random.choice(list(TREE))), "/%;")
        else:
            target = spell.of(at_random.choice([*TREE, "", "docs/", "app/", "run/", "members/", "closed/", "front/", "missing"]))
        target = target.replace(" ", "%20").replace("#", "%23")
        return host, target, at_random.choice(METHODS), at_random.choice(HEADERS)

    def sweep(self, peer, cases, seed, hosts=None):
        spell = Spellings(seed)
        for number in range(cases):
            host, target, method, headers = self.case(spell)
            if hosts and host not in hosts:
                host = spell.random.choice(hosts)
            what = f"seed {seed}, case {number}: {method} {host} {target!r} {headers}"
            self.hold(what, headers, peer.ask(host, target, method, headers), ".php?to=" in target.lower())
        peer.close()

    @pytest.mark.slow
    def test_http1(self):
        self.sweep(Http1(self.server.port, False), CASES // 2, SEED)

    def test_tls(self):
        self.sweep(Http1(self.tls_port, True), CASES // 10, SEED + 1, ["php.test"])
        self.sweep(Http1(self.tls_port, True), CASES // 10, SEED + 2, ["front.test"])

    def test_http2(self):
        for number, host in enumerate(["php.test", "none.test", "fallback.test", "vhost.test", "spa.test"]):
            self.sweep(Http2(self.tls_port), CASES // 25, SEED + 3 + number, [host])

    def test_what_backends_get(self):
        """No spelling leads a backend to a path that a rule has closed."""
        spell, peer, got = Spellings(SEED + 9), Http1(self.server.port, False), 0
        names = ["api/admin/keys", "api/admin/", "api/admin", "api/users/1", "api/x/../admin/f", "public"]
        for number in range(CASES // 10):
            target = spell.of(spell.random.choice(names)).replace(" ", "%20").replace("#", "%23")
            status, _, body = peer.ask("behind.test", target, spell.random.choice(("GET", "POST")), ())
            if status == 200 and body.startswith(b"GOT "):
                got += 1
                path = body[4:].decode("latin-1").split("?")[0]
                meant = generous(path)
                is_closed = meant == "/api/admin" or meant.startswith("/api/admin/")
                self.assertFalse(is_closed, f"seed {SEED + 9}, case {number}: {target!r} reached the backend as {path!r}")
                self.assertNotIn("//", path, target)
        peer.close()
        self.assertGreater(got, CASES // 60, "most cases reach the backend, or nothing is shown")

    def test_everybody_gets_what_is_theirs(self):
        """The table's other half: what is refused above is not refused to those who may."""
        get = lambda target, host="php.test", *headers, **more: self.server.get(target, host, headers=headers, **more)
        for host in ("php.test", "vhost.test", "fallback.test", "below.test", "front.test"):
            self.assertEqual(get("/", host).text, "RAN index.php /", host)
            self.assertEqual(get("/?a=1", host, method="HEAD").status, 200, host)
            self.assertEqual(get("/docs/a%20b.txt", host).text, TREE["docs/a b.txt"], host)
            self.assertEqual(get("/docs/", host).text, TREE["docs/index.html"], host)
            self.assertEqual(get("/members/", host).status, 401, host)
            self.assertEqual(get("/members/", host, PASSWORD).text, TREE["members/index.html"], host)
            self.assertEqual(get("/closed/file.txt", host).status, 403, host)
            self.assertEqual(get("/internal/file.txt", host).status, 404, host)
            self.assertEqual(get("/plain.css", host, "Accept-Encoding: gzip").status, 200, host)
        self.assertEqual(get("/", method="POST", body=b"a=b").text, "RAN index.php /")
        self.assertEqual(get("/app/", "vhost.test").text, "RAN app/index.php /app/")
        self.assertEqual(get("/front/").text, "RAN index.php /front/")
        self.assertEqual(get("/to-source?x").text, "RAN app/form.php /to-source?x")
        self.assertEqual(get("/run/").text, "GOT /run/index.cgi")
        self.assertEqual(get("/to-members/", "php.test", PASSWORD).text, TREE["members/index.html"])
        self.assertEqual(get("/accel.php?to=/internal/file.txt").text, TREE["internal/file.txt"])
        self.assertEqual(get("/sendfile.php?to=/internal/file.txt").text, TREE["internal/file.txt"])
        for server in ("accel", "sendfile"):
            for path, status in {"/members/list.txt": 401, "/closed/file.txt": 403, "/app/form.php": 404, "/.env": 404}.items():
                self.assertEqual(get(f"/{server}.php?to={path}").status, status, (server, path))
        missing = get("/missing?x=1")
        self.assertEqual((missing.status, missing.text), (404, "RAN errors/404.php /missing?x=1"))
        refused = get("/closed/file.txt")
        self.assertEqual((refused.status, refused.text), (403, TREE["errors/403.html"]))
        self.assertEqual(get("/app/form.php", "none.test").status, 403)
        self.assertTrue(client.until(lambda: "the source of a script is never sent" in self.server.log(), 5), self.server.log())
        self.assertEqual(get("//members/list.txt", "split.test").status, 401)
        self.assertEqual(get("/members/list.txt", "split.test", PASSWORD).text, TREE["members/list.txt"])
        self.assertEqual(get("/%2fmembers/list.txt", "split.test").status, 400)
        self.assertEqual(get("/api//%75sers/a%2Fb;c", "behind.test").text, "GOT /api/users/a%2Fb;c")


@unittest.skipUnless(backend.php_fpm(), "php-fpm is not installed")
class OnTheCommandLine(unittest.TestCase):
    """The same of `bulkhead serve`, which has no configuration."""

    def test_no_source_is_sent(self):
        place = Path(tempfile.mkdtemp(prefix="bulkhead-names-", dir="/tmp"))
        self.addCleanup(shutil.rmtree, place, True)
        place.chmod(0o755)
        fpm = Fpm(place)
        self.addCleanup(fpm.close)
        with Serving() as serving:
            for name, content in TREE.items():
                # No route there runs `.cgi`, which is then a file like others.
                if isinstance(content, str) and not name.endswith(".cgi"):
                    serving.write(f"public/{name}", content)
            port = free_port()
            serving.start("--bind", f"127.0.0.1:{port}", "--index", "index.php", "--fastcgi", ".php", fpm.socket, "public")
            self.assertEqual(client.get(port, "/").text, "RAN index.php /")
            peer, spell = Http1(port, False), Spellings(SEED + 20)
            for number in range(CASES // 10):
                target = spell.of(spell.random.choice(list(TREE))).replace(" ", "%20").replace("#", "%23")
                method, headers = spell.random.choice(METHODS), spell.random.choice(HEADERS)
                _, fields, body = peer.ask("localhost", target, method, headers)
                content = plain(fields, body)
                for kind in (b"<<HIDDEN>>", b"<<SOURCE>>"):
                    self.assertNotIn(kind, content, f"seed {SEED + 20}, case {number}: {method} {target!r} {headers}")
            peer.close()


if __name__ == "__main__":
    unittest.main()
