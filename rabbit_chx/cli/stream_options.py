"""The options of streams: the addresses, those of consumers, the range, and the ring that places the rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, get_args

from rabbit_chx.analysis.report_parts import hashes_text
from rabbit_chx.cli.broker_options import BrokerAddresses
from rabbit_chx.cli.command import TEXT, option, say
from rabbit_chx.cli.ring_argument import RingArgument, RingInput
from rabbit_chx.consuming.journal import JOURNAL
from rabbit_chx.errors import InputError
from rabbit_chx.options import one_of
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.routing.super_stream import StreamRouting
from rabbit_chx.streams.nodes import node_addresses
from rabbit_chx.times import TIME_HELP, parse_time

if TYPE_CHECKING:
    from rabbit_chx.streams.keys import KeyColumn


def address_option() -> Any:  # a field's default
    """Return a field that is the option for advertised addresses."""
    return option(
        "--address",
        is_rare=True,
        metavar="HOST:PORT=HOST:PORT",
        help="An address that a node advertises for streams, and the address that is reachable from here.",
    )


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """The options of the consumers of an exchange."""

    section: ClassVar = "Consumers"
    consumers: bool = option(help="Show who consumes the queues of EXCHANGE, and their backlog.")
    journal: str | None = option(
        type=TEXT,
        metavar="NAME",
        help=f"The stream that contains the journal of the group.  [default: {JOURNAL}]",
    )
    stream_group: str | None = option(
        type=TEXT,
        metavar="NAME",
        help="The name of a StreamGroup: show its streams and their lag, without the management API. Each EXCHANGE is then a super "
        "stream, an exchange of streams, or a stream.",
    )
    address: tuple[str, ...] = address_option()


@dataclass(frozen=True)  # cached properties need a __dict__
class StreamOptions:
    """The options of a range of streams, and of the placement of their rows."""

    section: ClassVar = "Streams"
    published_to: str | None = option(
        is_rare=True,
        type=TEXT,
        metavar="NAME",
        help="The exchange that the rows were published to, if the hash exchange is bound to it.",
    )
    by_message_id: bool = option(
        is_rare=True,
        help="The key of a row is its message id instead of its routing key, as often with super streams.",
    )
    since: str | None = option(
        metavar="TIME", help=f"Start at the first chunk of this time or later. {TIME_HELP}"
    )
    until: str | None = option(metavar="TIME", help="End before the first chunk of this time or later.")
    addresses: tuple[str, ...] = address_option()
    routing: StreamRouting | None = option(
        is_rare=True,
        type=one_of(*get_args(StreamRouting)),
        help="How clients route to the super stream: by murmur3, or by its binding keys, as AMQP clients do.  [default: hash; required "
        "if the binding keys are not 0, 1, ...]",
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

    def placement(self, at: BrokerAddresses, ring: RingArgument) -> tuple[str, KeyMap | None]:
        """Return the exchange and its ring, or the super stream and None."""
        if ring.type == "super-stream" and ring.is_live:
            return ring.exchange or "", None
        if self.routing is not None:
            raise InputError(
                f"--routing applies to super streams, and {ring.text:.80} is none: write super-stream:NAME, or leave it out"
            )
        read = ring.read(at, at.settings.vhost, None)
        exchange = read.exchange or self.published_to
        if exchange is None:
            raise InputError(
                f"{ring.text:.80} does not say which exchange the rows were published to: pass it with --published-to"
            )
        return exchange, _ring_of_keys(exchange, read)


def parse_addresses(texts: tuple[str, ...]) -> Mapping[str, str]:
    """Return the address to connect to for each advertised address."""
    addresses: dict[str, str] = {}
    for text in texts:
        advertised, _, reachable = text.partition("=")
        try:
            addresses |= node_addresses({advertised: reachable})
        except InputError:
            raise InputError(
                f"--address is {text!r:.60}: write HOST:PORT=HOST:PORT, as in rabbit-0:5552=127.0.0.1:15552"
            ) from None
    return addresses


def _ring_of_keys(exchange: str, ring: RingInput) -> KeyMap:
    """Return a ring whose keys are routing keys; an InputError for another."""
    if ring.type == "super-stream":
        raise InputError(f"exchange {exchange!r} is a super stream: write super-stream:{exchange}")
    if ring.arguments:
        raise InputError(
            f"exchange {exchange!r} hashes {hashes_text(ring.arguments)}: only routing keys of rows can be placed"
        )
    if ring.doubt:
        say(ring.doubt)
    if ring.arguments is None:
        say(f"{ring.unknown}, so the routing key is assumed")
    return ring.source
