"""The channels of a running server as the kernel has them: which process has which end, and whether that takes descriptors.

Ends are copied out of the processes (`pidfd_getfd`), and the kernel is asked which two belong together (`sock_diag(7)`).
"""

import array
import contextlib
import ctypes
import dataclasses
import errno
import os
import re
import select
import socket
import struct
from pathlib import Path

import harness

SO_PASSRIGHTS = 83
PIDFD_GETFD = 438
#: The role of who has started the others.
LAUNCHER = "bulkheadd"
O_DIRECT = {"x86_64": 0o40000, "aarch64": 0o200000}[os.uname().machine]
LIBC = ctypes.CDLL(None, use_errno=True)

_NETLINK_SOCK_DIAG, _BY_FAMILY, _DUMP, _DONE = 4, 20, 0x301, 3
_SHOW_PEER, _PEER = 4, 2
_PAGE = harness.TOP / "docs" / "internals" / "roles.md"
_ROW = re.compile(r"^\| (\w+) \| (\w+) \| `([\w ]+)` \| (.+) \|$", re.MULTILINE)


def table():
    """Of docs/internals/roles.md, which a test compares with `wire::CHANNELS`: each edge, and whether descriptors come along."""
    part = _PAGE.read_text().partition("<!-- topology: begin -->")[2].partition("<!-- topology: end -->")[0]
    edges = {}
    for sender, receiver, _, descriptors in _ROW.findall(part):
        edges[sender, receiver] = edges.get((sender, receiver), False) or descriptors != "none"
    return edges


def carriers():
    """For each edge, the messages that descriptors come along with: type, how many descriptors, and bytes (`crates/wire/tests/python.rs`)."""
    lines = [line.split(" ") for line in (harness.TOP / "tests/lib/carriers.txt").read_text().splitlines()]
    part = _PAGE.read_text().partition("<!-- topology: begin -->")[2].partition("<!-- topology: end -->")[0]
    edges = {(sender, receiver): kind for sender, receiver, kind, descriptors in _ROW.findall(part) if descriptors != "none"}
    edges["command", LAUNCHER] = "ToGuard"
    return {edge: [(kind, int(count), bytes.fromhex(text)) for kind, count, text in lines if kind == of] for edge, of in edges.items()}


def copied(pidfd, number):
    """A copy of a descriptor of another process."""
    copy = LIBC.syscall(PIDFD_GETFD, pidfd, number, 0)
    if copy < 0:
        raise OSError(ctypes.get_errno(), "pidfd_getfd")
    return copy


def peers():
    """Of every Unix socket of this network namespace, by its inode, that of its peer, if it has one."""
    found = {}
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as netlink:
        asked = struct.pack("=BBHIII8x", socket.AF_UNIX, 0, 0, 0xFFFFFFFF, 0, _SHOW_PEER)
        netlink.send(struct.pack("=IHHII", 16 + len(asked), _BY_FAMILY, _DUMP, 1, 0) + asked)
        while True:
            data, at = netlink.recv(1 << 17), 0
            while at < len(data):
                length, kind = struct.unpack_from("=IH", data, at)
                if kind != _BY_FAMILY:
                    return found if kind == _DONE else {}
                inode = struct.unpack_from("=I", data, at + 20)[0]
                found[inode] = _peer(data[at + 32:at + length])
                at += (length + 3) & ~3


def _peer(attributes):
    at = 0
    while at + 8 <= len(attributes):
        length, kind = struct.unpack_from("=HH", attributes, at)
        if kind == _PEER:
            return struct.unpack_from("=I", attributes, at + 4)[0]
        at += max(4, (length + 3) & ~3)
    return None


@dataclasses.dataclass(frozen=True)
class End:
    """An end of a channel."""

    process: harness.Process
    role: str
    number: int
    inode: int
    kind: int
    takes: bool
    is_read: bool

    def copy(self):
        """The same end, for the test; raises ProcessLookupError if it is there no longer."""
        pidfd = os.pidfd_open(self.process.pid)
        try:
            copy = socket.socket(fileno=copied(pidfd, self.number))
        except OSError as error:
            raise ProcessLookupError(errno.ESRCH, self.process.title) from error
        finally:
            os.close(pidfd)
        if os.fstat(copy.fileno()).st_ino != self.inode:
            copy.close()
            raise ProcessLookupError(errno.ESRCH, self.process.title)
        return copy

    def __str__(self):
        return f"{self.process.title} ({self.number})"


@dataclasses.dataclass(frozen=True)
class Channel:
    """A channel, from one end's side."""

    sender: End
    receiver: End

    @property
    def edge(self):
        return self.sender.role, self.receiver.role

    @property
    def takes(self):
        """Whether a descriptor gets to the receiver."""
        return self.receiver.takes and self.receiver.is_read

    def __str__(self):
        return f"{self.sender} to {self.receiver}"


def _end(process, role, number, descriptor):
    """What a descriptor of a process is, if it is a Unix socket with a peer."""
    status = os.fstat(descriptor)
    try:
        with socket.socket(fileno=os.dup(descriptor)) as end:
            if end.family != socket.AF_UNIX or end.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                return None
            try:
                takes = end.getsockopt(socket.SOL_SOCKET, SO_PASSRIGHTS) != 0
            except OSError:
                takes = True
            poll = select.poll()
            poll.register(end, select.POLLRDHUP)
            is_read = not any(events & select.POLLRDHUP for _, events in poll.poll(0))
            return End(process, role, number, status.st_ino, end.type, takes, is_read)
    except OSError:
        return None  # No socket.


def ends_of(process, role):
    """All ends that a process has."""
    found = []
    pidfd = os.pidfd_open(process.pid)
    try:
        for number, what in process.descriptors().items():
            if what.startswith("socket:"):
                with contextlib.suppress(OSError):
                    descriptor = copied(pidfd, number)
                    end = _end(process, role, number, descriptor)
                    os.close(descriptor)
                    found += [end] if end else []
    finally:
        os.close(pidfd)
    return found


class Topology:
    """The channels between processes now, of which each has a role."""

    def __init__(self, processes):
        self.processes, self.ends = processes, []
        for process, role in self.processes.items():
            # One may have ended.
            with contextlib.suppress(ProcessLookupError, FileNotFoundError):
                self.ends += ends_of(process, role)
        self._pair()

    @classmethod
    def of(cls, server, filters=()):
        """The channels of a server. `filters` are the commands of its filters; every other program is a service."""
        processes = {harness.Process(server.launcher.pid): LAUNCHER}
        return cls(processes | {process: cls._role(process, filters) for process in server.processes()})

    @classmethod
    def of_guard(cls, guard):
        """The channels of a guard, its gate and its command."""
        role = lambda process: "gate" if process == guard.gate else "command"
        return cls({harness.Process(guard.process.pid): LAUNCHER}
                   | {process: role(process) for process in harness.children(guard.process.pid)})

    @staticmethod
    def _role(process, filters):
        if not process.words or not process.words[0].startswith("bulkhead: "):
            return "filter" if process.title.split(" ")[0] in filters else "service"
        name = process.title.split(" ")[0]
        return {"datadoor": "service"}.get(name, name)

    def _pair(self):
        """Puts ends together; of one that the launcher has kept a copy of, the other's counts."""
        by_inode = {}
        for end in self.ends:
            by_inode.setdefault(end.inode, []).append(end)
        holders = {}
        for inode, ends in by_inode.items():
            others = [end for end in ends if end.role != LAUNCHER]
            holders[inode] = others or ends
        self.channels = [
            Channel(one, other)
            for inode, peer in peers().items()
            for one in holders.get(inode, ())
            for other in holders.get(peer, ())
        ]

    def between(self, sender, receiver):
        """The channels of an edge."""
        return [channel for channel in self.channels if channel.edge == (sender, receiver)]


def said_by_pipe(process):
    """Whether a process speaks to the launcher by a pipe of packets, at descriptor 5."""
    if not process.descriptors().get(5, "").startswith("pipe:"):
        return False
    lines = (Path("/proc") / str(process.pid) / "fdinfo" / "5").read_text().splitlines()
    flags = next(int(line.split()[1], 8) for line in lines if line.startswith("flags:"))
    return bool(flags & O_DIRECT)


def send(end, data, descriptors=()):
    """Sends a message; False where the kernel refuses the descriptors, or there is no room."""
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
    try:
        end.sendmsg([data], rights, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        return True
    except OSError:
        return False
