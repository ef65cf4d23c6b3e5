"""Drain queues: write their messages batch by batch, and acknowledge each written batch. Runs on the driver."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyspark

from rabbit_chx.checks import check_seconds, check_whole
from rabbit_chx.errors import InputError, MissingExtraError
from spark_connector.options.read_options import QueueOptions
from spark_connector.options.write_options import to_texts
from spark_connector.reading.queue_consumer import QueueConsumer, UnsettledMessage, batch_of
from spark_connector.reading.sources import bound_queues

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: The first PySpark that makes a DataFrame of an Arrow table.
_ARROW_SINCE = 4
#: The result of a `write` that has not been started.
_UNDONE = ("DataFrame", "DataFrameWriter", "DataFrameWriterV2")


@dataclass(frozen=True, slots=True)
class DrainReport:
    """The result of `drain`. `str` renders it as a line.

    Attributes:
        messages: number of messages of each queue that were written and acknowledged.
        left: number of messages of each queue that were ready at the beginning and were not written: a bound was reached.
        batches: number of batches.
        redelivered: number of messages that had been delivered before, to any consumer: some may have been written before.
        seconds: duration in seconds.
    """

    messages: Mapping[str, int] = field(default_factory=dict)
    left: Mapping[str, int] = field(default_factory=dict)
    batches: int = 0
    redelivered: int = 0
    seconds: float = 0.0

    @property
    def acknowledged(self) -> int:
        """Messages of all queues that were written and acknowledged."""
        return sum(self.messages.values())

    def __str__(self) -> str:
        left = sum(self.left.values())
        return (
            f"{self.acknowledged:,} messages of {len(self.messages):,} queues written and acknowledged in {self.batches:,} batches, "
            f"{self.redelivered:,} redelivered{f', {left:,} left' if left else ''}; {self.seconds:.1f} s"
        )


def drain(
    spark: SparkSession,
    options: Mapping[str, object],
    write: Callable[[DataFrame], object],
    *,
    max_messages: int | None = None,
    max_seconds: float | None = None,
) -> DrainReport:
    """Write the messages that are in queues now, and acknowledge each batch when it is written.

    Delivery is at least once: a message leaves its queue after `write` has returned for its batch. If `write` raises, this process dies, or
    the connection is lost, the broker requeues the messages of the batch. Batches take the queues in order, and each queue in its own
    order, until the messages that were ready at the beginning are written, or consumed by others.

    Args:
        spark: the session, classic or Connect, of PySpark 4.0 or newer.
        options: `url`, `queue` or `exchange`, and the others of docs/reference/spark-options.md for queues; a number or a boolean needs no quotes.
        write: stores a batch before it returns, as ``lambda df: df.write.mode("append").parquet(path)``; docs/spark/write.md lists the columns.
            Its longest duration is the broker's ``consumer_timeout`` (30 minutes).
        max_messages: the most messages in all; None for all ready messages.
        max_seconds: the time in seconds after which no batch begins; None for no bound.

    Raises:
        InputError: an argument is not valid, a queue is a stream, or `write` returns what it should have stored.
        NotFoundError: the queue or exchange does not exist.
        AccessRefusedError: another consumer has exclusive use of a queue, or the user may not read it.
        UnreachableError: no broker answers, or the connection was lost.
        Exception: what `write` raises. A note of each exception has the counts of the messages that were written and acknowledged before.

    Example::

        drain(spark, {"url": url, "queue": "orders.dead"}, lambda df: df.write.mode("append").parquet("dead"))
    """
    if max_messages is not None:
        check_whole("max_messages", max_messages, 1)
    if max_seconds is not None:
        check_seconds("max_seconds", max_seconds)
    if int(pyspark.__version__.partition(".")[0]) < _ARROW_SINCE:
        raise MissingExtraError(
            f"drain needs PySpark {_ARROW_SINCE}.0 or newer, and this is {pyspark.__version__}"
        )
    parsed = QueueOptions.parse(to_texts(options, None))
    began = time.monotonic()
    with closing(parsed.brokers.call_first_reachable(QueueConsumer)) as consumer:
        work = _Drain(consumer, parsed, _ready(parsed, consumer), max_messages)
        try:
            while max_seconds is None or time.monotonic() - began < max_seconds:
                taken = work.take()
                if not taken:
                    break
                frame = spark.createDataFrame(work.table(taken))
                with consumer.keep_alive():
                    _write(write, frame)
                work.acknowledge(taken)
        except BaseException as cause:
            cause.add_note(f"drain: before this, {work.report(began)}. All others are in their queues")
            raise
        return work.report(began)


class _Drain:
    def __init__(
        self, consumer: QueueConsumer, options: QueueOptions, left: dict[str, int], most: int | None
    ) -> None:
        self._consumer = consumer
        self._options = options
        self._left = left
        self._most = sum(left.values()) if most is None else most
        self._done = Counter(dict.fromkeys(left, 0))
        self._batches = self._redelivered = 0

    def take(self) -> list[tuple[str, list[UnsettledMessage]]]:
        """Return the next batch by queue; an empty one at the end."""
        taken: list[tuple[str, list[UnsettledMessage]]] = []
        room = min(self._options.max_rows, self._most)
        room_bytes = self._options.max_bytes
        for queue, left in self._left.items():
            wanted = min(room, left)
            if wanted <= 0 or room_bytes <= 0:
                continue
            messages = self._consumer.take(queue, wanted, room_bytes)
            room -= len(messages)
            room_bytes -= sum(message.size for message in messages)
            if len(messages) < wanted and room_bytes > 0:
                self._left[queue] = len(messages)  # others have taken the rest
            if messages:
                taken.append((queue, messages))
        return taken

    def table(self, taken: list[tuple[str, list[UnsettledMessage]]]) -> pa.Table:
        include = self._options.include
        return pa.Table.from_batches([batch_of(queue, messages, include) for queue, messages in taken])

    def acknowledge(self, taken: list[tuple[str, list[UnsettledMessage]]]) -> None:
        self._consumer.acknowledge(taken[-1][1][-1])
        self._batches += 1
        for queue, messages in taken:
            self._done[queue] += len(messages)
            self._left[queue] -= len(messages)
            self._most -= len(messages)
            self._redelivered += sum(message.redelivered for message in messages)

    def report(self, began: float) -> DrainReport:
        seconds = time.monotonic() - began
        left = {queue: count for queue, count in self._left.items() if count}
        return DrainReport(dict(self._done), left, self._batches, self._redelivered, seconds)


def _ready(options: QueueOptions, consumer: QueueConsumer) -> dict[str, int]:
    """Return the number of ready messages of each queue; InputError if one is a stream, or the exchange has no bindings to queues."""
    ready = {}
    for queue in options.queues or _bound(options):
        ready[queue] = consumer.ready(queue)
        if consumer.is_stream(queue):
            raise InputError(
                f"queue {queue!r} is a stream, which keeps its messages: read it with spark.read and the option stream={queue!r}",
                queue=queue,
            )
    return ready


def _bound(options: QueueOptions) -> list[str]:
    assert options.exchange is not None  # the options are checked
    assert options.management_url is not None
    login = options.brokers.resolve()[0]
    types = bound_queues(options.management_url.with_login_of(login), login.vhost, options.exchange)
    queues = sorted(queue for queue, kind in types.items() if kind != "stream")
    if not queues:
        raise InputError(
            f"no queue is bound to exchange {options.exchange!r} in vhost {login.vhost!r}, but {len(types)} streams: read them "
            "with spark.read",
            exchange=options.exchange,
        )
    return queues


def _write(write: Callable[[Any], object], df: DataFrame) -> None:
    returned = write(df)
    if type(returned).__name__ in _UNDONE:
        raise InputError(
            f"write has returned a {type(returned).__name__}, so nothing is stored yet: let it end with an action, such as "
            '.write.mode("append").parquet(path)'
        )
