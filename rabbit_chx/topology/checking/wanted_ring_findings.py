"""How a live ring differs from the ring that a topology says: its members, its order, and how many keys are elsewhere."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rabbit_chx.analysis.wording import percent
from rabbit_chx.errors import InputError
from rabbit_chx.routing import ExchangeRef, SlotTable, share_between
from rabbit_chx.topology.checking.check_finding import CheckFinding
from rabbit_chx.topology.ring_steps import wanted_ring_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rabbit_chx.routing import Destination, HashRing, KeyMap
    from rabbit_chx.topology.checking.check_finding import CheckKind
    from rabbit_chx.topology.checking.cures import Cures
    from rabbit_chx.topology.objects import RingMember

__all__ = ["WantedRingCheck"]


@dataclass(frozen=True, slots=True)
class WantedRingCheck:
    """The check of one ring against its members in a topology.

    Attributes:
        exchange: the exchange's name.
        ring: its ring, as it was read.
        bound: its bindings.
        members: the members that are wanted, in order.
        cures: the words of cures.
        owners: the queue of each slot that is there. Shares are counted by queue then.
        source: what says the members, in words.
        cure: what cures other members; None: what cures another order, a repair of the ring.
    """

    exchange: str
    ring: HashRing
    bound: Sequence[RingMember]
    members: Sequence[RingMember]
    cures: Cures
    owners: Mapping[ExchangeRef, str] = field(default_factory=dict)
    source: str = "the topology"
    cure: str | None = None

    def misplaced(self) -> float | None:
        """Return the exact share of keys that have another destination than on the wanted ring; None if there is no such."""
        try:
            return self._misplaced(self._wanted())
        except InputError:
            return None

    def _misplaced(self, wanted: HashRing) -> float:
        if wanted.buckets == self.ring.buckets:
            return 0.0
        return share_between(_by_queue(self.ring, self.owners), _by_queue(wanted, self.owners))

    def findings(self) -> Iterator[CheckFinding]:
        """Yield how the ring differs."""
        try:
            wanted = self._wanted()
        except InputError as error:
            yield self._found("different", None, None, f"no broker of this release has such a ring: {error}")
            return
        yield from self._order(wanted)
        yield from self._members(wanted)

    def order(self) -> Iterator[CheckFinding]:
        """Yield whether the ring has the members in another order."""
        yield from self._order(self._wanted())

    def _wanted(self) -> HashRing:
        return wanted_ring_of(self.members, self.ring.release)

    def _order(self, wanted: HashRing) -> Iterator[CheckFinding]:
        if wanted.buckets == self.ring.buckets:
            return
        share = self._misplaced(wanted)
        common = set(wanted.destinations) & set(self.ring.destinations)
        there = [place for place in self.ring.destinations if place in common]
        ours = [place for place in wanted.destinations if place in common]
        if there != ours:
            first = next(n for n, pair in enumerate(zip(there, ours, strict=True)) if pair[0] != pair[1])
            says = (
                f"the ring has another order than {self.source}: {there[first]!s} is where {ours[first]!s} belongs; "
                f"{percent(share)} of all keys are elsewhere"
            )
            yield self._found("order", None, share, says)
        else:
            says = (
                f"the ring has other buckets than {self.source} says ({len(self.ring.buckets):,}, not "
                f"{len(wanted.buckets):,}): {percent(share)} of all keys are elsewhere"
            )
            yield self._found("different", None, share, says)

    def _members(self, wanted: HashRing) -> Iterator[CheckFinding]:
        ours, theirs = _by_destination(self.members), _by_destination(self.bound)
        to_be = wanted.shares() if ours.keys() - theirs.keys() else {}
        shares = self.ring.shares()
        for place, members in ours.items():
            keys = " and ".join(member.key for member in members)
            bound = theirs.get(place)
            if bound is None:
                share = to_be.get(place, 0.0)
                says = f"{place!s} is not bound (key {keys}): the {percent(share)} of all keys that are its go elsewhere"
                yield self._found("missing", place, share, says)
            elif Counter(members) != Counter(bound):
                says = f"{place!s} is bound with {_said(bound)}, and the topology says {_said(members)}"
                yield self._found("different", place, shares.get(place, 0.0), says)
        for place in (one for one in theirs if one not in ours):
            share = shares.get(place, 0.0)
            says = f"{place!s} is bound and not in the topology: {percent(share)} of all keys go there"
            yield self._found("unexpected", place, share, says)

    def _found(
        self, kind: CheckKind, place: Destination | None, share: float | None, says: str
    ) -> CheckFinding:
        repair = self.cures.repaired(self.exchange)
        cure = repair if self.cure is None or kind == "order" else self.cure
        return CheckFinding(kind, self.exchange, place, share, says, cure)


def _by_queue(ring: HashRing, owners: Mapping[ExchangeRef, str]) -> KeyMap:
    if not owners:
        return ring
    places = set(ring.destinations)
    others = {one for one in places if isinstance(one, ExchangeRef) and one not in owners}
    there = {slot: queue for slot, queue in owners.items() if slot in places}
    return SlotTable(ring, there, frozenset(others))


def _by_destination(members: Sequence[RingMember]) -> dict[Destination, list[RingMember]]:
    found: dict[Destination, list[RingMember]] = {}
    for member in members:
        found.setdefault(member.destination, []).append(member)
    return found


def _said(members: Sequence[RingMember]) -> str:
    return " and ".join(
        f"key {member.key}" + (f" and the arguments {dict(member.arguments)}" if member.arguments else "")
        for member in members
    )
