"""The encoding of messages: a version byte, a type byte, then the fields in order, integers little-endian.

Runs in: a service. Sees: bytes of less trusted peers, such as a data proxy. Never: trusts a length, or takes a message
that has a byte too few or too many. `_messages.py` says with these words which messages there are.
"""

from __future__ import annotations

import ipaddress
import struct
from types import SimpleNamespace
from typing import Any, NamedTuple, Union


class DecodeError(ValueError):
    """A message that was refused, and why."""


class Address(NamedTuple):
    """An end of a connection. An IPv4 address is one, also where it came as IPv6."""

    ip: Union[ipaddress.IPv4Address, ipaddress.IPv6Address]
    port: int

    def __str__(self) -> str:
        return f"[{self.ip}]:{self.port}" if self.ip.version == 6 else f"{self.ip}:{self.port}"


class Reader:
    """What is left to be read of a message."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at

    def take(self, count: int) -> bytes:
        """The next bytes."""
        end = self.at + count
        if end > len(self.data):
            raise DecodeError("message ends in the middle of a field")
        found = self.data[self.at:end]
        self.at = end
        return found

    def is_at_end(self) -> bool:
        """Whether nothing is left."""
        return self.at == len(self.data)


class _Integer:
    def __init__(self, form: str) -> None:
        self._form = struct.Struct(form)

    def put(self, value: int, out: bytearray) -> None:
        out += self._form.pack(value)

    def take(self, reader: Reader) -> int:
        return self._form.unpack(reader.take(self._form.size))[0]


U8, U16, U32, U64 = (_Integer(form) for form in ("<B", "<H", "<I", "<Q"))


class _Bool:
    def put(self, value: bool, out: bytearray) -> None:
        out.append(bool(value))

    def take(self, reader: Reader) -> bool:
        value = reader.take(1)[0]
        if value > 1:
            raise DecodeError("flag out of its range")
        return bool(value)


class _Address:
    def put(self, value: Address, out: bytearray) -> None:
        octets = value.ip.packed
        out += octets if len(octets) == 16 else bytes(10) + b"\xff\xff" + octets
        U16.put(value.port, out)

    def take(self, reader: Reader) -> Address:
        ip = ipaddress.IPv6Address(reader.take(16))
        return Address(ip.ipv4_mapped or ip, U16.take(reader))


BOOL, ADDRESS = _Bool(), _Address()


class Raw:
    """As many bytes as it says."""

    def __init__(self, count: int) -> None:
        self._count = count

    def put(self, value: bytes, out: bytearray) -> None:
        if len(value) != self._count:
            raise ValueError(f"{len(value)} bytes; there must be {self._count}")
        out += value

    def take(self, reader: Reader) -> bytes:
        return reader.take(self._count)


class Bytes:
    """Bytes behind their length, at most so many."""

    _length = U32

    def __init__(self, most: int) -> None:
        self._most = most

    def put(self, value: bytes, out: bytearray) -> None:
        if len(value) > self._most:
            raise ValueError(f"{len(value)} bytes; there may be {self._most}")
        self._length.put(len(value), out)
        out += value

    def take(self, reader: Reader) -> Any:
        count = self._length.take(reader)
        if count > self._most:
            raise DecodeError(f"field over its limit of {self._most} bytes")
        return reader.take(count)


class Text(Bytes):
    """Text in UTF-8, at most so many bytes."""

    _length = U16

    def put(self, value: str, out: bytearray) -> None:
        super().put(value.encode(), out)

    def take(self, reader: Reader) -> str:
        try:
            return super().take(reader).decode()
        except UnicodeDecodeError:
            raise DecodeError("text out of its range") from None


class List:
    """Items behind their number, at most so many."""

    def __init__(self, item: Any, most: int) -> None:
        self._item, self._most = item, most

    def put(self, value: list, out: bytearray) -> None:
        if len(value) > self._most:
            raise ValueError(f"{len(value)} items; there may be {self._most}")
        U16.put(len(value), out)
        for item in value:
            self._item.put(item, out)

    def take(self, reader: Reader) -> list:
        count = U16.take(reader)
        if count > self._most:
            raise DecodeError(f"field over its limit of {self._most} items")
        return [self._item.take(reader) for _ in range(count)]


class Record:
    """Fields in order; a value has them as attributes."""

    def __init__(self, name: str, *fields: tuple[str, Any]) -> None:
        self.name, self._fields = name, fields

    def put(self, value: Any, out: bytearray) -> None:
        for name, kind in self._fields:
            kind.put(getattr(value, name), out)

    def take(self, reader: Reader) -> SimpleNamespace:
        return SimpleNamespace(**{name: kind.take(reader) for name, kind in self._fields})


class Choice:
    """One of several words, in one byte."""

    def __init__(self, name: str, *words: tuple[int, str]) -> None:
        self._name, self._words = name, dict(words)
        self._numbers = {word: number for number, word in words}

    def put(self, value: str, out: bytearray) -> None:
        out.append(self._numbers[value])

    def take(self, reader: Reader) -> str:
        try:
            return self._words[reader.take(1)[0]]
        except KeyError:
            raise DecodeError(f"{self._name} out of its range") from None


class Edge:
    """The messages of one direction between two processes. A message is a `SimpleNamespace` with its `name` as `kind`."""

    def __init__(self, name: str, version: int, messages: dict[int, tuple[str, tuple]]) -> None:
        self.name, self._version, self._messages = name, version, messages
        self._numbers = {name: (number, fields) for number, (name, fields) in messages.items()}

    def encode(self, kind: str, **values: Any) -> bytes:
        """A message with these fields."""
        number, fields = self._numbers[kind]
        out = bytearray((self._version, number))
        for name, layout in fields:
            layout.put(values[name], out)
        return bytes(out)

    def decode(self, data: bytes) -> SimpleNamespace:
        """Reads a message that must fill `data` exactly, or raises DecodeError."""
        reader = Reader(data)
        version, number = reader.take(2)
        if version != self._version:
            raise DecodeError(f"message has version {version}; this is version {self._version}")
        if number not in self._messages:
            raise DecodeError(f"no message of type {number} on this channel")
        kind, fields = self._messages[number]
        message = SimpleNamespace(kind=kind)
        for name, layout in fields:
            setattr(message, name, layout.take(reader))
        if not reader.is_at_end():
            raise DecodeError("message has bytes after its last field")
        return message
