"""What a filter process in Python needs: the requests, and what to do with each.

    from bulkhead_filter import requests

    for request in requests():
        if request.path.startswith("/private/"):
            request.drop(403)
        else:
            request.pass_on()

Runs in: a filter process, in a jail of its own; descriptor 3 brings bundles, 4 takes them. Sees: the heads of clients'
requests. Never: reads from a client's connection, or waits for a client. Needs: Python 3.9, and nothing else.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import struct
from collections.abc import Iterator
from http import HTTPStatus
from typing import NamedTuple, Optional, Union

__all__ = ["Address", "Request", "response", "requests"]

#: The most bytes of a request that travel with its connection.
TAKEN_MAX = 64 * 1024

_IN, _OUT = 3, 4
_VERSION, _CONNECTION = 1, 1
# Version, type, number, two addresses of 16 bytes and a port, whether it is relayed, how many bytes follow.
_HEAD = struct.Struct("<BBQ16sH16sH?I")


class Address(NamedTuple):
    """An end of a connection. An IPv4 address is one, also where it came as IPv6."""

    ip: Union[ipaddress.IPv4Address, ipaddress.IPv6Address]
    port: int

    @classmethod
    def _decode(cls, octets: bytes, port: int) -> Address:
        ip = ipaddress.IPv6Address(octets)
        return cls(ip.ipv4_mapped or ip, port)

    def _encode(self) -> bytes:
        octets = self.ip.packed
        return octets if len(octets) == 16 else bytes(10) + b"\xff\xff" + octets


class Request:
    """A request on its way, with its client's connection. Exactly one of `pass_on` and `drop` settles it."""

    def __init__(self, number: int, peer: Address, local: Address, relayed: bool, head: bytes, connection: int) -> None:
        #: The gate's number for it.
        self.number = number
        #: The client, and the address of ours that it connected to.
        self.peer, self.local = peer, local
        #: True where the other end is a site worker, which relays requests of several clients.
        self.relayed = relayed
        #: The head as the client sent it; may be replaced before `pass_on`, by up to TAKEN_MAX bytes.
        self.head = head
        self._connection = connection

    @property
    def method(self) -> str:
        """The method, such as `GET`."""
        return self._words()[0]

    @property
    def target(self) -> str:
        """The target as it was sent, such as `/a%20b?c`."""
        return self._words()[1]

    @property
    def path(self) -> str:
        """The target without what follows `?`; not decoded."""
        return self.target.partition("?")[0]

    def field(self, name: str) -> Optional[str]:
        """The first header field of that name, or None."""
        wanted = name.lower().encode("latin-1")
        for line in self.head.split(b"\n")[1:]:
            key, colon, value = line.partition(b":")
            if colon and key.strip().lower() == wanted:
                return value.strip().decode("latin-1")
        return None

    @property
    def is_settled(self) -> bool:
        """True once it was passed on or dropped."""
        return self._connection < 0

    def fileno(self) -> int:
        """The descriptor of the client's connection."""
        return self._connection

    def pass_on(self) -> None:
        """Passes it on, to the next filter or the gate. Raises OSError if that has ended."""
        if self.is_settled:
            raise ValueError("this request was passed on or dropped already")
        if len(self.head) > TAKEN_MAX:
            raise ValueError(f"a head of {len(self.head)} bytes; at most {TAKEN_MAX} can travel")
        message = _HEAD.pack(
            _VERSION, _CONNECTION, self.number, self.peer._encode(), self.peer.port, self.local._encode(),
            self.local.port, self.relayed, len(self.head),
        )
        try:
            socket.send_fds(_channel(_OUT), [message, self.head], [self._connection])
        finally:
            self._let_go()

    def drop(self, answer: Union[int, bytes, None] = None) -> None:
        """Ends the connection, after an answer: a status, or a whole response, or none."""
        if self.is_settled:
            raise ValueError("this request was passed on or dropped already")
        if isinstance(answer, int):
            answer = response(answer)
        with socket.socket(fileno=os.dup(self._connection)) as client, contextlib.suppress(OSError):
            # A client that does not read gets less of it: a filter waits for nobody.
            if answer:
                client.send(answer, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            client.shutdown(socket.SHUT_WR)
            # Bytes that nobody read would make the close a reset, which can overtake the answer.
            client.recv(TAKEN_MAX, socket.MSG_DONTWAIT)
        self._let_go()

    def _words(self) -> list[str]:
        line = self.head.lstrip(b"\r\n").split(b"\n", 1)[0].rstrip(b"\r")
        words = line.decode("latin-1").split(" ")
        return words if len(words) > 1 else ["", ""]

    def _let_go(self) -> None:
        os.close(self._connection)
        self._connection = -1


def response(status: int, text: Optional[str] = None) -> bytes:
    """A whole response: a status, and a text for people."""
    phrase = HTTPStatus(status).phrase
    body = (text or f"{status} {phrase}").encode() + b"\n"
    head = f"HTTP/1.1 {status} {phrase}\r\nContent-Type: text/plain; charset=utf-8\r\n"
    return f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body


def requests() -> Iterator[Request]:
    """The requests, one after the other, until the chain ends. One that was neither passed on nor dropped by the time
    that the next is asked for is dropped."""
    channel = _channel(_IN)
    while True:
        # Blocks until there is one; a packet is one message with one descriptor.
        packet, connections, flags, _ = socket.recv_fds(channel, _HEAD.size + TAKEN_MAX + 1, 1)
        if not packet and not connections:
            return
        request = _decode(packet, connections, flags)
        if request is None:
            continue
        try:
            yield request
        finally:
            if not request.is_settled:
                request.drop()


_channels: dict[int, socket.socket] = {}


def _channel(number: int) -> socket.socket:
    """One of the two descriptors of a filter, which it has from its start."""
    if number not in _channels:
        os.set_inheritable(number, False)
        _channels[number] = socket.socket(fileno=number)
        _channels[number].setblocking(True)
    return _channels[number]


def _decode(packet: bytes, connections: list[int], flags: int) -> Optional[Request]:
    """A request, or None for what is none: the filter before has made that up, and it harms nobody else."""
    if len(connections) == 1 and len(packet) >= _HEAD.size and not flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
        version, kind, number, peer, peer_port, local, local_port, relayed, length = _HEAD.unpack_from(packet)
        if (version, kind, length) == (_VERSION, _CONNECTION, len(packet) - _HEAD.size) and packet[46] <= 1:
            os.set_inheritable(connections[0], False)
            return Request(
                number, Address._decode(peer, peer_port), Address._decode(local, local_port), relayed,
                packet[_HEAD.size:], connections[0],
            )
    for connection in connections:
        os.close(connection)
    return None
