"""What the plugin rabbitmq_sharding makes: its exchanges, their shards, and which queues of a topology it keeps.

No file has to say the shards, and no plan takes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from rabbit_chx.analysis.findings import Finding
from rabbit_chx.analysis.wording import listed, plural
from rabbit_chx.routing import Release
from rabbit_chx.routing.rules import MODULUS_UNORDERED
from rabbit_chx.routing.sharding import ShardName, shard_names
from rabbit_chx.topology.model import Topology
from rabbit_chx.topology.objects import BindingDefinition, ExchangeDefinition, RingMember
from rabbit_chx.topology.policies import SHARDS_PER_NODE, setting_of

_MODULUS = "x-modulus-hash"
_MOST_NAMED = 3


def is_sharded(exchange: ExchangeDefinition, topology: Topology) -> bool:
    """Return whether a policy of the topology shards an exchange. One with 0 shards does."""
    return setting_of(exchange, SHARDS_PER_NODE, topology.policies) is not None


def kept_shards(live: Topology, wanted: Topology | None = None) -> frozenset[str]:
    """Return the names of the shards that belong to an exchange which is sharded.

    A shard of an exchange that is deleted, or that no policy shards any more, is a queue like any other.
    """
    named = {
        queue.name: name.exchange
        for queue in live.queues
        if (name := ShardName.parsed(queue.name)) is not None
    }
    if not named:
        return frozenset()
    after = live if wanted is None else _after(live, wanted)
    exchanges = set(named.values())
    sharded = {
        exchange.name
        for exchange in after.exchanges
        if exchange.name in exchanges and is_sharded(exchange, after)
    }
    return frozenset(queue for queue, exchange in named.items() if exchange in sharded)


def shard_binding(binding: BindingDefinition, shards: frozenset[str]) -> bool:
    """Return whether a binding is the one that the plugin made: of a shard to its own exchange."""
    if not isinstance(binding.destination, str) or binding.destination not in shards:
        return False
    name = ShardName.parsed(binding.destination)
    return name is not None and name.exchange == binding.source


def without_shards(topology: Topology) -> Topology:
    """Return a topology without shards and their bindings, which the policy alone brings back. `left_out` says so.

    An ``x-consistent-hash`` exchange with shards loses its ring, which the plugin makes too.
    """
    shards = kept_shards(topology)
    if not shards:
        return topology
    counts: dict[str, int] = {}
    for name in map(ShardName.parsed, sorted(shards)):
        assert name is not None  # noqa: S101  # it is a shard
        counts[name.exchange] = counts.get(name.exchange, 0) + 1

    def has_shards(ring: tuple[RingMember, ...] | None) -> bool:
        return any(member.destination in shards for member in ring or ())

    return replace(
        topology,
        exchanges=tuple(
            replace(exchange, ring=None) if has_shards(exchange.ring) else exchange
            for exchange in topology.exchanges
        ),
        queues=tuple(queue for queue in topology.queues if queue.name not in shards),
        bindings=tuple(binding for binding in topology.bindings if not shard_binding(binding, shards)),
        left_out=(
            *topology.left_out,
            *(
                f"{plural(count, 'shard')} of {exchange}: the plugin rabbitmq_sharding makes them"
                for exchange, count in counts.items()
            ),
        ),
    )


def _after(live: Topology, wanted: Topology) -> Topology:
    """Return the exchanges and policies as they are once the wanted topology is there."""
    exchanges = {exchange.name: exchange for exchange in live.exchanges if not wanted.owned(exchange.name)}
    policies = {policy.name: policy for policy in live.policies if not wanted.owned(policy.name)}
    return replace(
        wanted,
        exchanges=(*{**exchanges, **{exchange.name: exchange for exchange in wanted.exchanges}}.values(),),
        policies=(*{**policies, **{policy.name: policy for policy in wanted.policies}}.values(),),
    )


@dataclass(frozen=True, slots=True)
class Shard:
    """A queue of a sharded exchange.

    Attributes:
        name: the queue's name.
        node: the node that it was made for, which its name says.
        number: its number on that node, from 0.
        type: the queue's type. The plugin asks for none, so it is the default type of the vhost. None where the queue is not
            listed, because its node is away.
        keys: the binding keys that bind it to its exchange; empty where it is not bound.
        messages: how many messages are ready; None where that was not asked, or the queue does not answer.
        consumers: how many consumers it has; None likewise.
    """

    name: str
    node: str
    number: int
    type: str | None = "classic"
    keys: tuple[str, ...] = ()
    messages: int | None = None
    consumers: int | None = None


@dataclass(frozen=True, slots=True)
class ShardedExchange:
    """An exchange with shards, as it was when it was read. A value.

    Attributes:
        name: the exchange's name.
        type: its type, such as ``x-modulus-hash``.
        policy: the name of the policy that applies; None where none does, and the shards are left over.
        shards_per_node: how many shards the policy asks for on each node; 0 without one.
        routing_key: the binding key that the policy asks for.
        shards: the queues, in the order of their names as bytes, which is that of ``x-modulus-hash`` since 4.3.
        nodes: the names of the running nodes; None where the user may not know them.
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
    def missing(self) -> tuple[str, ...]:
        """The shards that the policy asks for on running nodes, and that are not there; empty if the nodes are not known."""
        existing = {shard.name for shard in self.shards}
        wanted = shard_names(self.name, self.nodes or (), self.shards_per_node)
        return tuple(name for name in wanted if name not in existing)

    @property
    def surplus(self) -> tuple[Shard, ...]:
        """The shards that the policy does not ask for: it asked for more once, or there was another policy."""
        return tuple(shard for shard in self.shards if shard.number >= self.shards_per_node)

    @property
    def reachable(self) -> tuple[Shard, ...]:
        """The shards that can be asked and consumed: all but classic queues whose node does not run.

        From 4.0 on a broker may leave a question about such a queue without an answer.
        """
        away = {"classic", None}
        return tuple(
            shard
            for shard in self.shards
            if self.nodes is None or shard.node in self.nodes or shard.type not in away
        )

    def local(self, node: str) -> tuple[Shard, ...]:
        """Return the shards of a node: what a consumer of the pseudo-queue that is connected to it can get.

        Args:
            node: the name of the node.
        """
        return tuple(shard for shard in self.shards if shard.node == node)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What a user has to know or to do, since the plugin does not.

        The kinds are ``missing`` (the policy asks for shards that are not there), ``node-away`` (their node does not run),
        ``surplus`` (the policy does not ask for them, and they get messages), ``unbound`` (they get none), ``unconsumed`` (they
        have no consumer), ``unordered`` (nobody can know their order, nor where a key goes). `names` are the shards.
        """
        return tuple(_findings(self))


def _findings(exchange: ShardedExchange) -> Iterator[Finding]:
    shards, nodes = exchange.shards, exchange.nodes
    if names := exchange.missing:
        yield Finding(
            "missing",
            f"the policy asks for them: {_listed(names)}",
            "set the policy with one shard fewer, and then again as it is: a change makes the plugin look",
            names=names,
        )
    if names := tuple(shard.name for shard in shards if nodes is not None and shard.node not in nodes):
        yield Finding(
            "node-away",
            f"made for a node that does not run: {_listed(names)}",
            "start the node; if it is gone for good, unbind them, consume what is left, and delete them",
            names=names,
        )
    if names := tuple(shard.name for shard in exchange.surplus if shard.keys):
        without_policy = exchange.policy is None
        why = (
            "no policy shards the exchange" if without_policy else "lowering shards-per-node removes nothing"
        )
        yield Finding(
            "surplus",
            f"{why}, so these still get messages: {_listed(names)}",
            "go on consuming from them; or unbind them, which moves keys, consume what is left, and delete them",
            names=names,
        )
    if names := tuple(shard.name for shard in shards if not shard.keys):
        yield Finding(
            "unbound",
            f"not bound to the exchange, so they get no messages: {_listed(names)}",
            "consume what is left, and delete them; or change the policy so that it asks for them",
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
    if exchange.type == _MODULUS and len(shards) > 1 and exchange.release.follows(MODULUS_UNORDERED):
        yield Finding(
            "unordered",
            f"on RabbitMQ {exchange.release} {MODULUS_UNORDERED.says}",
            "expect that keys change their shards when a node restarts, or upgrade to 4.3",
        )


def _listed(names: tuple[str, ...]) -> str:
    return listed(names, _MOST_NAMED, ";")
