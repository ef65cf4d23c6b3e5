"""The wanted topology of a ring repair: the exchange alone, with the correct members of its ring."""

from __future__ import annotations

from dataclasses import replace

from rabbit_chx.errors import InputError
from rabbit_chx.topology.live_rings import find_recorded_ring, live_hash_exchange
from rabbit_chx.topology.model import LiveTopology, Topology
from rabbit_chx.topology.planning.comparison import check_wanted, live_side
from rabbit_chx.topology.slots.layout import expand
from rabbit_chx.topology.slots.owners import repair_members


def repair_target(live: LiveTopology, exchange: str, wanted: Topology | None = None) -> Topology:
    """Return the wanted topology of a repair, for `plan`.

    It contains one exchange, with the live attributes and another ring; all other objects stay unchanged:

    - With `wanted`, the ring has the members of that topology, in its order.
    - Without it, the ring has its own members, as `repair_members` orders them: in the order of the record on the broker, if there is one.

    Args:
        live: the live topology, with the rings that were read.
        exchange: the exchange.
        wanted: the topology whose order is restored; None: the live ring is healed.

    Raises:
        NotFoundError: the exchange does not exist.
        MismatchError: the exchange is of another type.
        InputError: `wanted` does not contain a ring of that exchange, or its order is assumed; the exchange is external; or an argument is of
            another type.
    """
    live = live_side(live)
    if wanted is not None:
        check_wanted(wanted)
    live_exchange = live_hash_exchange(live, exchange)
    if wanted is None:
        ring = live.rings.get(exchange)
        bound = live_exchange.ring or ()
        recorded = None if ring is None else find_recorded_ring(live, exchange)
        members = repair_members(exchange, bound, ring if recorded is None else recorded[1])
        return Topology((replace(live_exchange, ring=members, owner="ours"),))
    if wanted.is_assumed(exchange):
        raise InputError(
            f"the order of {exchange!r} in the topology is assumed, as that of a definitions file: repair without a file, or with a "
            "topology file",
            exchange=exchange,
        )
    target = expand(wanted, live).exchange(exchange)
    if target is None or target.ring is None:
        raise InputError(
            f"the topology has no ring of exchange {exchange!r}: add it, or repair without a file",
            exchange=exchange,
        )
    if target.owner == "external":
        raise InputError(
            f"exchange {exchange!r} is external in the topology, so its owner repairs it: ask them, or take "
            'owner = "external" out',
            exchange=exchange,
        )
    limit = wanted.max_share_moved if target.max_share_moved is None else target.max_share_moved
    repaired = replace(live_exchange, ring=target.ring, owner="ours", max_share_moved=limit)
    return Topology((repaired,), cluster=wanted.cluster, vhost=wanted.vhost)
