"""The objects that plugins of the broker make and own: they are recognised here, left out of exports, and kept by plans.

`_TABLE` has one row for each kind of object. Not in it:

- the shards of rabbitmq_sharding, which depend on its policies: `find_kept_shards`;
- queues with names of the broker (``amq.gen-...``), which no file contains. Such is the queue of STOMP's ``/temp-queue/``;
- exchanges with names that begin with ``amq.``, which no plan deletes, such as ``amq.rabbitmq.event`` of rabbitmq_event_exchange;
- what belongs to the user although a plugin may declare it: super streams, and the queues and exchanges that a shovel's definition or a STOMP
  client names. rabbitmq_queue_federation consumes from a queue of the user, and makes none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rabbit_chx.analysis.findings import Finding
from rabbit_chx.checks import check_whole, short_string
from rabbit_chx.errors import InputError
from rabbit_chx.result_fields import shown
from rabbit_chx.routing import Destination, ExchangeRef, HashRing, Release
from rabbit_chx.routing.bindings import as_tuple
from rabbit_chx.routing.rules import MODULUS_UNORDERED
from rabbit_chx.text import FEW, listed, plural
from rabbit_chx.topology.arguments import SHARDS_PER_NODE, setting_of
from rabbit_chx.topology.model import AnyTopology, LiveTopology, Topology
from rabbit_chx.topology.objects import (
    FEDERATION_PURPOSE,
    LINK_NAME,
    MODULUS_EXCHANGE,
    BindingDefinition,
    ExchangeDefinition,
    ObjectKind,
    QueueDefinition,
    RingMember,
)

_FEDERATION = "rabbitmq_federation"
#: The names are those of rabbitmq-server ``deps/rabbitmq_sharding/src/rabbit_sharding_util.erl``, ``make_queue_name/3``, and
#: ``rabbit_sharding_shard.erl``, ``ensure_sharded_queues/1`` (v3.10.0 to v4.3.6).
_SHARD = re.compile(r"sharding: (.+) - (\S+@\S+) - (0|[1-9][0-9]*)", re.ASCII | re.DOTALL)
_FEDERATED = re.compile("federation: .+", re.DOTALL)
_MQTT = re.compile(r"mqtt-subscription-.*qos[01]|mqtt-will-.+", re.DOTALL)
_STOMP = re.compile(r"stomp-subscription-[\w-]+", re.ASCII)
_ALIVE = re.compile("aliveness-test")
_LINKED_EXCHANGES = "exchanges of federation links"


@dataclass(frozen=True, slots=True)
class _MadeByPlugin:
    """A kind of object that a plugin makes. An object is of this kind if everything that is given here applies.

    Attributes:
        plugin: the plugin's name.
        what: the plural of what its objects are, as an operator says it.
        kind: exchange or queue.
        name: the expression that the whole name matches.
        type: the type of an exchange.
        arguments: arguments that it has, among others.
        durable: whether it is durable.
    """

    plugin: str
    what: str
    kind: ObjectKind
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


#: Each row with the place where the server's sources make it; those of federation in
#: deps/rabbitmq_exchange_federation/src/rabbit_federation_exchange_link.erl, before 4.1 in deps/rabbitmq_federation.
_TABLE = (
    # ensure_internal_exchange/2; a fanout exchange if the upstream does not have the plugin
    _MadeByPlugin(_FEDERATION, _LINKED_EXCHANGES, "exchange", type="x-federation-upstream"),
    _MadeByPlugin(_FEDERATION, _LINKED_EXCHANGES, "exchange", name=_FEDERATED, arguments=FEDERATION_PURPOSE),
    # consume_from_upstream_queue/1
    _MadeByPlugin(
        _FEDERATION, "queues of federation links", "queue", name=_FEDERATED, arguments=FEDERATION_PURPOSE
    ),
    # and rabbitmq_web_mqtt; deps/rabbitmq_mqtt/src/rabbit_mqtt_util.erl, queue_name/2, and queue_name_bin/2: a delayed will, since 3.13
    _MadeByPlugin("rabbitmq_mqtt", "queues of MQTT clients", "queue", name=_MQTT),
    # and rabbitmq_web_stomp; deps/rabbitmq_stomp/src/rabbit_stomp_util.erl, subscription_queue_name/3
    _MadeByPlugin("rabbitmq_stomp", "queues of STOMP subscriptions", "queue", name=_STOMP),
    # deps/rabbitmq_management/src/rabbit_mgmt_wm_aliveness_test.erl, to_json/2: old releases
    _MadeByPlugin("rabbitmq_management", "queues of the aliveness test", "queue", name=_ALIVE, durable=False),
)


def _find_made(topology: AnyTopology) -> dict[Destination, _MadeByPlugin]:
    """Return the objects of plugins, with the rows of the table.

    A definitions file of 4.3 has the bindings of a link without its exchange, which counts by its name.
    """
    objects: tuple[ExchangeDefinition | QueueDefinition, ...] = (*topology.exchanges, *topology.queues)
    # The first row that includes an object counts.
    found = {made.ref: row for made in objects for row in reversed(_TABLE) if row.includes(made)}
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
    exchanges = []
    for exchange in wanted.exchanges:
        ring = rings.get(exchange.name)
        if exchange.ring is None or ring is None:
            exchanges.append(exchange)
        else:
            exchanges.append(replace(exchange, ring=_merge(exchange.ring, ring, made)))
    return replace(wanted, exchanges=tuple(exchanges))


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


# -- shards


@dataclass(frozen=True, slots=True)
class ShardName:
    """The parts of a shard's name; `number` counts from 0 on each node."""

    exchange: str
    node: str
    number: int

    def __str__(self) -> str:
        return f"sharding: {self.exchange} - {self.node} - {self.number}"

    @classmethod
    def parse(cls, queue: str) -> ShardName | None:
        """Parse the name of a queue; return None if it is not the name of a shard."""
        match = _SHARD.fullmatch(queue)
        return None if match is None else cls(match[1], match[2], int(match[3]))


def is_sharded(exchange: ExchangeDefinition, topology: AnyTopology) -> bool:
    """Return True if a policy of the topology shards an exchange, also with 0 shards."""
    return setting_of(exchange, SHARDS_PER_NODE, topology.policies) is not None


def find_kept_shards(live: LiveTopology, wanted: Topology | None = None) -> frozenset[str]:
    """Return the names of the shards that belong to an exchange which is sharded.

    A shard of an exchange that is deleted, or that no policy shards any more, is an ordinary queue.
    """
    named = {}
    for queue in live.queues:
        name = ShardName.parse(queue.name)
        if name is not None:
            named[queue.name] = name.exchange
    if not named:
        return frozenset()
    after: AnyTopology = live if wanted is None else _after(live, wanted)
    exchanges = set(named.values())
    sharded = {
        exchange.name
        for exchange in after.exchanges
        if exchange.name in exchanges and is_sharded(exchange, after)
    }
    return frozenset(queue for queue, exchange in named.items() if exchange in sharded)


def shard_binding(binding: BindingDefinition, shards: frozenset[str]) -> bool:
    """Return True if a binding is the one that the plugin made between a shard and its exchange."""
    if not isinstance(binding.destination, str) or binding.destination not in shards:
        return False
    name = ShardName.parse(binding.destination)
    return name is not None and name.exchange == binding.source


def without_shards(topology: LiveTopology) -> LiveTopology:
    """Return a topology without shards and their bindings, which the policy creates again. `left_out` of its facts lists them.

    An ``x-consistent-hash`` exchange with shards loses its ring, which the plugin makes too.
    """
    shards = find_kept_shards(topology)
    if not shards:
        return topology
    counts: dict[str, int] = {}
    for name in map(ShardName.parse, sorted(shards)):
        assert name is not None  # it is a shard
        counts[name.exchange] = counts.get(name.exchange, 0) + 1

    exchanges = []
    for exchange in topology.exchanges:
        has_shards = any(member.destination in shards for member in exchange.ring or ())
        exchanges.append(replace(exchange, ring=None) if has_shards else exchange)

    return replace(
        topology,
        exchanges=tuple(exchanges),
        queues=tuple(queue for queue in topology.queues if queue.name not in shards),
        bindings=tuple(binding for binding in topology.bindings if not shard_binding(binding, shards)),
        facts=topology.facts.leaving_out(
            f"{plural(count, 'shard')} of {exchange}: the plugin rabbitmq_sharding makes them"
            for exchange, count in counts.items()
        ),
    )


def _after(live: LiveTopology, wanted: Topology) -> Topology:
    """Return the exchanges and policies after the wanted topology is applied."""
    exchanges = {exchange.name: exchange for exchange in live.exchanges if not wanted.owned(exchange.name)}
    policies = {policy.name: policy for policy in live.policies if not wanted.owned(policy.name)}
    exchanges |= {exchange.name: exchange for exchange in wanted.exchanges}
    policies |= {policy.name: policy for policy in wanted.policies}
    return replace(wanted, exchanges=tuple(exchanges.values()), policies=tuple(policies.values()))


# -- An exchange of the plugin rabbitmq_sharding with its shards, at the time of reading; `plugin_objects` has what a plan does with shards


def shard_names(exchange: str, nodes: Iterable[str], shards_per_node: int) -> tuple[str, ...]:
    """Return the names of an exchange's shards on the running nodes, in the order in which ``x-modulus-hash`` counts them.

    All have the same binding key, so the order is that of the names: by node, then by number as text, 10 before 2. Shards of an earlier,
    larger policy remain bound; the caller adds them.
    """
    check_whole("shards-per-node", shards_per_node, 0)
    node_names = as_tuple(nodes, "the names of the nodes, even of one")
    for name in (exchange, *node_names):
        if not isinstance(name, str):
            raise InputError(f"{name!r:.60} is not the name of an exchange or node: pass str")
    names = [
        str(ShardName(exchange, node, number))
        for node in dict.fromkeys(node_names)
        for number in range(shards_per_node)
    ]
    return tuple(sorted(names, key=lambda name: short_string(name, "the shard")))


def _or_unknown(value: object) -> object:
    return "not known" if value is None else value


def _show_keys(keys: tuple[str, ...]) -> str:
    if keys == ("",):
        return "yes"
    return f"with {', '.join(map(repr, keys))}" if keys else "no"


@dataclass(frozen=True, slots=True)
class Shard:
    """A queue of a sharded exchange.

    Attributes:
        node: the node in its name.
        number: its number on that node, from 0.
        type: the queue's type, which is the default type of the vhost. None if the queue is not listed because its node is down.
        keys: the binding keys between the exchange and the queue; empty if it is not bound.
        messages: the number of ready messages; None if it was not requested, or the queue does not answer.
        consumers: the number of consumers; None likewise.
    """

    name: str = field(metadata=shown("shard", json="queue"))
    node: str
    number: int
    type: str | None = field(default="classic", metadata=shown("type", _or_unknown))
    keys: tuple[str, ...] = field(default=(), metadata=shown("bound", _show_keys))
    messages: int | None = field(default=None, metadata=shown("messages", _or_unknown, number=True))
    consumers: int | None = field(default=None, metadata=shown("consumers", _or_unknown, number=True))


@dataclass(frozen=True, slots=True)
class ShardedExchange:
    """An exchange with shards at the time of reading. A value.

    Attributes:
        name: the exchange's name.
        type: its type, such as ``x-modulus-hash``.
        policy: the name of the policy that applies; None if no policy does, and the shards are left over.
        shards_per_node: the number of shards on each node by the policy; 0 without a policy.
        routing_key: the binding key by the policy.
        shards: the queues, in the order of their names as bytes, which is that of ``x-modulus-hash`` since 4.3.
        nodes: the names of the running nodes; None if the user may not list them.
        release: the broker's release.
    """

    name: str
    type: str
    policy: str | None
    shards_per_node: int
    routing_key: str
    shards: tuple[Shard, ...]
    nodes: tuple[str, ...] | None
    release: Release

    @property
    def missing(self) -> tuple[str, ...] | None:
        """The shards of the policy on running nodes that do not exist; None if the nodes are not known."""
        if self.nodes is None:
            return None
        existing = {shard.name for shard in self.shards}
        wanted = shard_names(self.name, self.nodes, self.shards_per_node)
        return tuple(name for name in wanted if name not in existing)

    @property
    def surplus(self) -> tuple[Shard, ...]:
        """The shards in excess of the policy: it had a larger number before, or another policy applied."""
        return tuple(shard for shard in self.shards if shard.number >= self.shards_per_node)

    @property
    def reachable(self) -> tuple[Shard, ...]:
        """The shards that can be queried and consumed: all except classic queues whose node does not run.

        From 4.0 on a broker may not answer a query for such a queue.
        """
        away = {"classic", None}
        return tuple(
            shard
            for shard in self.shards
            if self.nodes is None or shard.node in self.nodes or shard.type not in away
        )

    def local(self, node: str) -> tuple[Shard, ...]:
        """Return the shards of a `node`: those that a consumer of the pseudo-queue on a connection to that node can get."""
        return tuple(shard for shard in self.shards if shard.node == node)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The faults that the plugin does not repair.

        ``show`` lists their kinds. `names` are the shards.
        """
        return tuple(_findings(self))


def _findings(exchange: ShardedExchange) -> Iterator[Finding]:
    shards = exchange.shards
    nodes = exchange.nodes
    if names := exchange.missing:
        yield Finding(
            "missing",
            f"the policy asks for them: {listed(names, FEW, ';')}",
            "set the policy with one shard fewer, and then set it again unchanged: a change makes the plugin create missing shards",
            names=names,
        )

    if names := tuple(shard.name for shard in shards if nodes is not None and shard.node not in nodes):
        yield Finding(
            "node-away",
            f"made for a node that does not run: {listed(names, FEW, ';')}",
            "start the node; if it was removed, unbind them, consume the remaining messages, and delete them",
            names=names,
        )

    if names := tuple(shard.name for shard in exchange.surplus if shard.keys):
        without_policy = exchange.policy is None
        why = (
            "no policy shards the exchange" if without_policy else "lowering shards-per-node removes nothing"
        )
        yield Finding(
            "surplus",
            f"{why}, so these still get messages: {listed(names, FEW, ';')}",
            "go on consuming from them; or unbind them, which moves keys, consume the remaining messages, and delete them",
            names=names,
        )

    if names := tuple(shard.name for shard in shards if not shard.keys):
        yield Finding(
            "unbound",
            f"not bound to the exchange, so they get no messages: {listed(names, FEW, ';')}",
            "consume the remaining messages, and delete them; or change the policy so that it asks for them",
            names=names,
        )

    if names := tuple(shard.name for shard in shards if shard.consumers == 0):
        yield Finding(
            "unconsumed",
            f"{len(names)} of {len(shards)} shards {'has' if len(names) == 1 else 'have'} no consumer: one of the exchange's "
            "name gets one shard of its own node, and keeps it",
            "consume from each shard by its own name, as rabbit_chx.consuming.ShardConsumer does",
            names=names,
        )

    if exchange.type == MODULUS_EXCHANGE and len(shards) > 1 and exchange.release.follows(MODULUS_UNORDERED):
        yield Finding(
            "unordered",
            f"on RabbitMQ {exchange.release} {MODULUS_UNORDERED.says}",
            "expect that keys change their shards when a node restarts, or upgrade to 4.3",
        )
