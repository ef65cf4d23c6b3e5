"""A vhost, an exchange, its slots, its shards and its rates, read from the management API and a ring source. Nothing is declared.

How much is published to an exchange and to the queues behind it is told by the statistics of the management API. A message counts
for the exchange that it was published to, and for the queues that it came to. The exchanges between them, such as slots, have no
figures (rabbitmq-server v4.3.6, rabbit_channel.erl, ``deliver_to_queues/3`` counts the exchange of the message; tried on 3.10.8,
4.0.5 and 4.3.6).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from rabbit_chx.analysis.modulo_map import ModuloMap
from rabbit_chx.errors import (
    AccessRefusedError,
    BrokerRefusedError,
    InputError,
    MismatchError,
    NotFoundError,
    TopologyError,
)
from rabbit_chx.routing import (
    HASH_ARGUMENTS,
    Binding,
    ConsistentHashExchange,
    Destination,
    ExchangeRef,
    HashRing,
    ModulusHashExchange,
    Release,
    SlotTable,
)
from rabbit_chx.routing.sharding import ShardName
from rabbit_chx.topology.definitions import read_lists
from rabbit_chx.topology.model import Topology
from rabbit_chx.topology.objects import (
    HASH_EXCHANGE,
    BindingDefinition,
    ExchangeDefinition,
    LiveSlots,
    live_slots,
)
from rabbit_chx.topology.operations import CHX, ApiRequest, QueueCounts, QueueDeclare, check_declared_name
from rabbit_chx.topology.policies import SHARDS_PER_NODE
from rabbit_chx.topology.shards import Shard, ShardedExchange
from rabbit_chx.topology.slots import queues_behind_slots
from rabbit_chx.topology.steps import (
    Access,
    ApiSequence,
    OperationSequence,
    RingRequest,
    Sequence,
    check_exchange,
)

#: The exclusive queue of a connection that applies a plan. It is no part of a topology.
APPLY_LOCK = "rabbit-chx.apply"
#: The lists that are read, and the field that names an entry of each.
_LISTS = {"exchanges": "name", "queues": "name", "bindings": "destination", "policies": "name"}
#: Statistics of queues are costly, and nothing here needs them (parameters since 3.10; older releases ignore them).
_WITHOUT_STATISTICS = {"disable_stats": "true", "enable_queue_totals": "true"}
#: From this release on the list of queues is known to name the policy that applies, for queues of each type. It does not
#: name the operator policy (tried on 4.0.5).
_TELLS_POLICIES = (4, 0, 0)
#: What the broker says of itself: its version, and most often the name of its cluster.
OVERVIEW = ApiRequest("GET", ("overview",), fields={"rabbitmq_version": str})
_MODULUS = "x-modulus-hash"
_SUPER_STREAM = "x-super-stream"
_PARTITION_ORDER = "x-stream-partition-order"
_PAGE = 500
_ALTERNATE = "alternate-exchange"
_EXCHANGE = {"name": str, "type": str, "internal": bool}
_BINDING = {"destination": str, "destination_type": str, "routing_key": str}
_COLUMNS = "name,message_stats.publish_details.rate"


def topology_read(access: Access) -> Sequence[Topology]:
    """Read the exchanges, queues, bindings, both kinds of policies and rings of a vhost, and how many messages are parked.

    Rings are read by the ring source. Without one they are assumed from the bindings as they are listed.

    Raises:
        NotFoundError: there is no such vhost.
        AccessRefusedError: the user may not read it.
        RingSourceError: the rings could not be read.
        UnreachableError: nothing answers at the address.
    """
    overview = yield OVERVIEW
    release = yield from release_read(str(overview["rabbitmq_version"]))
    lists: dict[str, Any] = {}
    for name, known_by in _LISTS.items():
        query = _WITHOUT_STATISTICS if name == "queues" else None
        lists[name] = yield ApiRequest(
            "GET", (name, access.vhost), query, listed=True, fields={known_by: str}
        )
    lists["queues"] = [
        # Of quorum queues and streams `exclusive` is an empty text.
        {**queue, "exclusive": queue.get("exclusive") is True}
        for queue in lists["queues"]
        if queue["name"] != APPLY_LOCK
    ]
    operators = yield ApiRequest(
        "GET", ("operator-policies", access.vhost), listed=True, fields={"name": str}
    )
    lists["bindings"] = [binding for binding in lists["bindings"] if binding["destination"] != APPLY_LOCK]
    try:
        topology = Topology(
            **read_lists(lists, access.vhost, release),
            operator_policies=read_lists({"policies": operators}, access.vhost, release)["policies"],
            applied_policies={queue["name"]: queue.get("policy") for queue in lists["queues"]}
            if release.numbers >= _TELLS_POLICIES
            else {},
            cluster=overview.get("cluster_name"),
            messages={
                queue["name"]: queue["messages"]
                for queue in lists["queues"]
                if isinstance(queue.get("messages"), int)  # not of a queue whose node is down
            },
        )
    except TopologyError as error:
        raise BrokerRefusedError(
            f"{access.where}: the management API lists what no broker has: {'; '.join(map(str, error.problems))}"
        ) from None
    topology = replace(topology, messages={**topology.messages, **(yield from _parked(topology))})
    if access.has_source:
        names = [exchange.name for exchange in topology.exchanges if exchange.type == HASH_EXCHANGE]
        topology = topology.with_rings((yield from rings_read(names, release)))
    return topology


def _parked(topology: Topology) -> OperationSequence[Mapping[str, int]]:
    """Count what is in each parking queue, over AMQP: the management API counts every few seconds."""
    messages = {}
    for queue in queues_behind_slots(topology):
        answer = yield QueueDeclare(queue, passive=True)
        if isinstance(answer, QueueCounts):
            messages[queue] = answer.messages
    return messages


def rings_read(exchanges: Iterable[str], release: Release) -> Sequence[Mapping[str, HashRing]]:
    """Read the rings of exchanges by the ring source, by the exchange. One that is not there is left out.

    Raises:
        RingSourceError: the rings could not be read.
    """
    names = tuple(exchanges)
    if not names:
        return {}
    buckets_of = yield RingRequest(names)
    return {
        name: HashRing.from_buckets(buckets, release, next_bucket=getattr(buckets, "next_bucket", None))
        for name, buckets in buckets_of.items()
    }


@dataclass(frozen=True, slots=True)
class LiveExchange:
    """An x-consistent-hash exchange.

    Attributes:
        vhost: the exchange's vhost.
        name: the exchange's name.
        arguments: the arguments that decide about routing: ``hash-header`` or ``hash-property``.
        bindings: ``(destination, binding key)`` pairs; their order means nothing.
        alternate: the alternate exchange, by argument or policy; None where there is none.
        release: the broker's release.
    """

    vhost: str
    name: str
    arguments: Mapping[str, str]
    bindings: tuple[Binding, ...]
    alternate: str | None
    release: Release

    @property
    def assumed_ring(self) -> HashRing:
        """The ring that the bindings would make in the order in which they are listed."""
        return HashRing.from_bindings(self.bindings, self.release, "assumed")


def release_read(version: str | None = None) -> ApiSequence[Release]:
    """Read the broker's version, and its metadata store from its feature flags (``khepri_db`` exists since 3.13).

    A user who may not read feature flags gets the default store of the version, marked as not known.
    """
    if version is None:
        version = str((yield OVERVIEW)["rabbitmq_version"])
    try:
        listed = yield ApiRequest("GET", ("feature-flags",), listed=True, fields={"name": str, "state": str})
    except AccessRefusedError:
        return _release(version)
    flags = {flag["name"]: flag["state"] for flag in listed}
    if "khepri_db" not in flags:
        return _release(version)
    return _release(version, "khepri" if flags["khepri_db"] == "enabled" else "mnesia")


def _release(version: str, store: Literal["khepri", "mnesia"] | None = None) -> Release:
    try:
        return Release(version, store)
    except InputError as error:
        raise BrokerRefusedError(
            f"the management API names the version {version:.50} of the broker: {error}"
        ) from None


def hash_exchange(vhost: str, name: str) -> ApiSequence[LiveExchange]:
    """Read an x-consistent-hash exchange.

    Raises:
        NotFoundError: there is no such exchange or vhost.
        MismatchError: the exchange is of another type.
        BrokerRefusedError: the user lacks a permission.
        UnreachableError: nothing answers at the address.
        InputError: AMQP has no exchange of such a name.
    """
    check_declared_name(name, "exchange")
    exchange = yield from exchange_found(vhost, name)
    if exchange["type"] != CHX:
        raise MismatchError(
            f"exchange {name!r} in vhost {vhost!r} is of type {exchange['type']}, not {CHX}: give another one",
            exchange=name,
        )
    return LiveExchange(
        vhost,
        name,
        {
            argument: exchange["arguments"][argument]
            for argument in HASH_ARGUMENTS
            if argument in exchange["arguments"]
        },
        (yield from bindings_listed(vhost, name)),
        exchange["arguments"].get(_ALTERNATE) or (yield from policy_of(vhost, exchange)).get(_ALTERNATE),
        (yield from release_read()),
    )


def ring_read(access: Access, exchange: str, release: Release) -> Sequence[HashRing]:
    """Read the ring of an exchange; without a ring source it is assumed from its bindings.

    Raises:
        NotFoundError: there is no such exchange.
        MismatchError: the exchange is of another type.
        RingSourceError: the ring could not be read.
    """
    check_declared_name(exchange, "exchange")
    if not access.has_source:
        return (yield from hash_exchange(access.vhost, exchange)).assumed_ring
    if access.has_management:  # over AMQP it would need configure on the exchange
        yield from exchange_found(access.vhost, exchange)
    else:
        yield from check_exchange(access.where, exchange)
    buckets_of = yield RingRequest((exchange,))
    if exchange not in buckets_of:
        raise MismatchError(
            f"exchange {exchange!r} in vhost {access.vhost!r} is not of type {CHX}, or the ring source asks another broker: check "
            "the exchange and the ring source",
            exchange=exchange,
        )
    return HashRing.from_buckets(
        buckets_of[exchange], release, next_bucket=getattr(buckets_of[exchange], "next_bucket", None)
    )


def exchange_mirror(
    access: Access, name: str, release: Release
) -> Sequence[ConsistentHashExchange | ModulusHashExchange]:
    """Read an exchange that hashes, as a mirror of its routing.

    Raises:
        NotFoundError: there is no such exchange.
        MismatchError: the exchange does not hash.
        RingSourceError: the ring could not be read.
    """
    check_declared_name(name, "exchange")
    exchange = yield from exchange_found(access.vhost, name)
    if exchange["type"] == _MODULUS:
        return ModulusHashExchange(name, (yield from bindings_listed(access.vhost, name)), release=release)
    if exchange["type"] != CHX:
        raise MismatchError(
            f"exchange {name!r} in vhost {access.vhost!r} is of type {exchange['type']}, which does not hash: give one of type {CHX} "
            f"or {_MODULUS}",
            exchange=name,
        )
    ring = yield from ring_read(access, name, release)
    arguments = {name: value for name, value in exchange["arguments"].items() if name in HASH_ARGUMENTS}
    return ConsistentHashExchange(name, ring, arguments=arguments)


def destination_of(binding: Mapping[str, Any]) -> Destination:
    """Return the destination of a binding, as the management API lists it."""
    name = str(binding["destination"])
    return name if binding["destination_type"] == "queue" else ExchangeRef(name)


def exchange_found(vhost: str, name: str) -> ApiSequence[dict[str, Any]]:
    """Read an exchange, as the management API describes it.

    Raises:
        NotFoundError: there is no such exchange or vhost.
    """
    try:
        exchange: dict[str, Any] = yield ApiRequest(
            "GET", ("exchanges", vhost, name), fields={"type": str, "arguments": dict}
        )
    except NotFoundError:
        raise NotFoundError(
            f"there is no exchange {name!r} in vhost {vhost!r}: check its name and the vhost of the URL",
            exchange=name,
            reply_code=404,
        ) from None
    return exchange


def bindings_listed(vhost: str, name: str) -> ApiSequence[tuple[Binding, ...]]:
    """Read the bindings of an exchange, in the order in which they are listed."""
    listed = yield _bindings(vhost, name)
    return tuple((destination_of(binding), str(binding["routing_key"])) for binding in listed)


def _bindings(vhost: str, name: str) -> ApiRequest:
    return ApiRequest("GET", ("exchanges", vhost, name, "bindings", "source"), listed=True, fields=_BINDING)


def policy_of(vhost: str, exchange: Mapping[str, Any]) -> ApiSequence[Mapping[str, Any]]:
    """Read what the policy sets that applies to an exchange; nothing where none does."""
    if not exchange.get("policy"):
        return {}
    request = ApiRequest("GET", ("policies", vhost, exchange["policy"]), fields={"definition": dict})
    definition: dict[str, Any] = (yield request)["definition"]
    return definition


def slot_table_read(access: Access, exchange: str, release: Release) -> Sequence[SlotTable]:
    """Read the slots of an exchange. A slot with several queues is one of the table's `other_exchanges`.

    Raises:
        NotFoundError: there is no such exchange.
        MismatchError: the exchange is of another type.
        RingSourceError: the ring could not be read.
    """
    ring = yield from ring_read(access, exchange, release)
    return (yield from slots_behind(access.vhost, exchange, ring)).table()


def slots_behind(vhost: str, exchange: str, ring: HashRing) -> ApiSequence[LiveSlots]:
    """Read what is bound behind the exchanges of a ring. A ring of queues alone needs no request."""
    if not any(isinstance(place, ExchangeRef) for place in ring.destinations):
        return live_slots(exchange, ring, (), ())
    exchanges = yield ApiRequest("GET", ("exchanges", vhost), listed=True, fields=_EXCHANGE)
    bindings = yield ApiRequest("GET", ("bindings", vhost), listed=True, fields={**_BINDING, "source": str})
    return live_slots(
        exchange,
        ring,
        [
            ExchangeDefinition(exchange["name"], exchange["type"], internal=exchange["internal"])
            for exchange in exchanges
            if exchange["name"]
        ],
        [
            BindingDefinition(binding["source"], destination_of(binding), binding["routing_key"])
            for binding in bindings
            if binding["source"]
        ],
    )


@dataclass(frozen=True, slots=True)
class PublishRates:
    """Messages a second, as the broker counted them in the last seconds.

    Attributes:
        exchange: those that were published to the exchange itself; None where the broker has no figure, as before the first
            message.
        queues: those that came to each queue of the vhost that has a figure, by whatever exchange.
    """

    exchange: float | None
    queues: Mapping[str, float] = field(hash=False)


def rates_read(vhost: str, exchange: str) -> ApiSequence[PublishRates]:
    """Read how much is published to an exchange, and to the queues of its vhost.

    Raises:
        NotFoundError: there is no such exchange or vhost.
        UnreachableError: nothing answers at the address.
    """
    entry = yield from exchange_found(vhost, exchange)
    queues = yield ApiRequest(
        "GET", ("queues", vhost), {"columns": _COLUMNS}, listed=True, fields={"name": str}
    )
    rates = {queue["name"]: _rate(queue, "publish_details") for queue in queues}
    return PublishRates(
        _rate(entry, "publish_in_details"),
        {name: rate for name, rate in rates.items() if rate is not None},
    )


def _rate(entry: Mapping[str, Any], name: str) -> float | None:
    statistics = entry.get("message_stats")
    details = statistics.get(name) if isinstance(statistics, Mapping) else None
    rate = details.get("rate") if isinstance(details, Mapping) else None
    return float(rate) if isinstance(rate, int | float) else None


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
    streams = [binding for binding in bindings if not isinstance(binding[0], ExchangeRef)]
    ordered = sorted(
        streams, key=lambda binding: (_PARTITION_ORDER not in binding[2], binding[2].get(_PARTITION_ORDER, 0))
    )
    return ModuloMap(name, "super-stream", tuple((place, key) for place, key, _ in ordered), release)


def modulo_map_read(vhost: str, name: str) -> ApiSequence[ModuloMap]:
    """Read what sends keys by a hash modulo the number of bindings.

    Raises:
        NotFoundError: there is no such exchange or vhost.
        MismatchError: the exchange does not do that.
    """
    exchange = yield from exchange_found(vhost, name)
    listed = yield _bindings(vhost, name)
    bindings = [
        (destination_of(binding), str(binding["routing_key"]), binding.get("arguments") or {})
        for binding in listed
    ]
    release = yield from release_read()
    modulo_map = modulo_map_of(name, exchange["type"], exchange["arguments"], bindings, release)
    if modulo_map is None:
        raise MismatchError(
            f"exchange {name!r} in vhost {vhost!r} is of type {exchange['type']}, which does not hash: give one of type "
            "x-consistent-hash or x-modulus-hash, or a super stream",
            exchange=name,
        )
    return modulo_map


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
    exchange = yield from exchange_found(access.vhost, name)
    policy = yield from policy_of(access.vhost, exchange)
    shards = yield from _shards(access.vhost, name)
    sharded = SHARDS_PER_NODE in policy
    if not sharded and not shards:
        raise MismatchError(
            f"exchange {name!r} in vhost {access.vhost!r} is not sharded: no policy with shards-per-node applies to it; set one, "
            "and enable the plugin rabbitmq_sharding",
            exchange=name,
        )
    per_node = policy.get(SHARDS_PER_NODE)
    nodes = yield from _running_nodes()
    sharding = ShardedExchange(
        name,
        exchange["type"],
        exchange["policy"] if sharded else None,
        per_node if isinstance(per_node, int) else 0,  # the broker takes 1.5, and then makes no shard
        str(policy.get("routing-key", "")),
        shards,
        nodes,
        release,
    )
    return (yield from _counted(sharding)) if counts else sharding


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
        for name, parsed in sorted(names.items(), key=lambda entry: entry[0].encode())
        if parsed is not None and parsed.exchange == exchange
    )


def _queues_named(vhost: str, pattern: str) -> ApiSequence[list[dict[str, Any]]]:
    """Return the queues whose names match an expression, page by page, so that a large vhost is not listed whole."""
    queues: list[dict[str, Any]] = []
    page, pages = 1, 1
    while page <= pages:
        query = {"page": str(page), "page_size": str(_PAGE), "name": pattern, "use_regex": "true"}
        query |= _WITHOUT_STATISTICS
        answer = yield ApiRequest("GET", ("queues", vhost), query, fields={"items": list, "page_count": int})
        queues += answer["items"]
        page, pages = page + 1, answer["page_count"]
    return queues


def _running_nodes() -> ApiSequence[tuple[str, ...] | None]:
    request = ApiRequest("GET", ("nodes",), {"columns": "name,running"}, listed=True, fields={"name": str})
    try:
        nodes = yield request
    except AccessRefusedError:  # listing nodes takes the tag monitoring
        return None
    return tuple(sorted(node["name"] for node in nodes if node.get("running")))


def _counted(exchange: ShardedExchange) -> Sequence[ShardedExchange]:
    counts_of: dict[str, QueueCounts] = {}
    for shard in exchange.reachable:
        answer = yield QueueDeclare(shard.name, passive=True)
        if isinstance(answer, QueueCounts):
            counts_of[shard.name] = answer
    return replace(
        exchange,
        shards=tuple(
            replace(shard, messages=counts.messages, consumers=counts.consumers)
            if (counts := counts_of.get(shard.name))
            else shard
            for shard in exchange.shards
        ),
    )
