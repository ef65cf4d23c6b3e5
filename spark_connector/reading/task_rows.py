"""What a task of a reading gives: the rows of a range of a stream, as Spark's Arrow batches."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import pyarrow as pa

from rabbit_chx.errors import MissingRowsError, NotFoundError
from rabbit_chx.streams.reader import StreamReader
from rabbit_chx.streams.rows import COLUMN_TYPES
from spark_connector.options.read_options import ReadOptions
from spark_connector.reading.ranges import Range

_log = logging.getLogger(__name__)

_COLUMNS = {
    "key": "binary",
    "value": "binary",
    "stream": "string",
    "offset": "bigint",
    "timestamp": "timestamp",
    "exchange": "string",
    "message_id": "string",
    "properties": "map<string,string>",
    "headers": "map<string,string>",
}
_ALWAYS = 5
_ARROW = {**COLUMN_TYPES, "stream": pa.string()}


def columns(include: Sequence[str]) -> str:
    """Return the columns and their types, as Spark writes them.

    Args:
        include: the further columns, in their order.
    """
    return ", ".join(f"`{name}` {_COLUMNS[name]}" for name in _names(include))


def rows_of(each: Range, options: ReadOptions, task: int = 0) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a range, in their order.

    Args:
        each: the range.
        options: what is read.
        task: the number of the task; tasks begin with several addresses by it.

    Raises:
        MissingRowsError: rows are not in the stream any more, and ``failOnDataLoss`` is true.
        RabbitChxError: the reading cannot go on.
    """
    strict = options.fail_on_data_loss
    names = list(_names(options.include))
    schema = pa.schema([(name, _ARROW[name]) for name in names])
    try:
        with StreamReader(
            options.brokers.resolve(task),
            each.stream,
            start=each.start,
            end=each.end,
            include=options.include,
            addresses=options.addresses,
            on_missing="raise" if strict else "count",
            landmarks=each.landmarks if strict else (),
            expect=each.before if strict else None,
            timeout_s=options.timeout_s,
        ) as reader:
            for batch in reader:
                stream = pa.repeat(each.stream, batch.num_rows)
                yield pa.RecordBatch.from_arrays(
                    [stream if name == "stream" else batch[name] for name in names], schema=schema
                )
            if reader.missing:
                _log.warning(
                    "stream %r does not have %d of the offsets %d to %d: they are passed over (failOnDataLoss is false)",
                    each.stream,
                    reader.missing,
                    each.start,
                    each.end - 1,
                )
    except MissingRowsError as cause:
        raise in_sparks_words(cause) from None
    except NotFoundError as cause:
        if strict:
            raise in_sparks_words(MissingRowsError(str(cause), queue=each.stream)) from None
        _log.warning("%s; the reading goes on without (failOnDataLoss is false)", cause)


def in_sparks_words(cause: MissingRowsError) -> MissingRowsError:
    """Return the error with the option of Spark as its remedy."""
    text = str(cause).removesuffix(", or give on_missing='count'")
    return MissingRowsError(
        f"{text}. With failOnDataLoss=false the reading goes on with what is there",
        queue=cause.queue,
        offsets=cause.offsets,
    )


def _names(include: Sequence[str]) -> tuple[str, ...]:
    return (*list(_COLUMNS)[:_ALWAYS], *include)
