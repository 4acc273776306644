"""Clients that would use up a site's worker: idle, slow to read, slow to send, malformed on their second request.

Run by the tests, over a whole server on 127.0.0.1; clients' ranges are those of the loopback network. All loads are
bounded. What is asserted is that everybody else is served, and that those who are too slow are ended in the end.
"""

import socket
import threading
import time
import unittest
from pathlib import Path

import pytest

from client import Connection, until
from harness import Server, rootless_too

pytestmark = pytest.mark.attack

BIG = 8 << 20
#: How long a worker is patient with a client, and a good deal more.
PATIENCE = 45
SETTINGS = {
    "server": {"gates": 1},
    "limits": {"connections": 64, "idle_timeout": "60s"},
    "conditioning": {"response_min_rate": "64KiB/s", "body_min_rate": "64KiB/s"},
}
ATTACKER, OTHER = "127.66.0.%d", "127.200.0.1"


def open_slow(port, source, data):
    """A connection whose kernel takes no more than a few KiB, on which `data` has been sent."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.settimeout(10)
    sock.bind((source, 0))
    sock.connect(("127.0.0.1", port))
    sock.sendall(data)
    sock.setblocking(False)
    return sock


class Crowd:
    """Connections that are used a little, over and over, in a thread of their own, until each is ended."""

    def __init__(self, sockets, turn, seconds=PATIENCE + 10):
        self.left, self.turn, self.answers = list(sockets), turn, []
        self.all, self.end, self.stopped = list(sockets), time.monotonic() + seconds, False
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self):
        while self.left and not self.stopped and time.monotonic() < self.end:
            self.left = [sock for sock in self.left if self.goes_on(sock)]
            time.sleep(0.5)

    def goes_on(self, sock):
        try:
            data = self.turn(sock)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if data:
            self.answers.append(data)
        return data is None or bool(data)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stopped = True
        self.thread.join(5)
        for sock in self.all:
            sock.close()


def sip(sock):
    """Reads a little: a few hundred bytes a second."""
    return sock.recv(100)


def drip(sock):
    """Sends a byte, and looks for an answer."""
    sock.send(b"x")
    return sock.recv(1000)


@rootless_too
class SiteUnderAttack(unittest.TestCase):
    def setUp(self):
        self.server = self.enterContext(Server(files={"main/big.bin": b"x" * BIG}, **SETTINGS))

    def assert_served(self, target="/", times=20):
        """Others get their answers, on old connections and on new ones."""
        with self.server.connect(source=OTHER) as kept:
            for turn in range(times):
                began = time.monotonic()
                self.assertEqual(kept.get(target).status, 200, turn)
                with self.server.connect(source=OTHER) as fresh:
                    self.assertEqual(fresh.get(target).status, 200, turn)
                self.assertLess(time.monotonic() - began, 2, turn)

    def attacker(self, turn):
        """A connection that the site's worker has: its first request has been answered."""
        connection = Connection(self.server.port, source=ATTACKER % (1 + turn % 4))
        self.assertEqual(connection.get("/").status, 200, turn)
        return connection

    def test_idle_connections(self):
        with self.server.connect(source=OTHER) as first:
            self.assertEqual(first.get("/").status, 200)
            flood = []
            try:
                for turn in range(300):
                    flood.append(self.attacker(turn))
                self.assert_served()
                # The one that was there before them is in a light range.
                self.assertEqual(first.get("/").status, 200)
                self.assertTrue(flood[0].is_closed(1))
            finally:
                for connection in flood:
                    connection.close()

    def test_incomplete_second_heads(self):
        flood = []
        try:
            for turn in range(150):
                flood.append(self.attacker(turn))
                flood[-1].send(b"GET / HT")
            self.assert_served()
        finally:
            for connection in flood:
                connection.close()

    @pytest.mark.slow
    def test_slow_readers_and_slow_bodies(self):
        read = b"GET /big.bin HTTP/1.1\r\nHost: main.test\r\n\r\n"
        send = b"POST /probe/echo HTTP/1.1\r\nHost: main.test\r\nContent-Length: 100000\r\n\r\n"
        readers = [open_slow(self.server.port, ATTACKER % 1, read) for _ in range(20)]
        senders = [open_slow(self.server.port, ATTACKER % 2, send) for _ in range(20)]
        with Crowd(readers, sip) as reading, Crowd(senders, drip) as sending:
            self.assert_served()
            self.assertTrue(until(lambda: not sending.left, PATIENCE), f"{len(sending.left)} bodies go on")
            # What the kernel holds for them comes first, at a few hundred bytes a second; the worker has let go.
            self.assertTrue(until(lambda: self.held() <= 2, PATIENCE), f"{self.held()} connections are held")
            self.assert_served()
        self.assertEqual({answer.split()[1] for answer in sending.answers}, {b"408"})
        self.assertEqual(len(sending.answers), 20)

    def held(self):
        """How many connections the site's worker has."""
        links = self.server.process("site main").descriptors().values()
        return sum(self.is_client(link) for link in links)

    def is_client(self, link):
        number = link.removeprefix("socket:[").removesuffix("]")
        lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
        return any(line.split()[9] == number for line in lines)

    def test_second_heads_are_checked(self):
        for target in ("/probe/../../x", "/probe/a%", "/probe/%00", "/" * 40):
            with self.server.connect() as connection:
                self.assertEqual(connection.get("/").status, 200)
                self.assertEqual(connection.get(target).status, 400, target)
                self.assertTrue(connection.is_closed(), target)


if __name__ == "__main__":
    unittest.main()
