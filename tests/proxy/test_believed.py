"""What a client says in our name reaches nobody who answers, however its request comes and whoever that is.

The names are those of the table in docs/guide/proxy.md, which a unit test compares with the code.
"""

import json
import re
import unittest
from pathlib import Path

from backend import FastCgi, Raw, response
from harness import rootless_too
from tls_server import Tls

DOCS = Path(__file__).parents[2] / "docs" / "guide" / "proxy.md"
EVIL = "6.6.6.6"
#: These belong to a connection, so that a client of HTTP/2 cannot say them; or the check of heads refuses them.
NOT_SAID = {"connection", "expect", "te", "transfer-encoding", "upgrade", "proxy", "proxy-connection", "keep-alive", "trailer"}
ROUTES = """
[[site.route]]
path = "/up/"
upstream = "{up}"

[[site.route]]
path = "/fc/"
fastcgi = "{fc}"

[[site.service]]
name = "relayed"
path = "/probe"
command = ["bin/probe"]
"""
DIRECT = """
[[site.service]]
name = "direct"
path = "/probe"
command = ["bin/probe"]
takes_connections = true
"""


def withheld():
    """A name for each of the table's, and for each of its families."""
    lines = DOCS.read_text().split("| of a request, this is not passed on |")[1].split("\n\n")[0].splitlines()[2:]
    names = {name.replace("*", "made-up") for line in lines for name in re.findall("`([a-z0-9*-]+)`", line.split("|")[2])}
    assert len(names) > 50, names
    return sorted(names)


@rootless_too
class Believed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.up, cls.fc = Raw(), FastCgi()
        cls.addClassCleanup(cls.up.close)
        cls.addClassCleanup(cls.fc.close)
        cls.server = Tls(more=ROUTES.format(up=cls.up.at, fc=cls.fc.at), conditioning="lenient")
        text = cls.server.config.read_text().replace("redirect_to_https = true", "")
        cls.server.config.write_text(text + DIRECT)
        cls.server.copy_program("probe")
        cls.enterClassContext(cls.server)

    def ask(self, url, headers, *words):
        """Asks; several times, as a client may have as many header lines as are allowed."""
        given = [word for name, value in headers for word in ("-H", f"{name}: {value}")]
        code, said = self.server.curl(url, "-f", *words, *given)
        self.assertEqual(code, 0, said)
        return said

    def upstream(self):
        return [(name.lower(), value) for name, value in self.up.requests[-1].fields]

    def fastcgi(self):
        told = self.fc.requests[-1][0].items()
        return [(name[5:].replace("_", "-").lower(), value.decode()) for name, value in told if name.startswith("HTTP_")]

    def test_what_a_client_says_in_our_name(self):
        names = [name for name in withheld() if name not in NOT_SAID]
        headers = [(name, EVIL) for name in names]
        headers += [(name.replace("-", "_"), EVIL) for name in ("x-real-ip", "x-forwarded-for")]
        headers += [("X-Own", "1"), ("X-HTTP-Method-Override", "PUT"), ("X-Client-Version", "1")]
        b = {"http": "http://b.test:{port}", "https": "https://b.test:{tls}"}
        for scheme, words in (("http", ()), ("https", ("--http1.1",)), ("https", ("--http2",))):
            with self.subTest(scheme=scheme, words=words):
                self.ask(b[scheme] + "/up/x", headers, *words)
                self.check(self.upstream(), scheme, "b.test")
                self.ask(b[scheme] + "/fc/x", headers, *words)
                self.check(self.fastcgi(), None, None)
                report = json.loads(self.ask(b[scheme] + "/probe/echo", headers, *words))
                self.check(report["headers"], scheme, "b.test")
        report = json.loads(self.direct(headers))
        self.check(report["headers"], "http", "plain.test")

    def direct(self, headers):
        given = [word for name, value in headers for word in ("-H", f"{name}: {value}")]
        at = f"plain.test:{self.server.port}:127.0.0.1"
        code, said = self.server.curl("http://plain.test:{port}/probe/echo", "-f", "--resolve", at, *given)
        self.assertEqual(code, 0, said)
        return said

    def check(self, fields, scheme, host):
        fields = [tuple(field) for field in fields]
        self.assertEqual([name for name, value in fields if EVIL in value], [])
        for own in (("x-own", "1"), ("x-http-method-override", "PUT"), ("x-client-version", "1")):
            self.assertIn(own, fields)
        said = {name: value for name, value in fields if "forwarded" in name}
        if scheme is None:
            self.assertEqual(said, {})
            return
        # The port of the host differs.
        host = dict(fields)["host"]
        self.assertEqual(said, {
            "forwarded": f'for=127.0.0.1;proto={scheme};host="{host}"', "x-forwarded-for": "127.0.0.1",
            "x-forwarded-proto": scheme, "x-forwarded-host": host,
        })

    def test_what_connection_names(self):
        """A client can have its own fields left out for those behind us, but neither ours nor those that end a body."""
        for name in ("x-forwarded-for", "forwarded", "host", "content-length", "client-cert", "bulkhead-client"):
            with self.server.connect() as connection:
                connection.send((
                    f"POST /probe/echo HTTP/1.1\r\nHost: b.test\r\nConnection: x-one, {name}\r\nX-One: 1\r\n"
                    "Content-Length: 3\r\n\r\nabc"
                ).encode())
                answer = connection.response()
                # The check of heads may refuse it before.
                if answer.status == 400:
                    continue
                report = json.loads(answer.body)
                names = [name for name, _ in report["headers"]]
                self.assertTrue({"x-forwarded-for", "forwarded", "host"} <= set(names), names)
                self.assertNotIn("x-one", names)
                self.assertEqual(report["body_length"], 3)

    def test_a_request_without_a_host(self):
        """HTTP/1.0 need not name one; servers are not given an empty one."""
        text = self.server.config.read_text()
        self.assertIn('host = ["b.test"]', text)
        with self.server.connect() as connection:
            connection.send(b"GET http://b.test/up/x HTTP/1.0\r\n\r\n")
            self.assertEqual(connection.response().status, 200)
        self.assertEqual(self.up.requests[-1].all("host"), ["b.test"])

    def test_what_a_server_says_to_its_proxy(self):
        lines = ["X-Accel-Buffering: no", "X-Accel-Expires: 1", "Bulkhead-Client: 1", "Connection: X-Own", "X-Own: 1",
                 "Keep-Alive: 5", "Proxy-Connection: close", "X-Good: 1"]
        self.up.answer = lambda request: response(b"x", "200 OK", *lines)
        try:
            for url, words in (("http://b.test:{port}/up/x", ()), ("https://b.test:{tls}/up/x", ("--http2",))):
                said = self.ask(url, [], "-i", *words).lower()
                self.assertIn("x-good: 1", said)
                for name in ("x-accel", "bulkhead-client", "x-own", "keep-alive", "proxy-connection"):
                    self.assertNotIn(name, said)
        finally:
            self.up.answer = lambda request: response(b"hello")
