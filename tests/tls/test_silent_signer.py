"""A signer that is stopped: whoever needs no signature does not notice, and handshakes wait until there is one."""

import signal
import socket
import ssl
import threading
import time
import unittest

from client import until
from harness import rootless_too, wait_for_time
from tls_server import Tls, insecure

#: How long the signer is stopped, in seconds, and what nobody else may wait: a worker stands still for 25 ms at most.
STOPPED, SLOW = 2.5, 0.4
REQUEST = b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"


class Handshakes:
    """Clients that begin a full handshake each, and what becomes of them."""

    def __init__(self, server, count):
        self.server, self.subjects, self.failed = server, [], []
        self.threads = [threading.Thread(target=self._shake, daemon=True) for _ in range(count)]

    def _shake(self):
        try:
            with self.server.connect_tls("a.test") as stream:
                stream.sendall(REQUEST)
                self.subjects.append(stream.recv(65536)[:12])
        except OSError as error:
            self.failed.append(error)

    def begin(self, at):
        self.threads[at].start()

    def join(self):
        for thread in self.threads:
            thread.join(20)


def resumed(server, context, session):
    """A connection that takes a session up; how long its handshake and a request took."""
    begun = time.monotonic()
    with socket.create_connection(("127.0.0.1", server.tls), 10) as raw:
        with context.wrap_socket(raw, server_hostname="a.test", session=session) as stream:
            stream.sendall(REQUEST)
            assert stream.recv(65536).startswith(b"HTTP/1.1 200 ")
            return stream.session_reused, time.monotonic() - begun


@rootless_too
class Silent(unittest.TestCase):
    def session(self, server, version):
        """A session of TLS 1.2 or 1.3, and what it is taken up with."""
        context = insecure()
        context.minimum_version = context.maximum_version = version
        with server.connect_tls("a.test", context=context) as stream:
            stream.sendall(REQUEST)
            stream.recv(65536)
            return context, stream.session

    def test_others_go_on_and_handshakes_end_when_it_goes_on(self):
        with Tls() as server, server.connect_tls("a.test") as kept:
            sessions = [self.session(server, version) for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)]
            signer, full = server.process("signer"), Handshakes(server, 20)
            signer.signal(signal.SIGSTOP)
            took = []
            end = time.monotonic() + STOPPED
            for at in range(len(full.threads)):
                full.begin(at)
                begun = time.monotonic()
                kept.sendall(REQUEST)
                self.assertTrue(kept.recv(65536).startswith(b"HTTP/1.1 200 "))
                took.append(time.monotonic() - begun)
                for context, session in sessions:
                    is_resumed, time_of_it = resumed(server, context, session)
                    self.assertTrue(is_resumed)
                    took.append(time_of_it)
                wait_for_time(max(0.0, (end - time.monotonic()) / (len(full.threads) - at)))
            self.assertLess(max(took), SLOW, took)
            self.assertEqual((full.subjects, full.failed), ([], []), "there is no signature yet")
            signer.signal(signal.SIGCONT)
            full.join()
            self.assertEqual((full.failed, set(full.subjects), len(full.subjects)), ([], {b"HTTP/1.1 200"}, 20))

    def test_handshakes_end_with_the_signer_that_takes_its_place(self):
        with Tls() as server:
            self.session(server, ssl.TLSVersion.TLSv1_3)
            signer, full = server.process("signer"), Handshakes(server, 5)
            signer.signal(signal.SIGSTOP)
            for at in range(len(full.threads)):
                full.begin(at)
            wait_for_time(0.3)
            signer.kill()
            self.assertTrue(until(lambda: len(full.subjects) == 5, 10), full.failed)
            full.join()


if __name__ == "__main__":
    unittest.main()
