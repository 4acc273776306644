"""Corners of static files as their users meet them: encodings that are refused, parts of files, odd names, files that
change while they are sent."""

import gzip
import hashlib
import http.client
import os
import re
import time
import unittest

import client
from harness import Server, rootless_too, site

MIB = 1 << 20
PAGE = "".join(f"<p>line {number} of a page that can be compressed\n" for number in range(400)).encode()
#: Compressible, and more than is compressed by default (32 MiB).
LARGE = b"".join(b"%015d\n" % number for number in range(40 * MIB // 16))
NAMES = {
    "a b.txt": "/a%20b.txt",
    "plus+sign.txt": "/plus+sign.txt",
    "100%.txt": "/100%25.txt",
    "grün-日本.txt": "/gr%C3%BCn-%E6%97%A5%E6%9C%AC.txt",
    "semi;colon&and=.txt": "/semi;colon&and=.txt",
    "what?#.txt": "/what%3F%23.txt",
    "~tilde.txt": "/~tilde.txt",
    b"latin-\xff.txt": "/latin-%FF.txt",
}


@rootless_too
class Corners(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        files = {
            "main/page.html": PAGE, "main/large.txt": LARGE, "main/empty.txt": "", "main/short.txt": "0123456789" * 10,
            "main/old.html": PAGE, "main/old.html.gz": gzip.compress(b"older"),
            "main/both.html": PAGE, "main/both.html.gz": gzip.compress(b"newer"),
            "main/broken.html": PAGE, "main/broken.html.gz": "",
        }
        cls.server = Server(sites=[site()], programs=(), files=files)
        main = cls.server.folder / "main"
        past = time.time() - 1000
        os.utime(main / "old.html.gz", (past, past))
        os.utime(main / "both.html", (past, past))
        for name in NAMES:
            path = os.path.join(os.fsencode(main), os.fsencode(name))
            with open(path, "wb") as file:
                file.write(b"this is " + os.fsencode(name))
            os.chmod(path, 0o644)
        cls.enterClassContext(cls.server)

    def get(self, target, *headers, method="GET"):
        return self.server.get(target, headers=headers, method=method, timeout=30)

    def test_encodings_that_are_refused(self):
        for value, encodings in {
            "gzip;q=0": {None}, "gzip;q=0, *": {"br", "zstd"}, "*;q=0": {None}, "*": {"br", "zstd", "gzip"},
            "identity;q=0, gzip": {"gzip"}, "identity;q=0, *;q=0.1": {"br", "zstd", "gzip"}, "identity": {None},
            "gzip;q=0.001": {"gzip"}, "gzip;q=0.0001": {None}, "gzip;q=2": {None}, "GZIP": {"gzip"}, "": {None},
            "identity;q=0": {None}, "gzip, identity;q=0, br;q=0, zstd;q=0": {"gzip"}, "x-gzip": {"gzip"}, "deflate": {None},
        }.items():
            for _ in range(2):
                answer = self.get("/page.html", f"Accept-Encoding: {value}")
                # Who refuses everything gets the page as it is: RFC 9110 12.5.3 allows that, and 406 helps nobody.
                self.assertEqual(answer.status, 200, value)
                self.assertIn(answer.headers.get("content-encoding"), encodings, value)
                self.assertEqual(answer.headers["vary"], "Accept-Encoding", value)

    def test_head_is_get_without_the_body(self):
        for target in ("/page.html", "/short.txt", "/empty.txt"):
            for encoding in ("gzip", "br", "identity"):
                headers = (f"Accept-Encoding: {encoding}",)
                first = self.get(target, *headers)
                head, whole = self.get(target, *headers, method="HEAD"), self.get(target, *headers)
                told = ("content-length", "content-encoding", "content-type", "etag", "vary", "last-modified", "accept-ranges")
                self.assertEqual(
                    [head.headers.get(name) for name in told], [whole.headers.get(name) for name in told], (target, encoding)
                )
                self.assertEqual(first.headers["etag"], head.headers["etag"])
                self.assertEqual((head.status, head.body), (200, b""))

    def test_parts_are_of_the_file_itself(self):
        plain, coded = self.get("/page.html"), self.get("/page.html", "Accept-Encoding: gzip")
        self.assertNotEqual(plain.headers["etag"], coded.headers["etag"])
        wish = ("Range: bytes=10-19", "Accept-Encoding: gzip")
        part = self.get("/page.html", *wish)
        self.assertEqual((part.status, part.body), (206, PAGE[10:20]))
        self.assertNotIn("content-encoding", part.headers)
        self.assertEqual(part.headers["etag"], plain.headers["etag"])
        # A part of what the client has not: it has the form of gzip.
        other = self.get("/page.html", *wish, f"If-Range: {coded.headers['etag']}")
        self.assertEqual(other.status, 200)
        same = self.get("/page.html", *wish, f"If-Range: {plain.headers['etag']}")
        self.assertEqual((same.status, same.body), (206, PAGE[10:20]))
        for validator, status in (
            ('"other"', 200), (f"W/{plain.headers['etag']}", 200), ("Sat, 01 Jan 2000 00:00:00 GMT", 200), ("nonsense", 200),
        ):
            self.assertEqual(self.get("/page.html", wish[0], f"If-Range: {validator}").status, status, validator)
        # HEAD has no parts (RFC 9110 14.2), and the condition comes before the range.
        self.assertEqual(self.get("/page.html", wish[0], method="HEAD").status, 200)
        self.assertEqual(self.get("/page.html", wish[0], f"If-None-Match: {plain.headers['etag']}").status, 304)

    def test_several_parts(self):
        answer = self.get("/short.txt", "Range: bytes=0-1, 50-51, -2")
        self.assertEqual(answer.status, 206)
        boundary = re.fullmatch(r"multipart/byteranges; *boundary=(\S+)", answer.headers["content-type"]).group(1)
        self.assertEqual(int(answer.headers["content-length"]), len(answer.body))
        parts = answer.body.split(b"--" + boundary.encode())
        self.assertEqual(parts[-1].strip(), b"--")
        found = []
        for part in parts[1:-1]:
            head, _, body = part.removeprefix(b"\r\n").partition(b"\r\n\r\n")
            found.append((re.search(rb"content-range: (.*)", head, re.I).group(1).strip(), body.removesuffix(b"\r\n")))
        self.assertEqual(found, [(b"bytes 0-1/100", b"01"), (b"bytes 50-51/100", b"01"), (b"bytes 98-99/100", b"89")])
        # What overlaps is one part; what asks for more than there is, or too often, costs no more than the file.
        self.assertEqual(self.get("/short.txt", "Range: bytes=0-50, 40-60").headers["content-range"], "bytes 0-60/100")
        many = self.get("/short.txt", "Range: bytes=" + ",".join(["0-"] * 500))
        self.assertIn((many.status, len(many.body)), ((200, 100), (206, 100), (400, len(many.body))))
        self.assertEqual(self.get("/short.txt", "Range: bytes=200-300, 400-").status, 416)
        self.assertEqual(self.get("/short.txt", "Range: bytes=5-2").status, 200)
        self.assertEqual(self.get("/short.txt", "Range: bytes=1-18446744073709551617").body, b"123456789" + b"0123456789" * 9)

    def test_neighbours(self):
        for target, expected in (("/old.html", PAGE), ("/both.html", b"newer")):
            for _ in range(2):
                answer = self.get(target, "Accept-Encoding: gzip")
                self.assertEqual(gzip.decompress(answer.body), expected, target)
                self.assertTrue(answer.headers["content-type"].startswith("text/html"))
            self.assertEqual(self.get(target).body, PAGE)
            part = self.get(target, "Accept-Encoding: gzip", "Range: bytes=0-9")
            self.assertEqual((part.status, part.body), (206, PAGE[:10]))
        # An empty neighbour is what a program that was interrupted leaves behind: it is no gzip.
        answer = self.get("/broken.html", "Accept-Encoding: gzip")
        body = gzip.decompress(answer.body) if answer.headers.get("content-encoding") else answer.body
        self.assertEqual(body, PAGE)

    def test_an_empty_file(self):
        for headers in ((), ("Accept-Encoding: gzip, br",)):
            answer = self.get("/empty.txt", *headers)
            self.assertEqual((answer.status, answer.headers["content-length"], answer.body), (200, "0", b""))
            self.assertNotIn("content-encoding", answer.headers)
        self.assertEqual(self.get("/empty.txt", "Range: bytes=0-").status, 416)
        self.assertIn(self.get("/empty.txt", "Range: bytes=-5").status, (200, 416))
        tag = self.get("/empty.txt").headers["etag"]
        self.assertEqual(self.get("/empty.txt", f"If-None-Match: {tag}").status, 304)

    def test_a_large_file(self):
        for headers in ({}, {"Accept-Encoding": "gzip, br, zstd"}):
            connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
            connection.request("GET", "/large.txt", headers={"Host": "main.test"} | headers)
            answer = connection.getresponse()
            self.assertEqual((answer.status, answer.getheader("content-encoding")), (200, None))
            self.assertEqual(hashlib.sha256(answer.read()).digest(), hashlib.sha256(LARGE).digest())
            connection.close()
        far = len(LARGE) - 1000
        self.assertEqual(self.get("/large.txt", f"Range: bytes={far}-{far + 99}").body, LARGE[far : far + 100])
        self.assertEqual(self.get("/large.txt", "Range: bytes=-7").body, LARGE[-7:])

    def test_names(self):
        for name, target in NAMES.items():
            for _ in range(2):
                answer = self.get(target)
                self.assertEqual((answer.status, answer.body), (200, b"this is " + os.fsencode(name)), target)
        # A plus is no blank, an escape is decoded once, and nothing is decoded into a slash or the end of a name.
        for target, status in {
            "/plus%20sign.txt": 404, "/a+b.txt": 404, "/%41.txt": 404, "/%2541.txt": 404, "/%2f%2fshort.txt": 404, "/short.txt%00": 400,
            "/short.txt%00.html": 400, "/%": 400, "/%4": 400, "/%zz": 400, "/100%.txt": 400, "/SHORT.TXT": 404,
            "/short.txt.": 404, "/short.txt%20": 404, "/short.txt::$DATA": 404, "/back%5Cslash.txt": 404, "/line%0Afeed.txt": 404,
            "/short%2Etxt": 200, "/%73hort.txt": 200,
        }.items():
            answer = self.get(target)
            self.assertIn(answer.status, {status, 400 if status == 404 else status}, target)
            self.assertNotIn(b"this is", answer.body, target)

    def test_hidden_names(self):
        self.server.write("main/.env", "SECRET=1")
        self.server.write("main/.git/config", "[core]")
        self.server.write("main/docs/.htpasswd", "ann:secret")
        self.server.write("main/.well-known/acme-challenge/token", "proof")
        for target in ("/.env", "/%2eenv", "/.git/config", "/.git/", "/docs/.htpasswd", "/docs/%2Ehtpasswd", "/./.env", "//.env"):
            self.assertIn(self.get(target).status, (400, 404), target)
        self.assertEqual(self.get("/.well-known/acme-challenge/token").body, b"proof")


@rootless_too
class Changing(unittest.TestCase):
    """Files that are changed while they are sent: an answer is what was announced, or visibly broken off."""

    SIZE = 24 * MIB

    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(Server(sites=[site(), site("other")], programs=()))

    def begin(self, name, *headers):
        """A request whose answer has begun, and is not taken any further."""
        self.server.write(f"main/{name}", b"a" * self.SIZE)
        connection = self.enterContext(self.server.connect(timeout=30))
        connection.send(client.request(f"/{name}", headers=headers))
        while b"\r\n\r\n" not in connection.unread:
            connection.unread += connection.socket.recv(4096)
        return connection, self.server.folder / "main" / name

    def assert_served(self):
        self.assertEqual(self.server.get("/").status, 200)

    def test_one_that_is_cut_off(self):
        pid = self.server.process("site main").pid
        for headers in ((), ("Range: bytes=1-",), ("Accept-Encoding: gzip",)):
            with self.subTest(headers):
                connection, path = self.begin(f"cut-{len(headers)}-{len(str(headers))}.bin", *headers)
                os.truncate(path, 1000)
                self.assert_served()
                with self.assertRaises(ConnectionError):
                    # It must not look whole, nor be filled up with what was never in it.
                    connection.response()
                self.assertEqual(self.get_again(path.name), b"a" * 1000)
        self.assertEqual(self.server.process("site main").pid, pid)

    def get_again(self, name):
        """What the file is by now, once the change has been seen."""
        client.until(lambda: len(self.server.get(f"/{name}").body) == 1000, 5)
        return self.server.get(f"/{name}").body

    def test_one_that_grows(self):
        connection, path = self.begin("growing.bin")
        with open(path, "ab") as file:
            file.write(b"b" * MIB)
        answer = connection.response()
        self.assertEqual((answer.status, len(answer.body), answer.body.count(b"a")), (200, self.SIZE, self.SIZE))

    def test_one_that_is_replaced_or_removed(self):
        for name in ("replaced.bin", "removed.bin"):
            connection, path = self.begin(name)
            if name == "replaced.bin":
                self.server.write("main/new", b"b" * self.SIZE)
                os.rename(self.server.folder / "main/new", path)
            else:
                path.unlink()
            answer = connection.response()
            self.assertEqual((len(answer.body), answer.body.count(b"a")), (self.SIZE, self.SIZE))
        seen = lambda: (self.server.get("/replaced.bin").body[:1], self.server.get("/removed.bin").status) == (b"b", 404)
        self.assertTrue(client.until(seen, 5))

    def test_a_compressed_one_that_is_cut_off(self):
        """The form that is made of a file that changes meanwhile is not kept for others."""
        text = b"".join(b"line %d of a text that can be compressed\n" % number for number in range(400_000))
        path = self.server.write("main/text.txt", text)
        with self.server.connect(timeout=30) as connection:
            connection.send(client.request("/text.txt", headers=["Accept-Encoding: gzip"]))
            connection.unread += connection.socket.recv(100)
            os.truncate(path, 100_000)
            try:
                body = gzip.decompress(connection.response().body)
            except (OSError, EOFError):
                body = None
            self.assertIn(body, (None, text))

        def shorter():
            # As long as a form is being made, others get the file as it is.
            answer = self.server.get("/text.txt", headers=["Accept-Encoding: gzip"])
            coded = answer.headers.get("content-encoding") == "gzip"
            return (gzip.decompress(answer.body) if coded else answer.body) == text[:100_000]

        self.assertTrue(client.until(shorter, 5), "others get what is not there any more")
        self.assert_served()


if __name__ == "__main__":
    unittest.main()
