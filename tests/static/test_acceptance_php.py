"""The acceptance configuration of PHP as it stands, but for its port: one line, and php-fpm does the rest."""

import hashlib
import json
import os
import shutil
import unittest

from backend import Fpm, php_fpm
from client import Connection, get, raw_exchange
from harness import ROOTLESS, TOP, Server, rootless_too

CONFIG = TOP / "tests/config/acceptance-php.toml"

SAYS = """<?php
$names = ["REQUEST_URI", "SCRIPT_NAME", "PATH_INFO", "DOCUMENT_ROOT", "QUERY_STRING", "SCRIPT_FILENAME", "REQUEST_METHOD"];
foreach ($names as $name) $said[$name] = $_SERVER[$name] ?? null;
$said["body"] = md5(file_get_contents("php://input"));
$said["bytes"] = $_SERVER["CONTENT_LENGTH"] ?? null;
$said["script"] = "%s";
echo json_encode($said);
"""


@rootless_too
@unittest.skipUnless(php_fpm(), "php-fpm is not installed")
class Acceptance(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        text = CONFIG.read_text()
        assert text.count("127.0.0.1:8080") == 1
        cls.server = Server([], (), text=lambda port: text.replace("127.0.0.1:8080", f"127.0.0.1:{port}"))
        for name in ("index.php", "a.php", "uploads/x.php", "sub/index.php"):
            cls.server.write(f"public/{name}", SAYS % name)
        cls.server.write("public/style.css", "body { color: black }\n")
        cls.server.write("public/uploads/photo.jpg", "<?php echo 'run';")
        cls.server.write("public/.env", "SECRET=1\n")
        cls.addClassCleanup(Fpm(cls.server.folder, "fpm.sock").close)
        if ROOTLESS and os.geteuid() == 0:
            for path in [cls.server.folder, *cls.server.folder.rglob("*")]:
                shutil.chown(path, 65534, 65534)
        cls.enterClassContext(cls.server)

    def get(self, path, **more):
        return get(self.server.port, path, host="any.test", **more)

    def said(self, path, **more):
        answer = self.get(path, **more)
        self.assertEqual(answer.status, 200, (path, answer.body))
        return json.loads(answer.body)

    def test_the_table(self):
        said = self.said("/")
        self.assertEqual((said["script"], said["REQUEST_URI"], said["PATH_INFO"]), ("index.php", "/", None))
        said = self.said("/2026/11/hello?x=1")
        self.assertEqual((said["script"], said["REQUEST_URI"]), ("index.php", "/2026/11/hello?x=1"))
        self.assertEqual((said["SCRIPT_NAME"], said["QUERY_STRING"], said["PATH_INFO"]), ("/index.php", "x=1", None))
        self.assertTrue(said["DOCUMENT_ROOT"].endswith("/public"), said)
        self.assertEqual(said["SCRIPT_FILENAME"], said["DOCUMENT_ROOT"] + "/index.php")
        said = self.said("/a.php/extra")
        self.assertEqual((said["script"], said["PATH_INFO"], said["SCRIPT_NAME"]), ("a.php", "/extra", "/a.php"))
        said = self.said("/sub/")
        self.assertEqual((said["script"], said["REQUEST_URI"]), ("sub/index.php", "/sub/"))
        self.assertEqual(self.get("/sub").headers["location"], "/sub/")
        style = self.get("/style.css")
        self.assertEqual((style.status, style.body), (200, b"body { color: black }\n"))

    def test_what_is_never_run_and_never_sent(self):
        for path in ("/uploads/x.php", "/uploads/x.php/more", "/uploads//x.php", "/%75ploads/x.php", "/uploads/x.ph%70?y"):
            answer = self.get(path)
            self.assertEqual(answer.status, 403, path)
            self.assertNotIn(b"<?php", answer.body, path)
        # Not a script, whatever is in it and whatever follows it.
        self.assertEqual(self.get("/uploads/photo.jpg").body, b"<?php echo 'run';")
        self.assertEqual(self.get("/uploads/photo.jpg/x.php").status, 403)
        self.assertEqual(self.get("/photo.jpg/x.php").status, 404)
        for path in ("/a.php", "/a.php%20", "/A.PHP", "/a.php.", "/a.php~", "/index.php/../a.php", "/a.php::$DATA", "/.env"):
            self.assertNotIn(b"<?php", self.get(path).body, path)
            self.assertNotIn(b"SECRET", self.get(path).body, path)
        self.assertEqual(self.said("/.env")["script"], "index.php")

    def test_methods_of_a_pretty_address(self):
        said = self.said("/wp-json/wp/v2/posts/7", method="PUT", body=b"text")
        self.assertEqual((said["script"], said["REQUEST_METHOD"], said["bytes"]), ("index.php", "PUT", "4"))
        head = self.get("/2026/11/hello", method="HEAD")
        self.assertEqual((head.status, head.body), (200, b""))

    def test_uploads_with_and_without_a_length(self):
        body = os.urandom(1 << 20) * 20
        sum_of = hashlib.md5(body, usedforsecurity=False).hexdigest()
        said = self.said("/a.php", method="POST", body=body)
        self.assertEqual((said["body"], said["bytes"]), (sum_of, str(len(body))))
        head = b"POST /a.php HTTP/1.1\r\nHost: any.test\r\nTransfer-Encoding: chunked\r\n\r\n"
        pieces = [body[at:at + 60_000] for at in range(0, len(body), 60_000)]
        chunks = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
        with Connection(self.server.port) as connection:
            connection.send(head + chunks)
            said = json.loads(connection.response("POST").body)
        self.assertEqual((said["body"], said["bytes"]), (sum_of, str(len(body))))

    def test_a_body_over_the_sites_limit(self):
        head = b"POST /a.php HTTP/1.1\r\nHost: any.test\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % (33 << 20)
        self.assertIn(b" 413 ", raw_exchange(self.server.port, head).split(b"\r\n")[0])


if __name__ == "__main__":
    unittest.main()
