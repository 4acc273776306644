"""A channel to another process: messages over a SOCK_SEQPACKET socket, with descriptors that come along.

Runs in: a service. Sees: what the peer sends, which `_codec` decodes. Never: waits while the event loop has other work. Closing the
last descriptor of what somebody has sent takes as long as its sender likes: what nobody has asked for stays open until the process
ends, which waits for nothing, and its channel is broken off, so that no more of it comes.
"""

from __future__ import annotations

import array
import asyncio
import errno
import fcntl
import os
import socket
import struct
import termios
from collections import deque
from types import SimpleNamespace
from typing import Callable, Optional, Union

from ._codec import DecodeError, Edge
from ._messages import MESSAGE_MAX

#: LIMIT: messages of one channel that are taken before others have their turn.
_TURN = 16
#: As many as a message can have (SCM_MAX_FD): what finds no room, the kernel closes while this process waits.
_DESCRIPTORS = 253 * array.array("i").itemsize
#: unix(7), from Linux 6.16 on.
_SO_PASSRIGHTS = 83
_LINGER = struct.Struct("ii")
#: LIMIT: bytes that may wait in a connection when it comes: far more than the kernel's default.
_WAITING_MAX = 4 << 20
_CUT = socket.MSG_TRUNC | socket.MSG_CTRUNC

#: A message and the descriptors that came with it.
Arrived = Callable[[SimpleNamespace, "list[int]"], None]


def channel_socket(number: int) -> Optional[socket.socket]:
    """The descriptor `number`, if it is a channel."""
    try:
        found = socket.socket(fileno=number)
    except OSError:
        return None
    if found.type != socket.SOCK_SEQPACKET:
        found.detach()
        return None
    found.setblocking(False)
    os.set_inheritable(number, False)
    return found


def say_pipe(number: int) -> Optional[int]:
    """The descriptor `number`, if it is where packets are written into a pipe."""
    try:
        flags = fcntl.fcntl(number, fcntl.F_GETFL)
    except OSError:
        return None
    if flags & os.O_ACCMODE != os.O_WRONLY or not flags & os.O_DIRECT:
        return None
    os.set_inheritable(number, False)
    return number


def _receive(channel: socket.socket) -> tuple[bytes, list[int], int]:
    data, ancillary, flags, _ = channel.recvmsg(MESSAGE_MAX + 1, socket.CMSG_SPACE(_DESCRIPTORS), socket.MSG_CMSG_CLOEXEC)
    descriptors = array.array("i")
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors.frombytes(content[: len(content) - len(content) % descriptors.itemsize])
    return data, list(descriptors), flags


def connection(descriptor: int) -> Optional[socket.socket]:
    """One end of a pair that the site's worker has sent, if the event loop may read from it and close it. What lingers is none, and what
    brings descriptors along: it is left open."""
    try:
        found = socket.socket(fileno=descriptor)
    except OSError:
        return None
    try:
        does_linger = _LINGER.unpack(found.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER.size))[0] != 0
        is_one = found.family == socket.AF_UNIX and found.type == socket.SOCK_STREAM and _brings_none(found)
    except OSError:
        does_linger = True
    if does_linger or not is_one:
        found.detach()
        return None
    return found


def _brings_none(found: socket.socket) -> bool:
    """Whether no descriptor waits in a Unix stream, and none will where the kernel can refuse them."""
    if _takes_descriptors(found):
        return False
    waiting = struct.unpack("i", fcntl.ioctl(found, termios.FIONREAD, bytes(4)))[0]
    if not 0 < waiting <= _WAITING_MAX:
        return waiting == 0
    # Without room for descriptors, a flag says that there are some.
    data, _, flags, _ = found.recvmsg(waiting, 0, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    return len(data) == waiting and not flags & socket.MSG_CTRUNC


def _takes_descriptors(found: socket.socket) -> bool:
    try:
        return found.getsockopt(socket.SOL_SOCKET, _SO_PASSRIGHTS) != 0
    except OSError as error:
        return error.errno != errno.ENOPROTOOPT


class Channel:
    """One end of a channel on the event loop.

    `arrived` gets each message; `ended` is called once, with None at the end of the channel, or with why what came is no
    message. After it nothing more is read.
    """

    def __init__(
        self,
        channel: socket.socket,
        incoming: Edge,
        outgoing: Edge,
        arrived: Arrived,
        ended: Callable[[Optional[Exception]], None],
        say: Optional[int] = None,
    ) -> None:
        self._socket, self._incoming, self._outgoing = channel, incoming, outgoing
        #: A pipe for what leaves, if it does not go by the socket.
        self._say = say
        self._arrived, self._ended = arrived, ended
        self._loop = asyncio.get_running_loop()
        self._queue: deque[bytes] = deque()
        self._is_open = True
        channel.setblocking(False)
        self._loop.add_reader(channel, self._read)

    def send(self, kind: str, **values: object) -> None:
        """Sends a message, or keeps it until there is room; to a peer that is gone, nothing."""
        if not self._is_open:
            return
        self._queue.append(self._outgoing.encode(kind, **values))
        if len(self._queue) == 1:
            self._write()

    def close(self) -> None:
        """Ends it, and calls nobody."""
        if self._is_open:
            self._is_open = False
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._out)
            self._socket.close()
            if self._say is not None:
                os.close(self._say)

    def break_off(self) -> None:
        """Ends it, and calls nobody; what waits in it is not closed."""
        if self._is_open:
            os.dup(self._socket.fileno())
            self._socket.shutdown(socket.SHUT_RDWR)
            self.close()

    @property
    def _out(self) -> Union[socket.socket, int]:
        return self._socket if self._say is None else self._say

    def _write(self) -> None:
        while self._queue:
            try:
                if self._say is None:
                    self._socket.send(self._queue[0], socket.MSG_NOSIGNAL)
                else:
                    os.write(self._say, self._queue[0])
            except (BlockingIOError, InterruptedError):
                self._loop.add_writer(self._out, self._write)
                return
            except OSError:
                # That the peer is gone is read next.
                self._queue.clear()
                break
            self._queue.popleft()
        self._loop.remove_writer(self._out)

    def _read(self) -> None:
        for _ in range(_TURN):
            if not self._is_open:
                return
            try:
                data, descriptors, flags = _receive(self._socket)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                return self._end(None)
            if not data and not descriptors:
                return self._end(None)
            try:
                if flags & _CUT:
                    raise DecodeError("message is longer than any of this channel")
                message = self._incoming.decode(data)
            except DecodeError as error:
                return self._end(error)
            self._arrived(message, descriptors)

    def _end(self, error: Optional[Exception]) -> None:
        self.close() if error is None else self.break_off()
        self._ended(error)
