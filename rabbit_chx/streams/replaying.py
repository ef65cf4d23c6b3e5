"""The rows of some keys, read again from the streams that have them; the other streams are not read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.amqp.names import bytes_of, check_name
from rabbit_chx.errors import InputError
from rabbit_chx.routing import HashRing, SlotTable, SuperStream
from rabbit_chx.streams.frames import offset_spec
from rabbit_chx.streams.nodes import open_any, settings_of
from rabbit_chx.streams.parity import columns_with, is_of, keys_in, places_of
from rabbit_chx.streams.reader import StreamReader
from rabbit_chx.streams.rows import schema_of

if TYPE_CHECKING:
    from rabbit_chx.streams.parity import KeyColumn, Placing
    from rabbit_chx.streams.rows import Column


def replay(
    url: str | ConnectionSettings | Sequence[str | ConnectionSettings],
    keys: str | bytes | Collection[str | bytes],
    *,
    ring: HashRing | SlotTable | None = None,
    super_stream: str | None = None,
    exchange: str | None = None,
    key_column: KeyColumn = "key",
    since: datetime | None = None,
    until: datetime | None = None,
    include: Collection[str] = (),
    addresses: Mapping[str, str] | None = None,
    timeout_s: float = 60.0,
    counts: Counter[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Return the rows of some keys, from a time on, as record batches; only the streams that have these keys are read.

    Each batch is of one stream, and has the column ``stream`` before those of `StreamReader`; ``key`` is the key that was asked for. The rows of a stream are in its
    order. Of several streams, one comes behind the other. The end is what is there when the reading of a stream begins.

    The ring or the super stream says where the keys are now. Rows that were written before it changed are elsewhere: give the
    ring of that time to find them.

    Args:
        url: as of `StreamReader`.
        keys: the keys. A row without a key is never found, see `StreamReader`.
        ring: the ring of a hash exchange, or its slot table, whose queues are streams. It must not be assumed.
        super_stream: the super stream, whose partitions are read from the broker; in place of a ring. An exchange that takes any key is
            refused.
        exchange: pass over rows that were published to another exchange.
        key_column: ``"message_id"`` where rows have their key as the message id, as clients of super streams often write them.
        since: an aware datetime. The first chunk of that time or later is the first; None for all that is there.
        until: an aware datetime: the first chunk of that time or later is not read.
        include: further columns, as of `StreamReader`.
        addresses: as of `StreamReader`.
        timeout_s: as of `StreamReader`.
        counts: counts the rows while they are read: all under ``read``, and under ``other_exchange`` those that have a key and were
            published to another exchange.

    Raises:
        InputError: an argument cannot be used, or the keys go to what is no stream.
        EmptyRingError: the ring has no buckets.
        NotFoundError: there is no such super stream, or no such stream.
        UnreachableError: nobody answers, or not in time.
        BrokerRefusedError: the broker refuses user, vhost or stream.

    Example::

        for batch in replay(url, ["user-42"], super_stream="orders", since=datetime.now(UTC) - timedelta(hours=2)):
            print(batch["offset"], batch["value"])
    """
    try:
        settings = settings_of(url)
    finally:
        del url  # no variable of a frame of an error has a password
    given = [keys] if isinstance(keys, str | bytes) else list(keys)
    wanted: Column = pa.array(list(dict.fromkeys(bytes_of(key, "a key") for key in given)), pa.binary())
    if not len(wanted):
        raise InputError("there is no key: give at least one")
    if (ring is None) == (super_stream is None):
        raise InputError("give one of ring and super_stream: it says which streams have the keys")
    schema_of(include if isinstance(include, str) else [*include])
    needed = columns_with(key_column)
    for moment in filter(None, (since, until)):
        offset_spec(moment)  # raises for one without a zone
    placing: Placing | None = ring
    if super_stream is not None:
        check_name(super_stream, "super stream")
        with closing(open_any(settings)) as connection:
            placing = SuperStream(connection.partitions(super_stream))
    keys_of = keys_by_stream(placing, wanted)
    seen = Counter[str]() if counts is None else counts

    def batches() -> Iterator[pa.RecordBatch]:
        for stream, of_stream in keys_of.items():
            with StreamReader(
                settings,
                stream,
                start=since or "first",
                end=until,
                include=list(dict.fromkeys([*include, *needed])),
                addresses=addresses,
                timeout_s=timeout_s,
            ) as reader:
                for batch in reader:
                    seen["read"] += batch.num_rows
                    found: Column = pc.is_in(keys_in(batch, key_column), value_set=of_stream)
                    rows = batch.filter(found)
                    if exchange is not None:
                        with_key = rows.num_rows
                        rows = rows.filter(is_of(rows, exchange, key_column))
                        seen["other_exchange"] += with_key - rows.num_rows
                    if rows.num_rows:
                        yield _shown(stream, rows, include, key_column)

    return batches()


def keys_by_stream(placing: Placing | None, keys: Column) -> dict[str, Column]:
    """Return the keys of each stream that has some, in the order in which the keys were given.

    Args:
        placing: the ring, the slot table or the super stream.
        keys: the keys, as an array of binaries.

    Raises:
        InputError: the ring is a guess, or a key goes to what is no stream.
    """
    if not isinstance(placing, HashRing | SlotTable | SuperStream):
        raise InputError(f"{placing!r:.60} is no ring: give a HashRing or a SlotTable")
    if not isinstance(placing, SuperStream) and placing.provenance == "assumed":
        raise InputError(
            "the ring is assumed from the bindings, so the keys may be in another stream: read it with a ring source"
        )
    places = places_of(placing)
    of_stream: dict[str, list[bytes]] = {}
    for key, at in zip(keys.to_pylist(), placing.indices(keys).tolist(), strict=True):
        place = None if at < 0 else places[at]
        if not isinstance(place, str):
            raise InputError(f"the key {key!r:.60} goes to {place or 'no destination'}, which is no stream")
        of_stream.setdefault(place, []).append(key)
    return {stream: pa.array(some, pa.binary()) for stream, some in of_stream.items()}


def _shown(
    stream: str, batch: pa.RecordBatch, include: Collection[str], key_column: KeyColumn
) -> pa.RecordBatch:
    """Return the columns that were asked for, behind that of the stream."""
    schema = schema_of([*include])
    names: Column = pa.array([stream] * batch.num_rows, pa.string())
    columns = {name: batch[name] for name in schema.names} | {"key": keys_in(batch, key_column)}
    return pa.RecordBatch.from_arrays([names, *columns.values()], names=["stream", *columns])
