"""WebSocket (RFC 6455) for applications of ASGI, with the protocol of the package `websockets`.

Runs in: a service. Sees: frames of a client. Never: takes a message that is longer than `body_bytes`.
"""

from __future__ import annotations

from typing import Any, Callable, Optional

from ._http import Connection
from .request import Request
from .response import Response

try:
    from websockets.frames import Frame, Opcode
    from websockets.protocol import State
    from websockets.server import ServerProtocol
except ImportError as error:
    _MISSING: Optional[ImportError] = error
else:
    _MISSING = None

_NORMAL, _ABNORMAL, _INTERNAL_ERROR, _NO_STATUS = 1000, 1006, 1011, 1005


async def serve(application: Callable[..., Any], scope: dict[str, Any], request: Request, connection: Connection) -> None:
    """Has an application answer a request for a WebSocket."""
    if _MISSING is not None:
        raise RuntimeError("a WebSocket needs the package `websockets`; install it beside the application") from _MISSING
    socket = _Socket(request, connection)
    if socket.refusal is not None:
        return await Response.status_page(400)._send(connection)
    scope = {**scope, "type": "websocket", "scheme": "wss" if scope["scheme"] == "https" else "ws",
             "subprotocols": socket.subprotocols, "extensions": {"websocket.http.response": {}}}
    del scope["method"]
    try:
        await application(scope, socket.receive, socket.send)
    except Exception:
        await socket.end(_INTERNAL_ERROR)
        raise
    await socket.end(_NORMAL)


class _Socket:
    """One WebSocket, as `receive` and `send` of an application."""

    def __init__(self, request: Request, connection: Connection) -> None:
        self._request, self._connection = request, connection
        self._protocol = ServerProtocol(max_size=request.body_limit)
        self._protocol.receive_data(_head_of(request))
        events = self._protocol.events_received()
        self._handshake = events[0] if events else None
        self.refusal = self._protocol.handshake_exc
        if self._handshake is not None:
            self._response = self._protocol.accept(self._handshake)
            self.refusal = self._protocol.handshake_exc
        words = ",".join(request.headers.all("sec-websocket-protocol")).split(",")
        self.subprotocols = [word.strip() for word in words if word.strip()]
        self._has_connected = self._is_accepted = self._is_refused = self._has_left = self._has_ended = False
        self._events: list[Frame] = []
        self._parts: list[bytes] = []
        self._kind: Optional[Opcode] = None

    async def receive(self) -> dict[str, Any]:
        if not self._has_connected:
            self._has_connected = True
            return {"type": "websocket.connect"}
        while not self._has_left:
            while self._events:
                message = self._message(self._events.pop(0))
                if message is not None:
                    return message
            if self._has_ended or not await self._read():
                break
        self._has_left = True
        code, reason = self._protocol.close_code, self._protocol.close_reason
        return {"type": "websocket.disconnect", "code": code or _ABNORMAL, "reason": reason or ""}

    def _message(self, frame: Frame) -> Optional[dict[str, Any]]:
        """The message that a frame completes, if it does."""
        if frame.opcode not in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
            return None
        if frame.opcode is not Opcode.CONT:
            self._kind = frame.opcode
        self._parts.append(bytes(frame.data))
        if not frame.fin:
            return None
        data, self._parts = b"".join(self._parts), []
        if self._kind is Opcode.BINARY:
            return {"type": "websocket.receive", "bytes": data}
        try:
            return {"type": "websocket.receive", "text": data.decode()}
        except UnicodeDecodeError:
            self._protocol.fail(1007, "not UTF-8")
            return None

    async def _read(self) -> bool:
        """Takes what has arrived; whether more may come."""
        data = await self._connection.receive_raw() if self._is_accepted else b""
        if data:
            self._protocol.receive_data(data)
        else:
            self._protocol.receive_eof()
        self._events += self._protocol.events_received()
        await self._flush()
        return bool(data) or bool(self._events)

    async def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            if data:
                await self._connection.send_raw(data)
            else:
                # Both have said farewell; the server closes first (RFC 6455 7.1.1).
                self._has_ended = True

    async def send(self, message: dict[str, Any]) -> None:
        kind = message["type"]
        if kind == "websocket.accept":
            await self._accept(message)
        elif kind == "websocket.send":
            if self._protocol.state is not State.OPEN or not self._is_accepted:
                # The client has gone: as with HTTP, who sends all the same is not told.
                return
            text = message.get("text")
            if text is not None:
                self._protocol.send_text(text.encode())
            else:
                self._protocol.send_binary(message["bytes"])
            await self._flush()
        elif kind == "websocket.close":
            await self._close(message.get("code", _NORMAL), message.get("reason") or "")
        elif kind == "websocket.http.response.start":
            self._is_refused = True
            fields = [(bytes(name), bytes(value)) for name, value in message.get("headers", ())]
            self._connection.start_response(message["status"], fields)
        elif kind == "websocket.http.response.body":
            await self._connection.send(bytes(message.get("body", b"")), bool(message.get("more_body", False)))
        else:
            raise ValueError(f"an application sent {kind!r} on a WebSocket")

    async def _accept(self, message: dict[str, Any]) -> None:
        if message.get("subprotocol"):
            self._response.headers["Sec-WebSocket-Protocol"] = message["subprotocol"]
        for name, value in message.get("headers", ()):
            self._response.headers[name.decode("latin-1")] = value.decode("latin-1")
        self._protocol.send_response(self._response)
        self._is_accepted = True
        await self._connection.upgrade(b"".join(self._protocol.data_to_send()))

    async def _close(self, code: int, reason: str) -> None:
        if not self._is_accepted:
            if not self._is_refused:
                self._is_refused = True
                await Response.status_page(403)._send(self._connection)
            return
        if self._protocol.state is State.OPEN:
            self._protocol.send_close(code, reason)
            await self._flush()

    async def end(self, code: int) -> None:
        """After the application: closes what is open, and waits for the client's farewell."""
        if not self._is_accepted:
            if code == _NORMAL:
                await self._close(code, "")
            return
        await self._close(code, "")
        while not self._has_ended and await self._read():
            self._events.clear()


def _head_of(request: Request) -> bytes:
    lines = [f"GET {request.target} HTTP/1.1".encode("latin-1")]
    lines += [name + b": " + value for name, value in request.headers.raw]
    return b"\r\n".join(lines) + b"\r\n\r\n"
