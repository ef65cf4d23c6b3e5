"""The options that read: of streams and of queues."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TypeAlias, get_args

from rabbit_chx.amqp.settings import ManagementUrl
from rabbit_chx.checks import check_name, is_whole
from rabbit_chx.errors import InputError
from rabbit_chx.options import (
    BYTES,
    COUNT,
    FLAG,
    POSITIVE_SECONDS,
    TEXT,
    ValueKind,
    field_of,
    one_of,
    option,
    options_of,
)
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.routing.super_stream import StreamRouting
from spark_connector.executor_functions import without_traceback
from spark_connector.options.common import (
    ADDRESS_OPTIONS,
    JSON_OBJECT,
    MANAGEMENT_URL,
    NODE_ADDRESSES,
    RING,
    Brokers,
    check_exclusive,
    check_only,
    options_from,
)

#: The start or end of a read: `earliest` or `latest`, a time, or an offset for each stream. -2 is earliest and -1 latest, as Kafka's.
Bound: TypeAlias = str | datetime | Mapping[str, int]

#: The columns that an `include` may name, in their order.
FURTHER_COLUMNS = ("exchange", "message_id", "properties", "headers")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LARGEST_OFFSET = (1 << 63) - 1
_EARLIEST = -2
_LATEST = -1


def _names(text: str) -> tuple[str, ...]:
    names = _split(text, "stream")
    if not all(names):
        raise ValueError
    return names


def _split(text: str, what: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name and names.count(name) > 1:
            raise InputError(f"option {what!r} names {name!r} twice: name each {what} once")
    return names


def _filter_values(text: str) -> tuple[str, ...]:
    values = (
        json.loads(text) if text.lstrip().startswith("[") else [value.strip() for value in text.split(",")]
    )
    if not values or not all(isinstance(value, str) and value for value in values):
        raise ValueError
    return tuple(values)


def _columns(text: str) -> tuple[str, ...]:
    names = [name.strip() for name in text.lower().split(",")]
    if not set(names) <= set(FURTHER_COLUMNS):
        raise ValueError
    return tuple(name for name in FURTHER_COLUMNS if name in names)


def _offsets(text: str) -> Bound:
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return word
    offsets: dict[str, int] = JSON_OBJECT.parse(text)
    for stream, offset in offsets.items():
        if not is_whole(offset, _EARLIEST, _LARGEST_OFFSET):
            raise ValueError(stream)
    if not offsets:
        raise ValueError
    return offsets


def _moment(text: str) -> datetime:
    text = text.strip()
    try:
        moment = (
            _EPOCH + timedelta(milliseconds=int(text)) if text.isdigit() else datetime.fromisoformat(text)
        )
    except OverflowError:
        raise ValueError from None
    if moment.tzinfo is None:
        raise ValueError
    return moment


_NAMES = ValueKind("names", parse=_names, texts="the name of a stream, or several with commas between them")
_COLUMNS = replace(
    _NAMES, parse=_columns, texts=f"some of {', '.join(FURTHER_COLUMNS)}, with commas between them"
)
_FILTER_VALUES = ValueKind(
    "texts", parse=_filter_values, texts='texts with commas between them, or a JSON array: ["a,b", "c"]'
)
_OFFSETS = ValueKind(
    "earliest, latest or JSON object",
    parse=_offsets,
    texts="'earliest', 'latest', or an offset for each stream: {\"orders-0\": 23}; -2 is earliest and -1 latest",
)
_MOMENT = ValueKind(
    "time",
    parse=_moment,
    texts="a time with its zone, as 2026-01-31T12:00:00Z, or milliseconds since 1970 (UTC)",
)
#: The ends of messages about options that a streaming query, or a batch, cannot have.
_STREAMING = {"batch": " is for batch reads, and this is a streaming query: leave it out, or use spark.read"}
_BATCH = {"streaming": " is for streaming queries, and this is a batch: leave it out"}
_INCLUDE = "further columns: `exchange`, `message_id`, `properties`, `headers`"
_INCLUDE_HEADERS = "same as `include=headers`"


def _sort_columns(columns: tuple[str, ...], *, headers: bool) -> tuple[str, ...]:
    return tuple(name for name in FURTHER_COLUMNS if name in columns or (headers and name == "headers"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """The options of a read. It can be pickled, and shows no password. Durations are in seconds, sizes in bytes.

    Attributes:
        brokers: the addresses of the stream protocol, with user and password.
        start: the start; None for the default.
        end: the end of a batch; None for the default.
        include: the further columns.
    """

    brokers: Brokers
    # fmt: off
    streams: tuple[str, ...] = option(
        _NAMES, "one or several streams, separated by commas (Kafka: `subscribe`)", default=(),
        heading="What is read", spark="stream",
    )
    super_stream: str | None = option(TEXT, "instead: all streams of a super stream")
    routing: StreamRouting | None = option(
        one_of(*get_args(StreamRouting)),
        "with `pushFilters=keys`: how clients route to `superStream`; required if the binding keys are not 0, 1, ...",
        only="batch",
    )
    exchange: str | None = option(
        TEXT,
        "instead: all streams bound to an exchange; with `managementUrl` also those behind bound exchanges, such as slots",
    )
    management_url: ManagementUrl | None = option(
        MANAGEMENT_URL,
        "management API, to read the bindings of `exchange`: `http://host:15672`, by default with the broker's login",
    )
    include_columns: tuple[str, ...] = option(_COLUMNS, _INCLUDE, default=(), spark="include")
    include_headers: bool = option(FLAG, _INCLUDE_HEADERS, default=False)
    filter_values: tuple[str, ...] = option(
        _FILTER_VALUES,
        "read only rows with one of these [filter values](../streams/python.md#filters), separated by commas or as a JSON array",
        default=(),
    )
    filter_match_unfiltered: bool = option(
        FLAG, "with `filterValues`: also rows without a filter value", default=False,
    )
    starting_offsets: Bound | None = option(
        _OFFSETS,
        "`earliest` (default of batches), `latest` (default of new queries), or an offset for each stream, -2 is earliest, -1 latest: "
        '`{"orders-0": 23}`',
        heading="Start and end",
    )
    starting_timestamp: datetime | None = option(
        _MOMENT,
        "instead: the first rows stored at or after this time: `2026-01-31T12:00:00Z` or milliseconds since 1970",
    )
    ending_offsets: Bound | None = option(
        _OFFSETS, "end of a batch: `latest` (default), or an exclusive offset for each stream", only="batch",
    )
    ending_timestamp: datetime | None = option(_MOMENT, "instead: exclusive end", only="batch")
    fail_on_data_loss: bool = option(
        FLAG,
        "fail if rows are no longer in the stream; `false` warns with their number",
        default=True,
    )
    push_filters: str = option(
        one_of("none", "exact", "keys"),
        "see [Filter pushdown](../spark/streams.md#filter-pushdown)",
        default="none", only="batch",
    )
    ring: KeyMap | None = option(
        RING,
        "with `exchange` and `pushFilters=keys`: as for a write",
        only="batch",
    )
    min_partitions: int | None = option(
        COUNT,
        "minimum number of tasks of a batch, for which streams are split by offsets",
        heading="Batch size",
    )
    max_offsets: int | None = option(
        COUNT,
        "maximum number of offsets (slightly more than rows) of a micro-batch, divided among the streams by backlog",
        only="streaming", spark="maxOffsetsPerTrigger",
    )
    max_bytes: int | None = option(
        BYTES, "approximate maximum size of a micro-batch, estimated from its first rows", only="streaming",
        spark="maxBytesPerTrigger",
    )
    timeout_s: float = option(
        POSITIVE_SECONDS, "maximum time without an answer or a row, including reconnects", default=60.0,
        heading="Errors", spark="readTimeout",
    )
    addresses: Mapping[str, str] = field_of(NODE_ADDRESSES)
    # fmt: on

    @classmethod
    @without_traceback
    def parse(cls, texts: Mapping[str, str], *, streaming: bool | None = False) -> ReadOptions:
        """Return the options of a read, with names in any case; errors have no traceback, which might be shown with the password.

        `streaming` is None where Spark does not report it.
        """
        if any(name.lower() == "queue" for name in texts):
            raise InputError(
                "option 'queue': messages of a queue cannot be read again, so Spark reads streams only: pass the option 'stream', or "
                "take batches out of the queue with spark_connector.drain"
            )
        options = options_from(cls, texts, streams=True)
        if streaming is not None:
            check_only(READ_OPTIONS, texts, _STREAMING if streaming else _BATCH)
        _check(options, streaming=streaming)
        return options

    @property
    def start(self) -> Bound | None:
        """The start; None for the default."""
        return self.starting_timestamp or self.starting_offsets

    @property
    def end(self) -> Bound | None:
        """The end of a batch; None for the default."""
        return self.ending_timestamp or self.ending_offsets

    @property
    def include(self) -> tuple[str, ...]:
        """The further columns, in their order."""
        return _sort_columns(self.include_columns, headers=self.include_headers)

    @property
    def source(self) -> str:
        """The streams, super stream or exchange of the read, for messages."""
        if self.super_stream is not None:
            return f"super stream {self.super_stream!r}"
        if self.exchange is not None:
            return f"exchange {self.exchange!r}"
        return f"stream {', '.join(map(repr, self.streams))}"


#: Every option of a read, in the order of the documents.
READ_OPTIONS = (*ADDRESS_OPTIONS, *options_of(ReadOptions).values())


def _check(options: ReadOptions, *, streaming: bool | None) -> None:
    """Check what the kinds of the options do not."""
    if not check_exclusive(
        stream=options.streams, superStream=options.super_stream, exchange=options.exchange
    ):
        raise InputError("option 'stream' is missing: name a stream, or pass superStream, or exchange")
    if options.management_url is not None and options.exchange is None:
        raise InputError("option 'managementUrl' needs the option 'exchange': pass both, or leave it out")
    _check_pushdown(options)
    if options.filter_match_unfiltered and not options.filter_values:
        raise InputError("option 'filterMatchUnfiltered' needs 'filterValues': pass both, or neither")
    check_exclusive(startingOffsets=options.starting_offsets, startingTimestamp=options.starting_timestamp)
    check_exclusive(endingOffsets=options.ending_offsets, endingTimestamp=options.ending_timestamp)
    if streaming is not False:
        return
    if options.starting_offsets == "latest":
        raise InputError("option 'startingOffsets' is 'latest', where a batch has nothing: leave it out")
    if options.ending_offsets == "earliest":
        raise InputError("option 'endingOffsets' is 'earliest', where a batch has nothing: leave it out")
    _in_json(options)
    _in_order(options)


def _check_pushdown(options: ReadOptions) -> None:
    if (options.ring is not None) != (options.push_filters == "keys" and options.exchange is not None):
        raise InputError(
            "options 'exchange', 'ring' and 'pushFilters=keys' need each other: the ring has the stream of a key"
        )
    if options.routing is not None and (options.super_stream is None or options.push_filters != "keys"):
        raise InputError(
            "option 'routing' needs the options 'superStream' and 'pushFilters=keys': pass them, or leave it out"
        )
    if options.push_filters == "keys" and options.streams:
        raise InputError(
            "option 'pushFilters' is 'keys', and a list of streams does not determine the stream of a key: pass superStream, or exchange "
            "with ring"
        )
    if options.ring is not None and not options.ring.order.is_known:
        raise InputError(
            "option 'ring' is a ring whose order is not known, so the stream of a key is not known: read it with a ring source"
        )


def _in_json(options: ReadOptions) -> None:
    for name, bound, word, number in (
        ("startingOffsets", options.starting_offsets, "latest", _LATEST),
        ("endingOffsets", options.ending_offsets, "earliest", _EARLIEST),
    ):
        for stream, offset in bound.items() if isinstance(bound, Mapping) else ():
            if offset == number:
                raise InputError(
                    f"option {name!r} is {number} ({word}) for {stream!r}: a batch reads nothing there. To leave this stream out, name only the "
                    "others in the option 'stream'; else pass another offset"
                )


def _in_order(options: ReadOptions) -> None:
    start = options.start
    end = options.end
    if isinstance(start, datetime) and isinstance(end, datetime) and end < start:
        raise InputError(
            f"option 'endingTimestamp' is {end.isoformat()}, before startingTimestamp, {start.isoformat()}: pass a later one"
        )
    if isinstance(start, Mapping) and isinstance(end, Mapping):
        for stream, offset in end.items():
            if 0 <= offset < start.get(stream, 0):
                raise InputError(
                    f"option 'endingOffsets' is {offset} for {stream!r}, before startingOffsets, {start[stream]}: pass a later one"
                )


#: Offsets of Arrow's binary columns have 32 bits.
_MOST_BYTES = 1 << 30


def _queues(text: str) -> tuple[str, ...]:
    queues = _split(text, "queue")
    for queue in queues:
        check_name(queue, "queue")
    return queues


_QUEUES = replace(_NAMES, parse=_queues)  # each fault has its own message


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOptions:
    """The queues to drain and the options of the drain. It can be pickled, and shows no password. Sizes are in bytes.

    Attributes:
        brokers: the addresses to connect to, with user and password.
        include: the further columns.
    """

    brokers: Brokers
    # fmt: off
    queues: tuple[str, ...] = option(
        _QUEUES, "one or several queues, separated by commas", default=(), heading="Queues", spark="queue",
    )
    exchange: str | None = option(
        TEXT,
        "instead of `queue`: all queues bound to an exchange, or to exchanges behind it, such as slots; needs `managementUrl`",
    )
    management_url: ManagementUrl | None = option(
        MANAGEMENT_URL, "management API, to read the bindings of `exchange`",
    )
    include_columns: tuple[str, ...] = option(_COLUMNS, _INCLUDE, default=(), spark="include")
    include_headers: bool = option(FLAG, _INCLUDE_HEADERS, default=False)
    max_rows: int = option(COUNT, "maximum number of messages of a batch", default=10_000)
    max_bytes: int = option(BYTES, "approximate maximum size of a batch, up to 1 GiB", default=64 << 20)
    # fmt: on

    @classmethod
    @without_traceback
    def parse(cls, texts: Mapping[str, str]) -> QueueOptions:
        """Return the options, with names in any case; errors have no traceback, which might be shown with the password."""
        options = options_from(cls, texts)
        _check_queues(options)
        return options

    @property
    def include(self) -> tuple[str, ...]:
        """The further columns, in their order."""
        return _sort_columns(self.include_columns, headers=self.include_headers)


#: Every option of queues, in the order of the documents.
QUEUE_OPTIONS = (*ADDRESS_OPTIONS, *options_of(QueueOptions).values())


def _check_queues(options: QueueOptions) -> None:
    if not check_exclusive(queue=options.queues, exchange=options.exchange):
        raise InputError("option 'queue' is missing: name the queue to drain, or pass exchange")
    if (options.exchange is None) != (options.management_url is None):
        names = ("exchange", "managementUrl")
        missing, there = names if options.exchange is None else names[::-1]
        raise InputError(f"option {there!r} needs the option {missing!r}: pass both, or neither")
    if options.max_bytes > _MOST_BYTES:
        raise InputError(
            f"option 'maxBytes' is {options.max_bytes:,}: a batch of Arrow holds less than 2 GiB; pass 1GiB at most"
        )
