"""Other ways to the same members of a ring, each with what it moves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from rabbit_chx.analysis.wording import percent
from rabbit_chx.errors import InputError
from rabbit_chx.topology.objects import RingMember
from rabbit_chx.topology.planning.ring_movement import Movement
from rabbit_chx.topology.planning.ring_orders import fewest_steps_order, least_moving_order
from rabbit_chx.topology.planning.ring_steps import ring_walks
from rabbit_chx.topology.planning.slot_forecast import slot_forecast
from rabbit_chx.topology.planning.walk_figures import best_walk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rabbit_chx.routing import HashRing
    from rabbit_chx.topology.planning.slot_forecast import SlotForecast

__all__ = ["RingProposal", "Strategy", "arranged_members", "proposals_of", "slot_proposals"]

Strategy: TypeAlias = Literal[
    "as-written", "least-moving-order", "fewest-steps", "new-exchange", "slots", "fixed-partitions"
]

_LEAST_PARTITIONS = 16
_MOST_PARTITIONS = 256


@dataclass(frozen=True, slots=True)
class RingProposal:
    """A way to the wanted members.

    Attributes:
        strategy: its name.
        moved: the exact share of keys whose destination is another one in the end.
        moved_at_worst: the same at the worst moment between the steps.
        ring: the members in their order.
        says: what it is, and what it costs, in words.
        forecast: of the proposal ``slots``, how many there are, and what later changes move; else None. `ring` is who shares
            them.
    """

    strategy: Strategy
    moved: float
    moved_at_worst: float
    ring: tuple[RingMember, ...]
    says: str
    forecast: SlotForecast | None = None


def proposals_of(
    exchange: str,
    live: HashRing,
    bound: Sequence[RingMember],
    wanted: tuple[RingMember, ...],
    *,
    figures: tuple[float, float],
) -> tuple[RingProposal, ...]:
    """Return the plan as written, and what moves fewer keys or disturbs them less.

    Args:
        exchange: the exchange's name.
        live: the ring that is there.
        bound: all bindings of the exchange.
        wanted: the wanted members, in order.
        figures: the share that moves as written, in the end and at the worst moment.
    """
    moved, at_worst = figures
    movement = Movement(live)
    found = [RingProposal("as-written", moved, at_worst, wanted, "the order of the file")]
    for strategy, order, says in (
        (
            "least-moving-order",
            least_moving_order(live, bound, wanted, movement),
            "the same members in the order that moves the fewest keys",
        ),
        (
            "fewest-steps",
            fewest_steps_order(live, wanted),
            "the same members in the order of the live ring, new ones behind them: it takes the fewest operations",
        ),
    ):
        if order not in [one.ring for one in found]:
            rated = _figures_of(live, bound, order, movement)
            if rated is not None:
                found.append(RingProposal(strategy, *rated, order, says))  # type: ignore[arg-type]
    if at_worst > moved:
        says = (
            f"a new exchange with the ring as written, beside {exchange}: publishers reach {exchange} through an exchange "
            "in front, which is bound to the new one and then unbound from the old one, so no key moves more than once; "
            "messages between the two calls are there twice"
        )
        found.append(RingProposal("new-exchange", moved, moved, wanted, says))
    forecast = slot_forecast(exchange, live, bound, wanted)
    if forecast is not None:
        found.append(_slots(forecast))
    if len(wanted) <= _MOST_PARTITIONS // 2:
        found.append(_fixed_partitions(exchange, live, len(wanted)))
    return tuple(found)


def slot_proposals(
    exchange: str, before: HashRing, after: HashRing, queues: int, *, figures: tuple[float, float]
) -> tuple[RingProposal, ...]:
    """Return the plan of an exchange with slots as written, and fixed partitions for as many queues.

    The order of its slots is that of their numbers, so no other order is proposed.

    Args:
        exchange: the exchange's name.
        before: the ring of slots that is there.
        after: the ring of slots that is wanted.
        queues: how many queues have the slots afterwards.
        figures: the share that moves as written, in the end and at the worst moment.
    """
    slots = tuple(map(RingMember, after.destinations))
    written = RingProposal("as-written", *figures, slots, "the slots and members of the file")
    if queues > _MOST_PARTITIONS // 2:
        return (written,)
    return written, _fixed_partitions(exchange, before, queues)


def arranged_members(
    live: HashRing, bound: Sequence[RingMember], wanted: tuple[RingMember, ...]
) -> tuple[RingMember, ...]:
    """Return the wanted members in the order of the proposal ``least-moving-order``; as they are if there is none.

    Args:
        live: the ring that is there.
        bound: all bindings of the exchange.
        wanted: the wanted members, in order. Each destination is there once.
    """
    order = least_moving_order(live, bound, wanted)
    try:
        return order if ring_walks(live, bound, order) else wanted
    except InputError:
        return wanted


def _figures_of(
    live: HashRing, bound: Sequence[RingMember], order: Sequence[RingMember], movement: Movement
) -> tuple[float, float] | None:
    try:
        best = best_walk(live, bound, order, (), movement)
    except InputError:
        return None
    return None if best is None else best[1][:2]


def _slots(forecast: SlotForecast) -> RingProposal:
    """Return slots in the place of the ring."""
    later = (
        f"one more queue of weight {forecast.next_weight} moves {percent(forecast.moved_by_next)} of the keys"
    )
    if forecast.moved_by_leaving is not None:
        later += f", and a queue that goes at most {percent(forecast.moved_by_leaving)}"
    says = f"slots = {forecast.slots} with the same queues as members, in the place of ring: keys move once, and after that {later}"
    return RingProposal(
        "slots", forecast.moved, forecast.moved_at_worst, forecast.members, says, forecast=forecast
    )


def _fixed_partitions(exchange: str, live: HashRing, consumers: int) -> RingProposal:
    """Return a ring of queues that are never bound again: consumers change hands above it."""
    count = _LEAST_PARTITIONS
    while count < 2 * consumers:
        count *= 2
    width = len(str(count))
    taken = {*map(str, live.destinations)}
    names = [f"{exchange}.partition.{number:0{width}d}" for number in range(1, count + 1)]
    while taken & set(names):
        names = [f"{name}.new" for name in names]
    says = (
        f"{count} queues that are never bound again, with a single active consumer each, and consumers that share them: all "
        "keys move once, and none when a consumer comes or goes; the way to keep the order of each key's messages"
    )
    return RingProposal("fixed-partitions", 1.0, 1.0, tuple(map(RingMember, names)), says)
