"""Every kind of rule before every kind of target, asked by every kind of name in every spelling: what a rule guards is held
against a model, and against nginx with the same rules.

The cases are made from a seed. `BULKHEAD_RULES_CASES=20000` makes so many (CI makes fewer), `BULKHEAD_RULES_SEED=7` others.
"""

import itertools
import os
import random
import shutil
import socket
import subprocess
import tempfile
import unittest
from pathlib import Path

import backend
import tls_server
from asking import Http1, Http2
from backend import Echo, Fpm, HttpServer
from client import until
from harness import Server, free_port, rootless_too

CASES = int(os.environ.get("BULKHEAD_RULES_CASES", "1500"))
SEED = int(os.environ.get("BULKHEAD_RULES_SEED", "1"))

#: Each kind of rule: how it is written here, where nginx has it, and which names it guards.
RULES = {
    "path": ('path = "/admin/"', "location /admin/", lambda name: (name + "/").startswith("/admin/")),
    "dotted": ('suffix = ".env"', r"location ~ \.env(/|$)", lambda name: has(name, ".env")),
    "json": ('suffix = ".json"', r"location ~ \.json(/|$)", lambda name: has(name, ".json")),
    "php": ('suffix = ".php"', r"location ~ \.php(/|$)", lambda name: has(name, ".php")),
    "both": ('path = "/uploads/"\n  suffix = ".php"', r"location ~ ^/uploads/(.*/)?[^/]*\.php(/|$)",
             lambda name: name.startswith("/uploads/") and has(name, ".php")),
    "pattern": (r"pattern = '/\.[^/]*'", r"location ~ /\.[^/]*", lambda name: "/." in name),
}
#: Each kind of target, here and there.
TARGETS = {
    "files": ("", "root {root};"),
    "upstream": ('\n  [[site.route]]\n  path = "/"\n  upstream = "127.0.0.1:{echo}"\n', "proxy_pass http://127.0.0.1:{echo};"),
    "fastcgi": ('\n  [[site.route]]\n  path = "/"\n  fastcgi = "unix:{php}"\n', None),
    "script": ('\n  [[site.route]]\n  path = "/"\n  fastcgi = "unix:{php}"\n  script = "/app.php"\n', None),
    "rewrite": ('\n  [[site.route]]\n  path = "/"\n  rewrite = "/page.txt"\n', "rewrite ^ /page.txt break; root {root};"),
}
NAMES = ["admin", "a", ".env", ".json", ".a.json", "a.json", "x.php", ".php", ".x.php", "x.phpx", "php", "uploads", ".well-known", "a b"]
# Sources of scripts are refused as well, and would be taken for guarded ones.
FILES = ["page.txt", "app.php", "admin/page.txt", "a/a.json"]


def listens(port):
    with socket.socket() as peer:
        return peer.connect_ex(("127.0.0.1", port)) == 0


def has(name, suffix):
    """Whether a part of the name ends so; what follows may be for a script."""
    return any(part.endswith(suffix) for part in name.split("/"))


class Cases:
    """Names, and spellings that this server or a careless one behind it takes for them."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def name(self):
        return "".join("/" + self.random.choice(NAMES) for _ in range(self.random.choice((1, 1, 2, 3))))

    def plain(self, name):
        return name.replace(" ", "%20")

    def odd(self, name):
        out = []
        for at, byte in enumerate(name):
            chance = self.random.randrange(12)
            if byte == "/":
                out.append(self.random.choice(("//", "%2F", "%5c", ";v=1/", ";v%2Fw/", "%3bv%2F")) if at and chance < 4 else byte)
            elif chance == 0:
                out.append(f"%{ord(byte):02x}")
            elif chance == 1:
                out.append(f"%25{ord(byte):02X}")
            else:
                out.append("%20" if byte == " " else byte)
        return "".join(out) + self.random.choice(("", "", ";", ";x", "%3b", "%3fx", "%23x", "%253Fx", ";x%2Fy"))


@unittest.skipUnless(backend.php_fpm() and shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin"), "php-fpm or nginx is not installed")
@rootless_too
class Rules(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.place = Path(tempfile.mkdtemp(prefix="bulkhead-rules-", dir="/tmp"))
        cls.addClassCleanup(shutil.rmtree, cls.place, True)
        cls.place.chmod(0o755)
        cls.fpm = Fpm(cls.place)
        cls.addClassCleanup(cls.fpm.close)
        cls.echo = cls.enterClassContext(HttpServer(Echo))
        cls.hosts = [f"{rule}-{target}.test" for rule, target in itertools.product(RULES, TARGETS)]
        cls.tls_port = free_port()
        files = {f"tree/{name}": "<?php echo 'RAN';" if name.endswith("php") else "page\n" for name in FILES}
        files["all.pem"] = b"".join(tls_server.certificate(cls.place, "all", "ec", *cls.hosts))
        cls.server = Server(sites=[], programs=(), files=files, text=cls.configuration)
        cls.enterClassContext(cls.server)
        cls.nginx_port = free_port()
        cls.start_nginx()

    @classmethod
    def words(cls):
        return {"php": cls.fpm.socket, "echo": cls.echo.port}

    @classmethod
    def configuration(cls, port):
        lines = [
            f'[[listen]]\naddress = "127.0.0.1:{port}"\n[[listen]]\naddress = "127.0.0.1:{cls.tls_port}"\ntls = true\n'
            '[server]\ngates = 1\nlog_dir = "log"\n[conditioning]\nchecks = "lenient"\nban_after = 0\n[limits]\nconnections = 4000\n'
        ]
        for (rule, (here, _, _)), (target, (leads, _)) in itertools.product(RULES.items(), TARGETS.items()):
            name = f"{rule}-{target}"
            lines.append(f'[[site]]\nname = "{name}"\nhost = ["{name}.test"]\nroot = "tree"\ncertificates = ["all.pem"]\n')
            lines.append(f'  [[site.route]]\n  {here}\n  deny = ["0.0.0.0/0"]\n' + leads.format(**cls.words()))
        return "\n".join(lines)

    @classmethod
    def start_nginx(cls):
        words = cls.words() | {"root": cls.server.folder / "tree"}
        servers = []
        for (rule, (_, there, _)), (target, (_, leads)) in itertools.product(RULES.items(), TARGETS.items()):
            if leads is not None:
                servers.append(f"server {{ listen 127.0.0.1:{cls.nginx_port}; server_name {rule}-{target}.test; "
                               f"{there} {{ deny all; }} location / {{ {leads.format(**words)} }} }}")
        user = "" if os.geteuid() else "user nobody nogroup;"
        kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        folders = "".join(f"{kind}_temp_path {cls.place}/{kind}; " for kind in kinds)
        text = f"""
            daemon off; pid {cls.place}/pid; error_log {cls.place}/error.log; worker_processes 1; {user} events {{}}
            http {{ access_log off; server_names_hash_bucket_size 128; {folders} {" ".join(servers)} }}
        """
        (cls.place / "nginx.conf").write_text(text)
        nginx = subprocess.Popen(["nginx", "-c", str(cls.place / "nginx.conf")], stderr=subprocess.DEVNULL,
                                 env=os.environ | {"PATH": f"{os.environ['PATH']}:/usr/sbin"})
        cls.addClassCleanup(nginx.wait)
        cls.addClassCleanup(nginx.terminate)
        assert until(lambda: listens(cls.nginx_port), 10), (cls.place / "error.log").read_text()

    def ask(self, peer, host, target):
        return peer.ask(host, target, "GET", ())[0]

    def sweep(self, peer, count, seed, hosts=None):
        """Asks in every spelling; whatever a rule guards is refused: 403, or 400 and 404 for what is no path of anything."""
        cases, guarded = Cases(seed), 0
        nginx = Http1(self.nginx_port, False)
        for number in range(count):
            host = cases.random.choice(hosts or self.hosts)
            rule, target = host.removesuffix(".test").split("-")
            name = cases.name()
            is_plain = cases.random.random() < 0.5
            spelling = cases.plain(name) if is_plain else cases.odd(name)
            what = f"seed {seed}, case {number}: {host} {spelling!r}, which is {name}"
            status = self.ask(peer, host, spelling)
            if RULES[rule][2](name):
                guarded += 1
                self.assertIn(status, (403,) if is_plain else (403, 400, 404), what)
            elif is_plain:
                self.assertNotEqual(status, 403, what)
            if is_plain and TARGETS[target][1] is not None:
                theirs = self.ask(nginx, host, spelling)
                # nginx knows a folder by its slash alone.
                is_folder = rule == "path" and name == "/admin"
                self.assertEqual(status == 403, theirs == 403 or is_folder, f"{what}: {status}, and nginx {theirs}")
        peer.close()
        nginx.close()
        self.assertGreater(guarded, count // 10)

    def test_http1(self):
        self.sweep(Http1(self.server.port, False), CASES * 2 // 3, SEED)

    def test_tls(self):
        self.sweep(Http1(self.tls_port, True), CASES // 6, SEED + 1, ["json-upstream.test"])

    def test_http2(self):
        self.sweep(Http2(self.tls_port), CASES // 6, SEED + 2, ["json-upstream.test", "both-script.test"])

    def test_what_follows_a_script_is_the_applications(self):
        """WebDAV and git ask for dot files behind a script, with methods of their own."""
        peer = Http1(self.server.port, False)
        host = "json-fastcgi.test"
        for target in ("/app.php/files/ann/.gitignore", "/app.php/.git/HEAD", "/app.php/.well-known/x", "/app.php/a/.env/b"):
            for method in ("GET", "PUT", "DELETE", "PROPFIND", "MKCOL"):
                status, _, body = peer.ask(host, target, method, ())
                self.assertEqual((status, body), (200, b"RAN"), f"{method} {target}")
        # A rule that keeps people out looks at the rest as well: who else reads the path may take it for the name.
        for host, target in (("json-fastcgi.test", "/app.php/x.json"), ("dotted-fastcgi.test", "/app.php/.env"),
                             ("json-upstream.test", "/app.php/x.json/y"), ("pattern-fastcgi.test", "/app.php/.env"),
                             ("json-script.test", "/app.php;a/x%2Ejson"), ("dotted-fastcgi.test", "/app.php%2f.env")):
            for method in ("GET", "PUT", "PROPFIND"):
                self.assertIn(peer.ask(host, target, method, ())[0], (403, 404), f"{method} {host} {target}")
        for target in ("/.hidden.php/x", "/.git/app.php", "/app.php%2f.git"):
            self.assertNotIn(b"RAN", peer.ask("json-files.test", target, "GET", ())[2], target)
        peer.close()
