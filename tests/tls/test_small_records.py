"""A ClientHello in records of a few bytes, as some clients and middleboxes cut it (RFC 8446 5.1)."""

import socket
import ssl
import unittest

from harness import rootless_too
from tls_server import Tls, insecure


def cut(hello, size):
    """The handshake message of one record in records of `size` bytes."""
    kind, version, message = hello[:1], hello[1:3], hello[5:]
    assert len(message) == int.from_bytes(hello[3:5], "big"), "one record"
    pieces = [message[at : at + size] for at in range(0, len(message), size)]
    return b"".join(kind + version + len(piece).to_bytes(2, "big") + piece for piece in pieces)


@rootless_too
class SmallRecords(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Tls()
        cls.enterClassContext(cls.server)

    def get(self, size, segment, version):
        context = insecure()
        context.minimum_version = context.maximum_version = version
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(incoming, outgoing, server_hostname="b.test")
        with socket.create_connection(("127.0.0.1", self.server.tls), 10) as peer:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self.assertRaises(ssl.SSLWantReadError):
                tls.do_handshake()
            hello = cut(outgoing.read(), size)
            for at in range(0, len(hello), segment):
                peer.sendall(hello[at : at + segment])
            self.drive(tls.do_handshake, peer, incoming, outgoing)
            tls.write(b"GET / HTTP/1.1\r\nHost: b.test\r\nConnection: close\r\n\r\n")
            answer = b""
            while not answer.endswith(b"\n") or b"\r\n\r\n" not in answer:
                answer += self.drive(lambda: tls.read(65536), peer, incoming, outgoing)
            return answer

    def drive(self, act, peer, incoming, outgoing):
        while True:
            try:
                result = act()
                peer.sendall(outgoing.read())
                return result
            except ssl.SSLWantReadError:
                peer.sendall(outgoing.read())
                data = peer.recv(65536)
                self.assertTrue(data, "the server has closed the connection")
                incoming.write(data)

    def test_however_small_the_records_are(self):
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            for size in (1, 2, 3, 4, 5, 6, 7, 100, 10_000):
                for segment in (3, 1_000, 100_000):
                    with self.subTest(version=version.name, size=size, segment=segment):
                        self.assertIn(b"HTTP/1.1 200 ", self.get(size, segment, version))
