"""What servers behind a site can do to a connection: close it at the wrong moment, hint, trail, contradict themselves,
take their time; and what clients can do to what is under way."""

import subprocess
import sys
import threading
import time
import unittest

import client
from backend import Raw, folder, response, route
from harness import Server, free_port, rootless_too, site

MIB = 1 << 20
#: A body that waits in the file of the site's worker.
LONG = bytes(range(256)) * 1000
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def get(path, *lines):
    return client.request(path, headers=lines)


class Second(Raw):
    """Answers the first request of every connection, and closes it unanswered at the second."""

    def serve(self, connection):
        self.answer = lambda request: self.once(request)
        super().serve(connection)

    def once(self, request):
        request.late = request.connection in self.answered
        self.answered.add(request.connection)
        return None if request.late else response(b"answered")

    def __init__(self, **more):
        self.answered = set()
        super().__init__(**more)


DYING = """
import socket, sys, threading
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
armed = []
def serve(peer):
    data = b""
    while True:
        while b"\\r\\n\\r\\n" not in data:
            more = peer.recv(1000)
            if not more:
                return
            data += more
        if armed and b"content-length" in data.lower():
            print("reads", flush=True)
            return threading.Event().wait()
        data = b""
        peer.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n")
def accept():
    while True:
        threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
threading.Thread(target=accept, daemon=True).start()
for line in sys.stdin:
    armed.append(line)
    print("armed", flush=True)
"""


class Dying:
    """A server in a process of its own, which is killed when it has read the head and a little of a body."""

    def __init__(self):
        self.process = subprocess.Popen([sys.executable, "-c", DYING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.at, self.has_died, self.killer = f"127.0.0.1:{self.process.stdout.readline().strip()}", False, None

    def arm(self):
        if not self.killer:
            self.process.stdin.write("now\n")
            self.process.stdin.flush()
            assert self.process.stdout.readline() == "armed\n"
            self.killer = threading.Thread(target=self.kill)
            self.killer.start()

    def kill(self):
        if self.process.stdout.readline() == "reads\n":
            self.has_died = True
            self.process.kill()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()
        if self.killer:
            self.killer.join()


@rootless_too
class Closing(unittest.TestCase):
    """A kept connection that the server closes at the very moment when the next request is sent on it."""

    @classmethod
    def setUpClass(cls):
        cls.behind = cls.enterClassContext(Second())
        cls.never = cls.enterClassContext(Raw(answer=lambda request: None))
        streamed = route(cls.behind.at, "/app/streamed/", buffer=False)
        routes = [route(cls.behind.at), streamed, route(cls.never.at, "/never/")]
        cls.server = Server(sites=[site(route=routes)], programs=())
        cls.enterClassContext(cls.server)

    def ask_after_another(self, method, body=b"", path="/app/"):
        """The answer to a request that goes on a kept connection, and how often the server got it, each time all of it."""
        for _ in range(50):
            self.behind.requests.clear()
            self.assertEqual(self.server.get("/app/first").status, 200)
            answer = self.server.get(f"{path}second", method=method, body=body)
            got = [request for request in self.behind.requests if request.line.startswith(f"{method} {path}second ")]
            self.assertTrue(all(request.body == body for request in got))
            # It is kept once its answer has gone out, which may be after the next request has come.
            if any(request.late for request in got):
                return answer.status, len(got)
        raise AssertionError("no connection is ever kept")

    def test_what_is_safe_is_sent_again(self):
        for method in ("GET", "HEAD", "OPTIONS", "PUT", "DELETE"):
            self.assertEqual(self.ask_after_another(method), (200, 2), method)

    def test_with_its_body_where_all_of_it_is_here(self):
        """From memory, and from the file."""
        for method, body in (("PUT", b"x"), ("DELETE", b"x=1"), ("GET", b"x"), ("PUT", LONG)):
            self.assertEqual(self.ask_after_another(method, body), (200, 2), (method, len(body)))
        self.assertEqual(self.ask_after_another("PUT", LONG, "/app/streamed/"), (502, 1))

    def test_what_takes_effect_twice_is_not(self):
        for method, body in (("POST", b"x=1"), ("POST", b""), ("POST", LONG), ("PATCH", b"x")):
            self.assertEqual(self.ask_after_another(method, body), (502, 1), (method, len(body)))

    def test_nothing_is_sent_a_third_time(self):
        for method, body in (("GET", b""), ("PUT", LONG)):
            self.never.requests.clear()
            self.assertEqual(self.server.get("/never/x", method=method, body=body).status, 502)
            self.assertEqual(len(self.never.requests), 1)

    def test_a_server_that_is_killed_in_the_middle_of_a_body(self):
        """The other of two servers gets all of it; of what takes effect twice, none gets anything once more."""
        for method, expected in (("PUT", (200, [LONG])), ("POST", (502, []))):
            with Dying() as dying, Raw() as other:
                route_to = route([dying.at, other.at])
                with Server(sites=[site(route=[route_to])], programs=()) as server:
                    def ask():
                        other.requests.clear()
                        dying.arm()
                        answer = server.get("/app/x", method=method, body=LONG)
                        return answer.status, [request.body for request in other.requests if request.line.startswith(method)]
                    # Which of the two has its turn is the connector's to say, and whether its connection is kept,
                    # time's.
                    for _ in range(20):
                        for _ in range(4):
                            self.assertEqual(server.get("/app/first").status, 200)
                        found = ask()
                        if dying.has_died:
                            break
                    self.assertTrue(dying.has_died and found == expected, (method, found[0], len(found[1])))

    def test_one_that_refuses_is_passed_over_with_the_body(self):
        with Raw() as other:
            for body in (b"x=1", LONG):
                with Server(sites=[site(route=[route([f"127.0.0.1:{free_port()}", other.at])])], programs=()) as server:
                    for _ in range(2):
                        self.assertEqual(server.get("/app/x", method="POST", body=body).status, 200)
            self.assertEqual([request.body for request in other.requests], [b"x=1"] * 2 + [LONG] * 2)

    def test_a_connection_that_rested_is_not_used_again(self):
        """Servers close what is idle, mostly after 5 s: a request must not meet that."""
        with Raw() as behind, Server(sites=[site(route=[route(behind.at)])], programs=()) as server:
            self.assertEqual(server.get("/app/x").status, 200)
            self.assertEqual(server.get("/app/x").status, 200)
            self.assertEqual(behind.connections, 1)
            time.sleep(4.5)
            self.assertEqual(server.get("/app/x", method="POST", body=b"x").status, 200)
            self.assertEqual(behind.connections, 2)


#: What a server says, what the client gets: a status and a body, or None for 502 or a connection that ends within the
#: answer, as the server's end comes with it or behind it.
ANSWERS = {
    "100": (b"HTTP/1.1 100 Continue\r\n\r\n" + response(b"after"), (200, b"after")),
    "103": (b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * 3 + response(b"after"), (200, b"after")),
    "trailers": (CHUNKED + b"3\r\nabc\r\n0\r\nX-T: 1\r\nContent-Length: 9\r\nSet-Cookie: a=b\r\n\r\n", (200, b"abc")),
    "extensions": (CHUNKED + b"3;a=b\r\nabc\r\n0\r\n\r\n", (200, b"abc")),
    "204": (b"HTTP/1.1 204 No Content\r\n\r\n", (204, b"")),
    "204 with a body": (b"HTTP/1.1 204 No Content\r\nContent-Length: 3\r\n\r\nabc", (204, b"")),
    "304 with a length": (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 300\r\n\r\n", (304, b"")),
    "no length": (b"HTTP/1.1 200 OK\r\n\r\nto the end", (200, b"to the end")),
    "version 1.0": (b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nabc", (200, b"abc")),
    "the same length twice": (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc", (502, None)),
    "two lengths": (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 5\r\n\r\nabcde", (502, None)),
    "a list of lengths": (b"HTTP/1.1 200 OK\r\nContent-Length: 3, 5\r\n\r\nabcde", (502, None)),
    "a negative length": (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nabc", (502, None)),
    "too short": (b"HTTP/1.1 200 OK\r\nContent-Length: 30\r\nConnection: close\r\n\r\nabc", None),
    "chunks that break off": (CHUNKED + b"3\r\nabc\r\n", None),
    "bad chunks": (CHUNKED + b"xyz\r\nabc\r\n0\r\n\r\n", (502, None)),
    "a chunk without end": (CHUNKED + b"3\r\nabcdefg\r\n0\r\n\r\n", (502, None)),
    "a length and chunks": (
        b"HTTP/1.1 200 OK\r\nContent-Length: 40\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", (502, None),
    ),
    "another coding": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", (502, None)),
    "version 2": (b"HTTP/2 200 OK\r\nContent-Length: 3\r\n\r\nabc", (502, None)),
    "a bare line feed in a value": (b"HTTP/1.1 200 OK\r\nX: a\nSet-Cookie: b\r\nContent-Length: 3\r\n\r\nabc", (200, b"abc")),
    "NUL in a value": (b"HTTP/1.1 200 OK\r\nX: a\0b\r\nContent-Length: 3\r\n\r\nabc", (502, None)),
    "a status of two digits": (b"HTTP/1.1 20 OK\r\nContent-Length: 3\r\n\r\nabc", (502, None)),
    "nothing": (b"", (502, None)),
}


@rootless_too
class Answers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.behind = cls.enterClassContext(Raw(answer=cls.say))
        routes = [route(cls.behind.at), route(cls.behind.at, "/hasty/", answer_timeout="700ms")]
        cls.server = Server(sites=[site(route=routes, compress=False), site("other")], programs=())
        cls.enterClassContext(cls.server)

    @staticmethod
    def say(request):
        """The answer that the path names, and the end; `/kept/` for one after which the connection goes on."""
        name = request.line.split()[1].split("/")[-1].replace("%20", " ")
        if name == "hints":
            try:
                while True:
                    request.connection.sendall(b"HTTP/1.1 103 Early Hints\r\n\r\n")
                    time.sleep(0.01)
            except OSError:
                return None
        if name == "plain":
            return response(b"plain")
        request.connection.sendall(ANSWERS[name][0])
        return b"" if "/kept/" in request.line else None

    def test_each_is_understood_in_one_way(self):
        for name, (_, expected) in ANSWERS.items():
            with self.subTest(name), self.server.connect() as connection:
                connection.send(get("/app/" + name.replace(" ", "%20")))
                if expected is None:
                    try:
                        self.assertEqual(connection.response().status, 502)
                    except ConnectionError:
                        pass
                    continue
                answer = connection.response()
                status, body = expected
                self.assertEqual(answer.status, status)
                if body is not None:
                    self.assertEqual(answer.body, body)
                self.assertNotIn("x-t", answer.headers)
                self.assertEqual(connection.unread, b"", "more than one answer")

    def test_nothing_is_left_for_the_next_client(self):
        """After every one of them, whoever comes next gets an answer of his own."""
        for name in ANSWERS:
            for _ in range(2):
                if name not in ("no length", "chunks that break off", "too short", "nothing", "a chunk without end"):
                    path = "/app/kept/" + name.replace(" ", "%20")
                    client.status(self.server.port, path, timeout=5)
                answer = self.server.get("/app/plain")
                self.assertEqual((answer.status, answer.body), (200, b"plain"), name)

    def test_hints_without_end_are_given_up(self):
        self.assertEqual(self.server.get("/hasty/hints").status, 504)
        self.assertEqual(self.server.get("/", host="other.test").status, 200)


@rootless_too
class Streams(unittest.TestCase):
    """Bodies pass through as they come: neither side's slowness costs the worker memory."""

    def test_a_large_upload_to_a_slow_server(self):
        got, go = [0], threading.Event()

        class Slow(Raw):
            def serve(self, connection):
                head = b""
                while b"\r\n\r\n" not in head:
                    head += connection.recv(65536)
                got[0] = len(head.split(b"\r\n\r\n", 1)[1])
                go.wait(30)
                while got[0] < 96 * MIB:
                    got[0] += len(connection.recv(MIB))
                connection.sendall(response(b"all of it"))

        with Slow(path=folder() / "slow.sock") as behind, Server(
            sites=[site(route=[route(behind.at) | {"buffer": False}])], programs=(), limits={"body_bytes": "128MiB"}
        ) as server:
            self.assertEqual(server.get("/").status, 200)
            worker = server.process("site main")
            before = rss(worker)
            with server.connect(timeout=60) as connection:
                connection.send(
                    b"POST /app/x HTTP/1.1\r\nHost: main.test\r\nContent-Length: %d\r\n\r\n" % (96 * MIB)
                )
                sender = threading.Thread(target=lambda: connection.send(b"x" * (96 * MIB)))
                sender.start()
                # The server does not read: what can be sent is what fits into buffers of the system.
                time.sleep(1)
                self.assertTrue(sender.is_alive(), "the whole of it was taken")
                held = rss(worker)
                go.set()
                answer = connection.response()
                sender.join()
            self.assertEqual((answer.status, answer.body, got[0]), (200, b"all of it", 96 * MIB))
            self.assertLess(max(held, rss(worker)) - before, 12 << 10, "KiB more than before")

    def test_an_answer_before_the_body_is_over(self):
        """The server answers what it has seen of a request, and takes the rest all the same: the connection goes on."""
        got = [0]

        class Early(Raw):
            def serve(self, connection):
                head = b""
                while b"\r\n\r\n" not in head:
                    head += connection.recv(65536)
                left = MIB if head.startswith(b"POST") else 0
                left -= len(head.split(b"\r\n\r\n", 1)[1])
                connection.sendall(response(b"early"))
                # No more than the body: the next request may be sent right behind it.
                while left > 0 and (more := connection.recv(left)):
                    left -= len(more)
                got[0] += left == 0
                connection.close()

        with Early() as behind, Server(sites=[site(route=[route(behind.at) | {"buffer": False}])], programs=()) as server:
            with server.connect() as connection:
                connection.send(b"POST /app/x HTTP/1.1\r\nHost: main.test\r\nContent-Length: %d\r\n\r\n" % MIB)
                connection.send(b"x" * (MIB // 2))
                answer = connection.response()
                self.assertEqual((answer.status, answer.body), (200, b"early"))
                self.assertNotIn("connection", answer.headers)
                connection.send(b"x" * (MIB // 2))
                answer = connection.get("/app/y")
                self.assertEqual((answer.status, answer.body), (200, b"early"))
            self.assertTrue(client.until(lambda: got[0] == 2), "the rest of the body was lost")

    def test_a_large_answer_to_a_slow_client(self):
        sent, gone = [0], threading.Event()

        def flood(request):
            request.connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (96 * MIB))
            try:
                while sent[0] < 96 * MIB:
                    sent[0] += request.connection.send(b"x" * 65536)
            except OSError:
                gone.set()
            return None

        with Raw(answer=flood) as behind, Server(sites=[site(route=[route(behind.at)])], programs=()) as server:
            self.assertEqual(server.get("/").status, 200)
            worker = server.process("site main")
            before = rss(worker)
            with server.connect() as connection:
                connection.send(get("/app/x"))
                self.assertTrue(connection.socket.recv(1000).startswith(b"HTTP/1.1 200"))
                time.sleep(1)
                self.assertLess(sent[0], 64 * MIB)
                self.assertLess(rss(worker) - before, 12 << 10, "KiB more than before")
            self.assertTrue(gone.wait(10), "the server is not told that the client has gone")


@rootless_too
class Gone(unittest.TestCase):
    def test_who_goes_while_the_server_thinks(self):
        """The connection to the server ends with the client's, and is not kept."""
        ended = threading.Event()

        def think(request):
            if request.line.split()[1].endswith("/think"):
                request.connection.settimeout(30)
                if request.connection.recv(1) == b"":
                    ended.set()
                return None
            return response(b"plain")

        with Raw(answer=think) as behind, Server(sites=[site(route=[route(behind.at)])], programs=()) as server:
            for send in (get("/app/think"), client.request("/app/think", method="POST", body=b"x=1")):
                ended.clear()
                count = len(behind.requests)
                with server.connect() as connection:
                    connection.send(send)
                    self.assertTrue(client.until(lambda: len(behind.requests) > count, 10))
                self.assertTrue(ended.wait(10), "the server is not told")
                self.assertEqual(server.get("/app/plain").body, b"plain")


def rss(process):
    """KiB in memory."""
    return int(process.status()["VmRSS"].split()[0])


if __name__ == "__main__":
    unittest.main()
