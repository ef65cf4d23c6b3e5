"""Columns as batches of messages that fit the window.

A batch has half a window of messages (500 at most), and about 256 KiB of bodies. Columns that support slices, such as lists and Arrow arrays,
are sliced. Others are read message by message; their batch ends early if messages arrive slowly.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, zip_longest
from typing import Any, TypeAlias

from rabbit_chx.checks import MAX_SHORTSTR, check_column
from rabbit_chx.errors import InputError
from rabbit_chx.publishing.client_routing import ClientRouting, check_for_copies
from rabbit_chx.publishing.encoder import Properties, Rows, as_bytes, check_name, of_rows
from rabbit_chx.words import plural

#: A column of keys or bodies.
Column: TypeAlias = Iterable[str | bytes]

BATCH_ROWS = 500
BATCH_BYTES = 256 << 10
#: A batch of a slow iterator ends with the first row after this time.
_LINGER_S = 0.1
_NOTHING = object()

#: The same rows of every column, in the order of the columns; the bodies are second.
Batch: TypeAlias = tuple[Sequence[Any], ...]
_BODIES = 1
_NO_PROPERTIES = frozenset({"keys", "bodies", "exchanges"})


def name_columns(
    keys: object,
    bodies: object,
    properties: Mapping[str, object] | None,
    exchanges: object,
    *,
    keep_order: bool = False,
) -> dict[str, Any]:
    """Return the given columns by name: ``keys``, ``bodies``, and the optional ones; an InputError for priorities where the order is kept."""
    if keep_order and "priority" in (properties or {}):
        raise InputError(
            "keep_order is set, and messages have a priority of their own: quorum queues from RabbitMQ 4.0 on, and queues with x-max-priority, "
            "deliver a higher one first. Leave out one of the two"
        )
    for name in properties or {}:
        check_name(name)
    optional = {} if exchanges is None else {"exchanges": exchanges}
    return {"keys": keys, "bodies": bodies, **optional, **(properties or {})}


@dataclass(frozen=True, slots=True)
class RowBuilder:
    """Makes messages from columns, with the publisher's exchange and properties as defaults.

    Attributes:
        routing: routes the messages in the client; None if the exchange routes them.
        trace: headers of each message, in addition to its own.
    """

    exchange: str
    properties: Properties
    batch_rows: int = BATCH_ROWS
    routing: ClientRouting | None = None
    trace: Mapping[str, str] = field(default_factory=dict)

    def with_trace(self, trace: Mapping[str, str]) -> RowBuilder:
        """Return defaults whose messages have further headers; itself if there are none."""
        return replace(self, trace=trace, properties=self.properties.with_headers(trace)) if trace else self

    def batches_of(self, columns: Mapping[str, Any], first_row: int) -> Iterator[Rows]:
        """Yield columns, made by `name_columns`, as batches of messages; `first_row` is for errors."""
        for batch in batches(columns, self.batch_rows):
            yield self.rows(dict(zip(columns, batch, strict=True)), first_row)
            first_row += len(batch[0])

    def rows(self, columns: Mapping[str, Sequence[Any]], first_row: int) -> Rows:
        """Return validated messages."""
        keys = as_bytes(columns["keys"], "routing key", first_row, MAX_SHORTSTR)
        bodies = as_bytes(columns["bodies"], "body", first_row)
        if self.routing is not None:
            if "exchanges" in columns:
                raise InputError(
                    "exchanges are given for each message, and routing='client' bypasses all of them: leave them out, or let "
                    "the exchange route"
                )
            of_rows(_check_copies, columns.get("headers", ()), "headers", first_row)
            keys = self.routing.queues(keys)
        constant = [self.properties.constant] * len(keys) if self.trace else None
        if len(columns) == 2:
            return Rows(keys, bodies, constant)
        exchanges = columns.get("exchanges")
        if exchanges is not None:
            names = [self.exchange if name is None else name for name in exchanges]
            exchanges = as_bytes(names, "exchange", first_row, MAX_SHORTSTR)
        properties = {name: values for name, values in columns.items() if name not in _NO_PROPERTIES}
        encoded = self.properties.of_rows(properties, first_row) if properties else constant
        return Rows(keys, bodies, encoded, exchanges)


def _check_copies(headers: Sequence[Any], _what: str, first_row: int) -> Sequence[Any]:
    check_for_copies(headers, first_row)
    return headers


def batches(columns: Mapping[str, Any], rows: int = BATCH_ROWS) -> Iterator[Batch]:
    """Yield slices of all columns: at most `rows` messages and about 256 KiB of bodies at a time."""
    for name, values in columns.items():
        check_column(name, values)
    # A deque is a Sequence without slices.
    if all(isinstance(values, (list, tuple)) or _is_arrow(values) for values in columns.values()):
        keys = len(columns["keys"])
        bodies = len(columns["bodies"])
        if keys != bodies:
            raise InputError(
                f"{plural(keys, 'key')} and {plural(bodies, 'body', 'bodies')}: pass one body for each key"
            )
        for name, values in columns.items():
            if len(values) != keys:
                raise InputError(f"{keys} keys and {len(values)} entries of {name}: pass one for each key")
        yield from _of_slices(tuple(columns.values()), rows)
    else:
        yield from _of_iterables(columns, rows)


def _is_arrow(values: Any) -> bool:
    return hasattr(values, "to_pylist") and hasattr(values, "slice")


def _of_slices(columns: tuple[Any, ...], rows: int) -> Iterator[Batch]:
    bodies = columns[_BODIES]
    # Large Arrow bodies are converted to objects a few at a time.
    if _is_arrow(bodies) and bodies.nbytes > len(bodies):
        rows = max(1, min(rows, len(bodies) * BATCH_BYTES // bodies.nbytes))
    for start in range(0, len(bodies), rows):
        yield from _by_size(tuple(_slice(column, start, rows) for column in columns))


def _slice(values: Any, start: int, rows: int) -> Sequence[Any]:
    entries: Sequence[Any] = (
        values.slice(start, rows).to_pylist() if _is_arrow(values) else values[start : start + rows]
    )
    return entries


def _by_size(batch: Batch) -> Iterator[Batch]:
    bodies = batch[_BODIES]
    if len(bodies) > 1 and _total_size(bodies) > BATCH_BYTES:
        half = len(bodies) // 2
        yield from _by_size(tuple(column[:half] for column in batch))
        yield from _by_size(tuple(column[half:] for column in batch))
    else:
        yield batch


def _values(values: Any) -> Iterable[Any]:
    if _is_arrow(values):
        return chain.from_iterable(
            _slice(values, start, BATCH_ROWS) for start in range(0, len(values), BATCH_ROWS)
        )
    rows: Iterable[Any] = values
    return rows


def _of_iterables(columns: Mapping[str, Any], most: int) -> Iterator[Batch]:
    """Yield a batch once it is complete by its number of messages, size or age; raise an InputError if a column ends before the others."""
    rows: list[tuple[Any, ...]] = []
    size = 0
    due = 0.0
    problem = ""
    for row in zip_longest(*map(_values, columns.values()), fillvalue=_NOTHING):
        if row[0] is _NOTHING or row[1] is _NOTHING or (len(row) > 2 and any(v is _NOTHING for v in row)):
            problem = _unequal(columns, row)
            break
        now = time.monotonic()
        if not rows:
            size = 0
            due = now + _LINGER_S
        rows.append(row)
        size += _size(row[_BODIES])
        if len(rows) >= most or size >= BATCH_BYTES or now >= due:
            yield tuple(zip(*rows, strict=True))
            rows = []
    if rows:
        yield tuple(zip(*rows, strict=True))
    if problem:
        raise InputError(problem)


def _unequal(columns: Mapping[str, Any], row: tuple[Any, ...]) -> str:
    ended = [name for name, value in zip(columns, row, strict=True) if value is _NOTHING]
    if set(ended) & {"keys", "bodies"}:
        return "there are more keys than bodies, or the reverse: pass one body for each key"
    return f"there are more keys than entries of {ended[0]}: pass one for each key"


def _total_size(bodies: Sequence[Any]) -> int:
    try:
        return sum(map(len, bodies))
    except Exception:  # noqa: BLE001  # a body may be of any class
        return sum(map(_size, bodies))


def _size(body: Any) -> int:
    for type_ in (bytes, str, bytearray):
        if issubclass(type(body), type_):
            return type_.__len__(body)
    return 0  # the encoder rejects all others
