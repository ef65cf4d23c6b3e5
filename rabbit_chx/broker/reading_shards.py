"""Read an exchange that the plugin rabbitmq_sharding shards, from the management API, and the counts of its shards over AMQP."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from rabbit_chx.broker.live_broker import LiveBroker, ManagementApi, try_count
from rabbit_chx.broker.live_exchange import LiveExchange
from rabbit_chx.broker.reading import PAGE, WITHOUT_STATISTICS, read_nodes
from rabbit_chx.errors import MismatchError
from rabbit_chx.grouping import grouped
from rabbit_chx.routing import Release
from rabbit_chx.topology.rules.plugin_objects import ShardName
from rabbit_chx.topology.rules.policies import SHARDS_PER_NODE
from rabbit_chx.topology.rules.shards import Shard, ShardedExchange


def read_sharded_exchange(
    broker: LiveBroker, name: str, release: Release, *, counts: bool
) -> ShardedExchange:
    """Read an exchange with shards, and with `counts` the messages and consumers of each shard.

    Raises:
        NotFoundError: the exchange does not exist.
        MismatchError: no policy shards it, and it has no shards.
    """
    exchange = LiveExchange(broker, name, release)
    policy = exchange.policy_definition
    shards = _read_shards(broker.api, exchange)
    is_sharded = SHARDS_PER_NODE in policy
    if not is_sharded and not shards:
        raise MismatchError(
            f"exchange {name!r} in vhost {exchange.vhost!r} is not sharded: no policy with shards-per-node applies to it; set one, "
            "and enable the plugin rabbitmq_sharding",
            exchange=name,
        )
    per_node = policy.get(SHARDS_PER_NODE)
    nodes = sorted(node for node, start in read_nodes(broker.api).items() if start is not None)
    sharding = ShardedExchange(
        name,
        exchange.type,
        exchange.policy_name if is_sharded else None,
        per_node if isinstance(per_node, int) else 0,  # the broker accepts 1.5, and then makes no shard
        str(policy.get("routing-key", "")),
        shards,
        tuple(nodes) or None,
        release,
    )
    return _with_counts(sharding, broker) if counts else sharding


def _read_shards(api: ManagementApi, exchange: LiveExchange) -> tuple[Shard, ...]:
    keys = grouped((place, key) for place, key in exchange.bindings if isinstance(place, str))
    listed = _read_queues_named(api, exchange.vhost, f"^sharding: {re.escape(exchange.name)} - ")
    types = {str(entry["name"]): str(entry.get("type", "classic")) for entry in listed}
    names = {name: ShardName.parse(name) for name in {*types, *keys}}
    return tuple(
        Shard(name, parsed.node, parsed.number, types.get(name), tuple(keys.get(name, ())))
        for name, parsed in sorted(names.items(), key=lambda entry: entry[0].encode())
        if parsed is not None and parsed.exchange == exchange.name
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
    return replace(
        exchange,
        shards=tuple(
            replace(shard, messages=counts.messages, consumers=counts.consumers)
            if (counts := counted.get(shard.name))
            else shard
            for shard in exchange.shards
        ),
    )
