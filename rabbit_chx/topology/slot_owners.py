"""The owner of each slot of an exchange: as listed in the file, or by weight with as few keys moved as possible.

A hand-over unbinds a slot before it binds it, so a slot has several queues only if something else has bound it. Then the first
queue that is a member counts as its owner.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from rabbit_chx.errors import InputError
from rabbit_chx.routing import ExchangeRef, HashRing
from rabbit_chx.routing.bindings import weight_of
from rabbit_chx.routing.slot_table import kept_slots, slot_counts
from rabbit_chx.topology.objects import ObjectSet, RingMember, SlotNames, order_of_name

#: The number of seeds of each slot whose keys each queue has now.
_Kept = dict[str, Counter[str]]


def queues_of_slots(live: ObjectSet) -> dict[str, tuple[str, ...]]:
    """Return the queues bound to each exchange other than a hash exchange, in the order of names."""
    queues_of: dict[str, dict[str, None]] = {}
    for binding in live.bindings:
        if isinstance(binding.destination, str):
            queues_of.setdefault(binding.source, {})[binding.destination] = None
    return {source: tuple(queues) for source, queues in queues_of.items()}


def owners_of_slots(
    names: SlotNames, members: Sequence[RingMember], ring: HashRing, bound: Mapping[str, Sequence[str]]
) -> dict[str, str]:
    """Return the queue of each slot, in the order of the slots.

    A slot keeps its queue as far as the weights allow. A slot without a queue goes to the queue that has most of its keys now.

    Args:
        names: the names of the slots.
        members: the queues that share them, with weights or lists.
        ring: the ring of the exchange that is there; empty if there is none.
        bound: the queues that each exchange is bound to, of `queues_of_slots`.

    Raises:
        InputError: there are no members, a queue would get no slot, or lists of slots do not have each slot once.
    """
    if any(member.slots is not None for member in members):
        return _as_listed(names, members)
    weights = {str(member.destination): weight_of(*member.binding) for member in members}
    live_owners = {
        slot: next((queue for queue in queues if queue in weights), queues[0])
        for slot in names.slots
        if (queues := bound.get(slot))
    }
    counts = slot_counts(names.count, weights, Counter(live_owners.values()))
    owners, remaining = kept_slots(names.slots, live_owners, counts)
    free = [slot for slot in names.slots if slot not in owners]
    if free:
        seeds = _kept_seeds(names, ring, bound) if any(slot not in live_owners for slot in free) else {}
        owners |= _shared(free, remaining, seeds)
    return {slot: owners[slot] for slot in names.slots}


def _as_listed(names: SlotNames, members: Sequence[RingMember]) -> dict[str, str]:
    owners: dict[str, str] = {}
    slots, exchange = names.slots, names.exchange
    for member in members:
        for number in member.slots or ():
            if not 0 <= number < names.count or slots[number] in owners:
                raise InputError(
                    f"slot {number} of {exchange} is listed twice, or there is none: list each of 0 to {names.count - 1} once"
                )
            owners[slots[number]] = str(member.destination)
    missing = [number for number, slot in enumerate(slots) if slot not in owners]
    if missing:
        raise InputError(
            f"slot {missing[0]} of {exchange} is not listed: list each of 0 to {names.count - 1} once"
        )
    return {slot: owners[slot] for slot in slots}


def _shared(free: Sequence[str], remaining: dict[str, int], seeds: _Kept) -> dict[str, str]:
    """Assign the free slots: those that keep the most keys first, then in the order of slots and of names."""
    takers = sorted((queue for queue, count in remaining.items() if count), key=order_of_name)
    wishes = sorted(
        (-seeds.get(slot, Counter())[queue], number, place)
        for number, slot in enumerate(free)
        for place, queue in enumerate(takers)
    )
    owners: dict[str, str] = {}
    for _, number, place in wishes:
        queue = takers[place]
        if remaining[queue] and free[number] not in owners:
            remaining[queue] -= 1
            owners[free[number]] = queue
    return owners


def _kept_seeds(names: SlotNames, ring: HashRing, bound: Mapping[str, Sequence[str]]) -> _Kept:
    """Return how many seeds of each slot each queue has now; empty without buckets."""
    from rabbit_chx.routing.arrays.seeds import pairs_of_seeds

    if not ring.bucket_count:
        return {}
    queues = [_queue_of_bucket(ring, number, bound) for number in range(len(ring.buckets))]
    slots = names.slots
    kept: _Kept = {}
    for before, after, seeds in pairs_of_seeds(ring.bucket_count, names.count):
        queue = queues[before]
        if queue is not None:
            kept.setdefault(slots[after], Counter())[queue] += seeds
    return kept


def _queue_of_bucket(ring: HashRing, number: int, bound: Mapping[str, Sequence[str]]) -> str | None:
    place = ring.buckets[number]
    if not isinstance(place, ExchangeRef):
        return place
    queues = bound.get(place.name, ())
    return queues[0] if len(queues) == 1 else None
