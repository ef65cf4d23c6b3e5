"""Are the rows of a stream where the mirror says? Each row tells its exchange and its routing key. No I/O."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, get_args

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
#: Where rows have their key: as their routing key, or as their message id, where clients of super streams often put it.
KeyColumn: TypeAlias = Literal["key", "message_id"]


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
        without_key: rows that have no key; those of other clients of the stream protocol have no routing key.
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


def columns_with(key_column: KeyColumn) -> list[str]:
    """Return the further columns of a `StreamReader` that tell the exchange and the key.

    Args:
        key_column: the column that has the keys.

    Raises:
        InputError: there is no such column.
    """
    if key_column not in get_args(KeyColumn):
        raise InputError(f"key_column is {key_column!r:.60}: give 'key' or 'message_id'")
    return ["exchange"] if key_column == "key" else ["exchange", key_column]


def keys_in(batch: pa.RecordBatch, key_column: KeyColumn) -> Column:
    """Return the key of each row, as binary.

    Args:
        batch: the rows.
        key_column: the column that has the keys.
    """
    return batch[key_column].cast(pa.binary())


def is_of(batch: pa.RecordBatch, exchange: str, key_column: KeyColumn) -> Column:
    """Return whether each row was published to an exchange, or by a client that tells none.

    Args:
        batch: rows with the column exchange.
        exchange: the exchange.
        key_column: the column that has the keys. A row with a routing key tells its exchange, too.
    """
    others = pa.array([exchange, None] if key_column == "message_id" else [exchange], pa.string())
    return pc.is_in(batch["exchange"], value_set=others)


def stream_parity(
    stream: str,
    batches: Iterable[pa.RecordBatch],
    placing: Placing,
    exchange: str,
    *,
    key_column: KeyColumn = "key",
    most_examples: int = 20,
) -> StreamParity:
    """Compare where rows are with where the mirror says.

    Args:
        stream: the stream that has the rows.
        batches: the rows, with the columns offset, key and exchange, as a `StreamReader` with ``include=["exchange"]`` gives them.
        placing: the ring of the exchange, its slot table, or the super stream.
        exchange: the exchange, or the super stream. Rows that were published to another one are counted, and not compared.
        key_column: the column that has the keys. With ``"message_id"``, which has to be included too, rows that tell no exchange are
            compared as well.
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
        columns = columns_with(key_column)
        if missing := set(columns) - set(batch.schema.names):
            raise InputError(f"the rows do not tell {', '.join(missing)}: read them with include={columns!r}")
        batch_keys = keys_in(batch, key_column)
        compares: Column = pc.and_(batch_keys.is_valid(), is_of(batch, exchange, key_column))
        ours, our_keys = batch.filter(compares), batch_keys.filter(compares)
        # A key is hashed once in a batch, however often it comes.
        keys: Column = our_keys.dictionary_encode()
        at = placing.indices(keys.dictionary)[keys.indices.to_numpy()] if len(keys) else np.empty(0, np.int32)
        wrong = np.flatnonzero(at != here)
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
