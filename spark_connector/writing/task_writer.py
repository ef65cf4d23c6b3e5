"""Publish the rows of a task: by AMQP here, by the stream protocol in `stream_task_writer`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from rabbit_chx.errors import InputError, PublishError
from rabbit_chx.publishing import Publisher, PublishReport, Returned
from rabbit_chx.publishing.publish_report import NACK
from spark_connector.options.write_options import WriteOptions
from spark_connector.placing.rings import count_by_queue
from spark_connector.reports import NO_ROUTE, RowSample, TaskReport, hash_key
from spark_connector.writing.key_samples import add_to_sample
from spark_connector.writing.messages import MessageIds, Messages
from spark_connector.writing.stream_task_writer import StreamTaskWriter
from spark_connector.writing.tasks import Task, TaskCounter

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_connector.writing.write_plan import WritePlan


def run_task(plan: WritePlan, batches: Iterable[pa.RecordBatch]) -> TaskReport:
    """Publish the rows of the running task: into streams if the plan has a layout, else by AMQP."""
    writer = TaskWriter if plan.layout is None else StreamTaskWriter
    return writer(plan, Task.current(plan.write_id, plan.batch_id)).publish_partition(batches)


class TaskWriter:
    """Publishes the rows of one task by AMQP, and counts them. Each writer is used once."""

    def __init__(self, plan: WritePlan, task: Task) -> None:
        options = plan.options
        self._task = task
        self._options = options
        self._counter = TaskCounter(plan, task)
        write = options.write_name or task.write_id
        self._ids = (
            MessageIds(write, task.batch_id or 0, task.partition) if options.message_id == "auto" else None
        )
        self._keys = b""  # a sample
        self._predicted: Counter[str] = Counter()

    def publish_partition(self, batches: Iterable[pa.RecordBatch]) -> TaskReport:
        """Publish every row and wait for its confirm. A partition without a row to publish opens no connection.

        Raises:
            PublishError: not every row was confirmed.
            RowError: AMQP cannot carry a row; any of the rows before it may be published.
            InputError: the password is not available in this process, message ids need a query id that Spark does not report, or copies of
                the task would break the required order.
        """
        return self._counter.run(self._publish, batches)

    def _publish(self, batches: Iterable[pa.RecordBatch]) -> TaskReport:
        if self._ids is not None and not self._task.write_id:
            raise InputError(
                "option 'messageId' is 'auto', but this Spark does not report the streaming query (to a thread pool in foreachBatch it does not): "
                "add a column message_id, and set messageId to column"
            )
        messages = self._messages(batches)
        first = next(messages, None)
        if first is None:
            return self._report(PublishReport())
        with self._publisher() as publisher:
            self._counter.published = lambda: publisher.report
            for batch in chain((first,), messages):
                publisher.send(
                    batch.keys, batch.bodies, properties=batch.properties, exchanges=batch.exchanges
                )
                if publisher.report.returned and not self._options.skip_unroutable:
                    break  # the flush raises; more rows would only follow the lost ones
            try:
                report = publisher.flush()
            except PublishError as cause:
                report = self._without_bad_rows(cause)
        self._counter.log("done", report)
        return self._report(report)

    def _without_bad_rows(self, cause: PublishError) -> PublishReport:
        """Return the report of an error without the rows that close the channel or the connection, if ``badRows=skip`` skips them.

        Otherwise raise the error.
        """
        report: PublishReport = cause.report
        closes = [sample for sample in report.samples if sample.code not in (NACK, NO_ROUTE)]
        is_nacked = any(sample.code == NACK for sample in report.samples)
        is_returned = report.returned and not self._options.skip_unroutable
        if not (self._options.skip_bad_rows and closes) or is_nacked or is_returned or report.unknown:
            raise cause
        self._counter.skipped += report.nacked
        self._forget_predictions(closes, report.nacked)
        return replace(report, rows=report.rows - report.nacked, nacked=0)

    def _forget_predictions(self, closes: Sequence[Returned], refused: int) -> None:
        """Subtract rows that were not published from the rows by queue."""
        if not self._predicted:
            return
        # An exchange refused all further rows, or the bytes of a key are not UTF-8: the keys are not known here.
        if len(closes) < refused or any("\\x" in sample.key for sample in closes):
            self._predicted.clear()
            return
        ring = self._options.ring
        if self._options.client_routing:  # the routing key is the queue's name
            self._predicted.subtract(sample.key for sample in closes)
        elif ring is not None:
            self._predicted.subtract(count_by_queue(ring, [sample.key.encode() for sample in closes]))
        self._predicted = +self._predicted

    def _messages(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Messages]:
        for messages in self._counter.messages(batches, self._ids):
            if self._options.keep_order:
                self._keys = add_to_sample(self._keys, messages.keys)
            if self._options.ring is not None and messages.exchanges is None:
                self._predicted.update(count_by_queue(self._options.ring, messages.keys))
            yield messages

    def _publisher(self) -> Publisher:
        options = self._options
        return Publisher(
            options.brokers.resolve(self._task.partition),
            options.exchange,
            routing="client" if options.client_routing else "exchange",
            ring=options.ring if options.client_routing else None,
            mandatory=options.mandatory,
            persistent=options.persistent,
            properties={"headers": options.headers} if options.headers else None,
            on_unroutable="report" if options.skip_unroutable else "raise",
            limits=options.limits,
            retries=options.retries,
            connection_name=self._task.fill(options.connection_name),
            progress=self._counter.on_progress,
        )

    def _report(self, report: PublishReport) -> TaskReport:
        return self._counter.report(
            report,
            [_sample_of(self._task.partition, sample, self._options) for sample in report.samples],
            predicted=dict(self._predicted),
            keys=self._keys,
        )


def _sample_of(partition: int, sample: Returned, options: WriteOptions) -> RowSample:
    reason = f"{sample.code} {sample.text}"
    if options.client_routing:  # the routing key is the queue's name, and not secret
        return RowSample(partition, None, f"{reason}: no queue {sample.key!r}", None)
    return RowSample(partition, None, reason, hash_key(sample.key.encode()))
