"""What a plan does with the ring of one exchange: the maps of keys before and after, the steps, and the exact shares of keys that move.

`ring_change` makes it for a ring, also with slots, and `modulus_change` for an ``x-modulus-hash`` exchange, whose map of keys is no ring.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from rabbit_chx.analysis.findings import Finding
from rabbit_chx.analysis.matrix import MovementMatrix, movement
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.topology.changes import PlannedChange
from rabbit_chx.topology.objects import HASH_EXCHANGE, RingMember, order_of_place
from rabbit_chx.topology.planning.movement import SlotHandOver, SlotOwnership
from rabbit_chx.words import percent

_ROUNDING = 1e-9

Strategy: TypeAlias = Literal[
    "as-written", "least-moving-order", "fewest-steps", "new-exchange", "slots", "more-queues"
]


@dataclass(frozen=True, slots=True)
class RingProposal:
    """An alternative plan for the wanted members.

    Attributes:
        moved: the exact share of keys whose destination differs at the end.
        moved_at_worst: the same at the worst moment between the steps.
        ring: the members in their order; for the proposal ``slots`` the queues that share the slots; empty for the proposal
            ``more-queues``, whose queues do not exist.
        description: the method and its cost, in words.
        slots: the number of slots of the proposal ``slots``; else None.
    """

    strategy: Strategy
    moved: float
    moved_at_worst: float
    ring: tuple[RingMember, ...]
    description: str
    slots: int | None = None


class Moment(NamedTuple):
    """The keys after a step of a plan.

    Attributes:
        moved: the share of keys whose destination differs from that before the plan. Keys without a destination count.
        lost: the share of keys without a destination: their messages are unroutable.
    """

    moved: float
    lost: float


@dataclass(frozen=True, slots=True)
class RingPlan:
    """What a plan does with the keys of one exchange that hashes: with a ring, or the bindings of an ``x-modulus-hash`` exchange.

    Attributes:
        before: the live map; empty if the exchange is new or was of another type.
        after: the wanted map.
        steps: the binds and unbinds of a ring, in order; empty for an ``x-modulus-hash`` exchange, whose bindings have no order.
        moments: the keys after each step, and after each other change that moves some. A key keeps its destination only by chance if the
            exchange hashes something else afterwards: then all keys move. If `unknown` is set, the shares are the largest possible ones.
        refusals: the reasons to refuse it, except the share that moves.
        limit: the share of keys that may move; None: any.
        early_step_count: the number of steps before the replacement of objects.
        is_impossible: True if no binds and unbinds make the wanted ring, so that the exchange must be replaced.
        transient_share: the largest share of keys whose destination differs from `after` while the bindings are made of a map that was
            empty.
        ownership: the owners of the slots before and after the plan; None without slots. With slots, shares are counted by queue.
        unknown: why the exact shares are not known; empty if they are.
        reorderable: the wanted members if another order may be proposed, else empty.
        proposals: alternatives with the same members, with their shares; the first is the plan as written. Empty if nothing moves or the
            live map is not known.
    """

    exchange: str
    before: KeyMap
    after: KeyMap
    steps: tuple[PlannedChange, ...] = ()
    moments: tuple[Moment, ...] = field(default=(), repr=False)
    refusals: tuple[Finding, ...] = ()
    limit: float | None = None
    early_step_count: int = 0
    is_impossible: bool = False
    transient_share: float = 0.0
    ownership: SlotOwnership | None = field(default=None, repr=False)
    unknown: str = ""
    reorderable: tuple[RingMember, ...] = field(default=(), repr=False, compare=False)
    proposals: tuple[RingProposal, ...] = field(default=(), repr=False, compare=False)

    @property
    def moved(self) -> float:
        """The share of keys with another destination at the end."""
        return self.moments[-1].moved if self.moments else 0.0

    @property
    def moved_at_worst(self) -> float:
        """The largest share of keys whose destination differs from `before` at any moment."""
        return max((moment.moved for moment in self.moments), default=0.0)

    @property
    def lost_at_worst(self) -> float:
        """The largest share of keys without a destination at any moment."""
        return max((moment.lost for moment in self.moments), default=0.0)

    @property
    def shares(self) -> tuple[float, float]:
        """The share of keys that moves at the end, and at the worst moment."""
        return self.moved, self.moved_at_worst

    @property
    def early_steps(self) -> tuple[PlannedChange, ...]:
        """The steps before the replacement of objects."""
        return self.steps[: self.early_step_count]

    @property
    def late_steps(self) -> tuple[PlannedChange, ...]:
        """The steps after the replacement of objects."""
        return self.steps[self.early_step_count :]

    @property
    def is_ring(self) -> bool:
        """True for an ``x-consistent-hash`` exchange, also with slots."""
        return self.before.kind == HASH_EXCHANGE

    @property
    def is_moving(self) -> bool:
        """True if the map changes, or keys of it move."""
        return bool(self.steps or self.moved or self.moved_at_worst)

    @property
    def is_over_limit(self) -> bool:
        """True if more keys move than the limit. If no key had a destination before, none moves."""
        return self.limit is not None and self.moved_at_worst > self.limit and self.before.bucket_count > 0

    @property
    def handed_over(self) -> tuple[SlotHandOver, ...]:
        """The slots whose queue changes, in ring order."""
        return () if self.ownership is None else self.ownership.handed_over

    @property
    def moves(self) -> str:
        """The share of keys that moves, in words."""
        if self.unknown and self.moved_at_worst:
            return f"up to {percent(self.moved_at_worst)} of the keys: {self.unknown}"
        return f"{percent(self.moved)} of the keys in the end, {percent(self.moved_at_worst)} at the peak"

    def matrix(self) -> MovementMatrix | None:
        """Return the exact share of keys that move from each destination to each other one, in ring order.

        With slots, the destinations are queues, in the order of names. Return None if the maps do not determine the shares: the order of the
        bindings is not known, or the exchange hashes something else afterwards.
        """
        if self.unknown and self.moved_at_worst:
            return None
        if self.ownership is None:
            matrix = movement(self.before, self.after)
        else:
            before, after = self.ownership.ring_before(self.before), self.ownership.ring_after(self.after)
            matrix = movement(before, after).sorted_by(order_of_place)
        return matrix if abs(matrix.moved - self.moved) < _ROUNDING else None
