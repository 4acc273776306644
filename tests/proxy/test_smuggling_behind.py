"""Two readers of one request: what could be two requests to a server behind the site never reaches it.

Every probe is sent on a connection of its own to a server that takes HTTP as naively as can be, by HTTP and by FastCGI,
and it must see at most one request for each that the probe's sender is answered: none of the probes' hidden ones.
"""

import shutil
import tempfile
import unittest
from pathlib import Path

from backend import FastCgi, Raw, response
from client import raw_exchange
from harness import Server, rootless_too, site

#: What only a server would act on that has been led astray.
HIDDEN = b"GET /%s/hidden HTTP/1.1\r\nHost: main.test\r\nX-Hidden: 1\r\n\r\n"
HOST = b"Host: main.test\r\n"
REFUSED = {b"400", b"501", b"505", b"431", b"417"}


def probes(under):
    """Name, bytes, and whether they are to be refused; otherwise they are one request and no more."""
    hidden = HIDDEN % under
    post = b"POST /" + under + b"/x HTTP/1.1\r\n"
    chunked = b"5\r\nhello\r\n0\r\n\r\n"
    both = b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n"
    coding = lambda value: post + HOST + b"Transfer-Encoding" + value + b"\r\n\r\n" + chunked + hidden
    return [
        ("CL.TE", post + HOST + both % (5 + len(hidden)) + b"0\r\n\r\n" + hidden, True),
        ("TE.CL", post + HOST + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n%x\r\n" % len(hidden) + hidden
         + b"\r\n0\r\n\r\n", True),
        ("TE.TE x", coding(b": xchunked"), True),
        ("TE.TE list", coding(b": chunked, identity"), True),
        ("TE.TE twice", coding(b": chunked\r\nTransfer-Encoding: identity"), True),
        ("TE.TE same twice", coding(b": chunked\r\nTransfer-Encoding: chunked"), True),
        ("TE.TE tab", coding(b":\tchunked\x0b"), True),
        ("TE space before colon", coding(b" : chunked"), True),
        ("TE quoted", coding(b': "chunked"'), True),
        ("TE gzip", coding(b": gzip, chunked"), True),
        ("TE underscore", post + HOST + b"Transfer_Encoding: chunked\r\nContent-Length: %d\r\n\r\n" % len(chunked)
         + chunked, None),
        ("TE folded", coding(b":\r\n chunked"), True),
        ("TE in 1.0", post.replace(b"1.1", b"1.0") + HOST + b"Transfer-Encoding: chunked\r\n\r\n" + chunked + hidden, True),
        ("CL twice", post + HOST + b"Content-Length: 0\r\nContent-Length: %d\r\n\r\n" % len(hidden) + hidden, True),
        ("CL list", post + HOST + b"Content-Length: 0, %d\r\n\r\n" % len(hidden) + hidden, True),
        ("CL plus", post + HOST + b"Content-Length: +%d\r\n\r\n" % len(hidden) + hidden, True),
        ("CL hex", post + HOST + b"Content-Length: 0x%x\r\n\r\n" % len(hidden) + hidden, True),
        ("CL negative", post + HOST + b"Content-Length: -1\r\n\r\n" + hidden, True),
        ("CL space", post + HOST + b"Content-Length : %d\r\n\r\n" % len(hidden) + hidden, True),
        ("obs-fold", b"GET /" + under + b"/x HTTP/1.1\r\n" + HOST + b"X: a\r\n b: c\r\n\r\n", True),
        ("bare LF", b"GET /" + under + b"/x HTTP/1.1\r\n" + HOST + b"X: a\n\r\n", True),
        ("bare LF end", b"GET /" + under + b"/x HTTP/1.1\n" + HOST.replace(b"\r", b"") + b"\n", True),
        ("bare CR", b"GET /" + under + b"/x HTTP/1.1\r\n" + HOST + b"X: a\rY: b\r\n\r\n", True),
        ("LF in a value", b"GET /" + under + b"/x HTTP/1.1\r\n" + HOST + b"X: a\n" + hidden + b"\r\n", True),
        ("NUL", b"GET /" + under + b"/x HTTP/1.1\r\n" + HOST + b"X: a\0b\r\n\r\n", True),
        ("Host twice", b"GET /" + under + b"/x HTTP/1.1\r\n" + HOST + b"Host: other.test\r\n\r\n", True),
        ("no Host", b"GET /" + under + b"/x HTTP/1.1\r\n\r\n", True),
        ("absolute form against Host", b"GET http://other.test/" + under + b"/x HTTP/1.1\r\n" + HOST + b"\r\n", None),
        ("space in the target", b"GET /" + under + b"/x HTTP/1.1\r\nX: y HTTP/1.1\r\n" + hidden, True),
        ("chunk size with sign", post + HOST + b"Transfer-Encoding: chunked\r\n\r\n+5\r\nhello\r\n0\r\n\r\n" + hidden, None),
        ("chunk size too large", post + HOST + b"Transfer-Encoding: chunked\r\n\r\n10000000000000005\r\nhello\r\n0\r\n\r\n"
         + hidden, None),
        ("chunk without end", post + HOST + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhelloXX0\r\n\r\n" + hidden, None),
        ("chunk with bare LF", post + HOST + b"Transfer-Encoding: chunked\r\n\r\n5\nhello\n0\n\n" + hidden, None),
        ("chunk extension", post + HOST + b"Transfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\n\r\n" + hidden, None),
        ("chunk extension with LF", post + HOST + b"Transfer-Encoding: chunked\r\n\r\n5;\nxx\r\nhello\r\n0\r\n\r\n" + hidden,
         None),
        ("trailer", post + HOST + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nContent-Length: 9\r\nHost: evil\r\n\r\n",
         None),
        ("Upgrade: h2c", b"GET /" + under + b"/x HTTP/1.1\r\n" + HOST + b"Connection: Upgrade, HTTP2-Settings\r\n"
         b"Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n" + hidden.replace(b"main.test", b"main.test"), "two"),
        ("Expect", post + HOST + b"Expect: 100-continue\r\nContent-Length: 5\r\n\r\nhello", None),
        ("Connection takes CL", post + HOST + b"Connection: Content-Length\r\nContent-Length: %d\r\n\r\n" % len(hidden)
         + hidden, None),
    ]


class Naive(Raw):
    """Takes every byte as a naive server would, and keeps it."""

    def __init__(self, **more):
        super().__init__(answer=lambda request: response(b"answered"), **more)


@rootless_too
class Smuggling(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.place = Path(tempfile.mkdtemp(prefix="bulkhead-smuggle-", dir="/tmp"))
        cls.place.chmod(0o755)
        cls.addClassCleanup(shutil.rmtree, cls.place, True)
        cls.http, cls.fcgi = Naive(path=cls.place / "h.sock"), FastCgi(path=cls.place / "f.sock")
        routes = [{"path": "/up/", "upstream": cls.http.at}, {"path": "/fc/", "fastcgi": cls.fcgi.at}]
        cls.settings = {"ban_after": 0}
        cls.servers = {}
        for checks in ("strict", "lenient"):
            server = Server(sites=[site(route=routes)], programs=(), conditioning=cls.settings | {"checks": checks})
            cls.enterClassContext(server)
            cls.servers[checks] = server

    def probe_all(self, under, backend, seen):
        for checks, server in self.servers.items():
            for name, data, refused in probes(under):
                with self.subTest(checks=checks, probe=name):
                    before = len(backend.requests)
                    said = raw_exchange(server.port, data, timeout=5)
                    statuses = [line.split(b" ")[1] for line in said.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")]
                    new = backend.requests[before:]
                    self.assertTrue(statuses, "it is answered")
                    if refused is True:
                        self.assertIn(statuses[0], REFUSED, said[:200])
                        self.assertEqual(new, [])
                    # The hidden request may come only as one that is answered as such, after the first.
                    if refused != "two":
                        answered = [status for status in statuses if status != b"100"]
                        self.assertLessEqual(len(new), len(answered))
                        for number, request in enumerate(new):
                            self.assertFalse(number == 0 and seen(request), "the hidden one came first")
                        hidden = [request for request in new if seen(request)]
                        self.assertLessEqual(len(hidden), max(0, len(answered) - 1), said)
                    self.check(new)

    def check(self, new):
        for request in new:
            if isinstance(request, tuple):
                told, body = request
                self.assertEqual(int(told.get("CONTENT_LENGTH", b"0")), len(body))
                self.assertNotIn("HTTP_TRANSFER_ENCODING", told)
                self.assertNotIn("HTTP_UPGRADE", told)
                continue
            self.assertLessEqual(len(request.all("host")), 1)
            self.assertLessEqual(len(request.all("content-length")) + len(request.all("transfer-encoding")), 1)
            self.assertNotIn(b"\n", request.head.replace(b"\r\n", b""))
            self.assertNotIn("upgrade", [name.lower() for name, _ in request.fields])

    def test_through_http(self):
        self.probe_all(b"up", self.http, lambda request: "/hidden" in request.line)
        # Nothing was on a connection but whole requests.
        self.assertFalse([data for kind, data in self.http.seen if kind == "end" and data])

    def test_through_fastcgi(self):
        self.probe_all(b"fc", self.fcgi, lambda request: b"/hidden" in request[0]["REQUEST_URI"])
