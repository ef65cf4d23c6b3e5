"""``rabbit-chx stream show`` and ``replay``: the rows, the nodes and the writers of streams; the rows of some keys."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.analysis.wording import document, entry, plural
from rabbit_chx.cli.broker_options import BrokerOptions, LiveBroker, counted
from rabbit_chx.cli.command import TEXT, Outcome, argument, command, option, options, say
from rabbit_chx.cli.report import numbers, or_dash, texts
from rabbit_chx.cli.stream_options import StreamOptions, address_option, parse_addresses, time_text
from rabbit_chx.errors import NotFoundError, RabbitChxError
from rabbit_chx.rendering import Block, Facts, Line, Table, printable
from rabbit_chx.routing import SuperStream
from rabbit_chx.streams.connection import StreamConnection, stream_settings
from rabbit_chx.streams.frames import Code, StreamMetadata
from rabbit_chx.streams.references import MOST_REFERENCES, writers_of

if TYPE_CHECKING:
    import pyarrow as pa

_UNKNOWN = "-"
_MOST_WRITERS = 20
_TIMEOUT_S = 60.0


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

    @property
    def span(self) -> int:
        """The number of offsets from the first to the last row, which is at least the number of rows."""
        return self.last.offset - self.first.offset + 1 if self.first and self.last else 0


@dataclass(frozen=True, slots=True)
class StreamsReport:
    """Streams of a vhost."""

    vhost: str
    version: str
    streams: Sequence[ShownStream]

    def blocks(self) -> Iterator[Block]:
        """Return the streams with their nodes and writers."""
        yield Facts([("vhost", self.vhost), ("broker", f"RabbitMQ {self.version}")])
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
                }
                for stream in self.streams
            ],
        )


def _rows_text(stream: ShownStream) -> str:
    if stream.rows is not None:
        return f"{stream.rows:,}"
    return f"<= {stream.span:,}" if stream.span else "0"


def _time_text(end: RowPlace | None) -> str:
    return _UNKNOWN if end is None else f"{end.time:%Y-%m-%d %H:%M:%S}Z"


def _end_json(end: RowPlace | None) -> dict[str, Any] | None:
    return end and {"offset": end.offset, "time": time_text(end.time)}


@command(
    example="rabbit-chx stream show orders-0 orders-1 --management-url http://guest:guest@localhost:15672"
)
def show(
    *,
    names: tuple[str, ...] = argument(nargs=-1, required=True, type=TEXT, metavar="NAME..."),
    count: bool = option(is_flag=True, help="Read all rows to count them and their chunks."),
    address: tuple[str, ...] = address_option(),
    broker: BrokerOptions = options(BrokerOptions),
) -> Outcome:
    """Show the first and the last row, the number of rows, the nodes and the writers of streams.

    A NAME is a stream, a super stream, or an exchange to which only streams are bound. --management-url and
    the plugin rabbitmq_stream_management (from RabbitMQ 3.13) add the writers: up to 255 names per stream, up
    to 5 s old.
    """
    at, addresses = broker.live(streams=True), parse_addresses(address)
    settings = stream_settings(at.settings)
    with closing(StreamConnection(settings)) as connection:
        version, found = connection.server_version, _places(connection, names)
    streams = [_with_ends(settings, stream, addresses) for stream in found]
    if at.management_url is None:
        say("only the management API shows segments and writers: give --management-url")
    else:
        streams = list(_with_figures(at, streams))
    if count:
        streams = [_counted(settings, stream, addresses) for stream in streams]
    return Outcome(StreamsReport(at.settings.vhost, version, streams))


def _places(connection: StreamConnection, names: Sequence[str]) -> list[ShownStream]:
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
    settings: ConnectionSettings, stream: ShownStream, addresses: Mapping[str, str]
) -> ShownStream:
    from rabbit_chx.streams.ends import ChunkFinder
    from rabbit_chx.streams.nodes import open_at, settings_of

    with closing(
        open_at(settings_of(settings), stream.name, leader=True, addresses=addresses, timeout_s=_TIMEOUT_S)
    ) as connection:
        finder = ChunkFinder(connection, _TIMEOUT_S)
        first = finder.first(stream.name)
        last = finder.chunk_at(stream.name, "last", _TIMEOUT_S) if first else None
    return replace(
        stream,
        first=first and RowPlace(first.offset, first.time),
        last=last and RowPlace(last.end - 1, last.time),
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


def _with_figures(at: LiveBroker, streams: Sequence[ShownStream]) -> Iterator[ShownStream]:
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

    def as_line(self) -> str:
        """Return the row with tabs between its fields; bytes that are not UTF-8 as ``base64:``."""
        fields = (
            self.stream,
            str(self.offset),
            time_text(self.timestamp),
            _text(self.key),
            _text(self.value),
        )
        return "\t".join(map(printable, fields))

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
    stream: StreamOptions = options(StreamOptions),
    broker: BrokerOptions = options(BrokerOptions),
) -> Outcome:
    """Show the rows of each KEY, oldest first: stream, offset, time, key and value. Only the stream that has
    a KEY is read.

    A KEY is the routing key of a row. Other clients of the stream protocol store none; with --by-message-id a
    KEY is the message id. The ring of --exchange must be known: give --ring-via, --ring or --topology. Rows
    that were written before the ring changed may be in another stream: give the former ring by --ring.

    Rows are shown up to the end of the stream at the time of opening.
    """
    from rabbit_chx.streams import replay as replay_rows

    at = broker.live(streams=True)
    (since, until), addresses = stream.range, parse_addresses(stream.addresses)
    placement = stream.placement(at, exchange, topology)
    is_super_stream = isinstance(placement.placing, SuperStream)
    counts = Counter[str]()
    batches = replay_rows(
        stream_settings(at.settings),
        keys,
        **{"super_stream": placement.exchange} if is_super_stream else {"ring": placement.placing},
        exchange=stream.published_to or placement.exchange,
        key_column=stream.key_column,
        since=since,
        until=until,
        addresses=addresses,
        counts=counts,
    )
    shown = Counter[str]()

    def finish() -> None:
        found = ", ".join(f"{plural(count, 'row')} in {name}" for name, count in shown.items())
        older = (
            ""
            if is_super_stream or stream.ring
            else "; rows that were written before a change of the ring may be in another stream"
        )
        say(f"{found or no_rows_text(keys, stream.published_to or placement.exchange, counts)}{older}")

    return Outcome(batches=_records(batches, shown), finish=finish)


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
