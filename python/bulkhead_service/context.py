"""What a service is told at its start, and its way to the error log.

Runs in: a service. Sees: its own arguments, written by the operator. Never: anything of a request.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Optional

from ._log import Level, Log

if TYPE_CHECKING:
    from .data import DataSource


class ServiceError(Exception):
    """What went wrong, in words for the operator."""


@dataclass(frozen=True)
class Limits:
    """The limits that hold for this worker, from the operator's configuration."""

    #: The longest request head, in bytes.
    head_bytes: int = 8192
    #: The longest request body, in bytes.
    body_bytes: int = 1 << 20
    #: How many connections the worker holds at once.
    connections: int = 64
    #: Seconds that a started request head may take.
    head_timeout: float = 10.0
    #: Seconds that a connection may go without any progress.
    idle_timeout: float = 60.0

    @classmethod
    def _of(cls, limits: SimpleNamespace) -> Limits:
        return cls(
            limits.head_bytes, limits.body_bytes, limits.connections, limits.head_timeout_ms / 1000,
            limits.idle_timeout_ms / 1000,
        )


class Context:
    """What a service is told at its start."""

    def __init__(
        self, arguments: list[str], limits: Limits, log: Optional[Log] = None, sources: Optional[dict[str, DataSource]] = None,
    ) -> None:
        #: The words of `command` after the program.
        self.arguments = arguments
        #: The operator's limits.
        self.limits = limits
        self._log, self._sources = log, sources or {}

    @classmethod
    def for_test(cls, *arguments: str) -> Context:
        """A context outside of Bulkhead, for a service's own tests; its events go to standard error."""
        return cls(list(arguments), Limits())

    def option(self, name: str) -> str:
        """The word after the argument `name`, as in `--index FILE`."""
        for before, word in zip(self.arguments, self.arguments[1:]):
            if before == name:
                return word
        raise ServiceError(f"the argument `{name} VALUE` is missing from `command`")

    def event(self, level: Level, text: object) -> None:
        """Writes a line to the error log; may be called by any thread."""
        if self._log is None:
            print(text, file=sys.stderr)
        else:
            self._log.event(level, str(text))

    def data(self, name: str) -> DataSource:
        """The data source of this name, which `data` of the service must have."""
        try:
            return self._sources[name]
        except KeyError:
            known = ", ".join(sorted(self._sources)) or "none"
            raise ServiceError(f'`data` of this service has no "{name}" in the configuration, but {known}') from None


_current: Optional[Context] = None


def context() -> Context:
    """The context of this process, for applications that are not given one (WSGI, ASGI)."""
    if _current is None:
        raise ServiceError("there is no context: this process was not started by `bulkhead run CONFIG`")
    return _current


def _set_current(cx: Context) -> None:
    global _current
    _current = cx
