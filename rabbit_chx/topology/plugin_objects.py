"""The objects that plugins of the broker make and own: they are recognised here, left out of exports, and kept by plans.

`_TABLE` has one row for each kind of object. Not in it:

- the shards of rabbitmq_sharding, which depend on its policies: `shards`;
- queues with names of the broker (``amq.gen-...``), which no file contains. Such is the queue of STOMP's ``/temp-queue/``;
- exchanges with names that begin with ``amq.``, which no plan deletes, such as ``amq.rabbitmq.event`` of rabbitmq_event_exchange;
- what belongs to the user although a plugin may declare it: super streams, and the queues and exchanges that a shovel's definition or a STOMP
  client names. rabbitmq_queue_federation consumes from a queue of the user, and makes none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from rabbit_chx.routing import Destination, ExchangeRef, HashRing
from rabbit_chx.topology.model import AnyTopology, LiveTopology, Topology
from rabbit_chx.topology.objects import (
    FEDERATION_PURPOSE,
    LINK_NAME,
    BindingDefinition,
    ExchangeDefinition,
    ObjectKind,
    QueueDefinition,
    RingMember,
)
from rabbit_chx.words import FEW, listed

_FEDERATION = "rabbitmq_federation"
_FEDERATED = re.compile("federation: .+", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _MadeByPlugin:
    """A kind of object that a plugin makes. An object is of this kind if everything that is given here applies.

    Attributes:
        plugin: the plugin's name.
        what: the plural of what its objects are, as an operator says it.
        kind: exchange or queue.
        origin: where the server's sources make it.
        name: the expression that the whole name matches.
        type: the type of an exchange.
        arguments: arguments that it has, among others.
        durable: whether it is durable.
    """

    plugin: str
    what: str
    kind: ObjectKind
    origin: str
    name: re.Pattern[str] | None = None
    type: str | None = None
    arguments: Mapping[str, str] = field(default_factory=dict, hash=False)
    durable: bool | None = None

    def includes(self, made: ExchangeDefinition | QueueDefinition) -> bool:
        """Return True if an object is of this kind."""
        return (
            made.kind == self.kind
            and (self.name is None or self.name.fullmatch(made.name) is not None)
            and self.type in (None, made.type)
            and self.durable in (None, made.durable)
            and all(made.arguments.get(name) == value for name, value in self.arguments.items())
        )


_LINK = "deps/rabbitmq_exchange_federation/src/rabbit_federation_exchange_link.erl"  # before 4.1: deps/rabbitmq_federation
_TABLE = (
    _MadeByPlugin(
        _FEDERATION,
        "exchanges of federation links",
        "exchange",
        f"{_LINK}, ensure_internal_exchange/2",
        type="x-federation-upstream",
    ),
    _MadeByPlugin(
        _FEDERATION,
        "exchanges of federation links",  # a fanout exchange if the upstream does not have the plugin
        "exchange",
        f"{_LINK}, ensure_internal_exchange/2",
        name=_FEDERATED,
        arguments=FEDERATION_PURPOSE,
    ),
    _MadeByPlugin(
        _FEDERATION,
        "queues of federation links",
        "queue",
        f"{_LINK}, consume_from_upstream_queue/1",
        name=_FEDERATED,
        arguments=FEDERATION_PURPOSE,
    ),
    _MadeByPlugin(
        "rabbitmq_mqtt",  # and rabbitmq_web_mqtt
        "queues of MQTT clients",
        "queue",
        "deps/rabbitmq_mqtt/src/rabbit_mqtt_util.erl, queue_name/2",
        name=re.compile(r"mqtt-subscription-.*qos[01]", re.DOTALL),
    ),
    _MadeByPlugin(
        "rabbitmq_mqtt",
        "queues of MQTT clients",
        "queue",
        "deps/rabbitmq_mqtt/src/rabbit_mqtt_util.erl, queue_name_bin/2: a delayed will, since 3.13",
        name=re.compile(r"mqtt-will-.+", re.DOTALL),
    ),
    _MadeByPlugin(
        "rabbitmq_stomp",  # and rabbitmq_web_stomp
        "queues of STOMP subscriptions",
        "queue",
        "deps/rabbitmq_stomp/src/rabbit_stomp_util.erl, subscription_queue_name/3",
        name=re.compile(r"stomp-subscription-[\w-]+", re.ASCII),
    ),
    _MadeByPlugin(
        "rabbitmq_management",
        "queues of the aliveness test",
        "queue",
        "deps/rabbitmq_management/src/rabbit_mgmt_wm_aliveness_test.erl, to_json/2: old releases",
        name=re.compile("aliveness-test"),
        durable=False,
    ),
)


def _row_of(made: ExchangeDefinition | QueueDefinition) -> _MadeByPlugin | None:
    return next((row for row in _TABLE if row.includes(made)), None)


def _find_made(topology: AnyTopology) -> dict[Destination, _MadeByPlugin]:
    """Return the objects of plugins, with the rows of the table.

    A definitions file of 4.3 has the bindings of a link without its exchange, which counts by its name.
    """
    objects: tuple[ExchangeDefinition | QueueDefinition, ...] = (*topology.exchanges, *topology.queues)
    found = {made.ref: row for made in objects if (row := _row_of(made)) is not None}
    listed_exchanges = {exchange.name for exchange in topology.exchanges}
    places = [member.destination for exchange in topology.exchanges for member in exchange.ring or ()]
    places += [binding.destination for binding in topology.bindings]
    for place in places:
        if (
            isinstance(place, ExchangeRef)
            and place.name not in listed_exchanges
            and LINK_NAME.fullmatch(place.name)
        ):
            found[place] = _TABLE[0]
    return found


def plugin_objects(topology: AnyTopology) -> frozenset[Destination]:
    """Return the exchanges and queues that plugins make and own, except shards."""
    return frozenset(_find_made(topology))


def federation_links(topology: AnyTopology) -> frozenset[Destination]:
    """Return the exchanges and queues of federation links."""
    return frozenset(place for place, row in _find_made(topology).items() if row.plugin == _FEDERATION)


def without_plugin_objects(topology: LiveTopology) -> LiveTopology:
    """Return a topology without the objects that plugins make, and without their bindings. `left_out` of its facts lists them."""
    made = _find_made(topology)
    if not made:
        return topology
    names: dict[tuple[str, str], list[str]] = {}
    for place, row in made.items():
        named = names.setdefault((row.what, row.plugin), [])
        named.append(place.name if isinstance(place, ExchangeRef) else place)

    def others(ring: Sequence[RingMember] | None) -> tuple[RingMember, ...] | None:
        return None if ring is None else tuple(member for member in ring if member.destination not in made)

    return replace(
        topology,
        exchanges=tuple(
            replace(exchange, ring=others(exchange.ring))
            for exchange in topology.exchanges
            if exchange.ref not in made
        ),
        queues=tuple(queue for queue in topology.queues if queue.name not in made),
        bindings=tuple(binding for binding in topology.bindings if not is_of(binding, made)),
        rings={name: _ring_without(ring, made) for name, ring in topology.rings.items()},
        facts=topology.facts.leaving_out(
            f"{what}: {listed(of_plugin, FEW, ';')}: the plugin {plugin} makes them"
            for (what, plugin), of_plugin in names.items()
        ),
    )


def _ring_without(ring: HashRing, made: Mapping[Destination, object]) -> HashRing:
    if not any(place in made for place in ring.destinations):
        return ring
    bindings = ring.bindings
    return replace(
        ring,
        buckets=tuple(place for place in ring.buckets if place not in made),
        bindings=None if bindings is None else tuple(one for one in bindings if one[0] not in made),
    )


def is_of(binding: BindingDefinition, made: Mapping[Destination, object] | frozenset[Destination]) -> bool:
    """Return True if an end of a binding is one of these objects."""
    return binding.destination in made or ExchangeRef(binding.source) in made


def with_links(wanted: Topology, live: LiveTopology) -> Topology:
    """Return the wanted topology whose rings also have the live members of plugins, each behind the member that precedes it.

    So a link stays where it is, as long as the members before it stay.
    """
    made = plugin_objects(live)
    if not made:
        return wanted
    rings = {exchange.name: exchange.ring for exchange in live.exchanges if exchange.ring}
    return replace(
        wanted,
        exchanges=tuple(
            exchange
            if exchange.ring is None or exchange.name not in rings
            else replace(exchange, ring=_merge(exchange.ring, rings[exchange.name], made))
            for exchange in wanted.exchanges
        ),
    )


def _merge(
    wanted: Sequence[RingMember], live: Sequence[RingMember], made: frozenset[Destination]
) -> tuple[RingMember, ...]:
    merged = list(wanted)
    listed_places = {member.destination for member in wanted}
    end = 0
    for member in live:
        if member.destination in made and member.destination not in listed_places:
            merged.insert(end, member)
            end += 1
        elif member in merged:
            end = max(end, merged.index(member) + 1)
    return tuple(merged)
