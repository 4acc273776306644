"""One route's server hangs, and twice as many clients ask it as its site may have connections: the site's files answer.

A real server that accepts and never answers (by HTTP and by FastCGI), and a service that sleeps; by HTTP/1.1 and HTTP/2,
in plaintext and under TLS.
"""

import contextlib
import socket
import unittest

import pytest

import client
from backend import Mute, Raw
from client import answered, until
from conditioning_status import told
from frames import END_HEADERS, END_STREAM, HEADERS, Http2, block, frame
from harness import rootless_too
from tls_server import insecure
from two_ports import PATIENCE, PlainHttp2, Two, lines

CONNECTIONS = 64
CROWD = 2 * CONNECTIONS

ROUTES = """
  [[site.route]]
  path = "/http/"
  upstream = "{mute}"

  [[site.route]]
  path = "/fcgi/"
  fastcgi = "{mute}"
  script = "/x.php"

  [[site.route]]
  path = "/well/"
  upstream = "{well}"
"""

#: Routes that may have three requests, one for each test.
FEW = "".join(
    f'\n  [[site.route]]\n  path = "/{name}/"\n  upstream = "{{mute}}"\n  requests = 3\n' for name in ("few", "told", "streams")
)

HANGS = {"upstream": "/http/x", "FastCGI": "/fcgi/x", "service": "/probe/sleep?ms=600000"}


class Shared(unittest.TestCase):
    """A server in front of one that never answers."""

    @classmethod
    def setUpClass(cls):
        cls.mute = cls.enterClassContext(Mute(backlog=512))
        cls.well = cls.enterClassContext(Raw(backlog=512))
        routes = (ROUTES + FEW).format(mute=cls.mute.at, well=cls.well.at)
        cls.server = cls.enterClassContext(Two(f"connections = {CONNECTIONS}", routes))


@rootless_too
class Crowds(Shared):
    def ask(self, kind, path):
        """A connection on which one request is under way."""
        if kind.startswith("HTTP/2"):
            peer = PlainHttp2(self.server.port) if kind == "HTTP/2" else Http2(insecure(), self.server.tls)
            peer.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, block(lines(path))))
            return peer.socket
        if kind == "HTTP/1.1":
            peer = socket.create_connection(("127.0.0.1", self.server.port), timeout=PATIENCE)
        else:
            raw = socket.create_connection(("127.0.0.1", self.server.tls), timeout=PATIENCE)
            peer = insecure().wrap_socket(raw, server_hostname="main.test")
        peer.sendall(client.request(path))
        return peer

    def crowd(self, kind, path, stack):
        """As many as ask; one whom the gate turns away because so many come at once is one of them as well."""
        peers = []
        for _ in range(CROWD):
            with contextlib.suppress(ConnectionError):
                peers.append(stack.enter_context(contextlib.closing(self.ask(kind, path))))
        return peers

    def assert_served(self, what):
        # So many at once fill the gate's queue, until the idle ones have gone: those whom an answer was denied.
        self.assertTrue(until(lambda: self.server.status("/", timeout=PATIENCE) == 200, PATIENCE), what)
        for target, body in (("/", b"the files"), ("/well/x", b"hello from behind")):
            for _ in range(5):
                answer = self.server.get(target, timeout=PATIENCE)
                self.assertEqual((answer.status, answer.body), (200, body), what)
        with Http2(insecure(), self.server.tls) as peer:
            peer.request(1, lines("/", scheme=b"https"))
            self.assertEqual(peer.outcome(1, PATIENCE), 200, what)

    @pytest.mark.alone
    @pytest.mark.slow
    def test_files_answer_all_the_while(self):
        for name, path in HANGS.items():
            for kind in ("HTTP/1.1", "HTTP/1.1 TLS", "HTTP/2", "HTTP/2 TLS"):
                with self.subTest(name, kind=kind), contextlib.ExitStack() as stack:
                    self.crowd(kind, path, stack)
                    self.assert_served(f"{name}, {kind}")


@rootless_too
class Share(Shared):
    def refused(self):
        return told(self.server)["site main"]["shed"]["unavailable"]

    def waiting(self):
        return told(self.server)["site main"]["shed"]["waiting_now"]

    def test_the_others_wait_for_a_place(self):
        with contextlib.ExitStack() as stack:
            peers = [stack.enter_context(self.server.connect(timeout=PATIENCE)) for _ in range(3)]
            for peer in peers:
                peer.send(client.request("/few/x"))
            # Who goes leaves the queue; who stays has the place of the one that goes.
            gone = stack.enter_context(self.server.connect(timeout=PATIENCE))
            gone.send(client.request("/few/x"))
            self.assertTrue(until(lambda: self.waiting() == 1, PATIENCE))
            gone.close()
            self.assertTrue(until(lambda: self.waiting() == 0, PATIENCE))
            last = stack.enter_context(self.server.connect(timeout=PATIENCE))
            last.send(client.request("/few/x"))
            self.assertTrue(until(lambda: self.waiting() == 1, PATIENCE))
            peers[0].close()
            self.assertTrue(until(lambda: self.waiting() == 0, PATIENCE))
            last.socket.setblocking(False)
            self.assertFalse(answered(last.socket), "it has a place, and no answer")

    def test_who_waits_in_vain_is_told(self):
        before = self.refused()
        with contextlib.ExitStack() as stack:
            for _ in range(3):
                stack.enter_context(self.server.connect()).send(client.request("/told/x"))
            with self.server.connect(timeout=2 * PATIENCE) as peer:
                answer = peer.get("/told/x")
                self.assertEqual((answer.status, answer.headers["retry-after"]), (503, "5"))
        self.assertEqual(self.refused() - before, 1)
        line = "503 for /told/x: 3 requests are with whoever answers it"
        self.assertTrue(until(lambda: line in self.server.log(), PATIENCE), self.server.log())

    def test_streams_of_one_connection(self):
        """They count one by one, and the connection goes on."""
        with Http2(insecure(), self.server.tls) as peer:
            for stream in range(1, 11, 2):
                peer.send(frame(HEADERS, END_HEADERS | END_STREAM, stream, block(lines("/streams/x", scheme=b"https"))))
            peer.request(11, lines("/", scheme=b"https"))
            self.assertEqual(peer.outcome(11, PATIENCE), 200)
            self.assertEqual([peer.outcome(7, 2 * PATIENCE), peer.outcome(9, PATIENCE)], [503, 503])
            self.assertEqual(peer.statuses.keys(), {7, 9, 11})


if __name__ == "__main__":
    unittest.main()
