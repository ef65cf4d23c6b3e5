"""Rows by their keys: read the rows of some keys again, and compare the streams of rows with those of the mirror."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.checks import bytes_of, check_name
from rabbit_chx.connection.tokens import Credentials
from rabbit_chx.errors import InputError
from rabbit_chx.fixes import Argument, Fix
from rabbit_chx.routing import SuperStream
from rabbit_chx.routing.bindings import Destination, Place
from rabbit_chx.routing.key_map import KeyMap, check_key_map, is_routed_by_broker
from rabbit_chx.routing.super_stream import StreamRouting, are_names, check_routing
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.frames import offset_spec
from rabbit_chx.streams.nodes import node_addresses, open_any, settings_of
from rabbit_chx.streams.options import ReadLimits
from rabbit_chx.streams.reader import StreamReader
from rabbit_chx.streams.rows import schema_of

if TYPE_CHECKING:
    from rabbit_chx.streams.rows import Column, FilterValue

#: The column of the key: the routing key, or the message id, where clients of super streams often put it.
KeyColumn: TypeAlias = Literal["key", "message_id"]


class MisplacedRow(NamedTuple):
    """A row that is not in the predicted stream.

    Attributes:
        offset: its offset in the stream.
        key: its routing key.
        belongs_to: the destination of the mirror; None if the bucket has none.
    """

    offset: int
    key: bytes
    belongs_to: Place


@dataclass(frozen=True, slots=True)
class StreamParity:
    """The rows of a stream, compared with the prediction: rows = right + wrong + without_key + other_exchange.

    Attributes:
        stream: the stream's name.
        rows: the rows that were read.
        right: rows whose key belongs to this stream.
        wrong: rows whose key belongs elsewhere.
        without_key: rows without a key; other clients of the stream protocol write no routing key.
        other_exchange: rows that were published to another exchange.
        examples: the first wrong rows.
    """

    stream: str
    rows: int = 0
    right: int = 0
    wrong: int = 0
    without_key: int = 0
    other_exchange: int = 0
    examples: tuple[MisplacedRow, ...] = ()


def columns_with(key_column: KeyColumn) -> list[str]:
    """Return the optional columns of a `StreamReader` that contain the exchange and the key."""
    if key_column not in get_args(KeyColumn):
        raise InputError(f"key_column is {key_column!r:.60}: pass 'key' or 'message_id'")
    return ["exchange"] if key_column == "key" else ["exchange", key_column]


def keys_in(batch: pa.RecordBatch, key_column: KeyColumn) -> Column:
    """Return the key of each row, as binary."""
    return batch[key_column].cast(pa.binary())


def is_of(batch: pa.RecordBatch, exchange: str, key_column: KeyColumn) -> Column:
    """Return whether each row was published to an exchange, or without an exchange by a client that writes none."""
    others = pa.array([exchange, None] if key_column == "message_id" else [exchange], pa.string())
    return pc.is_in(batch["exchange"], value_set=others)


def stream_parity(
    stream: str,
    batches: Iterable[pa.RecordBatch],
    placing: KeyMap,
    exchange: str,
    *,
    key_column: KeyColumn = "key",
    most_examples: int = 20,
) -> StreamParity:
    """Compare the stream of rows with the predicted stream.

    Args:
        stream: the stream that has the rows.
        batches: the rows, with the columns offset, key and exchange, as a `StreamReader` with ``include=["exchange"]`` returns them.
        placing: the ring of the exchange, its slot table, an ``x-modulus-hash`` exchange, or the super stream.
        exchange: the exchange, or the super stream. Rows of another exchange are counted, and not compared.
        key_column: the column of the keys. ``"message_id"`` must be included too; then rows without an exchange are also compared.
        most_examples: the number of wrong rows that are kept.

    Raises:
        InputError: the rows do not have a column exchange, or `placing` is not one of the above.
        EmptyRingError: the ring has no buckets.

    Example::

        with StreamReader(url, "orders-0", include=["exchange"]) as reader:
            print(stream_parity("orders-0", reader, ring, "orders"))
    """
    check_key_map(placing)
    places = placing.destinations
    here = places.index(stream) if stream in places else -2  # a hole is -1
    streams_bound: dict[bytes, list[Destination]] = {}
    # Where it is not known how the client routes, a row is right in either place.
    for partition, key in () if placing.routes_by_key is False else placing.bindings or ():
        streams_bound.setdefault(key.encode(), []).append(partition)
    rows = compared = without_key = right = 0
    examples: list[MisplacedRow] = []
    for batch in batches:
        columns = columns_with(key_column)
        if missing := set(columns) - set(batch.schema.names):
            raise InputError(f"the rows have no column {', '.join(missing)}: pass include={columns!r}")
        batch_keys = keys_in(batch, key_column)
        compares: Column = pc.and_(batch_keys.is_valid(), is_of(batch, exchange, key_column))
        ours, our_keys = batch.filter(compares), batch_keys.filter(compares)
        # Each distinct key of a batch is hashed once.
        keys: Column = our_keys.dictionary_encode()
        distinct, codes = keys.dictionary, keys.indices.to_numpy()
        # A row by key is in each partition that is bound with it.
        bound = [streams_bound.get(key, []) for key in distinct.to_pylist()] if streams_bound else []
        if placing.routes_by_key:
            at = np.array([places.index(names[0]) if names else -1 for names in bound], np.int32)
        else:
            at = placing.indices(distinct) if len(distinct) else np.empty(0, np.int32)
        misplaced = at != here
        misplaced[[number for number, names in enumerate(bound) if stream in names]] = False
        at, wrong = at[codes], np.flatnonzero(misplaced[codes])
        rows += batch.num_rows
        without_key += batch_keys.null_count
        compared += ours.num_rows
        right += ours.num_rows - len(wrong)
        for row in wrong[: most_examples - len(examples)].tolist():
            place = None if at[row] < 0 else places[at[row]]
            examples.append(MisplacedRow(ours["offset"][row].as_py(), our_keys[row].as_py(), place))
    return StreamParity(
        stream=stream,
        rows=rows,
        right=right,
        wrong=compared - right,
        without_key=without_key,
        other_exchange=rows - compared - without_key,
        examples=tuple(examples),
    )


def replay(
    url: str | ConnectionSettings | Sequence[str | ConnectionSettings],
    keys: str | bytes | Collection[str | bytes],
    *,
    ring: KeyMap | None = None,
    super_stream: str | None = None,
    routing: StreamRouting | None = None,
    exchange: str | None = None,
    key_column: KeyColumn = "key",
    filter_value: FilterValue | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    include: Collection[str] = (),
    addresses: Mapping[str, str] | None = None,
    timeout_s: float = 60.0,
    credentials: Credentials | None = None,
    counts: Counter[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Return the rows of keys since a time as record batches. Only the streams that have these keys are read.

    Each batch is of one stream, and has the column ``stream`` before those of `StreamReader`; ``key`` is the requested key. Its rows are in
    their order. Streams are read one after the other. The end of a stream is its end at the time of opening.

    The ring or the super stream maps the keys as of now. Rows that were written before a change may be in other streams: to find them, pass
    the ring of that time.

    Args:
        url: as in `StreamReader`.
        keys: the keys. Rows without a key are not found, see `StreamReader`.
        ring: the ring of a hash exchange, or its slot table, or an ``x-modulus-hash`` exchange, whose queues are streams. It must not be an
            assumed one.
        super_stream: instead of a ring, the super stream, whose partitions are read from the broker. An exchange that accepts any key is
            refused.
        routing: of a super stream: ``"key"`` for clients that route by binding key, ``"hash"`` for others. Required if the binding keys
            are not ``0``, ``1`` and so on.
        exchange: skip rows that were published to another exchange.
        key_column: ``"message_id"`` for rows whose key is the message id, as clients of super streams often write it.
        filter_value: that of the `StreamPublisher` of the rows, ``"key"`` or a function of the key: then the broker omits chunks without
            these keys. A stream does not tell how its filter values were made, so another one loses rows. Rows without a filter value
            are found. None to read all chunks.
        since: an aware datetime: the first chunk of that time or later is the first; None for the whole stream.
        until: an aware datetime: the first chunk of that time or later is not read.
        include: further columns, as in `StreamReader`.
        addresses: as in `StreamReader`.
        timeout_s: as in `StreamReader`.
        credentials: as in `StreamReader`.
        counts: counts rows: those of the received chunks as ``read``, those of the batches as ``delivered``, and those with a key of
            another exchange as ``other_exchange``.

    Raises:
        InputError: an argument is not valid, or a key is not mapped to a stream.
        EmptyRingError: the ring has no buckets.
        NotFoundError: the super stream or a stream does not exist.
        UnreachableError: no node answers in time.
        BrokerRefusedError: the broker refuses user, vhost or stream.

    Example::

        for batch in replay(url, ["user-42"], super_stream="orders", since=datetime.now(UTC) - timedelta(hours=2)):
            print(batch["offset"], batch["value"])
    """
    try:
        settings = settings_of(url, credentials)
    finally:
        del url  # no variable of a frame of an error has a password
    given = [keys] if isinstance(keys, str | bytes) else list(keys)
    wanted: Column = pa.array(list(dict.fromkeys(bytes_of(key, "a key") for key in given)), pa.binary())
    if not len(wanted):
        raise InputError("there is no key: pass at least one")
    if (ring is None) == (super_stream is None):
        raise InputError("pass one of ring and super_stream: it determines which streams have the keys")
    check_super_stream(super_stream, routing)
    schema_of(include if isinstance(include, str) else [*include])
    needed = columns_with(key_column)
    known_addresses = addresses and node_addresses(addresses)
    for moment in filter(None, (since, until)):
        offset_spec(moment)  # raises for a time without a zone
    placing: KeyMap | None = ring
    if super_stream is not None:
        with closing(open_any(settings)) as connection:
            placing = find_super_stream(connection, super_stream, routing, wanted.to_pylist())
    keys_of = keys_by_stream(placing, wanted)
    value_of = _filter_function(filter_value)
    seen = Counter[str]() if counts is None else counts

    def batches() -> Iterator[pa.RecordBatch]:
        for stream, of_stream in keys_of.items():
            with StreamReader(
                settings,
                stream,
                start=since or "first",
                end=until,
                include=list(dict.fromkeys([*include, *needed])),
                filters=[] if filter_value is None else list(map(value_of, of_stream.to_pylist())),
                match_unfiltered=filter_value is not None,
                addresses=known_addresses,
                limits=ReadLimits(timeout_s=timeout_s),
            ) as reader:
                before = seen["read"]
                for batch in reader:
                    seen["read"] = before + reader.rows_read
                    rows = _with_keys(batch, of_stream, key_column, exchange, seen)
                    if rows.num_rows:
                        yield _select_columns(stream, rows, include, key_column)
                seen["read"] = before + reader.rows_read

    return batches()


def _with_keys(
    batch: pa.RecordBatch, keys: Column, key_column: KeyColumn, exchange: str | None, seen: Counter[str]
) -> pa.RecordBatch:
    """Return the rows of a batch with some keys, of the exchange if one is named, and count them."""
    found: Column = pc.is_in(keys_in(batch, key_column), value_set=keys)
    rows = batch.filter(found)
    if exchange is not None:
        with_key = rows.num_rows
        rows = rows.filter(is_of(rows, exchange, key_column))
        seen["other_exchange"] += with_key - rows.num_rows
    seen["delivered"] += rows.num_rows
    return rows


def find_super_stream(
    connection: StreamConnection, super_stream: str, routing: StreamRouting | None, keys: Sequence[bytes]
) -> SuperStream:
    """Return the placing of keys; by binding key it has the keys that are asked for."""
    streams = connection.partitions(super_stream)
    if routing == "key":
        texts = [*dict.fromkeys(key.decode(errors="replace") for key in keys)]
        bound = [(stream, text) for text in texts for stream in connection.routes(super_stream, text)]
        if unbound := [text for text in texts if text not in {key for _, key in bound}]:
            raise InputError(
                f"no partition of super stream {super_stream!r} is bound with the key {unbound[0]!r:.60}: pass a binding key"
            )
        return SuperStream([stream for stream, _ in bound], [key for _, key in bound], routing="key")
    if routing is None and are_names(connection.binding_keys(super_stream, streams)):
        raise InputError(named_keys_text(super_stream))
    return SuperStream(streams)


def check_super_stream(super_stream: str | None, routing: StreamRouting | None) -> None:
    """Raise an InputError for an invalid name of a super stream, or for a routing without one."""
    check_routing(routing)
    if super_stream is not None:
        check_name(super_stream, "super stream")
    elif routing is not None:
        raise InputError(f"routing={routing!r} is for super streams: pass super_stream, or leave it out")


def check_stream_ring(ring: object, how_to_read: str = "") -> KeyMap:
    """Return a ring whose rows are stored by a client; an InputError unless it was read and each destination is a stream, bound once.

    Args:
        ring: the ring as given.
        how_to_read: the remedy for a ring of buckets that is assumed; by default that of a program in Python.
    """
    if not is_routed_by_broker(ring):
        raise InputError(
            f"{ring!r:.60} is not a ring: pass a HashRing, a SlotTable or a ModulusHashExchange that was read from the broker"
        )
    if not ring.ground.is_certain:
        raise InputError(
            f"the ring is {ring.ground}, and must be read from the broker, recorded or observed: "
            f"{(ring.hashing.has_order and how_to_read) or ring.hashing.how_to_read}"
        )
    if not ring.destinations:
        raise InputError("the ring has no destinations: bind streams first")
    for place, count in Counter(ring.destinations).items():
        if not isinstance(place, str):
            raise InputError(f"{place} of the ring is not a stream: bind only streams, or pass a slot table")
        if count > 1:  # to an ``x-modulus-hash`` exchange
            raise InputError(f"stream {place!r} is bound {count} times: unbind all but one")
    return ring


def named_keys_text(super_stream: str) -> str:
    """Return what is not known of a super stream whose binding keys are names, and the remedy."""
    return Fix(
        f"the binding keys of super stream {super_stream!r} are names: AMQP clients and the Java client's .key() route by them, and other "
        "clients by a hash: pass ",
        Argument("routing", "key"),
        " or ",
        Argument("routing", "hash"),
    )


def _filter_function(filter_value: FilterValue | None) -> Callable[[bytes], str | bytes]:
    if filter_value in (None, "key"):
        return bytes
    if callable(filter_value):
        return filter_value
    raise InputError(
        f"filter_value is {filter_value!r:.60}: pass 'key', or a function of the key, such as lambda key: {filter_value!r:.60}"
    )


def keys_by_stream(placing: KeyMap | None, keys: Column) -> dict[str, Column]:
    """Return the keys of each stream that has some, in their order; an InputError for an assumed ring or a key without a stream."""
    if not isinstance(placing, KeyMap):
        raise InputError(f"{placing!r:.60} is not a ring: pass a HashRing, SlotTable or ModulusHashExchange")
    if placing.provenance == "assumed":
        raise InputError(
            f"the ring is {placing.ground}, so the keys may be in another stream: {placing.hashing.how_to_read}"
        )
    places = placing.destinations
    of_stream: dict[str, list[bytes]] = {}
    for key, at in zip(keys.to_pylist(), placing.indices(keys).tolist(), strict=True):
        place = None if at < 0 else places[at]
        if not isinstance(place, str):
            raise InputError(f"the key {key!r:.60} is routed to {place or 'no destination'}, not to a stream")
        of_stream.setdefault(place, []).append(key)
    return {stream: pa.array(some, pa.binary()) for stream, some in of_stream.items()}


def _select_columns(
    stream: str, batch: pa.RecordBatch, include: Collection[str], key_column: KeyColumn
) -> pa.RecordBatch:
    schema = schema_of([*include])
    names: Column = pa.array([stream] * batch.num_rows, pa.string())
    columns = {name: batch[name] for name in schema.names} | {"key": keys_in(batch, key_column)}
    return pa.RecordBatch.from_arrays([names, *columns.values()], names=["stream", *columns])
