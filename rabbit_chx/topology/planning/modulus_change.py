"""The change of one ``x-modulus-hash`` exchange: its bindings before and after, the exact shares of keys that move, and alternatives.

The broker takes the hash of a key modulo the number of bindings. `ModulusHashExchange` contains the order of the bindings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from rabbit_chx.routing import Destination, ExchangeRef, ModulusHashExchange, Release
from rabbit_chx.routing.bindings import Place, ascending_bindings
from rabbit_chx.routing.ground import Provenance
from rabbit_chx.routing.release import NEWEST_COMPARED
from rabbit_chx.routing.rules import MODULUS_UNORDERED
from rabbit_chx.topology.changes import PlannedChange
from rabbit_chx.topology.model import LiveTopology
from rabbit_chx.topology.modulus import largest_share, number_bindings, share_moved
from rabbit_chx.topology.objects import (
    MODULUS_EXCHANGE,
    BindingDefinition,
    ExchangeDefinition,
    PolicyDefinition,
    RingMember,
)
from rabbit_chx.topology.planning.comparison import Comparison
from rabbit_chx.topology.planning.proposals import MOST_SLOTS, SLOTS_EACH, new_exchange
from rabbit_chx.topology.planning.ring_plan import Moment, RingPlan, RingProposal
from rabbit_chx.words import percent

#: An exchange with slots is proposed with at least this many, and with `SLOTS_EACH` for each queue.
_LEAST_SLOTS = 64


def modulus_plans(compared: Comparison, changes: Sequence[PlannedChange]) -> dict[str, RingPlan]:
    """Return the change of each ``x-modulus-hash`` exchange that is wanted or loses a binding, in the order of names."""
    live = compared.live
    kinds = [
        {exchange.name for exchange in side.exchanges if exchange.type == MODULUS_EXCHANGE}
        for side in (live, compared.wanted)
    ]
    moduli = {}
    for name in sorted(kinds[0] | kinds[1]):
        moments = list(_moments(name, live, changes))
        if name not in kinds[1] and len(moments) == 1:
            continue
        change = _count(name, moments, live, is_hashing=(name in kinds[0], name in kinds[1]))
        change = replace(
            change, limit=None if ExchangeRef(name) in compared.deleted_refs else compared.limit_of(name)
        )
        moduli[name] = replace(change, proposals=tuple(_proposals(change)))
    return moduli


def _moments(
    name: str, live: LiveTopology, changes: Iterable[PlannedChange]
) -> Iterator[tuple[BindingDefinition, ...]]:
    """Yield the bindings of an exchange before the changes, and after each change that adds or removes some."""
    bound = {binding.identity: binding for binding in live.bindings if binding.source == name}
    yield tuple(bound.values())
    for change in changes:
        subject, size = change.subject, len(bound)
        if isinstance(subject, BindingDefinition):
            if subject.source != name:
                continue
            if change.action == "bind":
                bound[subject.identity] = subject
            else:
                bound.pop(subject.identity, None)
        elif change.action in ("delete", "replace") and not isinstance(subject, PolicyDefinition):
            place = subject.ref
            itself = isinstance(subject, ExchangeDefinition) and subject.name == name
            bound = {
                key: binding for key, binding in bound.items() if not itself and binding.destination != place
            }
        if len(bound) != size:
            yield tuple(bound.values())


def _count(
    name: str,
    moments: Sequence[Sequence[BindingDefinition]],
    live: LiveTopology,
    *,
    is_hashing: tuple[bool, bool],
) -> RingPlan:
    """Return the change with the shares that move. `is_hashing`: whether the exchange has the type before, and afterwards."""
    release = live.release or NEWEST_COMPARED
    states = [number_bindings(bindings, release) for bindings in moments]
    if not is_hashing[0]:
        states[0] = ()
    before, after = states[0], states[-1]
    unknown = _unknown_order(name, states, live, release)
    provenance: Provenance = "read" if live.release else "replayed"
    if name in live.sources_left_out:
        provenance = "assumed"
    planned: Provenance = "replayed" if provenance == "read" else provenance
    sides = (
        ModulusHashExchange(name, ascending_bindings(before), release, provenance),
        ModulusHashExchange(name, ascending_bindings(after), release, planned),
    )
    if len(states) == 1:
        return RingPlan(name, *sides, unknown=unknown)
    moving: Callable[[Sequence[Destination], Sequence[Destination]], float]
    moving = largest_share if unknown else share_moved
    if name in live.sources_left_out:
        moving = _whole
    shares = [0.0, *(moving(before, state) for state in states[1:])]
    if not is_hashing[1] and before and after:
        shares[-1] = 1.0  # the type is another one afterwards
    losses = [1.0 if before and not state else 0.0 for state in states]
    transient_shares = []
    if after and not all(states):
        transient_shares = [moving(state, after) for state in states[1:-1] if state]
    return RingPlan(
        name,
        *sides,
        moments=tuple(map(Moment, shares, losses)),
        transient_share=max(transient_shares, default=0.0),
        unknown=unknown,
    )


def _unknown_order(
    name: str, states: Sequence[Sequence[Destination]], live: LiveTopology, release: Release
) -> str:
    if name in live.sources_left_out:
        return f"{name} has bindings to queues with names of the broker, which are not read"
    if release.follows(MODULUS_UNORDERED) and len({place for state in states for place in state}) > 1:
        return f"on RabbitMQ {release} {MODULUS_UNORDERED.says}, so the exact share is not known"
    return ""


def _proposals(change: RingPlan) -> Iterator[RingProposal]:
    """Yield the plan as written, and alternatives that move fewer keys now or later; nothing if nothing moves or the shares are not known."""
    before, after = change.before.buckets, change.after.buckets
    if change.unknown or not (before and after and change.moved_at_worst):
        return
    shares = change.moved, change.moved_at_worst
    members = tuple(map(RingMember, dict.fromkeys(place for place in after if place is not None)))
    yield RingProposal("as-written", *shares, members, "the queues of the file")
    yield from new_exchange(change.exchange, "queues", members, shares, worse=1)
    yield from _more_queues(before, len(after))
    yield from _slots(before, members)


def _more_queues(before: Sequence[Place], then: int) -> Iterator[RingProposal]:
    now = len(before)
    if then < now:
        description = (
            f"the {now} queues stay bound, and fewer consumers share them in a ConsumerGroup, so no key moves"
        )
        yield RingProposal("more-queues", 0.0, 0.0, (), description)
    elif then > now:
        count = now * max(2, -(-then // now))
        moved = share_moved(before, (*before, *(None,) * (count - now)))
        description = (
            f"{count} queues in a new exchange, the {now} of now first in the order of names: later consumers share them in a "
            "ConsumerGroup, and no key moves again"
        )
        yield RingProposal("more-queues", moved, moved, (), description)


def _slots(before: Sequence[Place], members: tuple[RingMember, ...]) -> Iterator[RingProposal]:
    count = min(max(_LEAST_SLOTS, SLOTS_EACH * len(members)), MOST_SLOTS)
    if len(members) > count or not all(isinstance(member.destination, str) for member in members):
        return
    wanted = {member.destination for member in members}
    # The two types hash differently, so the two destinations of a key are independent.
    moved = 1 - sum(place in wanted for place in before) / len(before) / len(members)
    description = (
        f"a new exchange of type x-consistent-hash with slots = {count} and the same members: about {percent(moved)} of the keys "
        f"move once; after that a queue that comes or goes moves about 1/{len(members)} of them"
    )
    yield RingProposal("slots", moved, moved, members, description, count)


def _whole(_before: Sequence[Destination], _after: Sequence[Destination]) -> float:
    return 1.0
