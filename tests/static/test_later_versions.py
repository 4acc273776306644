"""HTTP/1.2 and later minor versions, of a client or of a server behind: each is served as HTTP/1.1 (RFC 9110 2.5)."""

import json
import socket
import time
import unittest

import client
from backend import Raw, response, route
from harness import Server, rootless_too, service, site

BODY = b"some text, " * 20_000


def later(request, minor=2):
    return request.replace(b"HTTP/1.1", b"HTTP/1.%d" % minor, 1)


def say(request):
    """An answer of HTTP/1.2 as the path wants it."""
    path = request.line.split()[1]
    if path.endswith("/chunked"):
        return b"HTTP/1.2 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    if path.endswith("/large"):
        return later(response(BODY))
    answer = later(response(b"abc", "299 Words of its own"), 9)
    if path.endswith("/parts"):
        request.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for part in (answer[:8], answer[8:12]):
            request.connection.sendall(part)
            # So that the parts do not come with one read.
            time.sleep(0.05)
        answer = answer[12:]
    return answer


@rootless_too
class LaterVersions(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.behind = cls.enterClassContext(Raw(answer=say))
        cls.server = Server(
            [
                site("main", [service("direct", "/probe", takes=True)], route=[route(cls.behind.at)]),
                {"name": "kept", "host": ["kept.test"], "services": [service("kept", "/", takes=True)]},
            ],
            programs=(),
        )
        for name in ("direct", "kept"):
            cls.server.copy_program("probe", name)
        cls.enterClassContext(cls.server)

    def test_of_a_client_of_a_service_that_takes_connections(self):
        for minor in (2, 9):
            with self.subTest(minor), self.server.connect() as connection:
                connection.send(later(client.request("/probe/echo", method="POST", body=b"x HTTP/1.2"), minor))
                answer = connection.response()
                self.assertEqual((answer.status, json.loads(answer.body)["body_length"]), (200, 10))

    def test_of_a_client_on_a_connection_that_is_kept(self):
        """The service reads its later heads itself, in whatever pieces they come."""
        with self.server.connect() as connection:
            connection.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for cut in (0, 10, len("GET /probe/echo HTTP/1.2"), len("GET /probe/echo HTTP/1.2\r")):
                request = later(client.request("/probe/echo", "kept.test"))
                connection.send(request[:cut])
                time.sleep(0.05 if cut else 0)
                connection.send(request[cut:])
                answer = connection.response()
                self.assertEqual(answer.status, 200, (cut, answer))
                self.assertEqual(json.loads(answer.body)["path"], "/probe/echo", cut)

    def test_of_heads_that_come_at_once(self):
        """The first bytes of the second come with the request before, all of them or some."""
        request = later(client.request("/probe/echo", "kept.test"))
        for cut in (len(request), 1, 20, len("GET /probe/echo HTTP/1."), len(request) - 1):
            with self.subTest(cut), self.server.connect() as connection:
                connection.send(request + later(request) + request[:cut])
                answers = [connection.response() for _ in range(2)]
                connection.send(request[cut:])
                answers.append(connection.response())
                self.assertEqual([answer.status for answer in answers], [200] * 3)

    def test_of_heads_that_come_with_the_body_before(self):
        """Of one length or in chunks, in whatever pieces; what looks like a head within a body is passed on as it came."""
        page = later(client.request("/probe/echo", "kept.test"))
        bodies = {
            "length": later(client.request("/probe/echo", "kept.test", method="POST", body=page)),
            "chunks": later(client.request("/probe/echo", "kept.test", method="POST", headers=["Transfer-Encoding: chunked"]))
            + f"{len(page):x};a=b\r\n".encode() + page + b"\r\n0\r\nA: b\r\n\r\n",
        }
        for name, upload in bodies.items():
            for cut in (0, 1, len(upload) - len(page), len(upload) - 1, len(upload), len(upload) + 20):
                with self.subTest(name, cut=cut), self.server.connect() as connection:
                    connection.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    # The gate reads the first; the service those that come behind.
                    connection.send(page + (upload + page)[:cut])
                    answers = [connection.response()]
                    connection.send((upload + page)[cut:])
                    answers += [connection.response() for _ in range(2)]
                    self.assertEqual([answer.status for answer in answers], [200] * 3)
                    self.assertEqual([json.loads(answer.body)["body_length"] for answer in answers], [0, len(page), 0])

    def test_of_a_server_behind(self):
        expected = {"chunked": (200, b"abc"), "large": (200, BODY), "words": (299, b"abc"), "parts": (299, b"abc")}
        with self.server.connect() as connection:
            for name, said in list(expected.items()) * 3:
                answer = connection.get(f"/app/{name}")
                self.assertEqual((answer.status, answer.body), said, name)
        self.assertLess(self.behind.connections, 6, "its connections are not kept, as those of HTTP/1.1 are")
