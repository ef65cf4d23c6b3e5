"""An exchange that the plugin rabbitmq_sharding shards, from the management API, and the counts of its shards over AMQP."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from rabbit_chx.broker.live_broker import LiveBroker, ManagementApi, QueueCounts, try_count
from rabbit_chx.broker.reading import (
    PAGE,
    WITHOUT_STATISTICS,
    find_exchange,
    read_bindings_of,
    read_nodes,
    table_in,
)
from rabbit_chx.errors import MismatchError
from rabbit_chx.routing import Release
from rabbit_chx.text import grouped
from rabbit_chx.topology.arguments import SHARDS_PER_NODE
from rabbit_chx.topology.objects import BindingDefinition
from rabbit_chx.topology.plugin_objects import Shard, ShardedExchange, ShardName


def read_sharded_exchange(
    broker: LiveBroker, name: str, release: Release, *, counts: bool
) -> ShardedExchange:
    """Read an exchange with shards, and with `counts` the messages and consumers of each shard.

    Raises:
        NotFoundError: the exchange does not exist.
        MismatchError: no policy shards it, and it has no shards.
    """
    entry = find_exchange(broker, name)
    policy_name = entry.get("policy") or None
    policy = {} if policy_name is None else _read_policy(broker, policy_name)
    shards = _read_shards(broker, name)
    is_sharded = SHARDS_PER_NODE in policy
    if not is_sharded and not shards:
        raise MismatchError(
            f"exchange {name!r} in vhost {broker.vhost!r} is not sharded: no policy with shards-per-node applies to it; set one, "
            "and enable the plugin rabbitmq_sharding",
            exchange=name,
        )
    per_node = policy.get(SHARDS_PER_NODE)
    nodes = sorted(node for node, start in read_nodes(broker.api).items() if start is not None)
    sharding = ShardedExchange(
        name,
        str(entry["type"]),
        policy_name if is_sharded else None,
        per_node if isinstance(per_node, int) else 0,  # the broker accepts 1.5, and then makes no shard
        str(policy.get("routing-key", "")),
        shards,
        tuple(nodes) or None,
        release,
    )
    return _with_counts(sharding, broker) if counts else sharding


def _read_policy(broker: LiveBroker, name: str) -> Mapping[str, Any]:
    """Return the definition of a policy."""
    policy = broker.api.get("policies", broker.vhost, name, fields={"definition": dict})
    return table_in(policy, "definition")


def _read_shards(broker: LiveBroker, exchange: str) -> tuple[Shard, ...]:
    keys = _keys_of_queues(read_bindings_of(broker, exchange))
    pattern = f"^sharding: {re.escape(exchange)} - "
    listed = _read_queues_named(broker.api, broker.vhost, pattern)
    types = {str(entry["name"]): str(entry.get("type", "classic")) for entry in listed}
    names = {name: ShardName.parse(name) for name in {*types, *keys}}
    return tuple(
        Shard(name, parsed.node, parsed.number, types.get(name), tuple(keys.get(name, ())))
        for name, parsed in sorted(names.items(), key=lambda named: named[0].encode())
        if parsed is not None and parsed.exchange == exchange
    )


def _keys_of_queues(bindings: Iterable[BindingDefinition]) -> dict[str, list[str]]:
    """Return the binding keys of each queue."""
    return grouped(
        (binding.destination, binding.routing_key)
        for binding in bindings
        if isinstance(binding.destination, str)
    )


def _read_queues_named(api: ManagementApi, vhost: str, pattern: str) -> list[dict[str, Any]]:
    """Return the queues whose names match an expression, page by page, so that a large vhost is not listed whole."""
    queues: list[dict[str, Any]] = []
    page = 1
    pages = 1
    while page <= pages:
        query = {"page": str(page), "page_size": str(PAGE), "name": pattern, "use_regex": "true"}
        query |= WITHOUT_STATISTICS
        answer = api.get(
            "queues", vhost, query=query, fields={"items": [{"name": str, "type?": str}], "page_count": int}
        )
        queues += answer["items"]
        # A page that is not full is the last one, whatever number is given.
        page = page + 1
        pages = answer["page_count"] if len(answer["items"]) == PAGE else 0
    return queues


def _with_counts(exchange: ShardedExchange, broker: LiveBroker) -> ShardedExchange:
    counted = {shard.name: try_count(broker.amqp, shard.name) for shard in exchange.reachable}
    shards = tuple(_with_count(shard, counted.get(shard.name)) for shard in exchange.shards)
    return replace(exchange, shards=shards)


def _with_count(shard: Shard, counts: QueueCounts | None) -> Shard:
    if counts is None:
        return shard
    return replace(shard, messages=counts.messages, consumers=counts.consumers)
