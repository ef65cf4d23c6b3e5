"""The streams of a write: the stream of each row, and the checks before the first task and after the last row."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from http.client import NOT_FOUND
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from rabbit_chx import errors
from rabbit_chx.amqp.exchange_types import MODULUS_EXCHANGE
from rabbit_chx.amqp.frames import is_transient, may_be_limit
from rabbit_chx.retry import Retry
from rabbit_chx.routing import SuperStream
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.routing.super_stream import are_names
from rabbit_chx.streams.chunks import CODECS
from rabbit_chx.streams.nodes import open_any, settings_of
from rabbit_chx.streams.rows import ROW_BITS, check_stream_ring, named_keys_text
from rabbit_chx.streams.stored_ids import check_references
from rabbit_chx.streams.writer import DEFAULT_FRAME_MAX

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from rabbit_chx.amqp import ConnectionSettings
    from rabbit_chx.streams.connection import StreamConnection
    from spark_connector.options.write_options import WriteOptions

_T = TypeVar("_T")

_log = logging.getLogger(__name__)

_PAUSE_S = 0.5
#: What a stream remembers of a version's sub-entries: a version, 3 bits of a codec, 16 bits of rows; and a bit above all offsets.
_FORM = 1 << 62
_FORM_BITS = 19
_SIZE_BITS = 16
_FORM_NAME = "/sub-entries"
#: What a stream remembers of the last version of a job: see `VersionState`.
_VERSION_NAME = "/version"
_LAYOUT_BITS = 30
#: The last sort columns of `place_for_streams`; another order would be another layout.
_SORT = ("key", "value")
_WRITTEN = ("key", "routing_key", "value")


@dataclass(frozen=True, slots=True)
class StreamLayout:
    """The streams of a write, and the placement of rows in them.

    Attributes:
        placing: the super stream, or the ring whose queues are streams.
        digest: identifies the streams in their order, the rule that places keys, the columns and the sort order. If one of them differs,
            the same id may mean another row.
        frame_max: the bytes of the largest frame that the broker accepts; a row must fit into one.
        notes: what the checks of the streams have found, for the report.
    """

    placing: KeyMap
    digest: str
    frame_max: int = DEFAULT_FRAME_MAX
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, placing: KeyMap, schema: StructType, order_by: str | None = None) -> StreamLayout:
        """Return the layout of rows of a schema."""
        return cls(placing, _digest(placing, _types(schema), order_by))

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams; partition i of a placed frame has the rows of stream i."""
        return tuple(map(str, self.placing.destinations))

    def name(self, app_id: str) -> str:
        """Return the name that a job's rows are published under."""
        return f"{app_id}/{self.digest}"


def _types(schema: StructType) -> dict[str, str]:
    return {field.name.lower(): field.dataType.simpleString() for field in schema.fields}


def _digest(placing: KeyMap, types: Mapping[str, str], order_by: str | None) -> str:
    first = [] if order_by is None else [(order_by.lower(), types.get(order_by.lower()))]
    facts = [
        tuple(map(str, placing.destinations)),
        _rule(placing),
        sorted((name, kind) for name, kind in types.items() if name in _WRITTEN),
        [*first, *_SORT],
    ]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:12]


#: What determines the stream of a key of each kind, where the streams alone do. It is a part of publisher names: never change one.
_RULES = {"super-stream": "murmur3", MODULUS_EXCHANGE: MODULUS_EXCHANGE}


def _rule(placing: KeyMap) -> Any:  # JSON
    """Return what determines the stream of a key; not the release, since all hash keys alike."""
    if placing.routes_by_key:
        return "key", [key for _, key in placing.bindings or ()]
    if (rule := _RULES.get(placing.kind)) is not None:
        return rule
    ring = json.loads(placing.to_json())
    return ring["buckets"], ring.get("slots")


def plan_layout(
    options: WriteOptions, schema: StructType, *, patient: bool = False, checks_streams: bool = True
) -> StreamLayout:
    """Request the streams of a write from the broker, and check that they can store it.

    Args:
        options: the options of the write, with the ring that was read.
        schema: the columns of the rows.
        patient: whether the broker may be unreachable for ``reconnectTimeout``.
        checks_streams: whether the streams are checked, and their publisher names counted.
    """
    try:
        addresses = options.brokers.resolve()
    except errors.InputError as cause:
        raise errors.InputError(
            f"the driver asks for the streams first, and needs the password: {cause}"
        ) from None

    def find(connection: StreamConnection) -> StreamLayout:
        if options.super_stream:
            placing: KeyMap = _super_stream(connection, options)
        else:
            placing = check_stream_ring(options.ring, "pass ringVia, such as 'docker exec NAME'")
        layout = StreamLayout.of(placing, schema, options.order_by)
        notes = list[str]()
        if checks_streams:
            notes += _check_streams(connection, layout, options)
        if options.version is not None:
            notes += check_before(connection, layout, options)
        frame_max = connection.frame_max or DEFAULT_FRAME_MAX
        return replace(layout, frame_max=frame_max, notes=tuple(notes))

    layout = ask_any(find, lambda: addresses, options.reconnect_timeout_s if patient else 0.0)
    if checks_streams and options.exactly_once and options.management_url is not None:
        name = layout.name(options.app_id or "the query")
        try:
            for stream in layout.streams:
                check_references(options.management_url, addresses[0], stream, name)
        except errors.BrokerRefusedError as cause:
            # Of an exchange, the API may be for its record alone.
            if cause.reply_code != NOT_FOUND or options.super_stream:
                raise
            note = (
                "publisher names were not counted, which needs RabbitMQ 3.13 with rabbitmq_stream_management"
            )
            return replace(layout, notes=(*layout.notes, note))
    return layout


def _super_stream(connection: StreamConnection, options: WriteOptions) -> SuperStream:
    """Return the super stream of a write; with exactly-once and routing=key, each task checks the binding keys of its rows."""
    name = options.super_stream
    routing = options.stream_routing
    partitions = connection.partitions(name)
    if routing != "key" or not options.exactly_once:
        return SuperStream(partitions)
    keys = connection.binding_keys(name, partitions)
    if None in keys:
        raise errors.InputError(
            f"the binding key of partition {partitions[keys.index(None)]!r} of super stream {name!r} is not known over the stream protocol, "
            "which only tries the end of its name: write with delivery at-least-once"
        )
    return SuperStream(partitions, [str(key) for key in keys], routing="key")


def _check_streams(
    connection: StreamConnection, layout: StreamLayout, options: WriteOptions
) -> Iterator[str]:
    """Yield notes for the report; an InputError for streams that cannot store the rows."""
    if options.filter_value_column is not None and connection.no_filters:
        raise errors.InputError(connection.no_filters)
    try:
        connection.metadata(layout.streams)
    except errors.NotFoundError as cause:
        raise errors.InputError(f"{cause}. Each queue of the ring must be a stream") from None
    if options.super_stream and options.routing is None:
        keys = connection.binding_keys(options.super_stream, layout.streams)
        if are_names(keys):
            yield named_keys_text(options.super_stream)
    if options.app_id is not None and options.version is not None:
        name = layout.name(options.app_id)
        for stream in () if options.skip_stale else layout.streams:
            check_version(stream, options.version, connection.publisher_sequence(name, stream))
        check_form(connection, layout, name, options.version, options)


def check_version(stream: str, version: int, last_id: int) -> None:
    """Raise an InputError if the last id that a stream remembers is of a later version."""
    if last_id >> ROW_BITS > version:
        raise errors.InputError(
            f"stream {stream!r} has rows of version {last_id >> ROW_BITS} already, so the broker would drop those of version {version}: "
            "onStaleVersion=skip leaves such a stream out; if that version has not ended, only another appId stores its rows, and stores all",
            queue=stream,
        )


def check_form(
    connection: StreamConnection,
    layout: StreamLayout,
    name: str,
    version: int,
    options: WriteOptions,
    *,
    streams: Sequence[str] = (),
) -> int:
    """Return what a stream remembers of sub-entries like these; an InputError if a stream has rows of this version in other ones.

    It is kept as the offset of a reader, which the broker stores beside the ids, and never removes, since it is above all offsets. It has the
    last version that was written in sub-entries, their rows and their codec. A version without it is of single rows. All streams are
    checked, unless `streams` has some: one may have no rows of the version yet.
    """
    rows = options.sub_entry_rows or 0
    form = _FORM | version << _FORM_BITS | CODECS.index(options.compression) << _SIZE_BITS | rows
    for stream in streams or layout.streams:
        stored = connection.query_offset(name + _FORM_NAME, stream) or 0
        is_of_version = stored >> _FORM_BITS == form >> _FORM_BITS
        if not is_of_version:
            is_single = connection.publisher_sequence(name, stream) >> ROW_BITS == version and stored < form
        if (is_of_version and stored != form) or (not is_of_version and rows and is_single):
            before = "single rows"
            if is_of_version:
                codec = CODECS[stored >> _SIZE_BITS & 7]
                before = f"subEntryRows {stored & (1 << _SIZE_BITS) - 1} and compression {codec}"
            raise errors.InputError(
                f"stream {stream!r} has version {version} of {name!r} with {before}, and subEntryRows is now {rows or 'not set'} and compression "
                f"{options.compression}: set them as before, or write another version",
                queue=stream,
            )
    return form


def store_form(connection: StreamConnection, stream: str, name: str, form: int) -> None:
    """Let a stream remember the sub-entries of a version, unless it does, or has a later one; an InputError if it has others of this one."""
    reference = name + _FORM_NAME
    stored = connection.query_offset(reference, stream) or 0
    if stored >> _FORM_BITS == form >> _FORM_BITS and stored != form:
        raise errors.InputError(
            f"another job writes this version of {name!r} into stream {stream!r} in other sub-entries: write each version by one job",
            queue=stream,
        )
    if stored >= form:
        return
    connection.store_offset(reference, stream, form)
    if connection.query_offset(reference, stream) != form:
        raise errors.ConnectionLostError(f"stream {stream!r} has no leader that stores offsets", queue=stream)


def check_end(stream: str, name: str, version: int, rows: int, last_id: int) -> None:
    """Raise a MismatchError unless a stream has exactly `rows` rows of this version, and none of a later one."""
    stored_version = last_id >> ROW_BITS
    stored = last_id & ((1 << ROW_BITS) - 1)
    if stored_version > version:
        raise errors.MismatchError(
            f"stream {stream!r} got rows of version {stored_version} of {name!r} meanwhile, and the broker may have dropped rows of "
            f"version {version}: write one version after the other",
            queue=stream,
        )
    if stored_version == version and stored > rows:
        raise errors.MismatchError(
            f"stream {stream!r} has {stored:,} rows of version {version} of {name!r}, and this run gives {rows:,}: the rows are not "
            "those of the earlier run; pass the same rows, or a higher version for others",
            queue=stream,
        )
    if rows and last_id < (version << ROW_BITS) + rows:
        raise errors.MismatchError(
            f"stream {stream!r} has confirmed {rows:,} rows of version {version} of {name!r}, but it no longer has all of them: it was "
            "deleted and created again, or its log was cut; write the same rows again",
            queue=stream,
        )


def check_absent(
    layout: StreamLayout, options: WriteOptions, app_id: str, version: int, partitions: Collection[int]
) -> None:
    """Raise a MismatchError if a stream without a task has rows of this version: Spark runs no task for a frame without rows."""
    name = layout.name(app_id)
    absent = [stream for number, stream in enumerate(layout.streams) if number not in partitions]

    def last_ids(connection: StreamConnection) -> list[int]:
        return [connection.publisher_sequence(name, stream) for stream in absent]

    last = ask_any(last_ids, options.brokers.resolve, options.reconnect_timeout_s) if absent else ()
    for stream, last_id in zip(absent, last, strict=True):
        if last_id >> ROW_BITS == version:
            check_end(stream, name, version, 0, last_id)


class VersionState(NamedTuple):
    """What the streams remember of the last version that a job has begun.

    It is kept as the offset of a reader, as in `check_form`: a version, 30 bits for the layout, and a bit for the end.

    Attributes:
        version: the version.
        layout: identifies what decides which row a number is.
        has_ended: whether all rows of the version are stored.
    """

    version: int
    layout: int
    has_ended: bool

    @classmethod
    def of(cls, layout: StreamLayout, options: WriteOptions, *, has_ended: bool) -> VersionState:
        """Return the state of the version of a write."""
        assert options.version is not None  # `check_mode`
        filter_column = options.filter_value_column and options.filter_value_column.lower()
        facts = json.dumps([layout.digest, filter_column])
        number = int.from_bytes(hashlib.sha256(facts.encode()).digest()) % (1 << _LAYOUT_BITS)
        return cls(options.version, number, has_ended)

    @classmethod
    def read(cls, connection: StreamConnection, layout: StreamLayout, app_id: str) -> VersionState | None:
        """Return the latest state that a stream of the layout remembers; None if there is none."""
        found = [connection.query_offset(app_id + _VERSION_NAME, stream) or 0 for stream in layout.streams]
        latest = max(found)
        if latest < _FORM:
            return None
        has_ended = bool(latest & 1)
        number = latest >> 1 & ((1 << _LAYOUT_BITS) - 1)
        version = (latest ^ _FORM) >> (1 + _LAYOUT_BITS)
        return cls(version, number, has_ended)

    def store(self, connection: StreamConnection, stream: str, app_id: str) -> None:
        """Let a stream remember the state, unless it has a later one."""
        value = _FORM | self.version << (1 + _LAYOUT_BITS) | self.layout << 1 | self.has_ended
        reference = app_id + _VERSION_NAME
        if (connection.query_offset(reference, stream) or 0) >= value:
            return
        connection.store_offset(reference, stream, value)
        if (connection.query_offset(reference, stream) or 0) < value:
            raise errors.ConnectionLostError(
                f"stream {stream!r} has no leader that stores offsets", queue=stream
            )


def check_before(connection: StreamConnection, layout: StreamLayout, options: WriteOptions) -> Iterator[str]:
    """Yield a note if the end of the version before this one is not stored.

    Raises:
        InputError: this version or a later one was written with another layout, so that its rows would be stored a second time.
    """
    app_id = str(options.app_id)
    before = VersionState.read(connection, layout, app_id)
    now = VersionState.of(layout, options, has_ended=False)
    if before is None:
        return
    if before.version >= now.version and before.layout != now.layout:
        raise errors.InputError(
            f"{options.place} has version {before.version} of appId {app_id!r}, but streams, ring, orderBy, filterValueColumn, key, value or "
            "types differ: rows would be stored a second time; write as before, or all with a higher version or another appId"
        )
    if before.version < now.version and not before.has_ended:
        yield (
            f"version {before.version} of appId {app_id!r} has begun, and its end is not stored: some of its rows may be missing, and once "
            f"version {now.version} is written only another appId can store them; end a failed version before the next one"
        )


def begin_version(
    connection: StreamConnection, layout: StreamLayout, options: WriteOptions, stream: str
) -> None:
    """Let a stream remember that a version has begun, right before its first row."""
    state = VersionState.of(layout, options, has_ended=False)
    state.store(connection, stream, str(options.app_id))


def end_version(layout: StreamLayout, options: WriteOptions) -> None:
    """Let the streams remember that all rows of a version are stored."""
    ended = VersionState.of(layout, options, has_ended=True)

    def store(connection: StreamConnection) -> None:
        for stream in layout.streams:
            ended.store(connection, stream, str(options.app_id))

    ask_any(store, options.brokers.resolve, options.reconnect_timeout_s)


def ask_any(
    ask: Callable[[StreamConnection], _T],
    addresses: Callable[[], Sequence[ConnectionSettings]],
    timeout_s: float,
) -> _T:
    """Return the result of a function of a connection to any node, as `call_with_retry`; each attempt has a connection of its own."""

    def attempt() -> _T:
        with closing(open_any(settings_of(addresses()))) as connection:
            return ask(connection)

    return call_with_retry(attempt, timeout_s)


def call_with_retry(ask: Callable[[], _T], timeout_s: float) -> _T:
    """Return the result of a function, and repeat it for `timeout_s` while the broker is unreachable, or at a limit of connections; 0 for one
    call. The first failure is logged.
    """
    told = False

    def may_retry(cause: errors.RabbitChxError) -> bool:
        nonlocal told
        passes = timeout_s > 0 and (is_transient(cause) or may_be_limit(cause))
        if passes and not told:
            _log.warning("%s; trying again for %g s", cause, timeout_s)
            told = True
        return passes

    return Retry.within(timeout_s, _PAUSE_S).call(ask, may_retry)
