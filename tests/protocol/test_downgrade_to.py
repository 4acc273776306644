"""HTTP/2 requests that would be two requests, or another one, if they were passed on to a server behind the site.

The table is that of test_downgrade. What counts is what the server was really sent: a naive one that keeps every byte,
one that keeps every FastCGI record, and php-fpm, whose script writes down each time that it runs.
"""

import json
import re
import shutil
import tempfile
import time
import unittest
from pathlib import Path

import backend
from backend import FastCgi
from downgrade import CANARY, READ, REFUSALS, REFUSED, lines
from frames import Http2
from secured import TLS, ours, run, serve

#: More of the same that only matters to who passes requests on in another form.
MORE = [
    ("a name with an underscore", lines((b"content_length", b"100"), (b"transfer_encoding", b"chunked")), b"abc"),
    ("names that are ours", lines((b"x-forwarded-for", b"6.6.6.6"), (b"forwarded", b"for=6.6.6.6")), b"abc"),
    ("expectation", lines((b"expect", b"100-continue")), b"abc"),
    ("a cookie in crumbs", lines((b"cookie", b"a=1"), (b"cookie", b"b=2")), b"abc"),
]


class To:
    """The tests; a class for each kind of server says what it `saw`: method, target, length of the body, names."""

    cgi = True
    #: So that what strict checks refuse as well gets as far as it can.
    settings = {"programs": (), "conditioning": {"checks": "lenient", "ban_after": 0}}

    def connect(self):
        return Http2(self.server.context(), self.server.tls_port)

    def ask(self, head, *bodies):
        with self.connect() as connection:
            connection.request(1, head, *bodies)
            return connection.outcome(1), connection.bodies.get(1, b"")

    def test_never_one_request_more(self):
        problems = []
        for name, head, *bodies in REFUSED:
            before = len(self.saw())
            outcome, body = self.ask(head, *bodies)
            if outcome not in REFUSALS:
                problems.append(f"{name}: {outcome} {body[:200]}")
            # Whoever comes next, on the same connection to the server, gets an answer of his own.
            outcome, body = self.ask(CANARY)
            self.assertEqual((outcome, json.loads(body)["target"]), (200, "/probe/echo?canary"), name)
            new = self.saw()[before:]
            canaries = [one for one in new if one[1] == "/probe/echo?canary"]
            others = [one for one in new if one[1] != "/probe/echo?canary"]
            if len(canaries) != 1 or len(others) > 1:
                problems.append(f"{name}: the server saw {new}")
            for method, target, _, names in others:
                if (method, target) not in (("POST", "/probe/echo"), ("GET", "/probe/echo")):
                    problems.append(f"{name}: the server saw {method} {target}")
                if {"x-one", "upgrade", "keep-alive", "proxy-connection"} & set(names):
                    problems.append(f"{name}: the server saw {names}")
        self.assertEqual(problems, [], "\n  ".join([f"{len(problems)} of {len(REFUSED)}:", *problems]))
        self.check_left()

    def test_read_in_one_way(self):
        for name, head, bodies, length in READ:
            with self.subTest(name):
                before = len(self.saw())
                outcome, body = self.ask(head, *bodies)
                new = self.saw()[before:]
                if outcome in (411, 413):
                    self.assertEqual(new, [])
                    continue
                self.assertEqual((outcome, len(new)), (200, 1), new)
                self.assertEqual(new[0][1:3], ("/probe/echo", length))
                self.assertEqual(json.loads(body)["body_length"], new[0][2])
                twice = {one for one in new[0][3] if new[0][3].count(one) > 1}
                self.assertEqual(twice, set(), "a line twice")
        self.check_left()

    def test_what_is_not_passed_on(self):
        for name, head, *bodies in MORE:
            with self.subTest(name):
                before = len(self.saw())
                self.assertEqual(self.ask(head, *bodies)[0], 200)
                ((_, target, length, names),) = self.saw()[before:]
                self.assertEqual((target, length), ("/probe/echo", 3))
                left = {"proxy", "content_length", "transfer_encoding", "expect", "te"} & set(names)
                self.assertEqual(left, set())
                self.assertLessEqual(names.count("cookie"), 1)

    def check_left(self):
        pass


@unittest.skipUnless(TLS, "this build has no TLS")
@ours
class DowngradeToAnUpstream(To, unittest.TestCase):
    cgi = False

    @classmethod
    def setUpClass(cls):
        cls.behind = cls.enterClassContext(backend.Raw(answer=cls.echo))
        cls.server = cls.enterClassContext(serve(routes=[{"path": "/probe/", "upstream": cls.behind.at}], **cls.settings))

    @staticmethod
    def echo(request):
        if request.line.split()[1] == "/probe/trailers":
            return (
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-Kept: 1\r\nConnection: x-own\r\n"
                b"X-Own: 1\r\nTransfer-Encoding: chunked\r\nProxy-Connection: close\r\nKeep-Alive: 1\r\n\r\n"
            )
        return backend.response(json.dumps({"target": request.line.split()[1], "body_length": len(request.body)}).encode())

    def test_trailers_lose_what_is_of_the_connection(self):
        """What HTTP/2 forbids in them must not cost the client its answer."""
        done = run("nghttp", "-nv", "--no-dep", f"{self.server.local_url}/probe/trailers")
        lines = re.findall(r"recv \(stream_id=\d+\) (\S+): (.*)", done.stdout)
        self.assertIn((":status", "200"), lines, done.stdout)
        self.assertIn(("x-kept", "1"), lines, done.stdout)
        self.assertNotIn("RST_STREAM", done.stdout)
        names = {name for name, _ in lines}
        self.assertEqual(names & {"x-own", "connection", "transfer-encoding", "proxy-connection", "keep-alive"}, set())
        self.behind.requests.pop()

    def saw(self):
        time.sleep(0.02)
        return [
            (*request.line.split()[:2], len(request.body), [name.lower() for name, _ in request.fields])
            for request in self.behind.requests
        ]

    def check_left(self):
        for request in self.behind.requests:
            self.assertEqual(len(request.all("host")), 1)
            self.assertLessEqual(len(request.all("content-length")) + len(request.all("transfer-encoding")), 1)
            self.assertNotIn(b"\n", request.head.replace(b"\r\n", b""))
            self.assertEqual(request.line.split()[2], "HTTP/1.1")
        # Nothing was on a connection but whole requests, and one that broke off in its body.
        self.assertEqual([data for kind, data in self.behind.seen if kind == "end" and data], [])


@unittest.skipUnless(TLS, "this build has no TLS")
@ours
class DowngradeToFastCgi(To, unittest.TestCase):
    class Recorder(FastCgi):
        """Says in JSON what it was told."""

        def answered(self, told, body):
            report = {"target": told["REQUEST_URI"].decode(), "body_length": len(body)}
            return b"Status: 200\r\n\r\n" + json.dumps(report).encode()

    @classmethod
    def setUpClass(cls):
        place = Path(tempfile.mkdtemp(prefix="bulkhead-fastcgi-", dir="/tmp"))
        cls.addClassCleanup(shutil.rmtree, place, True)
        place.chmod(0o755)
        cls.behind = cls.enterClassContext(cls.Recorder(path=place / "f.sock"))
        routes = [{"path": "/probe/", "fastcgi": cls.behind.at}]
        cls.server = cls.enterClassContext(serve(routes=routes, **cls.settings))

    def saw(self):
        time.sleep(0.02)
        names = lambda told: [name[5:].lower().replace("_", "-") for name in told if name.startswith("HTTP_")]
        return [
            (told["REQUEST_METHOD"].decode(), told["REQUEST_URI"].decode(), len(body), names(told))
            for told, body in self.behind.requests
        ]

    def check_left(self):
        for told, body in self.behind.requests:
            self.assertEqual(int(told.get("CONTENT_LENGTH") or 0), len(body))
            self.assertEqual(told["HTTP_HOST"], b"main.test")
            self.assertFalse({"HTTP_TRANSFER_ENCODING", "HTTP_CONTENT_LENGTH", "HTTP_UPGRADE", "HTTP_PROXY"} & set(told))
            self.assertFalse([value for value in told.values() if set(value) & set(b"\r\n\0")])


@unittest.skipUnless(TLS, "this build has no TLS")
@ours
@unittest.skipUnless(backend.php_fpm(), "php-fpm is not installed")
class DowngradeToPhp(To, unittest.TestCase):
    SCRIPT = """<?php
$body = file_get_contents("php://input");
$names = [];
foreach ($_SERVER as $name => $value) {
    if (str_starts_with($name, "HTTP_")) { $names[] = str_replace("_", "-", strtolower(substr($name, 5))); }
}
$seen = [$_SERVER["REQUEST_METHOD"], $_SERVER["REQUEST_URI"], strlen($body), $names];
file_put_contents("%s", json_encode($seen) . "\\n", FILE_APPEND | LOCK_EX);
echo json_encode(["target" => $_SERVER["REQUEST_URI"], "body_length" => strlen($body)]);
"""

    @classmethod
    def setUpClass(cls):
        place = Path(tempfile.mkdtemp(prefix="bulkhead-php-", dir="/tmp"))
        cls.addClassCleanup(shutil.rmtree, place, True)
        place.chmod(0o755)
        cls.seen = place / "seen"
        cls.seen.touch()
        cls.seen.chmod(0o666)
        php = backend.Fpm(place)
        cls.addClassCleanup(php.close)
        routes = [{"path": "/probe/", "fastcgi": f"unix:{php.socket}", "script": "/echo.php"}]
        files = {"echo.php": cls.SCRIPT % cls.seen}
        cls.server = cls.enterClassContext(serve(routes=routes, files=files, **cls.settings))

    def saw(self):
        return [tuple(json.loads(line)) for line in self.seen.read_text().splitlines()]


if __name__ == "__main__":
    unittest.main()
