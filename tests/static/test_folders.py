"""Folders beside the root: those at a path of the site (`alias`), and those that links may lead into (`follow_links`)."""

import gzip
import os
import shutil
import tempfile
import threading
import unittest
from pathlib import Path

import backend
from backend import Fpm, Raw, response
from client import Connection, until
from harness import NOBODY, ROOTLESS, Server, rootless_too, site

STYLE = "body { color: red }\n" * 100
FILES = {
    "main/page.html": "page\n", "main/media/shadowed.txt": "SECRET of the root", "main/media../x.txt": "dots of the root\n",
    "media/index.html": "media\n", "media/a.txt": "0123456789", "media/style.css": STYLE, "media/big.bin": bytes(range(256)) * 8192,
    "media/a b/c d.txt": "blanks\n", "media/bare/x.txt": "x", "media/.hidden": "SECRET", "media/tool.php": "SECRET <?php",
    "media/closed/x.txt": "SECRET", "media/missing.html": "our own 404\n", "media/changed.txt": "before\n", "media/deep/no.txt": "SECRET",
    "deep/x.txt": "deep\n", "deep/y/z.txt": "deeper\n", "x.txt": "SECRET beside the folders", "mediax/x.txt": "SECRET",
    "shared/x.txt": "shared\n", "shared/dir/index.html": "shared index\n", "shared/dir/y.txt": "shared y\n",
    "shared/.git/config": "SECRET", "shared/x.php": "SECRET <?php", "shared/large.css": STYLE, "second/y.txt": "second\n",
    "other/secret.txt": "SECRET of another site", "other/index.html": "SECRET of another site", "other/x.txt": "SECRET",
}
ROUTES = [
    {"path": "/media/", "alias": "media"},
    {"path": "/media/deep", "alias": "deep"},
    {"path": "/media/closed/", "deny": "all"},
    {"path": "/app/static/", "alias": "media"},
    {"path": "/tried/", "alias": "media", "try_files": ["$uri", "$uri.txt", "/page.html"]},
    {"path": "/old/", "rewrite": "/media/"},
    {"path": "/inner/", "alias": "deep", "internal": True},
    {"path": "/listed/", "alias": "media/bare"},
]


def link(path, target):
    """A link, in the place of what is there."""
    new = path.with_name(path.name + ".new")
    new.symlink_to(target)
    new.rename(path)


@rootless_too
class Folders(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.seen = []
        behind = cls.enterClassContext(Raw(answer=cls.answer))
        routes = [*ROUTES, {"path": "/app/", "upstream": behind.at}]
        main = site(route=routes, follow_links=["shared", "second"], error_page={"404": "media/missing.html"}, listing=True)
        # Another site without a root, and one whose root no other one may reach.
        bare = {"name": "bare", "host": ["bare.test"], "route": [{"path": "/files/", "alias": "deep"}], "services": []}
        cls.server = Server(sites=[main, bare, site("other")], programs=(), files=FILES)
        folder = cls.server.folder
        (folder / "media/style.css.gz").write_bytes(gzip.compress(b"in another form"))
        cls.links(folder, folder / "main", folder / "shared")
        if ROOTLESS and os.geteuid() == 0:
            for path in [folder, *folder.rglob("*")]:
                os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
        cls.enterClassContext(cls.server)

    @classmethod
    def answer(cls, request):
        cls.seen.append(request)
        if "/accel" in request.line:
            return response(b"", "200 OK", "X-Accel-Redirect: /inner/x.txt")
        if "/sendfile" in request.line:
            return response(b"", "200 OK", f"X-Sendfile: {cls.server.folder}/media/a.txt")
        if "/shadowed" in request.line:
            return response(b"", "200 OK", f"X-Sendfile: {cls.server.folder}/main/media/shadowed.txt")
        return response(b"behind\n", "200 OK")

    @staticmethod
    def links(folder, main, shared):
        for path, target in {
            main / "abs.txt": shared / "x.txt", main / "rel.txt": "../shared/x.txt", main / "dir": "../shared/dir",
            main / "chain.txt": shared / "chain.txt", shared / "chain.txt": "./step.txt", shared / "step.txt": "../second/y.txt",
            main / "around.txt": "../shared/dir/../x.txt", main / "large.css": "../shared/large.css",
            main / "inside.txt": "page.html", folder / "media/link.txt": "../shared/x.txt",
            # All of these are refused.
            main / "out.txt": folder / "other/secret.txt", main / "up.txt": "../x.txt", main / "other": "../other",
            main / "leak.txt": shared / "leak.txt", shared / "leak.txt": "../other/secret.txt",
            main / "dots.txt": f"{shared}/../other/secret.txt", main / "proc.txt": "/proc/self/root/etc/hostname",
            main / "fd": "/proc/self/fd", main / "own.txt": folder / "main/page.html", main / "passwd": "/etc/passwd",
            main / "self.txt": "self.txt", main / "loop.txt": "../shared/loop.txt", shared / "loop.txt": "loop.txt",
            main / "hidden.txt": "../shared/.git/config", main / "git": "../shared/.git", main / "source.txt": "../shared/x.php",
            main / "rootlink": "/", main / "up": "..", folder / "media/up": "..", shared / "up": "..", main / "through": "../shared/up",
            main / "none.txt": "../shared/none.txt", main / "into.txt": "../shared/x.txt/more", main / "media.txt": "../media/a.txt",
        }.items():
            path.symlink_to(target)

    def get(self, target, **more):
        answer = self.server.get(target, **more)
        self.assertNotIn(b"SECRET", answer.body, target)
        return answer

    def test_the_files_of_an_alias_and_nothing_of_the_root_there(self):
        for target, body in {
            "/media/a.txt": b"0123456789", "/media/": b"media\n", "/media/a%20b/c%20d.txt": b"blanks\n", "//media//a.txt": b"0123456789",
            "/%6dedia/a.txt": b"0123456789", "/media/deep/x.txt": b"deep\n", "/media/deep/y/z.txt": b"deeper\n",
            "/app/static/a.txt": b"0123456789", "/old/a.txt": b"0123456789", "/tried/a": b"0123456789", "/tried/none": b"page\n",
            "/page.html": b"page\n",
        }.items():
            with self.subTest(target=target):
                answer = self.get(target)
                self.assertEqual((answer.status, answer.body), (200, body))
        self.assertEqual(self.get("/app/x").body, b"behind\n")
        for target, status in {
            "/media/shadowed.txt": 404, "/media/none": 404, "/media/.hidden": 404, "/media/tool.php": 403, "/media/closed/x.txt": 403,
            "/media/deep/no.txt": 404, "/inner/x.txt": 404, "/x.txt": 404, "/media/a.txt/": 404, "/media/a.txt/x": 404,
        }.items():
            with self.subTest(target=target):
                self.assertEqual(self.get(target).status, status)
        self.assertEqual(self.get("/media/none").body, b"our own 404\n")
        self.assertEqual(self.get("/files/x.txt", host="bare.test").body, b"deep\n")
        self.assertEqual(self.get("/x.txt", host="bare.test").status, 404)

    def test_a_folder_without_its_slash(self):
        for target, there in {"/media?q=1": "/media/?q=1", "/media/a%20b": "/media/a%20b/", "/media/deep": "/media/deep/"}.items():
            answer = self.get(target)
            self.assertEqual((answer.status, answer.headers["location"]), (301, there))
        # nginx with `location /media { alias /srv/media/; }` sends what is beside the folder.
        for target in ("/media../x.txt", "/media%2e%2e/x.txt", "/media../", "/media..", "/media..%2fx.txt", "/media/../x.txt",
                       "/media/%2e%2e/x.txt", "/media/..%2fx.txt", "/media/..%5cx.txt", "/mediax/x.txt", "/media/deep../x.txt",
                       "/media%2f..%2fx.txt", "/media;/a.txt", "/media/..;/x.txt", "/media/%2fetc/passwd", "/media//../x.txt",
                       "/MEDIA/a.txt", "/media/%00/x.txt"):
            with self.subTest(target=target):
                answer = self.get(target)
                if target in ("/media../x.txt", "/media%2e%2e/x.txt"):
                    # A folder of the root, whose name has nothing to do with that of the alias.
                    self.assertEqual(answer.body, b"dots of the root\n")
                elif target in ("/media../", "/media.."):
                    self.assertNotIn("a.txt", answer.text)
                else:
                    self.assertIn(answer.status, (400, 404))

    def test_forms_of_a_file(self):
        part = self.get("/media/a.txt", headers=["Range: bytes=3-5"])
        self.assertEqual((part.status, part.body), (206, b"345"))
        head = self.get("/media/big.bin", method="HEAD")
        self.assertEqual((head.status, head.headers["content-length"]), (200, str(256 * 8192)))
        self.assertEqual(self.get("/media/big.bin").body, FILES["media/big.bin"])
        for target in ("/media/style.css", "/app/static/style.css"):
            beside = self.get(target, headers=["Accept-Encoding: gzip"])
            self.assertEqual(gzip.decompress(beside.body), b"in another form")
        linked = self.get("/large.css", headers=["Accept-Encoding: gzip"])
        self.assertEqual(gzip.decompress(linked.body).decode(), STYLE)
        tag = self.get("/media/a.txt").headers["etag"]
        self.assertEqual(self.get("/media/a.txt", headers=[f"If-None-Match: {tag}"]).status, 304)
        self.assertIn("x.txt", self.get("/listed/").text)
        self.assertEqual(self.get("/media/a.txt", method="POST").status, 405)

    def test_the_log_names_a_file_of_an_alias_by_its_folder(self):
        closed = self.server.write("media/unreadable.txt", "SECRET")
        closed.chmod(0)
        self.assertEqual(self.get("/media/unreadable.txt").status, 403)
        said = f"`unreadable.txt` of `alias` {self.server.folder}/media, by uid"
        self.assertTrue(until(lambda: said in self.server.log()), self.server.log())

    def test_what_servers_behind_name(self):
        self.assertEqual(self.get("/app/accel").body, b"deep\n")
        self.assertEqual(self.get("/app/sendfile").body, b"0123456789")
        # The root has a file there, and the site has not.
        self.assertEqual(self.get("/app/shadowed").status, 404)

    def test_changes_show(self):
        self.assertEqual(self.get("/media/changed.txt").body, b"before\n")
        for number in range(3):
            self.server.write("media/changed.txt", f"after {number}\n")
            self.assertTrue(until(lambda: self.get("/media/changed.txt").body == b"after %d\n" % number))
        moving = self.server.folder / "main/moving.txt"
        for target, body in (("shared/x.txt", b"shared\n"), ("second/y.txt", b"second\n"), ("shared/x.txt", b"shared\n")):
            link(moving, f"../{target}")
            self.assertTrue(until(lambda: self.get("/moving.txt").body == body), target)
        link(moving, "../other/secret.txt")
        self.assertTrue(until(lambda: self.get("/moving.txt").status == 404))

    def test_links_into_named_folders(self):
        for target, body in {
            "/abs.txt": b"shared\n", "/rel.txt": b"shared\n", "/dir/": b"shared index\n", "/dir/y.txt": b"shared y\n",
            "/chain.txt": b"second\n", "/around.txt": b"shared\n", "/inside.txt": b"page\n", "/media/link.txt": b"shared\n",
        }.items():
            with self.subTest(target=target):
                for _ in range(2):
                    answer = self.get(target)
                    self.assertEqual((answer.status, answer.body), (200, body))
        answer = self.get("/dir")
        self.assertEqual((answer.status, answer.headers["location"]), (301, "/dir/"))

    def test_links_elsewhere(self):
        self.assertEqual(self.get("/source.txt").status, 403)
        for target in (
            "/out.txt", "/up.txt", "/other/secret.txt", "/other/", "/other", "/leak.txt", "/dots.txt", "/proc.txt", "/fd/0", "/fd/3",
            "/own.txt", "/passwd", "/self.txt", "/loop.txt", "/hidden.txt", "/git/config", "/rootlink/etc/passwd", "/up/x.txt",
            "/up/other/secret.txt", "/media/up/x.txt", "/through/x.txt", "/through/other/secret.txt", "/none.txt", "/into.txt",
            "/media.txt", "/rootlink", "/rootlink/", "/up", "/up/main/page.html",
        ):
            with self.subTest(target=target):
                answer = self.get(target)
                self.assertEqual((answer.status, answer.body), (404, b"our own 404\n"))
        self.assertTrue(until(lambda: "a symbolic link leads out of its folder, and into none of `follow_links`" in self.server.log()))

    def test_nothing_is_won_by_changing_links_meanwhile(self):
        main, shared = self.server.folder / "main", self.server.folder / "shared"
        (shared / "real").mkdir()
        (shared / "real/secret.txt").write_text("fine\n")
        link(main / "flip", "../shared/flip")
        link(main / "race.txt", "../shared/x.txt")
        ended = threading.Event()
        self.addCleanup(ended.set)

        def change():
            while not ended.is_set():
                # A folder and a link change places, below the folder that is named and above it.
                link(shared / "flip", "real")
                link(main / "race.txt", "../other/secret.txt")
                link(shared / "flip", "../other")
                link(main / "race.txt", "../shared/x.txt")

        thread = threading.Thread(target=change)
        thread.start()
        seen = set()
        try:
            with Connection(self.server.port) as connection:
                for number in range(600):
                    answer = connection.get(f"/flip/secret.txt?{number}" if number % 2 else f"/race.txt?{number}")
                    self.assertNotIn(b"SECRET", answer.body)
                    self.assertIn(answer.status, (200, 404, 503))
                    seen.add(answer.status)
        finally:
            ended.set()
            thread.join()
        self.assertLessEqual({200, 404}, seen, "both ends of the links are to be seen")


@rootless_too
class Changed(unittest.TestCase):
    def test_folders_come_and_go_with_a_reload(self):
        files = {"one/x.txt": "one\n", "two/x.txt": "two\n", "main/media/x.txt": "of the root\n"}
        server = Server(sites=[site()], programs=(), files=files)
        (server.folder / "main/link.txt").symlink_to("../two/x.txt")
        plain = server.config.read_text()
        with server:
            def after(more):
                server.config.write_text(plain.replace('root = "main"', f'root = "main"\n{more}'))
                answer = server.command("reload")
                self.assertEqual(answer.returncode, 0, answer.stdout + answer.stderr)

            self.assertEqual(server.get("/media/x.txt").body, b"of the root\n")
            self.assertEqual(server.status("/link.txt"), 404)
            for name in ("one", "two"):
                after(f'route = [{{ path = "/media/", alias = "{name}" }}]')
                self.assertTrue(until(lambda: server.get("/media/x.txt").body == f"{name}\n".encode()), name)
            after('follow_links = ["two"]')
            self.assertTrue(until(lambda: server.get("/link.txt").body == b"two\n"))
            self.assertEqual(server.get("/media/x.txt").body, b"of the root\n")
            after("")
            self.assertTrue(until(lambda: server.status("/link.txt") == 404))


@rootless_too
class Hosts(unittest.TestCase):
    def test_a_folder_for_each_host_has_the_same_folders_beside_it(self):
        files = {"vhosts/a.test/x.txt": "a\n", "vhosts/b.test/x.txt": "b\n", "media/m.txt": "media\n", "shared/s.txt": "shared\n"}
        many = {"name": "many", "vhosts": "vhosts", "follow_links": ["shared"], "services": [],
                "route": [{"path": "/media/", "alias": "media"}]}
        server = Server(sites=[many], programs=(), files=files, answers=404)
        (server.folder / "vhosts/a.test/link.txt").symlink_to("../../shared/s.txt")
        (server.folder / "vhosts/a.test/neighbour.txt").symlink_to("../b.test/x.txt")
        with server:
            for host in ("a.test", "b.test"):
                self.assertEqual(server.get("/media/m.txt", host=host).body, b"media\n")
            self.assertEqual(server.get("/link.txt", host="a.test").body, b"shared\n")
            self.assertEqual(server.status("/neighbour.txt", host="a.test"), 404)


@unittest.skipUnless(backend.php_fpm(), "php-fpm is not installed")
@rootless_too
class Scripts(unittest.TestCase):
    def test_scripts_of_an_alias_and_behind_a_link(self):
        place = Path(tempfile.mkdtemp(prefix="bulkhead-folders-", dir="/tmp"))
        place.chmod(0o755)
        self.addCleanup(shutil.rmtree, place, True)
        fpm = Fpm(place)
        self.addCleanup(fpm.close)
        say = "<?php foreach (['SCRIPT_FILENAME', 'SCRIPT_NAME', 'DOCUMENT_ROOT', 'PATH_INFO'] as $n) echo $n, '=', $_SERVER[$n] ?? '', \"\\n\";"
        files = {"tool/index.php": say, "tool/run.php": say, "tool/style.css": "css\n", "shared/far.php": say, "main/run.php": say}
        routes = [{"suffix": ".php", "fastcgi": f"unix:{fpm.socket}"}, {"path": "/tool/", "alias": "tool"}]
        server = Server(sites=[site(route=routes, index=["index.php"], follow_links=["shared"])], programs=(), files=files, answers=404)
        (server.folder / "main/far.php").symlink_to("../shared/far.php")
        with server:
            def told(target):
                return dict(line.split("=", 1) for line in server.get(target).text.splitlines())

            folder = server.folder
            for target, filename, name, info in (
                ("/tool/run.php", "tool/run.php", "/tool/run.php", ""), ("/tool/", "tool/index.php", "/tool/index.php", ""),
                ("/tool/run.php/in/fo", "tool/run.php", "/tool/run.php", "/in/fo"), ("/run.php", "main/run.php", "/run.php", ""),
                ("/far.php", "main/far.php", "/far.php", ""),
            ):
                with self.subTest(target=target):
                    self.assertEqual(told(target), {
                        "SCRIPT_FILENAME": f"{folder}/{filename}", "SCRIPT_NAME": name, "DOCUMENT_ROOT": f"{folder}/main", "PATH_INFO": info,
                    })
            self.assertEqual(server.get("/tool/style.css").body, b"css\n")
            self.assertEqual(server.status("/tool/none.php"), 404)


if __name__ == "__main__":
    unittest.main()
