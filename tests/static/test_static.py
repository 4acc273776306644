"""Static files, over the whole server: gate, site worker, disk."""

import os
import unittest

from client import Connection, get, until
from harness import ROOTLESS, Server, rootless_too

FILES = {
    "main/a.txt": "0123456789" * 10,
    "main/dir/index.html": "<p>inside\n",
    "main/bare/file.txt": "x",
    "main/secret.txt": "not for the site",
    "main/big.bin": bytes(range(256)) * 8192,
    "outside.txt": "outside of the root",
}


@rootless_too
class Static(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(files=FILES)
        main = cls.server.folder / "main"
        (main / "out.txt").symlink_to(cls.server.folder / "outside.txt")
        (main / "up.txt").symlink_to("../outside.txt")
        (main / "passwd").symlink_to("/etc/passwd")
        (main / "secret.txt").chmod(0o000 if ROOTLESS else 0o600)
        cls.enterClassContext(cls.server)

    def test_index_and_files(self):
        index = self.server.get("/")
        self.assertEqual((index.status, index.body), (200, b"<h1>main</h1>\n"))
        self.assertTrue(index.headers["content-type"].startswith("text/html"))
        file = self.server.get("/a.txt?x=1")
        self.assertEqual((file.status, file.body), (200, FILES["main/a.txt"].encode()))
        self.assertEqual(self.server.get("/dir/").body, b"<p>inside\n")
        self.assertEqual(self.server.get("/big.bin").body, FILES["main/big.bin"])

    def test_what_is_not_there(self):
        for target in ("/none", "/a.txt/", "/a.txt/x", "/none/", "/bare/", "/dir/none.html"):
            with self.subTest(target=target):
                self.assertEqual(self.server.status(target), 404)
        self.assertEqual(self.server.status("/", host="unknown.test"), 404)

    def test_directory_redirect(self):
        answer = self.server.get("/dir?q=1")
        self.assertEqual(answer.status, 301)
        self.assertEqual(answer.headers["location"], "/dir/?q=1")

    def test_no_way_out_of_the_root(self):
        for target in ("/out.txt", "/up.txt", "/passwd", "/../outside.txt", "/%2e%2e/outside.txt",
                       "/dir/..%2f..%2foutside.txt", "/dir/../../outside.txt", "/%2fetc/passwd", "//etc/passwd"):
            with self.subTest(target=target):
                answer = self.server.get(target)
                self.assertIn(answer.status, (400, 404))
                self.assertNotIn("outside of the root", answer.text)
                self.assertNotIn("root:", answer.text)
        self.assertEqual(self.server.status("/out.txt"), 404)

    def test_ranges(self):
        part = self.server.get("/a.txt", headers=["Range: bytes=3-7"])
        self.assertEqual((part.status, part.body), (206, b"34567"))
        self.assertEqual(part.headers["content-range"], "bytes 3-7/100")
        self.assertEqual(self.server.get("/a.txt", headers=["Range: bytes=-4"]).body, b"6789")
        self.assertEqual(self.server.get("/a.txt", headers=["Range: bytes=98-"]).body, b"89")
        beyond = self.server.get("/a.txt", headers=["Range: bytes=100-"])
        self.assertEqual(beyond.status, 416)
        self.assertEqual(beyond.headers["content-range"], "bytes */100")
        self.assertEqual(self.server.get("/a.txt", headers=["Range: lines=1-2"]).status, 200)

    def test_conditions(self):
        whole = self.server.get("/a.txt")
        tag, since = whole.headers["etag"], whole.headers["last-modified"]
        same = self.server.get("/a.txt", headers=[f"If-None-Match: {tag}"])
        self.assertEqual((same.status, same.body), (304, b""))
        self.assertEqual(self.server.get("/a.txt", headers=[f"If-Modified-Since: {since}"]).status, 304)
        self.assertEqual(self.server.get("/a.txt", headers=['If-None-Match: "other"']).status, 200)
        part = self.server.get("/a.txt", headers=["Range: bytes=0-1", 'If-Range: "other"'])
        self.assertEqual((part.status, len(part.body)), (200, 100))

    def test_head_and_what_follows(self):
        with Connection(self.server.port) as connection:
            answer = connection.get("/a.txt", method="HEAD")
            self.assertEqual((answer.status, answer.headers["content-length"]), (200, "100"))
            self.assertEqual(connection.get("/a.txt").body, FILES["main/a.txt"].encode())

    def test_a_file_of_another_owner(self):
        self.assertEqual(self.server.status("/secret.txt"), 403)
        if not ROOTLESS:
            uid = self.server.process("site main").uid
            os.chown(self.server.folder / "main/secret.txt", uid, uid)
            self.assertEqual(self.server.status("/secret.txt"), 200)

    def test_other_methods(self):
        for method in ("POST", "PUT", "DELETE"):
            answer = get(self.server.port, "/a.txt", method=method, body=b"x=1")
            self.assertEqual(answer.status, 405, method)
            self.assertIn("GET", answer.headers["allow"])

    def test_a_change_is_seen(self):
        self.assertEqual(self.server.get("/bare/file.txt").body, b"x")
        self.server.write("main/bare/new", "changed")
        os.rename(self.server.folder / "main/bare/new", self.server.folder / "main/bare/file.txt")
        changed = lambda: self.server.get("/bare/file.txt").body == b"changed"
        self.assertTrue(until(changed, 3), "the old content is still served")


if __name__ == "__main__":
    unittest.main()
