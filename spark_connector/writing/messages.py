"""The rows of a batch as messages: bad rows, message properties, message ids."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rabbit_chx.amqp.fields import encode_headers
from rabbit_chx.checks import MAX_SHORTSTR
from rabbit_chx.errors import RowError
from rabbit_chx.publishing import PropertyColumns
from rabbit_chx.publishing.batches import ID_BYTES, row_hash, write_hash
from spark_connector.columns import KNOWN_COLUMNS, Fault, Flags, MessageColumns, as_binary
from spark_connector.options.write_options import MAX_HEADERS_BYTES, WriteOptions
from spark_connector.reports import MAX_SAMPLES, RowSample, hash_key

if TYPE_CHECKING:
    from numpy.typing import NDArray


_TABLE_HEAD = 4  # bytes before the headers that contain their length
#: Rows are joined for hashing in slices of about this many bytes, so that large bodies are not held twice.
_SLICE_BYTES = 4 << 20


def byte_lengths(column: Any) -> NDArray[np.int64]:
    """Return the number of bytes of each text or binary value; 0 for null."""
    lengths: Any = pc.binary_length(column)
    sizes: NDArray[np.int64] = (
        lengths.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    )
    return sizes


def as_flags(column: Any) -> NDArray[np.bool_]:
    """Return a column of booleans as a NumPy array; null is False."""
    flags: NDArray[np.bool_] = column.fill_null(False).to_numpy(zero_copy_only=False)
    return flags


@dataclass(frozen=True, slots=True)
class Check:
    """A check of a column for nulls or for long values.

    Attributes:
        fault: description of a bad row.
        remedy: what the user can do about it.
        most_bytes: length of the longest possible value; None if the check is for nulls.
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


def list_checks(columns: MessageColumns, options: WriteOptions) -> Iterator[Check]:
    """Yield the checks for nulls and lengths; of a row with several faults, the first one is reported."""
    yield Check.null(options.column_of("value"), columns.value)
    yield Check(
        columns.value,
        "the value is longer than maxMessageBytes",
        f"raise maxMessageBytes, which is {options.max_message_bytes:,}, as far as the broker's max_message_size "
        "allows, or shorten the value",
        options.max_message_bytes,
    )
    if columns.key is not None:
        yield Check.null(options.column_of("key"), columns.key)
        yield Check.short(options.column_of("key"), columns.key)
    if columns.order is not None:
        yield Check.null(options.order_by or "", columns.order)
    if columns.exchange is not None:
        yield Check.short(options.column_of("exchange"), columns.exchange)
        if not options.exchange:
            yield Check.null(options.column_of("exchange"), columns.exchange)
    for name, column in columns.properties.items():
        if KNOWN_COLUMNS[name].is_text:
            yield Check.short(options.column_of(name), column)
        if name == "message_id" and options.message_id == "column":
            yield Check.null(options.column_of(name), column)


def find_faults(batch: pa.RecordBatch, columns: MessageColumns, options: WriteOptions) -> Iterator[Fault]:
    """Yield the faults to look for in a batch; a fault may have no rows."""
    for check in list_checks(columns, options):
        column = batch.column(check.column)
        if check.most_bytes is not None:
            yield _too_long(check, check.most_bytes, column)
        elif column.null_count:
            yield _nulls(check, column)
    for name, at in columns.properties.items():
        if (find := KNOWN_COLUMNS[name].find_fault) is not None:
            yield find(options.column_of(name), batch.column(at))
    if columns.headers is not None:
        yield from _bad_headers(batch.column(columns.headers), options)


def _nulls(check: Check, column: Any) -> Fault:  # Arrow has no types
    return Fault(as_flags(column.is_null()), lambda _: f"{check.fault}: {check.remedy}")


def _too_long(check: Check, most_bytes: int, column: Any) -> Fault:
    sizes = byte_lengths(column)
    return Fault(sizes > most_bytes, lambda at: f"{check.fault} (it has {sizes[at]:,} bytes): {check.remedy}")


def _too_large(batch: pa.RecordBatch, columns: MessageColumns, most_bytes: int) -> Fault:
    """Return the rows that do not fit into a frame of the stream protocol; a row is never split."""
    sizes = byte_lengths(batch.column(columns.value))
    if columns.key is not None:
        sizes = sizes + byte_lengths(batch.column(columns.key))
    if columns.filter_value is not None:
        sizes = sizes + 2 * byte_lengths(batch.column(columns.filter_value))
    return Fault(
        sizes > most_bytes,
        lambda at: (
            f"key, value and twice the filter value have {sizes[at]:,} bytes, and at most {most_bytes:,} fit into a frame of this broker: "
            "shorten the value, or raise the broker's stream.frame_max"
        ),
    )


_BASE64 = (
    ("the name of a header", "transform_keys(headers, (k, v) -> base64(k))"),
    ("a header", "transform_values(headers, (k, v) -> base64(v))"),
)


def _bad_headers(column: Any, options: WriteOptions) -> Iterator[Fault]:
    offsets = column.offsets.to_numpy(zero_copy_only=False)
    start = int(offsets[0])
    total = int(offsets[-1] - offsets[0])
    names = column.keys.slice(start, total)
    values = column.items.slice(start, total)
    row_of = np.repeat(np.arange(len(column)), np.diff(offsets))
    name_sizes = byte_lengths(names)

    def by_row(flags: Flags) -> Flags:
        rows = np.zeros(len(column), bool)
        rows[row_of[flags]] = True
        return rows

    special = as_flags(pc.is_in(names, value_set=pa.array(["CC", "BCC"], names.type)))
    yield Fault(
        by_row(special),
        lambda _: (
            "a header CC or BCC gives RabbitMQ further routing keys, and as a text it closes the channel: leave it out: "
            "`map_filter(headers, (k, v) -> k NOT IN ('CC', 'BCC'))`"
        ),
    )
    yield Fault(
        by_row(name_sizes > MAX_SHORTSTR),
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
    for texts, (what, recipe) in zip((names, values), _BASE64, strict=True):
        if (bad := _invalid_utf8(as_binary(texts))) is not None:
            reason = f"{what} is not valid UTF-8: encode it with base64: `{recipe}`"
            yield Fault(by_row(bad), lambda _, reason=reason: reason)  # type: ignore[misc]


def _invalid_utf8(texts: Any) -> Flags | None:
    """Return which texts are not UTF-8, as headers are on the wire; None if all are. A string of Spark may contain any bytes."""
    try:
        texts.cast(pa.large_string())  # checks the whole column, and costs little
    except pa.ArrowInvalid:
        return np.array([not _is_text(text) for text in texts.to_pylist()], bool)
    return None


def _is_text(text: bytes | None) -> bool:
    try:
        (text or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Messages:
    """The messages of a batch, as columns of equal length.

    Attributes:
        properties: a column for each message property that differs by row, with `headers` as dicts; None in a row without a value.
        exchanges: names of exchanges; None if all messages have one exchange.
        skipped: number of bad rows, which are omitted.
        samples: the first few bad rows.
        filter_values: the filter value of each row, empty for none; None without the option.
        order: the value by which each row is ordered, a whole number or bytes; None without the option.
    """

    keys: Any
    bodies: Any
    properties: PropertyColumns
    exchanges: Any
    skipped: int = 0
    samples: tuple[RowSample, ...] = ()
    filter_values: Any = None
    order: Any = None

    def __len__(self) -> int:
        return len(self.bodies)


def build_messages(
    batch: pa.RecordBatch,
    columns: MessageColumns,
    options: WriteOptions,
    *,
    partition: int = 0,
    first_row: int = 0,
    ids: MessageIds | None = None,
    samples: int = MAX_SAMPLES,
    most_row_bytes: int | None = None,
) -> Messages:
    """Return the messages of a batch; RowError if a row is bad and ``badRows`` is fail.

    `first_row` is its number in the partition, and `most_row_bytes` what a row in a stream may have; None for AMQP.
    """
    found = find_faults(batch, columns, options)
    if most_row_bytes is not None:
        found = chain(found, [_too_large(batch, columns, most_row_bytes)])
    faults = [fault for fault in found if fault.rows.any()]
    skipped = 0
    shown: tuple[RowSample, ...] = ()
    if faults:
        bad = np.logical_or.reduce([fault.rows for fault in faults])
        positions = np.flatnonzero(bad)
        if not options.skip_bad_rows:
            at = int(positions[0])
            raise RowError(
                f"row {first_row + at}: {_reason(faults, at)}; {len(positions):,} of {batch.num_rows:,} rows of this batch are bad, and "
                "option badRows=skip omits and counts such rows"
            )
        column = None if columns.key is None else as_binary(batch.column(columns.key))
        shown = tuple(
            RowSample(partition, first_row + int(at), _reason(faults, int(at)), _key_hash(column, int(at)))
            for at in positions[:samples]
        )
        batch = batch.take(pa.array(np.flatnonzero(~bad), pa.int64()))
        skipped = len(positions)
    properties: Any = dict(_properties(batch, columns, options))
    if ids is not None:
        properties["message_id"] = ids.of(batch, columns, properties.get("headers", ()))
    if columns.key is None:
        keys = [(options.queue or options.routing_key or "").encode()] * batch.num_rows
    else:
        keys = as_binary(batch.column(columns.key))

    def column_of(at: int | None, convert: Callable[[Any], Any]) -> Any:
        return None if at is None else convert(batch.column(at))

    exchanges = column_of(columns.exchange, lambda names: as_binary(names.fill_null(options.exchange)))
    filter_values = column_of(columns.filter_value, lambda values: as_binary(values).fill_null(b""))
    order = column_of(columns.order, _orderable)
    bodies = as_binary(batch.column(columns.value))
    return Messages(keys, bodies, properties, exchanges, skipped, shown, filter_values, order)


def _orderable(column: Any) -> Any:  # Arrow has no types
    """Return values as whole numbers or bytes in the same order."""
    if pa.types.is_date32(column.type):
        return column.cast(pa.int32())
    is_number = pa.types.is_integer(column.type) or pa.types.is_timestamp(column.type)
    return column.cast(pa.int64()) if is_number else as_binary(column)


def _reason(faults: Sequence[Fault], at: int) -> str:
    return next(fault.reason(at) for fault in faults if fault.rows[at])


def _key_hash(keys: Any, at: int) -> str | None:  # Arrow has no types
    key = None if keys is None else keys[at].as_py()
    return None if key is None else hash_key(key)


def _properties(
    batch: pa.RecordBatch, columns: MessageColumns, options: WriteOptions
) -> Iterator[tuple[str, Any]]:
    for name, at in columns.properties.items():
        column = batch.column(at)
        if column.null_count < len(column):
            yield name, KNOWN_COLUMNS[name].convert(column)
    if columns.headers is not None and batch.column(columns.headers).null_count < batch.num_rows:
        rows = batch.column(columns.headers).to_pylist()
        yield "headers", [None if pairs is None else {**options.headers, **dict(pairs)} for pairs in rows]


class MessageIds:
    """Computes message ids from the content of the rows, by the rule of `rabbit_chx.publishing.batches`. Keeps 8 bytes per row.

    The name of the write has the micro-batch and the partition. A second attempt computes the same ids if the partition has the same rows,
    in any order. `write_id` is the id or the name of the write, or the id of the streaming query.
    """

    def __init__(self, write_id: str, batch_id: int, partition: int) -> None:
        self._where = f"{write_id}\n{batch_id}\n{partition}\n"
        #: The first 8 bytes of the hashes so far. The whole hash is in the id, so a collision is harmless.
        self._runs: list[NDArray[np.uint64]] = []  # each sorted, and longer than all later ones together

    def of(
        self, batch: pa.RecordBatch, columns: MessageColumns, headers: Sequence[Mapping[str, Any] | None]
    ) -> list[str]:
        """Return an id for each row; `headers` are those of each row, empty if all rows have none."""
        digests = b"".join(_hashes(self._where, batch, columns, headers))
        numbers = self._count_equal(np.frombuffer(digests, np.uint64)[::2])
        text = digests.hex()
        ids = [text[at : at + 2 * ID_BYTES] for at in range(0, len(text), 2 * ID_BYTES)]
        for at in np.flatnonzero(numbers):
            ids[at] += f"-{numbers[at]}"
        return ids

    def _count_equal(self, hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return for each hash the number of equal ones before it, in this call or an earlier one."""
        order = np.argsort(hashes, kind="stable")
        ordered = hashes[order]
        numbers = np.arange(len(ordered)) - np.searchsorted(ordered, ordered)
        for run in self._runs:
            first = np.searchsorted(run, ordered)
            known = np.flatnonzero(run[np.minimum(first, len(run) - 1)] == ordered)
            numbers[known] += np.searchsorted(run, ordered[known], "right") - first[known]
        unordered = np.empty_like(numbers)
        unordered[order] = numbers
        self._remember(ordered)
        return unordered

    def _remember(self, run: NDArray[np.uint64]) -> None:
        while self._runs and len(self._runs[-1]) <= 2 * len(run):
            run = np.concatenate((self._runs.pop(), run))
            run.sort(kind="stable")  # two sorted halves: a merge
        if len(run):
            self._runs.append(run)


def _hashes(
    where: str, batch: pa.RecordBatch, columns: MessageColumns, headers: Sequence[Mapping[str, Any] | None]
) -> Iterator[bytes]:
    """Yield the hash of each row by the rule of `rabbit_chx.publishing.batches`; numbers are text, and headers their sorted pairs."""
    texts = {name: _as_text(batch.column(at)) for name, at in columns.positions.items() if name != "headers"}
    key = texts.pop("key", None)
    body = texts.pop("value")
    if columns.headers is not None:
        rows = headers or [None] * batch.num_rows
        texts["headers"] = pa.array([repr(row and sorted(row.items())).encode() for row in rows], pa.binary())
    names = sorted(texts)
    fields = [pa.nulls(batch.num_rows, pa.binary()) if key is None else key, *(texts[name] for name in names)]
    lengths = [pc.binary_length(field).fill_null(-1).to_numpy(zero_copy_only=False) for field in fields]
    heads = [length.astype(">i4") for length in lengths]
    write = write_hash(where + ",".join(names))
    ends = np.cumsum(byte_lengths(body) + sum(np.maximum(length, 0) for length in lengths), dtype=np.int64)
    cuts = np.flatnonzero(np.diff(ends // _SLICE_BYTES)) + 1
    for first, end in pairwise([0, *cuts.tolist(), len(ends)]):
        parts: list[Any] = []
        for head, field in zip(heads, fields, strict=True):
            length = pa.py_buffer(head[first:end].tobytes())
            parts.append(pa.FixedSizeBinaryArray.from_buffers(pa.binary(4), end - first, [None, length]))
            parts.append(field.slice(first, end - first))
        parts.append(body.slice(first, end - first))
        joined: Any = pc.binary_join_element_wise(
            *(part.cast(pa.binary()) for part in parts), b"", null_handling="replace", null_replacement=""
        )
        for row in joined.to_pylist():
            yield row_hash(write, row)


def _as_text(column: Any) -> Any:  # Arrow has no types
    """Return a text column as its bytes, and another one as the decimal numbers that its values are."""
    if pa.types.is_integer(column.type) or pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64()).cast(pa.string())
    return as_binary(column)
