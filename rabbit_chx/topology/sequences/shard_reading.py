"""A sharded exchange, read from the management API; how many messages and consumers its shards have, asked of each over AMQP."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rabbit_chx.errors import AccessRefusedError, MismatchError
from rabbit_chx.routing.sharding import ShardName
from rabbit_chx.topology.policies import SHARDS_PER_NODE
from rabbit_chx.topology.sequences.exchange_reading import bindings_listed, exchange_found, policy_of
from rabbit_chx.topology.sequences.operations import QueueCounts, QueueDeclare, check_declared_name
from rabbit_chx.topology.sequences.steps import ApiRequest
from rabbit_chx.topology.shards import Shard, ShardedExchange

if TYPE_CHECKING:
    from rabbit_chx.routing import Release
    from rabbit_chx.topology.sequences.steps import Access, ApiSequence, Sequence

__all__ = ["sharded_exchange"]

_PAGE = 500


def sharded_exchange(
    access: Access, name: str, release: Release, *, counts: bool
) -> Sequence[ShardedExchange]:
    """Read an exchange with shards.

    Args:
        access: what the sequence may ask.
        name: the exchange's name.
        release: the broker's release.
        counts: whether to ask each shard for its messages and consumers.

    Raises:
        NotFoundError: there is no such exchange.
        MismatchError: no policy shards it, and it has no shards.
    """
    check_declared_name(name, "exchange")
    found = yield from exchange_found(access.vhost, name)
    policy = yield from policy_of(access.vhost, found)
    shards = yield from _shards(access.vhost, name)
    sharded = SHARDS_PER_NODE in policy
    if not sharded and not shards:
        raise MismatchError(
            f"exchange {name!r} in vhost {access.vhost!r} is not sharded: no policy with shards-per-node applies to it; set one, "
            "and enable the plugin rabbitmq_sharding",
            exchange=name,
        )
    asked = policy.get(SHARDS_PER_NODE)
    nodes = yield from _running_nodes()
    exchange = ShardedExchange(
        name,
        found["type"],
        found["policy"] if sharded else None,
        asked if isinstance(asked, int) else 0,  # the broker takes 1.5, and then makes no shard
        str(policy.get("routing-key", "")),
        shards,
        nodes,
        release,
    )
    return (yield from _counted(exchange)) if counts else exchange


def _shards(vhost: str, exchange: str) -> ApiSequence[tuple[Shard, ...]]:
    keys: dict[str, list[str]] = {}
    for destination, key in (yield from bindings_listed(vhost, exchange)):
        if isinstance(destination, str):
            keys.setdefault(destination, []).append(key)
    listed = yield from _queues_named(vhost, f"^sharding: {re.escape(exchange)} - ")
    types = {str(entry["name"]): str(entry.get("type", "classic")) for entry in listed}
    # From 4.0 on, a classic queue whose node is away is in the list of bindings alone.
    names = {name: ShardName.parsed(name) for name in {*types, *keys}}
    return tuple(
        Shard(name, parsed.node, parsed.number, types.get(name), tuple(keys.get(name, ())))
        for name, parsed in sorted(names.items(), key=lambda item: item[0].encode())
        if parsed is not None and parsed.exchange == exchange
    )


def _queues_named(vhost: str, pattern: str) -> ApiSequence[list[dict[str, Any]]]:
    """Return the queues whose names match an expression, page by page, so that a large vhost is not listed whole."""
    queues: list[dict[str, Any]] = []
    page, pages = 1, 1
    while page <= pages:
        query = {"page": str(page), "page_size": str(_PAGE), "name": pattern, "use_regex": "true"}
        query |= {"disable_stats": "true", "enable_queue_totals": "true"}
        answer = yield ApiRequest("GET", ("queues", vhost), query, fields={"items": list, "page_count": int})
        queues += answer["items"]
        page, pages = page + 1, answer["page_count"]
    return queues


def _running_nodes() -> ApiSequence[tuple[str, ...] | None]:
    request = ApiRequest("GET", ("nodes",), {"columns": "name,running"}, listed=True, fields={"name": str})
    try:
        nodes = yield request
    except AccessRefusedError:  # it takes the tag monitoring
        return None
    return tuple(sorted(node["name"] for node in nodes if node.get("running")))


def _counted(exchange: ShardedExchange) -> Sequence[ShardedExchange]:
    found: dict[str, QueueCounts] = {}
    for shard in exchange.reachable:
        answer = yield QueueDeclare(shard.name, passive=True)
        if isinstance(answer, QueueCounts):
            found[shard.name] = answer
    return replace(
        exchange,
        shards=tuple(
            replace(shard, messages=counts.messages, consumers=counts.consumers)
            if (counts := found.get(shard.name))
            else shard
            for shard in exchange.shards
        ),
    )
