"""All checks before the first task of a write, which return its plan."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pamqp import commands

from rabbit_chx import errors
from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.amqp.exchange_types import HASH_EXCHANGE, MODULUS_EXCHANGE
from rabbit_chx.connection.blocking_connection import Connection
from rabbit_chx.publishing.batches import ClientRouting
from rabbit_chx.publishing.encoder import exchange_name
from rabbit_chx.routing import ConsistentHashExchange
from rabbit_chx.routing.key_map import KeyMap
from spark_connector.columns import ORDER_MARK, MessageColumns
from spark_connector.executor_functions import scratch_folder, without_traceback
from spark_connector.options.write_options import WriteOptions, check_mode, check_speculation, local_path
from spark_connector.placing.rings import WatchedRing, read_exchange, read_recorded
from spark_connector.reports import check_report_path, write_whole
from spark_connector.writing.stream_layout import StreamLayout, call_with_retry, plan_layout

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

# -- Inspect an exchange or a queue before publishing: it exists, and an exchange has a type

HASHING_TYPES = (HASH_EXCHANGE, MODULUS_EXCHANGE)
#: A type that each broker has.
_BUILT_IN = "direct"


def inspect_exchange(
    settings: ConnectionSettings, exchange: str, type_: str = HASHING_TYPES[0]
) -> tuple[str | None, bool]:
    """Return the type of an exchange, and whether it has an alternate exchange, over short connections; a NotFoundError if it does not exist.

    The type is None if the user may not configure the exchange, since only a refused declaration reports it. An alternate exchange gets
    unroutable messages instead of the publisher. One that a policy sets is not visible here.

    A passive declare checks only the name. A second declare reports the type; it changes nothing on an existing exchange, and of the
    differences the broker reports the type first (rabbitmq-server v4.3.0, rabbit_exchange.erl, assert_equivalence/6). If the user may not
    declare, the type stays unknown. If the exchange is deleted between the two, the second creates it again.

    Args:
        settings: the broker.
        exchange: the name.
        type_: the expected type; another one is found by another declare.
    """
    exchange_name(exchange)
    found = type_
    alternate_exchange = False
    with contextlib.closing(Connection(settings)) as connection:
        where = f"{settings.masked_url}: exchange {exchange!r}"
        _look_up(connection, _DeclareAnyExchange(exchange=exchange, passive=True), where, exchange=exchange)
        try:
            connection.request(_DeclareAnyExchange(exchange=exchange, exchange_type=type_, durable=True))
        except errors.AccessRefusedError:
            return None, False
        except errors.MismatchError as cause:
            if match := re.search(r"'type' for exchange .* but current is '*([^' ]+)", str(cause)):
                found = match[1]
            alternate_exchange = "'alternate-exchange' for exchange" in str(cause)
        except errors.BrokerRefusedError as cause:
            # Without its plugin, the broker does not know the type. Some types need arguments.
            found = _BUILT_IN if "unknown exchange type" in str(cause) and type_ != _BUILT_IN else type_
            if found == type_ and type_ in (*HASHING_TYPES, _BUILT_IN):
                cause.exchange = exchange
                raise
    if found == type_:
        return type_, alternate_exchange
    return inspect_exchange(settings, exchange, found)


def check_queue(settings: ConnectionSettings, queue: str) -> None:
    """Raise a NotFoundError if a queue does not exist. A user who may not ask may publish nevertheless."""
    where = f"{settings.masked_url}: queue {queue!r}"
    with (
        contextlib.closing(Connection(settings)) as connection,
        contextlib.suppress(errors.AccessRefusedError),
    ):
        _look_up(connection, _DeclareAnyQueue(queue=queue, passive=True), where, queue=queue)


def _look_up(
    connection: Connection, declaration: _DeclareAnyQueue | _DeclareAnyExchange, where: str, **what: str
) -> None:
    """Send a passive declaration; a NotFoundError with the remedy if nothing has that name."""
    try:
        connection.request(declaration)
    except errors.NotFoundError as cause:
        remedy = "check its name and the vhost, or declare it first"
        raise errors.NotFoundError(
            f"{where} does not exist: {remedy}", **what, reply_code=cause.reply_code
        ) from None


class _DeclareAnyQueue(commands.Queue.Declare):
    """queue.declare without pamqp's restriction of names, which RabbitMQ does not have."""

    def validate(self) -> None:
        """Accept any name; the broker checks it."""


class _DeclareAnyExchange(commands.Exchange.Declare):
    """exchange.declare without pamqp's restriction of exchange names, which RabbitMQ does not have."""

    def validate(self) -> None:
        """Accept any name; the broker checks it."""


# -- The plan of a write: the value that is sent to the tasks


def _with_marked_order(options: WriteOptions, schema: StructType) -> WriteOptions:
    """Return the options with the column by which `place_for_streams` has sorted the rows; an InputError if they name another."""
    marked = next((field.name for field in schema.fields if ORDER_MARK in field.metadata), None)
    if marked is None or not options.exactly_once:
        return options
    if options.order_by is not None and options.order_by.lower() != marked.lower():
        raise errors.InputError(
            f"option 'orderBy' is {options.order_by!r}, and place_for_streams has sorted the rows by {marked!r}: leave orderBy out, or place "
            "the rows by the other column"
        )
    return replace(options, order_by=marked)


@dataclass(frozen=True, slots=True)
class WritePlan:
    """Options and columns. `preflight.plan_write` checks them, and `commit` ends the write.

    Attributes:
        streaming: whether each micro-batch of a stream is written with this plan.
        write_id: id of the write; None in a stream, where Spark passes each task the id of the query.
        batch_id: number of the micro-batch, if the planner knows it; else Spark passes it to each task.
        reads_record: whether the ring is that of the record on the broker.
        started: the time of planning, in seconds since 1970.
        layout: the streams of the rows by the stream protocol; None by AMQP, and where Spark commits a batch.
    """

    columns: MessageColumns
    options: WriteOptions
    streaming: bool = False
    write_id: str | None = None
    notes: tuple[str, ...] = ()
    started: float = field(default_factory=time.time)
    layout: StreamLayout | None = None
    batch_id: int | None = None
    reads_record: bool = False

    @classmethod
    def parse(cls, options: Mapping[str, str], schema: StructType, *, streaming: bool = False) -> Self:
        """Return the plan of options by name and of columns, which asks no broker; an InputError if they do not fit."""
        parsed = _with_marked_order(WriteOptions.parse(options), schema)
        columns = MessageColumns.of(schema, parsed)
        write_id = None if streaming else uuid.uuid4().hex
        return cls(columns, parsed, streaming, write_id, reads_record=parsed.reads_record)

    @property
    def ring_reader(self) -> Callable[[], KeyMap | ConsistentHashExchange] | None:
        """The function that reads the ring on the driver; None without the option ``ringVia`` and a record."""
        options = self.options
        exchange = self.options.exchange
        if self.reads_record and options.management_url is not None:
            read = partial(read_recorded, exchange, options.management_url, options.node_addresses)
            return partial(options.brokers.by_amqp.call_first_reachable, read)
        if options.ring_via is None:
            return None
        return partial(read_exchange, options.ring_via, options.brokers.addresses[0].vhost, exchange)


_log = logging.getLogger(__name__)

#: The file of a checkpoint that names the target of the query.
_TARGET_FILE = "rabbitmq-target.json"

# What Spark masks in its event log and UI: the default of spark.redaction.regex
# (internal/config/package.scala).
_MASKED_BY_SPARK = re.compile(r"(?i)secret|password|token|access[.]?key")


@without_traceback
def plan_write(
    options: Mapping[str, str],
    schema: StructType,
    *,
    overwrite: bool = False,
    streaming: bool = False,
    speculation: bool | None = None,
    cache: PreflightCache | None = None,
    ring: WatchedRing | None = None,
) -> WritePlan:
    """Check everything that can be checked before the first task, and return the plan.

    Args:
        options: the texts of the options by name.
        schema: the columns of the rows.
        overwrite: whether Spark is asked to replace existing data, which is refused.
        streaming: whether the write is that of a stream.
        speculation: whether ``spark.speculation`` is on; None if only the tasks can read it.
        cache: the remembered notes of the broker's check, if the caller keeps them for a streaming query.
        ring: the ring of the caller, who passes it to `commit_write` as well.
    """
    if overwrite:
        mode = "outputMode('complete')" if streaming else "mode('overwrite')"
        raise errors.InputError(
            f"{mode}: messages in queues cannot be overwritten, whatever Spark proposes: use {mode.partition('(')[0]}('append'), and purge the "
            "queues yourself if that is meant"
        )
    plan = WritePlan.parse(options, schema, streaming=streaming)
    parsed = plan.options
    check_mode(parsed, streaming=streaming)
    check_report_path(parsed.report_path, streaming=streaming)
    notes = () if speculation is None else check_speculation(parsed, speculation=speculation)
    notes += check_secret_name(parsed)
    if streaming:
        check_checkpoint(parsed, options)
        cache = cache or PreflightCache.of_query(parsed, options)
    if not parsed.to_streams:
        notes += check_broker(parsed, patient=streaming, cache=cache)
    parsed = _with_ring(plan, ring)
    layout = None
    if parsed.to_streams:
        is_first = cache is None or cache.notes is None  # the streams of a streaming query are checked once
        layout = plan_layout(parsed, schema, patient=streaming, checks_streams=parsed.preflight and is_first)
        notes += (*_amqp_notes(parsed), *layout.notes) if is_first else ()
        if cache is not None:
            cache.keep(())
    for note in notes:
        _log.warning("%s", note)
    return replace(plan, options=parsed, notes=notes, layout=layout)


def check_broker(
    options: WriteOptions, *, patient: bool = False, cache: PreflightCache | None = None
) -> tuple[str, ...]:
    """Check that the broker accepts the user, and that the exchange exists and has the type that options need; return notes for the report.

    The broker is not asked if ``preflight`` is false, if only a column contains exchanges, or if only the executors have the password.

    Args:
        options: the options of the write.
        patient: whether a broker that does not answer is only a note, since tasks try for longer.
        cache: the remembered notes of a streaming query, so that the broker is asked once.
    """
    if not options.preflight or not (options.exchange or options.queue):
        return ()
    if cache is not None and cache.notes is not None:
        return cache.notes
    try:
        options.brokers.resolve()
    except errors.InputError as cause:
        _log.info("the broker was not checked before the write: %s", cause)
        return ("the broker was not checked before the write: only the executors have the password",)
    try:
        if options.queue:
            options.brokers.call_first_reachable(lambda to: check_queue(to, options.queue))
            return ()
        type_, has_alternate = options.brokers.call_first_reachable(
            lambda to: inspect_exchange(to, options.exchange)
        )
    except errors.UnreachableError:
        if not patient:
            raise
        return ("the broker was not checked before the write: no address answered",)
    if type_ not in (None, *HASHING_TYPES) and (needed := options.needs_hashing):
        raise errors.MismatchError(
            f"exchange {options.exchange!r} is of type {type_}, and option {needed!r} needs x-consistent-hash or x-modulus-hash: "
            "name another exchange, or leave the option out",
            exchange=options.exchange,
        )
    notes: tuple[str, ...] = ()
    if has_alternate:
        effect = (
            ", and routing=client goes past both"
            if options.client_routing
            else ": what no queue takes goes there, and counts as confirmed"
        )
        notes = (f"exchange {options.exchange!r} has an alternate exchange{effect}",)
    if cache is not None:
        cache.keep(notes)
    return notes


def check_secret_name(options: WriteOptions) -> tuple[str, ...]:
    """Return a note if Spark would show ``passwordEnv`` in clear when it is set by Spark's configuration."""
    source = options.brokers.password
    if source is None or source.option != "passwordEnv" or _MASKED_BY_SPARK.search(source.name):
        return ()
    note = (
        f"option 'passwordEnv' is {source.name!r}: if it is set as spark.executorEnv.{source.name}, Spark shows the "
        "password in its event log and UI, as it masks only names with secret, password, token or accesskey: "
        "rename it, or set it outside of Spark's configuration"
    )
    return (note,)


def _amqp_notes(options: WriteOptions) -> Iterator[str]:
    """Yield what an AMQP URI does not say of a write into a super stream: the port, and that rows may be stored again."""
    if options.super_stream and options.brokers.given[0].protocol == "amqp":
        delivery = "; delivery is at-least-once, so a repeated task stores its rows again: set delivery to exactly-once"
        yield (
            f"rows go to super stream {options.super_stream!r} by the stream protocol at port {options.brokers.addresses[0].port}, and not to "
            f"the port of the amqp:// URL: rabbitmq-stream:// names that port{'' if options.exactly_once else delivery}"
        )


def check_checkpoint(options: WriteOptions, texts: Mapping[str, str]) -> None:
    """Raise an InputError if the checkpoint of a streaming query is that of a query with another target.

    Batches of the checkpoint are not repeated, so their rows would be missing in the new target. The target is kept in a file of the
    checkpoint. Spark does not give its file systems to data sources in Python, so only a checkpoint in a local folder is checked.
    """
    path = local_path(_checkpoint_of(texts))
    if not options.target or not path or not Path(path, "metadata").is_file():
        return
    file = Path(path, _TARGET_FILE)
    target = f"queue {options.queue}" if options.queue else options.target
    now = {"vhost": options.brokers.addresses[0].vhost, "target": target}
    before = now
    try:
        before = {**now, **json.loads(file.read_text(encoding="utf-8"))}
    except FileNotFoundError:
        with suppress(OSError):  # a folder that only Spark may write to
            write_whole(file, json.dumps(now))
    except (OSError, ValueError, TypeError) as cause:
        _log.warning("%s cannot be read, so the target of the checkpoint is not checked: %s", file, cause)
    if before != now:
        raise errors.InputError(
            f"checkpointLocation {path} belongs to a query that publishes to {before['target']!r} in vhost {before['vhost']!r}; this one "
            f"publishes to {now['target']!r} in vhost {now['vhost']!r}, without the rows of earlier batches: pass another "
            f"checkpointLocation; or, to continue without these rows, delete {file}"
        )


def _checkpoint_of(texts: Mapping[str, str]) -> str:
    """Return the checkpoint that Spark passes as an option of a streaming query; "" if it is Spark's default."""
    return next((text for name, text in texts.items() if name.lower() == "checkpointlocation"), "")


class PreflightCache:
    """The remembered notes of `check_broker`: Spark plans a stream again for every micro-batch.

    `path` is the file that keeps them for other processes of the application; None to keep them in this object alone.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._notes: tuple[str, ...] | None = None

    @classmethod
    def of_query(cls, options: WriteOptions, texts: Mapping[str, str]) -> PreflightCache:
        """Return the cache of a streaming query of this application, which may be empty.

        Checkpoint, broker and exchange identify the query. Spark ends Python processes that are idle for a minute, so the notes are kept in
        a file.
        """
        folder = scratch_folder()
        if folder is None:
            return cls()
        query = json.dumps([options.brokers.masked_url, options.place, _checkpoint_of(texts)])
        name = hashlib.sha256(query.encode()).hexdigest()[:32]
        return cls(folder / f"looked-{name}.json")

    @property
    def notes(self) -> tuple[str, ...] | None:
        """The notes; None if the broker was not asked yet, or the file cannot be read."""
        if self._notes is None and self._path is not None:
            with suppress(OSError, ValueError):
                self._notes = tuple(json.loads(self._path.read_text(encoding="utf-8")))
        return self._notes

    def keep(self, notes: tuple[str, ...]) -> None:
        """Remember the notes. If the file cannot be written, the next process asks the broker again."""
        self._notes = notes
        if self._path is not None:
            with suppress(OSError):
                self._path.parent.mkdir(exist_ok=True)
                write_whole(self._path, json.dumps(notes))


def _with_ring(plan: WritePlan, ring: WatchedRing | None) -> WriteOptions:
    """Return the options with the ring that is read on the driver; an error if rows cannot be routed by the ring."""
    options = plan.options
    if (read := plan.ring_reader) is not None:
        timeout_s = options.reconnect_timeout_s if plan.streaming else 0.0
        options = replace(options, ring=call_with_retry(lambda: WatchedRing(read).ring, timeout_s))
    elif options.client_routing and (ring is None or not ring.can_be_read):
        raise errors.InputError(
            "option 'routing' is 'client', and nothing reads the ring before and after the write: pass ringVia, such as "
            "'docker exec NAME', or for publish and batch_publisher a function: ring=lambda: broker.ring(exchange)"
        )
    if options.client_routing:
        ClientRouting(options.exchange, options.ring)
    return options


# -- Samples of the keys of partitions: whether partitions share keys
# A sample has the smallest hashes of a partition's keys, so partitions that share keys share some of these hashes.


#: The most keys of a sample. One that has a further hash does not have all keys of its partition.
_MOST = 1_000


def add_to_sample(sample: bytes, keys: Any) -> bytes:  # Arrow has no types
    """Return the sample of a partition, b"" at first, with the keys of a batch: an Arrow array or a list of bytes.

    It has 8 bytes for each key, in ascending order.
    """
    distinct: Any = pc.unique(keys if isinstance(keys, pa.Array) else pa.array(keys, pa.binary()))
    hashes = b"".join(hashlib.sha256(key).digest()[:8] for key in distinct.to_pylist())
    smallest = np.union1d(np.frombuffer(sample, np.uint64), np.frombuffer(hashes, np.uint64))
    return smallest[: _MOST + 1].tobytes()


def count_split_keys(samples: Iterable[bytes]) -> tuple[int, int, bool]:
    """Return how many keys were compared, how many of them are in more than one partition, and whether these are all keys.

    Keys are compared up to the hash that all samples reach: up to there each has all keys of its partition.
    """
    partitions = [np.frombuffer(sample, np.uint64) for sample in samples]
    cut_off = [hashes[_MOST - 1] for hashes in partitions if len(hashes) > _MOST]
    comparable = [hashes if not cut_off else hashes[hashes <= min(cut_off)] for hashes in partitions]
    _, times = np.unique(np.concatenate([np.empty(0, np.uint64), *comparable]), return_counts=True)
    return len(times), int(np.count_nonzero(times > 1)), not cut_off
