"""A client goes in the middle of a body that nobody takes, or while its answer is waited for: whoever was to answer sees
its connection end, and the client's place is free, long before anybody's deadline.

By HTTP, by FastCGI and by a service; over HTTP/1.1 and HTTP/2, in plaintext and under TLS; by an end, a reset, and (of
HTTP/2) a reset of the stream alone.
"""

import contextlib
import json
import select
import shutil
import socket
import ssl
import struct
import unittest
from pathlib import Path

import pytest

import client
from backend import Mute, folder
from client import until
from frames import ACK, DATA, END_HEADERS, END_STREAM, HEADERS, RST_STREAM, SETTINGS, WINDOW_UPDATE, Http2, block, frame
from harness import rootless_too
from tls_server import insecure
from two_ports import PlainHttp2, Two, lines

#: LIMIT: seconds in which it must be noticed; the deadlines that would notice it otherwise are 10 min and 1 min.
SOON = 20
BODY_BYTES = 1 << 29
CANCEL = struct.pack(">I", 8)

LIMITS = """
body_bytes = "1GiB"
idle_timeout = "10m"
"""

ROUTES = """
  [[site.route]]
  path = "/http/"
  upstream = "{mute}"
  buffer = false
  answer_timeout = "10m"

  [[site.route]]
  path = "/fcgi/"
  fastcgi = "{mute}"
  script = "/x.php"
  buffer = false
  answer_timeout = "10m"
"""

PATHS = {"http": "/http/x", "fcgi": "/fcgi/x", "service": "/probe/sleep?ms=600000"}


def unread(peer):
    """How many bytes of a connection wait at the other end, on this machine; None if the kernel's list lacks it.

    While the list changes, the kernel leaves lines out of it. Such a line is not a connection that has been read: more
    bytes would be sent until they no longer fit, and an end behind those never arrives.
    """
    at = lambda address: f"{int.from_bytes(socket.inet_aton(address[0]), 'little'):08X}:{address[1]:04X}"
    ends = [at(peer.getpeername()), at(peer.getsockname())]
    for words in map(str.split, Path("/proc/net/tcp").read_text().splitlines()):
        if words[1:3] == ends:
            return int(words[4].split(":")[1], 16)
    return None


class Http1Client:
    """A request, with as much of its body as anybody takes."""

    def __init__(self, server, tls):
        self.socket = socket.create_connection(("127.0.0.1", server.tls if tls else server.port), timeout=SOON)
        if tls:
            self.socket = insecure().wrap_socket(self.socket, server_hostname="main.test")

    def ask(self, path, body):
        self.socket.sendall(client.request(path, method="POST", headers=[f"Content-Length: {BODY_BYTES if body else 0}"]))
        # An end behind what does not fit into the server's socket would not leave this machine's side.
        while body and until(lambda: unread(self.socket) == 0, 0.5):
            self.socket.sendall(b"x" * 8192)


class Http2Client:
    def __init__(self, server, tls):
        self.peer = Http2(insecure(), server.tls) if tls else PlainHttp2(server.port)
        self.socket = self.peer.socket

    def ask(self, path, body):
        head = lines(path, method=b"POST") + [(b"content-length", str(BODY_BYTES if body else 0).encode())]
        self.peer.send(frame(HEADERS, END_HEADERS | (0 if body else END_STREAM), 1, block(head)))
        if body:
            self.fill()

    def fill(self):
        """Sends as much of the body as the server's windows allow, until they stay closed."""
        windows, unread = {0: 65535, 1: 65535}, b""
        self.socket.settimeout(0.5)
        while True:
            while (size := min(16384, *windows.values())) > 0:
                self.socket.sendall(frame(DATA, 0, 1, b"x" * size))
                windows = {stream: window - size for stream, window in windows.items()}
            try:
                unread += self.socket.recv(65536)
            except (TimeoutError, ssl.SSLWantReadError):
                return
            while len(unread) >= 9 and len(unread) >= (size := 9 + int.from_bytes(unread[:3], "big")):
                kind, flags, stream = unread[3], unread[4], int.from_bytes(unread[5:9], "big")
                if kind == WINDOW_UPDATE:
                    windows[stream] += int.from_bytes(unread[9:13], "big")
                elif kind == SETTINGS and not flags:
                    said = dict(struct.iter_unpack(">HI", unread[9:size]))
                    windows[1] += said.get(4, 65535) - 65535
                    self.socket.sendall(frame(SETTINGS, ACK, 0))
                unread = unread[size:]


def end(peer):
    peer.socket.close()


def reset(peer):
    peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.socket.close()


def reset_stream(peer):
    """The connection stays."""
    peer.socket.settimeout(SOON)
    peer.socket.sendall(frame(RST_STREAM, 0, 1, CANCEL))


WAYS = {
    "HTTP/1.1": (Http1Client, (end, reset)),
    "HTTP/2": (Http2Client, (end, reset, reset_stream)),
}


class Gone(Two):
    def __init__(self, mute):
        super().__init__(LIMITS, ROUTES.format(mute=mute))

    def connections(self, name):
        """How many the process holds now, as `bulkhead status` has it."""
        told = self.command("status", "--config", self.config, "--json")
        processes = {process["name"]: process for process in json.loads(told.stdout)["processes"]}
        return processes[name]["connections_now"]


@rootless_too
class Leaving(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.place = folder()
        cls.addClassCleanup(shutil.rmtree, cls.place, True)
        cls.mute = cls.enterClassContext(Mute(path=cls.place / "mute.sock"))
        cls.server = cls.enterClassContext(Gone(cls.mute.at))

    def asked(self, party):
        """The connections on which whoever is to answer was asked, as far as they are there."""
        return self.sockets("bin/probe") if party == "service" else set(range(len(self.mute.held)))

    def has_ended(self, party, sockets, stay=0):
        """Whether the site's worker has ended its connection, one of these if not so many: a service that sleeps does not look."""
        if party == "service":
            return len(sockets) <= stay
        poll = select.poll()
        poll.register(self.mute.held[-1], select.POLLRDHUP)
        return bool(poll.poll(0))

    def sockets(self, title="site main"):
        """The sockets of a process. What it is told of its counters may be late; the kernel's list of its descriptors is not."""
        process = self.server.process(title)
        return {what for what in process.descriptors().values() if what.startswith("socket:")}

    def leave(self, body):
        for party, path in PATHS.items():
            for kind, (make, ways) in WAYS.items():
                for tls in (False, True):
                    for way in ways:
                        with self.subTest(party, kind=kind, tls=tls, way=way.__name__):
                            self.leave_once(party, path, lambda: make(self.server, tls), way, body)
            # One look suffices for all of these: a place that is not free stays so. A worker's counters are a second old.
            self.assertTrue(until(self.all_places_are_free, SOON, pause=0.2), f"{party}: a place is not free")

    def leave_once(self, party, path, make, way, body):
        asked, before = self.asked(party), self.sockets()
        # Those that have come with this request. Others may still be on their way out.
        more = lambda: self.sockets() - before
        peer = make()
        with contextlib.closing(peer.socket):
            peer.ask(path, body)
            begun = lambda: self.asked(party) - asked and not self.has_ended(party, more())
            self.assertTrue(until(begun, SOON), "nobody is asked, or it ends while the client is there")
            way(peer)
            # The client's own.
            stay = int(way is reset_stream)
            self.assertTrue(until(lambda: self.has_ended(party, more(), stay), SOON), "who was to answer is not told")
        self.assertTrue(until(lambda: not more(), SOON), "a connection is kept")

    def all_places_are_free(self):
        return self.server.connections("main") == 0

    @pytest.mark.slow
    def test_in_the_middle_of_a_body_that_nobody_takes(self):
        self.leave(body=True)

    def test_while_the_answer_is_waited_for(self):
        self.leave(body=False)


if __name__ == "__main__":
    unittest.main()
