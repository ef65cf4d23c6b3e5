"""The plans of all rings: of hash exchanges that are wanted, and of those that lose a member by what else is planned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rabbit_chx.routing import NEWEST
from rabbit_chx.topology.objects import HASH_EXCHANGE, ExchangeDefinition
from rabbit_chx.topology.planning.plan_refusals import (
    different_external_ring,
)
from rabbit_chx.topology.planning.ring_plan import RingPlan
from rabbit_chx.topology.planning.ring_work import (
    RingWork,
    live_ring_of,
    ring_work,
    same_ring,
    work_of_deleted_ring,
    work_of_new_ring,
    work_of_replaced_ring,
)
from rabbit_chx.topology.planning.slot_hands import SlotHands, slot_hands

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rabbit_chx.topology.model import Topology
    from rabbit_chx.topology.objects import RingMember
    from rabbit_chx.topology.planning.object_differences import ObjectDifferences
    from rabbit_chx.topology.planning.planned_change import PlannedChange
    from rabbit_chx.topology.planning.ring_work import LiveRing

__all__ = ["ring_differences"]

_HASHED = ("hash-header", "hash-property")


def ring_differences(
    wanted: Topology, live: Topology, objects: ObjectDifferences, bindings: Sequence[PlannedChange] = ()
) -> dict[str, RingWork]:
    """Return the plan of each ring, by the name of its exchange, in the order of names.

    Args:
        wanted: what should be there.
        live: what is there.
        objects: what differs between their exchanges and queues.
        bindings: the binds and unbinds of other exchanges, in order: slots change hands by them.
    """
    rings = _Rings(wanted, live, objects, bindings)
    return dict(sorted(rings.all()))


class _Rings:
    def __init__(
        self,
        wanted: Topology,
        live: Topology,
        objects: ObjectDifferences,
        bindings: Sequence[PlannedChange],
    ) -> None:
        self._live, self._wanted, self._bindings = live, wanted, bindings
        self._ours = {one.name: one for one in wanted.exchanges}
        self._theirs = {one.name: one for one in live.exchanges}
        self._limit = wanted.max_share_moved
        self._gone, self._again = objects.gone, objects.again
        self._deleted = {one.name for one in objects.deleted if isinstance(one, ExchangeDefinition)}
        self._replaced = {one.name for one, _ in objects.replaced if isinstance(one, ExchangeDefinition)}

    def all(self) -> Iterator[tuple[str, RingWork]]:
        for name in {**self._ours, **self._theirs}:
            ours, theirs = self._ours.get(name), self._theirs.get(name)
            if any(one is not None and one.type == HASH_EXCHANGE for one in (ours, theirs)):
                work = self._of(name, ours, theirs)
                if work is not None:
                    yield name, work

    def _of(
        self, name: str, ours: ExchangeDefinition | None, theirs: ExchangeDefinition | None
    ) -> RingWork | None:
        live = live_ring_of(self._live, theirs, name)
        members = None if ours is None else ours.ring
        if name in self._deleted:
            return work_of_deleted_ring(name, live, self._again)
        if ours is not None and ours.owner == "external":
            differs = theirs is not None and members is not None and not same_ring(live, members)
            plan = RingPlan(name, live.ring, live.ring)
            return RingWork(plan, 0, (different_external_ring(name),)) if differs else None
        if theirs is None:
            return None if members is None else work_of_new_ring(name, members, self._live.release or NEWEST)
        limit = self._limit if ours is None or ours.max_share_moved is None else ours.max_share_moved
        if ours is not None and name in self._replaced:
            return self._of_replaced(name, ours, theirs, limit)
        members = self._left_of(live.bound) if members is None else members
        return None if members is None else self._of_staying(theirs, live, members, limit)

    def _of_staying(
        self, theirs: ExchangeDefinition, live: LiveRing, members: tuple[RingMember, ...], limit: float | None
    ) -> RingWork:
        return ring_work(theirs.name, live, members, self._again, limit, hands=self._hands(live, members))

    def _hands(self, live: LiveRing, members: Sequence[RingMember]) -> SlotHands | None:
        places = [member.destination for member in members]
        return slot_hands(live.ring, places, self._wanted, self._live, self._bindings)

    def _of_replaced(
        self, name: str, ours: ExchangeDefinition, theirs: ExchangeDefinition, limit: float | None
    ) -> RingWork:
        live = live_ring_of(self._live, theirs, name)
        members = live.bound if ours.ring is None else ours.ring
        if ours.type != HASH_EXCHANGE:
            members = ()
        alike = all(theirs.arguments.get(one) == ours.arguments.get(one) for one in _HASHED)
        hands = self._hands(live, members)
        return work_of_replaced_ring(name, live, members, limit, hands=hands, hashed_alike=alike)

    def _left_of(self, bound: tuple[RingMember, ...]) -> tuple[RingMember, ...] | None:
        """Return the members that are left of a ring that the topology does not say; None if it stays as it is."""
        if not any(member.destination in self._gone | self._again for member in bound):
            return None
        return tuple(member for member in bound if member.destination not in self._gone)
