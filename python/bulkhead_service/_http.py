"""One connection from the site's worker: requests, one after the other, and their answers.

Runs in: a service. Sees: requests of several clients, whose heads the site's worker has checked. Never: closes the
connection while a request may be on its way, or holds more of a body than is asked for.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections import deque
from typing import TYPE_CHECKING, Callable, Iterable, Optional

from ._codec import Address
from ._head import BadHead, Head, response_fields, response_head
from ._log import Level
from .request import Body, PeerGone, Request
from .response import Response

if TYPE_CHECKING:
    from ._worker import Worker

#: LIMIT: bytes of a body, or of what comes after it, that wait to be read; as many again in the socket.
_BUFFER_MAX = 64 << 10
#: LIMIT: what the site's worker adds to a head: the certificate of a client, and what it says of the client.
_ADDED_MAX = 32 << 10
#: LIMIT: bytes of the line that says how long a chunk is, or of a trailer.
_LINE_MAX = 4096
#: LIMIT: seconds that we wait, after our last answer, for a peer that is still sending.
_LINGER_MAX = 2.0
_CHUNK = re.compile(rb"[0-9A-Fa-f]{1,15}").fullmatch

_HEAD, _LENGTH, _CHUNKS, _CHUNK_END, _TRAILER, _ANSWER, _RAW, _LINGER = range(8)


def _is_of_gone(error: Optional[BaseException]) -> bool:
    """Whether an exception comes of a client that has gone, however an application has wrapped it."""
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        if isinstance(error, PeerGone):
            return True
        seen.append(error)
        error = error.__cause__ or error.__context__
    return False


class Connection(asyncio.Protocol):
    """See the file's head. An application answers by `start_response` and `send`, in this order."""

    def __init__(self, worker: Worker, peer: Address, preread: bytes) -> None:
        self._worker, self._peer = worker, peer
        self._loop = asyncio.get_running_loop()
        self._input = bytearray(preread)
        self._state = _HEAD
        #: What is still to come of a body or a chunk.
        self._left = 0
        self._body: Optional[Body] = None
        self._transport: Optional[asyncio.Transport] = None
        self._task: Optional[asyncio.Task[None]] = None
        self._room: Optional[asyncio.Future[None]] = None
        self._is_full = self._is_paused = self._is_lost = False
        self._raw: deque[bytes] = deque()
        self._raw_waiter: Optional[asyncio.Future[None]] = None
        #: Set when the peer is gone, or has said its last.
        self.gone = asyncio.Event()
        self._keeps, self._method = True, "GET"
        self._reset_response()

    def start(self, stream: socket.socket, ended: Callable[[], None]) -> None:
        """Takes the connection over; `ended` is called when it is closed."""
        self._ended = ended
        stream.setblocking(False)
        self._starting = self._loop.create_task(self._start(stream))

    async def _start(self, stream: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: self, stream)
        except OSError:
            stream.close()
            self._ended()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._advance()

    def data_received(self, data: bytes) -> None:
        if self._state == _RAW:
            self._take_raw(data)
        elif self._state != _LINGER:
            self._input += data
            self._advance()

    def eof_received(self) -> bool:
        if self._state in (_LENGTH, _CHUNKS, _CHUNK_END, _TRAILER):
            self._body.break_off()
        self._leave()
        # Until the answer is complete; between two requests, or after the last one, this is the end.
        return self._state not in (_HEAD, _LINGER)

    def connection_lost(self, error: Optional[Exception]) -> None:
        if self._body is not None:
            self._body.break_off()
        self._leave()
        self._is_full, self._is_lost = False, True
        self._wake()
        # A request that has arrived is processed to its end; then its place is free.
        if self._task is None:
            self._ended()

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        self._wake()

    def _wake(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def _leave(self) -> None:
        self.gone.set()
        if self._raw_waiter is not None and not self._raw_waiter.done():
            self._raw_waiter.set_result(None)

    # Requests.

    def _advance(self) -> None:
        """Goes on with what has arrived, as far as it goes."""
        steps = {
            _HEAD: self._take_head, _LENGTH: self._take_length, _CHUNKS: self._take_chunk_line,
            _CHUNK_END: self._take_chunk_end, _TRAILER: self._take_trailer,
        }
        try:
            while self._state in steps and steps[self._state]():
                pass
        except BadHead as error:
            self._worker.log.event(Level.WARNING, f"a malformed request from the site's worker: {error}")
            if self._body is not None:
                self._body.break_off()
            self._transport.abort()
        self._pace()

    def _take_head(self) -> bool:
        if self._task is not None or not self._input:
            return False
        most = self._worker.limits.head_bytes + _ADDED_MAX
        end = self._input.find(b"\r\n\r\n", 0, most)
        if end < 0:
            if len(self._input) >= most:
                raise BadHead("a head is longer than its limit")
            return False
        head = Head(bytes(self._input[:end]))
        del self._input[: end + 4]
        self._method = head.method
        self._body = Body(self._worker.limits.body_bytes, head.length, self._pace)
        self._keeps = head.keeps
        self._reset_response()
        request = Request(head, self._body, self._peer)
        if head.length is None:
            self._state = _CHUNKS
        elif head.length:
            self._state, self._left = _LENGTH, head.length
        else:
            self._end_body()
        self._task = self._loop.create_task(self._answer(request))
        return True

    def _take_length(self) -> bool:
        return self._take_part(self._end_body)

    def _take_part(self, then: Callable[[], None]) -> bool:
        if not self._input:
            return False
        part = bytes(self._input[: self._left])
        del self._input[: len(part)]
        self._left -= len(part)
        self._body.feed(part)
        if self._left == 0:
            then()
        return True

    def _line(self) -> Optional[bytes]:
        end = self._input.find(b"\r\n", 0, _LINE_MAX)
        if end < 0:
            if len(self._input) >= _LINE_MAX:
                raise BadHead("a line of a chunk is longer than its limit")
            return None
        line = bytes(self._input[:end])
        del self._input[: end + 2]
        return line

    def _take_chunk_line(self) -> bool:
        if self._left:
            return self._take_part(lambda: setattr(self, "_state", _CHUNK_END))
        line = self._line()
        if line is None:
            return False
        if not _CHUNK(line):
            raise BadHead("not the length of a chunk")
        self._left = int(line, 16)
        if self._left == 0:
            self._state = _TRAILER
        return True

    def _take_chunk_end(self) -> bool:
        if len(self._input) < 2:
            return False
        if self._input[:2] != b"\r\n":
            raise BadHead("a chunk does not end where it said")
        del self._input[:2]
        self._state = _CHUNKS
        return True

    def _take_trailer(self) -> bool:
        line = self._line()
        if line == b"":
            self._end_body()
        return line is not None

    def _end_body(self) -> None:
        self._state = _ANSWER
        self._body.end()

    def _pace(self) -> None:
        """Reads as long as somebody takes what arrives."""
        waiting = len(self._input) + (self._body.waiting if self._body is not None else 0) + sum(map(len, self._raw))
        is_paused = waiting > _BUFFER_MAX
        if is_paused == self._is_paused or self._transport is None or self._transport.is_closing():
            return
        self._is_paused = is_paused
        if is_paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    # Answers.

    async def _answer(self, request: Request) -> None:
        try:
            await self._worker.answer(request, self)
            if not self._is_complete:
                if not self._is_begun:
                    raise RuntimeError("the application has sent no response")
                await self.send(b"", False)
        except Exception as error:
            # What an application makes of a client that has gone is no fault of the application's.
            if _is_of_gone(error) or isinstance(self._body.fault, PeerGone):
                self._transport.abort()
            else:
                await self._fail(error)
        finally:
            self._worker.receiver.counters.requests += 1
            self._task = None
        self._end_answer()

    async def _fail(self, error: Exception) -> None:
        """Answers in the place of an application that has failed; half of a response is cut off, so that it shows. A complete
        one stays: what has failed came after it."""
        response = Response._of_error(error, self._body)
        if response is None:
            self._worker.failed()
            response = Response.status_page(500)
        if self._is_complete:
            return
        if self._is_begun:
            self._transport.abort()
            return
        try:
            await response._send(self)
        except (PeerGone, ValueError):
            self._transport.abort()

    def _end_answer(self) -> None:
        if self._is_lost:
            return self._ended()
        if self._transport.is_closing():
            return None
        if self._state == _RAW:
            return self._transport.close()
        if self._state == _ANSWER and self._keeps and not self.gone.is_set():
            self._state, self._body = _HEAD, None
            return self._advance()
        if self._state == _ANSWER:
            return self._transport.close()
        # RFC 9112 9.6: closing while the peer still sends would reset the connection, and the answer might be lost.
        self._state = _LINGER
        self._body.break_off()
        self._input.clear()
        self._pace()
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._loop.call_later(_LINGER_MAX, self._transport.close)

    def _reset_response(self) -> None:
        self._is_begun = self._is_complete = self._is_chunked = False
        #: What is still to be sent of a body whose length was said.
        self._owed: Optional[int] = None
        self._status, self._has_length, self._has_body = 0, False, False
        #: Those of a head that was not sent yet.
        self._fields: Optional[list[tuple[bytes, bytes]]] = None

    def start_response(self, status: int, fields: Iterable[tuple[bytes, bytes]]) -> None:
        """Begins the response; its head goes with the first part of its body."""
        if self._is_begun:
            raise RuntimeError("the response has begun already")
        kept = response_fields(fields)
        if status == 204:
            # RFC 9110 8.6: not even the length of nothing.
            kept = [field for field in kept if field[0].lower() != b"content-length"]
        lengths = [value for name, value in kept if name.lower() == b"content-length"]
        if len(lengths) > 1 or any(not value.isdigit() for value in lengths):
            raise ValueError("the response has no proper `Content-Length`")
        self._has_body = self._method != "HEAD" and status not in (204, 304) and status >= 200
        self._owed = int(lengths[0]) if lengths and self._has_body else None
        self._status, self._fields, self._has_length = status, kept, bool(lengths)
        self._is_begun = True

    async def send(self, part: bytes, more: bool) -> None:
        """Sends a part of the body, and waits while the peer does not take it; `more` says whether it is not the last."""
        if not self._is_begun or self._is_complete:
            raise RuntimeError("the response has not begun, or is complete already")
        out = [] if self._fields is None else [self._make_head(part, more)]
        if self._has_body:
            self._count(part, more)
            if self._is_chunked:
                out += [b"%x\r\n" % len(part), part, b"\r\n"] if part else []
                out += [] if more else [b"0\r\n\r\n"]
            else:
                out.append(part)
        self._is_complete = not more
        await self._write(b"".join(out))

    def _make_head(self, part: bytes, more: bool) -> bytes:
        fields, self._fields = self._fields, None
        if not self._has_length and self._status >= 200 and self._status not in (204, 304):
            if not more:
                fields.append((b"content-length", b"%d" % len(part)))
            elif self._has_body:
                self._is_chunked = True
                fields.append((b"transfer-encoding", b"chunked"))
        if not self._keeps or self._state not in (_ANSWER, _RAW):
            # What is left of a body cannot be told from a next request.
            self._keeps = False
            fields.append((b"connection", b"close"))
        return response_head(self._status, fields)

    def _count(self, part: bytes, more: bool) -> None:
        if self._owed is None:
            return
        self._owed -= len(part)
        if self._owed < 0 or (not more and self._owed):
            raise RuntimeError("the response's body is not as long as its `Content-Length` says")

    async def _write(self, data: bytes) -> None:
        if self._transport.is_closing():
            raise PeerGone("the client has gone")
        if data:
            self._transport.write(data)
        if self._is_full:
            self._room = self._loop.create_future()
            await self._room
            if self._transport.is_closing():
                raise PeerGone("the client has gone")

    # Another protocol in the place of HTTP.

    async def upgrade(self, response: bytes) -> None:
        """Sends a whole answer 101; from here on the bytes are the application's."""
        if self._state != _ANSWER or self._is_begun:
            raise RuntimeError("no upgrade after a response, or before the end of the request")
        self._is_begun = self._is_complete = True
        self._state = _RAW
        if self._input:
            self._take_raw(bytes(self._input))
            self._input.clear()
        await self._write(response)

    def _take_raw(self, data: bytes) -> None:
        self._raw.append(data)
        if self._raw_waiter is not None and not self._raw_waiter.done():
            self._raw_waiter.set_result(None)
        self._pace()

    async def receive_raw(self) -> bytes:
        """What has arrived; nothing at the end."""
        while not self._raw and not self.gone.is_set():
            self._raw_waiter = self._loop.create_future()
            await self._raw_waiter
        if not self._raw:
            return b""
        data = self._raw.popleft()
        self._pace()
        return data

    async def send_raw(self, data: bytes) -> None:
        """Sends bytes, and waits while the peer does not take them."""
        await self._write(data)
