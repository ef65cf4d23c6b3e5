"""The rows of a batch as messages; rows that AMQP cannot carry are found before anything is encoded.

Whole columns are looked at, and a single row only where a column has a bad one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rabbit_chx.amqp.encoding import encode_headers
from rabbit_chx.errors import RowError
from spark_connector.options.write_options import MAX_HEADERS_BYTES
from spark_connector.reports.write_report import RowSample, hash_of_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from spark_connector.options.write_options import WriteOptions
    from spark_connector.writing.columns import MessageColumns
    from spark_connector.writing.message_ids import MessageIds

    Flags = NDArray[np.bool_]

__all__ = ["Messages", "messages_of"]

_SHORT = 255  # bytes of an AMQP short string
_TABLE_HEAD = 4  # bytes before the headers that say how long they are
_MAX_EXPIRATION_MS = (1 << 32) - 1
_NUMBERS = ("priority", "delivery_mode", "timestamp")


@dataclass(frozen=True, slots=True)
class Messages:
    """What of a batch can be published.

    Attributes:
        keys: routing keys, as bytes.
        bodies: as many bodies, as bytes.
        properties: a column for each message property that differs by row, `headers` as dicts; None where a row
            has nothing of its own.
        exchanges: a column of names, or None where all go to one exchange.
        skipped: bad rows, which are not among them.
        samples: the first few of those.
    """

    keys: Any
    bodies: Any
    properties: dict[str, Any]
    exchanges: Any
    skipped: int = 0
    samples: tuple[RowSample, ...] = ()

    def __len__(self) -> int:
        return len(self.bodies)


@dataclass(frozen=True, slots=True)
class _Fault:
    """Rows of a batch that are bad for one reason.

    Attributes:
        rows: True for each bad one.
        reason: in words, for the row at a position; shows nothing of a body.
    """

    rows: Flags
    reason: Callable[[int], str]


def messages_of(
    batch: pa.RecordBatch,
    columns: MessageColumns,
    options: WriteOptions,
    *,
    partition: int = 0,
    first_row: int = 0,
    ids: MessageIds | None = None,
    samples: int = 10,
) -> Messages:
    """The messages of a batch.

    Args:
        batch: with the columns where `columns` says.
        columns: which column is what.
        options: how to write.
        partition: number of the partition, for samples.
        first_row: number of the batch's first row in its partition.
        ids: makes them where ``messageId`` is auto.
        samples: most samples of bad rows.

    Raises:
        RowError: a bad row, and ``badRows`` is fail.
    """
    faults = [fault for fault in _faults(batch, columns, options) if fault.rows.any()]
    skipped = 0
    shown: tuple[RowSample, ...] = ()
    if faults:
        bad = np.logical_or.reduce([fault.rows for fault in faults])
        positions = np.flatnonzero(bad)
        if not options.skip_bad_rows:
            at = int(positions[0])
            raise RowError(f"row {first_row + at}: {_reason(faults, at)}")
        keys = None if columns.key is None else _binary(batch.column(columns.key))
        shown = tuple(
            RowSample(partition, first_row + int(at), _reason(faults, int(at)), _key_hash(keys, int(at)))
            for at in positions[:samples]
        )
        batch = batch.take(pa.array(np.flatnonzero(~bad), pa.int64()))
        skipped = len(positions)
    properties = dict(_properties(batch, columns, options))
    if ids is not None:
        properties["message_id"] = ids.of(batch, columns, properties.get("headers", ()))
    return Messages(
        keys=_keys(batch, columns, options),
        bodies=_binary(batch.column(columns.value)),
        properties=properties,
        exchanges=_exchanges(batch, columns, options),
        skipped=skipped,
        samples=shown,
    )


def _reason(faults: Sequence[_Fault], at: int) -> str:
    return next(fault.reason(at) for fault in faults if fault.rows[at])


def _key_hash(keys: Any, at: int) -> str | None:  # noqa: ANN401  # Arrow has no types
    key = None if keys is None else keys[at].as_py()
    return None if key is None else hash_of_key(key)


# -- what is published


def _binary(column: Any) -> Any:  # noqa: ANN401
    """Text as its UTF-8 bytes, without a copy; what Spark calls a string need not be valid UTF-8."""
    if pa.types.is_string(column.type):
        return column.view(pa.binary())
    return column.view(pa.large_binary()) if pa.types.is_large_string(column.type) else column


def _keys(batch: pa.RecordBatch, columns: MessageColumns, options: WriteOptions) -> Any:  # noqa: ANN401
    if columns.key is not None:
        return _binary(batch.column(columns.key))
    return [(options.routing_key or "").encode()] * batch.num_rows


def _exchanges(batch: pa.RecordBatch, columns: MessageColumns, options: WriteOptions) -> Any:  # noqa: ANN401
    if columns.exchange is None:
        return None
    return _binary(batch.column(columns.exchange).fill_null(options.exchange))


def _properties(
    batch: pa.RecordBatch, columns: MessageColumns, options: WriteOptions
) -> Iterator[tuple[str, Any]]:
    for name, at in columns.properties.items():
        column = batch.column(at)
        if column.null_count < len(column):
            yield name, _seconds(column) if name == "timestamp" else _binary(column)
    if columns.headers is not None and batch.column(columns.headers).null_count < batch.num_rows:
        yield "headers", _with_constants(batch.column(columns.headers).to_pylist(), options)


def _seconds(column: Any) -> Any:  # noqa: ANN401
    """Whole seconds since 1970, rounded down.

    Arrow's own rounding goes by local time: it stops at an hour that comes twice, and at a time zone that only Spark knows.
    """
    micros = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return pa.array(micros // 1_000_000, pa.int64(), mask=column.is_null().to_numpy(zero_copy_only=False))


def _with_constants(
    rows: list[list[tuple[str, str]] | None], options: WriteOptions
) -> list[dict[str, Any] | None]:
    return [None if pairs is None else {**options.headers, **dict(pairs)} for pairs in rows]


# -- what cannot be


def _faults(batch: pa.RecordBatch, columns: MessageColumns, options: WriteOptions) -> Iterator[_Fault]:
    yield from _body_faults(batch.column(columns.value), options)
    if columns.key is not None:
        yield from _null_faults("key", batch.column(columns.key))
        yield from _length_faults("key", batch.column(columns.key))
    if columns.exchange is not None:
        exchanges = batch.column(columns.exchange)
        yield from _length_faults("exchange", exchanges)
        if not options.exchange:
            yield from _null_faults("exchange", exchanges)
    for name, at in columns.properties.items():
        yield from _property_faults(name, batch.column(at), options)
    if columns.headers is not None:
        yield from _header_faults(batch.column(columns.headers), options)


def _body_faults(values: Any, options: WriteOptions) -> Iterator[_Fault]:  # noqa: ANN401
    yield from _null_faults("value", values)
    sizes = _sizes(values)
    yield _Fault(
        sizes > options.max_message_bytes,
        lambda at: (
            f"the value is {sizes[at]:,} bytes long, and maxMessageBytes is {options.max_message_bytes:,}: "
            "raise it as far as the broker's max_message_size allows, or shorten the value"
        ),
    )


def _null_faults(name: str, column: Any) -> Iterator[_Fault]:  # noqa: ANN401
    if column.null_count:
        text = f"column {name!r} is null: filter such rows, or fill them with coalesce"
        yield _Fault(_flags(column.is_null()), lambda _: text)


def _length_faults(name: str, column: Any) -> Iterator[_Fault]:  # noqa: ANN401
    sizes = _sizes(column)
    yield _Fault(
        sizes > _SHORT,
        lambda at: (
            f"column {name!r} is {sizes[at]:,} bytes long; AMQP allows {_SHORT}: shorten it, or use its hash"
        ),
    )


def _property_faults(name: str, column: Any, options: WriteOptions) -> Iterator[_Fault]:  # noqa: ANN401
    if name not in _NUMBERS:
        yield from _length_faults(name, column)
    if name == "message_id" and options.message_id == "column":
        yield from _null_faults(name, column)
    if name == "expiration":
        yield from _expiration_faults(column)
    elif name == "timestamp":
        yield from _range_faults(name, _seconds(column), 0, None)
    elif name == "priority":
        yield from _range_faults(name, column, 0, 255)
    elif name == "delivery_mode":
        yield from _range_faults(name, column, 1, 2)


def _range_faults(name: str, column: Any, low: int, high: int | None) -> Iterator[_Fault]:  # noqa: ANN401
    numbers = column.cast(pa.int64()).fill_null(low).to_numpy(zero_copy_only=False)
    allowed = f"{low} to {high} is possible" if high is not None else f"{low} and more is possible"
    yield _Fault(
        (numbers < low) if high is None else (numbers < low) | (numbers > high),
        lambda at: f"column {name!r} is {numbers[at]}: {allowed}",
    )


def _expiration_faults(column: Any) -> Iterator[_Fault]:  # noqa: ANN401
    """RabbitMQ closes the channel on any other text (rabbitmq-server v4.3.0, rabbit_misc.erl, check_expiry/1)."""
    texts = _binary(column).to_pylist()
    bad = [
        text is not None and not (text.isdigit() and len(text) <= 10 and int(text) <= _MAX_EXPIRATION_MS)
        for text in texts
    ]
    yield _Fault(
        np.array(bad, bool),
        lambda at: (
            f"column 'expiration' is {texts[at][:40]!r}: "
            f"give milliseconds, 0 to {_MAX_EXPIRATION_MS}, as a text of digits"
        ),
    )


def _header_faults(column: Any, options: WriteOptions) -> Iterator[_Fault]:  # noqa: ANN401
    offsets = column.offsets.to_numpy(zero_copy_only=False)
    start, total = int(offsets[0]), int(offsets[-1] - offsets[0])
    names, values = column.keys.slice(start, total), column.items.slice(start, total)
    row_of = np.repeat(np.arange(len(column)), np.diff(offsets))
    name_sizes = _sizes(names)
    special = _flags(pc.is_in(names, value_set=pa.array(["CC", "BCC"], names.type)))
    yield _Fault(
        _any_by_row(special, row_of, len(column)),
        lambda _: (
            "a header CC or BCC gives RabbitMQ further routing keys, and as a text it closes the channel"
        ),
    )
    yield _Fault(
        _any_by_row(name_sizes > _SHORT, row_of, len(column)),
        lambda _: f"the name of a header is longer than {_SHORT} bytes",
    )
    sizes = np.bincount(row_of, weights=name_sizes + _sizes(values) + 6, minlength=len(column))
    sizes += len(encode_headers(options.headers)) - _TABLE_HEAD
    yield _Fault(
        sizes > MAX_HEADERS_BYTES,
        lambda at: (
            f"the headers are {int(sizes[at]):,} bytes long with headersConst, and AMQP carries them in one frame: "
            f"{MAX_HEADERS_BYTES:,} are possible; put them into the value"
        ),
    )
    yield from _text_faults(names, values, row_of, len(column))


def _text_faults(names: Any, values: Any, row_of: NDArray[np.int64], rows: int) -> Iterator[_Fault]:  # noqa: ANN401
    """Headers are text on the wire; what Spark calls a string need not be."""
    for column in (_binary(names), _binary(values)):
        try:
            column.cast(pa.large_string())  # looks at the whole column, and costs little
        except pa.ArrowInvalid:
            bad = np.array([not _is_text(text) for text in column.to_pylist()], bool)
            yield _Fault(
                _any_by_row(bad, row_of, rows),
                lambda _: "a header is no valid UTF-8: make it so with base64",
            )


def _is_text(text: bytes | None) -> bool:
    try:
        (text or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


def _any_by_row(flags: Flags, row_of: NDArray[np.int64], rows: int) -> Flags:
    found = np.zeros(rows, bool)
    found[row_of[flags]] = True
    return found


def _sizes(column: Any) -> NDArray[np.int64]:  # noqa: ANN401
    """Bytes of each value, 0 for null."""
    lengths: Any = pc.binary_length(column)
    sizes: NDArray[np.int64] = (
        lengths.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    )
    return sizes


def _flags(column: Any) -> Flags:  # noqa: ANN401
    flags: Flags = column.fill_null(False).to_numpy(zero_copy_only=False)
    return flags
