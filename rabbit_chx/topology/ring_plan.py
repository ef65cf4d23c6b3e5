"""What a plan does to one ``x-consistent-hash`` exchange: its rings, its steps, and the exact shares of keys that move."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rabbit_chx.topology.objects import RingMember, order_of_place
from rabbit_chx.topology.proposals import RingProposal, proposals_of, slots_as_written

if TYPE_CHECKING:
    from rabbit_chx.analysis.matrix import MovementMatrix
    from rabbit_chx.routing import HashRing
    from rabbit_chx.topology.ring_steps import RingStep
    from rabbit_chx.topology.slot_plan import SlotHands

__all__ = ["RingPlan"]


@dataclass(frozen=True, slots=True)
class RingPlan:
    """What a plan does to the ring of one exchange.

    Attributes:
        exchange: the exchange's name.
        before: the ring that is there; empty for an exchange that is new.
        after: the ring that is wanted.
        steps: the binds and unbinds between them, in order.
        moved: the exact share of keys whose destination is another one in the end, as `HashRing.share_moved` counts. It is
            1.0 where the exchange hashes something else afterwards: then no key keeps its place but by chance.
        moved_at_worst: the largest share of keys whose destination is not that of before, at any moment. Keys that have
            no destination between two steps count.
        lost_at_worst: the largest share of keys that have no destination, at any moment: their messages are unroutable.
        hands: of an exchange with slots, who has them before and after. The shares are counted by queue then. Else None.
        reordered: all bindings that are there, and the wanted members in order, if there are `proposals`; else None.
    """

    exchange: str
    before: HashRing
    after: HashRing
    steps: tuple[RingStep, ...] = ()
    moved: float = 0.0
    moved_at_worst: float = 0.0
    lost_at_worst: float = 0.0
    hands: SlotHands | None = field(default=None, repr=False)
    reordered: tuple[tuple[RingMember, ...], tuple[RingMember, ...]] | None = field(default=None, repr=False)
    _proposals: tuple[RingProposal, ...] | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def proposals(self) -> tuple[RingProposal, ...]:
        """Other ways to the same members, with their figures; the first is the plan as written.

        Empty where nothing moves, or where the live ring is not known. Where slots are wanted there is no other way, as their
        order is that of their numbers. They are searched when they are asked for, and kept.
        """
        if self._proposals is None:
            found: tuple[RingProposal, ...] = ()
            figures = self.moved, self.moved_at_worst
            if self.hands is not None and self.moved and {*self.after.destinations} <= {*self.hands.after}:
                found = (slots_as_written(self.after, figures=figures),)
            elif self.reordered is not None:
                found = proposals_of(self.exchange, self.before, *self.reordered, figures=figures)
            # dataclass(frozen=True) leaves no other way to set an attribute.
            object.__setattr__(self, "_proposals", found)
            return found
        return self._proposals

    def matrix(self) -> MovementMatrix:
        """Return from which destination to which the keys go, as exact shares.

        Destinations are in the order of the ring. With slots it is from which queue to which, in the order of names.
        """
        from rabbit_chx.analysis.matrix import movement_matrix

        if self.hands is not None:
            before, after = self.hands.ring_before(self.before), self.hands.ring_after(self.after)
            return movement_matrix(before, after).sorted_by(order_of_place)
        return movement_matrix(self.before, self.after)
