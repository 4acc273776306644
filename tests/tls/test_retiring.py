"""Connections under TLS, which no other process can go on with, while their worker is replaced."""

import unittest

from client import until
from harness import rootless_too
from tls_server import Tls


@rootless_too
class Retiring(unittest.TestCase):
    def test_the_first_request_is_waited_for_and_silence_is_not(self):
        request = b"GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n"
        with Tls() as server, server.connect_tls() as fresh, server.connect_tls() as silent:
            old = server.process("site a").pid
            server.relaunch("a")
            fresh.sendall(request)
            self.assertIn(b" 200 OK", b"".join(iter(lambda: fresh.recv(65536), b"")))
            self.assertIn(old, [process.pid for process in server.processes("site a")], "another connection is waited for")
            self.assertEqual(silent.recv(1), b"")
            self.assertTrue(until(lambda: old not in [process.pid for process in server.processes("site a")], 10))


if __name__ == "__main__":
    unittest.main()
