"""Columns as batches of messages that fit the window.

A batch has half a window of messages (500 at most), and about 256 KiB of bodies. Columns that support slices, such as lists and Arrow arrays,
are sliced. Others are read message by message; their batch ends early if messages arrive slowly.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, zip_longest
from typing import Any, TypeAlias

from rabbit_chx.checks import MAX_SHORTSTR, check_column, short_string
from rabbit_chx.errors import EmptyRingError, InputError, RowError
from rabbit_chx.publishing.encoder import Properties, Rows, as_bytes, check_name, of_rows
from rabbit_chx.routing import ConsistentHashExchange
from rabbit_chx.routing.key_map import KeyMap, is_routed_by_broker
from rabbit_chx.text import plural

# -- Routing in the client: messages are published to their queue by the ring, through the default exchange
# The broker does not evaluate the ring, so it is several times as fast per message, and a wrong ring means a wrong queue. So only a ring read
# from the broker is accepted. If the caller supplies a function that reads it, the ring is read again after the messages are answered. Other
# functions of the exchange do not apply: its alternate exchange, its permissions, and routing keys of CC and BCC headers.

_log = logging.getLogger(__name__)
#: The default exchange routes to the queue whose name is the routing key. rabbitmq-server v4.3.6, rabbit_exchange.erl, route/3.
DEFAULT_EXCHANGE = b""
_COPIES = ("CC", "BCC")
_SHOWN_MOVES = 3


class ClientRouting:
    """A ring that routes messages, and the number of messages per queue since the last `compare`. For any number of threads."""

    def __init__(self, exchange: str, ring: object) -> None:
        self.ring = _check_ring(exchange, ring)
        if self.ring.provenance == "recorded":
            _log.warning(
                "the ring of exchange %r, by which this client routes, is %s",
                exchange,
                self.ring.order.condition,
            )
        self._exchange = exchange
        self._names = [short_string(str(queue), "the queue name") for queue in self.ring.destinations]
        self._sent = [0] * len(self._names)
        self._counting = threading.RLock()  # a signal handler may publish in the same thread

    def queues(self, keys: Sequence[bytes]) -> list[bytes]:
        """Return the queue of each key, and count them."""
        import numpy as np

        indices = self.ring.indices(keys)
        counts = np.bincount(indices, minlength=len(self._names))
        with self._counting:
            self._sent = (counts + self._sent).tolist()
        return list(map(self._names.__getitem__, indices.tolist()))

    def compare(self, ring: object) -> str | None:
        """Compare with the current ring, reset the counts, and return the changes with the messages that may be in a wrong queue; None without
        changes.
        """
        with self._counting:
            sent = self._sent
            self._sent = [0] * len(self._names)
        now = _check_ring(self._exchange, ring)
        if now.kind != self.ring.kind:
            return "the exchange has another type now, and messages may be in a queue that no longer has their keys"
        if now.buckets == self.ring.buckets:
            return None
        rows: Counter[Any] = Counter()
        for destination, count in zip(self.ring.destinations, sent, strict=True):
            rows[destination] += count
        return describe_ring_change(self.ring, now, rows)


def describe_ring_change(before: KeyMap, now: KeyMap, rows: Mapping[Any, int]) -> str:
    """Describe the change between two key maps and the messages that may be in a wrong queue; `rows` counts them by destination.

    Both hash keys alike.
    """
    matrix = before.flows(now)
    totals = matrix.before_totals()
    moves = [
        f"{amount / totals[source]:.1%} of the keys of {source} belong to {target or 'no queue'} now, "
        f"and {rows.get(source, 0):,} messages went to {source}"
        for source, target, amount in matrix.largest_moves(_SHOWN_MOVES)
    ]
    if more := matrix.move_count - len(moves):
        moves.append(f"and {more:,} more")
    return (
        f"the ring has changed during the write: {matrix.moved:.1%} of all keys have another queue now, and their messages may be in "
        f"the old one: {'; '.join(moves)}. Compare destination_for of both rings for each key, and publish these messages again"
    )


def check_for_copies(headers: Iterable[Any], first_row: int | None = None) -> None:
    """Raise an error for CC and BCC headers: the default exchange would treat their keys as names of queues.

    `first_row` is the number of the first message, for the error; None for the headers of all messages.
    """
    for row, row_headers in enumerate(headers):
        for name in _COPIES:
            if row_headers and name in dict(row_headers):
                problem = (
                    f"the header {name!r} names further routing keys, which with routing='client' would be queues: "
                    "leave it out, or publish to the exchange"
                )
                raise (
                    InputError(problem)
                    if first_row is None
                    else RowError(f"row {first_row + row}: {problem}")
                )


def _check_ring(exchange: str, ring: object) -> KeyMap:
    where = f"exchange {exchange!r}: routing='client'"
    if isinstance(ring, ConsistentHashExchange):
        if ring.hashed_on.kind != "routing-key":
            raise InputError(
                f"{where} hashes the routing key, and this exchange hashes {ring.hashed_on}: publish to the exchange",
                exchange=exchange,
            )
        ring = ring.key_map

    if not is_routed_by_broker(ring):
        raise InputError(
            f"{where} got ring={ring!r:.60}, expected a HashRing that was read, such as "
            f"Broker(url, ring_source='docker exec NAME').ring({exchange!r}), or a function that reads it",
            exchange=exchange,
        )
    if ring.slots is not None:
        raise InputError(
            f"{where} is not for slots, whose queues change while the ring stays: publish to the exchange",
            exchange=exchange,
        )
    if not ring.order.is_certain:
        raise InputError(
            f"{where} needs a ring that was read from the broker, recorded or observed, and this one is {ring.order}: "
            f"{ring.hashing.how_to_read}",
            exchange=exchange,
        )
    if not ring.destinations:
        raise EmptyRingError(f"{where}: the ring has no buckets: bind queues first", exchange=exchange)

    for bucket, destination in enumerate(ring.buckets):
        if not isinstance(destination, str):
            what = (
                "has no destination" if destination is None else f"belongs to {destination}, not to a queue"
            )
            raise InputError(
                f"{where}: bucket {bucket} of the ring {what}: publish to the exchange", exchange=exchange
            )

    return ring


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


# -- Message ids that are computed from messages: a message that is published again has the same id
# The rule of both publishers and of Spark: an id is 32 hexadecimal digits of the SHA-256 over the SHA-256 of the write's name, the fields of the
# message, each after its length in 4 bytes (-1 for null), and the body. Among equal messages of a write each except the first has its number
# appended. The key is the first field. Other fields are sorted by name, and their names belong to that of the write.


#: The bytes of the hash in an id.
ID_BYTES = 16


def write_hash(write: str) -> bytes:
    """Return the hash of the name of a write, with which the hash of each of its messages begins."""
    return hashlib.sha256(write.encode("utf-8", "surrogatepass")).digest()


def row_hash(write: bytes, row: bytes) -> bytes:
    """Return the hash of a message: of the `write_hash`, the fields after their lengths, and the body."""
    return hashlib.sha256(write + row).digest()[:ID_BYTES]


def stable_ids(write: str, keys: Column, bodies: Column) -> list[str]:
    """Return a message id for each message. The same messages of the same write always have the same ids.

    An id is 32 hexadecimal digits of the SHA-256 over the write, the key and the body. Among equal messages each except the first has its
    number appended, so that ids are unique. The order of the messages matters only for equal messages. Ids from your own data, such as an order
    number, are better: they do not depend on the publisher.

    Args:
        write: the name of the write, such as a file, a day or a batch: the same name for a repeated write, a different one for everything
            else. Equal messages of two calls with one name have one id, and a consumer drops the second.
        keys: the routing keys, as for `publish_many`, except iterators.
        bodies: one body for each key.

    Returns:
        One id for each message, for ``properties={"message_id": ...}``.

    Raises:
        InputError: the name is empty, the columns differ in length, or one is an iterator.
        RowError: a key or a body is not text.

    Example::

        ids = stable_ids("import of 2026-11-21", keys, bodies)
        publisher.publish_many(keys, bodies, properties={"message_id": ids})
    """
    if not isinstance(write, str) or not write:
        raise InputError(
            f"write is {write!r:.60}: pass a name of what is written, such as a file, a day or a batch"
        )

    for name, column in (("keys", keys), ("bodies", bodies)):
        if iter(column) is column:
            raise InputError(f"{name} can be read only once, so nothing would be left to send: pass a list")

    start = write_hash(write)
    counts: Counter[bytes] = Counter()
    ids: list[str] = []
    for batch_keys, batch_bodies in batches({"keys": keys, "bodies": bodies}):
        rows = zip(
            as_bytes(batch_keys, "routing key", len(ids)),
            as_bytes(batch_bodies, "body", len(ids)),
            strict=True,
        )
        for key, body in rows:
            row = row_hash(start, len(key).to_bytes(4, "big") + key + body)
            number = counts[row]
            counts[row] = number + 1
            ids.append(f"{row.hex()}-{number}" if number else row.hex())

    return ids
