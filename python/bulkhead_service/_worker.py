"""The worker's life: set up, initialise, serve, retire.

Runs in: a service, inside its jail. Sees: the launcher's messages (trusted: nonsense from there ends the process), and
connections, which it passes on. Never: asks for a connection before `init` is done.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import traceback
from types import SimpleNamespace
from typing import Callable, Optional, Protocol

from . import _prctl
from ._channel import Channel, channel_socket, say_pipe
from ._codec import Address
from ._http import Connection
from ._log import Level, Log
from ._messages import CHILD_TO_LAUNCHER, LAUNCHER_TO_SERVICE
from ._orders import Command, Orders
from ._receiver import Receiver
from .context import Context, Limits, ServiceError, _set_current
from ._link import Link
from .data import DataSource
from .request import Request

#: The third is only there if nothing can be said at the first.
_CONTROL, _LOG, _SAY = 3, 4, 5
#: In how many steps it is looked whether there was a connection.
_IDLE_STEPS = 4


class Application(Protocol):
    """Whatever answers requests."""

    #: What carries out the administrator's orders, if anything does.
    command: Optional[Command]

    async def start(self, cx: Context) -> None:
        """Before the first request; an exception ends the start."""

    async def answer(self, request: Request, connection: Connection) -> None:
        """Answers one request on its connection."""

    async def stop(self) -> None:
        """After the last request."""


class Worker:
    """One process of a service."""

    def __init__(self, application: Application, arguments: list[str], control: socket.socket, say: Optional[int], log: Optional[socket.socket]) -> None:
        self._application, self._arguments = application, arguments
        self._log_socket = log
        self._messages: asyncio.Queue[tuple[Optional[SimpleNamespace], list[int]]] = asyncio.Queue()
        self._fault: Optional[Exception] = None
        self._control = Channel(
            control, LAUNCHER_TO_SERVICE, CHILD_TO_LAUNCHER,
            lambda message, descriptors: self._messages.put_nowait((message, descriptors)), self._control_ended, say,
        )
        self._links: dict[str, Link] = {}
        self._sources: list[int] = []
        self._connections: set[Connection] = set()
        self.log: Log
        self.limits: Limits
        self.receiver: Receiver

    async def run(self) -> None:
        """Runs a worker from its start to its end."""
        setup = await self._set_up()
        if setup is None:
            return
        sources = {name: DataSource(link) for name, link in self._links.items()}
        cx = Context(self._arguments, self.limits, self.log, sources)
        _set_current(cx)
        try:
            later = await self._initialise(cx)
            if later is None:
                self.log.event(Level.INFO, "the launcher closed its channel before `init` was done")
            else:
                await self._serve(later, setup.limits.idle_stop_ms)
                await self._application.stop()
        finally:
            await self.log.flush()

    def failed(self) -> None:
        """Writes the exception that is being handled to the error log; a client is told nothing of it."""
        for line in traceback.format_exc().splitlines():
            self.log.event(Level.ERROR, line)

    async def answer(self, request: Request, connection: Connection) -> None:
        """Has the service answer a request."""
        await self._application.answer(request, connection)

    async def _set_up(self) -> Optional[SimpleNamespace]:
        """Receives everything up to `Begin`; None if the launcher has closed its channel before."""
        setup = None
        while True:
            message, descriptors = await self._next()
            if message is None:
                return None
            if setup is None:
                if message.kind != "Limits":
                    raise _unexpected(message)
                setup = message
                self.limits = Limits._of(message.limits)
                _prctl.allow_dump(message.dumps)
                self.log = Log(self._log_socket, message.limits.flush_ms)
                self.receiver = Receiver(message.limits.connections, self._connect)
            elif message.kind == "Begin":
                return setup
            elif message.kind == "DataSource":
                self._links[message.name] = Link()
            elif message.kind == "Attach" and descriptors:
                self._sources.append(_of_site(message, descriptors))
            elif message.kind == "Templates":
                raise ServiceError("`templates` is for services in Rust; take it out of the configuration, and use a library of Python's")
            else:
                raise _unexpected(message)

    async def _initialise(self, cx: Context) -> Optional[list]:
        """Waits for the end of `init`; what the launcher has said meanwhile, or None if it has closed its channel."""
        later = []
        starting = asyncio.ensure_future(self._application.start(cx))
        receiving = asyncio.ensure_future(self._next())
        try:
            while True:
                await asyncio.wait({starting, receiving}, return_when=asyncio.FIRST_COMPLETED)
                if starting.done():
                    starting.result()
                    if receiving.done():
                        later.append(receiving.result())
                    return later
                message, descriptors = receiving.result()
                if message is None:
                    return None
                if message.kind == "DataProxy" and descriptors:
                    # `init` may wait for what it reads from there.
                    self._attach_data(message, descriptors)
                else:
                    later.append((message, descriptors))
                receiving = asyncio.ensure_future(self._next())
        finally:
            starting.cancel()
            receiving.cancel()

    async def _serve(self, later: list, idle_stop_ms: int) -> None:
        """Serves until the launcher closes its channel, and then until everything has been answered."""
        self._orders = Orders(self.receiver, self._application.command)
        self._control.send("Ready")
        for descriptor in self._sources:
            self.receiver.attach(descriptor)
        idle = asyncio.ensure_future(self._report_idle(idle_stop_ms / 1000)) if idle_stop_ms else None
        for message, descriptors in later:
            if message is None:
                break
            self._follow(message, descriptors)
        else:
            while True:
                message, descriptors = await self._next()
                if message is None:
                    break
                self._follow(message, descriptors)
        if idle is not None:
            idle.cancel()
        self.receiver.drain()
        await self.receiver.finished()

    def _follow(self, message: SimpleNamespace, descriptors: list[int]) -> None:
        if message.kind == "Attach" and descriptors:
            self.receiver.attach(_of_site(message, descriptors))
        elif message.kind == "DataProxy" and descriptors:
            self._attach_data(message, descriptors)
        elif message.kind == "Orders" and descriptors:
            self._orders.attend(descriptors[0])
        elif message.kind == "Report":
            self._control.send("Counters", counters=self.receiver.counters)
        else:
            raise _unexpected(message)

    def _attach_data(self, message: SimpleNamespace, descriptors: list[int]) -> None:
        if message.name not in self._links:
            raise ServiceError(f'the launcher has sent no data source "{message.name}"')
        self._links[message.name].attach(descriptors[0], message.token)

    def _connect(self, stream: socket.socket, preread: bytes, peer: Address, ended: Callable[[], None]) -> None:
        connection = Connection(self, peer, preread)
        # The event loop knows tasks by weak references alone.
        self._connections.add(connection)

        def gone() -> None:
            self._connections.discard(connection)
            ended()

        connection.start(stream, gone)

    async def _report_idle(self, seconds: float) -> None:
        """Says that there has been no connection for so long, again and again."""
        counters = self.receiver.counters
        quiet, seen = 0, counters.connections
        while True:
            await asyncio.sleep(seconds / _IDLE_STEPS)
            is_quiet = counters.connections_now == 0 and counters.connections == seen
            quiet, seen = quiet + 1 if is_quiet else 0, counters.connections
            if quiet == _IDLE_STEPS:
                quiet = 0
                self._control.send("Idle")

    async def _next(self) -> tuple[Optional[SimpleNamespace], list[int]]:
        """The next message of the launcher, or None at the end of its channel."""
        arrived = await self._messages.get()
        if arrived[0] is None and self._fault is not None:
            raise ServiceError(f"from the launcher: {self._fault}")
        return arrived

    def _control_ended(self, error: Optional[Exception]) -> None:
        self._fault = error
        self._messages.put_nowait((None, []))


def _of_site(message: SimpleNamespace, descriptors: list[int]) -> int:
    if message.source != "Site":
        raise ServiceError(
            "`takes_connections` is for services whose program is compiled with the SDK for Rust: in Python, requests come by "
            "way of the site's worker; take it out of the configuration"
        )
    return descriptors[0]


def _unexpected(message: SimpleNamespace) -> ServiceError:
    return ServiceError(f"the launcher sent {message.kind} out of turn or without its descriptor")


def run(application: Application, arguments: list[str]) -> int:
    """The whole life of a process; its exit status."""
    control = channel_socket(_CONTROL)
    if control is None:
        print("error: descriptor 3 is no channel; this program is started by `bulkhead run CONFIG`", file=sys.stderr)
        return 2
    # Nothing secret is in memory yet; from here on nobody looks into it.
    _prctl.allow_dump(False)
    say, log = say_pipe(_SAY), channel_socket(_LOG)

    async def live() -> None:
        await Worker(application, arguments, control, say, log).run()

    try:
        asyncio.run(live())
    except ServiceError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except Exception:
        traceback.print_exc()
        return 1
    return 0
