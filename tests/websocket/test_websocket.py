"""WebSocket to a server behind a site and to a service, with and without TLS, with a real client."""

import contextlib
import threading
import unittest

import pytest

from client import until
from harness import rootless_too
from tls_server import Tls, insecure
from websocket_client import Client


@rootless_too
class WebSocket(unittest.TestCase):
    """Against the client and the server of `websockets`, where that is installed."""

    def setUp(self):
        try:
            from websockets.exceptions import ConnectionClosed
            from websockets.sync.server import serve
        except ImportError:
            self.skipTest("python's websockets is not installed")
        self.closed = ConnectionClosed

        def echo(socket):
            with contextlib.suppress(ConnectionClosed):
                for message in socket:
                    socket.send(message)

        library = self.enterContext(serve(echo, "127.0.0.1", 0, max_size=None))
        threading.Thread(target=library.serve_forever, daemon=True).start()
        self.addCleanup(library.shutdown)
        at = "127.0.0.1:%d" % library.socket.getsockname()[1]
        service = '[[site.service]]\nname = "socket"\npath = "/service"\ncommand = ["bin/socket"]\n'
        route = f'[[site.route]]\npath = "/upstream"\nupstream = "{at}"\n'
        self.server = Tls(more=service + route, limits='drain_timeout = "5s"')
        self.server.copy_program("socket")
        text = self.server.config.read_text()
        self.server.config.write_text(text.replace("redirect_to_https = true", ""))
        self.enterContext(self.server)

    def open(self, path, tls):
        port, scheme = (self.server.tls, "wss") if tls else (self.server.port, "ws")
        more = {"ssl": insecure(), "server_hostname": "b.test"} if tls else {}
        return Client(f"{scheme}://b.test:{port}{path}", port, **more)

    def test_both_ways(self):
        for path in ("/upstream", "/service"):
            for tls in (True, False):
                with self.subTest(path=path, tls=tls), self.open(path, tls) as both:
                    for message in ("hello", "x" * 100_000, bytes(range(256)) * 20_000):
                        both.send(message)
                        self.assertEqual(both.recv(timeout=20), message)
                    both.ping()
                    both.close(4001, "enough")
                    self.assertEqual(both.closed_with, (4001, 4001), "said by the other side")

    @pytest.mark.slow
    def test_none_keeps_a_worker_for_ever(self):
        """`relaunch` waits for nobody, and the old worker is ended after `drain_timeout`, whoever still talks to it."""
        for path, whom, title in (
            ("/upstream", "b", "site b"), ("/service", "b", "site b"), ("/service", "b/socket", "bin/socket"),
        ):
            with self.subTest(path=path, whom=whom):
                old = self.server.process(title)
                both = self.open(path, True)
                both.send("before")
                self.assertEqual(both.recv(timeout=10), "before")
                self.server.relaunch(whom)
                # Both are there now, in whatever order their numbers are.
                self.assertTrue(until(lambda: set(self.server.processes(title)) - {old}, 10), "it has a successor")
                # It goes on for as long as the old worker lasts; new ones begin with the new one.
                both.send("still")
                self.assertEqual(both.recv(timeout=10), "still")
                with self.open(path, True) as other:
                    other.send("after")
                    self.assertEqual(other.recv(timeout=10), "after")
                self.assertTrue(until(lambda: old not in self.server.processes(title), 30), "it is ended")
                with self.assertRaises(self.closed):
                    both.recv(timeout=10)
                self.assertIsNotNone(both.closed_with[0], "the client sees the end")
                both.close()
