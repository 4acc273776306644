"""Orders of the administrator: what the service has done and is doing, and words of its own.

Runs in: a service. Sees: what the administrator has typed, by way of the admin role. Never: answers more than one order on a
channel.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import time
from types import SimpleNamespace
from typing import Awaitable, Callable, Optional

from ._channel import Channel
from ._messages import ADMIN_TO_SERVICE, ORDER_ANSWER_MAX, SERVICE_TO_ADMIN
from ._receiver import Receiver

#: Carries out an order by its name, with its argument.
Command = Callable[[str, str], Awaitable[Optional[str]]]


class Orders:
    """The orders of one process."""

    def __init__(self, receiver: Receiver, command: Optional[Command]) -> None:
        self._receiver, self._command = receiver, command
        self._since = time.monotonic()
        # The event loop knows tasks by weak references alone.
        self._tasks: set[asyncio.Task[None]] = set()

    def attend(self, descriptor: int) -> None:
        """Carries out the order on a channel."""
        try:
            channel = socket.socket(fileno=descriptor)
        except OSError:
            os.close(descriptor)
            return
        line: Channel

        def arrived(message: SimpleNamespace, _: list[int]) -> None:
            task = asyncio.ensure_future(self._carry_out(message, line))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        line = Channel(channel, ADMIN_TO_SERVICE, SERVICE_TO_ADMIN, arrived, lambda _: None)

    async def _carry_out(self, message: SimpleNamespace, line: Channel) -> None:
        try:
            text = self._diagnostics() if message.kind == "Diagnostics" else await self._own(message.name, message.argument)
            line.send("Done", text=_cut(text))
        except Exception as error:  # Whatever the service raises is its answer.
            line.send("Failed", reason=_cut(str(error) or type(error).__name__))

    async def _own(self, name: str, argument: str) -> str:
        if self._command is None:
            raise ValueError(f'this service has no order "{name}"')
        return await self._command(name, argument) or ""

    def _diagnostics(self) -> str:
        counters = self._receiver.counters
        return json.dumps({
            "uptime_s": int(time.monotonic() - self._since), "connections_now": counters.connections_now,
            "connections": counters.connections, "requests": counters.requests,
        }, separators=(",", ":"))


def _cut(text: str) -> str:
    """As much of a text as fits."""
    return text.encode("utf-8", "replace")[:ORDER_ANSWER_MAX].decode("utf-8", "ignore")
