"""``rabbit-chx replay``: the rows of some keys."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from rabbit_chx.cli.broker_options import BrokerOptions
from rabbit_chx.cli.command import TEXT, Outcome, argument, command, option, options, say
from rabbit_chx.cli.ring_argument import parse_ring
from rabbit_chx.cli.stream_options import StreamOptions, parse_addresses
from rabbit_chx.rendering.document import Batch, Table
from rabbit_chx.rendering.progress import sign_of_life
from rabbit_chx.result_fields import SPREAD, Shown
from rabbit_chx.streams.nodes import stream_settings
from rabbit_chx.times import time_text
from rabbit_chx.words import plural

if TYPE_CHECKING:
    import pyarrow as pa


def _text_or_base64(name: str, value: bytes) -> dict[str, str]:
    """Return bytes for JSON: as text, or in base64 under another name if they are not UTF-8."""
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}


def _text(value: bytes) -> str:
    (name, text), *_ = _text_or_base64("text", value).items()
    return text if name == "text" else f"base64:{text}"


#: The columns of a row of a stream.
_ROW = {
    "stream": Shown("stream"),
    "offset": Shown("offset"),
    "timestamp": Shown("time", time_text, as_json=time_text),
    "key": Shown("key", _text, json=SPREAD, as_json=partial(_text_or_base64, "key")),
    "value": Shown("value", _text, json=SPREAD, as_json=partial(_text_or_base64, "value")),
}


@command(
    example="rabbit-chx replay orders user-42 --since 2h --management-url http://guest:guest@localhost:15672 "
    "--ring-via 'docker exec rabbitmq'",
    output_help="The form of the rows; table has a line for each, with tabs between the fields.",
)
def replay(
    *,
    ring: str = argument(type=TEXT, metavar="RING"),
    keys: tuple[str, ...] = argument(nargs=-1, required=True, type=TEXT, metavar="KEY..."),
    filter_value: str | None = option(
        "--filter",
        metavar="VALUE",
        help="The filter value of the rows, '{key}' if it is the KEY: the broker omits chunks without it (3.13). Rows without a filter "
        "value are found.",
    ),
    stream: StreamOptions = options(StreamOptions),
    broker: BrokerOptions = options(BrokerOptions, without=("no_record",)),
) -> Outcome:
    """Show the rows of each KEY, oldest first: stream, offset, time, key and value. Only the stream
    of a KEY is read.

    A KEY is the routing key of a row, or with --by-message-id its message id, for clients that store no
    routing key. RING is the hash exchange that the rows were published to, whose queues are streams, or
    super-stream:NAME. For rows that were written before the ring changed, pass a file of the former ring.

    Rows are shown up to the end of the stream at the time of opening.
    """
    from rabbit_chx.streams import replay as replay_rows

    argument_ = parse_ring(ring)
    at = broker.live(streams=True)
    (since, until), addresses = stream.range, parse_addresses(stream.addresses)
    name, source = stream.placement(at, argument_)
    published_to = stream.published_to or name
    counts = Counter[str]()
    batches = replay_rows(
        stream_settings(at.settings),
        keys,
        ring=source,
        super_stream=name if source is None else None,
        routing=stream.routing,
        exchange=published_to,
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
        if not argument_.is_live or source is None:
            older = ""
        if found:
            found += (
                f", of {plural(counts['read'], 'row')} that {'was' if counts['read'] == 1 else 'were'} read"
            )
        say(f"{found or no_rows_text(keys, published_to, counts)}{older}")

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
            "exchange: pass it with --published-to"
        )
    return f"no rows with {which}: {read}"


def _records(batches: Iterable[pa.RecordBatch], shown: Counter[str]) -> Iterator[Batch]:
    waiting = iter(batches)
    while True:
        with sign_of_life("looking for rows of the keys"):
            batch = next(waiting, None)
        if batch is None:
            return
        rows = batch.select(list(_ROW)).to_pylist()
        shown[rows[0]["stream"]] += len(rows)
        yield Batch("row", Table.of(_ROW, (row.values() for row in rows)))
