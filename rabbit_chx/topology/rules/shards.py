"""An exchange of the plugin rabbitmq_sharding with its shards, at the time of reading; `plugin_objects` has what a plan does with shards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from rabbit_chx.analysis.findings import Finding
from rabbit_chx.checks import check_whole, short_string
from rabbit_chx.errors import InputError
from rabbit_chx.result_fields import shown
from rabbit_chx.routing import Release
from rabbit_chx.routing.bindings import as_tuple
from rabbit_chx.routing.rules import MODULUS_UNORDERED
from rabbit_chx.topology.objects.objects import MODULUS_EXCHANGE
from rabbit_chx.topology.rules.plugin_objects import ShardName
from rabbit_chx.words import FEW, listed


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
