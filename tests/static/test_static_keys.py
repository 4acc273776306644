"""The keys of files, routes and terms, with curl as the client."""

import gzip
import json
import subprocess
import time
import unittest

from client import until
from harness import Server, rootless_too, site

PAGE = "".join(f"<p>line {n} of a page that can be compressed\n" for n in range(400))

CONFIG = """
[[listen]]
address = "127.0.0.1:{port}"

[log]
flush = "10ms"

[[site]]
name = "main"
host = ["main.test"]
root = "main"
cache_control = "300s"
stat_interval = "120s"
compress = {{ encodings = ["br", "zstd", "gzip"], static_level = 9, dynamic_level = 2, max_bytes = "1MiB" }}
error_page = {{ 404 = "errors/404.html", 403 = "errors/403.html" }}
listing = true
headers = {{ X-Frame-Options = "DENY" }}

  [[site.route]]
  path = "/old/"
  redirect = {{ to = "/new/", status = 301 }}

  [[site.route]]
  path = "/alias/"
  rewrite = "/dir/"

  [[site.route]]
  path = "/app/"
  rewrite = "/page.html"
  fallback = true

  [[site.route]]
  suffix = ".bak"
  deny = ["0.0.0.0/0"]

  [[site.route]]
  path = "/members/"
  auth = {{ users = "users", realm = "Members" }}

  [[site.route]]
  path = "/office/"
  allow = ["127.0.0.2"]

[[site]]
name = "moved"
host = ["moved.test"]
redirect = "https://www.moved.test/"

[[site]]
name = "plain"
host = ["plain.test"]
root = "main"
compress = false
cache_control = "0s"

[[site]]
name = "many"
vhosts = "vhosts"
"""

FILES = {
    "main/index.html": "<h1>main</h1>\n",
    "main/page.html": PAGE,
    "main/large.txt": PAGE * 200,
    "main/ready.js": "let a = 1;\n" * 100,
    "main/dir/index.html": "<p>dir\n",
    "main/app/there.txt": "there",
    "main/list/b.txt": "12345",
    "main/list/<i>.txt": "",
    "main/copy.bak": "old",
    "main/members/list.txt": "ann, bob",
    "main/office/plan.txt": "plan",
    "main/errors/404.html": "<p>nothing here\n",
    "main/errors/403.html": "<p>not for you\n",
    "vhosts/one.test/index.html": "one",
    "vhosts/two.test/index.html": "two",
}


@rootless_too
class StaticKeys(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        made = subprocess.run(["htpasswd", "-nbB", "-C", "5", "ann", "secret"], capture_output=True, check=True)
        files = FILES | {"users": made.stdout.decode()}
        cls.server = Server(sites=[], files=files, text=lambda port: CONFIG.format(port=port))
        cls.enterClassContext(cls.server)

    def curl(self, path, *words, host="main.test"):
        """The status, the headers, and the body as curl decodes it."""
        url = f"http://{host}:{self.server.port}{path}"
        resolve = f"{host}:{self.server.port}:127.0.0.1"
        done = subprocess.run(["curl", "-sS", "--path-as-is", "-i", "--max-time", "60", "--resolve", resolve,
                               *words, url], capture_output=True, check=True)
        head, _, body = done.stdout.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        pairs = (line.split(": ", 1) for line in lines[1:] if ": " in line)
        headers = {name.lower(): value for name, value in pairs}
        return int(lines[0].split()[1]), headers, body

    def test_encodings(self):
        tags = set()
        for words, encoding in (([], None), (["-H", "Accept-Encoding: gzip"], "gzip"),
                                (["-H", "Accept-Encoding: gzip, br"], "br"), (["-H", "Accept-Encoding: zstd"], "zstd")):
            for _ in range(2):
                status, headers, body = self.curl("/page.html", *words)
                self.assertEqual((status, headers.get("content-encoding")), (200, encoding))
                self.assertEqual(headers["vary"], "Accept-Encoding")
                self.assertEqual(headers["cache-control"], "public, max-age=300, s-maxage=900")
                self.assertEqual(headers["x-frame-options"], "DENY")
                if encoding == "gzip":
                    self.assertEqual(gzip.decompress(body).decode(), PAGE)
            tags.add(headers["etag"])
            status, _, _ = self.curl("/page.html", *words, "-H", f"If-None-Match: {headers['etag']}")
            self.assertEqual(status, 304)
        self.assertEqual(len(tags), 4)
        # As curl itself asks and decodes.
        _, _, body = self.curl("/page.html", "--compressed")
        self.assertEqual(body.decode(), PAGE)
        # More than max_bytes.
        _, headers, body = self.curl("/large.txt", "-H", "Accept-Encoding: gzip")
        self.assertEqual((headers.get("content-encoding"), len(body)), (None, len(PAGE) * 200))

    def test_a_neighbour(self):
        path = self.server.folder / "main" / "ready.js.gz"
        path.write_bytes(gzip.compress(b"let a = 2;\n"))
        path.chmod(0o644)
        time.sleep(0.1)
        status, headers, body = self.curl("/ready.js", "-H", "Accept-Encoding: gzip")
        self.assertEqual((status, gzip.decompress(body)), (200, b"let a = 2;\n"))
        self.assertTrue(headers["content-type"].startswith("text/javascript"))

    def test_changes_show_at_once(self):
        path = self.server.folder / "main" / "changing.txt"
        path.write_text("one")
        path.chmod(0o644)
        time.sleep(0.1)
        self.assertEqual(self.curl("/changing.txt")[2], b"one")
        time.sleep(1.1)
        self.assertEqual(self.curl("/changing.txt")[2], b"one")
        path.write_text("three")
        time.sleep(0.15)
        self.assertEqual(self.curl("/changing.txt")[2], b"three")

    def test_routes(self):
        status, headers, _ = self.curl("/old/x?y=1")
        self.assertEqual((status, headers["location"]), (301, "/new/x?y=1"))
        self.assertEqual(self.curl("/alias/index.html")[2], b"<p>dir\n")
        self.assertEqual(self.curl("/app/there.txt")[2], b"there")
        self.assertEqual(self.curl("/app/not/there")[2].decode(), PAGE)
        for host in ("moved.test",):
            status, headers, _ = self.curl("/a?b", host=host)
            self.assertEqual((status, headers["location"]), (302, "https://www.moved.test/a?b"))

    def test_terms(self):
        for path in ("/copy.bak", "/%63opy.bak", "/office/plan.txt", "//office/plan.txt"):
            status, headers, body = self.curl(path)
            self.assertEqual((status, body), (403, b"<p>not for you\n"), path)
            self.assertEqual(headers["x-frame-options"], "DENY")
        self.assertEqual(self.curl("/office/plan.txt", "--interface", "127.0.0.2")[2], b"plan")
        status, headers, _ = self.curl("/members/list.txt")
        self.assertEqual((status, headers["www-authenticate"]), (401, 'Basic realm="Members", charset="UTF-8"'))
        self.assertEqual(self.curl("/members/list.txt", "-u", "ann:wrong")[0], 401)
        self.assertEqual(self.curl("/members/list.txt", "-u", "bob:secret")[0], 401)
        for _ in range(2):
            status, headers, body = self.curl("/members/list.txt", "-u", "ann:secret")
            self.assertEqual((status, body), (200, b"ann, bob"))
            self.assertEqual(headers["cache-control"], "private, max-age=300")
        until(lambda: "/members/list.txt" in self.server.log("main.access"))
        self.assertNotIn("secret", self.server.log("main.access") + self.server.log())

    def test_pages_and_listings(self):
        status, headers, body = self.curl("/nowhere")
        self.assertEqual((status, body), (404, b"<p>nothing here\n"))
        self.assertNotIn("cache-control", headers)
        _, headers, body = self.curl("/list/")
        self.assertIn(b'<a href="./%3Ci%3E.txt">&lt;i&gt;.txt</a>', body)
        self.assertNotIn(b"<i>", body)
        _, _, body = self.curl("/list/", "-H", "Accept: application/json")
        self.assertEqual([(one["name"], one["size"]) for one in json.loads(body)], [("<i>.txt", 0), ("b.txt", 5)])
        self.assertEqual(self.curl("/list/", host="plain.test")[0], 404)

    def test_a_plain_site(self):
        _, headers, body = self.curl("/page.html", "-H", "Accept-Encoding: gzip", host="plain.test")
        self.assertEqual((headers.get("content-encoding"), headers.get("vary"), body.decode()), (None, None, PAGE))
        self.assertEqual(headers["cache-control"], "no-cache")

    def test_a_folder_is_a_site(self):
        self.assertEqual(self.curl("/", host="one.test")[2], b"one")
        self.assertEqual(self.curl("/", host="two.test")[2], b"two")
        self.assertEqual(self.curl("/", host="three.test")[0], 404)
        folder = self.server.folder / "vhosts" / "three.test"
        folder.mkdir(mode=0o755)
        (folder / "index.html").write_text("three")
        self.assertEqual(self.curl("/", host="three.test")[2], b"three")
        # Nobody gets out of the folder of folders by a host.
        for host in ("..", ".", "../main", "one.test/../two.test", ".hidden"):
            self.assertIn(self.server.status("/index.html", host=host), (400, 404), host)


@rootless_too
class Members(unittest.TestCase):
    """Files of users are read again when they have changed."""

    ROUTES = [{"path": "/one/", "auth": {"users": "users", "realm": "One"}}, {"path": "/two/", "auth": {"users": "users", "realm": "Two"}}]

    @staticmethod
    def line(name, password="secret"):
        words = ["htpasswd", "-nbB", "-C", "5", name, password]
        return subprocess.run(words, capture_output=True, check=True, text=True).stdout.strip() + "\n"

    def test_users_come_and_go(self):
        files = {"main/one/a.txt": "one", "main/two/a.txt": "two", "users": self.line("ann")}
        settings = {"tls": {"reread": "1s"}}
        with Server([site(route=self.ROUTES)], (), files=files, **settings) as server:
            def status(name, folder="one"):
                url = f"http://main.test:{server.port}/{folder}/a.txt"
                resolve = f"main.test:{server.port}:127.0.0.1"
                words = ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "--resolve", resolve, "-u", f"{name}:secret", url]
                return int(subprocess.run(words, capture_output=True, check=True, text=True).stdout)

            place, worker = server.folder / "users", server.process("site main")
            self.assertEqual((status("ann"), status("bob")), (200, 401))
            server.write("users", self.line("bob"))
            self.assertTrue(until(lambda: status("bob") == 200, 10))
            self.assertTrue(until(lambda: status("bob", "two") == 200, 10), "in each rule that names the file")
            self.assertTrue(until(lambda: status("ann") == status("ann", "two") == 401, 10), "what was remembered of her is gone")
            # What is wrong is told, with its place, and changes nothing.
            for content, what in (
                (self.line("ann") + "cid:plain\n", "line 2: it is no user with a bcrypt hash"),
                ("", "there is no user in it"),
                (b"\xff\n", "it is not UTF-8"),
            ):
                server.write("users", content)
                told = f"`users` {place} has changed, and what it said before still holds: {what}"
                self.assertTrue(until(lambda: server.log().count(told) == 2, 10), server.log())
                self.assertEqual((status("ann"), status("bob")), (401, 200))
            place.unlink()
            self.assertTrue(until(lambda: f"`users` {place} of site main: No such file" in server.log(), 10), server.log())
            self.assertEqual((status("ann"), status("bob")), (401, 200))
            server.write("users", self.line("ann") + self.line("bob"))
            self.assertTrue(until(lambda: status("ann") == 200, 10))
            self.assertEqual(status("bob"), 200)
            self.assertEqual(server.process("site main"), worker, "the site's worker is the same")
