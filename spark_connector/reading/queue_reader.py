"""Peeking at queues with Spark: a task looks at the messages of a queue.

A task first takes all that it gives, then gives it back, and only then hands rows to Spark: no queue waits for what Spark does with
them. Needs PySpark 4.0 or newer.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceReader, InputPartition

from rabbit_chx.connection.queue_consumer import QueueConsumer
from rabbit_chx.errors import InputError
from spark_connector.executor_functions import pickled_as_code
from spark_connector.options.queue_options import QueueOptions
from spark_connector.reading.queue_rows import batch_of, columns
from spark_connector.reading.spark_readers import check_schema
from spark_connector.spark_errors import raising_without_traceback

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_log = logging.getLogger(__name__)

#: How long the repeat of a task waits for what the broker gives back in the place of the one that died.
_GIVEN_BACK_S = 5.0
_LOOK_S = 0.1


@raising_without_traceback
def queue_reader(texts: Mapping[str, str], schema: StructType, *, speculation: bool | None) -> QueueReader:
    """Return the reader of queues.

    Args:
        texts: what the user gave to ``.option(...)``.
        schema: the columns, which Spark has from `queue_columns`, or from the user.
        speculation: whether ``spark.speculation`` is on; None if it is not known.

    Raises:
        InputError: an option cannot be used, the schema is another one, or ``spark.speculation`` is on.
    """
    options = QueueOptions.parse(texts, peeks=True)
    check_schema(schema, columns(options.include))
    if speculation:
        raise InputError(
            "spark.speculation is on, and a copy of a task that peeks finds what the task holds missing: set spark.speculation to false"
        )
    return QueueReader(options)


@raising_without_traceback
def queue_columns(texts: Mapping[str, str]) -> str:
    """Return the columns of the rows and their types, as Spark writes them.

    Raises:
        InputError: an option cannot be used.
    """
    return columns(QueueOptions.parse(texts, peeks=True).include)


class QueueReader(DataSourceReader):
    """Looks at the messages of queues, a task for each queue."""

    def __init__(self, options: QueueOptions) -> None:
        self._options = options

    @raising_without_traceback
    def partitions(self) -> list[InputPartition]:
        """Return the queues, and how many messages they have."""
        from spark_connector.reading.queue_choice import queues_of  # only the planner loads it

        return [InputPartition(counted) for counted in queues_of(self._options).items()]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Yield the messages that are in a queue now."""
        # Spark's own, where there are no partitions: None in PySpark 4.0, later one that is empty.
        if partition is None or partition.value is None:
            return
        queue, planned = partition.value
        context = TaskContext.get()
        repeats = context is not None and context.attemptNumber() > 0
        yield peek(
            self._options, queue, context.partitionId() if context else 0, expected=planned if repeats else 0
        )

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, str, bytes]]:
        return pickled_as_code(type(self), self._options)


@raising_without_traceback
def peek(options: QueueOptions, queue: str, task: int = 0, *, expected: int = 0) -> pa.RecordBatch:
    """Return the messages that are ready in a queue, from its head on, and give them back.

    Args:
        options: how many.
        queue: the queue's name.
        task: the number of the task; tasks begin with several addresses by it.
        expected: how many messages are waited for, some seconds at most: an earlier attempt may have held them when it died.

    Raises:
        AccessRefusedError: another consumer has the queue for itself, or the user may not read it.
        BrokerTimeoutError: another consumer goes first.
        UnreachableError: nobody answers, or the connection was lost; then the broker gives back what was taken.
    """
    with closing(options.brokers.first_that_answers(QueueConsumer, task)) as consumer:
        deadline = time.monotonic() + _GIVEN_BACK_S
        while (ready := consumer.ready(queue)) < expected and time.monotonic() < deadline:
            time.sleep(_LOOK_S)
        taken = consumer.take(queue, min(ready, options.max_rows), options.max_bytes)
        consumer.give_back()
    if len(taken) < ready:
        _log.warning(
            "queue %r had %d messages, and %d are shown: others took the rest, or maxRows (%d) or maxBytes (%d) is less",
            queue,
            ready,
            len(taken),
            options.max_rows,
            options.max_bytes,
        )
    return batch_of(queue, taken, options.include)
