"""What a full restart of a single node makes of a ring.

Mirrors rabbitmq-server ``rabbit_exchange_type_consistent_hash.erl``, ``init/0`` and ``recover/0`` (v3.8.5 to v4.2.x) or
``recover/2`` (from v4.3.0): on Mnesia the ring is in memory only, and is made anew of the bindings; on Khepri it is kept.
Compared with real brokers of 3.8.9, 3.10.8, 4.0.5 and 4.3.6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rabbit_chx.errors import NotDeterminedError
from rabbit_chx.routing.bindings import Binding, order_of_binding
from rabbit_chx.routing.rules import RESTART_EMPTIES, RESTART_KEEPS, RESTART_SHUFFLES

if TYPE_CHECKING:
    from rabbit_chx.routing.ring import HashRing

__all__ = ["bindings_added_by_restart"]


def bindings_added_by_restart(ring: HashRing) -> tuple[bool, list[Binding]]:
    """Whether the buckets stay over a restart, and which bindings are then added, in that order.

    Raises:
        NotDeterminedError: no rule says in which order, or the bindings are not known.
    """
    release, bindings = ring.release, ring.bindings
    if release.follows(RESTART_KEEPS):
        held = set(ring.destinations)
        lost = [binding for binding in bindings or () if binding[0] not in held]
        return True, sorted(lost, key=order_of_binding)
    if release.follows(RESTART_EMPTIES):
        return False, []
    if bindings is None:
        raise NotDeterminedError(
            f"RabbitMQ {release} makes the ring anew of its bindings, and this ring does not know them: read the ring "
            "after the restart"
        )
    if release.follows(RESTART_SHUFFLES) and len(bindings) > 1:
        raise NotDeterminedError(
            f"RabbitMQ {release} adds the bindings again in no order that can be computed: read the ring after the "
            "restart, or unbind and bind everything in the order that is wanted"
        )
    return False, sorted(bindings, key=order_of_binding)
