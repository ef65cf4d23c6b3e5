"""Exchanges that hash modulo a number, read from the management API: ``x-modulus-hash``, shards, super streams.

How many messages and consumers the shards have is asked of each over AMQP.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from rabbit_chx.analysis.modulo_map import ModuloMap
from rabbit_chx.errors import AccessRefusedError, MismatchError
from rabbit_chx.routing import Destination, ExchangeRef, Release
from rabbit_chx.routing.sharding import ShardName
from rabbit_chx.topology.operations import QueueCounts, QueueDeclare, check_declared_name
from rabbit_chx.topology.policies import SHARDS_PER_NODE
from rabbit_chx.topology.reading import (
    bindings_listed,
    destination_of,
    exchange_found,
    policy_of,
    release_read,
)
from rabbit_chx.topology.shards import Shard, ShardedExchange
from rabbit_chx.topology.steps import Access, ApiRequest, ApiSequence, Sequence

__all__ = ["modulo_map_of", "modulo_map_read", "sharded_exchange"]

_MODULUS = "x-modulus-hash"
_SUPER_STREAM = "x-super-stream"
_ORDER = "x-stream-partition-order"
_PAGE = 500


def modulo_map_of(
    name: str,
    type_: str,
    arguments: Mapping[str, Any],
    bindings: Iterable[tuple[Destination, str, Mapping[str, Any]]],
    release: Release | None,
) -> ModuloMap | None:
    """Return what sends keys by a hash modulo the number of bindings; None for an exchange that does not.

    A super stream is a direct exchange with the argument ``x-super-stream``. Its partitions are in the order that the
    bindings say, as the broker gives them to clients (``rabbit_stream_utils.erl``, ``sort_partitions/1``).

    Args:
        name: the exchange's name.
        type_: its type.
        arguments: its arguments.
        bindings: the destination, the key and the arguments of each of its bindings.
        release: the broker's release.
    """
    if type_ == _MODULUS:
        return ModuloMap(name, "x-modulus-hash", tuple((place, key) for place, key, _ in bindings), release)
    if type_ != "direct" or arguments.get(_SUPER_STREAM) is not True:
        return None
    streams = [one for one in bindings if not isinstance(one[0], ExchangeRef)]
    ordered = sorted(streams, key=lambda one: (_ORDER not in one[2], one[2].get(_ORDER, 0)))
    return ModuloMap(name, "super-stream", tuple((place, key) for place, key, _ in ordered), release)


def modulo_map_read(vhost: str, name: str) -> ApiSequence[ModuloMap]:
    """Read what sends keys by a hash modulo the number of bindings.

    Args:
        vhost: the exchange's vhost.
        name: the exchange's name.

    Raises:
        NotFoundError: there is no such exchange or vhost.
        MismatchError: the exchange does not do that.
    """
    found = yield from exchange_found(vhost, name)
    fields = {"destination": str, "destination_type": str, "routing_key": str}
    path = ("exchanges", vhost, name, "bindings", "source")
    listed = yield ApiRequest("GET", path, listed=True, fields=fields)
    bindings = [(destination_of(one), str(one["routing_key"]), one.get("arguments") or {}) for one in listed]
    release = yield from release_read()
    given = modulo_map_of(name, found["type"], found["arguments"], bindings, release)
    if given is None:
        raise MismatchError(
            f"exchange {name!r} in vhost {vhost!r} is of type {found['type']}, which does not hash: give one of type "
            "x-consistent-hash or x-modulus-hash, or a super stream",
            exchange=name,
        )
    return given


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
