"""What a live topology says about the routing of one exchange: its ring, its slots and its map of keys. Nothing is read here."""

from __future__ import annotations

from typing import NoReturn

from rabbit_chx.amqp.exchange_types import exchange_type_remedy, why_not_routed
from rabbit_chx.errors import BrokerRefusedError, MismatchError
from rabbit_chx.records.live_rings import find_live_ring, live_hash_exchange
from rabbit_chx.routing import ConsistentHashExchange, ExchangeRef, HashRing, ModulusHashExchange
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.routing.release import NEWEST_COMPARED
from rabbit_chx.topology.model import LiveTopology
from rabbit_chx.topology.modulus import modulo_map_of, modulus_of
from rabbit_chx.topology.objects import (
    ALTERNATE_EXCHANGE,
    HASH_EXCHANGE,
    MODULUS_EXCHANGE,
    ExchangeDefinition,
)
from rabbit_chx.topology.reach import Reach
from rabbit_chx.topology.slots import SlotView, view_slots

_REFUSED = 406


def find_live_exchange(live: LiveTopology, name: str) -> ExchangeDefinition:
    """Return an exchange of any type.

    Raises:
        NotFoundError: it does not exist.
    """
    exchange = live.exchange(name)
    return live_hash_exchange(live, name) if exchange is None else exchange


def ring_of(live: LiveTopology, name: str) -> HashRing:
    """Return the ring of an exchange, by the ring source or the record, or else the ring that the bindings make in their listed order.

    Raises:
        NotFoundError: it does not exist.
        MismatchError: it is of another type.
        BrokerRefusedError: its plugin is not enabled, so that no ring source reads it.
    """
    exchange = find_live_exchange(live, name)
    if exchange.type != HASH_EXCHANGE:
        remedy = "pass another one"
        if exchange.type == MODULUS_EXCHANGE:
            remedy = "it has no ring; in Python use Broker.exchange, on the command line `route` or `compare`"
        raise MismatchError(
            f"exchange {name!r} in vhost {live.vhost!r} is of type {exchange.type}, not {HASH_EXCHANGE}: {remedy}",
            exchange=name,
        )
    if name not in live.rings:
        refuse_unrouted(live, exchange)
    return find_live_ring(live, exchange, name).ring


def slots_of(live: LiveTopology, name: str) -> SlotView:
    """Return the ring of an exchange and its slots. Errors are those of `ring_of`."""
    return view_slots(name, ring_of(live, name), live.exchanges, live.bindings)


def key_map_of(live: LiveTopology, name: str) -> KeyMap:
    """Return what maps keys to destinations: the ring or its slots, the modulus exchange, or the super stream.

    Raises:
        NotFoundError: it does not exist.
        MismatchError: it does not hash.
        BrokerRefusedError: as `ring_of`.
    """
    exchange = find_live_exchange(live, name)
    if exchange.type == HASH_EXCHANGE:
        return slots_of(live, name).key_map()
    found = modulo_map_of(exchange, live.bindings, live.release, "read", live.queues)
    if found is None:
        _refuse_type(live, exchange, ", or a super stream")
    return found


def mirror_of(live: LiveTopology, name: str) -> ConsistentHashExchange | ModulusHashExchange:
    """Return a mirror of the routing of an exchange.

    Raises:
        NotFoundError: it does not exist.
        MismatchError: it does not hash.
        BrokerRefusedError: its plugin is not enabled, so that the broker refuses every publish.
    """
    exchange = find_live_exchange(live, name)
    refuse_unrouted(live, exchange)
    if exchange.type == MODULUS_EXCHANGE:
        bound = [binding for binding in live.bindings if binding.source == name]
        return modulus_of(name, bound, live.release or NEWEST_COMPARED, "read")
    if exchange.type != HASH_EXCHANGE:
        _refuse_type(live, exchange, "")
    return ConsistentHashExchange(name, ring_of(live, name), arguments=exchange.hash_arguments)


def _refuse_type(live: LiveTopology, exchange: ExchangeDefinition, others: str) -> NoReturn:
    raise MismatchError(
        f"exchange {exchange.name!r} in vhost {live.vhost!r} is of type {exchange.type}, which does not hash: pass one of type "
        f"{HASH_EXCHANGE} or {MODULUS_EXCHANGE}{others}",
        exchange=exchange.name,
    )


def why_unrouted(live: LiveTopology, exchange: ExchangeDefinition) -> str:
    """Return why an exchange routes nothing, and what to do, as a sentence; empty if the broker has its type."""
    why = why_not_routed(exchange.name, exchange.type, live.facts.limits.exchange_types)
    return f"{why}: {exchange_type_remedy(exchange.type)}" if why else ""


def refuse_unrouted(live: LiveTopology, exchange: ExchangeDefinition) -> None:
    """Refuse an exchange that routes nothing.

    Raises:
        BrokerRefusedError: its plugin is not enabled.
    """
    if why := why_unrouted(live, exchange):
        raise BrokerRefusedError(why, exchange=exchange.name, reply_code=_REFUSED)


def alternate_of(live: LiveTopology, exchange: ExchangeDefinition) -> str | None:
    """Return the alternate exchange, by argument or by the policy that applies; None if it has none."""
    policy = live.policy_of(exchange)
    definition = {} if policy is None else policy.definition
    name = exchange.arguments.get(ALTERNATE_EXCHANGE) or definition.get(ALTERNATE_EXCHANGE)
    return name if isinstance(name, str) else None


def dead_ends_of(live: LiveTopology, name: str) -> dict[ExchangeRef, str]:
    """Return the exchanges in the ring of an exchange, other than slots, that lead to no queue, with a sentence."""
    others = sorted(slots_of(live, name).other_exchanges, key=str)
    if not others:
        return {}
    reach = Reach(live)
    return {
        place: f"exchange {place.name} leads to no queue, and is in the ring of exchange {name!r}: bind a queue to it, or take it out of "
        "the ring"
        for place in others
        if reach.leads_nowhere(place.name)
    }
