"""What a plan does with the key map of one exchange that hashes: the maps before and after, and the exact shares of keys that move.

`ring_change` makes it for a ring, also with slots, and `modulus_change` for an ``x-modulus-hash`` exchange.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from rabbit_chx.analysis.findings import Finding
from rabbit_chx.analysis.matrix import MovementMatrix, movement
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.topology.changes import PlannedChange
from rabbit_chx.topology.objects import HASH_EXCHANGE, order_of_place
from rabbit_chx.topology.planning.movement import SlotHandOver, SlotOwnership
from rabbit_chx.topology.planning.proposals import RingProposal
from rabbit_chx.topology.planning.refusals import allow_moved
from rabbit_chx.words import percent

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class MapChange:
    """The change of the key map of one exchange: a ring, or the bindings of an ``x-modulus-hash`` exchange.

    Attributes:
        before: the live map; empty if the exchange is new or was of another type.
        after: the wanted map.
        steps: the binds and unbinds of a ring, in order; empty for an ``x-modulus-hash`` exchange, whose bindings have no order.
        moved: the exact share of keys with another destination at the end. It is 1.0 if the exchange hashes something else afterwards: then
            a key keeps its destination only by chance. If `unknown` is set, it is the largest possible share.
        moved_at_worst: the largest share of keys whose destination differs from `before` at any moment. Keys without a destination between
            two steps count.
        lost_at_worst: the largest share of keys without a destination at any moment: their messages are unroutable.
        transient_share: the largest share of keys whose destination differs from `after` while the bindings are made of a map that was
            empty.
        ownership: the owners of the slots before and after the plan; None without slots. With slots, shares are counted by queue.
        unknown: why the exact shares are not known; empty if they are.
        limit: the share of keys that may move; None: any.
        proposals: alternatives with the same members, with their shares; the first is the plan as written. Empty if nothing moves or the
            live map is not known.
    """

    exchange: str
    before: KeyMap
    after: KeyMap
    steps: tuple[PlannedChange, ...] = ()
    moved: float = 0.0
    moved_at_worst: float = 0.0
    lost_at_worst: float = 0.0
    transient_share: float = 0.0
    ownership: SlotOwnership | None = field(default=None, repr=False)
    unknown: str = ""
    limit: float | None = None
    proposals: tuple[RingProposal, ...] = field(default=(), repr=False, compare=False)

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
        return f"{percent(self.moved)} of the keys in the end, {percent(self.moved_at_worst)} at the worst moment"

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


def movement_refusal(change: MapChange, *, is_default: bool = False) -> Finding:
    """Return the refusal of a change that moves more keys than its limit. `is_default`: the topology does not set the limit."""
    assert change.limit is not None  # it is over the limit
    flag = allow_moved(change.moved_at_worst)
    if change.is_ring:
        moves = (
            f"{_moved_text(change)} in the end, {percent(change.moved_at_worst, 1)} at the worst moment, and"
        )
        better = _better_ring(change)
    else:
        moves = f"{change.exchange} is an {change.before.kind} exchange, and the plan moves {change.moves};"
        better = _better_proposal(change)
    limit = "the limit without max_share_moved" if is_default else "max_share_moved"
    fix = f"{better}raise max_share_moved, or allow it once with {flag}"
    if is_default:
        fix = f"allow it once with {flag}, or write a topology file, which has the order of the ring and max_share_moved"
    message = f"{moves} {limit} is {change.limit:g}"
    return Finding("moved", message, fix, share=change.moved_at_worst, allow_with=flag)


def _better_ring(change: MapChange) -> str:
    proposals = {proposal.strategy: proposal for proposal in change.proposals}
    order = _least_at_worst(
        proposals[strategy] for strategy in ("least-moving-order", "fewest-steps") if strategy in proposals
    )
    new_exchange = proposals.get("new-exchange")
    if order is not None and order.moved_at_worst < change.moved_at_worst:
        shares = (
            f"{percent(order.moved, 1)} in the end, {percent(order.moved_at_worst, 1)} at the worst moment"
        )
        return f"write the members in the order of the proposal {order.strategy} ({shares}), "
    if new_exchange is not None and change.limit is not None and new_exchange.moved_at_worst <= change.limit:
        share = f"{percent(new_exchange.moved, 1)} at any moment"
        return f"use a new exchange, as in the proposal new-exchange ({share}), "
    return ""


def _better_proposal(change: MapChange) -> str:
    best = _least_at_worst(change.proposals)
    if best is None or best.moved_at_worst >= change.moved_at_worst:
        return ""
    return f"follow the proposal {best.strategy} ({percent(best.moved_at_worst)} at the worst moment), "


def _least_at_worst(proposals: Iterable[RingProposal]) -> RingProposal | None:
    return min(proposals, key=lambda proposal: proposal.moved_at_worst, default=None)


def _moved_text(change: MapChange) -> str:
    share = f"{percent(change.moved, 1)} of the keys"
    if count := len(change.handed_over):
        slots = "slot changes" if count == 1 else "slots change"
        return f"{count} {slots} hands in {change.exchange}: {share} have another queue"
    return (
        f"{share} of {change.exchange} have another {'destination' if change.ownership is None else 'queue'}"
    )
