"""One task: the rows of a partition, published and confirmed."""

from __future__ import annotations

import logging
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.errors import InputError, PublishError, RabbitChxError
from rabbit_chx.publishing import Publisher, PublishReport, Returned
from rabbit_chx.publishing.publish_report import NACK
from rabbit_chx.routing import ring_beneath
from spark_connector.options.write_options import WriteOptions
from spark_connector.placing.key_sample import KeySample, KeySampler
from spark_connector.placing.prediction import rows_by_queue
from spark_connector.reports.task_report import MAX_SAMPLES, RowSample, TaskReport, hash_of_key
from spark_connector.spark_errors import without_traceback
from spark_connector.writing.message_ids import MessageIds
from spark_connector.writing.messages import Messages, messages_of
from spark_connector.writing.preflight import check_speculation
from spark_connector.writing.task import Task, task_mark

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_connector.writing.write_plan import WritePlan

_log = logging.getLogger(__name__)

#: Seconds between two lines of a long task in the log.
_PROGRESS_S = 10.0
_BEGUN_BEFORE = (
    "Spark ran a stage of this write again, or a batch: earlier tasks did not finish, though attempts are counted "
    "from 0 again; their rows may be in the queues twice"
)


class TaskWriter:
    """Publishes the rows of one task, and counts them. Each writer is used once.

    Args:
        plan: the checked write.
        task: the task that publishes.
    """

    def __init__(self, plan: WritePlan, task: Task) -> None:
        options = plan.options
        self._task = task
        self._streaming = plan.streaming
        self._columns = plan.columns
        self._options = options
        write = options.write_name or task.write_id
        self._ids = MessageIds(write, task.batch_id, task.partition) if options.message_id == "auto" else None
        self._keys = KeySampler() if options.keep_order else None
        self._notes: tuple[str, ...] = ()
        self._rows = 0
        self._skipped = 0
        self._samples: list[RowSample] = []
        self._predicted: Counter[str] = Counter()
        self._next_line_at = time.monotonic() + _PROGRESS_S

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
        where = f"partition {self._task.partition}"
        try:
            with task_mark(self._task) as earlier:
                self._check(begun_before=earlier)
                return self._publish(batches)
        except PublishError as cause:
            where += _refusing_queue(cause.report, self._options)
            error: RabbitChxError = PublishError(f"{where}: {cause}", cause.report)
        except Exception as cause:  # noqa: BLE001  # it is raised below
            bare = without_traceback(cause)
            error = type(bare)(f"{where}: {bare}")
        raise error  # from here, so that Spark shows one line and not the way to it

    def _check(self, *, begun_before: bool) -> None:
        """Check what only the task knows of Spark, and note it."""
        task = self._task
        if self._ids is not None and not task.write_id:
            raise InputError(
                "option 'messageId' is 'auto', but this Spark does not tell the streaming query: "
                "add a column message_id, and set messageId to column"
            )
        self._notes = check_speculation(self._options, speculation=task.speculation)
        if task.attempt:
            _log.warning(
                "exchange %r, partition %d: attempt %d publishes all rows again; any of them may be in the queues "
                "already",
                self._options.target,
                task.partition,
                task.attempt,
            )
        elif begun_before:
            self._notes += (_BEGUN_BEFORE,)

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
        self._log_progress("done", report)
        return self._report(report)

    def _messages(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Messages]:
        for batch in batches:
            messages = messages_of(
                batch,
                self._columns,
                self._options,
                partition=self._task.partition,
                first_row=self._rows,
                ids=self._ids,
                samples=MAX_SAMPLES - len(self._samples),
            )
            self._rows += batch.num_rows
            self._skipped += messages.skipped
            self._samples += messages.samples
            if len(messages):
                if self._keys is not None:
                    self._keys.add(messages.keys)
                if self._options.ring is not None and messages.exchanges is None:
                    self._predicted.update(rows_by_queue(self._options.ring, messages.keys))
                yield messages

    def _publisher(self) -> Publisher:
        options = self._options
        return Publisher(
            self._addresses(),
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
            connection_name=self._connection_name(),
            reconnect_timeout_s=options.reconnect_timeout_s,
            max_reconnects=options.max_reconnects,
            retry_first_connection=True,
            backoff_s=options.reconnect_backoff_s,
            nack_retries=options.nack_retries,
            keep_order=options.keep_order,
            progress=self._on_progress,
        )

    def _addresses(self) -> Sequence[ConnectionSettings]:
        return self._options.brokers.resolve(self._task.partition)

    def _connection_name(self) -> str:
        task = self._task
        return self._options.connection_name.format(
            app=task.app,
            stage=task.stage,
            partition=task.partition,
            attempt=task.attempt,
            write=task.write_id,
            batch=task.batch_id,
        )

    def _on_progress(self, report: PublishReport) -> None:
        if time.monotonic() >= self._next_line_at:
            self._log_progress("so far", report)
            self._next_line_at = time.monotonic() + _PROGRESS_S

    def _log_progress(self, when: str, report: PublishReport) -> None:
        task = self._task
        line = (
            f"exchange {self._options.target!r}, partition {task.partition}, attempt {task.attempt}, {when}: "
            f"{self._rows} rows read, {self._skipped} skipped, {report.confirmed} confirmed, {report.returned} returned, "
            f"{report.republished} republished, {report.reconnects} reconnects, {report.blocked_seconds:.1f} s blocked, "
            f"{report.confirmed / report.seconds if report.seconds else 0.0:.0f} rows/s"
        )
        if _log.hasHandlers():
            _log.info("%s", line)
        elif report.seconds >= _PROGRESS_S:
            # Nobody has configured logging in Spark's worker: the stderr of the executor, which the UI links, is all there is.
            sys.stderr.write(f"{line}\n")

    def _report(self, report: PublishReport) -> TaskReport:
        task = self._task
        returned = (_returned(task.partition, sample, self._options) for sample in report.samples)
        return TaskReport(
            task.partition,
            task.attempt,
            task.write_id,
            task.batch_id if self._streaming else None,
            rows=self._rows,
            skipped=self._skipped,
            publish_report=replace(report, samples=()),  # those show keys
            predicted=dict(self._predicted),
            samples=(*self._samples, *returned)[:MAX_SAMPLES],
            task_id=task.number,
            notes=self._notes,
            keys=self._keys.sample() if self._keys else KeySample(),
        )


def _returned(partition: int, sample: Returned, options: WriteOptions) -> RowSample:
    reason = f"{sample.code} {sample.text}"
    if options.client_routing:  # the routing key is the queue's name, and no secret
        return RowSample(partition, None, f"{reason}: no queue {sample.key!r}", None)
    return RowSample(partition, None, reason, hash_of_key(sample.key.encode()))


def _refusing_queue(report: PublishReport, options: WriteOptions) -> str:
    """Name the queue that refuses, by the ring: the broker does not say."""
    refused = next((sample for sample in report.samples if sample.code == NACK), None)
    if refused is None or options.ring is None:
        return ""
    # The client's own routing has made the queue's name the routing key.
    queue = refused.key if options.client_routing else options.ring.destination_for(refused.key)
    return f" (queue {queue!r} by the ring)"
