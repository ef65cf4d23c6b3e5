"""Alternative plans for the members of a ring, with the share of keys that each moves; and the order that moves the fewest keys.

A seed keeps its bucket when the bucket count changes, unless its bucket is removed or a new one takes it. So a member keeps its keys if it
keeps its position. Of up to six members all orders are tried, so that the result is the minimum. For more, the minimum is a packing problem:
three orders are compared, as `find_least_moving_order` says.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, permutations

from rabbit_chx.errors import InputError
from rabbit_chx.planning.ring_plan import (
    Movement,
    MovementCounter,
    RingProposal,
    count_kept_members,
    find_best_steps,
)
from rabbit_chx.records.live_rings import LiveRing, make_members
from rabbit_chx.routing import Destination, ExchangeRef, HashRing, SlotTable
from rabbit_chx.routing.bindings import Place
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.text import percent
from rabbit_chx.topology.objects import RingMember
from rabbit_chx.topology.slots import SlotNames, assign_owners

#: The most members of which all orders are tried.
ALL_ORDERS = 6

Order = tuple["RingMember", ...]
#: With this many slots for each queue, one slot is a small part of its load.
SLOTS_EACH = 10
#: More are not proposed: each slot is an exchange and a binding.
MOST_SLOTS = 1024


def proposals_of(
    live: LiveRing,
    wanted: tuple[RingMember, ...],
    movement: Movement,
    counter: MovementCounter,
) -> tuple[RingProposal, ...]:
    """Return the plan as written, and alternatives that move fewer keys. `movement` has the keys that move as written."""
    proposals = [RingProposal("as-written", *movement.figures, wanted, "the order of the file")]
    order = find_least_moving_order(live, wanted, counter)
    moved = None if order == wanted else _movement_to(live, order, counter)
    if moved is not None:
        description = "the same members in the order that moves the fewest keys"
        proposals.append(RingProposal("least-moving-order", *moved.figures, order, description))
    return (*proposals, *_slots_for_buckets(live, wanted, counter))


def conversions_of(
    live: LiveRing, after: KeyMap, sharing: Sequence[RingMember], movement: Movement
) -> tuple[RingProposal, ...]:
    """Return the plan that replaces a ring by slots as written, and a number of slots that moves fewer keys.

    Args:
        live: the live ring.
        after: the ring of slots.
        sharing: the queues that share the slots.
        movement: the keys that move as written.
    """
    proposals = [slots_as_written(after, movement)]
    if len(after.destinations) != live.ring.bucket_count and all(member.slots is None for member in sharing):
        proposals += _slots_for_buckets(live, sharing, MovementCounter(live.ring.buckets))
    return tuple(proposals)


def _slots_for_buckets(
    live: LiveRing, wanted: Sequence[RingMember], counter: MovementCounter
) -> Iterator[RingProposal]:
    """Yield slots instead of the ring, one for each bucket, if each queue would have ten of them."""
    count = live.ring.bucket_count
    names = SlotNames(live.exchange, count)
    finer = SlotNames(live.exchange, 2 * count)
    weights = {member.destination: member.weight for member in wanted}
    if (
        not _has_slots_enough(count, weights)
        or names.park in weights
        or not all(isinstance(place, str) for place in weights)
    ):
        return
    members = tuple(RingMember(queue, str(weight)) for queue, weight in weights.items())
    owners = assign_owners(names, members, live.ring, {})
    queues: dict[Place, Place] = {slot: owners[slot.name] for slot in names.refs}
    counter.set_owners(queues)
    moved = _movement_to(live, [RingMember(slot) for slot in names.refs], counter)
    if moved is not None:
        twice = counter.number_destinations([*assign_owners(finer, members, live.ring, {}).values()])
        description = (
            f"replace ring by slots = {count}, {names.slots[0]} to {names.slots[-1]}, with the same queues as members: later, adding or "
            f"removing a queue moves only its own share; a new exchange moves at most {percent(moved.end.moved)}, with twice as many slots "
            f"{percent(counter.count(twice).moved)}"
        )
        yield RingProposal("slots", *moved.figures, members, description, count)


def slots_as_written(after: KeyMap, movement: Movement) -> RingProposal:
    """Return the plan of an exchange with slots as written."""
    slots = tuple(map(RingMember, after.destinations))
    return RingProposal("as-written", *movement.figures, slots, "the slots and members of the file")


def _movement_to(live: LiveRing, members: Sequence[RingMember], counter: MovementCounter) -> Movement | None:
    try:
        best = find_best_steps(live, members, (), counter)
    except InputError:
        return None
    return None if best is None else best.movement


def fewest_steps_order(live: HashRing, wanted: Sequence[RingMember]) -> Order:
    """Return the members in the order of the live ring, followed by the new ones."""
    runs = [(place, len(list(run))) for place, run in groupby(live.buckets)]
    by_run = {(member.destination, member.weight): member for member in wanted}
    staying = dict.fromkeys(by_run[run] for run in runs if run in by_run)
    return (*staying, *(member for member in wanted if member not in staying))


def find_least_moving_order(live: LiveRing, wanted: Sequence[RingMember], counter: MovementCounter) -> Order:
    """Return the members in the order that moves the fewest keys: of all orders, or of more than six members of three.

    The three are the order as written, that of `fewest_steps_order`, and that of `_in_their_places`. Of equal orders, the one with the fewest operations precedes, then the order as written. `wanted` has each
    destination once.
    """
    orders: Iterable[Order] = permutations(wanted)
    if len(wanted) > ALL_ORDERS:
        orders = (tuple(wanted), fewest_steps_order(live.ring, wanted), _in_their_places(live.ring, wanted))
    return _best_order(live, wanted, counter, orders)


def _in_their_places(live: HashRing, wanted: Sequence[RingMember]) -> Order:
    """Return the members in the order of the live ring: new ones, or else the last ones, take the places of those that go."""
    members = {member.destination: member for member in wanted}
    there = [place for place in dict.fromkeys(live.buckets) if place is not None]
    staying = {place: members.pop(place) for place in there if place in members}
    new = list(members.values())
    order = []
    for place in there:
        if place in staying:
            order.append(staying.pop(place))
        elif new:
            order.append(new.pop(0))
        elif staying:
            order.append(staying.popitem()[1])
    return (*order, *new)


def _best_order(
    live: LiveRing, wanted: Sequence[RingMember], counter: MovementCounter, orders: Iterable[Order]
) -> Order:
    """Return the order with the most staying seeds; of equal orders the one with the fewest operations, then the order as written."""
    import numpy as np

    number = {member: n for n, member in enumerate(wanted)}
    weight = np.array([member.weight for member in wanted], np.int64)
    destinations = [member.destination for member in wanted]
    after, held, seeds = counter.seeds_by_bucket(destinations, int(weight.sum()))

    def count_staying(order: Order) -> int:
        numbers = np.array([number[member] for member in order], np.int64)
        return int(seeds[np.repeat(numbers, weight[numbers])[after] == held].sum())

    staying = {order: count_staying(order) for order in orders}
    most = max(staying.values())
    best = (order for order, count in staying.items() if count == most)
    return max(best, key=lambda order: (count_kept_members(live, order), [-number[one] for one in order]))


def find_least_moved(before: KeyMap, after: KeyMap | None) -> tuple[float | None, float | None] | None:
    """Return the smallest shares of keys that a change of a ring can move, in any order of the ring afterwards; None without rings.

    The first is that with the members in the order of `find_least_moving_order`, the second that with slots instead of the ring, one for each
    bucket; None if that is not possible.
    """
    if not isinstance(before, HashRing) or after is None or after.kind != before.kind:
        return None
    members = make_members(after.buckets)
    weights = {member.destination: member.weight for member in members}
    if not before.bucket_count or len(weights) != len(members):
        return None, None
    counter = MovementCounter(before.buckets)
    live = LiveRing("", before, make_members(before.buckets))
    order = find_least_moving_order(live, members, counter) if members else ()
    places = [member.destination for member in order for _ in range(member.weight)]
    by_order = counter.count(counter.number_destinations(places)).moved
    queues = {place: weight for place, weight in weights.items() if isinstance(place, str)}
    numbered = enumerate(before.buckets)
    owners = {ExchangeRef(str(number)): queue for number, queue in numbered if isinstance(queue, str)}
    has_only_queues = len(owners) == len(before.buckets) and len(queues) == len(weights)
    if not (weights and has_only_queues and _has_slots_enough(before.bucket_count, weights)):
        return by_order, None
    table = SlotTable(HashRing.from_bindings([(slot, 1) for slot in owners], before.release), owners)
    return by_order, table.share_moved(table.reassigned(queues))


def _has_slots_enough(count: int, weights: Mapping[Destination, int]) -> bool:
    return count <= MOST_SLOTS and count * min(weights.values(), default=0) >= SLOTS_EACH * sum(
        weights.values()
    )
