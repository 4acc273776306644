"""Databases, by named statements: what a service may ask, and what comes back.

Runs in: a service. Sees: answers of a data proxy. Never: sends SQL, or knows a password of a database.

Source: Krohn, "Building Secure High-Performance Web Services with OKWS", USENIX ATC 2004, 3.3.
"""

from __future__ import annotations

import asyncio
import dataclasses
import struct
from typing import Any, Callable, Coroutine, Iterable, Iterator, NamedTuple, Optional, TypeVar, Union

from ._codec import U8, U16, U32, U64, DecodeError, Reader
from ._link import DataError, Failed, Link, Lost, Unavailable
from ._messages import PARAMETERS_BYTES_MAX, VALUES_MAX

__all__ = ["DataError", "DataSource", "Failed", "Lost", "Row", "Rows", "Shape", "SyncDataSource", "Unavailable", "Value"]

#: What a parameter or a column may be; `bool` is 0 or 1.
Value = Union[None, bool, int, float, str, bytes]
T = TypeVar("T")

_NULL, _INT, _REAL, _TEXT, _BLOB = range(5)
_I64, _F64 = struct.Struct("<q"), struct.Struct("<d")


class Shape(DataError):
    """The row, or the answer, is not what was asked for."""


class Row:
    """A row: its values in order, by a number, by the name of a column, or as an attribute. It is no tuple, whose methods
    would hide columns such as `count`."""

    __slots__ = ("_columns", "_values")

    def __init__(self, columns: tuple[str, ...], values: Iterable[Value]) -> None:
        self._columns, self._values = columns, tuple(values)

    def __getitem__(self, key: Union[int, str]) -> Any:
        if not isinstance(key, str):
            return self._values[key]
        try:
            return self._values[self._columns.index(key)]
        except ValueError:
            raise KeyError(f"the row has no column {key!r}, but {', '.join(self._columns)}") from None

    def __getattr__(self, name: str) -> Any:
        if name in Row.__slots__:
            # Not made yet, as for who copies it.
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(error.args[0]) from None

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[Value]:
        return iter(self._values)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Row):
            return (self._columns, self._values) == (other._columns, other._values)
        return self._values == other

    def __hash__(self) -> int:
        return hash(self._values)

    def as_dict(self) -> dict[str, Value]:
        """The values by the names of their columns."""
        return dict(zip(self._columns, self._values))

    def __repr__(self) -> str:
        return f"Row({', '.join(f'{name}={value!r}' for name, value in zip(self._columns, self))})"


class Rows(NamedTuple):
    """The result of one statement."""

    columns: tuple[str, ...]
    rows: list[Row]
    #: How many rows it has changed.
    changed: int


def encode_values(values: Iterable[Value]) -> bytes:
    """Parameters as they travel."""
    out = bytearray()
    for value in values:
        if value is None:
            out.append(_NULL)
        elif isinstance(value, int):
            out.append(_INT)
            try:
                out += _I64.pack(value)
            except struct.error:
                raise ValueError(f"the parameter {value} has more than 64 bits") from None
        elif isinstance(value, float):
            out.append(_REAL)
            out += _F64.pack(value)
        elif isinstance(value, (str, bytes, bytearray, memoryview)):
            content = value.encode() if isinstance(value, str) else bytes(value)
            out.append(_TEXT if isinstance(value, str) else _BLOB)
            U32.put(len(content), out)
            out += content
        else:
            raise TypeError(f"a parameter is {type(value).__name__}; it may be None, bool, int, float, str or bytes")
    if len(out) > PARAMETERS_BYTES_MAX:
        raise ValueError(f"the parameters have {len(out)} bytes; there may be {PARAMETERS_BYTES_MAX}")
    return bytes(out)


def _value(reader: Reader) -> Value:
    kind = U8.take(reader)
    if kind == _NULL:
        return None
    if kind == _INT:
        return _I64.unpack(reader.take(8))[0]
    if kind == _REAL:
        return _F64.unpack(reader.take(8))[0]
    if kind not in (_TEXT, _BLOB):
        raise DecodeError("type of a value out of its range")
    content = reader.take(U32.take(reader))
    try:
        return content.decode() if kind == _TEXT else content
    except UnicodeDecodeError:
        raise DecodeError("text out of its range") from None


def _result(reader: Reader) -> Rows:
    count = U16.take(reader)
    if count > VALUES_MAX:
        raise DecodeError(f"more than {VALUES_MAX} columns")
    columns = tuple(_value(reader) for _ in range(count))
    if not all(isinstance(name, str) for name in columns):
        raise DecodeError("name of a column out of its range")
    rows = []
    while (more := U8.take(reader)) == 1:
        rows.append(Row(columns, [_value(reader) for _ in range(count)]))
    if more:
        raise DecodeError("row out of its range")
    return Rows(columns, rows, U64.take(reader))


def decode_results(answer: bytes) -> list[Rows]:
    """The results of all statements of an answer."""
    reader, results = Reader(answer), []
    try:
        while not reader.is_at_end():
            results.append(_result(reader))
    except DecodeError as error:
        raise Shape(str(error)) from None
    return results


def _into(into: Optional[Callable[..., T]], row: Row) -> Any:
    if into is None:
        return row
    try:
        if dataclasses.is_dataclass(into):
            names = {field.name for field in dataclasses.fields(into) if field.init}
            return into(**{name: value for name, value in row.as_dict().items() if name in names})
        return into(*row)
    except (TypeError, ValueError) as error:
        raise Shape(f"the row does not fit: {error}") from None


class DataSource:
    """A data source of the site. Calls are made at once and answered in any order; one that is cancelled has changed
    nothing, or all of what it was to change. Only the event loop's thread may use it; others use `sync`."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._loop = asyncio.get_running_loop()

    @property
    def sync(self) -> SyncDataSource:
        """The same for threads."""
        return SyncDataSource(self, self._loop)

    async def one(self, name: str, *values: Value, into: Optional[Callable[..., T]] = None) -> Any:
        """Calls a `:one` statement: its row, if there is one; made `into` a dataclass, by the names of its columns, or by
        any other callable, in their order."""
        rows = (await self._result(name, values)).rows
        if len(rows) > 1:
            raise Shape(f"`{name}` gives {len(rows)} rows; call `many`")
        return _into(into, rows[0]) if rows else None

    async def many(self, name: str, *values: Value, into: Optional[Callable[..., T]] = None) -> list[Any]:
        """Calls a `:many` statement: its rows."""
        return [_into(into, row) for row in (await self._result(name, values)).rows]

    async def exec(self, name: str, *values: Value) -> int:
        """Calls an `:exec` or `:execrows` statement: how many rows have changed."""
        return (await self._result(name, values)).changed

    async def transaction(self, name: str, *parameters: Iterable[Value]) -> list[Rows]:
        """Calls the statements of a transaction, each with its parameters: the results of all of them."""
        return await self._call(name, [value for of_one in parameters for value in of_one])

    async def _result(self, name: str, values: Iterable[Value]) -> Rows:
        results = await self._call(name, values)
        if len(results) != 1:
            raise Shape(f"`{name}` has {len(results)} results; call `transaction`")
        return results[0]

    async def _call(self, name: str, values: Iterable[Value]) -> list[Rows]:
        return decode_results(await self._link.call(name, encode_values(values)))


class SyncDataSource:
    """A data source for threads, such as those of a WSGI application; each call waits for its answer."""

    def __init__(self, source: DataSource, loop: asyncio.AbstractEventLoop) -> None:
        self._source, self._loop = source, loop

    def one(self, name: str, *values: Value, into: Optional[Callable[..., T]] = None) -> Any:
        """See `DataSource.one`."""
        return self._wait(self._source.one(name, *values, into=into))

    def many(self, name: str, *values: Value, into: Optional[Callable[..., T]] = None) -> list[Any]:
        """See `DataSource.many`."""
        return self._wait(self._source.many(name, *values, into=into))

    def exec(self, name: str, *values: Value) -> int:
        """See `DataSource.exec`."""
        return self._wait(self._source.exec(name, *values))

    def transaction(self, name: str, *parameters: Iterable[Value]) -> list[Rows]:
        """See `DataSource.transaction`."""
        return self._wait(self._source.transaction(name, *parameters))

    def _wait(self, call: Coroutine[Any, Any, T]) -> T:
        try:
            own = asyncio.get_running_loop()
        except RuntimeError:
            own = None
        if own is self._loop:
            call.close()
            raise RuntimeError("this thread runs the event loop, which a call by `sync` would stop; `await` the source's own")
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()
