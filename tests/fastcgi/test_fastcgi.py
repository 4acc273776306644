"""PHP behind a site: php-fpm as it is, with scripts that say what they were told."""

import re
import shutil
import socket
import struct
import tempfile
import threading
import time
import unittest
from pathlib import Path

import backend
import client
from backend import Fpm, Raw
from client import raw_exchange
from harness import Server, rootless_too, site

SAY = '<?php header("Content-Type: text/plain"); foreach ($_SERVER as $k => $v) if (is_scalar($v)) echo "$k=$v\\n";'
FILES = {
    "main/say.php": SAY,
    "main/sub dir/a b.php": SAY,
    "main/echo.php": '<?php echo file_get_contents("php://input");',
    "main/post.php": '<?php echo $_POST["a"] ?? "none";',
    "main/status.php": '<?php http_response_code(418); header("X-One: 1"); setcookie("a", "1"); setcookie("b", "2");',
    "main/away.php": '<?php header("Location: /elsewhere");',
    "main/error.php": '<?php fwrite(fopen("php://stderr", "w"), "on stderr\\n"); error_log("a fault\\nof two lines"); echo "ok";',
    "main/noisy.php": '<?php for ($i = 0; $i < 200; $i++) error_log("noise $i"); echo "ok";',
    "main/stream.php": '<?php for ($i = 0; $i < 3; $i++) { echo "part$i"; ob_flush(); flush(); usleep(300000); }',
    "main/large.php": '<?php for ($i = 0; $i < 300; $i++) echo str_repeat("x", 4096);',
    "main/sleep.php": "<?php sleep(3); echo 'late';",
    "main/die.php": "<?php echo 'x'; ob_flush(); flush(); posix_kill(getmypid(), 9);",
    "main/front.php": SAY,
    "main/sent.txt": "the file itself",
    "main/accel.php": '<?php header("X-Accel-Redirect: /sent.txt"); header("Content-Type: text/x-own");',
    "main/sendfile.php": '<?php header("X-Sendfile: " . $_SERVER["DOCUMENT_ROOT"] . "/sent.txt");',
    "main/escape.php": '<?php header("X-Sendfile: " . $_SERVER["DOCUMENT_ROOT"] . "/../outside.txt");',
    "main/shadow.php": '<?php header("X-Sendfile: /etc/shadow");',
    "main/length.php": '<?php header("Content-Length: 5"); echo "12345";',
    "main/upload.jpg": "GIF89a <?php echo 'owned';",
    "main/headers.php": '<?php header("X-Big: " . str_repeat("a", 7000)); for ($i = 0; $i < 20; $i++) header("X-$i: " . str_repeat("b", 7000)); echo "no";',
    "outside.txt": "outside of the root",
}


def facts(answer):
    return dict(line.split("=", 1) for line in answer.text.splitlines() if "=" in line)


@unittest.skipUnless(backend.php_fpm(), "php-fpm is not installed")
@rootless_too
class FastCgi(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.place = Path(tempfile.mkdtemp(prefix="bulkhead-php-", dir="/tmp"))
        cls.place.chmod(0o755)
        cls.fpm = Fpm(cls.place)
        cls.addClassCleanup(shutil.rmtree, cls.place, True)
        cls.addClassCleanup(cls.fpm.close)
        at = cls.at = f"unix:{cls.fpm.socket}"
        routes = [
            {"suffix": ".php", "fastcgi": at, "answer_timeout": "1500ms"},
            {"path": "/front/", "fastcgi": at, "fallback": True, "script": "/front.php"},
            {"path": "/none/", "fastcgi": f"unix:{cls.place}/none.sock"},
        ]
        files = FILES | {"main/front/file.txt": "a file"}
        cls.server = Server(
            sites=[site(route=routes), site("other")], programs=(), files=files,
            conditioning={"checks": "lenient"}, limits={"body_bytes": "16MiB"},
        )
        cls.enterClassContext(cls.server)

    def get(self, target, **more):
        return self.server.get(target, **more)

    def test_what_a_script_is_told(self):
        root = str(self.server.folder / "main")
        headers = ["Cookie: a=1", "X-Own: 2", "X-Forwarded-For: 6.6.6.6", "X_Own: 3"]
        told = facts(self.get("/say.php?x=1&y=%20", headers=headers))
        expected = {
            "SCRIPT_FILENAME": f"{root}/say.php", "SCRIPT_NAME": "/say.php", "DOCUMENT_ROOT": root,
            "QUERY_STRING": "x=1&y=%20", "REQUEST_URI": "/say.php?x=1&y=%20", "REQUEST_METHOD": "GET",
            "REMOTE_ADDR": "127.0.0.1", "SERVER_NAME": "main.test", "HTTP_COOKIE": "a=1", "HTTP_X_OWN": "2",
            "GATEWAY_INTERFACE": "CGI/1.1", "REQUEST_SCHEME": "http", "SERVER_PORT": str(self.server.port),
        }
        for name, value in expected.items():
            self.assertEqual(told.get(name), value, name)
        self.assertEqual(self.get("/say.php", headers=["Proxy: http://evil/"]).status, 400)
        for name in ("HTTP_PROXY", "HTTP_X_FORWARDED_FOR", "HTTPS", "PATH_INFO"):
            self.assertNotIn(name, told)

    def test_scripts_and_what_follows_them(self):
        told = facts(self.get("/say.php/in/fo.php"))
        self.assertEqual((told["SCRIPT_NAME"], told["PATH_INFO"]), ("/say.php", "/in/fo.php"))
        told = facts(self.get("/sub%20dir/a%20b.php"))
        self.assertEqual(told["SCRIPT_NAME"], "/sub dir/a b.php")
        for path in ("/upload.jpg/x.php", "/upload.jpg%2fx.php", "/upload.jpg/.php", "/none.php", "/sent.txt/x.php"):
            answer = self.get(path)
            self.assertEqual(answer.status, 404, path)
            self.assertNotIn(b"owned", answer.body)
        for path in ("/upload.jpg%00.php", "/../say.php", "/%2e%2e/say.php"):
            self.assertEqual(self.get(path).status, 400, path)
        # The source is never sent.
        for path in ("/say.php%20", "/say.php.", "/SAY.PHP", "/say.ph%70", "//say.php"):
            self.assertNotIn(b"<?php", self.get(path).body, path)

    def test_bodies(self):
        for length in (0, 1, 65_535, 65_536, 3_000_000):
            body = b"z" * length
            answer = self.get("/echo.php", method="POST", body=body)
            self.assertEqual((answer.status, len(answer.body)), (200, length))
        answer = self.get("/post.php", method="POST", body=b"a=b+c",
                          headers=["Content-Type: application/x-www-form-urlencoded"])
        self.assertEqual(answer.body, b"b c")
        chunked = b"POST /echo.php HTTP/1.1\r\nHost: main.test\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        self.assertIn(b"short", raw_exchange(self.server.port, chunked + b"5\r\nshort\r\n0\r\n\r\n"))
        long = b"%x\r\n%s\r\n0\r\n\r\n" % (100_000, b"l" * 100_000)
        self.assertTrue(raw_exchange(self.server.port, chunked + long).endswith(b"l" * 1000 + b"\r\n0\r\n\r\n"))
        large = self.get("/large.php")
        self.assertEqual(len(large.body), 300 * 4096)

    def test_answers(self):
        raw = raw_exchange(self.server.port, b"GET /status.php HTTP/1.1\r\nHost: main.test\r\nConnection: close\r\n\r\n")
        self.assertTrue(raw.startswith(b"HTTP/1.1 418"), raw)
        self.assertEqual(raw.lower().count(b"set-cookie:"), 2)
        self.assertNotIn(b"\r\nstatus:", raw.lower())
        away = self.get("/away.php")
        self.assertEqual((away.status, away.headers["location"]), (302, "/elsewhere"))
        head = self.get("/say.php", method="HEAD")
        self.assertEqual((head.status, head.body), (200, b""))
        self.assertEqual(self.get("/length.php").body, b"12345")
        self.assertEqual(self.get("/headers.php").status, 502)

    def test_answers_come_as_they_are_made(self):
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=5) as peer:
            began = time.monotonic()
            peer.sendall(b"GET /stream.php HTTP/1.1\r\nHost: main.test\r\n\r\n")
            said = b""
            while b"part0" not in said:
                said += peer.recv(65536)
            self.assertLess(time.monotonic() - began, 0.6)
            while not said.endswith(b"0\r\n\r\n"):
                said += peer.recv(65536)
            self.assertIn(b"part2", said)

    def test_stderr_goes_to_the_log_in_measure(self):
        self.assertEqual(self.get("/error.php").body, b"ok")
        self.assertTrue(client.until(lambda: "of two lines" in self.server.log(), 5), self.server.log())
        # The line names the server that it comes from.
        self.assertRegex(self.server.log(), rf"FastCGI {re.escape(self.at)}: .*of two lines|FastCGI {re.escape(self.at)}: on stderr")
        self.assertEqual(self.get("/noisy.php").body, b"ok")
        time.sleep(0.5)
        self.assertLessEqual(self.server.log().count("noise "), 100)

    def test_slow_and_dead(self):
        began = time.monotonic()
        threads = [threading.Thread(target=self.get, args=("/sleep.php",)) for _ in range(2)]
        for thread in threads:
            thread.start()
        self.assertEqual(self.get("/sent.txt").status, 200)
        self.assertEqual(self.get("/", host="other.test").status, 200)
        self.assertLess(time.monotonic() - began, 1)
        self.assertEqual(self.get("/sleep.php").status, 504)
        self.assertLess(time.monotonic() - began, 3)
        for thread in threads:
            thread.join()
        self.assertEqual(self.get("/none/x").status, 502)
        self.assertTrue(client.until(lambda: self.get("/say.php").status == 200, 8))
        try:
            self.get("/die.php")
        except (ConnectionError, OSError):
            pass
        for _ in range(5):
            self.assertEqual(self.get("/say.php").status, 200)

    def test_a_front_controller(self):
        self.assertEqual(self.get("/front/file.txt").body, b"a file")
        told = facts(self.get("/front/some/page?x=1"))
        self.assertEqual(told["SCRIPT_NAME"], "/front.php")
        self.assertEqual(told["PATH_INFO"], "/front/some/page")
        self.assertEqual(told["REQUEST_URI"], "/front/some/page?x=1")

    def test_files_that_a_script_names(self):
        answer = self.get("/accel.php")
        self.assertEqual((answer.status, answer.body), (200, b"the file itself"))
        self.assertTrue(answer.headers["content-type"].startswith("text/x-own"))
        self.assertEqual(self.get("/sendfile.php").body, b"the file itself")
        part = self.get("/accel.php", headers=["Range: bytes=4-7"])
        self.assertEqual((part.status, part.body), (206, b"file"))
        for path in ("/escape.php", "/shadow.php"):
            answer = self.get(path)
            self.assertIn(answer.status, (400, 404), path)
            self.assertNotIn(b"outside", answer.body)

    def test_connections_are_used_again_and_let_go(self):
        first = {facts(self.get("/say.php"))["REQUEST_TIME_FLOAT"] for _ in range(20)}
        self.assertEqual(len(first), 20)

    def test_a_folder_for_each_host(self):
        routes = [{"suffix": ".php", "fastcgi": f"unix:{self.fpm.socket}"}]
        hosts = {"name": "hosts", "vhosts": "hosts", "services": [], "route": routes}
        files = {f"hosts/{host}.test/where.php": f"<?php echo '{host} ', $_SERVER['DOCUMENT_ROOT'];" for host in "ab"}
        with Server([hosts], (), files=files, answers=404) as server:
            for host in "ab":
                answer = server.get("/where.php", f"{host}.test")
                self.assertEqual((answer.status, answer.text), (200, f"{host} {server.folder}/hosts/{host}.test"))
            self.assertEqual(server.status("/where.php", "c.test"), 404)


def record(kind, content, request=1):
    return struct.pack(">BBHHBB", 1, kind, request, len(content), 0, 0) + content


END = record(3, b"\0" * 8)


@rootless_too
class HostileServer(unittest.TestCase):
    """A FastCGI server that has been taken over."""

    def test_what_it_says_costs_only_its_own_request(self):
        says = {
            "version": b"\2" + record(6, b"Status: 200\r\n\r\nx")[1:],
            "request": record(6, b"Status: 200\r\n\r\nx", request=7),
            "kind": record(9, b"x"),
            "end": record(3, b"short"),
            "overloaded": record(3, b"\0\0\0\0\2\0\0\0"),
            "nothing": END,
            "split": record(6, b"X: a\r\nY: b\rZ: c\r\n\r\n") + END,
            "fold": record(6, b"X: a\r\n b\r\n\r\n") + END,
            "status": record(6, b"Status: 101 x\r\n\r\n") + END,
            "lengths": record(6, b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nx") + END,
            "endless": b"".join(record(6, b"a" * 60_000) for _ in range(3)),
            "closed": b"",
        }
        place = Path(tempfile.mkdtemp(prefix="bulkhead-fcgi-", dir="/tmp"))
        place.chmod(0o755)
        self.addCleanup(shutil.rmtree, place, True)
        current = {}

        class Hostile(Raw):
            def serve(self, connection):
                try:
                    connection.recv(65536)
                    connection.sendall(says[current["name"]])
                except OSError:
                    pass
                connection.close()

        behind = Hostile(path=place / "h.sock")
        routes = [{"path": "/h/", "fastcgi": behind.at, "answer_timeout": "2s"}]
        with Server(sites=[site(route=routes)], programs=()) as server:
            before = server.process("site main")
            for name in says:
                current["name"] = name
                self.assertEqual(server.get("/h/x").status, 502, name)
                self.assertEqual(server.get("/").status, 200)
            # Bytes after the end of an answer are not the next one's.
            says["after"] = record(6, b"\r\nfirst") + END + record(6, b"\r\nsecond") + END
            current["name"] = "after"
            for _ in range(3):
                self.assertNotIn(b"second", raw_exchange(
                    server.port, b"GET /h/x HTTP/1.1\r\nHost: main.test\r\nConnection: close\r\n\r\n"))
            self.assertEqual(server.process("site main"), before)
        behind.close()
