"""Connections under TLS whose worker gets a successor: the client hears of the end before it comes, and no request is lost."""

import socket
import unittest

from client import until
from harness import rootless_too
from tls_server import Tls, insecure

COUNT = 8


class Kept:
    """A connection that is kept; one that ends without `close_notify` raises."""

    def __init__(self, port, name="a.test"):
        raw = socket.create_connection(("127.0.0.1", port), 10)
        self.stream = insecure().wrap_socket(raw, server_hostname=name, suppress_ragged_eofs=False)
        self.request = f"GET / HTTP/1.1\r\nHost: {name}\r\n\r\n".encode()

    def ask(self):
        """The head of an answer."""
        self.stream.sendall(self.request)
        got = b""
        while not got.endswith(b"a\n"):
            more = self.stream.recv(65536)
            if not more:
                raise AssertionError(f"no answer: {got}")
            got += more
        return got.partition(b"\r\n\r\n")[0].lower()

    def has_ended(self):
        return self.stream.recv(1) == b""


@rootless_too
class LastRequests(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(Tls())

    def kept(self, count):
        clients = [Kept(self.server.tls) for _ in range(count)]
        for client in clients:
            self.addCleanup(client.stream.close)
            self.assertIn(b" 200 ", client.ask())
        return clients

    def relaunch(self):
        answer = self.server.command("relaunch", "a", "--run-dir", "run")
        self.assertEqual((answer.returncode, answer.stderr), (0, ""))

    def test_who_asks_all_the_time_is_told_and_loses_no_request(self):
        left = self.kept(COUNT)
        self.relaunch()

        def all_have_ended():
            for client in left[:]:
                head = client.ask()
                self.assertIn(b" 200 ", head)
                if b"connection: close" in head:
                    self.assertTrue(client.has_ended())
                    left.remove(client)
            return not left

        self.assertTrue(until(all_have_ended, 10))

    def test_who_asks_nothing_gets_a_clean_end(self):
        clients = self.kept(COUNT)
        self.relaunch()
        for client in clients:
            self.assertTrue(client.has_ended())

    def test_a_request_that_crosses_the_end_is_not_answered_by_a_reset(self):
        """As of HTTP, it may be sent again: nothing of it was heard."""
        [client] = self.kept(1)
        self.relaunch()
        self.assertTrue(client.has_ended())
        client.stream.sendall(client.request)
        self.assertEqual(client.stream.unwrap().recv(1), b"")


if __name__ == "__main__":
    unittest.main()
