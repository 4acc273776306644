"""Forty clients of one range of addresses that send bodies slowly, or open tunnels and say nothing, to each kind of backend.

Real servers and services behind one site. While the forty hold on, others are answered, by the same backend and with files.
No time is asserted: only that all of the others' requests succeed, and that the first of the forty does as well.
"""

import contextlib
import itertools
import shutil
import unittest

import backend
from backend import Fpm, Raw, folder
from client import Connection, until
from harness import Server, rootless_too, service, site

SLOW, NEAR, OTHER = "127.66.0.%d", "127.66.1.1", "127.200.0.1"
COUNT = 40
#: More than a body that waits in memory.
BEGUN, ANNOUNCED = 70_000, 1_000_000
UPGRADE = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"


def answer(request):
    """What a server says: to an upgrade as well."""
    if "upgrade" in (request.field("connection") or "").lower():
        return (
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
        )
    return backend.response(b"answered")


@rootless_too
class SlowEverywhere(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        place = folder()
        cls.addClassCleanup(shutil.rmtree, place, True)
        cls.app = Raw(answer=answer, backlog=512)
        cls.addClassCleanup(cls.app.close)
        more = {}
        if backend.php_fpm():
            fpm = Fpm(place, children=4)
            cls.addClassCleanup(fpm.close)
            more["php"] = f"unix:{fpm.socket}"
        routes = [
            {"path": "/streamed/", "upstream": cls.app.at, "buffer": False},
            {"path": "/few/", "upstream": cls.app.at, "buffer": False, "requests": 8},
        ]
        sites = [
            site(services=[service()], body_bytes="2MiB", route=routes, **more),
            site("direct", services=[service(takes=True)], body_bytes="2MiB"),
        ]
        files = {"main/page.php": "<?php echo 'answered';"}
        settings = {"server": {"gates": 1}, "conditioning": {"exempt": []}}
        cls.server = cls.enterClassContext(Server(sites, files=files, **settings))

    def open(self, stack, path, host, more, begun):
        peers = []
        for number in range(COUNT):
            peer = stack.enter_context(Connection(self.server.port, source=SLOW % (1 + number), timeout=20))
            peer.send(f"{'POST' if begun else 'GET'} {path} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n".encode())
            if begun:
                peer.send(b"z" * BEGUN)
            peers.append(peer)
        return peers

    def hold(self, path, asked, host="main.test", more=f"Content-Length: {ANNOUNCED}\r\n", begun=True):
        """Others' answers while forty are slow: on kept and on new connections, from far and near."""
        with contextlib.ExitStack() as stack:
            peers = self.open(stack, path, host, more, begun)
            kept = stack.enter_context(self.server.connect(source=NEAR, timeout=20))
            for turn in range(10):
                self.assertEqual(kept.get("/").status, 200, turn)
                for source, target in itertools.product((OTHER, NEAR), (asked, "/")):
                    with self.server.connect(source=source, timeout=20) as fresh:
                        self.assertEqual(fresh.get(target, host).status, 200, (turn, target, source))
            if begun:
                peers[0].send(b"z" * (ANNOUNCED - BEGUN))
                self.assertEqual(peers[0].response().status, 200)

    def test_a_service(self):
        self.hold("/probe/echo", "/probe/echo")

    def test_a_service_that_takes_connections(self):
        self.hold("/probe/echo", "/probe/echo", "direct.test")

    def test_a_server_that_gets_bodies_as_they_come(self):
        self.hold("/streamed/x", "/streamed/get")

    def test_one_with_few_places(self):
        self.hold("/few/x", "/few/get")

    @unittest.skipUnless(backend.php_fpm(), "php-fpm is not installed")
    def test_php(self):
        self.hold("/page.php", "/page.php")

    def test_tunnels(self):
        connections = self.app.connections
        for path in ("/streamed/x", "/few/x"):
            self.hold(path, path.replace("x", "get"), more=UPGRADE, begun=False)
        self.assertTrue(until(lambda: self.app.connections > connections, 10))
