"""A slow or dead server behind a site holds up nothing but the requests that are for it.

Under 200 requests at once for a server that accepts and never answers, one whose queue is full (over TCP, where the
kernel drops what comes, and over a Unix socket), one that sends a byte a second in its head or in its body, and one that
does not read what it is sent: files of the same site, another server behind it, and another site keep answering.
"""

import contextlib
import socket
import threading
import time
import unittest

import client
from backend import FastCgi, Mute, Raw, Silent, folder, response, route
from harness import Server, rootless_too, service, site

CROWD = 200
#: LIMIT: seconds for an answer; what would be stalled waits for as long as the stalled server is waited for, a minute.
PATIENCE = 20


class Dribble(Raw):
    """Answers by a byte a second."""

    def __init__(self, first, **more):
        self.first, self.over = first, threading.Event()
        super().__init__(**more)

    def serve(self, connection):
        with contextlib.suppress(OSError):
            connection.recv(65536)
            connection.sendall(self.first)
            while not self.over.wait(1):
                connection.sendall(b"x")

    def close(self):
        self.over.set()
        super().close()


class Crowd:
    """Requests that nobody answers, each on a connection of its own; use it with `with`."""

    def __init__(self, port, data, count=CROWD):
        self.port, self.data, self.count, self.all = port, data, count, []

    def __enter__(self):
        for _ in range(self.count):
            peer = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)
            self.all.append(peer)
            # What does not fit into the socket is not sent: nobody reads it.
            peer.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                peer.send(self.data)
        return self

    def __exit__(self, *_):
        for peer in self.all:
            peer.close()


@rootless_too
class Stall(unittest.TestCase):
    # A client whose kernel holds a part of its body, behind which it has gone, is noticed late: not waited for.
    limits = {"body_bytes": "1GiB", "drain_timeout": "3s"}

    @classmethod
    def setUpClass(cls):
        cls.place = folder()
        cls.well = cls.enterClassContext(Raw())
        head, body = b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"
        cls.dead = {
            "mute": cls.enterClassContext(Mute(backlog=256)),
            "mute-unix": cls.enterClassContext(Mute(path=cls.place / "mute.sock", backlog=256)),
            "full": Silent(backlog=0),
            "full-unix": Silent(backlog=0, path=cls.place / "full.sock"),
            "head": cls.enterClassContext(Dribble(head, backlog=256)),
            "body": cls.enterClassContext(Dribble(body, backlog=256)),
        }
        # The queue of a TCP listener has a place more than it says; then the kernel drops what comes.
        cls.fill = [socket.socket() for _ in range(4)]
        for peer in cls.fill:
            cls.addClassCleanup(peer.close)
            peer.setblocking(False)
            peer.connect_ex(cls.dead["full"].raw.listener.getsockname())
        routes = [route(one.at, f"/{name}/") for name, one in cls.dead.items()]
        routes += [{"path": "/fcgi/", "fastcgi": cls.dead["mute"].at, "script": "/x.php"}, route(cls.well.at, "/well/")]
        sites = [site(services=[service()], route=routes), site("other", route=[route(cls.dead["mute"].at, "/mute/")])]
        cls.server = cls.enterClassContext(
            Server(sites=sites, files={"main/x.php": "", "main/big.txt": "big" * 100_000}, limits=cls.limits)
        )

    def assert_served(self, what):
        asked = [("/", "main.test"), ("/big.txt", "main.test"), ("/probe", "main.test"), ("/well/x", "main.test"),
                 ("/", "other.test")]
        for turn in range(5):
            for target, host in asked:
                answer = self.server.get(target, host, timeout=PATIENCE)
                self.assertEqual(answer.status, 200, f"{what}: {host}{target} at turn {turn}")

    def crowd(self, path, body=b""):
        head = f"POST {path} HTTP/1.1\r\nHost: main.test\r\nContent-Length: {1 << 29}\r\n\r\n".encode()
        return Crowd(self.server.port, head + body if body else client.request(path))

    def test_each_of_them(self):
        for name in [*self.dead, "fcgi"]:
            with self.subTest(name), self.crowd(f"/{name}/x") as crowd:
                self.assert_served(name)
                # They wait indeed: nobody was told anything but what a slow server has said.
                time.sleep(0.2)
                self.assertLess(sum(map(client.answered, crowd.all)), CROWD // 10, "they were answered")

    def test_bodies_that_nobody_takes(self):
        """Each sends as much as it can to a server that does not read."""
        for name in ("mute", "mute-unix", "full", "fcgi"):
            with self.subTest(name), self.crowd(f"/{name}/x", b"x" * (1 << 20)):
                self.assert_served(name)

    def test_both_at_once_and_who_comes_after_them(self):
        with contextlib.ExitStack() as crowds:
            for name in self.dead:
                crowds.enter_context(self.crowd(f"/{name}/x"))
            self.assert_served("all")
        # When they have gone, so have their connections.
        self.assert_served("after all")


@rootless_too
class OneOfSeveral(unittest.TestCase):
    """A server that takes connections and answers nothing costs one request; then the others are asked for a while."""

    def test_it_is_left_out(self):
        mute = self.enterContext(Mute(backlog=64))
        # Each answer ends its connection, so that each request needs one to whoever is next.
        well = self.enterContext(Raw(answer=lambda _: response(b"well", "200 OK", "Connection: close")))
        fast = self.enterContext(FastCgi())
        more = {"answer_timeout": "500ms"}
        routes = [
            route([mute.at, well.at], "/http/", **more),
            {"path": "/fcgi/", "fastcgi": [mute.at, fast.at], "script": "/x.php"} | more,
        ]
        with Server(sites=[site(route=routes)], programs=(), files={"main/x.php": ""}) as server:
            for path in ("/http/x", "/fcgi/x"):
                statuses = [server.get(path).status for _ in range(8)]
                self.assertEqual(sorted(statuses), [200] * 7 + [504], path)
            told = f"{mute.at} has not answered in time; for 10 s, the others are asked in its place"
            self.assertTrue(client.until(lambda: server.log().count(told) == 2, 10), server.log())

    def test_one_that_is_alone_is_asked_again(self):
        mute = self.enterContext(Mute(backlog=64))
        routes = [route(mute.at, "/http/", answer_timeout="200ms")]
        with Server(sites=[site(route=routes)], programs=()) as server:
            self.assertEqual([server.get("/http/x").status for _ in range(3)], [504] * 3)
            self.assertEqual(mute.connections, 3)
            self.assertNotIn("in its place", server.log())


if __name__ == "__main__":
    unittest.main()
