"""The topology that a repair of one ring wants: that exchange alone, with the members that its ring should have."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rabbit_chx.errors import InputError
from rabbit_chx.routing.bindings import weight_of
from rabbit_chx.topology.checking.slotted_ring_findings import numbered_slots
from rabbit_chx.topology.checking.topology_check import live_hash_exchange
from rabbit_chx.topology.model import Topology
from rabbit_chx.topology.slots import laid_out

if TYPE_CHECKING:
    from rabbit_chx.routing import Destination, HashRing
    from rabbit_chx.topology.objects import RingMember

__all__ = ["repair_target"]


def repair_target(live: Topology, exchange: str, wanted: Topology | None = None) -> Topology:
    """Return the topology that a repair wants; `plan` says what it takes.

    It has one exchange. Everything else stays as it is. The exchange is as it is there, but for its ring:

    - With `wanted`, the ring has the members of the topology, in its order.
    - Without it, each bound destination is a member once, in the order in which the ring has them; those without a bucket
      come last. Of several bindings of a destination the one stays whose weight is its number of buckets, or else the
      first. Slots are put in the order of their numbers.

    Args:
        live: what is there, with the rings that were read.
        exchange: the exchange.
        wanted: the topology whose order is restored; None: what is there is healed.

    Raises:
        NotFoundError: there is no exchange of that name.
        MismatchError: the exchange is of another type.
        InputError: the topology does not say a ring of that exchange, or the exchange is external.
    """
    there = live_hash_exchange(live, exchange)
    if wanted is None:
        ring = live.rings.get(exchange)
        members = _healed(there.ring or (), ring)
        members = numbered_slots(exchange, members) or members
        return Topology((replace(there, ring=members, owner="ours"),))
    ours = laid_out(wanted, live).exchange(exchange)
    if ours is None or ours.ring is None:
        raise InputError(
            f"the topology says no ring of exchange {exchange!r}: add it, or repair without a file",
            exchange=exchange,
        )
    if ours.owner == "external":
        raise InputError(
            f"exchange {exchange!r} is external in the topology, so its owner repairs it: ask them, or take "
            'owner = "external" out',
            exchange=exchange,
        )
    limit = wanted.max_share_moved if ours.max_share_moved is None else ours.max_share_moved
    repaired = replace(there, ring=ours.ring, owner="ours", max_share_moved=limit)
    return Topology((repaired,), cluster=wanted.cluster)


def _healed(bound: tuple[RingMember, ...], ring: HashRing | None) -> tuple[RingMember, ...]:
    by_destination: dict[Destination, list[RingMember]] = {}
    for member in bound:
        by_destination.setdefault(member.destination, []).append(member)
    order = [] if ring is None else [place for place in ring.destinations if place in by_destination]
    silent = [place for place in by_destination if place not in set(order)]
    return tuple(_one_of(by_destination[place], ring) for place in (*order, *silent))


def _one_of(members: list[RingMember], ring: HashRing | None) -> RingMember:
    if ring is None or len(members) == 1:
        return members[0]
    count = ring.buckets.count(members[0].destination)
    return next((one for one in members if weight_of(*one.binding) == count), members[0])
