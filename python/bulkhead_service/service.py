"""A service of its own kind: long-lived state, and an answer to each request.

Runs in: a service. Sees: requests. Never: tells a client why it has failed.
"""

from __future__ import annotations

import sys
from typing import Awaitable, Callable, NoReturn, Optional, Union

from . import _worker
from ._http import Connection
from ._orders import Command
from .context import Context
from .request import Request
from .response import Response


class Service:
    """A service. Everything runs on one thread; a request goes on where another one awaits."""

    async def init(self, cx: Context) -> None:
        """Makes the state, before the first request; an exception ends the process, and is in the error log."""

    async def process(self, request: Request) -> Response:
        """Answers one request."""
        raise NotImplementedError

    async def command(self, name: str, argument: str) -> str:
        """Carries out an order of the administrator (`bulkhead send SITE/SERVICE NAME [ARGUMENT]`), and says what has become of it:
        at most 16 KiB, within 10 seconds. An exception tells why it is not carried out."""
        raise ValueError(f'this service has no order "{name}"')


Process = Callable[[Request], Awaitable[Response]]
Init = Callable[[Context], Awaitable[None]]


class _Native:
    def __init__(self, process: Process, init: Optional[Init], command: Optional[Command] = None) -> None:
        self._process, self._init, self.command = process, init, command

    async def start(self, cx: Context) -> None:
        if self._init is not None:
            await self._init(cx)

    async def answer(self, request: Request, connection: Connection) -> None:
        response = await self._process(request)
        if not isinstance(response, Response):
            raise TypeError(f"`process` has returned {type(response).__name__}; it returns a Response")
        await response._send(connection)

    async def stop(self) -> None:
        pass


def main(service: Union[type[Service], Process], init: Optional[Init] = None) -> NoReturn:
    """The whole of a program that is this service: a class of `Service`, or an `async` function that answers requests and
    one that is called before the first. Does not return."""
    if isinstance(service, type):
        made = service()
        application = _Native(made.process, made.init, made.command)
    else:
        application = _Native(service, init)
    sys.exit(_worker.run(application, sys.argv[1:]))
