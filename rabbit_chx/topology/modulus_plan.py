"""The plan of one ``x-modulus-hash`` exchange: its bindings before and after, the exact shares of keys that move, and alternatives.

The broker takes the hash of a key modulo the number of bindings. `ModulusHashExchange` contains the order of the bindings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from rabbit_chx.analysis.findings import Finding
from rabbit_chx.analysis.matrix import MovementMatrix, movement
from rabbit_chx.analysis.wording import percent
from rabbit_chx.routing import Destination, ExchangeRef, ModulusHashExchange, Release
from rabbit_chx.routing.bindings import Place, ascending_bindings
from rabbit_chx.routing.release import NEWEST
from rabbit_chx.routing.ring_changes import Provenance
from rabbit_chx.routing.rules import MODULUS_UNORDERED
from rabbit_chx.topology.changes import PlannedChange, reference_to
from rabbit_chx.topology.comparison import Comparison
from rabbit_chx.topology.model import Topology
from rabbit_chx.topology.modulus import numbered
from rabbit_chx.topology.objects import (
    MODULUS_EXCHANGE,
    BindingDefinition,
    ExchangeDefinition,
    PolicyDefinition,
    RingMember,
)
from rabbit_chx.topology.proposals import RingProposal, new_exchange
from rabbit_chx.topology.refusals import allow_moved

_HASHES = 1 << 27
#: An exchange with slots is proposed with at least this many, and with ten for each queue.
_LEAST_SLOTS, _SLOTS_EACH, _MOST_SLOTS = 64, 10, 1024


@dataclass(frozen=True, slots=True)
class ModulusPlan:
    """The movement of the keys of one ``x-modulus-hash`` exchange.

    Attributes:
        before: the live exchange; without bindings if it is new or was of another type.
        after: the exchange after the plan.
        moved: the exact share of keys with another destination at the end; the largest possible share if `unknown` is set.
        moved_at_worst: the largest share of keys whose destination differs from `before` at any moment.
        lost_at_worst: the largest share of keys without a destination at any moment.
        transient_share: the largest share of keys whose destination differs from `after` while bindings are made.
        unknown: why the exact shares are not known; empty if they are.
        limit: the share of keys that may move; None: any.
    """

    exchange: str
    before: ModulusHashExchange
    after: ModulusHashExchange
    moved: float = 0.0
    moved_at_worst: float = 0.0
    lost_at_worst: float = 0.0
    transient_share: float = 0.0
    unknown: str = ""
    limit: float | None = None

    @property
    def is_moving(self) -> bool:
        """True if keys move that had a destination."""
        return bool(self.before.destinations and self.moved_at_worst)

    @property
    def moves(self) -> str:
        """The share of keys that moves, in words."""
        if self.unknown and self.moved_at_worst:
            return f"up to {percent(self.moved_at_worst)} of the keys: {self.unknown}"
        return f"{percent(self.moved)} of the keys in the end, {percent(self.moved_at_worst)} at the worst moment"

    @property
    def refusals(self) -> tuple[Finding, ...]:
        """The refusal to move more keys than `limit` allows. Without bindings before, no key moves."""
        if self.limit is None or not self.before.destinations or self.moved_at_worst <= self.limit:
            return ()
        flag = allow_moved(self.moved_at_worst)
        message = f"{self.exchange} is an x-modulus-hash exchange, and the plan moves {self.moves}; max_share_moved is {self.limit:g}"
        best = min(self.proposals, key=lambda proposal: proposal.moved_at_worst, default=None)
        better = ""
        if best is not None and best.moved_at_worst < self.moved_at_worst:
            better = (
                f"follow the proposal {best.strategy} ({percent(best.moved_at_worst)} at the worst moment), "
            )
        fix = f"{better}raise max_share_moved, or allow it once with {flag}"
        return (Finding("moved", message, fix, share=self.moved_at_worst, allow_with=flag),)

    @property
    def proposals(self) -> tuple[RingProposal, ...]:
        """The plan as written, and alternatives that move fewer keys now or later; empty if nothing moves or the shares are not known."""
        if self.unknown or not (self.is_moving and self.after.destinations):
            return ()
        shares = self.moved, self.moved_at_worst
        members = tuple(map(RingMember, dict.fromkeys(self.after.destinations)))
        return (
            RingProposal("as-written", *shares, members, "the queues of the file"),
            *new_exchange(self.exchange, "queues", members, shares, worse=1),
            *self._more_queues(),
            *self._slots(members),
        )

    def _more_queues(self) -> Iterator[RingProposal]:
        before = self.before.destinations
        now, then = len(before), len(self.after.destinations)
        if then < now:
            description = f"the {now} queues stay bound, and fewer consumers share them in a ConsumerGroup, so no key moves"
            yield RingProposal("more-queues", 0.0, 0.0, (), description)
        elif then > now:
            count = now * max(2, -(-then // now))
            moved = share_moved(before, (*before, *(None,) * (count - now)))
            description = (
                f"{count} queues in a new exchange, the {now} of now first in the order of names: later consumers share them in a "
                "ConsumerGroup, and no key moves again"
            )
            yield RingProposal("more-queues", moved, moved, (), description)

    def _slots(self, members: tuple[RingMember, ...]) -> Iterator[RingProposal]:
        if not all(isinstance(member.destination, str) for member in members):
            return
        count = min(max(_LEAST_SLOTS, _SLOTS_EACH * len(members)), _MOST_SLOTS)
        if len(members) > count:
            return
        wanted = {member.destination for member in members}
        # The two types hash differently, so the two destinations of a key are independent.
        before = self.before.destinations
        moved = 1 - sum(place in wanted for place in before) / len(before) / len(members)
        description = (
            f"a new exchange of type x-consistent-hash with slots = {count} and the same members: about {percent(moved)} of the keys "
            f"move once; after that a queue that comes or goes moves about 1/{len(members)} of them"
        )
        yield RingProposal("slots", moved, moved, members, description, count)

    def matrix(self) -> MovementMatrix | None:
        """Return the exact share of keys that move from each destination to each other one; None if it is not known."""
        if self.unknown and self.moved_at_worst:
            return None
        return movement(self.before, self.after)


def modulus_plans(compared: Comparison, changes: Sequence[PlannedChange]) -> dict[str, ModulusPlan]:
    """Return the plan of each ``x-modulus-hash`` exchange that is wanted or loses a binding, in the order of names."""
    live = compared.live
    kinds = [
        {exchange.name for exchange in side.exchanges if exchange.type == MODULUS_EXCHANGE}
        for side in (live, compared.wanted)
    ]
    plans = {}
    for name in sorted(kinds[0] | kinds[1]):
        moments = list(_moments(name, live, changes))
        if name not in kinds[1] and len(moments) == 1:
            continue
        plan = _planned(name, moments, live, is_hashing=(name in kinds[0], name in kinds[1]))
        plans[name] = _with_limit(plan, compared)
    return plans


def _with_limit(plan: ModulusPlan, compared: Comparison) -> ModulusPlan:
    if ExchangeRef(plan.exchange) in compared.deleted_refs:
        return plan
    wanted = compared.wanted
    exchange = wanted.exchange(plan.exchange)
    own = None if exchange is None else exchange.max_share_moved
    return replace(plan, limit=wanted.max_share_moved if own is None else own)


def _moments(
    name: str, live: Topology, changes: Iterable[PlannedChange]
) -> Iterator[tuple[BindingDefinition, ...]]:
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
            place = reference_to(subject)
            itself = isinstance(subject, ExchangeDefinition) and subject.name == name
            bound = {
                key: binding for key, binding in bound.items() if not itself and binding.destination != place
            }
        if len(bound) != size:
            yield tuple(bound.values())


def _planned(
    name: str,
    moments: Sequence[Sequence[BindingDefinition]],
    live: Topology,
    *,
    is_hashing: tuple[bool, bool],
) -> ModulusPlan:
    release = live.release or NEWEST
    states = [numbered(bindings, release) for bindings in moments]
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
        return ModulusPlan(name, *sides, unknown=unknown)
    moving: Callable[[Sequence[Destination], Sequence[Destination]], float]
    moving = largest_share if unknown else share_moved
    if name in live.sources_left_out:
        moving = _whole
    shares = [0.0, *(moving(before, state) for state in states[1:])]
    if not is_hashing[1] and before and after:
        shares[-1] = 1.0  # the type is another one afterwards
    lost = 1.0 if before and not all(states) else 0.0
    transient_shares = []
    if after and not all(states):
        transient_shares = [moving(state, after) for state in states[1:-1] if state]
    return ModulusPlan(
        name,
        *sides,
        shares[-1],
        max(shares),
        lost,
        max(transient_shares, default=0.0),
        unknown,
    )


def _unknown_order(
    name: str, states: Sequence[Sequence[Destination]], live: Topology, release: Release
) -> str:
    if name in live.sources_left_out:
        return f"{name} has bindings to queues with names of the broker, which are not read"
    if release.follows(MODULUS_UNORDERED) and len({place for state in states for place in state}) > 1:
        return f"on RabbitMQ {release} {MODULUS_UNORDERED.says}, so the exact share is not known"
    return ""


def share_moved(before: Sequence[Place], after: Sequence[Place]) -> float:
    """Return the exact share of the 2^27 hashes whose destination differs between two sequences of numbered destinations."""
    from rabbit_chx.routing.arrays import ModuloFlows

    if not before or not after:
        return float(bool(before or after))
    return 1 - ModuloFlows(before, after, _HASHES).staying


def largest_share(before: Sequence[Destination], after: Sequence[Destination]) -> float:
    """Return the largest share of keys that can move if the order of the bindings is not known.

    If the two numbers of bindings have no common divisor, each order moves the same share.
    """
    return share_moved(before, after) if math.gcd(len(before), len(after)) == 1 else 1.0


def _whole(_before: Sequence[Destination], _after: Sequence[Destination]) -> float:
    return 1.0
