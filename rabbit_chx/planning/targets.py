"""What a command wants instead of what is there: topologies for `plan`, which is the only way to reach them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from rabbit_chx.errors import InputError
from rabbit_chx.planning.diff import as_live, complete
from rabbit_chx.planning.plan import plan
from rabbit_chx.planning.plan_value import Plan
from rabbit_chx.planning.slot_layout import expand_slots
from rabbit_chx.records.live_rings import find_recorded, live_hash_exchange
from rabbit_chx.routing import HashRing, Release
from rabbit_chx.topology.model import LiveTopology, Topology
from rabbit_chx.topology.objects.objects import (
    HASH_EXCHANGE,
    MODULUS_EXCHANGE,
    ExchangeDefinition,
    FileFacts,
    QueueDefinition,
)
from rabbit_chx.topology.slots.owners import repair_members


def arrange(wanted: Topology, live: LiveTopology) -> Topology:
    """Return the wanted topology with each ring in the order that moves the fewest keys away from the live ring.

    A ring that is new, or whose exchange is declared again, keeps its order. Of a definitions file, the live order is kept. The members of
    an exchange with slots list their slots instead of a weight: those that they have on the broker, as far as the weights permit.

    Args:
        wanted: the wanted topology.
        live: the live topology, with the rings that were read.

    Raises:
        InputError: as in `plan`.
    """
    return reordered(plan(wanted, live), live)


def reordered(made: Plan, live: LiveTopology) -> Topology:
    """Return the wanted topology of a plan that was made for a live topology, as `arrange` does."""
    live = as_live(live)
    wanted = complete(made.wanted, live)
    layouts = expand_slots(wanted, live)[2]
    members = {name: layout.pin_members() for name, layout in layouts.items() if not layout.is_pinned}
    orders = {
        name: proposal.ring
        for name, ring in made.rings.items()
        for proposal in ring.proposals
        if proposal.strategy == "least-moving-order" and name not in layouts
    }
    exchanges = (
        replace(
            exchange,
            ring=orders.get(exchange.name, exchange.ring),
            members=members.get(exchange.name, exchange.members),
        )
        for exchange in wanted.exchanges
    )
    return replace(wanted, exchanges=tuple(exchanges))


def declared(live: LiveTopology, exchange: ExchangeDefinition, queues: Iterable[QueueDefinition]) -> Topology:
    """Return one exchange and its queues, where a binding that exists keeps its arguments.

    Args:
        live: the live topology.
        exchange: the exchange, with its members in order.
        queues: the queues. An empty type is the default of the vhost, or that of a queue that exists if the default is not known.
    """
    found = live.exchange(exchange.name)
    bound = {member.binding: member for member in (found and found.ring) or ()}
    ring = tuple(bound.get(member.binding, member) for member in exchange.ring or ())
    return Topology((replace(exchange, ring=ring),), tuple(_with_type(queue, live) for queue in queues))


def _with_type(queue: QueueDefinition, live: LiveTopology) -> QueueDefinition:
    if queue.type:
        return queue
    if live.facts.limits.default_queue_type is not None:
        return queue.with_default_type(live.facts.limits.default_queue_type)
    known = live.queue(queue.name)
    return queue if known is None else replace(queue, type=known.type)


def healed(live: LiveTopology, exchange: str) -> Topology:
    """Return one exchange as it is, with its ring repaired: its members as `repair_members` orders them, in the order of its record.

    Without a record they keep their order.

    Args:
        live: the live topology, with the rings that were read.
        exchange: the name of the exchange.

    Raises:
        NotFoundError: the exchange does not exist.
        MismatchError: the exchange is of another type.
        InputError: `live` is of another type.
    """
    live = as_live(live)
    definition = live_hash_exchange(live, exchange)
    ring = live.rings.get(exchange)
    if ring is not None and (recorded := find_recorded(live, exchange)) is not None:
        ring = recorded.ring
    members = repair_members(exchange, definition.ring or (), ring)
    return Topology((replace(definition, ring=members, owner="ours"),))


def with_release(topology: Topology | LiveTopology, release: Release) -> LiveTopology:
    """Return what a broker of a release has: the same objects, and each ring as its members make it in their order.

    An order that is not known stays so.

    A ring of a live topology keeps its buckets if the release refuses a weight: the binding is older than the rule.

    Raises:
        InputError: the release refuses a weight of a topology of a file.
    """
    objects = topology.as_wanted() if isinstance(topology, LiveTopology) else topology
    unordered = objects.file.unordered
    objects = replace(objects, file=FileFacts())
    rings = {}
    for exchange in objects.exchanges:
        if exchange.type == HASH_EXCHANGE:
            try:
                rings[exchange.name] = objects.ring(exchange.name, release)
            except InputError:
                if not isinstance(topology, LiveTopology):
                    raise
                rings[exchange.name] = topology.rings[exchange.name].with_release(release)
    rings |= {
        name: HashRing.unordered(ring.bindings or (), release)
        for name, ring in rings.items()
        if name in unordered
    }
    return replace(LiveTopology.of_file(objects, release), rings=rings)


def without_exclusive(topology: LiveTopology) -> LiveTopology:
    """Return the topology without exclusive queues, which are deleted with the connection of a client, and their bindings.

    A ring keeps them as members, because its other members would move without them.
    """
    exclusive = {queue.name for queue in topology.queues if queue.exclusive}
    left_out = [
        f"queue {name}: it is exclusive, and deleted with its connection" for name in sorted(exclusive)
    ]
    left_out += [
        f"queue {member.destination} is still a member of {exchange.name}, because the ring would change without it"
        for exchange in topology.exchanges
        for member in exchange.ring or ()
        if member.destination in exclusive
    ]
    return replace(
        topology,
        queues=tuple(queue for queue in topology.queues if not queue.exclusive),
        bindings=tuple(binding for binding in topology.bindings if binding.destination not in exclusive),
        facts=replace(
            topology.facts.leaving_out(left_out),
            sources_left_out=topology.sources_left_out
            | {binding.source for binding in topology.bindings if binding.destination in exclusive},
        ),
    )


def with_queues(topology: Topology) -> Topology:
    """Return the topology with `queues` instead of the bindings of each ``x-modulus-hash`` exchange whose bindings are those of queues."""
    exchanges = []
    for exchange in topology.exchanges:
        bound = [binding for binding in topology.bindings if binding.source == exchange.name]
        queues = [binding.destination for binding in bound if isinstance(binding.destination, str)]
        listed = replace(exchange, queues=tuple(queues))
        is_whole = (
            bound and exchange.type == MODULUS_EXCHANGE and exchange.name not in topology.sources_left_out
        )
        same = is_whole and replace(topology, exchanges=(listed,), bindings=()).bindings == tuple(bound)
        exchanges.append(listed if same else exchange)
    return replace(topology, exchanges=tuple(exchanges))
