"""The way to one data proxy, whichever process that is.

Runs in: a service. Sees: answers of a data proxy. Never: repeats a call that may have been done. Calls go to the proxy that
came last; what an earlier one has under way it goes on with.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from types import SimpleNamespace
from typing import Optional

from ._channel import Channel
from ._messages import (
    CALLS_MAX, DATA_PROXY_TO_SERVICE, PART_MAX, SERVICE_TO_DATA_PROXY, TIMEOUTS_MAX, WORD_WAIT_MS,
)

#: LIMIT: seconds that a call waits for a data proxy: a new one is there within a second.
_PROXY_WAIT = 5.0
#: LIMIT: seconds in which what a proxy has said is read before calls fail for which it was too late.
_READ_WAIT = 0.005
#: LIMIT: bytes of one answer; a statement may give 256 MiB, and a proxy that sends more is not what it should be.
_ANSWER_BYTES_MAX = 257 << 20
#: What a number of a call may be.
_NUMBERS = 1 << 32


class DataError(Exception):
    """Why a call has no answer, and what has become of it."""

    @property
    def is_constraint(self) -> bool:
        """Whether a rule of the tables has refused it, such as a name that is there already."""
        return False


class Failed(DataError):
    """The data proxy says why: nothing has changed. `fault` is `Refused`, `Parameters`, `TooLarge`, `Busy`, `Late`,
    `Constraint` or `Database`."""

    def __init__(self, fault: str, reason: str) -> None:
        super().__init__(reason)
        self.fault, self.reason = fault, reason

    @property
    def is_constraint(self) -> bool:
        """Whether a rule of the tables has refused it, such as a name that is there already."""
        return self.fault == "Constraint"


class Unavailable(DataError):
    """There is no data proxy: the call was not made."""

    def __init__(self) -> None:
        super().__init__("the data source is not there")


class Lost(DataError):
    """The data proxy or its database server was lost while the call was under way: what it changes may have happened, or not."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the data source was lost while the call was under way: {reason}")
        self.reason = reason


class Call:
    """A call without an answer."""

    def __init__(self, name: str, values: bytes) -> None:
        self.name, self.values = name, values
        self.reply: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.answer = bytearray()
        #: Until when it waits for a proxy, if it has had to, and what ends that.
        self.until: Optional[float] = None
        self.timer: Optional[asyncio.TimerHandle] = None
        self.proxy: Optional[_Proxy] = None
        #: When it was made.
        self.made = asyncio.get_running_loop().time()

    def fail(self, error: DataError) -> None:
        """Ends it, if somebody still waits."""
        if not self.reply.done():
            self.reply.set_exception(error)


class Link:
    """See the file's head."""

    def __init__(self) -> None:
        self._current: Optional[_Proxy] = None
        self._waiting: deque[Call] = deque()

    def attach(self, descriptor: int, token: bytes) -> None:
        """Has calls go to another process of the proxy."""
        before, self._current = self._current, _Proxy(self, descriptor, token)
        if before is not None:
            before.retire()
        waiting, self._waiting = self._waiting, deque()
        for call in waiting:
            self.send(call)

    async def call(self, name: str, values: bytes) -> bytes:
        """Makes a call; the answer. One whose caller is cancelled is cancelled."""
        call = Call(name, values)
        self.send(call)
        try:
            return await call.reply
        except asyncio.CancelledError:
            if call.proxy is not None:
                call.proxy.cancel(call)
            raise

    def send(self, call: Call) -> None:
        """Has a call made, or wait for a proxy."""
        if call.reply.done():
            return
        if call.timer is not None:
            call.timer.cancel()
        if self._current is not None:
            return self._current.call(call)
        loop = asyncio.get_running_loop()
        # Once: proxies that come and do not stay are none.
        call.until = call.until or loop.time() + _PROXY_WAIT
        call.timer = loop.call_at(call.until, self._give_up, call)
        self._waiting.append(call)

    def _give_up(self, call: Call) -> None:
        if call in self._waiting:
            self._waiting.remove(call)
            call.fail(Unavailable())

    def gone(self, proxy: _Proxy, unsent: list[Call]) -> None:
        """A proxy has ended; these calls were not sent to it."""
        if self._current is proxy:
            self._current = None
        for call in unsent:
            self.send(call)


class _Proxy:
    """One process of the data proxy."""

    def __init__(self, link: Link, descriptor: int, token: bytes) -> None:
        self._link = link
        self._calls: dict[int, Call] = {}
        #: Calls that the proxy would refuse, as too many are under way or it does not know us yet.
        self._later: deque[Call] = deque()
        self._number = 0
        self._is_welcome = self._is_last = False
        #: How long calls may take, in seconds, as the proxy says: a proxy that hangs says nothing more. None: nobody
        #: knows.
        self._usual: Optional[float] = None
        self._timeouts: dict[str, float] = {}
        self._timer: Optional[asyncio.TimerHandle] = None
        self._channel = Channel(
            socket.socket(fileno=descriptor), DATA_PROXY_TO_SERVICE, SERVICE_TO_DATA_PROXY, self._take, self._ended,
        )
        self._channel.send("Login", token=token)
        self._channel.send("Timeouts")

    def retire(self) -> None:
        """Gets no more calls: another process is there."""
        self._is_last = True
        self._end_if_last()

    def call(self, call: Call) -> None:
        """Makes a call, or keeps it until there is room for it."""
        call.proxy = self
        self._later.append(call)
        self._look_at(self._until(call))
        self._send()

    def _until(self, call: Call) -> Optional[float]:
        """Until when a call is waited for. A proxy that has not taken the login has been sent none; one of a version before
        does not say."""
        timeout = self._timeouts.get(call.name, self._usual)
        if timeout is None:
            return None if self._is_welcome else call.made + _PROXY_WAIT
        return call.made + timeout + WORD_WAIT_MS / 1000

    def _look_at(self, at: Optional[float]) -> None:
        """Has it be looked at that time whether calls have taken too long, if it was to be later."""
        if at is None or (self._timer is not None and self._timer.when() <= at):
            return
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        # What the proxy has said meanwhile is read first: this process may have had no processor.
        self._timer = loop.call_at(at, lambda: loop.call_later(_READ_WAIT, self._give_up))

    def _look_again(self) -> None:
        """Finds out when it is to be looked next."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        for call in [*self._calls.values(), *self._later]:
            if not call.reply.done():
                self._look_at(self._until(call))

    def _give_up(self) -> None:
        """Fails the calls that have taken too long. The proxy may still answer them."""
        now = asyncio.get_running_loop().time()
        is_late = lambda call: not call.reply.done() and (self._until(call) or now + 1) <= now
        for number, call in self._calls.items():
            if is_late(call):
                call.fail(Lost("its data proxy does not answer"))
                self._channel.send("Cancel", id=number)
        for call in [call for call in self._later if is_late(call)]:
            self._later.remove(call)
            call.fail(Unavailable())
        self._look_again()

    def cancel(self, call: Call) -> None:
        """Nobody waits for the answer any more."""
        if call in self._later:
            self._later.remove(call)
        for number, other in self._calls.items():
            if other is call:
                self._channel.send("Cancel", id=number)
        self._end_if_last()

    def _send(self) -> None:
        while self._is_welcome and self._later and len(self._calls) < CALLS_MAX:
            call = self._later.popleft()
            while self._number in self._calls:
                self._number = (self._number + 1) % _NUMBERS
            number, self._number = self._number, (self._number + 1) % _NUMBERS
            self._calls[number] = call
            parts = [call.values[at:at + PART_MAX] for at in range(0, len(call.values), PART_MAX)] or [b""]
            self._channel.send("Call", id=number, name=call.name, complete=len(parts) == 1, values=parts[0])
            for at, part in enumerate(parts[1:], 2):
                self._channel.send("More", id=number, complete=at == len(parts), values=part)

    def _take(self, message: SimpleNamespace, descriptors: list[int]) -> None:
        is_of_call = message.kind not in ("Welcome", "Timeouts", "Timeout")
        call = self._calls.get(message.id) if is_of_call else None
        if descriptors or (is_of_call and call is None):
            return self._break_off()
        if message.kind == "Welcome":
            self._is_welcome = True
        elif message.kind == "Timeouts":
            self._usual = message.usual_ms / 1000 if message.usual_ms else None
            self._timeouts.clear()
            self._look_again()
        elif message.kind == "Timeout":
            if len(self._timeouts) < TIMEOUTS_MAX:
                self._timeouts[message.name] = message.timeout_ms / 1000
            self._look_again()
        elif message.kind == "Failed":
            # The proxy is there, but has lost its server: nobody knows what has become of the call.
            lost = message.fault == "Lost"
            self._calls.pop(message.id).fail(Lost(message.reason) if lost else Failed(message.fault, message.reason))
        else:
            call.answer += message.results
            if len(call.answer) > _ANSWER_BYTES_MAX:
                return self._break_off()
            if message.kind == "Done":
                del self._calls[message.id]
                if not call.reply.done():
                    call.reply.set_result(bytes(call.answer))
        self._send()
        self._end_if_last()

    def _end_if_last(self) -> None:
        if self._is_last and not self._calls and not self._later:
            self._channel.close()

    def _break_off(self) -> None:
        self._channel.break_off()
        self._ended(None)

    def _ended(self, _: Optional[Exception]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        # Those that were sent may have been carried out, others were not.
        calls, later = list(self._calls.values()), list(self._later)
        self._calls.clear()
        self._later.clear()
        for call in calls:
            call.fail(Lost("its data proxy has gone"))
        for call in later:
            call.proxy = None
        self._link.gone(self, later)
