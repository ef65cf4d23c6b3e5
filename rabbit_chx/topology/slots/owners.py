"""The names of the slots of an exchange, and the queue that owns each slot.

The file lists the slots of each queue, or its weights determine them, with as few keys moved as possible.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rabbit_chx.errors import InputError
from rabbit_chx.grouping import grouped
from rabbit_chx.routing import ExchangeRef, HashRing
from rabbit_chx.routing.bindings import Place
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.routing.slot_table import kept_slots, slot_counts
from rabbit_chx.topology.objects.objects import RingMember, order_of_name

_LEAST_WIDTH = 2
_SLOT_NAME = re.compile(r".+\.slot\.[0-9]+", re.DOTALL)


def is_slot_name(name: str) -> bool:
    """Return True for a name as those of slot exchanges."""
    return _SLOT_NAME.fullmatch(name) is not None


def slot_width(count: int) -> int:
    """Return the number of digits in the names of `count` slots."""
    return max(_LEAST_WIDTH, len(str(count - 1)))


@dataclass(frozen=True, slots=True)
class SlotNames:
    """The names of the objects of an exchange with slots."""

    exchange: str
    count: int

    @property
    def prefix(self) -> str:
        """The prefix of each slot exchange's name; its number follows."""
        return f"{self.exchange}.slot."

    @property
    def slots(self) -> tuple[str, ...]:
        """The names of the slot exchanges, in the order of the ring."""
        width = slot_width(self.count)
        return tuple(f"{self.prefix}{number:0{width}d}" for number in range(self.count))

    @property
    def refs(self) -> tuple[ExchangeRef, ...]:
        """The slot exchanges as destinations of the ring, in its order."""
        return tuple(map(ExchangeRef, self.slots))

    @property
    def park(self) -> str:
        """The name of the parking exchange, and of the parking queue."""
        return f"{self.exchange}.park"

    @property
    def exchanges(self) -> frozenset[str]:
        """The names of all exchanges that the layout adds."""
        return frozenset((*self.slots, self.park))


def number_slots(exchange: str, bound: Sequence[RingMember]) -> tuple[RingMember, ...] | None:
    """Return the members of a ring of slots in the order of their numbers; None if they are not the slots of an exchange."""
    members = tuple(map(RingMember, SlotNames(exchange, len(bound)).refs))
    return members if bound and set(members) == set(bound) else None


def pin_members(owners: Iterable[str]) -> tuple[RingMember, ...]:
    """Return the queues, sorted by name, with the numbers of their slots. `owners` are the queues of the slots, in the order of the slots."""
    slots_of = grouped((queue, number) for number, queue in enumerate(owners))
    return tuple(
        RingMember(queue, slots=tuple(slots_of[queue])) for queue in sorted(slots_of, key=order_of_name)
    )


def repair_members(
    exchange: str, bound: Sequence[RingMember], ring: HashRing | None
) -> tuple[RingMember, ...]:
    """Return the members that the ring of an exchange has after a repair without a file: a check and a repair compare the ring with them.

    Each bound destination is a member once, in the order of the ring; destinations without a bucket are last. Of several bindings of a
    destination, the one whose weight is its number of buckets stays, or else the first. Slots are in the order of their numbers.

    Args:
        exchange: the exchange's name.
        bound: its bindings.
        ring: its ring; None if it is not known.
    """
    by_destination = grouped((member.destination, member) for member in bound)
    order = [] if ring is None else [place for place in ring.destinations if place in by_destination]
    silent = [place for place in by_destination if place not in set(order)]
    members = tuple(_choose_member(by_destination[place], ring) for place in (*order, *silent))
    return number_slots(exchange, members) or members


def _choose_member(members: Sequence[RingMember], ring: HashRing | None) -> RingMember:
    if ring is None or len(members) == 1:
        return members[0]
    count = ring.buckets.count(members[0].destination)
    return next((member for member in members if member.weight == count), members[0])


#: The share of the keys of each slot that each queue has now.
_Kept = dict[str, dict[Place, float]]


def assign_owners(
    names: SlotNames, members: Sequence[RingMember], now: KeyMap, bound: Mapping[ExchangeRef, Sequence[str]]
) -> dict[str, str]:
    """Return the queue of each wanted slot, in the order of the slots.

    A slot keeps its queue as far as the weights permit. A slot without a queue is assigned to the queue that has most of its keys now.

    Args:
        names: the names of the slots.
        members: the queues that share them, with weights or lists.
        now: the live map of the exchange, as `SlotView.map_of` returns it; empty if it does not exist.
        bound: the queues of the live slots.

    Raises:
        InputError: there are no members, a queue would get no slot, or lists of slots do not contain each slot once.
    """
    if any(member.slots is not None for member in members):
        return _read_lists(names, members)
    weights = {str(member.destination): member.weight for member in members}
    live_owners = {
        slot: next((queue for queue in queues if queue in weights), queues[0])
        for slot in names.slots
        if (queues := bound.get(ExchangeRef(slot)))
    }
    counts = slot_counts(names.count, weights, Counter(live_owners.values()))
    owners, remaining = kept_slots(names.slots, live_owners, counts)
    free = [slot for slot in names.slots if slot not in owners]
    if free:
        kept = _find_kept_shares(names, now) if any(slot not in live_owners for slot in free) else {}
        owners |= _share_out(free, remaining, kept)
    return {slot: owners[slot] for slot in names.slots}


def _read_lists(names: SlotNames, members: Sequence[RingMember]) -> dict[str, str]:
    owners: dict[str, str] = {}
    slots = names.slots
    exchange = names.exchange
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


def _share_out(free: Sequence[str], remaining: dict[str, int], kept: _Kept) -> dict[str, str]:
    """Assign the free slots: those that keep the most keys first, then in the order of slots and of names."""
    takers = sorted((queue for queue, count in remaining.items() if count), key=order_of_name)
    wishes = sorted(
        (-kept.get(slot, {}).get(queue, 0.0), number, place)
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


def _find_kept_shares(names: SlotNames, now: KeyMap) -> _Kept:
    """Return the share of the keys of each slot that each destination has now; empty without buckets."""
    kept: _Kept = {}
    if now.bucket_count:
        slots = HashRing.from_buckets(names.refs, now.release)
        for (place, slot), share in now.flows(slots).items():
            assert isinstance(slot, ExchangeRef)  # each bucket is that of a slot
            kept.setdefault(slot.name, {})[place] = share
    return kept
