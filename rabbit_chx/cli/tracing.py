"""Asking the broker: ``--trace``, the question before it, and tracing that an ended command has left on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import click

from rabbit_chx.cli.applying import has_terminal
from rabbit_chx.cli.command import OWN, option, say
from rabbit_chx.cli.printed import to_type
from rabbit_chx.errors import InputError, NotDeterminedError, PlanRefusedError
from rabbit_chx.fixes import Fix
from rabbit_chx.options import number
from rabbit_chx.rendering import sign_of_life
from rabbit_chx.routing import Destination, ExchangeRef
from rabbit_chx.topology.live_rings import live_hash_exchange

if TYPE_CHECKING:
    from rabbit_chx.broker import Broker
    from rabbit_chx.broker.firehose import TracedMessage
    from rabbit_chx.routing.observations import Observation
    from rabbit_chx.topology import LiveTopology

_LONGEST_S = 3600


@dataclass(frozen=True, slots=True)
class TraceOptions:
    """The option of tracing, and the answer to its question."""

    section: ClassVar = OWN
    trace: float | None = option(
        type=number(_LONGEST_S),
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

    @property
    def is_used(self) -> bool:
        """True if one of the options is given."""
        return self.trace is not None or self.yes

    def check_use(self, exchanges: Sequence[str], **others: object) -> None:
        """Refuse tracing of no exchange or of several, and with another option that tells keys and queues, or all exchanges.

        Args:
            exchanges: the exchanges of the command.
            others: the values of other options, by their names in Python; None or false if they are not given.
        """
        if self.trace is None:
            return
        for name, value in others.items():
            if value:
                raise InputError(
                    f"--trace sees the messages of one exchange, and tells their queues itself: leave out --{name.replace('_', '-').strip('-')}"
                )
        if len(exchanges) != 1:
            raise InputError("--trace sees the messages of one exchange: pass one EXCHANGE")


def offer_to_end(opened: Broker, vhost: str, *, yes: bool = False) -> None:
    """Say that an ended process has left tracing on, and offer to switch it off."""
    left = opened.left_trace()
    if left is None:
        return
    about = f"tracing of vhost {vhost!r} is still on, and costs each of its messages a copy: {left} switched it on and ended without switching it off"
    if yes or (has_terminal() and click.confirm(f"{about}. Switch it off?", err=True)):
        opened.end_trace()
        say(f"tracing of vhost {vhost!r}, which {left} had switched on, is off")
    else:
        say(Fix(f"{about}; to switch it off: ", to_type("check", yes=True)))


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
    if not found:
        raise NotDeterminedError(
            f"no message was published to exchange {exchange!r} of vhost {vhost!r} in {seconds:g} s, so nothing is known: trace while messages are "
            "published. Messages that reach it over another exchange are not traced, nor those of other nodes of a cluster than that of the management "
            "URL",
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
    from rabbit_chx.topology.rules.reach import Reach

    exchange = live_hash_exchange(live, name)
    places: Mapping[str, Destination]
    if is_compared:
        places = {place: place for place in live.key_map(name).destinations if isinstance(place, str)}
    else:
        members = dict.fromkeys(member.destination for member in exchange.ring or ())
        places = _destinations_of_queues(live, name, members)
    traced = read_trace(opened, live.vhost or "/", name, given)
    has_alternate = Reach(live).alternate_of(exchange) is not None
    return as_observations(traced, places, has_alternate=has_alternate)


def _destinations_of_queues(
    live: LiveTopology, name: str, destinations: Iterable[Destination]
) -> Mapping[str, Destination]:
    """Return the destination of a ring that leads to each queue, directly or over one exchange."""
    found: dict[str, Destination] = {}
    for place in destinations:
        queues = [place] if isinstance(place, str) else _queues_of(live, place)
        for queue in queues:
            if found.setdefault(queue, place) != place:
                raise NotDeterminedError(
                    f"the queue {queue} is behind {found[queue]!s} and {place!s}, so a message in it does not show the order of the ring of {name}: "
                    "record it while each slot has a queue of its own, or make the file true with `apply`",
                    exchange=name,
                )
    return found


def _queues_of(live: LiveTopology, exchange: ExchangeRef) -> list[str]:
    bound = (binding.destination for binding in live.bindings if binding.source == exchange.name)
    return [place for place in bound if isinstance(place, str)]
