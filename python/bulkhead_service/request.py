"""A request, as a service sees it.

Runs in: a service. Sees: what a client made up. Never: takes the client's word for who it is, or passes on more of a body
than the limit.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
from collections import deque
from http.cookies import CookieError, SimpleCookie
from typing import Any, AsyncIterator, Callable, Iterator, Optional, Union
from urllib.parse import parse_qsl, unquote

from ._codec import Address
from ._head import Head

#: The characters that `param` leaves out, as the crate `bulkhead-service` does.
_METACHARACTERS = str.maketrans("", "", '<>()#&;"' + "".join(map(chr, (*range(32), *range(127, 160)))))
_CLIENT = b"bulkhead-client"


class BodyError(Exception):
    """Why a body could not be read; unless it is caught, the client gets `status`."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class PeerGone(ConnectionError):
    """Nobody is there any more who sends the rest of a request, or takes the answer."""


class Params:
    """Decoded parameters of a query or of a form, in the order of their arrival."""

    def __init__(self, text: str) -> None:
        # LIMIT: the length of a head or of a body is one already.
        self._pairs = parse_qsl(text, keep_blank_values=True, errors="replace")

    def param(self, name: str) -> Optional[str]:
        """The first value of `name` without the characters that are special to HTML and to shells. It is still to be
        escaped wherever it is put out."""
        value = self.raw_param(name)
        return None if value is None else value.translate(_METACHARACTERS)

    def raw_param(self, name: str) -> Optional[str]:
        """The first value of `name`, as the client meant it."""
        return next((value for other, value in self._pairs if other == name), None)

    def all(self, name: str) -> list[str]:
        """Every value of `name`, as the client meant them."""
        return [value for other, value in self._pairs if other == name]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._pairs)


class Headers:
    """Header fields; names are compared without case."""

    def __init__(self, fields: list[tuple[bytes, bytes]]) -> None:
        #: Names in lower case and values, as they came.
        self.raw = fields

    def get(self, name: str, default: Optional[str] = None) -> Optional[str]:
        """The values of a field, joined by commas as RFC 9110 5.3 has it."""
        found = self.all(name)
        return ", ".join(found) if found else default

    def all(self, name: str) -> list[str]:
        """The value of each line of a field."""
        wanted = name.lower().encode("latin-1")
        return [value.decode("latin-1") for other, value in self.raw if other == wanted]

    def __contains__(self, name: str) -> bool:
        return bool(self.all(name))

    def __getitem__(self, name: str) -> str:
        found = self.get(name)
        if found is None:
            raise KeyError(name)
        return found


class Body:
    """The body of a request, to be read once."""

    def __init__(self, limit: int, length: Optional[int], taken: Callable[[], None]) -> None:
        self.limit, self._left, self._taken = limit, limit, taken
        self._parts: deque[bytes] = deque()
        self._waiter: Optional[asyncio.Future[None]] = None
        self._has_ended = False
        self._fault: Union[BodyError, PeerGone, None] = None
        #: Bytes that have arrived and were not read yet.
        self.waiting = 0
        if length is not None and length > limit:
            self._is_too_long()

    @property
    def fault(self) -> Union[BodyError, PeerGone, None]:
        """Why it cannot be read any further."""
        return self._fault

    def feed(self, part: bytes) -> None:
        """Takes what has arrived."""
        if self._fault is not None:
            return
        self._left -= len(part)
        if self._left < 0:
            return self._is_too_long()
        self._parts.append(part)
        self.waiting += len(part)
        self._wake()

    def end(self) -> None:
        """All of it has arrived."""
        self._has_ended = True
        self._wake()

    def break_off(self) -> None:
        """Nothing more arrives."""
        if not self._has_ended and self._fault is None:
            self._fault = PeerGone("the client has gone")
        self._wake()

    def _is_too_long(self) -> None:
        self._fault = BodyError(413, f"the request's body is over the limit of {self.limit} bytes")
        self._parts.clear()
        self.waiting = 0
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def part(self) -> bytes:
        """The next part; nothing at its end."""
        while not self._parts and self._fault is None and not self._has_ended:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        if self._fault is not None and not self._parts:
            raise self._fault
        if not self._parts:
            return b""
        part = self._parts.popleft()
        self.waiting -= len(part)
        self._taken()
        return part

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while part := await self.part():
            yield part


class Request:
    """A request; its body is read by `bytes`, `text`, `json` or `form`, or piece by piece from `body`."""

    def __init__(self, head: Head, body: Body, peer: Address) -> None:
        self.method = head.method
        #: The target as it was sent, such as `/a%20b?c`.
        self.target = head.target.decode("latin-1")
        told = [value for name, value in head.fields if name == _CLIENT]
        #: The client's address and port; no header of the client can change it.
        self.client = _client(told[0]) if told else peer
        self.headers = Headers([field for field in head.fields if field[0] != _CLIENT])
        self.body = body
        self._params: Optional[Params] = None

    @property
    def body_limit(self) -> int:
        """How long a body may be, in bytes."""
        return self.body.limit

    @classmethod
    def get(cls, target: str, *fields: tuple[str, str]) -> Request:
        """A `GET` of `target`, for tests of a service."""
        lines = [f"GET {target} HTTP/1.1", "host: localhost", *(f"{name}: {value}" for name, value in fields)]
        body = Body(0, 0, lambda: None)
        body.end()
        return cls(Head("\r\n".join(lines).encode("latin-1")), body, Address(ipaddress.IPv4Address(0), 0))

    @property
    def path(self) -> str:
        """The path as it was sent."""
        return self.target.partition("?")[0]

    @property
    def query(self) -> str:
        """What follows `?`, as it was sent."""
        return self.target.partition("?")[2]

    @property
    def scheme(self) -> str:
        """`http` or `https`, as the client has sent it to the site."""
        return "https" if self.headers.get("x-forwarded-proto") == "https" else "http"

    def path_below(self, prefix: str) -> Optional[str]:
        """What follows `prefix` in the path, decoded; None if the path does not begin with it. It may hold any character,
        also `/` and NUL, and must not be used as the name of a file."""
        return unquote(self.path[len(prefix):]) if self.path.startswith(prefix) else None

    @property
    def params(self) -> Params:
        """The parameters in the query."""
        if self._params is None:
            self._params = Params(self.query)
        return self._params

    def param(self, name: str) -> Optional[str]:
        """The first value of the query's parameter, without the characters that are special to HTML and to shells."""
        return self.params.param(name)

    def raw_param(self, name: str) -> Optional[str]:
        """The first value of the query's parameter, as the client meant it. It must be escaped wherever it is put out."""
        return self.params.raw_param(name)

    @property
    def cookies(self) -> dict[str, str]:
        """The cookies that came along."""
        found: dict[str, str] = {}
        # By themselves: one that `http.cookies` does not take leaves the others.
        for word in "; ".join(self.headers.all("cookie")).split(";"):
            try:
                cookies = SimpleCookie(word.strip())
            except CookieError:
                continue
            for name, morsel in cookies.items():
                found.setdefault(name, morsel.value)
        return found

    async def bytes(self) -> bytes:
        """The whole body."""
        return b"".join([part async for part in self.body])

    async def text(self) -> str:
        """The whole body as text in UTF-8."""
        return (await self.bytes()).decode(errors="replace")

    async def json(self) -> Any:
        """The body as JSON; what is none is answered with 400 unless BodyError is caught."""
        try:
            return json.loads(await self.bytes())
        except ValueError:
            raise BodyError(400, "the request's body is no JSON") from None

    async def form(self) -> Params:
        """The parameters in the body of a submitted form."""
        return Params(await self.text())


def _client(value: bytes) -> Address:
    host, _, port = value.decode("latin-1").rpartition(":")
    ip = ipaddress.ip_address(host.strip("[]"))
    return Address(getattr(ip, "ipv4_mapped", None) or ip, int(port))
