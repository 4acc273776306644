"""One descriptor of each kind that Linux has, as far as root can make it here: what a process that is owned may send some day.

Each is made anew for each message, so that whoever gets it closes the last; `Made` keeps what has to live as long as that takes.
"""

import contextlib
import ctypes
import fcntl
import functools
import os
import pty
import select
import socket
import struct
import tempfile
import threading

import fuse_mount

LIBC = ctypes.CDLL(None, use_errno=True)
LINGER = struct.pack("ii", 1, 100_000)
#: The same numbers on every processor.
_IO_URING_SETUP, _FSOPEN, _OPEN_TREE, _MEMFD_SECRET, _LANDLOCK = 425, 430, 428, 447, 444
_OTHERS = {
    "x86_64": {"perf": 298, "bpf": 321, "userfaultfd": 323, "fanotify": 300, "inotify": 294, "timerfd": 283, "signalfd": 289, "mq": 240},
    "aarch64": {"perf": 241, "bpf": 280, "userfaultfd": 282, "fanotify": 262, "inotify": 26, "timerfd": 85, "signalfd": 74, "mq": 180},
}[os.uname().machine]
#: Of memory and files: to free them takes its time.
_LARGE = 16 << 20
#: Seconds after which a close is one that waits.
ALONE = 0.2
#: Each close of it waits, not only the last.
IN_FUSE = "file in FUSE"


def _call(number, *arguments):
    result = LIBC.syscall(number, *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), f"system call {number}")
    return result


def _socket(family, kind, protocol=0):
    return socket.socket(family, kind, protocol).detach()


def _fill(made):
    """Until there is no room for more in what it sends."""
    made.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            made.send(bytes(1 << 20))
    return made


class Made:
    """What was made, and what must live until it is closed by whoever got it. Use it with `with`."""

    def __init__(self):
        self.held, self.left, self.closing = contextlib.ExitStack(), [], []

    def __enter__(self):
        self.nobody = self.held.enter_context(socket.create_server(("127.0.0.1", 0), backlog=4096))
        return self

    def __exit__(self, *_):
        # Whoever still waits for bytes to be sent is reset by this.
        self.held.close()
        for descriptor in self.left:
            with contextlib.suppress(OSError):
                os.close(descriptor)
        for thread in self.closing:
            thread.join()

    def make(self, kind):
        """A new descriptor of a kind; raises OSError where there is none."""
        return KINDS[kind](self)

    def let_go(self, descriptor, kind, others):
        """Closes it, if others have it and closing it is theirs to wait for; else when nobody waits any more."""
        if not others or kind == IN_FUSE:
            return self.left.append(descriptor)
        # Where the others have died meanwhile it is ours to wait for after all, until what it leads to is closed.
        thread = threading.Thread(target=os.close, args=(descriptor,))
        thread.start()
        thread.join(ALONE)
        if thread.is_alive():
            self.closing.append(thread)

    def keep(self, descriptor):
        self.held.callback(os.close, descriptor)
        return descriptor

    def connected(self):
        made = socket.create_connection(self.nobody.getsockname())
        self.held.enter_context(self.nobody.accept()[0])
        return made

    def full(self):
        made = self.connected()
        return _fill(made)

    def lingering(self):
        made = self.full()
        made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER)
        return made.detach()

    def other(self, server, protocol=None):
        """A connection to another server than that of all others, which does not read, with bytes that wait and linger."""
        server = self.held.enter_context(server)
        server.listen(1)
        made = socket.socket(server.family, server.type, server.proto if protocol is None else protocol)
        made.connect(server.getsockname())
        self.held.enter_context(server.accept()[0])
        _fill(made)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER)
        return made.detach()

    def crowd(self, family, address, count, passed=()):
        """A listener with as many connections as may wait in it, which nobody has accepted; of Unix, with descriptors in each."""
        listener = socket.socket(family)
        listener.bind(address)
        listener.listen(count)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER)
        for _ in range(count):
            peer = self.held.enter_context(socket.socket(family))
            peer.connect(listener.getsockname())
            inner = [self.make(kind) for kind in passed]
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack(f"{len(inner)}i", *inner))] if inner else []
            peer.sendmsg([b"x"], rights)
            for descriptor in inner:
                os.close(descriptor)
        return listener.detach()

    def connecting(self):
        """A connection to a server that takes no more, which lingers."""
        server = self.held.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        while True:
            made = socket.socket()
            made.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                made.connect(server.getsockname())
            if struct.unpack("B", made.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1))[0] == _SYN_SENT and not _is_answered(made):
                made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER)
                return made.detach()
            self.held.enter_context(made)

    def shut(self):
        made = self.full()
        made.shutdown(socket.SHUT_WR)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER)
        return made.detach()

    def pair(self, kind, side=0):
        ends = socket.socketpair(socket.AF_UNIX, kind)
        self.held.enter_context(ends[1 - side])
        return ends[side].detach()

    def nested(self, kind, of):
        """A channel in which descriptors wait that nobody else has."""
        one, other = socket.socketpair(socket.AF_UNIX, kind)
        with one:
            inner = [self.make(of) for _ in range(8)]
            one.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack(f"{len(inner)}i", *inner))])
            for descriptor in inner:
                os.close(descriptor)
        return other.detach()

    def pipe(self, side, flags=0, is_full=False):
        ends = os.pipe2(flags | os.O_NONBLOCK)
        if is_full:
            with contextlib.suppress(BlockingIOError):
                while True:
                    os.write(ends[1], bytes(4096))
        self.keep(ends[1 - side])
        return ends[side]

    def terminal(self, side):
        ends = pty.openpty()
        with contextlib.suppress(BlockingIOError):
            os.set_blocking(ends[1], False)
            while True:
                os.write(ends[1], b"never read\n" * 100)
        self.keep(ends[1 - side])
        return ends[side]

    def unnamed(self):
        with tempfile.TemporaryFile() as file:
            file.write(bytes(_LARGE))
            return os.dup(file.fileno())

    def in_fuse(self):
        """A file of a file system whose server never answers `flush`."""
        return self.held.enter_context(fuse_mount.Silent()).file()


def _is_answered(made):
    """Whether a connection comes about, on one machine at once."""
    poll = select.poll()
    poll.register(made, select.POLLOUT)
    return bool(poll.poll(20))


def _memory(_, flags=0, seals=0):
    memory = os.memfd_create("sent", flags | os.MFD_CLOEXEC)
    os.ftruncate(memory, _LARGE)
    for at in range(0, _LARGE, 1 << 20):
        os.pwrite(memory, b"x" * (1 << 20), at)
    if seals:
        fcntl.fcntl(memory, fcntl.F_ADD_SEALS, seals)
    return memory


def _epolls(depth):
    inner = select.epoll()
    for _ in range(depth):
        outer = select.epoll()
        outer.register(inner.fileno(), select.EPOLLIN)
        outer_fd = os.dup(outer.fileno())
        inner.close()
        inner = outer
        os.close(outer_fd)
    copy = os.dup(inner.fileno())
    inner.close()
    return copy


def _timer(_):
    timer = _call(_OTHERS["timerfd"], 1, 0)
    value = ctypes.create_string_buffer(struct.pack("qqqq", 0, 1000, 0, 1000))
    _call(_OTHERS["timerfd"] + {"x86_64": 3, "aarch64": 1}[os.uname().machine], timer, 0, value, None)
    return timer


def _inotify(_, watches=0):
    descriptor = _call(_OTHERS["inotify"], 0)
    for path in ("/", "/tmp", "/dev")[:watches]:
        LIBC.inotify_add_watch(descriptor, path.encode(), 0xFFF)
    return descriptor


def _signals(_):
    return _call(_OTHERS["signalfd"], -1, ctypes.create_string_buffer(b"\xff" * 8), 8, 0)


@functools.cache
def _dead():
    """Made once, and first where no file in FUSE is open: a child that ends closes its copy of that, and waits."""
    child = os.fork()
    if child == 0:
        os._exit(0)
    descriptor = os.pidfd_open(child)
    os.waitpid(child, 0)
    return descriptor


def _ring(_):
    return _call(_IO_URING_SETUP, 64, ctypes.create_string_buffer(120))


def _perf(_):
    attributes = ctypes.create_string_buffer(struct.pack("=IIQ", 1, 112, 0), 112)
    return _call(_OTHERS["perf"], attributes, 0, -1, -1, 0)


def _map(_):
    return _call(_OTHERS["bpf"], 0, ctypes.create_string_buffer(struct.pack("=IIIII", 2, 4, 8, 1024, 0), 72), 72)


def _landlock(_):
    return _call(_LANDLOCK, ctypes.create_string_buffer(struct.pack("=Q", 1)), 8, 0)


def _open(path, flags=os.O_RDONLY):
    return lambda _: os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)


def _internet(family, kind, protocol=0):
    return lambda _: _socket(family, kind, protocol)


def _listening(family, address):
    def make(_):
        made = socket.socket(family)
        made.bind(address)
        made.listen(1)
        return made.detach()
    return make


def _datagrams(family, address):
    def make(_):
        made = socket.socket(family, socket.SOCK_DGRAM)
        made.connect(address)
        return made.detach()
    return make


def _bound(family, address, protocol=0):
    made = socket.socket(family, socket.SOCK_STREAM, protocol)
    made.bind(address)
    return made


#: Multipath TCP.
_MPTCP = 262
#: Of TCP_INFO: no answer yet.
_SYN_SENT = 2
_V4, _V6, _UNIX = socket.AF_INET, socket.AF_INET6, socket.AF_UNIX
_STREAM, _DGRAM, _PACKETS, _RAW = socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET, socket.SOCK_RAW
#: Each kind, and what makes one.
KINDS = {
    "TCP, new": _internet(_V4, _STREAM),
    "TCP, listening": _listening(_V4, ("127.0.0.1", 0)),
    "TCP, connected": lambda made: made.connected().detach(),
    "TCP, full": lambda made: made.full().detach(),
    "TCP, lingering": Made.lingering,
    "TCP, shut down, lingering": Made.shut,
    "TCP over IPv6, new": _internet(_V6, _STREAM),
    "TCP over IPv6, listening": _listening(_V6, ("::1", 0)),
    "TCP, listening, with connections": lambda made: made.crowd(_V4, ("127.0.0.1", 0), 64),
    "TCP over IPv6, lingering": lambda made: made.other(_bound(_V6, ("::1", 0))),
    "MPTCP": _internet(_V4, _STREAM, _MPTCP),
    "MPTCP, lingering": lambda made: made.other(_bound(_V4, ("127.0.0.1", 0), _MPTCP)),
    "MPTCP, a plain one's, lingering": lambda made: made.other(_bound(_V4, ("127.0.0.1", 0)), _MPTCP),
    "TCP, connecting, lingering": Made.connecting,
    "SCTP": _internet(_V4, _STREAM, 132),
    "SCTP, lingering": lambda made: made.other(_bound(_V4, ("127.0.0.1", 0), 132)),
    "CAN": _internet(29, _RAW, 1),
    "XDP": _internet(44, _RAW),
    "UDP": _internet(_V4, _DGRAM),
    "UDP, connected": _datagrams(_V4, ("127.0.0.1", 9)),
    "UDP over IPv6": _internet(_V6, _DGRAM),
    "UDP-Lite": _internet(_V4, _DGRAM, 136),
    "ICMP": _internet(_V4, _DGRAM, 1),
    "raw": _internet(_V4, _RAW, 1),
    "packets of interfaces": _internet(socket.AF_PACKET, _RAW, 0x300),
    "netlink, routes": _internet(socket.AF_NETLINK, _RAW, 0),
    "netlink, devices": _internet(socket.AF_NETLINK, _DGRAM, 15),
    "vsock": _internet(40, _STREAM),
    "algorithms": _internet(38, _PACKETS),
    "Unix, new": _internet(_UNIX, _STREAM),
    "Unix, listening": _listening(_UNIX, ""),
    "Unix, listening, with connections": lambda made: made.crowd(_UNIX, "", 64),
    "Unix, listening, with what lingers": lambda made: made.crowd(_UNIX, "", 8, ["TCP, lingering"]),
    "Unix stream": lambda made: made.pair(_STREAM),
    "Unix datagrams": lambda made: made.pair(_DGRAM),
    "Unix packets": lambda made: made.pair(_PACKETS),
    "Unix packets with what lingers": lambda made: made.nested(_PACKETS, "TCP, lingering"),
    "Unix stream with inotify": lambda made: made.nested(_STREAM, "inotify"),
    "Unix datagrams with channels with what lingers": lambda made: made.nested(_DGRAM, "Unix packets with what lingers"),
    "pipe, reading": lambda made: made.pipe(0),
    "pipe, writing": lambda made: made.pipe(1),
    "pipe, full": lambda made: made.pipe(0, is_full=True),
    "pipe of packets": lambda made: made.pipe(1, getattr(os, "O_DIRECT", 0o40000)),
    "terminal, its master": lambda made: made.terminal(0),
    "terminal": lambda made: made.terminal(1),
    "timer": _timer,
    "signals": _signals,
    "event counter": lambda _: os.eventfd(0),
    "epoll": lambda _: _epolls(0),
    "epoll of epolls": lambda _: _epolls(4),
    "pidfd": lambda _: os.pidfd_open(os.getpid()),
    "pidfd of a dead one": lambda _: os.dup(_dead()),
    "memory": _memory,
    "memory, sealed": lambda made: _memory(made, os.MFD_ALLOW_SEALING, 0xF),
    "memory, secret": lambda _: _call(_MEMFD_SECRET, 0),
    "inotify": _inotify,
    "inotify with watches": lambda _: _inotify(None, 3),
    "fanotify": lambda _: _call(_OTHERS["fanotify"], 0, os.O_RDONLY),
    "faults of memory": lambda _: _call(_OTHERS["userfaultfd"], 0),
    "ring": _ring,
    "counter of events": _perf,
    "map of the kernel's": _map,
    "rules of Landlock": _landlock,
    "file system, not mounted": lambda _: _call(_FSOPEN, b"tmpfs", 0),
    "mount": lambda _: _call(_OPEN_TREE, -100, b"/", 1),
    "folder": _open("/", os.O_DIRECTORY),
    "path": lambda _: os.open("/etc/passwd", os.O_PATH),
    "file": _open("/etc/passwd"),
    "file without a name": Made.unnamed,
    "/dev/null": _open("/dev/null", os.O_RDWR),
    "/dev/zero": _open("/dev/zero", os.O_RDWR),
    "/dev/full": _open("/dev/full", os.O_RDWR),
    "/dev/tty": _open("/dev/tty", os.O_RDWR),
    "/dev/ptmx": _open("/dev/ptmx", os.O_RDWR),
    "/dev/fuse": _open("/dev/fuse", os.O_RDWR),
    "memory of a process": _open("/proc/self/mem", os.O_RDWR),
    "namespace": _open("/proc/self/ns/net"),
    IN_FUSE: Made.in_fuse,
}


def creatable():
    """The kinds that there are here, and those that there are not."""
    found, missing = [], {}
    for kind in KINDS:
        try:
            with Made() as made:
                descriptor = made.make(kind)
            found.append(kind)
            # What it would wait for is over.
            with contextlib.suppress(OSError):
                os.close(descriptor)
        except OSError as error:
            missing[kind] = error.strerror
    return found, missing


def many(made, kind, count):
    """So many of a kind, or as many as there can be."""
    found = []
    with contextlib.suppress(OSError):
        found += [made.make(kind) for _ in range(count)]
    return found


