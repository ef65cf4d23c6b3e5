"""``rabbit-chx stream show`` and ``replay``: the rows, the nodes and the writers of streams; the rows of some keys.

`StreamOptions` are the options that they share with ``verify``: the range, the addresses, and the ring that places the rows.
"""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, get_args

import click

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.analysis.wording import document, entry, listed, place_text
from rabbit_chx.cli.broker_options import BrokerAddresses, BrokerOptions, counted
from rabbit_chx.cli.command import TEXT, Outcome, argument, command, option, options, say
from rabbit_chx.cli.inputs import read_topology
from rabbit_chx.cli.report import hashes_text, lag_gauges, numbers, or_dash, texts
from rabbit_chx.cli.ring_options import RingInput, exchange_in, ring_of_broker, ring_of_file, ring_of_topology
from rabbit_chx.errors import InputError, MismatchError, NotFoundError, RabbitChxError
from rabbit_chx.rendering import Block, Facts, Gauge, Line, Table
from rabbit_chx.routing import SuperStream
from rabbit_chx.routing.key_map import KeyMap, plural
from rabbit_chx.routing.super_stream import StreamRouting
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.frames import Code, StreamMetadata
from rabbit_chx.streams.nodes import stream_settings
from rabbit_chx.streams.references import MOST_REFERENCES, writers_of

if TYPE_CHECKING:
    import pyarrow as pa

    from rabbit_chx.consuming.stream_status import StreamShare
    from rabbit_chx.streams import StreamReader
    from rabbit_chx.streams.keys import KeyColumn

_UNITS_S = {"s": 1, "min": 60, "h": 3_600, "d": 86_400}
_AGO = re.compile(r"(\d+(?:\.\d+)?)\s*(s|min|h|d)")
#: A day with a time zone, for which Python takes the zone for a time.
_DAY = re.compile(r"^(\d{4}-\d\d-\d\d)(Z|[+-]\d\d:?\d\d)$")
_ADDRESS = re.compile(r".+:\d+=.+:\d+")
_TIME_HELP = "ISO 8601 with a time zone (2026-11-22T10:00:00Z), or a time ago: 90s, 30min, 2h, 7d."
_UNKNOWN = "-"
_MOST_WRITERS = 20
_MOST_KEYS = 5
_TIMEOUT_S = 60.0


class StreamMap(NamedTuple):
    """The mapping of keys to streams.

    Attributes:
        exchange: the exchange, or the super stream.
        source: maps keys to streams.
    """

    exchange: str
    source: KeyMap

    @property
    def streams(self) -> list[str]:
        """The streams that keys can belong to."""
        places = self.source.destinations
        for place in places:
            if not isinstance(place, str):
                raise InputError(f"{place_text(place)} is not a stream: give the streams with --stream")
        return [str(place) for place in places]


def address_option() -> Any:  # a field's default
    """Return a field that is the option for advertised addresses."""
    return option(
        "--address",
        multiple=True,
        metavar="HOST:PORT=HOST:PORT",
        help="An address that a node advertises for streams, and the address that is reachable from here.",
    )


@dataclass(frozen=True)  # cached properties need a __dict__
class StreamOptions:
    """The options of a range of streams, and of the placement of their rows."""

    section: ClassVar = "Streams"
    super_stream: str | None = option(
        type=TEXT,
        metavar="NAME",
        help="The super stream; murmur3 selects the partition, as in the clients for Java, .NET and Go.",
    )
    ring: str | None = option(
        metavar="FILE",
        help="A ring file of `ring show --output json`, instead of the current ring.",
    )
    published_to: str | None = option(
        type=TEXT,
        metavar="NAME",
        help="The exchange that the rows were published to, if the hash exchange is bound to it.",
    )
    by_message_id: bool = option(
        is_flag=True,
        help="The key of a row is its message id instead of its routing key, as often with super streams.",
    )
    since: str | None = option(
        metavar="TIME", help=f"Start at the first chunk of this time or later. {_TIME_HELP}"
    )
    until: str | None = option(metavar="TIME", help="End before the first chunk of this time or later.")
    addresses: tuple[str, ...] = address_option()
    routing: StreamRouting | None = option(
        type=click.Choice(get_args(StreamRouting)),
        help="How clients route to the super stream: by murmur3, or by its binding keys, as AMQP clients do.  [default: hash; if the "
        "binding keys are not 0, 1, ..., verify accepts both, and replay requires the option]",
    )

    @property
    def key_column(self) -> KeyColumn:
        """The column of the keys."""
        return "message_id" if self.by_message_id else "key"

    @cached_property
    def range(self) -> tuple[datetime | None, datetime | None]:
        """The times between which rows are read. Relative times are computed once, so all streams of a command have the same range."""
        now = datetime.now(UTC)
        since, until = parse_time("--since", self.since, now), parse_time("--until", self.until, now)
        if since is not None and until is not None and until < since:
            raise InputError(f"--until {self.until} is before --since {self.since}: exchange them")
        return since, until

    def placement(self, at: BrokerAddresses, exchange: str | None, topology: str | None) -> StreamMap:
        """Return the placement of keys by the options."""
        ways = {
            "--super-stream": self.super_stream,
            "--ring": self.ring,
            "--topology": topology,
        }
        given = [name for name, value in ways.items() if value is not None]
        if len(given) > 1:
            raise InputError(
                f"the placement of the rows is given twice, by {given[0]} and by {given[1]}: leave one out"
            )
        if self.super_stream is not None:
            if exchange is not None:
                raise InputError(
                    f"exchange {exchange!r} and --super-stream {self.super_stream}: leave one of them out"
                )
            return _super_stream(at, self.super_stream, self.routing)
        if self.routing is not None:
            raise InputError(
                "--routing is that of a super stream: give --super-stream NAME too, or leave it out"
            )
        if topology is not None:
            read = read_topology(topology, at.settings.vhost)
            exchange = exchange_in(read, exchange).name
            return _placed(exchange, ring_of_topology(read, exchange, None))
        if exchange is None:
            raise InputError(
                "the placement of the rows is not given: give the exchange that they were published to, or --super-stream NAME"
            )
        if self.ring is not None:
            return _placed(exchange, ring_of_file(self.ring))
        return _placed(exchange, ring_of_broker(at, exchange))

    def reader(self, at: BrokerAddresses, stream: str, **arguments: Any) -> StreamReader:
        """Return a reader of the range of a stream."""
        from rabbit_chx.streams import StreamReader

        since, until = self.range
        return StreamReader(
            stream_settings(at.settings),
            stream,
            start=since or "first",
            end=until,
            addresses=parse_addresses(self.addresses),
            **arguments,
        )


def parse_time(name: str, text: str | None, now: datetime) -> datetime | None:
    """Return the time of an option; None if it is not given."""
    if text is None:
        return None
    if ago := _AGO.fullmatch(text.strip()):
        try:
            return now - timedelta(seconds=float(ago[1]) * _UNITS_S[ago[2]])
        except OverflowError:
            raise InputError(
                f"{name} {text} is before the year 1: leave it out to begin at the first row"
            ) from None
    try:
        moment = datetime.fromisoformat(_DAY.sub(r"\1T00:00\2", text.strip()))
    except ValueError:
        raise InputError(f"{name} is {text!r:.60}: give {_TIME_HELP}") from None
    if moment.tzinfo is None:
        written = text.strip() if ":" in text else moment.isoformat(timespec="minutes")
        raise InputError(f"{name} {text} lacks a time zone: write {written}Z for UTC, or {written}+02:00")
    return moment


def time_text(moment: datetime) -> str:
    """Return a time in UTC, with the milliseconds of a chunk's time."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_addresses(texts: tuple[str, ...]) -> Mapping[str, str]:
    """Return the address to connect to for each advertised address."""
    for text in texts:
        if not _ADDRESS.fullmatch(text):
            raise InputError(f"--address is {text!r:.60}: give rabbit-0:5552=127.0.0.1:15552")
    return dict(text.split("=", 1) for text in texts)


def _super_stream(at: BrokerAddresses, name: str, routing: StreamRouting | None) -> StreamMap:
    if at.management_url is not None:
        try:
            source = at.exchange(name, "").key_map()
        except MismatchError:
            source = None
        if not isinstance(source, SuperStream):
            raise InputError(
                f"exchange {name!r} is not a super stream: leave --super-stream out, and give it as the exchange"
            )
        return _named_placement(source, routing)
    with closing(StreamConnection(stream_settings(at.settings))) as connection:
        partitions = connection.partitions(name)
        keys = connection.binding_keys(name, partitions)
    if routing != "hash" and None in keys:
        raise InputError(
            f"the binding key of partition {partitions[keys.index(None)]!r} is not known over the stream protocol: give --management-url, or "
            "--routing hash"
        )
    known = [key or "" for key in keys]
    return _named_placement(SuperStream(partitions, known, name=name, provenance="read"), routing)


def _named_placement(source: SuperStream, routing: StreamRouting | None) -> StreamMap:
    if routing is None and source.has_named_keys:
        say(
            f"the binding keys of super stream {source.name!r} are names ({listed(source.binding_keys, _MOST_KEYS)}): AMQP clients and the "
            "Java client's .key() route by them, other clients by a hash; --routing key and --routing hash compare with one of them"
        )
    return StreamMap(source.name, replace(source, routing=routing))


def _placed(exchange: str, ring: RingInput) -> StreamMap:
    if ring.source.kind == "super-stream":
        raise InputError(f"exchange {exchange!r} is a super stream: give --super-stream {exchange}")
    if ring.arguments:
        raise InputError(
            f"exchange {exchange!r} hashes {hashes_text(ring.arguments)}: only routing keys of rows can be placed"
        )
    if ring.arguments is None:
        say(f"{ring.doubt}, so the routing key is assumed")
    return StreamMap(exchange, ring.source)


class RowPlace(NamedTuple):
    """A row at an end of a stream: its offset, and the time of its chunk."""

    offset: int
    time: datetime


@dataclass(frozen=True, slots=True)
class ShownStream:
    """A stream.

    Attributes:
        exchange: the requested super stream or exchange; None if the stream itself was requested.
        places: its nodes.
        first: its first row; None without rows.
        last: its last row.
        rows: the number of rows; None if they were not counted.
        chunks: the number of chunks, likewise.
        segments: the number of files of its log; None if unknown.
        writers: the last publishing id of each publisher name that it stores; None if unknown.
        share: the lag of the requested stream group, without its members; None without a group.
    """

    name: str
    exchange: str | None
    places: StreamMetadata
    first: RowPlace | None = None
    last: RowPlace | None = None
    rows: int | None = None
    chunks: int | None = None
    segments: int | None = None
    writers: Mapping[str, int] | None = None
    share: StreamShare | None = None

    @property
    def span(self) -> int:
        """The number of offsets from the first to the last row, which is at least the number of rows."""
        return self.last.offset - self.first.offset + 1 if self.first and self.last else 0


@dataclass(frozen=True, slots=True)
class StreamsReport:
    """Streams of a vhost, the time when their ends were read, and the requested stream group.

    Attributes:
        address: the broker's host and port.
    """

    address: str
    vhost: str
    version: str
    streams: Sequence[ShownStream]
    read_at: datetime
    group: str | None = None

    def blocks(self) -> Iterator[Block]:
        """Return the streams with their nodes and writers."""
        group = [] if self.group is None else [("stream group", self.group)]
        yield Facts([("vhost", self.vhost), ("broker", f"RabbitMQ {self.version}"), *group])
        has_chunks = any(stream.chunks is not None for stream in self.streams)
        columns = [
            *texts("stream"),
            *numbers("first", "last", "rows", *(["chunks"] if has_chunks else []), "segments", "writers"),
        ]
        rows = [
            (
                stream.name,
                or_dash(stream.first and stream.first.offset),
                or_dash(stream.last and stream.last.offset),
                _rows_text(stream),
                *([or_dash(stream.chunks)] if has_chunks else []),
                or_dash(stream.segments),
                _UNKNOWN if stream.writers is None else f"{len(stream.writers)} of {MOST_REFERENCES}",
            )
            for stream in self.streams
        ]
        yield Table(columns, rows)
        if any(stream.rows is None and stream.span for stream in self.streams):
            yield Line(
                "<= is the number of offsets, which includes entries of the broker itself. --count counts the rows."
            )
        yield Table(
            texts("stream", "first at", "last at"),
            [(stream.name, _time_text(stream.first), _time_text(stream.last)) for stream in self.streams],
        )
        yield Table(
            texts("stream", "leader", "replicas"),
            [
                (
                    stream.name,
                    str(stream.places.leader or "none"),
                    ", ".join(map(str, stream.places.replicas)) or "none",
                )
                for stream in self.streams
            ],
        )
        if shares := self._shares:
            lags = [(at.stream, or_dash(at.stored), at.lag_rows, round(at.lag_s)) for at in shares]
            yield Table([*texts("stream"), *numbers("stored", "lag rows", "lag s")], lags)
        named = [
            (stream.name, writer, last)
            for stream in self.streams
            for writer, last in (stream.writers or {}).items()
        ]
        if named:
            yield Table([*texts("stream", "writer"), *numbers("last id")], named[:_MOST_WRITERS])
        if len(named) > _MOST_WRITERS:
            yield Line(f"and {plural(len(named) - _MOST_WRITERS, 'more writer')}; --output json shows all")

    def as_json(self) -> dict[str, Any]:
        """Return the document ``rabbit-chx/streams``."""
        return document(
            "streams",
            vhost=self.vhost,
            version=self.version,
            group=self.group,
            streams=[
                {
                    **entry(stream, "name", "exchange"),
                    "first": _end_json(stream.first),
                    "last": _end_json(stream.last),
                    "offsets": stream.span,
                    **entry(stream, "rows", "chunks", "segments"),
                    "leader": stream.places.leader and str(stream.places.leader),
                    "replicas": [str(node) for node in stream.places.replicas],
                    "writers": None if stream.writers is None else dict(stream.writers),
                    "lag_rows": stream.share and stream.share.lag_rows,
                    "lag_s": stream.share and stream.share.lag_s,
                }
                for stream in self.streams
            ],
        )

    def metrics(self) -> Iterator[Gauge]:
        """Yield the metrics that have values."""
        of_vhost = {"broker": self.address, "vhost": self.vhost}
        labels = [{**of_vhost, "stream": stream.name} for stream in self.streams]
        offsets = [stream.span for stream in self.streams]
        rows = [stream.rows for stream in self.streams]
        ages = [at.first and max(0.0, (self.read_at - at.first.time).total_seconds()) for at in self.streams]
        used = [None if stream.writers is None else len(stream.writers) for stream in self.streams]
        for name, text, values in (
            ("offsets", "The number of offsets of a stream, which is at least the number of rows.", offsets),
            ("rows", "The number of rows of a stream.", rows),
            ("oldest_row_age_seconds", "The age of the first chunk of a stream, in seconds.", ages),
            ("publisher_references", "The number of publisher references of a stream, of 255.", used),
        ):
            if samples := [(of, each) for of, each in zip(labels, values, strict=True) if each is not None]:
                yield Gauge(f"rabbit_chx_stream_{name}", text, samples)
        if self.group is not None:
            yield from lag_gauges({**of_vhost, "group": self.group}, self._shares)

    @property
    def _shares(self) -> list[StreamShare]:
        return [stream.share for stream in self.streams if stream.share is not None]


def _rows_text(stream: ShownStream) -> str:
    if stream.rows is not None:
        return f"{stream.rows:,}"
    return f"<= {stream.span:,}" if stream.span else "0"


def _time_text(end: RowPlace | None) -> str:
    return _UNKNOWN if end is None else f"{end.time:%Y-%m-%d %H:%M:%S}Z"


def _end_json(end: RowPlace | None) -> dict[str, Any] | None:
    return end and {"offset": end.offset, "time": time_text(end.time)}


@command(
    example="rabbit-chx stream show orders-0 orders-1 --management-url http://guest:guest@localhost:15672",
    has_metrics=True,
)
def show(
    *,
    names: tuple[str, ...] = argument(nargs=-1, required=True, type=TEXT, metavar="NAME..."),
    count: bool = option(is_flag=True, help="Read all rows to count them and their chunks."),
    stream_group: str | None = option(
        type=TEXT,
        metavar="NAME",
        help="The name of a StreamGroup, or of a StreamReader with name=: show its lag in each stream.",
    ),
    address: tuple[str, ...] = address_option(),
    broker: BrokerOptions = options(BrokerOptions),
) -> Outcome:
    """Show the first and the last row, the number of rows, the nodes and the writers of streams.

    A NAME is a stream, a super stream, or an exchange to which only streams are bound. --management-url and
    the plugin rabbitmq_stream_management (from RabbitMQ 3.13) add the writers, up to 5 s old.
    """
    at, addresses = broker.live(streams=True), parse_addresses(address)
    settings = stream_settings(at.settings)
    with closing(StreamConnection(settings)) as connection:
        version, found = connection.server_version, places_of(connection, names)
    streams = [_with_ends(settings, stream, addresses, stream_group) for stream in found]
    read_at = datetime.now(UTC)
    if at.management_url is None:
        say("only the management API shows segments and writers: give --management-url")
    else:
        streams = list(_with_figures(at, streams))
    if count:
        streams = [_counted(settings, stream, addresses) for stream in streams]
    return Outcome(StreamsReport(at.address, at.settings.vhost, version, streams, read_at, stream_group))


def places_of(connection: StreamConnection, names: Sequence[str]) -> list[ShownStream]:
    """Return the streams of these names: a stream, or the streams of a super stream or an exchange."""
    found: dict[str, ShownStream] = {}
    of_name = connection.metadata(names, missing_ok=True)
    for name in names:
        if of_name[name].code != Code.STREAM_DOES_NOT_EXIST:
            connection.metadata([name])  # raises an error if the user may not read it
            found.setdefault(name, ShownStream(name, None, of_name[name]))
            continue
        try:
            partitions = connection.partitions(name)
        except NotFoundError:
            raise NotFoundError(
                f"{connection.where}: stream, super stream or exchange {name!r} does not exist: check the name and the vhost",
                queue=name,
            ) from None
        of_stream = connection.metadata(partitions)
        found |= {stream: ShownStream(stream, name, of_stream[stream]) for stream in partitions}
    return list(found.values())


def _with_ends(
    settings: ConnectionSettings, stream: ShownStream, addresses: Mapping[str, str], group: str | None
) -> ShownStream:
    from rabbit_chx.consuming.stream_status import read_share
    from rabbit_chx.streams.ends import ChunkFinder
    from rabbit_chx.streams.nodes import open_at, settings_of

    with closing(
        open_at(settings_of(settings), stream.name, leader=True, addresses=addresses, timeout_s=_TIMEOUT_S)
    ) as connection:
        finder = ChunkFinder(connection, _TIMEOUT_S)
        first = finder.first(stream.name)
        last = finder.chunk_at(stream.name, "last", _TIMEOUT_S) if first else None
        share = None if group is None else read_share(connection, group, stream.name)
    return replace(
        stream,
        first=first and RowPlace(first.offset, first.time),
        last=last and RowPlace(last.end - 1, last.time),
        share=share,
    )


def _counted(settings: ConnectionSettings, stream: ShownStream, addresses: Mapping[str, str]) -> ShownStream:
    from rabbit_chx.streams import StreamReader

    rows = 0
    with (
        counted(f"rows of {stream.name}", stream.span) as seen,
        StreamReader(settings, stream.name, addresses=addresses) as reader,
    ):
        for batch in reader:
            rows += batch.num_rows
            seen(rows)
        return replace(stream, rows=rows, chunks=reader.chunks)


def _with_figures(at: BrokerAddresses, streams: Sequence[ShownStream]) -> Iterator[ShownStream]:
    """Yield the streams with their segments and writers. The first problem of the management API is written to stderr."""
    problem: RabbitChxError | None = None
    for stream in streams:
        figures: dict[str, Any] = {}
        try:
            queue = at.management("").request("GET", "queues", at.settings.vhost, stream.name)
            figures["segments"] = queue.get("segments")
            figures["writers"] = writers_of(str(at.management_url), at.settings, stream.name)
        except RabbitChxError as error:
            problem = problem or error
        yield replace(stream, **figures)
    if problem is not None:
        say(str(problem))


@dataclass(frozen=True, slots=True)
class ReplayedRow:
    """A row of a stream."""

    stream: str
    offset: int
    timestamp: datetime
    key: bytes
    value: bytes

    def as_row(self) -> Sequence[tuple[str, str]]:
        """Return the names and values of the fields; bytes that are not UTF-8 as ``base64:``."""
        return (
            ("stream", self.stream),
            ("offset", str(self.offset)),
            ("time", time_text(self.timestamp)),
            ("key", _text(self.key)),
            ("value", _text(self.value)),
        )

    def as_json(self) -> dict[str, Any]:
        """Return the document ``rabbit-chx/row``."""
        return document(
            "row",
            stream=self.stream,
            offset=self.offset,
            timestamp=time_text(self.timestamp),
            **text_or_base64("key", self.key),
            **text_or_base64("value", self.value),
        )


def text_or_base64(name: str, value: bytes) -> dict[str, str]:
    """Return bytes for JSON: as text, or in base64 under another name if they are not UTF-8."""
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}


def _text(value: bytes) -> str:
    (name, text), *_ = text_or_base64("text", value).items()
    return text if name == "text" else f"base64:{text}"


@command(
    example="rabbit-chx replay user-42 --exchange orders --since 2h --management-url http://guest:guest@localhost:15672 "
    "--ring-via 'docker exec rabbitmq'",
    output_help="The form of the rows; table has a line for each, with tabs between the fields.",
)
def replay(
    *,
    keys: tuple[str, ...] = argument(nargs=-1, required=True, type=TEXT, metavar="KEY..."),
    exchange: str | None = option(
        type=TEXT,
        metavar="NAME",
        help="The hash exchange that the rows were published to. Its queues are streams.",
    ),
    topology: str | None = option(
        metavar="FILE", help="Use the ring of this topology file instead of the live ring."
    ),
    filter_value: str | None = option(
        "--filter",
        metavar="VALUE",
        help="The filter value of the rows, '{key}' if it is the KEY: the broker omits chunks without it (3.13). Rows without a filter "
        "value are found.",
    ),
    stream: StreamOptions = options(StreamOptions),
    broker: BrokerOptions = options(BrokerOptions),
) -> Outcome:
    """Show the rows of each KEY, oldest first: stream, offset, time, key and value. Only the stream
    of a KEY is read.

    A KEY is the routing key of a row, or with --by-message-id its message id, for clients that store no
    routing key. The ring of --exchange must be known: give --ring-via, --ring or --topology. For rows that
    were written before the ring changed, give the former ring by --ring.

    Rows are shown up to the end of the stream at the time of opening.
    """
    from rabbit_chx.streams import replay as replay_rows

    at = broker.live(streams=True)
    (since, until), addresses = stream.range, parse_addresses(stream.addresses)
    placement = stream.placement(at, exchange, topology)
    is_super_stream = placement.source.kind == "super-stream"
    counts = Counter[str]()
    batches = replay_rows(
        stream_settings(at.settings),
        keys,
        **{"super_stream": placement.exchange, "routing": stream.routing}
        if is_super_stream
        else {"ring": placement.source},
        exchange=stream.published_to or placement.exchange,
        key_column=stream.key_column,
        filter_value=None if filter_value is None else partial(_filter_of, filter_value),
        since=since,
        until=until,
        addresses=addresses,
        counts=counts,
    )
    shown = Counter[str]()

    def finish() -> None:
        found = ", ".join(f"{plural(count, 'row')} in {name}" for name, count in shown.items())
        older = "; rows that were written before a change of the ring may be in another stream"
        if is_super_stream or stream.ring:
            older = ""
        if found:
            found += (
                f", of {plural(counts['read'], 'row')} that {'was' if counts['read'] == 1 else 'were'} read"
            )
        say(f"{found or no_rows_text(keys, stream.published_to or placement.exchange, counts)}{older}")

    return Outcome(batches=_records(batches, shown), finish=finish)


def _filter_of(template: str, key: bytes) -> bytes:
    return template.encode().replace(b"{key}", key)


def no_rows_text(keys: Sequence[str], exchange: str, counts: Counter[str]) -> str:
    """Return the message for a replay without rows."""
    which = f"the key {keys[0]!r:.60}" if len(keys) == 1 else "one of the keys"
    read = f"{plural(counts['read'], 'row')} {'was' if counts['read'] == 1 else 'were'} read"
    if others := counts["other_exchange"]:
        return (
            f"no rows with {which} were published to {exchange!r}: {read}, and {others:,} with {which} were published to another "
            "exchange: give it with --published-to"
        )
    return f"no rows with {which}: {read}"


def _records(batches: Iterable[pa.RecordBatch], shown: Counter[str]) -> Iterator[Sequence[ReplayedRow]]:
    for batch in batches:
        rows = [ReplayedRow(**row) for row in batch.to_pylist()]
        shown[rows[0].stream] += len(rows)
        yield rows
