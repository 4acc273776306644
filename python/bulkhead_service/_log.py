"""Lines of the error log on their way to the logger, in batches.

Runs in: a service. Sees: what the service says. Never: waits for the logger, or loses a record without leaving a gap in
the numbers.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from collections import deque
from enum import IntEnum
from typing import Optional

from ._codec import U16, U64
from ._messages import LOG_BATCH_MAX, LOG_RECORD_MAX, LOG_TEXT_MAX, VERSION

#: LIMIT: full batches that wait while the logger does not read: 1 MiB of them.
_WAITING_MAX = (1 << 20) // LOG_BATCH_MAX
#: LIMIT: seconds that the end of the process waits for the logger.
_FLUSH_MAX = 2.0
_EVENT = 1


class Level(IntEnum):
    """How bad an event is."""

    ERROR = 0
    WARNING = 1
    INFO = 2


def event_record(time_us: int, level: Level, text: str) -> bytes:
    """One record; what is longer than the limit is cut, at a character's border."""
    content = text.encode(errors="replace")
    if len(content) > LOG_TEXT_MAX:
        content = content[:LOG_TEXT_MAX].decode(errors="ignore").encode()
    record = bytearray((_EVENT,))
    U64.put(time_us, record)
    record.append(level)
    U16.put(len(content), record)
    record += content
    out = bytearray()
    U16.put(len(record), out)
    return bytes(out + record)


def batch_head(sequence: int) -> bytearray:
    """What a batch begins with whose first record has this number."""
    out = bytearray((VERSION,))
    U64.put(sequence, out)
    return out


class Log:
    """The error log of this process; without a channel, standard error."""

    def __init__(self, channel: Optional[socket.socket], flush_ms: int) -> None:
        self._channel, self._flush_s = channel, flush_ms / 1000
        self._current: Optional[bytearray] = None
        self._waiting: deque[bytes] = deque()
        self._next = 0
        self._timer: Optional[asyncio.TimerHandle] = None
        self._loop = asyncio.get_running_loop()

    def event(self, level: Level, text: str) -> None:
        """Writes a line; may be called by any thread."""
        if self._channel is None:
            print(f"{level.name.lower()}: {text}", file=sys.stderr)
            return
        record = event_record(time.time_ns() // 1000, level, text)
        try:
            own = asyncio.get_running_loop()
        except RuntimeError:
            own = None
        if own is self._loop:
            self._append(record)
        else:
            self._loop.call_soon_threadsafe(self._append, record)

    async def flush(self) -> None:
        """Sends everything that waits, for at most two seconds."""
        until = self._loop.time() + _FLUSH_MAX
        if self._channel is None:
            return
        self._pass_on()
        while self._waiting and self._loop.time() < until:
            await asyncio.sleep(0.01)
            self._send()

    def _append(self, record: bytes) -> None:
        if len(self._waiting) >= _WAITING_MAX:
            # Its number is missing in what the logger gets.
            self._pass_on()
            self._next += 1
            return
        if self._current is None:
            self._current = batch_head(self._next)
            self._timer = self._loop.call_later(self._flush_s, self._pass_on)
        self._current += record
        self._next += 1
        if len(self._current) + LOG_RECORD_MAX > LOG_BATCH_MAX:
            self._pass_on()

    def _pass_on(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._current is not None:
            self._waiting.append(bytes(self._current))
            self._current = None
        self._send()

    def _send(self) -> None:
        while self._waiting:
            try:
                self._channel.send(self._waiting[0], socket.MSG_NOSIGNAL)
            except (BlockingIOError, InterruptedError):
                self._loop.add_writer(self._channel, self._send)
                return
            except OSError:
                # The launcher keeps the other end as long as it lives: the end of this process is near.
                self._waiting.clear()
                break
            self._waiting.popleft()
        self._loop.remove_writer(self._channel)
