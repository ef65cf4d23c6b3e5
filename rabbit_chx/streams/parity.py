"""Are the rows of a stream where the mirror says? Each row tells its exchange and its routing key. No I/O."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rabbit_chx.errors import InputError
from rabbit_chx.routing import HashRing, SlotTable, SuperStream
from rabbit_chx.routing.bindings import Place

if TYPE_CHECKING:
    from rabbit_chx.streams.rows import Column

#: What says which stream a key belongs to.
Placing: TypeAlias = HashRing | SlotTable | SuperStream


class MisplacedRow(NamedTuple):
    """A row that is not where the mirror says.

    Attributes:
        offset: its offset in the stream.
        key: its routing key.
        belongs_to: where the mirror says; None for nowhere, as the bucket has no destination.
    """

    offset: int
    key: bytes
    belongs_to: Place


@dataclass(frozen=True, slots=True)
class StreamParity:
    """The rows of a stream, compared with the mirror: rows = right + wrong + without_key + other_exchange.

    Attributes:
        stream: the stream's name.
        rows: how many were read.
        right: rows whose key belongs to this stream.
        wrong: rows whose key belongs elsewhere.
        without_key: rows that have no routing key, as those of other clients of the stream protocol.
        other_exchange: rows that were published to another exchange.
        examples: the first rows that are wrong.
    """

    stream: str
    rows: int = 0
    right: int = 0
    wrong: int = 0
    without_key: int = 0
    other_exchange: int = 0
    examples: tuple[MisplacedRow, ...] = ()


def places_of(placing: Placing) -> tuple[Place, ...]:
    """Return the destinations that `placing.indices` counts.

    Args:
        placing: the ring, the slot table or the super stream.
    """
    return placing.partitions if isinstance(placing, SuperStream) else placing.destinations


def is_of(batch: pa.RecordBatch, exchange: str) -> Column:
    """Return whether each row was published to an exchange.

    Args:
        batch: rows with the column exchange.
        exchange: the exchange.
    """
    return pc.is_in(batch["exchange"], value_set=pa.array([exchange]))


def stream_parity(
    stream: str,
    batches: Iterable[pa.RecordBatch],
    placing: Placing,
    exchange: str,
    *,
    most_examples: int = 20,
) -> StreamParity:
    """Compare where rows are with where the mirror says.

    Args:
        stream: the stream that has the rows.
        batches: the rows, with the columns offset, key and exchange, as a `StreamReader` with ``include=["exchange"]`` gives them.
        placing: the ring of the exchange, its slot table, or the super stream.
        exchange: the exchange, or the super stream. Rows that were published to another one are counted, and not compared.
        most_examples: how many of the rows that are wrong are kept.

    Raises:
        InputError: the rows have no column exchange, or `placing` is none.
        EmptyRingError: the ring has no buckets.

    Example::

        with StreamReader(url, "orders-0", include=["exchange"]) as reader:
            print(stream_parity("orders-0", reader, ring, "orders"))
    """
    if not isinstance(placing, Placing):
        raise InputError(f"{placing!r:.60} is no ring: give a HashRing, a SlotTable or a SuperStream")
    places = places_of(placing)
    here = places.index(stream) if stream in places else -2  # a hole is -1
    rows = compared = without_key = right = 0
    examples: list[MisplacedRow] = []
    for batch in batches:
        if "exchange" not in batch.schema.names:
            raise InputError("the rows do not tell their exchange: read them with include=['exchange']")
        compares: Column = pc.and_(batch["key"].is_valid(), is_of(batch, exchange))
        ours = batch.filter(compares)
        # A key is hashed once in a batch, however often it comes.
        keys: Column = ours["key"].dictionary_encode()
        at = placing.indices(keys.dictionary)[keys.indices.to_numpy()] if len(keys) else np.empty(0, np.int32)
        wrong = np.flatnonzero(at != here)
        rows += batch.num_rows
        without_key += batch["key"].null_count
        compared += ours.num_rows
        right += ours.num_rows - len(wrong)
        for row in wrong[: most_examples - len(examples)].tolist():
            place = None if at[row] < 0 else places[at[row]]
            examples.append(MisplacedRow(ours["offset"][row].as_py(), ours["key"][row].as_py(), place))
    return StreamParity(
        stream=stream,
        rows=rows,
        right=right,
        wrong=compared - right,
        without_key=without_key,
        other_exchange=rows - compared - without_key,
        examples=tuple(examples),
    )
