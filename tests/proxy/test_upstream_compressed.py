"""Responses that are compressed for some clients, from servers behind a site: what the way of simple requests gives is what the general
way gives."""

import gzip
import itertools
import unittest

import client
from backend import Raw, response, route
from harness import Server, rootless_too, site
from secured import TLS, ours, serve

TEXT = b"some text, " * 300
#: Lines of a response, and whether it is compressed for clients that take that.
KINDS = {
    "text": (("Content-Type: text/html; charset=utf-8",), True),
    "json": (("Content-Type: application/json", "Vary: Cookie", "ETag: \"strong\""), True),
    "varies": (("Content-Type: text/css", "Vary: Cookie, accept-encoding"), True),
    "varies-in-all": (("Content-Type: text/css", "Vary: *"), True),
    "encoded": (("Content-Type: text/plain", "Content-Encoding: br"), False),
    "fixed": (("Content-Type: text/plain", "Cache-Control: max-age=1, No-Transform"), False),
    "part": (("Content-Type: text/plain", "Content-Range: bytes 0-3299/9999"), False),
    "picture": (("Content-Type: image/png",), False),
    "untyped": ((), False),
}
#: Lines of a request that say what its client takes, and whether that is one of ours.
CLIENTS = {
    (): False,
    ("Accept-Encoding: identity",): False,
    ("Accept-Encoding: compress",): False,
    ("Accept-Encoding: gzip;q=0",): False,
    ("Accept-Encoding: gzip",): True,
    ("Accept-Encoding: identity", "Accept-Encoding: gzip"): True,
    ("Accept-Encoding: compress", "Range: bytes=0-9"): False,
}


def say(request):
    """What the last part of the path names; the head alone to `HEAD`."""
    lines, _ = KINDS[request.line.split()[1].split("/")[-1]]
    whole = response(TEXT, "200 OK", *lines)
    return whole[:-len(TEXT)] if request.line.startswith("HEAD") else whole


def known(answer):
    """What of a response must be the same whichever way it took."""
    body = gzip.decompress(answer.body) if "gzip" in answer.headers.get("content-encoding", "") else answer.body
    return answer.status, {name: value for name, value in answer.headers.items() if name != "date"}, body


@rootless_too
class Ways(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.behind = cls.enterClassContext(Raw(answer=say))
        cls.server = cls.enterClassContext(Server(sites=[site(route=[route(cls.behind.at)])], programs=()))

    def answer(self, connection, target, method, lines, body=b""):
        connection.send(client.request(target, headers=lines, method=method, body=body))
        return connection.response(method)

    def test_both_ways_give_the_same(self):
        """A request with a body goes the general way, and so does what is asked while no connection is kept."""
        for (kind, (_, is_compressed)), (lines, takes), method in itertools.product(KINDS.items(), CLIENTS.items(), ("GET", "HEAD")):
            with self.subTest(kind=kind, lines=lines, method=method), self.server.connect() as connection:
                first, *direct = (known(self.answer(connection, f"/app/{kind}", method, lines)) for _ in range(4))
                general = known(self.answer(connection, f"/app/{kind}", method, lines, b"x"))
                self.assertEqual([first, *direct], [general] * 4)
                status, headers, body = general
                is_encoded = is_compressed and takes and method == "GET"
                self.assertEqual((status, body), (200, TEXT if method == "GET" else b""))
                self.assertEqual(headers.get("content-encoding") == "gzip", is_encoded)
                self.assertEqual("accept-encoding" in headers.get("vary", "").lower(), is_compressed and kind != "varies-in-all")

    def test_connections_are_kept(self):
        """Or all requests go the general way, and the comparison says nothing."""
        with self.server.connect() as connection:
            for _ in range(20):
                self.assertEqual(self.answer(connection, "/app/text", "GET", ()).status, 200)
        self.assertLess(self.behind.connections, 10)


#: What stands for the very bytes that a server behind has sent.
DIGESTS = ("Repr-Digest: sha-256=:AAAA:", "Content-Digest: sha-256=:AAAA:", "Digest: sha-256=AAAA", "Content-MD5: AAAA")


def say_digests(request):
    """The digests as lines of the head, or behind the body."""
    path = request.line.split()[1]
    if path.endswith("/head"):
        return response(TEXT, "200 OK", "Content-Type: text/plain", *DIGESTS)
    names = ", ".join(line.split(":")[0] for line in DIGESTS)
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum, {names}\r\n\r\n"
    more = () if path.endswith("/alone") else ("X-Sum: 1",)
    trailer = "\r\n".join([*DIGESTS, *more, "", ""])
    return head.encode() + b"%x\r\n%s\r\n0\r\n" % (len(TEXT), TEXT) + trailer.encode()


@unittest.skipUnless(TLS, "this build has no TLS")
@ours
class Digests(unittest.TestCase):
    """None is sent with other bytes than those that it stands for, before or behind them."""

    @classmethod
    def setUpClass(cls):
        cls.behind = cls.enterClassContext(Raw(answer=say_digests))
        cls.server = cls.enterClassContext(serve(programs=(), routes=[route(cls.behind.at)]))

    def fields(self, path, *words):
        """The lines of the head and behind the body, as curl sees them."""
        said = self.server.curl("-D", "-", "-o", "/dev/null", "-H", "TE: trailers", *words, target=f"/app/{path}").stdout
        return [line.strip().lower() for line in said.splitlines()[1:] if line.strip()]

    def test_none_stays_on_what_is_compressed(self):
        for version in ("--http1.1", "--http2"):
            for path in ("head", "trailer", "alone"):
                with self.subTest(version, path=path):
                    found = self.fields(path, version, "-H", "Accept-Encoding: gzip")
                    self.assertIn("content-encoding: gzip", found)
                    self.assertEqual([line for line in found if "digest" in line or "md5" in line], [], "none is announced either")
                    self.assertEqual("x-sum: 1" in found, (version, path) == ("--http2", "trailer"), "others stay")

    def test_all_stay_on_what_is_not(self):
        """Clients of HTTP/1 get no trailers of a server behind at all."""
        for version, path in (("--http1.1", "head"), ("--http2", "head"), ("--http2", "trailer")):
            with self.subTest(version, path=path):
                found = self.fields(path, version)
                self.assertEqual([line for line in DIGESTS if line.lower() not in found], [])


if __name__ == "__main__":
    unittest.main()
