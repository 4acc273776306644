"""What a request holds of a site's worker and of a service while the service is silent, or while its client takes nothing.

Bytes of memory of both processes, for each of many requests of a hundred bytes.
"""

import contextlib
import socket
import unittest

import client
from client import until
from harness import Server, rootless_too, service, site

COUNT, PATIENCE = 300, 20
#: Bytes of both processes, for each.
SILENT_MAX, STALLED_MAX = 24 << 10, 48 << 10
LARGE = 4 << 20


@rootless_too
class Held(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        sites = [site(services=[service(requests=1000)]), site("direct", services=[service(takes=True)])]
        cls.server = Server(sites, files={"main/large": b"x" * LARGE}, server={"gates": 1}, limits={"connections": 4000, "drain_timeout": "1s"})
        cls.enterClassContext(cls.server)

    def memory(self, titles):
        total = 0
        for title in titles:
            for process in self.server.processes(title):
                lines = (process.folder / "smaps_rollup").read_text().splitlines()
                total += sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Private"))
        return total

    def open(self, stack, path, host, small=False):
        peer = stack.enter_context(contextlib.closing(socket.socket()))
        if small:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.settimeout(PATIENCE)
        peer.connect(("127.0.0.1", self.server.port))
        peer.sendall(client.request(path, host))
        return peer

    def under_way(self, titles):
        """How many sockets these have."""
        processes = [process for title in titles for process in self.server.processes(title)]
        return sum(what.startswith("socket") for process in processes for what in process.descriptors().values())

    def held(self, path, host, titles, small=False):
        with contextlib.ExitStack() as stack:
            # What is taken once, however many there are.
            for _ in range(3):
                self.assertEqual(self.server.get("/probe/echo", host).status, 200)
            sockets, before = self.under_way(titles), self.memory(titles)
            peers = [self.open(stack, path, host, small) for _ in range(COUNT)]
            self.assertTrue(until(lambda: self.under_way(titles) >= sockets + COUNT, PATIENCE))
            if small:
                for peer in peers:
                    self.assertTrue(peer.recv(1, socket.MSG_PEEK))
            last = [0]

            def settled():
                now = self.memory(titles)
                last.append(now)
                return abs(last[-1] - last[-2]) < 1 << 16

            self.assertTrue(until(settled, PATIENCE))
            return (last[-1] - before) / COUNT

    def test_of_a_silent_service(self):
        for host, titles in (("main.test", ("site main", "bin/probe")), ("direct.test", ("bin/probe",))):
            with self.subTest(host):
                held = self.held("/probe/sleep?ms=600000", host, titles)
                self.assertLess(held, SILENT_MAX)

    def test_of_a_client_that_takes_nothing(self):
        """Of a service, what it has answered is its own: a site's worker holds a piece of it."""
        for path in ("/large", "/probe/long?kib=512"):
            with self.subTest(path):
                held = self.held(path, "main.test", ("site main",), small=True)
                self.assertLess(held, STALLED_MAX)
