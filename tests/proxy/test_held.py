"""What a request holds of a site's worker and of a service while the service is silent, or while its client takes nothing.

Bytes of memory of both processes, for each of many requests of a hundred bytes.
"""

import contextlib
import socket
import unittest

import client
from client import until
from harness import Server, rootless_too, service, site

#: Connections between a worker and a service that are kept, and of which a request may take one.
COUNT, PATIENCE, KEPT = 300, 20, 3
#: Bytes of both processes, for each.
SILENT_MAX, STALLED_MAX = 36 << 10, 48 << 10
LARGE = 4 << 20


@rootless_too
class Held(unittest.TestCase):
    def serve(self):
        """A server of which nothing was asked: what was held before would be used again, and not counted."""
        sites = [site(services=[service(requests=1000)]), site("direct", services=[service(takes=True)])]
        return Server(sites, files={"main/large": b"x" * LARGE}, server={"gates": 1}, limits={"connections": 4000, "drain_timeout": "1s"})

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
            self.server = stack.enter_context(self.serve())
            # What is taken once, however many there are.
            for _ in range(3):
                self.assertEqual(self.server.get("/probe/echo", host).status, 200)
            self.settled(lambda: self.under_way(titles), 0)
            # The last one is who has a request when everybody has.
            there, before = self.under_way(titles[-1:]), self.memory(titles)
            peers = [self.open(stack, path, host, small) for _ in range(COUNT)]
            self.assertTrue(until(lambda: self.under_way(titles[-1:]) >= there + COUNT - KEPT, PATIENCE))
            if small:
                for peer in peers:
                    self.assertTrue(peer.recv(1, socket.MSG_PEEK))
            return (self.settled(lambda: self.memory(titles), 1 << 16) - before) / COUNT

    def settled(self, figure, most):
        """A figure that has not changed by more than this for a while."""
        last = [figure()]

        def is_settled():
            last.append(figure())
            return len(last) > 5 and max(last[-5:]) - min(last[-5:]) <= most

        self.assertTrue(until(is_settled, PATIENCE, pause=0.1))
        return last[-1]

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
