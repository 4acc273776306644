"""Connections that arrive from the site's worker, and the credits against which it sends them.

Runs in: a service. Sees: bundles of the site's worker. Never: takes a connection for which it has given no credit, or
keeps silent about one that ended.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from types import SimpleNamespace
from typing import Callable, Optional

from ._channel import Channel, connection
from ._codec import Address
from ._messages import FROM_WORKER, NUMBERS_MAX, TO_WORKER

#: LIMIT: connections of one source that may be on their way at once.
_CREDITS = 64


class Counters:
    """What `bulkhead status` shows."""

    def __init__(self) -> None:
        self.connections_now = self.connections = self.requests = 0


class _Source:
    def __init__(self) -> None:
        self.channel: Optional[Channel] = None
        #: Credits to be returned, and connections that ended, since the last message.
        self.credits, self.done = _CREDITS, []
        #: Credits that the source has and has not used.
        self.granted = 0
        self.has_taken = self.is_due = self.has_ended = False


class Receiver:
    """All sources of one worker. `serve` gets each connection: the socket, what was read of it, its peer, and what is to
    be called at its end."""

    def __init__(self, most: int, serve: Callable[[socket.socket, bytes, Address, Callable[[], None]], None]) -> None:
        self._most, self._serve = most, serve
        self._sources: list[_Source] = []
        self._loop = asyncio.get_running_loop()
        self._is_draining = False
        self._finished: asyncio.Future[None] = self._loop.create_future()
        self.counters = Counters()

    def attach(self, descriptor: int) -> None:
        """Adds a source, and grants it its first credits."""
        source = _Source()
        source.channel = Channel(
            socket.socket(fileno=descriptor), TO_WORKER, FROM_WORKER,
            lambda message, descriptors: self._take(source, message, descriptors),
            lambda error: self._ended(source, error),
        )
        self._sources.append(source)
        if self._is_draining:
            source.channel.send("Drain")
        else:
            self._return(source)

    def drain(self) -> None:
        """Asks every source to send no more; what is under way still arrives."""
        self._is_draining = True
        for source in self._sources:
            source.channel.send("Drain")
        self._look_for_the_end()

    async def finished(self) -> None:
        """Waits until the worker drains, every source has said its last, and no connection is left."""
        await self._finished

    def _take(self, source: _Source, message: SimpleNamespace, descriptors: list[int]) -> None:
        bundles = [message.bundle] if message.kind == "Connection" else message.bundles
        if not bundles or len(bundles) != len(descriptors) or len(bundles) > source.granted:
            return self._break_off(source, "connections without credits, or bundles without connections")
        connections = [connection(descriptor) for descriptor in descriptors]
        if None in connections:
            return self._break_off(source, "what must not be closed")
        source.granted -= len(bundles)
        source.has_taken = True
        for bundle, stream in zip(bundles, connections):
            self.counters.connections += 1
            self.counters.connections_now += 1
            if self.counters.connections_now <= self._most:
                source.credits += 1
            ended = lambda number=bundle.id: self._connection_ended(source, number)
            self._serve(stream, bundle.preread, bundle.peer, ended)
        self._return(source)

    def _break_off(self, source: _Source, why: str) -> None:
        source.channel.break_off()
        self._ended(source, ValueError(why))

    def _connection_ended(self, source: _Source, number: int) -> None:
        was_full = self.counters.connections_now > self._most
        self.counters.connections_now -= 1
        source.credits += was_full
        source.done.append(number)
        self._return(source)
        self._look_for_the_end()

    def _return(self, source: _Source) -> None:
        """Has what is to be returned sent once in a turn of the loop."""
        if not source.is_due and not source.has_ended:
            source.is_due = True
            self._loop.call_soon(self._send_returns, source)

    def _send_returns(self, source: _Source) -> None:
        source.is_due = False
        # The source waits for a word that connections have arrived, also if their credits do not come back.
        while source.credits or source.done or source.has_taken:
            credits = 0 if self._is_draining else source.credits
            done, source.done = source.done[:NUMBERS_MAX], source.done[NUMBERS_MAX:]
            is_needed = credits or done or (source.has_taken and not self._is_draining)
            source.credits, source.has_taken = 0, False
            # Before they are sent: they may be used before this is gone on with.
            source.granted += credits
            if is_needed:
                source.channel.send("Returns", credits=credits, done=done)

    def _ended(self, source: _Source, error: Optional[Exception]) -> None:
        if error is not None:
            print(f"warning: the site's worker sends what is no connection: {error}; its channel is closed", file=sys.stderr)
        source.has_ended = True
        self._sources.remove(source)
        self._look_for_the_end()

    def _look_for_the_end(self) -> None:
        is_last = self._is_draining and not self._sources and self.counters.connections_now == 0
        if is_last and not self._finished.done():
            self._finished.set_result(None)
