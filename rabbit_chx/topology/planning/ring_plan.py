"""What a plan does to one ``x-consistent-hash`` exchange: its rings, its steps, and the exact shares of keys that move."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rabbit_chx.analysis.matrix import MovementMatrix
    from rabbit_chx.routing import HashRing
    from rabbit_chx.topology.planning.ring_proposals import RingProposal
    from rabbit_chx.topology.planning.ring_steps import RingStep

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
        proposals: other ways to the same members, with their figures; the first is the plan as written. Empty where
            nothing moves, or where the live ring is not known.
    """

    exchange: str
    before: HashRing
    after: HashRing
    steps: tuple[RingStep, ...] = ()
    moved: float = 0.0
    moved_at_worst: float = 0.0
    lost_at_worst: float = 0.0
    proposals: tuple[RingProposal, ...] = ()

    def matrix(self) -> MovementMatrix:
        """Return from which destination to which the keys go, as exact shares."""
        from rabbit_chx.analysis.matrix import movement_matrix

        return movement_matrix(self.before, self.after)
