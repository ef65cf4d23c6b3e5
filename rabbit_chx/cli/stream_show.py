"""``rabbit-chx stream show``: the ends and the writers of streams."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.analysis.wording import document
from rabbit_chx.cli.broker_options import BrokerAddresses, BrokerOptions
from rabbit_chx.cli.command import TEXT, Outcome, argument, command, option, options, say
from rabbit_chx.cli.report import numbers, texts
from rabbit_chx.cli.stream_options import address_option, find_streams, parse_addresses, time_text
from rabbit_chx.errors import RabbitChxError
from rabbit_chx.rendering import Block, Facts, Gauge, Line, Table, gauges_of, sign_of_life
from rabbit_chx.result_fields import or_dash
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.nodes import stream_settings
from rabbit_chx.streams.references import MOST_REFERENCES, writers_of
from rabbit_chx.words import plural

if TYPE_CHECKING:
    from rabbit_chx.consuming.stream_status import StreamShare

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
        first: its first row; None without rows.
        last: its last row.
        writers: the last publishing id of each publisher name that it stores; None if unknown.
        share: the lag of the requested stream group, without its members; None without a group.
    """

    name: str
    exchange: str | None = None
    first: RowPlace | None = None
    last: RowPlace | None = None
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
        """Return the streams with their ends and writers."""
        group = [] if self.group is None else [("stream group", self.group)]
        yield Facts([("vhost", self.vhost), ("broker", f"RabbitMQ {self.version}"), *group])
        rows = [
            (
                stream.name,
                or_dash(stream.first and stream.first.offset),
                or_dash(stream.last and stream.last.offset),
                stream.span,
                "-" if stream.writers is None else f"{len(stream.writers)} of {MOST_REFERENCES}",
            )
            for stream in self.streams
        ]
        yield Table([*texts("stream"), *numbers("first", "last", "offsets", "writers")], rows)
        yield Table(
            texts("stream", "first at", "last at"),
            [(stream.name, _time_text(stream.first), _time_text(stream.last)) for stream in self.streams],
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
                    "name": stream.name,
                    "exchange": stream.exchange,
                    "first": _end_json(stream.first),
                    "last": _end_json(stream.last),
                    "offsets": stream.span,
                    "writers": stream.writers,
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
        ages = [at.first and max(0.0, (self.read_at - at.first.time).total_seconds()) for at in self.streams]
        used = [None if stream.writers is None else len(stream.writers) for stream in self.streams]
        for name, text, values in (
            ("offsets", "The number of offsets of a stream, which is at least the number of rows.", offsets),
            ("oldest_row_age_seconds", "The age of the first chunk of a stream, in seconds.", ages),
            ("publisher_references", "The number of publisher references of a stream, of 255.", used),
        ):
            if samples := [(of, each) for of, each in zip(labels, values, strict=True) if each is not None]:
                yield Gauge(f"rabbit_chx_stream_{name}", text, samples)
        if self.group is not None:
            from rabbit_chx.consuming.stream_status import StreamShare

            of_group = {**of_vhost, "group": self.group}
            yield from gauges_of(
                StreamShare, [({**of_group, "stream": it.stream}, it) for it in self._shares]
            )

    @property
    def _shares(self) -> list[StreamShare]:
        return [stream.share for stream in self.streams if stream.share is not None]


def _time_text(end: RowPlace | None) -> str:
    return "-" if end is None else f"{end.time:%Y-%m-%d %H:%M:%S}Z"


def _end_json(end: RowPlace | None) -> dict[str, Any] | None:
    return end and {"offset": end.offset, "time": time_text(end.time)}


@command(
    example="rabbit-chx stream show orders-0 orders-1 --management-url http://guest:guest@localhost:15672",
    has_metrics=True,
)
def show(
    *,
    names: tuple[str, ...] = argument(nargs=-1, required=True, type=TEXT, metavar="NAME..."),
    stream_group: str | None = option(
        type=TEXT,
        metavar="NAME",
        help="The name of a StreamGroup, or of a StreamReader with name=: show its lag in each stream.",
    ),
    address: tuple[str, ...] = address_option(),
    broker: BrokerOptions = options(BrokerOptions),
) -> Outcome:
    """Show the first and the last row, the number of offsets and the writers of streams.

    A NAME is a stream, a super stream, or an exchange to which only streams are bound. --management-url and
    the plugin rabbitmq_stream_management (from RabbitMQ 3.13) add the writers, up to 5 s old.
    """
    at, addresses = broker.live(streams=True), parse_addresses(address)
    settings = stream_settings(at.settings)
    with sign_of_life("reading the streams"):
        with closing(StreamConnection(settings)) as connection:
            version, found = connection.server_version, find_streams(connection, names)
        streams = [
            _with_ends(settings, ShownStream(name, via), addresses, stream_group)
            for name, via in found.items()
        ]
    read_at = datetime.now(UTC)
    if at.management_url is None:
        say("only the management API shows writers: pass --management-url")
    else:
        with sign_of_life("reading the management API"):
            streams = list(_with_writers(at, streams))
    return Outcome(StreamsReport(at.address, at.settings.vhost, version, streams, read_at, stream_group))


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


def _with_writers(at: BrokerAddresses, streams: Sequence[ShownStream]) -> Iterator[ShownStream]:
    """Yield the streams with their writers. The first problem of the management API is written to stderr."""
    problem: RabbitChxError | None = None
    for stream in streams:
        writers = None
        try:
            writers = writers_of(at.management_address(str(at.management_url)), at.settings, stream.name)
        except RabbitChxError as error:
            problem = problem or error
        yield replace(stream, writers=writers)
    if problem is not None:
        say(str(problem))
