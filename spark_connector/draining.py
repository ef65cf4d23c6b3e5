"""Drain queues: write their messages batch by batch, and acknowledge each written batch. Runs on the driver."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyspark

from rabbit_chx.amqp import AmqpField
from rabbit_chx.amqp.amqp10_values import as_text, time_text
from rabbit_chx.amqp.fields import properties_in
from rabbit_chx.checks import check_seconds, check_whole
from rabbit_chx.errors import BrokerTimeoutError, InputError, MismatchError, MissingExtraError
from spark_connector.options.read_options import QueueOptions
from spark_connector.options.write_options import to_texts
from spark_connector.reading.micro_batches import bound_queues

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rabbit_chx.amqp import ConnectionSettings

# -- Takes messages from queues on pika, acknowledges or requeues them, and returns them as Arrow batches. Only the driver uses it
# The broker delivers as many messages to a consumer as its prefetch allows, and no more before they are settled. So `QueueConsumer.take`
# starts a consumer with the wanted number as its prefetch, waits for all messages, and cancels the consumer. The messages stay unsettled.
# AMQP bounds their number and not their bytes, so the first consumer requests few, and each further one a number estimated by the size of the
# messages so far. basic.get would be simpler, but a quorum queue answers only a few hundred a second (4.3.6).
#
# Messages are requeued consumer by consumer: a quorum queue requeues the messages of a nack for several consumers in another order (4.3.6).
# They are requeued by basic.nack, which is not a failed delivery from 4.3 on, whereas basic.reject and a lost connection are.

_FIRST_STEP = 256
_GROWTH = 16
_MOST_PREFETCH = 65_535
_PATIENCE_S = 10.0
_LOOK_S = 0.05
#: RabbitMQ's default; without a value `PikaConnection` has no heartbeats.
_HEARTBEAT_S = 60
_KEEP_ALIVE_S = 1.0
_TEXTS = pa.map_(pa.string(), pa.string())
#: The columns with their types; those after the first four are optional.
_COLUMNS: dict[str, Any] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "queue": pa.string(),
    "redelivered": pa.bool_(),
    "exchange": pa.string(),
    "message_id": pa.string(),
    "properties": _TEXTS,
    "headers": _TEXTS,
}
_ALWAYS = 4


class UnsettledMessage(NamedTuple):
    """A delivered message that is not settled yet.

    Attributes:
        redelivered: whether it was delivered before, to any consumer.
        exchange: its exchange; bytes if it is not UTF-8, as pika returns it.
        key: its routing key, likewise.
        properties: property flags and values, as `rabbit_chx.amqp.fields.properties_in` reads them.
    """

    tag: int
    redelivered: bool
    exchange: str | bytes
    key: str | bytes
    properties: bytes
    body: bytes

    @property
    def size(self) -> int:
        """The bytes of its body and properties."""
        return len(self.body) + len(self.properties)


class QueueConsumer:
    """Takes messages from queues, one queue after the other. Unacknowledged ones are requeued when it is closed or its process dies."""

    def __init__(self, settings: ConnectionSettings) -> None:
        # Here, so that an executor can import this module without pika.
        from rabbit_chx.broker.pika_connection import PikaConnection

        heartbeat_s = _HEARTBEAT_S if settings.heartbeat_s is None else settings.heartbeat_s
        self._where = settings.masked_url
        self._connection = PikaConnection(replace(settings, heartbeat_s=heartbeat_s))
        with self._connection.own_errors():
            self._channel = self._connection.open_channel(raw_headers=True)
        self._held: dict[str, int] = {}  # the last tag of each consumer with unsettled messages
        self._sizes: dict[str, float] = {}  # bytes of a message of each queue, by the last taken ones

    def ready(self, queue: str) -> int:
        """Return the number of ready messages of a queue."""
        with self._connection.own_errors():
            return self._channel.queue_declare(queue, passive=True).method.message_count or 0

    def is_stream(self, queue: str) -> bool:
        """Return whether a queue is a stream. The permission to read is sufficient, and nothing is delivered.

        The answer is in the refusal of a consumer with an argument that only streams accept (rabbitmq-server v3.10.0 to v4.3.6,
        rabbit_amqqueue.erl, ``check_consume_arguments``). A stream refuses it too, since it has no prefetch.
        """
        try:
            with self._connection.refusal_unlogged(406), self._connection.channel() as channel:
                channel.basic_consume(queue, lambda *_: None, arguments={"x-stream-offset": "next"})
        except MismatchError as cause:
            return "prefetch count is not set" in str(cause)
        return False

    def take(self, queue: str, most: int, most_bytes: int) -> list[UnsettledMessage]:
        """Return messages from the head of a queue, in its order; fewer than `most` if fewer are ready.

        Bodies and properties have `most_bytes` together; the last message may exceed them.

        Raises:
            AccessRefusedError: another consumer has exclusive use of the queue, or the user may not read it.
            BrokerTimeoutError: messages are ready, and none arrives: another consumer has priority.
            UnreachableError: the connection was lost. The taken messages are requeued.
        """
        taken: list[UnsettledMessage] = []
        # Messages beyond the bytes are requeued, and some queues count that against a delivery limit.
        size = 0
        step = 1
        if queue in self._sizes:
            step = max(1, min(_FIRST_STEP, int(most_bytes / self._sizes[queue])))
        while len(taken) < most and size < most_bytes:
            if taken:
                step = min(_GROWTH * step, (most_bytes - size) * len(taken) // max(size, 1) + 1)
            step = min(step, most - len(taken), _MOST_PREFETCH)
            messages, came = self._consume(queue, step, most_bytes - size)
            taken += messages
            size += sum(message.size for message in messages)
            if came < step:
                break
        if taken:
            self._sizes[queue] = max(1.0, size / len(taken))
        return taken

    def acknowledge(self, last: UnsettledMessage) -> None:
        """Acknowledge a message and all that were taken before it; requeue those after it. Return when the broker has read the ack.

        Raises:
            BrokerRefusedError: the broker has requeued them meanwhile, since this took too long (``consumer_timeout``).
            UnreachableError: the connection was lost; the messages may be redelivered.
        """
        with self._connection.own_errors():
            reason = self._channel._closing_reason  # type: ignore[attr-defined]  # noqa: SLF001  # pika would only say that it is closed
            if reason is not None:
                raise reason
            self._channel.basic_ack(last.tag, multiple=True)
        self._held = {consumer: tag for consumer, tag in self._held.items() if tag > last.tag}
        self.give_back()

    def give_back(self) -> None:
        """Requeue all messages that are not acknowledged. Each is in its place again, as far as the queue keeps it."""
        with self._connection.own_errors():
            for tag in self._held.values():
                self._channel.basic_nack(tag, multiple=True, requeue=True)
            self._held.clear()
            # It is answered after all before it.
            self._channel.basic_qos(prefetch_count=1)

    @contextmanager
    def keep_alive(self) -> Iterator[None]:
        """Answer heartbeats while the block runs, which must not use the consumer: pika answers them within its own calls only."""
        done = threading.Event()

        def answer_heartbeats() -> None:
            with suppress(Exception):  # the next use of the connection raises the error
                while not done.wait(_KEEP_ALIVE_S):
                    self._connection.process(0)

        keeper = threading.Thread(target=answer_heartbeats, name="rabbit_chx heartbeat", daemon=True)
        keeper.start()
        try:
            yield
        finally:
            done.set()
            keeper.join()

    def close(self) -> None:
        """Requeue unacknowledged messages, and close the connection; may be called again."""
        if self._held:
            with suppress(Exception):
                self.give_back()
        self._connection.close()

    def _consume(self, queue: str, most: int, room: int) -> tuple[list[UnsettledMessage], int]:
        """Consume messages. Return those that fit into `room` bytes, and the number of delivered ones.

        All that the prefetch allows are awaited: pika would reject those that arrive after a cancel.
        """
        kept: list[UnsettledMessage] = []
        came = 0

        def receive(_channel: object, method: Any, properties: Any, body: bytes) -> None:  # pika's
            nonlocal came, room
            came += 1
            self._held[method.consumer_tag] = method.delivery_tag
            if room > 0:
                names = (method.exchange, method.routing_key)
                kept.append(
                    UnsettledMessage(method.delivery_tag, method.redelivered, *names, properties.raw, body)
                )
                room -= kept[-1].size

        late = 0  # messages that are ready, and given to another consumer
        with self._connection.own_errors():
            self._channel.basic_qos(prefetch_count=most)
            consumer = self._channel.basic_consume(queue, receive)
            deadline = time.monotonic() + _PATIENCE_S
            was_empty = False
            while came < most and not late:
                before = came
                self._connection.process(_LOOK_S)
                if came > before:
                    deadline = time.monotonic() + _PATIENCE_S
                    was_empty = False
                elif ready := self.ready(queue):
                    late = ready if time.monotonic() > deadline else 0
                elif was_empty:  # twice: messages in flight at the first check have arrived
                    break
                else:
                    was_empty = True
            self._channel.basic_cancel(consumer)
        if late:
            raise BrokerTimeoutError(
                f"{self._where}: queue {queue!r} has {late:,} messages, and gives none within {_PATIENCE_S:g} s: another consumer goes "
                "first, as a single active consumer or by its priority; stop it, or wait until it has stopped",
                queue=queue,
            )
        return kept, came


def batch_of(queue: str, messages: Sequence[UnsettledMessage], include: Sequence[str]) -> pa.RecordBatch:
    """Return messages of a queue as columns, in their order; `include` lists optional columns in their order."""
    properties = [properties_in(message.properties) for message in messages] if include else []
    values: dict[str, Callable[[], list[Any]]] = {
        "key": lambda: [message.key for message in messages],  # Arrow encodes texts as UTF-8
        "value": lambda: [message.body for message in messages],
        "queue": lambda: [queue] * len(messages),
        "redelivered": lambda: [message.redelivered for message in messages],
        "exchange": lambda: [
            name if isinstance(name := message.exchange, str) else name.decode(errors="replace")
            for message in messages
        ],
        "message_id": lambda: [each.get("message_id") for each in properties],
        "properties": lambda: [_texts(each) for each in properties],
        "headers": lambda: [_headers(each.get("headers", ())) for each in properties],
    }
    names = (*list(_COLUMNS)[:_ALWAYS], *include)
    return pa.RecordBatch.from_arrays(
        [pa.array(values[name](), _COLUMNS[name]) for name in names],
        schema=pa.schema([(name, _COLUMNS[name]) for name in names]),
    )


def _texts(properties: dict[str, Any]) -> list[tuple[str, str | None]] | None:
    texts = [
        (name, as_text(time_text(1000 * value) if name == "timestamp" else value))
        for name, value in properties.items()
        if name != "headers"
    ]
    return texts or None


def _headers(table: Sequence[tuple[bytes, AmqpField]]) -> list[tuple[str, str | None]] | None:
    # Of two headers with one name the last counts: Spark's maps have no name twice.
    return list({as_text(name) or "": as_text(_plain(field)) for name, field in table}.items()) or None


def _plain(field: AmqpField) -> Any:  # whatever a header holds
    """Return the value of a field as a JSON value; times and decimals are texts."""
    value = field.value
    match field.type:
        case "array":
            return [_plain(element) for element in value]
        case "table":
            return {as_text(name) or "": _plain(element) for name, element in value}
        case "timestamp":
            return time_text(1000 * value)
        case "decimal":
            return str(Decimal(value[1]).scaleb(-value[0]))
    return value


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
