"""Requests that are written to a FastCGI server at once, with their bodies: they are what the general path makes of them, and so are
the answers."""

import http.client
import socket
import struct
import threading
import unittest

import client
from aimed import count_sockets, sends_with_its_first_bytes
from backend import Raw
from harness import Server, rootless_too, site


def record(kind, content):
    return struct.pack(">BBHHBB", 1, kind, 1, len(content), 0, 0) + content


END = record(3, b"\0" * 8)


def whole(text):
    return [record(6, text) + record(6, b"") + END]


#: What the server says, in pieces between which it waits a little, by the path that is asked for.
ANSWERS = {
    "plain": whole(b"Content-type: text/html; charset=UTF-8\r\nX-Powered-By: PHP\r\n\r\n<p>page"),
    "length": whole(b"Status: 200 OK\nContent-Length: 4\n\nbody"),
    "longer": whole(b"Content-Length: 2\r\n\r\nbody"),
    "shorter": whole(b"Content-Length: 9\r\n\r\nbody"),
    "missing": whole(b"Status: 404 Not here\r\nContent-Type: text/plain\r\n\r\nnone"),
    "odd": whole(b"Status: 299 Odd\r\n\r\nx"),
    "nothing": whole(b"Status: 204 No Content\r\nX-A: b\r\n\r\n"),
    "unchanged": whole(b"Status: 304\r\nETag: \"a\"\r\n\r\n"),
    "elsewhere": whole(b"Location: /there\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n\r\n"),
    "own": whole(b"Server: mine\r\nDate: then\r\nConnection: close\r\nTransfer-Encoding: chunked\r\nKeep-Alive: 1\r\n\r\nx"),
    "file": whole(b"X-Accel-Redirect: /file.txt\r\n\r\n"),
    "large": whole(b"Content-Type: text/html\r\n\r\n" + b"y" * 9_000),
    "larger": whole(b"Content-Type: text/html\r\n\r\n" + b"y" * 40_000),
    "bad": whole(b"no head"),
    "words": [record(7, b"a word for the log") + whole(b"A: b\r\n\r\nx")[0]],
    "pieces": [record(6, b"A: b\r\n"), record(6, b"\r\nfirst"), record(6, b"second"), END],
    "refused": [record(3, b"\0\0\0\0\2\0\0\0")],
    "gone": [],
    "half": [record(6, b"A: b\r\nC: ")],
    "silent": None,
}


class Told(Raw):
    """Answers by what the path of a request ends with. `seen` has the variables and the body of each."""

    def serve(self, connection):
        try:
            with connection.makefile("rb") as records:
                parameters, body = b"", b""
                while True:
                    head = records.read(8)
                    if len(head) < 8:
                        return
                    kind, length, padding = head[1], int.from_bytes(head[4:6]), head[6]
                    content = records.read(length + padding)[:length]
                    if kind == 4:
                        parameters += content
                    if kind == 5:
                        body += content
                        if not content:
                            break
            variables = dict(named(parameters))
            self.seen.append((variables, body))
            answer = ANSWERS[variables["REQUEST_URI"].partition("?")[0].rpartition("/")[2]]
            if answer is None:
                connection.recv(1)
            for piece in answer or ():
                connection.sendall(piece)
                if len(answer) > 1:
                    threading.Event().wait(0.02)
        except OSError:
            pass
        finally:
            connection.close()


def named(parameters):
    at = 0
    while at < len(parameters):
        lengths = []
        for _ in range(2):
            long = parameters[at] & 0x80
            lengths.append(int.from_bytes(parameters[at:at + 4]) & 0x7fffffff if long else parameters[at])
            at += 4 if long else 1
        name, value = parameters[at:at + lengths[0]], parameters[at + lengths[0]:at + sum(lengths)]
        at += sum(lengths)
        yield name.decode(), value.decode()


@rootless_too
class AtOnce(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.behind = Told()
        cls.addClassCleanup(cls.behind.close)
        route = {"path": "/h/", "fastcgi": cls.behind.at, "answer_timeout": "2s"}
        files = {"main/file.txt": "the file"}
        cls.server = cls.enterClassContext(Server(sites=[site(route=[route])], programs=(), files=files))
        cls.before = cls.sockets()

    @classmethod
    def sockets(cls):
        return count_sockets(cls.server.process("site main"))

    def fill(self):
        """Sees to it that there are sockets that connect with their first bytes."""
        def is_filled():
            self.server.get("/h/plain", method="POST", body=b"x")
            return self.sockets() > self.before + 4

        if sends_with_its_first_bytes():
            self.assertTrue(client.until(is_filled, 10, 0), self.sockets())

    def ask(self, target, body, method="POST", chunked=False, **fields):
        """What the client and the server have seen, but for what differs by time and connection."""
        self.fill()
        del self.behind.seen[:]
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=20)
        self.addCleanup(connection.close)
        fields = {"Host": "main.test", "Accept-Encoding": "identity"} | fields
        sent = iter([body]) if chunked else body
        if not chunked:
            fields["Content-Length"] = str(len(body))
        else:
            fields["Transfer-Encoding"] = "chunked"
        connection.request(method, target, sent, fields, encode_chunked=chunked)
        try:
            answer = connection.getresponse()
            lines = sorted((name.lower(), value) for name, value in answer.getheaders())
            # After a chunked body, a connection ends.
            lines = [line for line in lines if line[0] not in ("date", "connection")]
            told = answer.status, answer.reason, lines, answer.read()
        except (http.client.HTTPException, ConnectionError) as error:
            told = type(error)
        seen = [({name: value for name, value in variables.items() if name != "REMOTE_PORT"}, body) for variables, body in self.behind.seen]
        return told, seen

    def test_every_answer_is_the_same_on_both_paths(self):
        for name in ANSWERS:
            with self.subTest(name):
                told, seen = self.ask(f"/h/{name}", b"a=b", chunked=True)
                self.assertEqual(self.ask(f"/h/{name}", b"a=b"), (told, seen))
                self.assertEqual([body for _, body in seen], [b"a=b"])
        self.assertTrue(client.until(lambda: self.server.log().count("a word for the log") == 2), self.server.log())

    def test_every_request_is_the_same_on_both_paths(self):
        body = bytes(range(256)) * 40
        for method, target, fields in (
            ("POST", "/h/plain?a=%20b&c", {"Content-Type": "a/b", "Cookie": "a=1", "Referer": "r"}),
            ("PATCH", "/h/in%20fo/plain", {"X-One": "1", "Proxy": "evil", "X_Two": "2", "User-Agent": "u"}),
            ("POST", "/h/plain", {"Forwarded": "for=6.6.6.6", "X-Forwarded-For": "6.6.6.6", "Client-Cert": ":AA==:"}),
            ("POST", "/h/plain", {"Connection": "close", "Range": "bytes=0-1", "TE": "trailers", "Empty": ""}),
            ("POST", "/h/large", {"Accept-Encoding": "gzip"}),
            ("PUT", "/h/plain", {}),
            ("POST", "/h//./plain", {}),
        ):
            with self.subTest(target):
                self.assertEqual(self.ask(target, body, method, **fields), self.ask(target, body, method, chunked=True, **fields))

    def test_one_connection_has_many_and_each_is_logged(self):
        request = lambda name: f"POST /h/{name} HTTP/1.1\r\nHost: main.test\r\nContent-Length: 3\r\n\r\na=b".encode()
        self.fill()
        names = ["length", "pieces", "length", "missing"] * 8
        before = self.server.log("main.access").count('"POST /h/missing ')
        with socket.create_connection(("127.0.0.1", self.server.port)) as peer:
            peer.sendall(b"".join(map(request, names)))
            data = b""
            while data.count(b"HTTP/1.1 ") < len(names) or not data.endswith(b"none"):
                more = peer.recv(65536)
                self.assertTrue(more, data)
                data += more
        self.assertEqual((data.count(b"\r\n\r\nbody"), data.count(b" 404 ")), (16, 8))
        lines = lambda: self.server.log("main.access").count('"POST /h/missing ') - before
        self.assertTrue(client.until(lambda: lines() == 8), lines())

    def test_a_client_that_goes_ends_the_request_of_its_server(self):
        self.fill()
        del self.behind.seen[:]
        peer = socket.create_connection(("127.0.0.1", self.server.port))
        peer.sendall(b"POST /h/silent HTTP/1.1\r\nHost: main.test\r\nContent-Length: 1\r\n\r\nx")
        self.assertTrue(client.until(lambda: self.behind.seen))
        peer.close()
        # Before the end of its time, which would be logged as 504.
        self.assertTrue(client.until(lambda: '"POST /h/silent HTTP/1.1" 499' in self.server.log("main.access")))
