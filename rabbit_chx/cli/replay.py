"""``rabbit-chx replay``: the rows of some keys, from a time on."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rabbit_chx.analysis.wording import plural
from rabbit_chx.cli.broker_options import BrokerOptions
from rabbit_chx.cli.command import TEXT, Outcome, argument, command, option, options, say
from rabbit_chx.cli.report import document
from rabbit_chx.cli.stream_options import StreamOptions, parse_addresses, time_text
from rabbit_chx.rendering import printable
from rabbit_chx.routing import SuperStream
from rabbit_chx.streams.connection import stream_settings

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class ReplayedRow:
    """A row of a stream."""

    stream: str
    offset: int
    timestamp: datetime
    key: bytes
    value: bytes

    def as_line(self) -> str:
        """Return the row with tabs between its fields; bytes that are no UTF-8 as ``base64:``."""
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
    """Return bytes for JSON: as text, or in base64 under another name where they are not UTF-8."""
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
    output_help="The form of the rows; table is a line each, with tabs between the fields.",
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
        metavar="FILE", help="The ring that this topology file says, in the place of that of the broker."
    ),
    stream: StreamOptions = options(StreamOptions),
    broker: BrokerOptions = options(BrokerOptions),
) -> Outcome:
    """Show the rows of each KEY, oldest first: stream, offset, time, key and value. Only the stream that has a KEY is read.

    --exchange or --super-stream says where the rows were published. The ring of an exchange has to be known: by --ring-via, --ring or
    --topology. A KEY is the routing key of a row. Rows without one are not found: those of other clients of the stream protocol. With
    --by-message-id a KEY is the message id of a row, where those clients often write it.

    The ring is the one of now. Rows that were written before it changed may be in another stream: give the ring of that time by
    --ring FILE to see them.

    --url is that of streams, rabbitmq-stream://user:password@host:5552/vhost, or the AMQP URI of the same host, and then the port
    is 5552, or 5551 with TLS. The end is what is there when the reading begins. The exit code is 0 without rows, too.
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
            else "; rows from before a change of the ring may be elsewhere"
        )
        say(f"{found or no_rows_text(keys, stream.published_to or placement.exchange, counts)}{older}")

    return Outcome(batches=_records(batches, shown), finish=finish)


def no_rows_text(keys: Sequence[str], exchange: str, counts: Counter[str]) -> str:
    """Return the words for a replay that shows no row."""
    which = f"the key {keys[0]!r:.60}" if len(keys) == 1 else "one of the keys"
    read = f"{plural(counts['read'], 'row')} {'was' if counts['read'] == 1 else 'were'} read"
    if others := counts["other_exchange"]:
        return (
            f"no row with {which} was published to {exchange!r}: {read}, and {others:,} with {which} were published to another "
            "exchange, which --published-to names"
        )
    return f"no row has {which}: {read}"


def _records(batches: Iterable[pa.RecordBatch], shown: Counter[str]) -> Iterator[Sequence[ReplayedRow]]:
    for batch in batches:
        rows = [ReplayedRow(**row) for row in batch.to_pylist()]
        shown[rows[0].stream] += len(rows)
        yield rows
