"""One task: the rows of a partition, published and confirmed. One loop for all sinks: AMQP here, streams in `stream_sink`."""

from __future__ import annotations

import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from pyspark import TaskContext, __version__

from rabbit_chx.errors import InputError, PublishError, RabbitChxError
from rabbit_chx.publishing import Publisher, PublishReport, Returned
from rabbit_chx.publishing.publish_report import NACK
from spark_connector.executor_functions import strip_traceback, with_report
from spark_connector.options.write_options import WriteOptions, check_speculation
from spark_connector.placing.rings import count_by_queue
from spark_connector.reports import MAX_SAMPLES, NO_ROUTE, FinishedTask, RowSample, hash_key
from spark_connector.writing.messages import MessageIds, Messages, build_messages
from spark_connector.writing.preflight import add_to_sample
from spark_connector.writing.stream_sink import ExactlyOnceSink, NoStreamSink, StreamSink
from spark_connector.writing.tasks import Task, find_input, mark_running, whole

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_connector.writing.preflight import WritePlan

_log = logging.getLogger(__name__)

#: Seconds between two lines of a long task in the log.
_PROGRESS_S = 30.0
_BEGUN_BEFORE = (
    "Spark ran a stage of this write again, or a batch: earlier tasks did not finish, though attempts are counted "
    "from 0 again; their rows may be in the queues twice"
)
_UNSEEN_END = "this PySpark does not show whether the rows of a task were all of them: that Spark failed no task is the only proof"


class Sink(Protocol):
    """Where a task publishes its rows. Each sink is used once, and closed after an error as well."""

    @property
    def most_row_bytes(self) -> int | None:
        """The bytes of key, value and twice the filter value that a row may have; None for AMQP."""

    @property
    def report(self) -> PublishReport:
        """The counts so far, also after an error."""

    def begin(self) -> bool:
        """Check what must be known before a row is read; return False if all rows are to be skipped."""

    def send(self, batch: Messages) -> None:
        """Publish rows, now or later. The first ones open the connection."""

    def finish(self) -> FinishedTask:
        """Publish what is left, wait for every confirm, and return what the sink knows of the task."""

    def close(self) -> None:
        """Close the connections; may be called again."""


def run_task(plan: WritePlan, batches: Iterable[pa.RecordBatch]) -> FinishedTask:
    """Publish the rows of the running task."""
    task = Task.current(plan.write_id, plan.batch_id)
    return TaskWriter(plan, task).publish_partition(batches)


def make_sink(plan: WritePlan, task: Task, on_progress: Callable[[PublishReport], None]) -> Sink:
    """Return the sink of a task: that of streams if the plan has a layout, else that of AMQP."""
    if plan.layout is None:
        return ExchangeSink(plan.options, task, on_progress)
    if not plan.options.exactly_once:
        return StreamSink(plan, task, on_progress)
    if task.partition < len(plan.layout.streams):
        return ExactlyOnceSink(plan, task, on_progress)
    return NoStreamSink(plan, task, on_progress)


class TaskWriter:
    """Publishes the rows of one task, and counts them. Each writer is used once."""

    def __init__(self, plan: WritePlan, task: Task) -> None:
        self._plan = plan
        self._options = plan.options
        self._task = task
        self._sink: Sink | None = None
        self._rows = 0
        self._skipped = 0  # rows that were read, and not given to the sink
        self._samples: list[RowSample] = []
        self._notes: tuple[str, ...] = ()
        self._next_line_at = time.monotonic() + _PROGRESS_S

    def publish_partition(self, batches: Iterable[pa.RecordBatch]) -> FinishedTask:
        """Publish every row and wait for its confirm. A partition without a row to publish opens no connection for publishing.

        Its errors contain the partition and the counts, and have no traceback.

        Raises:
            PublishError: not every row was confirmed.
            RowError: AMQP cannot carry a row; any of the rows before it may be published.
            InputError: the password is not available in this process, message ids need a query id that Spark does not report, copies of the
                task would break the required order, or the rows are not those of `place_for_streams`.
            MismatchError: the stream has rows of another version, or other rows than this write.
        """
        where = f"partition {self._task.partition}"
        try:
            with mark_running(self._task) as begun_before:
                if not self._options.exactly_once:
                    self._note_repeats(begun_before=begun_before)
                return self._publish(whole(batches, self._find_input()))
        except PublishError as cause:
            where += _find_refusing_queue(cause.report, self._options)
            error: RabbitChxError = PublishError(f"{where}: {cause}", cause.report)
            report: PublishReport = cause.report
        except Exception as cause:  # noqa: BLE001  # it is raised below
            bare = strip_traceback(cause)
            error = type(bare)(f"{where}: {bare}")
            report = PublishReport() if self._sink is None else self._sink.report
        raise with_report(error, report)  # from here, so that Spark shows one line and not the traceback

    def _publish(self, batches: Iterable[pa.RecordBatch]) -> FinishedTask:
        ids = self._message_ids()
        sink = make_sink(self._plan, self._task, self._on_progress)
        self._sink = sink
        with closing(sink):
            if sink.begin():
                for messages in self._messages(batches, ids, sink.most_row_bytes):
                    sink.send(messages)
            else:
                self._rows = sum(batch.num_rows for batch in batches)
                self._skipped = self._rows
            finished = self._completed(sink.finish())
        # By AMQP, a task without a message has opened no connection, and there may be many.
        if self._rows > self._skipped or finished.streams is not None:
            self._log_counts("done", finished.publish_report, finished.skipped)
        return finished

    def _completed(self, finished: FinishedTask) -> FinishedTask:
        """Return what the sink knows of the task, with what is known here."""
        task = self._task
        samples = (*self._samples, *finished.samples)
        return replace(
            finished,
            write_id=task.write_id,
            batch_id=task.batch_id if self._plan.streaming else None,
            rows=self._rows,
            skipped=self._skipped + finished.skipped,
            samples=samples[:MAX_SAMPLES],
            task_id=task.number,
            notes=(*self._notes, *finished.notes),
        )

    def _find_input(self) -> Any:  # a buffered file
        """Return the input whose end is looked at; None without Spark.

        Raises:
            InputError: delivery is exactly-once, and this PySpark does not show whether an input was cut.
        """
        file = find_input()
        if file is None and TaskContext.get() is not None:
            if self._options.exactly_once:
                raise InputError(
                    f"delivery is exactly-once, and this PySpark ({__version__}) does not show whether the rows of a task are all of them: "
                    "use one of the versions of docs/reference/support.md as it was released, or at-least-once"
                )
            self._notes += (_UNSEEN_END,)
        return file

    def _note_repeats(self, *, begun_before: bool) -> None:
        """Note copies and repeats of the task, which publish rows twice."""
        task = self._task
        self._notes = check_speculation(self._options, speculation=task.speculation)
        if task.attempt:
            _log.warning(
                "%s, partition %d: attempt %d publishes all rows again; any of them may be in the queues already",
                self._where(),
                task.partition,
                task.attempt,
                extra={"exchange": self._options.target},
            )
        elif begun_before:
            self._notes += (_BEGUN_BEFORE,)

    def _message_ids(self) -> MessageIds | None:
        """Return what computes the message ids; None if none are made."""
        if self._options.message_id != "auto":
            return None
        task = self._task
        if not task.write_id:
            raise InputError(
                "option 'messageId' is 'auto', but this Spark does not report the streaming query (to a thread pool in foreachBatch it does not): "
                "add a column message_id, and set messageId to column"
            )
        write = self._options.write_name or task.write_id
        return MessageIds(write, task.batch_id or 0, task.partition)

    def _messages(
        self,
        batches: Iterable[pa.RecordBatch],
        ids: MessageIds | None = None,
        most_row_bytes: int | None = None,
    ) -> Iterator[Messages]:
        """Yield the good rows of each batch as messages."""
        for batch in batches:
            messages = build_messages(
                batch,
                self._plan.columns,
                self._options,
                partition=self._task.partition,
                first_row=self._rows,
                ids=ids,
                samples=MAX_SAMPLES - len(self._samples),
                most_row_bytes=most_row_bytes,
            )
            self._rows += batch.num_rows
            self._skipped += messages.skipped
            self._samples += messages.samples
            if len(messages):
                yield messages

    def _on_progress(self, report: PublishReport) -> None:
        """Log the progress now and then."""
        if time.monotonic() >= self._next_line_at:
            self._log_counts("so far", report, self._skipped)
            self._next_line_at = time.monotonic() + _PROGRESS_S

    def _log_counts(self, when: str, report: PublishReport, skipped: int) -> None:
        task = self._task
        rate = report.confirmed / report.seconds if report.seconds else 0.0
        counts = {
            "skipped": skipped,
            "returned": report.returned,
            "republished": report.republished,
            "reconnects": report.reconnects,
            "s blocked": round(report.blocked_seconds),
        }
        rare = "".join(f", {count:,} {name}" for name, count in counts.items() if count)
        line = (
            f"{self._where()}, partition {task.partition}, attempt {task.attempt}, {when}: "
            f"{report.confirmed:,} of {self._rows:,} rows confirmed, {rate:,.0f} rows/s{rare}"
        )
        if _log.hasHandlers() and _log.isEnabledFor(logging.INFO):
            _log.info("%s", line)
        elif report.seconds >= _PROGRESS_S:
            # Nobody has configured logging in Spark's worker: the stderr of the executor, which the UI links, is all there is.
            sys.stderr.write(f"{line}\n")

    def _where(self) -> str:
        kind = "queue" if self._options.queue else "exchange"
        return f"{kind} {self._options.target!r}"


def _find_refusing_queue(report: PublishReport, options: WriteOptions) -> str:
    """Return the name of the queue that refuses, by the ring: the broker does not report it."""
    refused = next((sample for sample in report.samples if sample.code == NACK), None)
    if refused is None or options.ring is None:
        return ""
    # The client's own routing has made the queue's name the routing key.
    queue = refused.key if options.client_routing else options.ring.destination_for(refused.key)
    return f" (queue {queue!r} by the ring)"


class ExchangeSink:
    """Publishes rows by AMQP to an exchange or a queue."""

    most_row_bytes = None

    def __init__(
        self, options: WriteOptions, task: Task, on_progress: Callable[[PublishReport], None]
    ) -> None:
        self._options = options
        self._task = task
        self._on_progress = on_progress
        self._publisher: Publisher | None = None
        self._keys = b""  # a sample
        self._predicted: Counter[str] = Counter()

    @property
    def report(self) -> PublishReport:
        """As in `Sink`."""
        return PublishReport() if self._publisher is None else self._publisher.report

    def begin(self) -> bool:
        """As in `Sink`: there is nothing to check."""
        return True

    def send(self, batch: Messages) -> None:
        """Publish rows as fast as the window allows; a PublishError once a row was lost that must not be."""
        options = self._options
        if options.keep_order:
            self._keys = add_to_sample(self._keys, batch.keys)
        if options.ring is not None and batch.exchanges is None:
            self._predicted.update(count_by_queue(options.ring, batch.keys))
        if self._publisher is None:
            self._publisher = self._open()
        publisher = self._publisher
        publisher.send(batch.keys, batch.bodies, properties=batch.properties, exchanges=batch.exchanges)
        if publisher.report.returned and not options.skip_unroutable:
            publisher.flush()  # raises; more rows would only follow the lost ones

    def finish(self) -> FinishedTask:
        """Wait for every confirm."""
        report = PublishReport()
        skipped = 0
        if self._publisher is not None:
            try:
                report = self._publisher.flush()
            except PublishError as cause:
                report = cause.report
                if not self._are_bad_rows(report):
                    raise
                skipped = report.nacked
                self._forget_predictions(report)
        return FinishedTask(
            self._task.partition,
            self._task.attempt,
            skipped=skipped,
            # Samples show keys.
            publish_report=replace(
                report, rows=report.rows - skipped, nacked=report.nacked - skipped, samples=()
            ),
            predicted=dict(self._predicted),
            samples=tuple(self._sample_of(sample) for sample in report.samples),
            keys=self._keys,
        )

    def close(self) -> None:
        """Close the connection."""
        if self._publisher is not None:
            self._publisher.close()

    def _open(self) -> Publisher:
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
            progress=self._on_progress,
        )

    def _are_bad_rows(self, report: PublishReport) -> bool:
        """Return whether an error is about rows alone that close the channel or the connection, and ``badRows=skip`` skips them."""
        if not self._options.skip_bad_rows or not _closes(report):
            return False
        is_nacked = any(sample.code == NACK for sample in report.samples)
        is_returned = report.returned and not self._options.skip_unroutable
        return not (is_nacked or is_returned or report.unknown)

    def _forget_predictions(self, report: PublishReport) -> None:
        """Subtract rows that were not published from the rows by queue."""
        if not self._predicted:
            return
        closes = _closes(report)
        # An exchange refused all further rows, or the bytes of a key are not UTF-8: the keys are not known here.
        if len(closes) < report.nacked or any("\\x" in sample.key for sample in closes):
            self._predicted.clear()
            return
        ring = self._options.ring
        if self._options.client_routing:  # the routing key is the queue's name
            self._predicted.subtract(sample.key for sample in closes)
        elif ring is not None:
            self._predicted.subtract(count_by_queue(ring, [sample.key.encode() for sample in closes]))
        self._predicted = +self._predicted

    def _sample_of(self, sample: Returned) -> RowSample:
        partition = self._task.partition
        reason = f"{sample.code} {sample.text}"
        if self._options.client_routing:  # the routing key is the queue's name, and not secret
            return RowSample(partition, None, f"{reason}: no queue {sample.key!r}", None)
        return RowSample(partition, None, reason, hash_key(sample.key.encode()))


def _closes(report: PublishReport) -> list[Returned]:
    """Return the samples of rows that closed the channel or the connection."""
    return [sample for sample in report.samples if sample.code not in (NACK, NO_ROUTE)]
