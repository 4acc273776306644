"""Uploads that came whole with their heads, and are passed on as they came: whatever the server does meanwhile, it gets each
request once, with its body, and the client's next request begins where the body ends."""

import socket
import time
import unittest

import client
from backend import Raw, response, route
from harness import Server, rootless_too, site

#: What would be a request if the body before it were cut short.
SMUGGLED = b"GET /app/smuggled HTTP/1.1\r\nHost: main.test\r\n\r\n"
BODY = bytes(range(256)) * 40
#: More than a socket with little room takes at once.
LARGE = bytes(range(256)) * 220
#: Bytes of room that a server's socket asks for.
ROOM_BYTES = 4096


def post(path, body, method="POST"):
    return client.request(path, method=method, headers=[f"Content-Length: {len(body)}"]) + body


class Behind(Raw):
    """Answers with the path, some in two parts."""

    def __init__(self):
        super().__init__(answer=self.say, accept=False)
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, ROOM_BYTES)
        self.start()

    def say(self, request):
        answer = response(request.line.split()[1].encode())
        if "/parts/" in request.line:
            request.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            request.connection.sendall(answer[:20])
            # So that the parts do not come with one read.
            time.sleep(0.05)
            answer = answer[20:]
        return answer

    def heard(self):
        return [(request.line.split()[1], request.body) for request in self.requests]


class Hasty(Raw):
    """Answers each head at once, and reads the body then."""

    def __init__(self):
        self.bodies = []
        super().__init__(accept=False)
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, ROOM_BYTES)
        self.start()

    def serve(self, connection):
        data = b""
        while True:
            while b"\r\n\r\n" not in data:
                if not (more := connection.recv(100)):
                    return
                data += more
            head, data = data.split(b"\r\n\r\n", 1)
            lengths = [line.split(b":")[1] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
            connection.sendall(response(b"early"))
            left = int(lengths[0] if lengths else 0)
            while len(data) < left:
                data += connection.recv(left - len(data))
            if lengths:
                self.bodies.append(data[:left])
            data = data[left:]


@rootless_too
class WithTheirHeads(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.behind = cls.enterClassContext(Behind())
        cls.hasty = cls.enterClassContext(Hasty())
        routes = [route(cls.behind.at), route(cls.behind.at, "/little/", body_bytes="1KiB"), route(cls.hasty.at, "/hasty/")]
        cls.server = Server(sites=[site(route=routes)], programs=())
        cls.enterClassContext(cls.server)

    def setUp(self):
        self.peer = self.enterContext(self.server.connect())
        for path in ("/app/first", "/hasty/first"):
            self.peer.send(client.request(path))
            self.assertEqual(self.peer.response().status, 200)
        self.behind.requests.clear()
        self.hasty.bodies.clear()

    def test_requests_that_come_together_are_told_apart(self):
        for path in ("/app/", "/app/parts/"):
            self.behind.requests.clear()
            asked = [(f"{path}{number}", body) for number, body in enumerate((BODY, SMUGGLED, b"", LARGE[:40_000]))]
            self.peer.send(b"".join(post(*one) for one in asked) + client.request(f"{path}last"))
            answers = [self.peer.response() for _ in range(5)]
            self.assertEqual([answer.text for answer in answers], [path for path, _ in asked] + [f"{path}last"])
            self.assertEqual(self.behind.heard(), asked + [(f"{path}last", b"")])

    def test_a_server_that_answers_first_gets_the_whole_body(self):
        for _ in range(3):
            self.peer.send(post("/hasty/x", LARGE) + post("/hasty/y", SMUGGLED))
            self.assertEqual([self.peer.response().text for _ in range(2)], ["early"] * 2)
        self.peer.send(client.request("/hasty/last"))
        self.assertEqual(self.peer.response().text, "early")
        # On several connections, as one takes a body while its client asks on: in whatever order.
        self.assertTrue(client.until(lambda: sorted(self.hasty.bodies) == [LARGE] * 3 + [SMUGGLED] * 3, 20))

    def test_a_body_over_its_limit_is_refused(self):
        self.peer.send(post("/little/x", BODY[:1024]) + post("/little/y", BODY[:1025]))
        self.assertEqual([self.peer.response().status for _ in range(2)], [200, 413])
        self.assertEqual(self.behind.heard(), [("/little/x", BODY[:1024])])
