"""Rows that AMQP cannot carry: what makes a row bad, in which words, and how it is found in an Arrow batch.

`checks_of` lists what both the write and the dry run look for: the write in Arrow batches (`faults_in`), the
dry run in Spark SQL. What only the contents of a batch tell, such as a priority out of range, is found by the
write alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rabbit_chx.amqp.frames import MAX_SHORTSTR
from rabbit_chx.amqp.header_table import encode_headers
from spark_connector.options.write_options import MAX_HEADERS_BYTES, WriteOptions
from spark_connector.writing.arrow_columns import as_binary, as_flags, byte_lengths, whole_seconds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from spark_connector.writing.columns import MessageColumns

    Flags = NDArray[np.bool_]

_TABLE_HEAD = 4  # bytes before the headers that say how long they are
_MAX_EXPIRATION_MS = (1 << 32) - 1
#: The least and the greatest value of a property that is a number; None for no bound.
_RANGES: dict[str, tuple[int, int | None]] = {
    "priority": (0, 255),
    "delivery_mode": (1, 2),
    "timestamp": (0, None),
}


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that a column must not have: a null, or a value of too many bytes.

    Attributes:
        column: position of the column in a batch.
        fault: what a bad row has, in words.
        remedy: what the user can do about it.
        most_bytes: the longest value that is possible; None if the check is for nulls.
    """

    column: int
    fault: str
    remedy: str
    most_bytes: int | None = None

    @classmethod
    def null(cls, name: str, column: int) -> Check:
        """Return the check for nulls in the column of this name."""
        return cls(column, f"column {name!r} is null", "filter such rows, or fill them with coalesce")

    @classmethod
    def short(cls, name: str, column: int) -> Check:
        """Return the check that values fit into a short string of AMQP."""
        fault = f"column {name!r} is longer than {MAX_SHORTSTR} bytes"
        return cls(column, fault, "shorten it, or use its hash", MAX_SHORTSTR)


def checks_of(columns: MessageColumns, options: WriteOptions) -> Iterator[Check]:
    """Yield the checks for nulls and lengths; of a row with several faults, the first one is reported."""
    yield Check.null("value", columns.value)
    yield Check(
        columns.value,
        "the value is longer than maxMessageBytes",
        f"raise maxMessageBytes, which is {options.max_message_bytes:,}, as far as the broker's max_message_size "
        "allows, or shorten the value",
        options.max_message_bytes,
    )
    if columns.key is not None:
        yield Check.null("key", columns.key)
        yield Check.short("key", columns.key)
    if columns.exchange is not None:
        yield Check.short("exchange", columns.exchange)
        if not options.exchange:
            yield Check.null("exchange", columns.exchange)
    for name, column in columns.properties.items():
        if name not in _RANGES:
            yield Check.short(name, column)
        if name == "message_id" and options.message_id == "column":
            yield Check.null(name, column)


@dataclass(frozen=True, slots=True)
class Fault:
    """Rows of a batch that are bad for one reason.

    Attributes:
        rows: True for each bad row.
        reason: returns the reason in words for the row at a position; it shows nothing of a body.
    """

    rows: Flags
    reason: Callable[[int], str]


def faults_in(batch: pa.RecordBatch, columns: MessageColumns, options: WriteOptions) -> Iterator[Fault]:
    """Yield what may be wrong with the rows of a batch; a fault may have no rows."""
    for check in checks_of(columns, options):
        column = batch.column(check.column)
        if check.most_bytes is not None:
            yield _too_long(check, check.most_bytes, column)
        elif column.null_count:
            yield _nulls(check, column)
    for name, at in columns.properties.items():
        if name in _RANGES:
            numbers = batch.column(at)
            yield _out_of_range(name, whole_seconds(numbers) if name == "timestamp" else numbers)
        elif name == "expiration":
            yield _bad_expirations(batch.column(at))
    if columns.headers is not None:
        yield from _bad_headers(batch.column(columns.headers), options)


def _nulls(check: Check, column: Any) -> Fault:  # noqa: ANN401  # Arrow has no types
    return Fault(as_flags(column.is_null()), lambda _: f"{check.fault}: {check.remedy}")


def _too_long(check: Check, most_bytes: int, column: Any) -> Fault:  # noqa: ANN401
    sizes = byte_lengths(column)
    return Fault(sizes > most_bytes, lambda at: f"{check.fault} (it has {sizes[at]:,} bytes): {check.remedy}")


def _out_of_range(name: str, column: Any) -> Fault:  # noqa: ANN401
    low, high = _RANGES[name]
    numbers = column.cast(pa.int64()).fill_null(low).to_numpy(zero_copy_only=False)
    allowed = f"{low} to {high} is possible" if high is not None else f"{low} and more is possible"
    return Fault(
        (numbers < low) if high is None else (numbers < low) | (numbers > high),
        lambda at: f"column {name!r} is {numbers[at]}: {allowed}",
    )


def _bad_expirations(column: Any) -> Fault:  # noqa: ANN401
    """Find texts that are not expirations. RabbitMQ closes the channel on them.

    See rabbitmq-server v4.3.0, rabbit_misc.erl, check_expiry/1.
    """
    texts = as_binary(column).to_pylist()
    bad = [
        text is not None and not (text.isdigit() and len(text) <= 10 and int(text) <= _MAX_EXPIRATION_MS)
        for text in texts
    ]
    return Fault(
        np.array(bad, bool),
        lambda at: (
            f"column 'expiration' is {texts[at][:40]!r}: "
            f"give milliseconds, 0 to {_MAX_EXPIRATION_MS}, as a text of digits"
        ),
    )


def _bad_headers(column: Any, options: WriteOptions) -> Iterator[Fault]:  # noqa: ANN401
    offsets = column.offsets.to_numpy(zero_copy_only=False)
    start, total = int(offsets[0]), int(offsets[-1] - offsets[0])
    names, values = column.keys.slice(start, total), column.items.slice(start, total)
    row_of = np.repeat(np.arange(len(column)), np.diff(offsets))
    name_sizes = byte_lengths(names)
    special = as_flags(pc.is_in(names, value_set=pa.array(["CC", "BCC"], names.type)))
    yield Fault(
        _any_by_row(special, row_of, len(column)),
        lambda _: (
            "a header CC or BCC gives RabbitMQ further routing keys, and as a text it closes the channel: leave it out: "
            "`map_filter(headers, (k, v) -> k NOT IN ('CC', 'BCC'))`"
        ),
    )
    yield Fault(
        _any_by_row(name_sizes > MAX_SHORTSTR, row_of, len(column)),
        lambda _: (
            f"the name of a header is longer than {MAX_SHORTSTR} bytes: shorten it: "
            f"`transform_keys(headers, (k, v) -> left(k, {MAX_SHORTSTR}))`"
        ),
    )
    sizes = np.bincount(row_of, weights=name_sizes + byte_lengths(values) + 6, minlength=len(column))
    sizes += len(encode_headers(options.headers)) - _TABLE_HEAD
    yield Fault(
        sizes > MAX_HEADERS_BYTES,
        lambda at: (
            f"the headers are {int(sizes[at]):,} bytes long with headersConst, and AMQP carries them in one frame: "
            f"{MAX_HEADERS_BYTES:,} are possible; put them into the value"
        ),
    )
    for texts, what, recipe in (
        (names, "the name of a header", "transform_keys(headers, (k, v) -> base64(k))"),
        (values, "a header", "transform_values(headers, (k, v) -> base64(v))"),
    ):
        reason = f"{what} is not valid UTF-8: encode it with base64: `{recipe}`"
        yield from _bad_texts(as_binary(texts), reason, row_of, len(column))


def _bad_texts(texts: Any, reason: str, row_of: NDArray[np.int64], rows: int) -> Iterator[Fault]:  # noqa: ANN401
    """Yield the fault of texts that are not UTF-8, as headers are on the wire. A string of Spark may be anything."""
    try:
        texts.cast(pa.large_string())  # checks the whole column, and costs little
    except pa.ArrowInvalid:
        bad = np.array([not _is_text(text) for text in texts.to_pylist()], bool)
        yield Fault(_any_by_row(bad, row_of, rows), lambda _: reason)


def _is_text(text: bytes | None) -> bool:
    try:
        (text or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


def _any_by_row(flags: Flags, row_of: NDArray[np.int64], rows: int) -> Flags:
    by_row = np.zeros(rows, bool)
    by_row[row_of[flags]] = True
    return by_row
