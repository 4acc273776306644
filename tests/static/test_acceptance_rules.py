"""Every kind of rule of the acceptance configuration, and the same requests to nginx with the same rules, with and without
TLS.

Where the two differ, `OURS` says how and why.
"""

import os
import re
import shutil
import ssl
import subprocess
import tempfile
import unittest
from pathlib import Path

from backend import Raw, response
from client import Connection, get, until
from harness import ROOTLESS, TOP, Server, free_port, rootless_too
from tls_server import openssl

CONFIG = TOP / "tests/config/acceptance-rules.toml"

FILES = {
    "index.html": "home\n", "show.html": "show\n", "pages/one.html": "one\n", "pages/sub/index.html": "sub\n",
    "pages/empty/x.txt": "x\n", "app/index.html": "app\n", "app/real.js": "real\n", "private/x.html": "secret\n",
    "uploads/run.cgi": "secret\n", "uploads/picture.png": "picture\n", "x.thing": "thing\n", "settings.INI": "secret\n",
    "deep/app.log": "secret\n", "errors/404.html": "our own 404\n", "errors/502.html": "our own 502\n",
    "errors/413.html": "our own 413\n", "media/hidden.html": "secret\n",
}

#: Beside the root, by their paths below the server's folder.
ELSEWHERE = {
    "elsewhere/one.html": "one elsewhere\n", "elsewhere/sub/index.html": "sub elsewhere\n", "elsewhere/app.log": "secret\n",
    "shared/page.html": "shared\n", "shared/sub/index.html": "shared sub\n", "closed/secret.html": "not named\n",
    "sites/below/x.html": "below\n", "sites/index.html": "secret\n",
}

#: Links, by their paths below the server's folder.
LINKS = {
    "public/shared.html": "../shared/page.html", "public/far": "../shared/sub", "public/closed.html": "../closed/secret.html",
    "elsewhere/shared.html": "../shared/page.html", "elsewhere/closed": "../closed", "public/within.html": "show.html",
}

NGINX = """\
daemon off; pid {folder}/pid; error_log {folder}/said warn; worker_processes 1;
{user}
events {{ worker_connections 500; }}
http {{
    access_log off; types {{ text/html html; application/x-thing thing; }}
    client_body_temp_path {folder}/t1; proxy_temp_path {folder}/t2; fastcgi_temp_path {folder}/t3;
    uwsgi_temp_path {folder}/t4; scgi_temp_path {folder}/t5;
    absolute_redirect off; proxy_http_version 1.1;
    server {{
        listen 127.0.0.1:{port};
        listen 127.0.0.1:{tls} ssl;
        ssl_certificate {folder_of_root}/fullchain.pem;
        ssl_certificate_key {folder_of_root}/privkey.pem;
        server_name a.test;
        root {root};
        index index.html;
        client_max_body_size 10k;
        error_page 404 /errors/404.html;
        error_page 502 /errors/502.html;
        error_page 413 /errors/413.html;
        rewrite "^/article/(\\d+)$" /show.html?id=$1 break;
        rewrite "^/u/(?<who>[^/]+)/(.*)$" /users/$who?rest=$2 permanent;
        rewrite "^/drop/(.*)$" /users/$1? redirect;
        location /kept {{ rewrite ^ /users permanent; }}
        location /old/ {{ rewrite ^/old/(.*)$ /users/$1 permanent; }}
        location /host {{ return 302 https://$host$uri$is_args$args; }}
        location /pages/ {{ try_files $uri $uri/ $uri.html =404; }}
        location /app/ {{ try_files $uri /app/index.html; }}
        location /private/ {{ deny all; }}
        location ~ ^/uploads/.*\\.cgi$ {{ deny all; }}
        location ~* \\.(ini|log)$ {{ deny all; }}
        location /media/ {{ alias {folder_of_root}/elsewhere/; }}
        location /api/files/ {{ alias {folder_of_root}/elsewhere/sub/; }}
        location /api/ {{
            client_max_body_size 1m;
            proxy_pass http://unix:{folder}/app.sock:/;
            proxy_set_header Host api.internal;
            proxy_set_header Authorization "";
            proxy_set_header X-From "the operator";
            proxy_hide_header X-Powered-By;
            add_header X-Served-By nginx;
        }}
        location /whole/ {{
            client_max_body_size 1k;
            proxy_pass http://unix:{folder}/app.sock;
            proxy_set_header Host $host;
        }}
        location /named/ {{ proxy_pass http://localhost:{named}; proxy_set_header Host $host; }}
        location /below/ {{ root {folder_of_root}/sites; }}
        location /dead/ {{ proxy_pass http://unix:{folder}/nobody.sock; }}
    }}
}}
"""

#: method, path, bytes of a body
REQUESTS = [
    ("GET", path, 0) for path in (
        "/", "/article/17", "/article/17?a=b", "/article/x", "/u/ann/a/b", "/u/ann/a%20b?q=1", "/drop/x?q=1", "/kept",
        "/kept?q=1", "/old/a/b?q=1", "/old/a%20b", "/host", "/host/x%20y?q=1", "/pages/one", "/pages/one.html",
        "/pages/sub", "/pages/sub/", "/pages/none", "/pages/empty/", "/app/real.js", "/app/any/where?x", "/app/",
        "/private/x.html", "/private/none", "/private", "/uploads/run.cgi", "/uploads/picture.png", "/uploads/none.cgi",
        "/x.thing", "/settings.INI", "/deep/app.log", "/none.log", "/none", "/api/users?q=1", "/api/", "/api/a%20b",
        "/media/one.html", "/media/", "/media/sub/", "/media/sub", "/media/none", "/media/hidden.html", "/media/app.log",
        "/media../closed/secret.html", "/media", "/%6dedia/one.html", "/api/files/", "/api/files/index.html", "/api/files/none",
        "/shared.html", "/far/", "/far", "/within.html", "/closed.html", "/media/shared.html", "/media/closed/secret.html",
        "/named/x?y", "/below/x.html", "/below/none", "/below/../index.html", "//below/x.html", "/%62elow/x.html", "/belowx",
        "/whole/users", "/dead/x", "/%70rivate/x.html", "//private//x.html",
    )
] + [("POST", "/api/up", 500_000), ("POST", "/api/up", 20_000_000), ("POST", "/whole/up", 500), ("POST", "/whole/up", 5_000)]

#: What is ours, and why.
OURS = {
    # A permanent redirect that keeps the method; nginx's `permanent` cannot.
    "/old/a/b?q=1": {"status": 308}, "/old/a%20b": {"status": 308},
    # A blank in a `Location` is none; nginx leaves it to the client.
    "/host/x%20y?q=1": {"location": "https://a.test/host/x%20y?q=1"},
    # Without an index file, a folder is nothing to try: the next of the list is.
    "/pages/empty/": {"status": 404, "body": b"our own 404\n"},
    # A folder without an index file is 404, as what is not there: nobody learns which folders there are.
    "/media/": {"status": 404, "body": b"our own 404\n"},
    # A link is followed into folders that are named, and nginx follows every one.
    "/closed.html": {"status": 404, "body": b"our own 404\n"},
    "/media/closed/secret.html": {"status": 404, "body": b"our own 404\n"},
    # A site below a path has error pages of its own.
    "/below/none": {"body": b"<!doctype html>\n<title>404 Not Found</title>\n<h1>404 Not Found</h1>\n"},
    # Dot segments are refused, as servers behind read them in several ways; nginx resolves them.
    "/below/../index.html": {"status": 400, "body": None, "location": None},
    # The rule for a folder is for its name without a slash, too: frameworks take the two for one.
    "/private": {"status": 403, "body": None, "location": None},
}


def summary(answer):
    body = answer.body if answer.status in (200, 404, 413, 502) else None
    where = answer.headers.get("location")
    return {"status": answer.status, "location": where, "body": body}


@rootless_too
class Acceptance(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        text = CONFIG.read_text()
        cls.seen = []
        cls.named = cls.enterClassContext(Raw(answer=cls.answer)).at.rpartition(":")[2]
        cls.tls_port = free_port()
        ports = {":8443": f":{cls.tls_port}", ":3000": f":{cls.named}"}
        cls.server = Server([], (), text=lambda port: re.sub(
            ":(8080|8443|3000)\\b", lambda found: (ports | {":8080": f":{port}"})[found[0]], text))
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "90", "-subj", "/CN=a.test",
                "-addext", "subjectAltName=DNS:a.test", "-keyout", "privkey.pem", "-out", "fullchain.pem", cwd=cls.server.folder)
        (cls.server.folder / "privkey.pem").chmod(0o600)
        for name, content in FILES.items():
            cls.server.write(f"public/{name}", content)
        for name, content in ELSEWHERE.items():
            cls.server.write(name, content)
        for name, target in LINKS.items():
            (cls.server.folder / name).symlink_to(target)
        cls.enterClassContext(Raw(path=str(cls.server.folder / "app.sock"), answer=cls.answer))
        if ROOTLESS and os.geteuid() == 0:
            for path in [cls.server.folder, *cls.server.folder.rglob("*")]:
                os.chown(path, 65534, 65534, follow_symlinks=False)
        cls.enterClassContext(cls.server)

    @classmethod
    def answer(cls, request):
        cls.seen.append(request)
        body = f"{request.line}\n{request.field('host')}\n".encode()
        return response(body, "200 OK", "X-Powered-By: guesswork", "X-Kept: yes")

    def ask(self, port, method, path, bytes_, tls=False):
        connection = Connection(port)
        if tls:
            context = ssl.create_default_context(cafile=self.server.folder / "fullchain.pem")
            connection.socket = context.wrap_socket(connection.socket, server_hostname="a.test")
        with connection:
            headers = ["Authorization: Basic eDp5", "Connection: close"]
            return connection.get(path, "a.test", headers, method, b"x" * bytes_)

    def test_the_table_beside_nginx(self):
        program = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
        if not program:
            self.skipTest("nginx is not installed")
        folder = Path(tempfile.mkdtemp(prefix="bulkhead-rules-", dir="/tmp"))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        folder.chmod(0o755)
        port, tls_port = free_port(), free_port()
        user = "user nobody nogroup;" if os.geteuid() == 0 else ""
        config = NGINX.format(folder=folder, port=port, tls=tls_port, named=self.named, user=user, root=self.server.folder / "public",
                              folder_of_root=self.server.folder)
        (folder / "nginx.conf").write_text(config)
        self.enterContext(Raw(path=str(folder / "app.sock"), answer=self.answer))
        nginx = subprocess.Popen([program, "-p", str(folder), "-c", str(folder / "nginx.conf")], stderr=subprocess.DEVNULL)
        self.addCleanup(nginx.wait, 10)
        self.addCleanup(nginx.terminate)
        self.assertTrue(until(lambda: self.status(port) == 200, 10), "nginx does not come up")
        for tls, (theirs, ours) in enumerate([(port, self.server.port), (tls_port, self.tls_port)]):
            for method, path, bytes_ in REQUESTS:
                with self.subTest(method=method, path=path, bytes=bytes_, tls=bool(tls)):
                    expected = summary(self.ask(theirs, method, path, bytes_, tls)) | OURS.get(path, {})
                    self.assertEqual(summary(self.ask(ours, method, path, bytes_, tls)), expected)

    @staticmethod
    def status(port):
        try:
            return get(port, "/", host="a.test").status
        except OSError:
            return None

    def test_headers_that_are_changed(self):
        answer = self.ask(self.server.port, "GET", "/api/users?q=1", 0)
        self.assertEqual(answer.body, b"GET /users?q=1 HTTP/1.1\napi.internal\n")
        self.assertNotIn("x-powered-by", answer.headers)
        self.assertEqual((answer.headers["x-kept"], answer.headers["x-served-by"]), ("yes", "bulkhead"))
        request = self.seen[-1]
        self.assertEqual((request.field("x-from"), request.field("authorization")), ("the operator", None))
        self.assertEqual((request.field("x-forwarded-prefix"), request.field("x-forwarded-host")), ("/api", "a.test"))
        answer = self.ask(self.server.port, "GET", "/whole/x", 0)
        self.assertEqual(answer.headers["x-powered-by"], "guesswork")
        self.assertEqual((self.seen[-1].field("host"), self.seen[-1].field("authorization")), ("a.test", "Basic eDp5"))

    def test_every_refusal_is_in_the_log_with_its_reason(self):
        public = self.server.folder / "public"
        unreadable = self.server.write("public/unreadable.html", "secret\n")
        unreadable.chmod(0)
        (public / "outside.html").symlink_to("/etc/hostname")
        for method, path, bytes_, said in (
            ("GET", "/private/log", 0, "`allow` and `deny` do not let the client in; those of the route with `path = \"/private/\"`"),
            ("GET", "/unreadable.html", 0, "may not be read; `unreadable.html` of `root`, by uid"),
            ("GET", "/outside.html", 0, "a symbolic link leads out of its folder, and into none of `follow_links`; `outside.html`"),
            ("POST", "/whole/log", 5_000, "a request body that is too large; at most 1024 bytes"),
            ("GET", "/dead/log", 0, "nobody answers"),
            ("GET", "/x/..;/log", 0, "a path in which"),
            ("GET", "/%00log", 0, "an encoding that hides something"),
        ):
            with self.subTest(path=path):
                self.ask(self.server.port, method, path, bytes_)
                # Another request may have had the line for this reason; then it is counted there.
                self.assertTrue(until(lambda: said in self.server.log(), 5), self.server.log())
        self.assertIn("unix:" + str(self.server.folder / "nobody.sock"), self.server.log())

    def test_media_type(self):
        self.assertEqual(self.ask(self.server.port, "GET", "/x.thing", 0).headers["content-type"], "application/x-thing")

    def test_no_spelling_opens_what_is_closed(self):
        closed = ["/media/app.log", "/private/x.html", "/uploads/run.cgi", "/settings.INI", "/deep/app.log"]
        for path in closed:
            for spelt in (path, path.replace("/", "//"), re.sub("[aeiou]", lambda m: "%%%02x" % ord(m[0]), path),
                          path + "?x", path + "/", path + ";x", path + "%2f", path + "%0a", path + "%00", path + "/more"):
                answer = self.ask(self.server.port, "GET", spelt, 0)
                self.assertNotIn(b"secret", answer.body, spelt)
                self.assertIn(answer.status, (400, 403, 404), spelt)


if __name__ == "__main__":
    unittest.main()
