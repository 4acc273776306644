"""A process of a service whose launcher, logger, site and data proxy are the test, with the messages of the SDK for Python."""

import array
import contextlib
import os
import socket
import subprocess
import sys

from harness import TOP
from topology import SO_PASSRIGHTS

sys.path.insert(0, str(TOP / "python"))

from bulkhead_service import _messages  # noqa: E402

#: Messages as the crate `wire` has written them.
SAMPLES = [line.split(" ") for line in (TOP / "tests/python/wire_samples.txt").read_text().splitlines()]
MESSAGES = [(getattr(_messages, name), bytes.fromhex(text)) for name, text in SAMPLES if name not in ("LOG", "RESULTS")]
OTHERS = {name: bytes.fromhex(text) for name, text in SAMPLES if name in ("LOG", "RESULTS")}
LIMITS = next(message for edge, message in MESSAGES if edge is _messages.LAUNCHER_TO_SERVICE)


class Told:
    """See the file's head; `words` start the program."""

    def __init__(self, words, environment):
        self.control, control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.log, log = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

        def place():
            # In two steps: either may have the number of the other.
            high = [os.dup2(one.fileno(), number) for one, number in ((control, 103), (log, 104))]
            for number, wanted in zip(high, (3, 4)):
                os.dup2(number, wanted)

        self.process = subprocess.Popen(
            words, env=environment, preexec_fn=place, pass_fds=(3, 4), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )
        control.close()
        log.close()
        self.sources = []
        for one in (self.control, self.log):
            one.settimeout(3)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()
        for one in (self.control, self.log, *self.sources):
            one.close()

    def tell(self, kind, descriptor=None, **values):
        send(self.control, _messages.LAUNCHER_TO_SERVICE.encode(kind, **values), descriptor)

    def begin(self, connections=512, data=()):
        """Tells it its limits and its data sources, and attaches a site; the site's end of that channel."""
        limits = vars(_messages.LAUNCHER_TO_SERVICE.decode(LIMITS))
        limits["limits"].connections = connections
        self.tell(**limits)
        for name in data:
            self.tell("DataSource", name=name)
        source = self.attach()
        self.tell("Begin")
        self.assert_said("Ready")
        return source

    def attach(self):
        source, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.tell("Attach", its, source="Site")
        its.close()
        source.settimeout(3)
        self.sources.append(source)
        return source

    def data_proxy(self, name, token):
        """Gives it another process of a data proxy; the proxy's end of that channel."""
        proxy, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        proxy.settimeout(3)
        self.tell("DataProxy", its, name=name, token=token)
        its.close()
        self.sources.append(proxy)
        return proxy

    def assert_said(self, kind):
        said = _messages.CHILD_TO_LAUNCHER.decode(self.control.recv(1000))
        assert said.kind == kind, said
        return said

    def ended(self):
        """Its exit status, and what it has printed."""
        _, said = self.process.communicate(timeout=10)
        return self.process.returncode, said


def send(channel, message, *descriptors):
    numbers = array.array("i", [one.fileno() for one in descriptors if one is not None])
    channel.sendmsg([message], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, numbers)] if numbers else [])


def said(source):
    return _messages.FROM_WORKER.decode(source.recv(20_000))


def connect(source, number=1, preread=b"", descriptors=1):
    """Sends a connection; our end of it."""
    ours, its = socket.socketpair()
    with contextlib.suppress(OSError):
        # As a site's worker does it; older kernels have no such option.
        its.setsockopt(socket.SOL_SOCKET, SO_PASSRIGHTS, 0)
    ours.settimeout(3)
    bundle = _messages.TO_WORKER.decode(next(message for edge, message in MESSAGES if edge is _messages.TO_WORKER)).bundle
    bundle.id, bundle.preread = number, preread
    send(source, _messages.TO_WORKER.encode("Connection", bundle=bundle), *[its] * descriptors)
    its.close()
    return ours


def answer(stream):
    """All of it, with the head apart."""
    whole = b""
    while part := stream.recv(65536):
        whole += part
    head, _, body = whole.partition(b"\r\n\r\n")
    return head, body


def chunked(path, body):
    """A request whose body is sent in chunks."""
    return b"POST %b HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n" % path.encode() + body


def no_requests(path):
    """What looks like a request, and is none; those with a body are for `path`, which gives it back."""
    bodies = [b"zz\r\nabc\r\n0\r\n\r\n", b"3;a=b\r\nabc\r\n0\r\n\r\n", b"3\r\nabcd\r\n0\r\n\r\n", b"-3\r\nabc\r\n0\r\n\r\n", b"0x3\r\nabc\r\n0\r\n\r\n",
              b"1" * 5000]
    return [
        b"GET / HTTP/1.0\r\n\r\n", b"GET  / HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\n a: b\r\n\r\n", b"GET / HTTP/1.1\r\na : b\r\n\r\n",
        b"GET / HTTP/1.1\r\na: b\x00\r\n\r\n", b"GET / HTTP/1.1\nhost: a\n\r\n\r\n", b"\r\n\r\n", b"GET / HTTP/1.1\r\na: b\rc\r\n\r\n",
        b"GET / HTTP/1.1\r\ncontent-length: +1\r\n\r\na", b"GET / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 1\r\n\r\na",
        b"GET / HTTP/1.1\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", b"GET / HTTP/1.1\r\ncontent-length: 01\r\n\r\na",
        b"GET / HTTP/1.1\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n", b"GET / HTTP/1.1\r\nx: " + b"a" * 70_000,
        *(chunked(path, body) for body in bodies),
    ]


def two_requests(path):
    """For `path`, which gives the bodies back; one after the other."""
    return b"POST %b HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n02\r\nde\r\n0\r\nx: y\r\n\r\n" \
           b"POST %b HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\nfghi" % (path.encode(), path.encode())


def assert_served_in_every_two_parts(case, stream, text):
    """Sends these `two_requests` in two parts, for each place where they can be cut."""
    for cut in range(1, len(text)):
        for part in (text[:cut], text[cut:]):
            stream.sendall(part)
        got = b""
        while got.count(b"HTTP/1.1 200") < 2 or not got.endswith(b"fghi"):
            got += stream.recv(65536)
        case.assertEqual(got.count(b"\r\n\r\nabcde"), 1, cut)
