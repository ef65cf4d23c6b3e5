"""How the ring of an exchange with slots differs from the slots in the order of their numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rabbit_chx.analysis.wording import percent, plural
from rabbit_chx.routing import HashRing, SlotTable, share_between
from rabbit_chx.topology.checking.check_finding import CheckFinding
from rabbit_chx.topology.checking.wanted_ring_findings import WantedRingCheck
from rabbit_chx.topology.objects import RingMember, SlotNames

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rabbit_chx.topology.checking.cures import Cures
    from rabbit_chx.topology.objects import LiveSlots
    from rabbit_chx.topology.slots import SlotLayout

__all__ = ["SlottedRingCheck", "numbered_order", "numbered_slots"]


@dataclass(frozen=True, slots=True)
class SlottedRingCheck:
    """The check of a ring against the slots that a topology says.

    Attributes:
        slots: the slots that are in the ring, with all that is bound to them.
        bound: the bindings of the exchange.
        layout: the slots as the topology says them.
        cures: the words of cures.
    """

    slots: LiveSlots
    bound: Sequence[RingMember]
    layout: SlotLayout
    cures: Cures

    def misplaced(self) -> float:
        """Return the exact share of keys that have another queue than the topology says."""
        refs = self.layout.names.refs
        wanted = HashRing.from_bindings([(ref, 1) for ref in refs], self.slots.ring.release)
        queues = zip(refs, self.layout.owners.values(), strict=True)
        there = SlotTable(self.slots.ring, self.slots.sole_owners, self.slots.other_exchanges)
        return share_between(there, SlotTable(wanted, dict(queues)))

    def findings(self) -> Iterator[CheckFinding]:
        """Yield how the ring differs."""
        refs = self.layout.names.refs
        name, ring = self.slots.exchange, self.slots.ring
        if not set(refs) & set(ring.destinations):
            share = self.misplaced()
            says = (
                f"the ring has none of the {plural(len(refs), 'slot')} that the topology says, but "
                f"{plural(len(ring.destinations), 'other destination')}: {percent(share)} of all keys have another queue than with slots"
            )
            yield CheckFinding("different", name, None, share, says, self.cures.applied())
            return
        members = tuple(map(RingMember, refs))
        yield from WantedRingCheck(
            name, ring, self.bound, members, self.cures, self.slots.sole_owners, cure=self.cures.applied()
        ).findings()


def numbered_order(slots: LiveSlots, bound: Sequence[RingMember], cures: Cures) -> Iterator[CheckFinding]:
    """Yield whether the slots of a ring are in another order than that of their numbers. No topology is needed for that.

    Args:
        slots: the slots that are in the ring.
        bound: the bindings of the exchange.
        cures: the words of cures.
    """
    members = numbered_slots(slots.exchange, bound)
    if members is not None:
        owners = slots.sole_owners
        source = "the numbers of its slots"
        yield from WantedRingCheck(slots.exchange, slots.ring, bound, members, cures, owners, source).order()


def numbered_slots(exchange: str, bound: Sequence[RingMember]) -> tuple[RingMember, ...] | None:
    """Return the members of a ring of slots in the order of their numbers; None if they are not the slots of an exchange.

    Args:
        exchange: the exchange's name.
        bound: its bindings.
    """
    members = tuple(map(RingMember, SlotNames(exchange, len(bound)).refs))
    return members if bound and set(members) == set(bound) else None
