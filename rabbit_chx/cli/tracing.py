"""Asking the broker: ``--trace``, and the question before it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import click

from rabbit_chx.cli.command import OWN, has_terminal, option, say
from rabbit_chx.errors import InputError, NotDeterminedError, PlanRefusedError
from rabbit_chx.options import number
from rabbit_chx.rendering import sign_of_life
from rabbit_chx.routing import Destination

if TYPE_CHECKING:
    from rabbit_chx.broker import Broker
    from rabbit_chx.broker.firehose import TracedMessage
    from rabbit_chx.routing.observations import Observation
    from rabbit_chx.topology import LiveTopology


@dataclass(frozen=True, slots=True)
class TraceOptions:
    """The option of tracing, and the answer to its question."""

    section: ClassVar = OWN
    trace: float | None = option(
        type=number(3600),
        metavar="SECONDS",
        help="Ask the broker: switch on tracing of the vhost for this long, and read to which queues the messages that are published to EXCHANGE "
        "go now. It costs each message of the vhost a copy, and takes the tag administrator.",
    )
    yes: bool = option(
        is_flag=True,
        help="Switch tracing on, or off where an ended command has left it on, without asking.",
    )

    def __post_init__(self) -> None:
        if self.trace == 0:
            raise InputError("--trace 0 sees no message: pass seconds in which some are published")


def read_trace(opened: Broker, vhost: str, exchange: str, given: TraceOptions) -> list[TracedMessage]:
    """Return what the broker does with the messages of an exchange, if the user agrees to tracing.

    Raises:
        PlanRefusedError: the user does not agree.
        NotDeterminedError: no message was published.
    """
    seconds = given.trace or 0
    if not opened.is_traced() and not given.yes:
        about = f"tracing costs each message of vhost {vhost!r} a copy for {seconds:g} s"
        if not has_terminal():
            raise PlanRefusedError(f"{about}, and nothing was switched on: agree with --yes")
        if not click.confirm(f"{about}. Switch it on?", err=True):
            raise PlanRefusedError("nothing was switched on")
    with sign_of_life(f"tracing {exchange}"):
        found = opened.trace(exchange, seconds)
        node = opened.traced_node()
    if node is not None:
        say(f"only messages that were published over node {node} were traced, not those over others")
    if not found:
        raise NotDeterminedError(
            f"no message was published to exchange {exchange!r} of vhost {vhost!r} in {seconds:g} s, over the node of the management URL: trace "
            "while messages are published, to this exchange itself",
            exchange=exchange,
        )
    return found


def traced_keys(
    opened: Broker, live: LiveTopology, name: str, given: TraceOptions, *, is_compared: bool
) -> list[Observation]:
    """Return the traced messages of an exchange as observed keys.

    Args:
        opened: the broker.
        live: its topology.
        name: the exchange.
        given: how long it is traced.
        is_compared: True: the keys are in queues, for a comparison with its map; False: in the destinations of its ring.

    Raises:
        PlanRefusedError: the user does not agree.
        NotDeterminedError: no message was published; or a queue is behind several destinations of the ring.
    """
    from rabbit_chx.analysis.observations import as_observations
    from rabbit_chx.topology.rules.reach import Reach, destinations_of_queues

    exchange = live.exchange(name)
    assert exchange is not None  # the callers have found it
    places: Mapping[str, Destination]
    if is_compared:
        places = {place: place for place in live.key_map(name).destinations if isinstance(place, str)}
    else:
        members = dict.fromkeys(member.destination for member in exchange.ring or ())
        places = destinations_of_queues(live, name, members)
    traced = read_trace(opened, live.vhost or "/", name, given)
    has_alternate = Reach(live).alternate_of(exchange) is not None
    return as_observations(traced, places, has_alternate=has_alternate)
