"""The part of a topology that messages of some exchanges can reach."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rabbit_chx.errors import InputError
from rabbit_chx.routing import ExchangeRef
from rabbit_chx.topology.policies import policy_matches
from rabbit_chx.topology.problems import similar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rabbit_chx.routing import Destination
    from rabbit_chx.topology.model import Topology
    from rabbit_chx.topology.objects import PolicyDefinition

__all__ = ["reached_from"]

#: The arguments of an exchange or a queue, and the keys of a policy, that name an exchange.
_ONWARDS = ("alternate-exchange", "x-dead-letter-exchange", "dead-letter-exchange")


def reached_from(topology: Topology, names: Iterable[str]) -> Topology:
    """Return these exchanges, what their messages reach, and the policies that match one of those.

    Messages go on over rings, bindings, alternate exchanges and dead-letter exchanges.

    Args:
        topology: what there is.
        names: the names of the exchanges to begin with.

    Raises:
        InputError: there is no exchange of such a name.
    """
    exchanges = {one.name: one for one in topology.exchanges}
    found: dict[Destination, None] = {}
    for name in names:
        if name not in exchanges and not name.startswith("amq."):
            meant = similar(name, exchanges)
            hint = "correct the name" if meant is None else f"did you mean {meant}?"
            raise InputError(f"there is no exchange {name}: {hint}")
        found[ExchangeRef(name)] = None
    onwards = _links(topology)
    waiting = list(found)
    while waiting:
        for place in onwards.get(waiting.pop(), ()):
            if place not in found:
                found[place] = None
                waiting.append(place)
    reached = {one.name for one in found if isinstance(one, ExchangeRef)}
    return replace(
        topology,
        exchanges=tuple(one for one in topology.exchanges if one.name in reached),
        queues=tuple(one for one in topology.queues if one.name in found),
        bindings=tuple(one for one in topology.bindings if one.source in reached),
        policies=tuple(one for one in topology.policies if any(_may_match(one, place) for place in found)),
        rings={name: ring for name, ring in topology.rings.items() if name in reached},
    )


def _links(topology: Topology) -> dict[Destination, list[Destination]]:
    """Return where messages of each exchange and queue may go next."""
    links: dict[Destination, list[Destination]] = {}
    for exchange in topology.exchanges:
        places = links.setdefault(ExchangeRef(exchange.name), [])
        places += [member.destination for member in exchange.ring or exchange.members or ()]
        places += _named(exchange.arguments.get(name) for name in _ONWARDS)
    for queue in topology.queues:
        links.setdefault(queue.name, []).extend(_named(queue.arguments.get(name) for name in _ONWARDS))
    for binding in topology.bindings:
        links.setdefault(ExchangeRef(binding.source), []).append(binding.destination)
    for policy in topology.policies:
        if targets := list(_named(policy.definition.get(name) for name in _ONWARDS)):
            listed: list[Destination] = [ExchangeRef(one.name) for one in topology.exchanges]
            listed += [one.name for one in topology.queues]
            for place in listed:
                if _may_match(policy, place):
                    links[place] += targets
    return links


def _named(values: Iterable[object]) -> Iterator[ExchangeRef]:
    yield from (ExchangeRef(value) for value in values if isinstance(value, str) and value)


def _may_match(policy: PolicyDefinition, place: Destination) -> bool:
    """Return whether a policy is about an exchange or a queue; where Python cannot read its pattern, it may be."""
    return policy_matches(policy, place) is not False
