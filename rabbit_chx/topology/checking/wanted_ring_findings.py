"""How a live ring differs from the ring that a topology says: its members, its order, and how many keys are elsewhere."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rabbit_chx.analysis.wording import percent
from rabbit_chx.errors import InputError
from rabbit_chx.topology.checking.check_finding import CheckFinding
from rabbit_chx.topology.planning.ring_steps import wanted_ring_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rabbit_chx.routing import Destination, HashRing
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
    """

    exchange: str
    ring: HashRing
    bound: Sequence[RingMember]
    members: Sequence[RingMember]
    cures: Cures

    def misplaced(self) -> float | None:
        """Return the exact share of keys that have another destination than on the wanted ring; None if there is no such."""
        try:
            return self._misplaced(self._wanted())
        except InputError:
            return None

    def _misplaced(self, wanted: HashRing) -> float:
        return 0.0 if wanted.buckets == self.ring.buckets else self.ring.share_moved(wanted)

    def findings(self) -> Iterator[CheckFinding]:
        """Yield how the ring differs."""
        try:
            wanted = self._wanted()
        except InputError as error:
            yield self._found("different", None, None, f"no broker of this release has such a ring: {error}")
            return
        yield from self._order(wanted)
        yield from self._members(wanted)

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
                f"the ring has another order than the topology: {there[first]!s} is where {ours[first]!s} belongs; "
                f"{percent(share)} of all keys are elsewhere"
            )
            yield self._found("order", None, share, says)
        else:
            says = (
                f"the ring has other buckets than the topology says ({len(self.ring.buckets):,}, not "
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
        return CheckFinding(kind, self.exchange, place, share, says, self.cures.repaired(self.exchange))


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
