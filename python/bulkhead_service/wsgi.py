"""Applications of WSGI (PEP 3333): Flask, Django and others, each request in a thread.

Runs in: a service. Sees: requests. Never: tells a client why an application has failed.
"""

from __future__ import annotations

import asyncio
import io
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Coroutine, Iterable, NoReturn, Optional, Union

from . import _worker
from ._http import Connection
from ._load import checked_root, decoded_path, host_and_port, load
from .context import Context
from .request import Request

#: How many requests are answered at once, if nothing else is said; others wait for a thread.
THREADS = 8


class _Input(io.RawIOBase):
    """The body of a request, as a thread reads it."""

    def __init__(self, request: Request, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._request, self._loop = request, loop
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._rest:
            part = asyncio.run_coroutine_threadsafe(self._request.body.part(), self._loop).result()
            self._rest = memoryview(part)
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count


class _Exchange:
    """One request in its thread."""

    def __init__(self, request: Request, connection: Connection, loop: asyncio.AbstractEventLoop) -> None:
        self._request, self._connection, self._loop = request, connection, loop
        self._response: Optional[tuple[int, list[tuple[bytes, bytes]]]] = None
        self._is_begun = False

    def run(self, application: Callable[..., Any], environ: dict[str, Any]) -> None:
        environ["wsgi.input"] = io.BufferedReader(_Input(self._request, self._loop))
        parts = application(environ, self._start_response)
        try:
            self._send_all(parts)
        finally:
            close = getattr(parts, "close", None)
            if close is not None:
                close()

    def _start_response(self, status: str, fields: list[tuple[str, str]], exc_info: Any = None) -> Callable[[bytes], None]:
        if exc_info is not None:
            try:
                if self._is_begun:
                    raise exc_info[1].with_traceback(exc_info[2])
            finally:
                exc_info = None
        elif self._response is not None:
            raise RuntimeError("start_response was called before, and there is no error")
        encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in fields]
        self._response = (int(status[:3]), encoded)
        return lambda part: self._send(part, True)

    def _send_all(self, parts: Iterable[bytes]) -> None:
        if isinstance(parts, (list, tuple)):
            return self._send(b"".join(parts), False)
        for part in parts:
            if part:
                self._send(part, True)
        self._send(b"", False)

    def _send(self, part: bytes, more: bool) -> None:
        if self._response is None:
            raise RuntimeError("the application has not called start_response")
        self._wait(self._send_part(bytes(part), more))

    async def _send_part(self, part: bytes, more: bool) -> None:
        if not self._is_begun:
            self._is_begun = True
            self._connection.start_response(*self._response)
        await self._connection.send(part, more)

    def _wait(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()


class _Wsgi:
    command = None

    def __init__(self, application: Union[str, Callable[..., Any]], root: str, threads: int) -> None:
        self._name, self._root = application, checked_root(root)
        self._application: Callable[..., Any]
        self._threads = ThreadPoolExecutor(threads, "wsgi")
        self._are_several = threads > 1

    async def start(self, cx: Context) -> None:
        # In a thread, where what is imported may call a data source.
        find = lambda: load(self._name) if isinstance(self._name, str) else self._name
        self._application = await asyncio.get_running_loop().run_in_executor(self._threads, find)

    async def answer(self, request: Request, connection: Connection) -> None:
        loop = asyncio.get_running_loop()
        exchange = _Exchange(request, connection, loop)
        await loop.run_in_executor(self._threads, exchange.run, self._application, self._environ(request))

    async def stop(self) -> None:
        self._threads.shutdown(wait=False)

    def _environ(self, request: Request) -> dict[str, Any]:
        path = decoded_path(request).decode("latin-1")
        # PEP 3333: bytes stand in these as characters of Latin-1.
        root = self._root.encode().decode("latin-1")
        is_below = path == root or path.startswith(root + "/")
        host, port = host_and_port(request)
        environ: dict[str, Any] = {
            "REQUEST_METHOD": request.method,
            "SCRIPT_NAME": root if is_below else "",
            "PATH_INFO": path[len(root):] if is_below else path,
            "QUERY_STRING": request.query,
            "REQUEST_URI": request.target,
            "SERVER_NAME": host,
            "SERVER_PORT": str(port),
            "SERVER_PROTOCOL": "HTTP/1.1",
            "REMOTE_ADDR": str(request.client.ip),
            "REMOTE_PORT": str(request.client.port),
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": request.scheme,
            "wsgi.errors": sys.stderr,
            "wsgi.multithread": self._are_several,
            "wsgi.multiprocess": True,
            "wsgi.run_once": False,
            "wsgi.input_terminated": True,
        }
        for name, value in request.headers.raw:
            key = name.decode("latin-1").upper().replace("-", "_")
            if key not in ("CONTENT_TYPE", "CONTENT_LENGTH"):
                key = f"HTTP_{key}"
            text = value.decode("latin-1")
            environ[key] = f"{environ[key]}{'; ' if key == 'HTTP_COOKIE' else ', '}{text}" if key in environ else text
        return environ


def wsgi(application: Union[str, Callable[..., Any]], *, root_path: str = "", threads: int = THREADS) -> NoReturn:
    """The whole of a program that serves a WSGI application, by its name (`package.module:app`) or itself. `root_path`
    becomes `SCRIPT_NAME`; `threads` requests are answered at once."""
    sys.exit(_worker.run(_Wsgi(application, root_path, threads), sys.argv[1:]))
