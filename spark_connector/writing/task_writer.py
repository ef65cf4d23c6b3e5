"""One task: the rows of a partition, published by AMQP and confirmed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

from rabbit_chx.errors import InputError
from rabbit_chx.publishing import Publisher, PublishReport, Returned
from rabbit_chx.routing import ring_beneath
from spark_connector.options.write_options import WriteOptions
from spark_connector.placing.rings import rows_by_queue
from spark_connector.reports import KeySample, KeySampler, RowSample, TaskReport, hash_of_key
from spark_connector.writing.messages import MessageIds, Messages
from spark_connector.writing.stream_task_writer import StreamTaskWriter
from spark_connector.writing.task import Task, TaskCounter

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_connector.writing.write_plan import WritePlan


def writer_of(plan: WritePlan, task: Task) -> TaskWriter | StreamTaskWriter:
    """Return what writes the rows of a task: by AMQP, or into streams."""
    return TaskWriter(plan, task) if plan.layout is None else StreamTaskWriter(plan, task)


class TaskWriter:
    """Publishes the rows of one task by AMQP, and counts them. Each writer is used once.

    Args:
        plan: the checked write.
        task: the task that publishes.
    """

    def __init__(self, plan: WritePlan, task: Task) -> None:
        options = plan.options
        self._task = task
        self._options = options
        self._counter = TaskCounter(plan, task)
        write = options.write_name or task.write_id
        self._ids = MessageIds(write, task.batch_id, task.partition) if options.message_id == "auto" else None
        self._keys = KeySampler() if options.keep_order else None
        self._predicted: Counter[str] = Counter()

    def write(self, batches: Iterable[pa.RecordBatch]) -> TaskReport:
        """Publish every row and wait for its confirm.

        A partition without a row to publish opens no connection.

        Args:
            batches: the rows of the partition.

        Raises:
            PublishError: not every row was confirmed.
            RowError: AMQP cannot carry a row; any of the rows before it may be published.
            InputError: the password is not available in this process, Spark does not tell the write that
                message ids are made of, or copies of the task would break what was asked for.
        """

        def publish(begun_before: bool) -> TaskReport:  # noqa: FBT001
            if self._ids is not None and not self._task.write_id:
                raise InputError(
                    "option 'messageId' is 'auto', but this Spark does not tell the streaming query: "
                    "add a column message_id, and set messageId to column"
                )
            self._counter.note_repeats(begun_before=begun_before)
            return self._publish(batches)

        return self._counter.run(publish)

    def _publish(self, batches: Iterable[pa.RecordBatch]) -> TaskReport:
        messages = self._messages(batches)
        first = next(messages, None)
        if first is None:
            return self._report(PublishReport())
        with self._publisher() as publisher:
            for batch in chain((first,), messages):
                publisher.send(
                    batch.keys, batch.bodies, properties=batch.properties, exchanges=batch.exchanges
                )
                if publisher.report.returned and not self._options.skip_unroutable:
                    break  # the flush raises; more rows would only follow the lost ones
            report = publisher.flush()
        self._counter.log("done", report)
        return self._report(report)

    def _messages(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Messages]:
        for messages in self._counter.messages(batches, self._ids):
            if self._keys is not None:
                self._keys.add(messages.keys)
            if self._options.ring is not None and messages.exchanges is None:
                self._predicted.update(rows_by_queue(self._options.ring, messages.keys))
            yield messages

    def _publisher(self) -> Publisher:
        options = self._options
        return Publisher(
            options.brokers.resolve(self._task.partition),
            options.exchange,
            routing="client" if options.client_routing else "exchange",
            ring=ring_beneath(options.ring) if options.client_routing and options.ring else None,
            max_in_flight=options.max_in_flight,
            max_in_flight_bytes=options.max_in_flight_bytes,
            mandatory=options.mandatory,
            persistent=options.persistent,
            properties={"headers": options.headers} if options.headers else None,
            on_unroutable="report" if options.skip_unroutable else "raise",
            confirm_timeout_s=options.confirm_timeout_s,
            blocked_timeout_s=options.blocked_timeout_s,
            connection_name=self._task.fill(options.connection_name),
            reconnect_timeout_s=options.reconnect_timeout_s,
            max_reconnects=options.max_reconnects,
            retry_first_connection=True,
            backoff_s=options.reconnect_backoff_s,
            nack_retries=options.nack_retries,
            keep_order=options.keep_order,
            progress=self._counter.on_progress,
        )

    def _report(self, report: PublishReport) -> TaskReport:
        return self._counter.report(
            report,
            [_returned(self._task.partition, sample, self._options) for sample in report.samples],
            predicted=dict(self._predicted),
            keys=self._keys.sample() if self._keys else KeySample(),
        )


def _returned(partition: int, sample: Returned, options: WriteOptions) -> RowSample:
    reason = f"{sample.code} {sample.text}"
    if options.client_routing:  # the routing key is the queue's name, and no secret
        return RowSample(partition, None, f"{reason}: no queue {sample.key!r}", None)
    return RowSample(partition, None, reason, hash_of_key(sample.key.encode()))
