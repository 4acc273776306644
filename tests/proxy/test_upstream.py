"""Servers behind a site, by HTTP: real ones, dead ones, slow ones, full ones, and what they must never see."""

import select
import socket
import threading
import time
import unittest

import backend
import client
from backend import Raw, folder, response, route
from client import until
from harness import Server, rootless_too, site


def server(*routes, **more):
    return Server(sites=[site(route=list(routes)), site("other")], programs=(), **more)


@rootless_too
class Upstream(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.place = folder()
        cls.unix = Raw(path=cls.place / "app.sock", answer=cls.answer)
        cls.tcp = Raw(answer=cls.answer)
        once = lambda name: Raw(answer=lambda _: response(name, "200 OK", "Connection: close"))
        cls.one, cls.two = once(b"one"), once(b"two")
        with socket.socket() as gone:
            gone.bind(("127.0.0.1", 0))
            dead = "127.0.0.1:%d" % gone.getsockname()[1]
        cls.slow = Raw(answer=cls.slowly)
        cls.server = server(
            route(cls.unix.at),
            route(cls.tcp.at, "/tcp/"),
            route(cls.unix.at, "/streamed/", buffer=False),
            route([cls.one.at, dead, cls.two.at], "/several/"),
            route(dead, "/dead/"),
            route(f"unix:{cls.place}/none.sock", "/none/"),
            route(cls.slow.at, "/slow/", answer_timeout="500ms"),
            route(cls.unix.at, "/behind/", fallback=True),
            route(cls.tcp.at, "/proxy1/", proxy_protocol="v1"),
            conditioning={"checks": "lenient"},
            files={"main/behind/file.txt": "a file", "main/behind.txt": "another", "main/sent.bin": b"0123456789" * 100},
        )
        cls.enterClassContext(cls.server)

    @staticmethod
    def answer(request):
        target = request.line.split()[1].partition("?")[0]
        if target.endswith("/echo"):
            return response(request.body)
        if target.endswith("/head"):
            return response(request.head)
        if target.endswith("/chunks"):
            request.connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            for number in range(3):
                request.connection.sendall(b"6\r\nchunk%d\r\n" % number)
                time.sleep(0.05)
            return b"0\r\n\r\n"
        if target.endswith("/once"):
            request.connection.sendall(response(b"last"))
            return None
        if target.endswith("/hop"):
            return response(b"x", "200 OK", "Connection: x-own", "X-Own: 1", "Keep-Alive: timeout=9", "X-Kept: 1")
        if target.endswith("/two"):
            return response(b"first") + response(b"never asked for")
        if target.endswith("/bad"):
            return b"not HTTP at all\r\n\r\n"
        if target.endswith("/large"):
            return b"HTTP/1.1 200 OK\r\nX: " + b"a" * 200_000 + b"\r\n\r\n"
        if target.endswith("/101"):
            return b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"
        if target.endswith("/sendfile"):
            return response(b"", "200 OK", "X-Accel-Redirect: /sent.bin", "Content-Type: a/b", "X-Accel-Expires: 1")
        if target.endswith("/sendout"):
            return response(b"", "200 OK", "X-Sendfile: /etc/passwd")
        return response(b"hello from behind")

    @staticmethod
    def slowly(request):
        if request.line.split()[1].endswith("/middle"):
            request.connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345")
        time.sleep(3)
        return None

    def test_requests_and_answers(self):
        for path in ("/app/x", "/tcp/x"):
            answer = self.server.get(path)
            self.assertEqual((answer.status, answer.body), (200, b"hello from behind"))
        body = bytes(range(256)) * 4096
        for path in ("/app/echo", "/tcp/echo"):
            said = client.raw_exchange(
                self.server.port,
                f"POST {path} HTTP/1.1\r\nHost: main.test\r\nConnection: close\r\n"
                f"Content-Length: {len(body)}\r\n\r\n".encode() + body,
            )
            self.assertTrue(said.startswith(b"HTTP/1.1 200"), said[:200])
            self.assertEqual(said.split(b"\r\n\r\n", 1)[1], body)
        said = client.raw_exchange(
            self.server.port,
            b"POST /app/echo HTTP/1.1\r\nHost: main.test\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n",
        )
        self.assertIn(b"hello!", said)
        self.assertEqual(self.server.get("/app/chunks").body, b"chunk0chunk1chunk2")

    def test_connections_are_kept_and_replaced(self):
        before = self.unix.connections
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=5) as peer:
            for _ in range(20):
                peer.sendall(b"GET /app/x HTTP/1.1\r\nHost: main.test\r\n\r\n")
                said = b""
                while not said.endswith(b"behind"):
                    said += peer.recv(65536)
        self.assertLessEqual(self.unix.connections - before, 2)
        # One that the server closes is not used again, and no request is lost for it.
        for _ in range(10):
            self.assertEqual(self.server.get("/app/once").body, b"last")

    def test_what_a_server_is_told(self):
        said = client.raw_exchange(
            self.server.port,
            b"GET /app/head?q=1 HTTP/1.1\r\nHost: main.test\r\nConnection: close, X-Mine\r\nX-Mine: 1\r\n"
            b"X-Forwarded-For: 6.6.6.6\r\nForwarded: for=6.6.6.6\r\nX-Real-IP: 6.6.6.6\r\nX-Forwarded-Host: evil\r\n"
            b"TE: trailers\r\nbulkhead-client: 6.6.6.6:1\r\nX-Good: yes\r\n\r\n",
        )
        head = said.split(b"\r\n\r\n", 1)[1].decode().lower()
        self.assertNotIn("6.6.6.6", head)
        self.assertNotIn("evil", head)
        self.assertNotIn("x-mine", head)
        self.assertNotIn("trailers", head)
        self.assertIn("get /app/head?q=1 http/1.1", head)
        self.assertIn("x-good: yes", head)
        self.assertIn("x-forwarded-for: 127.0.0.1", head)
        self.assertIn("x-forwarded-proto: http", head)
        self.assertIn("x-forwarded-host: main.test", head)
        self.assertIn('forwarded: for=127.0.0.1;proto=http;host="main.test"', head)
        self.assertEqual(head.count("host: main.test"), 2)

    def test_answers_lose_what_is_of_the_connection(self):
        answer = self.server.get("/app/hop")
        self.assertEqual(answer.headers.get("x-kept"), "1")
        self.assertNotIn("x-own", answer.headers)
        self.assertNotIn("keep-alive", answer.headers)

    def test_a_second_answer_is_nobodys(self):
        for _ in range(5):
            self.assertEqual(self.server.get("/app/two").body, b"first")
            self.assertEqual(self.server.get("/app/x").body, b"hello from behind")

    def test_bad_answers_are_502(self):
        for path in ("/app/bad", "/app/large", "/app/101"):
            self.assertEqual(self.server.get(path).status, 502, path)

    def test_dead_servers(self):
        for path in ("/dead/x", "/none/x"):
            began = time.monotonic()
            self.assertEqual(self.server.get(path).status, 502, path)
            self.assertLess(time.monotonic() - began, 2)
        told = lambda: "none.sock cannot be connected to" in self.server.log()
        self.assertTrue(client.until(told, 5), self.server.log())
        bodies = {self.server.get("/several/x").body for _ in range(9)}
        self.assertEqual(bodies, {b"one", b"two"})

    def test_a_slow_server_is_504_and_stalls_nobody(self):
        statuses = []
        ask = lambda: statuses.append(self.server.get("/slow/x").status)
        threads = [threading.Thread(target=ask) for _ in range(8)]
        began = time.monotonic()
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            at = time.monotonic()
            self.assertEqual(self.server.get("/").status, 200)
            self.assertEqual(self.server.get("/", host="other.test").status, 200)
            self.assertEqual(self.server.get("/app/x").status, 200)
            self.assertLess(time.monotonic() - at, 0.4)
        self.assertEqual(statuses, [504] * 8)
        self.assertLess(time.monotonic() - began, 3)
        said = client.raw_exchange(
            self.server.port, b"GET /slow/middle HTTP/1.1\r\nHost: main.test\r\n\r\n"
        )
        self.assertTrue(said.endswith(b"12345"), said)

    def test_a_client_that_goes_takes_its_request_along(self):
        head = b"POST /streamed/echo HTTP/1.1\r\nHost: main.test\r\nContent-Length: 100000\r\n\r\n"
        with socket.create_connection(("127.0.0.1", self.server.port)) as peer:
            before = len(self.unix.seen)
            # More than what is kept until it is whole: the server has heard of it.
            peer.sendall(head + b"x" * 80000)
            time.sleep(0.3)
        # The server sees the end of the connection in the middle of the body.
        self.assertTrue(client.until(lambda: len(self.unix.seen) > before, 5))

    def test_files_first_where_there_are_some(self):
        self.assertEqual(self.server.get("/behind/file.txt").body, b"a file")
        self.assertEqual(self.server.get("/behind/none.txt").body, b"hello from behind")

    def test_files_that_a_server_names(self):
        answer = self.server.get("/app/sendfile")
        self.assertEqual((answer.status, answer.body), (200, b"0123456789" * 100))
        self.assertEqual(answer.headers["content-type"], "a/b")
        self.assertFalse([name for name in answer.headers if name.startswith("x-accel")])
        self.assertEqual(self.server.get("/app/sendout").status, 404)

    def test_the_proxy_header_begins_a_connection_of_its_own(self):
        before = self.tcp.connections
        for _ in range(2):
            self.server.get("/proxy1/x")
        self.assertEqual(self.tcp.connections - before, 2)
        line = self.tcp.requests[-1].line
        self.assertRegex(line, r"^PROXY TCP4 127\.0\.0\.1 127\.0\.0\.1 \d+ %d$" % self.server.port)


@rootless_too
class Full(unittest.TestCase):
    def test_a_full_queue_waits_for_its_turn(self):
        place = folder()
        behind = Raw(path=place / "full.sock", backlog=1, accept=False)
        with server(route(behind.at)) as running:
            answers = []
            ask = lambda: answers.append(running.get("/app/x", timeout=15).status)
            threads = [threading.Thread(target=ask) for _ in range(12)]
            for thread in threads:
                thread.start()
            time.sleep(1)
            self.assertEqual(answers, [])
            self.assertEqual(running.get("/").status, 200)
            behind.start()
            for thread in threads:
                thread.join(15)
            self.assertEqual(answers, [200] * 12)
        behind.close()

    def test_one_that_stays_full_is_504(self):
        place = folder()
        behind = Raw(path=place / "full.sock", backlog=0, accept=False)
        with server(route(behind.at), limits={"start_timeout": "700ms"}) as running:
            peers = []
            for _ in range(4):
                peer = socket.create_connection(("127.0.0.1", running.port), timeout=10)
                peer.sendall(b"GET /app/x HTTP/1.1\r\nHost: main.test\r\nConnection: close\r\n\r\n")
                peers.append(peer)
            # One of them, whichever came first to its gate, is in the queue.
            answered = lambda: select.select(peers, [], [], 0)[0]
            self.assertTrue(until(lambda: len(answered()) == 3, 10))
            for peer in answered():
                self.assertTrue(peer.recv(64).startswith(b"HTTP/1.1 504"))
            for peer in peers:
                peer.close()
        behind.close()


@rootless_too
class Connector(unittest.TestCase):
    def test_it_comes_back_when_it_is_killed(self):
        place = folder()
        behind = Raw(path=place / "app.sock")
        with server(route(behind.at)) as running:
            self.assertEqual(running.get("/app/x").status, 200)
            for _ in range(3):
                running.process("connector main").kill()
                behind.close()
                (place / "app.sock").unlink()
                behind = Raw(path=place / "app.sock")
                self.assertEqual(running.get("/app/x").status, 200)
            running.relaunch("main")
            self.assertEqual(running.get("/app/x").status, 200)
        behind.close()

    def test_there_is_none_without_servers(self):
        with server() as running:
            self.assertEqual(running.processes("connector"), [])


@rootless_too
class WebSocket(unittest.TestCase):
    """Against the server of `websockets`, where that is installed; else one of our own."""

    @staticmethod
    def echo(request):
        key = request.field("sec-websocket-key")
        if key is None or request.field("upgrade") != "websocket":
            return response(b"no websocket", "400 Bad Request")
        lines = ["HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade"]
        lines.append("Sec-WebSocket-Accept: " + backend.websocket_accept(key))
        request.connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n")
        while data := request.connection.recv(65536):
            request.connection.sendall(b"<" + data + b">")
        return None

    def open(self, port, upgrade=b"websocket", early=b""):
        peer = socket.create_connection(("127.0.0.1", port), timeout=5)
        peer.sendall(
            b"GET /app/ws HTTP/1.1\r\nHost: main.test\r\nConnection: keep-alive, Upgrade\r\nUpgrade: " + upgrade
            + b"\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n" + early
        )
        said = b""
        while b"\r\n\r\n" not in said:
            said += peer.recv(65536)
        head, rest = said.split(b"\r\n\r\n", 1)
        return peer, head.decode(), rest

    def test_both_ways(self):
        behind = Raw(answer=self.echo)
        with server(route(behind.at), limits={"idle_timeout": "1s"}) as running:
            peer, head, rest = self.open(running.port, early=b"early")
            self.assertTrue(head.startswith("HTTP/1.1 101"), head)
            self.assertIn("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=", head.lower())
            self.assertIn("upgrade: websocket", head.lower())
            while len(rest) < 7:
                rest += peer.recv(100)
            self.assertEqual(rest, b"<early>")
            for _ in range(5):
                time.sleep(0.4)
                peer.sendall(b"ping")
                self.assertEqual(peer.recv(100), b"<ping>")
            # Silence ends it.
            began = time.monotonic()
            self.assertEqual(peer.recv(100), b"")
            self.assertGreater(time.monotonic() - began, 0.7)
            logged = lambda: " 101 62 " in running.log("main.access")
            self.assertTrue(client.until(logged, 5), running.log("main.access"))

    def test_nothing_but_websocket(self):
        behind = Raw(answer=lambda request: response(request.head))
        with server(route(behind.at)) as running:
            for upgrade in (b"h2c", b"h2c, websocket", b"TLS/1.0"):
                peer, head, rest = self.open(running.port, upgrade=upgrade)
                self.assertTrue(head.startswith("HTTP/1.1 200"), head)
                self.assertNotIn(b"upgrade", rest.lower())
                peer.close()
        behind.close()

    def test_with_a_library_at_both_ends(self):
        try:
            from websockets.sync.client import connect
            from websockets.sync.server import serve
        except ImportError:
            self.skipTest("python's websockets is not installed")
        echo = lambda socket: [socket.send(message) for message in socket]
        with serve(echo, "127.0.0.1", 0) as library:
            threading.Thread(target=library.serve_forever, daemon=True).start()
            at = "127.0.0.1:%d" % library.socket.getsockname()[1]
            with server(route(at, "/ws")) as running:
                uri = f"ws://main.test:{running.port}/ws"
                peer = socket.create_connection(("127.0.0.1", running.port))
                with connect(uri, sock=peer) as both:
                    for message in ("hello", "x" * 100_000, b"\0" * 70_000):
                        both.send(message)
                        self.assertEqual(both.recv(timeout=5), message)
            library.shutdown()
