"""Applications of ASGI 3: Starlette, FastAPI, Django and others.

Runs in: a service. Sees: requests. Never: tells a client why an application has failed.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import Any, Callable, NoReturn, Optional, Union

from . import _worker
from ._http import Connection
from ._load import checked_root, decoded_path, host_and_port, load
from .context import Context, ServiceError
from .request import PeerGone, Request

#: LIMIT: seconds that an application has at its end; the launcher ends the process after `drain_timeout`.
_SHUTDOWN_MAX = 10.0
_VERSION = {"version": "3.0", "spec_version": "2.4"}


class _Http:
    """One request, as `receive` and `send` of an application."""

    def __init__(self, request: Request, connection: Connection) -> None:
        self._request, self._connection = request, connection
        self._has_body = self._is_complete = False
        self._completed = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        if not self._has_body:
            try:
                part = await self._request.body.part()
            except PeerGone:
                return {"type": "http.disconnect"}
            self._has_body = not part
            return {"type": "http.request", "body": part, "more_body": not self._has_body}
        gone = [asyncio.ensure_future(event.wait()) for event in (self._connection.gone, self._completed)]
        try:
            await asyncio.wait(gone, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in gone:
                one.cancel()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        kind = message["type"]
        if kind == "http.response.start":
            fields = [(bytes(name), bytes(value)) for name, value in message.get("headers", ())]
            self._connection.start_response(message["status"], fields)
        elif kind == "http.response.body":
            more = bool(message.get("more_body", False))
            await self._connection.send(bytes(message.get("body", b"")), more)
            if not more:
                self._completed.set()
        else:
            raise ValueError(f"an application sent {kind!r} for a request by HTTP")


class _Lifespan:
    """The application's life: its start, and its end."""

    def __init__(self, application: Callable[..., Any]) -> None:
        self._application = application
        self.state: dict[str, Any] = {}
        self._orders: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._said: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._task: Optional[asyncio.Task[None]] = None

    async def start(self) -> None:
        scope = {"type": "lifespan", "asgi": _VERSION, "state": self.state}
        self._task = asyncio.ensure_future(self._application(scope, self._orders.get, self._said.put))
        said = await self._tell("lifespan.startup")
        if said is None:
            # It knows no lifespan, or has failed before it said so: an application that is broken fails with a request.
            self._task = None
        elif said["type"] == "lifespan.startup.failed":
            raise ServiceError(f"the application could not start: {said.get('message') or 'it gives no reason'}")

    async def stop(self) -> None:
        if self._task is not None and not self._task.done():
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._tell("lifespan.shutdown"), _SHUTDOWN_MAX)

    async def _tell(self, kind: str) -> Optional[dict[str, Any]]:
        """What the application says to this; None if it ends instead."""
        self._orders.put_nowait({"type": kind})
        said = asyncio.ensure_future(self._said.get())
        await asyncio.wait({said, self._task}, return_when=asyncio.FIRST_COMPLETED)
        if said.done():
            return said.result()
        said.cancel()
        # Seen, so that nobody misses it.
        self._task.exception()
        return None


class _Asgi:
    command = None

    def __init__(self, application: Union[str, Callable[..., Any]], root: str) -> None:
        self._name, self._root = application, checked_root(root)
        self._application: Callable[..., Any]
        self._lifespan: _Lifespan

    async def start(self, cx: Context) -> None:
        self._application = load(self._name) if isinstance(self._name, str) else self._name
        self._lifespan = _Lifespan(self._application)
        await self._lifespan.start()

    async def answer(self, request: Request, connection: Connection) -> None:
        scope = self._scope(request)
        if (request.headers.get("upgrade") or "").lower() == "websocket":
            from ._websocket import serve

            return await serve(self._application, scope, request, connection)
        one = _Http(request, connection)
        await self._application(scope, one.receive, one.send)

    async def stop(self) -> None:
        await self._lifespan.stop()

    def _scope(self, request: Request) -> dict[str, Any]:
        return {
            "type": "http",
            "asgi": _VERSION,
            "http_version": "1.1",
            "method": request.method,
            "scheme": request.scheme,
            "path": decoded_path(request).decode(errors="replace"),
            "raw_path": request.path.encode("latin-1"),
            "query_string": request.query.encode("latin-1"),
            "root_path": self._root,
            "headers": request.headers.raw,
            "client": (str(request.client.ip), request.client.port),
            "server": host_and_port(request),
            "state": self._lifespan.state.copy(),
        }


def asgi(application: Union[str, Callable[..., Any]], *, root_path: str = "") -> NoReturn:
    """The whole of a program that serves an ASGI application, by its name (`package.module:app`) or itself. `root_path` is
    what the application is to think that it is mounted at."""
    sys.exit(_worker.run(_Asgi(application, root_path), sys.argv[1:]))
