"""Which slots should change hands so that no queue has too much of the load: a proposal, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from rabbit_chx.topology.objects import RingMember, SlotNames

if TYPE_CHECKING:
    from rabbit_chx.routing import ExchangeRef, SlotTable
    from rabbit_chx.topology.balancing.load_obstacle import LoadObstacle
    from rabbit_chx.topology.balancing.load_target import LoadTarget

__all__ = ["BalanceState", "QueueLoad", "SlotBalance", "SlotMove"]

BalanceState: TypeAlias = Literal["balanced", "proposed", "impossible", "not-found"]


@dataclass(frozen=True, slots=True)
class SlotMove:
    """A slot that changes hands.

    Attributes:
        slot: the slot.
        old: the queue that has it; None where none has.
        new: the queue that gets it.
        share: its share of the load.
    """

    slot: ExchangeRef
    old: str | None
    new: str
    share: float


@dataclass(frozen=True, slots=True)
class QueueLoad:
    """A queue before and after.

    Attributes:
        queue: the queue; None for the slots that nobody has.
        weight: its weight; None where it is to have no slots.
        limit: the share of the load that it may have; None where it is to have no slots.
        slots_before: how many slots it has.
        slots_after: how many it gets.
        before: its share of the load.
        after: its share of the load afterwards.
    """

    queue: str | None
    weight: int | None
    limit: float | None
    slots_before: int
    slots_after: int
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class SlotBalance:
    """The outcome of :func:`rabbit_chx.topology.balance`.

    Attributes:
        state: ``balanced``: nothing is to be done. ``proposed``: the moves reach the target. ``impossible``: no moves do.
            ``not-found``: none were found that do.
        target: how much of the load a queue may have.
        before: who has which slot.
        after: who gets which slot.
        moves: the slots that change hands, in the order of the ring.
        at_least: no fewer moves reach the target.
        least_load: whether no other proposal with so few moves moves less of the load.
        queues: each queue, before and after, in the natural order of their names.
        obstacles: why the target is not reached.
        reachable: the lowest target that was found to be reachable, where this one was not.
    """

    state: BalanceState
    target: LoadTarget
    before: SlotTable
    after: SlotTable
    moves: tuple[SlotMove, ...]
    at_least: int
    least_load: bool
    queues: tuple[QueueLoad, ...]
    obstacles: tuple[LoadObstacle, ...] = ()
    reachable: LoadTarget | None = None

    @property
    def load_moved(self) -> float:
        """The share of the load whose queue changes."""
        return sum((move.share for move in self.moves), 0.0)

    @property
    def keys_moved(self) -> float:
        """The exact share of all keys whose queue changes."""
        return self.before.share_moved(self.after)

    @property
    def busiest_before(self) -> QueueLoad:
        """The queue that has the most of the load."""
        return max(self.queues, key=lambda one: one.before)

    @property
    def busiest_after(self) -> QueueLoad:
        """The queue that has the most of the load afterwards."""
        return max(self.queues, key=lambda one: one.after)

    def members(self, exchange: str) -> tuple[RingMember, ...] | None:
        """Return the queues with the slots that they have afterwards, as a topology file says them.

        None where a file cannot say it: a slot has no queue, or has another name than a file gives it, or the ring has more
        than slots.

        Args:
            exchange: the exchange's name.
        """
        slots = SlotNames(exchange, len(self.after.slots)).refs
        if self.after.ring.buckets != slots or len(self.after.owners) < len(slots):
            return None
        numbers: dict[str, list[int]] = {}
        for number, slot in enumerate(slots):
            numbers.setdefault(self.after.owners[slot], []).append(number)
        listed = [one.queue for one in self.queues if one.queue in numbers]
        return tuple(RingMember(queue, slots=tuple(numbers[queue])) for queue in listed if queue is not None)
