"""The head of a request, as the site's worker writes it, and that of a response.

Runs in: a service. Sees: fields of clients, behind the site's worker, which has refused what two readers could understand
differently. Never: guesses: what that worker does not write is refused here.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Iterable, Optional

_REQUEST_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+) ([!-~\x80-\xff]+) HTTP/1\.1")
_NAME = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_FIELD = re.compile(rb"(" + _NAME + rb"):[ \t]*((?:[!-~\x80-\xff](?:[ \t!-~\x80-\xff]*[!-~\x80-\xff])?)?)[ \t]*")
_IS_NAME = re.compile(_NAME).fullmatch
_NOT_IN_VALUE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]").search
#: LIMIT: digits that are more than any body here.
_LENGTH = re.compile(rb"0|[1-9][0-9]{0,17}").fullmatch

#: What is said of one connection, which is not the application's to say (RFC 9110 7.6.1), and the length, which is
#: counted.
_OURS = frozenset((b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"))
_REASONS = {status.value: status.phrase.encode() for status in HTTPStatus}



class BadHead(ValueError):
    """What is no head of a request."""


class Head:
    """A request's head. `length` is that of its body, or None for one in chunks."""

    __slots__ = ("fields", "keeps", "length", "method", "target")

    def __init__(self, data: bytes) -> None:
        lines = data.split(b"\r\n")
        line = _REQUEST_LINE.fullmatch(lines[0])
        if line is None:
            raise BadHead("not a request line")
        self.method, self.target = line[1].decode("ascii"), line[2]
        self.fields: list[tuple[bytes, bytes]] = []
        for text in lines[1:]:
            field = _FIELD.fullmatch(text)
            if field is None:
                raise BadHead("not a field")
            self.fields.append((field[1].lower(), field[2]))
        self.keeps = b"close" not in self._words(b"connection")
        self.length = self._length()

    def _all(self, name: bytes) -> list[bytes]:
        return [value for other, value in self.fields if other == name]

    def _words(self, name: bytes) -> list[bytes]:
        return [word.strip().lower() for value in self._all(name) for word in value.split(b",")]

    def _length(self) -> Optional[int]:
        lengths, codings = self._all(b"content-length"), self._all(b"transfer-encoding")
        if codings:
            if lengths or [coding.lower() for coding in codings] != [b"chunked"]:
                raise BadHead("two lengths, or a coding that is not `chunked`")
            return None
        if not lengths:
            return 0
        if len(lengths) > 1 or not _LENGTH(lengths[0]):
            raise BadHead("not a length")
        return int(lengths[0])


def response_fields(fields: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """What of an application's fields goes into a head; raises ValueError for what cannot stand in one."""
    kept = []
    for name, value in fields:
        if not _IS_NAME(name) or _NOT_IN_VALUE(value):
            raise ValueError(f"the response's field {name!r}: {value!r} cannot stand in a head")
        if name.lower() not in _OURS:
            kept.append((name, value))
    return kept


def response_head(status: int, fields: list[tuple[bytes, bytes]]) -> bytes:
    """The head of a response with these checked fields."""
    lines = [b"HTTP/1.1 %d %s" % (status, _REASONS.get(status, b""))]
    lines += [b"%s: %s" % field for field in fields]
    return b"\r\n".join(lines) + b"\r\n\r\n"
