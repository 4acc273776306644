"""Where a request and an answer end, for those behind a site and for their clients: one way, or not at all.

Requests are strange, and servers behind the site hostile: one of HTTP, one of FastCGI, and php-fpm. What becomes of each is
in the tables of docs/guide/proxy.md, whose rows are the names here. Over HTTP/1.1 with and without TLS, and over HTTP/2.
"""

import contextlib
import re
import shutil
import socket
import struct
import tempfile
import threading
import unittest
from pathlib import Path

from backend import FastCgi, Fpm, Raw, php_fpm, response
from client import until
from harness import Server, rootless_too, site
from stream_client import Streams
from tls_server import Tls, insecure

DOCS = (Path(__file__).parents[2] / "docs" / "guide" / "proxy.md").read_text()
INTERNAL_ERROR = 2
HEAD = 64 << 10
OK = "HTTP/1.1 200 OK"
CHUNKED = "Transfer-Encoding: chunked"

#: Strange requests: the method, lines of the head, the body, and what becomes of it. `{}` is a path.
REQUESTS = {
    "a `Content-Length` that begins with 0": ("POST", ["Content-Length: 03"], b"abc", 400),
    "two `Content-Length`, also the same twice": ("POST", ["Content-Length: 3", "Content-Length: 3"], b"abc", 400),
    "a list in `Content-Length`": ("POST", ["Content-Length: 3, 3"], b"abc", 400),
    "`Content-Length` and `Transfer-Encoding`": ("POST", ["Content-Length: 3", CHUNKED], b"3\r\nabc\r\n0\r\n\r\n", 400),
    "a transfer coding other than one `chunked`": ("POST", ["Transfer-Encoding: gzip, chunked"], b"0\r\n\r\n", 400),
    "a blank after the size of a chunk": ("POST", [CHUNKED], b"3 \r\nabc\r\n0\r\n\r\n", 400),
    "a control character in an extension of a chunk": ("POST", [CHUNKED], b"3;\x01\r\nabc\r\n0\r\n\r\n", 400),
    "a size of a chunk that is none": ("GET", [CHUNKED], b"zz\r\nabc\r\n0\r\n\r\n", 400),
    "a chunk that is longer than its size": ("GET", [CHUNKED], b"3\r\nabcd\r\n0\r\n\r\n", 400),
    "a line of the trailer that is folded": ("HEAD", [CHUNKED], b"0\r\nX: a\r\n b\r\n\r\n", 400),
    "`TRACE`, `TRACK` and `CONNECT`": ("TRACE", [], b"", 501),
    "a method with other characters than capitals, `-` and `_`": ("get", [], b"", 400),
    "an empty `Host`": ("GET", ["Host: "], b"", 400),
    "a body of a `GET` or `HEAD`, in chunks or with a length": ("GET", [CHUNKED], b"3\r\nabc\r\n0\r\n\r\n", "passed on"),
    "an extension of a chunk": ("POST", [CHUNKED], b"3;a=\"b\"\r\nabc\r\n0\r\n\r\n", "passed on without it"),
    "a trailer": ("POST", [CHUNKED], b"3\r\nabc\r\n0\r\nX-Trailer: a\r\n\r\n", "passed on without it"),
}
#: More of the same kind.
MORE = [
    ("POST", ["Content-Length: 00"], b"", 400), ("GET", [CHUNKED], b"3\t\r\nabc\r\n0\r\n\r\n", 400),
    ("GET", [CHUNKED], b"3 ;a\r\nabc\r\n0\r\n\r\n", 400), ("HEAD", [CHUNKED], b"zz\r\n", 400),
    ("GET", [CHUNKED], b"3\r\nabc\r\n0\r\n\n", 400), ("TRACK", [], b"", 501), ("Get", [], b"", 400),
    ("trace", [], b"", 400), ("G.T", [], b"", 400), ("GET", ["Content-Length: 3"], b"abc", "passed on"),
    ("OPTIONS", [CHUNKED], b"3\r\nabc\r\n0\r\n\r\n", "passed on"), ("M-SEARCH", ["Content-Length: 3"], b"abc", "passed on"),
]

#: Hostile answers: raw, and what becomes of them.
ANSWERS = {
    "two `Content-Length`": ([OK, "Content-Length: 5", "Content-Length: 6"], b"hello!", 502),
    "the same `Content-Length` twice, or as a list": ([OK, "Content-Length: 5", "Content-Length: 5"], b"hello", 502),
    "a `Content-Length` that is no number, or begins with 0": ([OK, "Content-Length: 05"], b"hello", 502),
    "`Content-Length` and `Transfer-Encoding`": ([OK, "Content-Length: 5", CHUNKED], b"5\r\nhello\r\n0\r\n\r\n", 502),
    "a transfer coding other than one `chunked`": ([OK, "Transfer-Encoding: gzip, chunked"], b"0\r\n\r\n", 502),
    "`Transfer-Encoding` in HTTP/1.0": (["HTTP/1.0 200 OK", CHUNKED], b"5\r\nhello\r\n0\r\n\r\n", 502),
    "a status line that is none, or a status above 599": (["HTTP/1.1 600 Odd", "Content-Length: 5"], b"hello", 502),
    "a head over 64 KiB, or of more than 100 lines": ([OK, "Content-Length: 5", "X-Large: " + "x" * HEAD], b"hello", 502),
    "chunks that are broken": ([OK, CHUNKED], b"zz\r\nhello\r\n0\r\n\r\n", 502),
    "a body with 204, 205 or 304": (["HTTP/1.1 204 No Content", "Content-Length: 5"], b"hello", "passed on without it"),
    "an answer in HTTP/1.0 without a length": (["HTTP/1.0 200 OK"], b"hello", "passed on"),
}
MORE_ANSWERS = [
    ([OK, "Content-Length: 5, 5"], b"hello", 502), ([OK, "Content-Length: +5"], b"hello", 502),
    ([OK, "Content-Length: "], b"hello", 502), ([OK, CHUNKED, CHUNKED], b"5\r\nhello\r\n0\r\n\r\n", 502),
    ([OK, "Transfer-Encoding: identity"], b"hello", 502), (["HTTP/1.1 999 Odd"], b"hello", 502),
    (["HTTP/9.9 200 OK"], b"hello", 502), (["HTTP/1.1 abc OK"], b"hello", 502), (["nonsense"], b"", 502),
    ([OK, *(f"X-{number}: a" for number in range(101))], b"hello", 502),
    # Just over, and so that it arrives in one piece with the body.
    ([OK, "Content-Length: 5", *(f"X-{number}: {'x' * 4000}" for number in range(17))], b"hello", 502),
    ([OK, CHUNKED], b"5\r\nhello\r\nzz\r\n", 502), ([OK, CHUNKED], b"5\r\nhelloXX0\r\n\r\n", 502),
    (["HTTP/1.1 304 Not Modified", "Content-Length: 5"], b"hello", "passed on without it"),
    (["HTTP/1.1 205 Reset Content", "Content-Length: 5"], b"hello", "passed on without it"),
    (["HTTP/1.1 304 Not Modified", CHUNKED], b"5\r\nhello\r\n0\r\n\r\n", "passed on without it"),
]

#: The same of FastCGI, without a status line.
CGI_ANSWERS = {
    "two `Content-Length`": ([" ", "Content-Length: 5", "Content-Length: 6"], b"hello", 502),
    "the same `Content-Length` twice, or as a list": (["Content-Length: 5, 5"], b"hello", 502),
    "a `Content-Length` that is no number, or begins with 0": (["Content-Length: 05"], b"hello", 502),
    "a status line that is none, or a status above 599": (["Status: 600 Odd"], b"hello", 502),
    "a head over 64 KiB, or of more than 100 lines": (["X-Large: " + "x" * HEAD], b"hello", 502),
    "a body with 204, 205 or 304": (["Status: 204 No Content", "Content-Length: 5"], b"hello", "passed on without it"),
}
MORE_CGI_ANSWERS = [
    (["Status: 304 Not Modified", "Content-Length: 5"], b"hello", "passed on without it"),
    (["Status: 205 Reset Content"], b"hello", "passed on without it"),
    (["Status: 304 Not Modified"], b"hello", "passed on without it"), (["Status: abc"], b"hello", 502),
    ([f"X-{number}: a" for number in range(101)], b"hello", 502),
    (["Content-Length: 5"], b"hello", "passed on"), (["X-One: a"], b"hello", "passed on"),
]
#: What a server says, and then no more: in the middle of the body, or in its place.
BROKEN = {
    "length": f"{OK}\r\nContent-Length: 50\r\n\r\nhello".encode(),
    "chunks": f"{OK}\r\n{CHUNKED}\r\n\r\n5\r\nhello\r\n".encode(),
    "bad-chunk": f"{OK}\r\n{CHUNKED}\r\n\r\n5\r\nhello\r\n".encode(),
}
SCRIPTS = {
    "204.php": "<?php http_response_code(204); header('Content-Length: 5'); echo 'hello';",
    "304.php": "<?php http_response_code(304); header('Content-Length: 5'); echo 'hello';",
    "205.php": "<?php http_response_code(205); echo 'hello';",
    "short.php": "<?php header('Content-Length: 50'); echo 'hello';",
    "page.php": "<?php header('Content-Length: 5'); echo 'hello';",
    "body.php": "<?php echo $_SERVER['REQUEST_METHOD'], ' ', file_get_contents('php://input');",
}
ROUTES = """
[[site.route]]
path = "/up/"
upstream = "{up}"

[[site.route]]
path = "/streamed/"
upstream = "{up}"
buffer = false

[[site.route]]
path = "/fc/"
fastcgi = "{fc}"

[[site.service]]
name = "probe"
path = "/probe"
command = ["bin/probe"]
"""


def parse(said, is_head=False):
    """The status, the fields and the body of an answer that its connection's end follows; no body if it is not whole."""
    head, separator, rest = said.partition(b"\r\n\r\n")
    if not separator:
        return None, {}, None
    line, *lines = head.decode("latin-1").split("\r\n")
    fields = dict((name.lower(), value.strip()) for name, value in (one.split(":", 1) for one in lines))
    status = int(line.split()[1])
    if is_head or status in (204, 304):
        return status, fields, rest
    if "transfer-encoding" not in fields:
        whole = "content-length" not in fields or len(rest) == int(fields["content-length"])
        return status, fields, rest if whole else None
    body = b""
    while chunk := re.match(rb"([0-9A-Fa-f]+)\r\n", rest):
        size = int(chunk[1], 16)
        data, rest = rest[chunk.end() : chunk.end() + size], rest[chunk.end() + size :]
        if size == 0:
            return status, fields, body if rest == b"\r\n" else None
        body += data
        rest = rest.removeprefix(b"\r\n")
    return status, fields, None


class Hostile(Raw):
    """Answers as it was told to last."""

    def __init__(self):
        super().__init__(answer=self.say)
        self.raw, self.then = b"", None

    def say(self, request):
        request.connection.sendall(self.raw)
        if self.then:
            self.then(request.connection)


class HostileCgi(FastCgi):
    raw = b""

    def answered(self, told, body):
        return self.raw

    def serve(self, connection):
        # A record has room for 64 KiB, less one byte.
        with contextlib.suppress(struct.error):
            super().serve(connection)
        connection.close()


class Behind(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.up, cls.fc = Hostile(), HostileCgi()
        cls.addClassCleanup(cls.up.close)
        cls.addClassCleanup(cls.fc.close)
        cls.server = Tls(more=ROUTES.format(up=cls.up.at, fc=cls.fc.at), conditioning="lenient")
        cls.server.config.write_text(cls.server.config.read_text().replace("redirect_to_https = true", ""))
        cls.server.copy_program("probe")
        cls.enterClassContext(cls.server)

    def setUp(self):
        self.up.raw, self.up.then, self.fc.raw = response(b"hello", "200 OK", "Connection: close"), None, b"\r\nhello"

    def exchange(self, data, tls):
        """What comes back until the end."""
        with socket.create_connection(("127.0.0.1", self.server.tls if tls else self.server.port), 20) as raw:
            stream = insecure().wrap_socket(raw, server_hostname="b.test") if tls else raw
            with stream:
                stream.sendall(data)
                said = b""
                with contextlib.suppress(ConnectionError):
                    while more := stream.recv(65536):
                        said += more
                return said

    def rows(self, title):
        """The rows of a table of the documentation."""
        lines = DOCS.split(f"| {title} |")[1].split("\n\n")[0].splitlines()[2:]
        return {line.split("|")[1].strip(): line.split("|")[2].strip() for line in lines}


@rootless_too
class Requests(Behind):
    def test_the_documentation_has_each(self):
        said = {name: str(row[-1]) for name, row in REQUESTS.items()}
        self.assertEqual(self.rows("a request with this") | said, said | self.rows("a request with this"))
        self.assertEqual(set(self.rows("a request with this")), set(said))
        for name, outcome in said.items():
            self.assertEqual(self.rows("a request with this")[name], outcome, name)

    def test_each(self):
        for name, row in [*REQUESTS.items(), *((None, row) for row in MORE)]:
            for path in ("/up/x", "/fc/x", "/probe/echo", "/index.html"):
                for tls in (False, True):
                    with self.subTest(name=name, row=row, path=path, tls=tls):
                        self.check(path, tls, *row)

    def check(self, path, tls, method, lines, body, outcome):
        before = len(self.up.requests), len(self.fc.requests)
        host = [] if any(line.startswith("Host") for line in lines) else ["Host: b.test"]
        head = "\r\n".join([f"{method} {path} HTTP/1.1", *host, "Connection: close", *lines])
        said = self.exchange(head.encode() + b"\r\n\r\n" + body, tls)
        status, _, content = parse(said, method == "HEAD")
        new = self.up.requests[before[0] :], self.fc.requests[before[1] :]
        if isinstance(outcome, int):
            self.assertEqual((status, new), (outcome, ([], [])), said)
            return
        self.assertIsNotNone(content, said)
        if path.startswith("/up/"):
            (request,) = new[0]
            self.assertEqual((request.line.split()[0], request.body), (method, b"abc"))
            self.assertNotIn("x-trailer", [field.lower() for field, _ in request.fields])
        elif path.startswith("/fc/"):
            ((told, got),) = new[1]
            self.assertEqual((told["REQUEST_METHOD"], got, told["CONTENT_LENGTH"]), (method.encode(), b"abc", b"3"))
        elif path.startswith("/probe"):
            self.assertIn(b'"body_length":3', content)

    def test_over_http2(self):
        """A body without a length is passed on with a GET as well; what is no method is refused."""
        with Streams(self.server.tls) as client:
            for path in ("/up/x", "/fc/x", "/probe/echo"):
                stream = client.ask(path, method="GET", protocol=None)
                client.send(stream, b"abc")
                client.end(stream)
                self.assertEqual(client.status(stream), "200")
                client.until(lambda: stream in client.ended, "the end")
                if path == "/probe/echo":
                    self.assertIn(b'"body_length":3', client.data[stream])
            self.assertEqual(self.up.requests[-1].body, b"abc")
            self.assertEqual(self.fc.requests[-1][1], b"abc")
            before = len(self.up.requests)
            for method, status in (("get", "400"), ("TRACE", "501"), ("G.T", "400")):
                self.assertEqual(client.status(client.ask("/up/x", method=method, protocol=None, end=True)), status)
            self.assertEqual(len(self.up.requests), before)

    def test_a_body_that_breaks_later(self):
        """The server behind never gets a whole request of it, and the client no answer that looks like one to it."""
        for tls in (False, True):
            # Of one that is to be whole first, the server hears nothing.
            before, connections = len(self.up.requests), self.up.connections
            with socket.create_connection(("127.0.0.1", self.server.tls if tls else self.server.port), 20) as raw:
                stream = insecure().wrap_socket(raw, server_hostname="b.test") if tls else raw
                stream.sendall(f"POST /up/x HTTP/1.1\r\nHost: b.test\r\n{CHUNKED}\r\n\r\n3\r\nabc\r\n3 \r\nabc\r\n".encode())
                self.assertTrue(stream.recv(65536).startswith(b"HTTP/1.1 400 "))
            self.assertEqual((len(self.up.requests), self.up.connections), (before, connections))
            with socket.create_connection(("127.0.0.1", self.server.tls if tls else self.server.port), 20) as raw:
                stream = insecure().wrap_socket(raw, server_hostname="b.test") if tls else raw
                stream.sendall(f"POST /streamed/x HTTP/1.1\r\nHost: b.test\r\n{CHUNKED}\r\n\r\n3\r\nabc\r\n".encode())
                self.assertTrue(until(lambda: self.up.connections > connections, 20))
                stream.sendall(b"3 \r\nabc\r\n0\r\n\r\n")
                self.assertTrue(stream.recv(65536).startswith(b"HTTP/1.1 400 "))
            self.assertEqual(len(self.up.requests), before)

    def test_no_host_at_all(self):
        """HTTP/1.0 need not name one: a server is given our address, and no empty host."""
        routes = [{"path": "/up/", "upstream": self.up.at}, {"path": "/fc/", "fastcgi": self.fc.at}]
        with Server(sites=[site(host=["*"], route=routes)], programs=()) as server:
            for path in ("/up/x", "/fc/x"):
                with server.connect() as connection:
                    connection.send(f"GET {path} HTTP/1.0\r\n\r\n".encode())
                    self.assertEqual(connection.response().status, 200)
            at = f"127.0.0.1:{server.port}"
        self.assertEqual(self.up.requests[-1].all("host"), [at])
        self.assertEqual(self.up.requests[-1].all("x-forwarded-host"), [at])
        told = self.fc.requests[-1][0]
        self.assertEqual((told["HTTP_HOST"], told["SERVER_NAME"]), (at.encode(), b"127.0.0.1"))


@rootless_too
class Answers(Behind):
    def test_the_documentation_has_each(self):
        rows = self.rows("an answer with this")
        for table in (ANSWERS, CGI_ANSWERS):
            for name, row in table.items():
                self.assertEqual(rows.pop(name) if table is ANSWERS else str(row[-1]), str(row[-1]), name)
        self.assertEqual([name for name in rows if "middle" not in name], [])

    def test_of_servers(self):
        for name, (lines, body, outcome) in [*ANSWERS.items(), *((None, row) for row in MORE_ANSWERS)]:
            self.up.raw = "\r\n".join(lines).encode() + b"\r\n\r\n" + body
            # A head is judged whatever the method is; a body that is not asked for is not read.
            self.check(name, "/up/x", outcome, lines, head=name != "chunks that are broken" and body[:2] != b"zz")

    def test_of_fastcgi(self):
        for name, (lines, body, outcome) in [*CGI_ANSWERS.items(), *((None, row) for row in MORE_CGI_ANSWERS)]:
            self.fc.raw = "\r\n".join(line for line in lines if line.strip()).encode() + b"\r\n\r\n" + body
            self.check(name, "/fc/x", outcome, lines, head=outcome != 502)

    def check(self, name, path, outcome, lines, head):
        for method in ("GET", "HEAD") if head and CHUNKED not in lines else ("GET",):
            for tls in (False, True):
                for version in ("1.1", "1.0"):
                    with self.subTest(name=name, lines=str(lines)[:200], method=method, tls=tls, version=version):
                        asked = f"{method} {path} HTTP/{version}\r\nHost: b.test\r\nConnection: close\r\n\r\n"
                        said = self.exchange(asked.encode(), tls)
                        self.judge(outcome, method, *parse(said, method == "HEAD"))
            with self.subTest(name=name, lines=str(lines)[:200], method=method, http=2), Streams(self.server.tls) as client:
                stream = client.ask(path, method=method, protocol=None, end=True)
                client.until(lambda: {stream} & (client.ended | set(client.resets)) or client.gone, "an end")
                self.assertEqual((client.resets, client.gone), ({}, None))
                fields = client.heads[stream]
                self.judge(outcome, method, int(fields[":status"]), fields, client.data.get(stream, b""))

    def judge(self, outcome, method, status, fields, body):
        if outcome == 502:
            self.assertEqual(status, 502)
        elif outcome == "passed on":
            self.assertEqual((status, body), (200, b"" if method == "HEAD" else b"hello"))
        else:
            self.assertEqual((status // 100 in (2, 3), body), (True, b""))
            self.assertIn(fields.get("content-length"), (None, "0") if status == 205 else (None,))
            self.assertNotIn("transfer-encoding", fields)

    def test_in_the_middle(self):
        """A body that breaks off when some of it has been passed on never looks whole."""
        for name, raw in BROKEN.items():
            for version, tls in (("1.1", False), ("1.1", True), ("1.0", False), ("1.0", True), ("2", True)):
                with self.subTest(name=name, version=version, tls=tls):
                    seen = threading.Event()

                    def then(connection, name=name, seen=seen):
                        seen.wait(20)
                        if name == "bad-chunk":
                            connection.sendall(b"zz\r\n")
                            connection.recv(100)

                    self.up.raw, self.up.then = raw, then
                    (self.middle_of_a_stream if version == "2" else self.middle)(version, tls, seen)

    def middle(self, version, tls, seen):
        with socket.create_connection(("127.0.0.1", self.server.tls if tls else self.server.port), 20) as raw:
            stream = insecure().wrap_socket(raw, server_hostname="b.test", suppress_ragged_eofs=False) if tls else raw
            stream.sendall(f"GET /up/x HTTP/{version}\r\nHost: b.test\r\n\r\n".encode())
            said, end = b"", "closed"
            try:
                while more := stream.recv(65536):
                    said += more
                    if b"hello" in said:
                        seen.set()
            except (ConnectionResetError, OSError) as error:
                end = type(error).__name__
            self.assertIn(b"hello", said)
            self.assertEqual(parse(said)[0], 200)
            # Either the framing tells, or the way in which the connection ended.
            self.assertTrue(parse(said)[2] is None or end != "closed", (said, end))

    def middle_of_a_stream(self, _version, _tls, seen):
        with Streams(self.server.tls) as client:
            stream = client.ask("/up/x", method="GET", protocol=None, end=True)
            client.until(lambda: client.data.get(stream) == b"hello", "the first piece")
            seen.set()
            client.until(lambda: stream in client.resets, "RST_STREAM")
            self.assertEqual(client.resets[stream], INTERNAL_ERROR)

    def test_short_bodies(self):
        """Whoever closes in the middle: 502 if the end has come with the rest, and otherwise an answer that is not whole."""
        self.fc.raw = b"Content-Length: 50\r\n\r\nhello"
        for path, raw in (("/fc/x", b""), *(("/up/x", raw) for raw in BROKEN.values())):
            self.up.raw = raw
            for tls in (False, True):
                asked = f"GET {path} HTTP/1.1\r\nHost: b.test\r\nConnection: close\r\n\r\n"
                status, _, body = parse(self.exchange(asked.encode(), tls))
                self.assertTrue(status == 502 or (status == 200 and body is None), (status, body))

    def test_a_stream_is_not_waited_for(self):
        """The first piece of a body that goes on for ever comes at once, and so does the head of one that says nothing."""
        for body in (b"", b"5\r\nhello\r\n"):
            done = threading.Event()
            self.up.raw = f"{OK}\r\n{CHUNKED}\r\nContent-Type: text/event-stream\r\n\r\n".encode() + body
            self.up.then = lambda connection, done=done: done.wait(20)
            with socket.create_connection(("127.0.0.1", self.server.port), 10) as stream:
                stream.sendall(b"GET /up/x HTTP/1.1\r\nHost: b.test\r\n\r\n")
                said = b""
                while b"\r\n\r\n" not in said or (body and b"hello" not in said):
                    said += stream.recv(65536)
                self.assertFalse(done.is_set())
            done.set()


@rootless_too
class Php(unittest.TestCase):
    """The same with php-fpm."""

    def setUp(self):
        if not php_fpm():
            self.skipTest("php-fpm is not installed")
        place = Path(tempfile.mkdtemp(prefix="bulkhead-php-", dir="/tmp"))
        place.chmod(0o755)
        self.addCleanup(shutil.rmtree, place, True)
        fpm = Fpm(place)
        self.addCleanup(fpm.close)
        route = f'[[site.route]]\nsuffix = ".php"\nfastcgi = "unix:{fpm.socket}"\n'
        self.server = Tls(more=route)
        self.server.config.write_text(self.server.config.read_text().replace("redirect_to_https = true", ""))
        for name, script in SCRIPTS.items():
            self.server.write(f"b/{name}", script)
        self.enterContext(self.server)

    def test_each(self):
        urls = (("http://b.test:{port}/", ()), ("https://b.test:{tls}/", ("--http1.1",)), ("https://b.test:{tls}/", ("--http2",)))
        for url, words in urls:
            for status in ("204", "205", "304"):
                with self.subTest(url=url, words=words, status=status):
                    code, said = self.server.curl(f"{url}{status}.php", "-i", *words)
                    self.assertEqual(code, 0, said)
                    self.assertIn(f" {status}", said.splitlines()[0])
                    self.assertNotIn("hello", said)
                    if status != "205":
                        self.assertNotIn("content-length", said.lower())
            code, said = self.server.curl(url + "page.php", *words)
            self.assertEqual((code, said), (0, "hello"))
            code, said = self.server.curl(url + "page.php", "-I", *words)
            self.assertEqual((code, "content-length: 5" in said.lower()), (0, True))
            code, said = self.server.curl(url + "body.php", "-X", "GET", "-H", "Transfer-Encoding: chunked", "-d", "abc", *words)
            self.assertEqual((code, said), (0, "GET abc"))
            # php-fpm ends the answer where the script does.
            code, said = self.server.curl(url + "short.php", "-o", "/dev/null", "-w", "%{http_code}", *words)
            self.assertTrue(code != 0 or said == "502", said)
