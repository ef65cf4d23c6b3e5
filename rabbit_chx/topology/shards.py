"""Which queues of a topology the plugin rabbitmq_sharding made, and keeps: no file has to say them, and no plan takes them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rabbit_chx.routing.sharding import ShardName
from rabbit_chx.topology.matching_policy import SHARDS_PER_NODE, setting_of

if TYPE_CHECKING:
    from rabbit_chx.topology.model import Topology
    from rabbit_chx.topology.objects import BindingDefinition, ExchangeDefinition, RingMember

__all__ = ["is_sharded", "kept_shards", "shard_binding", "without_shards"]


def is_sharded(exchange: ExchangeDefinition, topology: Topology) -> bool:
    """Return whether a policy of the topology shards an exchange. One with 0 shards does.

    Args:
        exchange: the exchange.
        topology: the topology.
    """
    return setting_of(exchange, SHARDS_PER_NODE, topology.policies) is not None


def kept_shards(live: Topology, wanted: Topology | None = None) -> frozenset[str]:
    """Return the names of the shards that belong to an exchange which is sharded.

    A shard of an exchange that is deleted, or that no policy shards any more, is a queue like any other.

    Args:
        live: what is there.
        wanted: what should be there. None: nothing changes.
    """
    named = {
        one.name: name.exchange for one in live.queues if (name := ShardName.parsed(one.name)) is not None
    }
    if not named:
        return frozenset()
    after = live if wanted is None else _after(live, wanted)
    exchanges = set(named.values())
    sharded = {one.name for one in after.exchanges if one.name in exchanges and is_sharded(one, after)}
    return frozenset(queue for queue, exchange in named.items() if exchange in sharded)


def shard_binding(binding: BindingDefinition, shards: frozenset[str]) -> bool:
    """Return whether a binding is the one that the plugin made: of a shard to its own exchange.

    Args:
        binding: the binding.
        shards: the names of the shards.
    """
    if not isinstance(binding.destination, str) or binding.destination not in shards:
        return False
    name = ShardName.parsed(binding.destination)
    return name is not None and name.exchange == binding.source


def without_shards(topology: Topology) -> Topology:
    """Return a topology without shards and their bindings, which the policy alone brings back. `left_out` says so.

    An ``x-consistent-hash`` exchange with shards loses its ring, which the plugin makes too.

    Args:
        topology: what is on a broker, or in a definitions file.
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
            replace(one, ring=None) if has_shards(one.ring) else one for one in topology.exchanges
        ),
        queues=tuple(one for one in topology.queues if one.name not in shards),
        bindings=tuple(one for one in topology.bindings if not shard_binding(one, shards)),
        left_out=(
            *topology.left_out,
            *(
                f"{count} shard{'' if count == 1 else 's'} of {exchange}: the plugin rabbitmq_sharding makes them"
                for exchange, count in counts.items()
            ),
        ),
    )


def _after(live: Topology, wanted: Topology) -> Topology:
    """Return the exchanges and policies as they are once the wanted topology is there."""
    exchanges = {one.name: one for one in live.exchanges if not wanted.owned(one.name)}
    policies = {one.name: one for one in live.policies if not wanted.owned(one.name)}
    return replace(
        wanted,
        exchanges=(*{**exchanges, **{one.name: one for one in wanted.exchanges}}.values(),),
        policies=(*{**policies, **{one.name: one for one in wanted.policies}}.values(),),
    )
