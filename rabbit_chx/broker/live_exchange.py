"""One exchange of a live broker: its ring, its slots and its map of keys, in few requests. Nothing is declared."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, NoReturn

from rabbit_chx.amqp.exchange_types import exchange_type_remedy, why_not_routed
from rabbit_chx.broker.live_broker import (
    BrokerWays,
    LiveBroker,
    ManagementApi,
    QueueCounts,
    check_declared_name,
    try_count,
)
from rabbit_chx.broker.reading import (
    OVERVIEW,
    PAGE,
    WITHOUT_STATISTICS,
    LiveObjects,
    exchange_types_in,
    find_ring,
    list_exchanges,
    list_queues,
    listed_nodes,
    name_cluster,
    read_bindings,
    read_evidence,
    read_exchange,
    read_mark,
    read_nodes,
    read_policies,
    read_vhost,
    table_in,
    with_queues,
)
from rabbit_chx.broker.usage import read_rates_of
from rabbit_chx.errors import BrokerRefusedError, MismatchError, NotDeterminedError, NotFoundError
from rabbit_chx.records.live_rings import Evidence, WaysToLearn
from rabbit_chx.records.ring_records import RestartMark, RingRecord
from rabbit_chx.routing import ConsistentHashExchange, ExchangeRef, HashRing, ModulusHashExchange, Release
from rabbit_chx.routing.bindings import Binding
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.routing.message import HASH_ARGUMENTS
from rabbit_chx.routing.rules import RESTART_KEEPS
from rabbit_chx.text import grouped, listed
from rabbit_chx.topology.arguments import SHARDS_PER_NODE, policies_of_mark
from rabbit_chx.topology.model import LiveTopology, PublishRates
from rabbit_chx.topology.modulus import is_super_stream, modulo_map_of, modulus_of
from rabbit_chx.topology.objects import (
    ALTERNATE_EXCHANGE,
    HASH_EXCHANGE,
    MODULUS_EXCHANGE,
    BindingDefinition,
    ExchangeDefinition,
    PolicyDefinition,
    QueueDefinition,
    RingMember,
)
from rabbit_chx.topology.plugin_objects import Shard, ShardedExchange, ShardName
from rabbit_chx.topology.reach import Reach
from rabbit_chx.topology.schema import make_object
from rabbit_chx.topology.slots import SlotView, view_slots


class LiveExchange:
    """An exchange of a live broker. Each part is requested on first use, and once: one exchange of a large vhost takes few requests.

    Args:
        broker: the broker. Its ring source reads the ring if it has one; else the ring is recorded, or its order is not known.
        name: the exchange's name.
        release: the broker's release.
        count: counts the messages of a queue over AMQP, which the proof of a record takes.

    Attributes:
        type: the exchange's type.

    Raises:
        NotFoundError: the exchange or the vhost does not exist.
        UnreachableError: the address does not answer.
        InputError: the name is not valid in AMQP.
    """

    def __init__(
        self,
        broker: BrokerWays,
        name: str,
        release: Release,
        count: Callable[[str], QueueCounts] | None = None,
    ) -> None:
        check_declared_name(name, "exchange")
        self.vhost = broker.vhost
        self.name = name
        self.release = release
        self._broker = broker
        self._api = broker.api
        self._count = count
        try:
            self._entry = read_exchange(self._api, self.vhost, name)
        except NotFoundError:
            raise NotFoundError(
                f"there is no exchange {name!r} in vhost {self.vhost!r}: check its name and the vhost of the URL",
                exchange=name,
                reply_code=404,
            ) from None
        self.type = str(self._entry["type"])

    @property
    def _arguments(self) -> Mapping[str, Any]:
        return table_in(self._entry, "arguments")

    @property
    def hash_arguments(self) -> dict[str, str]:
        """The arguments that determine the hashed value: ``hash-header`` or ``hash-property``."""
        return {name: value for name, value in self._arguments.items() if name in HASH_ARGUMENTS}

    @cached_property
    def _binding_definitions(self) -> list[BindingDefinition]:
        objects = LiveObjects()
        found = read_bindings(self._api, self.vhost, objects, source=self.name)
        if objects.odd:
            raise NotDeterminedError(
                f"exchange {self.name!r} has bindings that no client can name: delete {listed(objects.odd)}",
                exchange=self.name,
            )
        return found.get(self.name, [])

    @property
    def bindings(self) -> tuple[Binding, ...]:
        """``(destination, binding key)`` of each binding; their order has no meaning."""
        return tuple(binding.member for binding in self._binding_definitions)

    @property
    def members(self) -> tuple[RingMember, ...]:
        """The bindings with their arguments; their order has no meaning."""
        return tuple(RingMember(*binding.member, binding.arguments) for binding in self._binding_definitions)

    @property
    def policy_name(self) -> str | None:
        """The name of the policy that applies; None if no policy does."""
        return self._entry.get("policy") or None

    @cached_property
    def policy_definition(self) -> Mapping[str, Any]:
        """The definition of the policy that applies; empty if no policy does."""
        if self.policy_name is None:
            return {}
        policy = self._api.get("policies", self.vhost, self.policy_name, fields={"definition": dict})
        return table_in(policy, "definition")

    @property
    def alternate(self) -> str | None:
        """The alternate exchange, by argument or policy; None if it has none."""
        name = self._arguments.get(ALTERNATE_EXCHANGE) or self.policy_definition.get(ALTERNATE_EXCHANGE)
        return name if isinstance(name, str) else None

    def check_type(self) -> None:
        """Refuse an exchange that is not of type ``x-consistent-hash``.

        Raises:
            MismatchError: the exchange is of another type.
        """
        if self.type != HASH_EXCHANGE:
            remedy = "pass another one"
            if self.type == MODULUS_EXCHANGE:
                remedy = (
                    "it has no ring; in Python use Broker.exchange, on the command line `route` or `compare`"
                )
            raise MismatchError(
                f"exchange {self.name!r} in vhost {self.vhost!r} is of type {self.type}, not {HASH_EXCHANGE}: {remedy}",
                exchange=self.name,
            )

    @cached_property
    def ring(self) -> HashRing:
        """The ring by the ring source or the record, or else the ring that the bindings make in their listed order."""
        self.check_type()
        if self._broker.has_source:
            return _ring_by_source(self._broker, self.name, self.release)
        evidence = self._evidence  # before the bindings
        return find_ring(
            self.name,
            HashRing.unordered(self.bindings, self.release),
            self.members,
            evidence,
            file_record=self._broker.file_records.get(self.name),
            read_again=lambda: read_evidence(self._api, self.vhost, self.name),
        )

    @cached_property
    def why_not_routed(self) -> str:
        """Why it routes nothing, and what to do, as a sentence; empty if the broker has its type."""
        why = why_not_routed(self.name, self.type, exchange_types_in(self._broker.overview()))
        return f"{why}: {exchange_type_remedy(self.type)}" if why else ""

    @cached_property
    def cluster(self) -> str | None:
        """The name of the broker's cluster."""
        name: str | None = self._api.get("overview", fields=OVERVIEW).get("cluster_name")
        return name_cluster(name, read_nodes(self._api)) if "@" in (name or "") else name

    @cached_property
    def ways_to_learn(self) -> WaysToLearn:
        """How the user may learn the order of the ring."""
        voids = self._policies_of_mark
        is_administrator = bool(read_vhost(self._api, self.vhost))
        return WaysToLearn(is_administrator, "" if not voids or self.mark.holds else voids)

    @cached_property
    def _policies_of_mark(self) -> str:
        return policies_of_mark(*self._policies)

    @cached_property
    def _policies(self) -> tuple[list[PolicyDefinition], list[PolicyDefinition]]:
        """The policies and the operator policies of the vhost."""
        return read_policies(self._api, self.vhost, LiveObjects())

    @cached_property
    def mark(self) -> RestartMark:
        """The mark of the vhost, for records. All queues are listed only if a restart of a node changes rings."""
        cluster = listed_nodes(read_nodes(self._api))
        mark = replace(read_mark(self._api, self.vhost, self.cluster, self._count), cluster=cluster)
        if not self.release.follows(RESTART_KEEPS):
            mark = with_queues(mark, list_queues(self._api, self.vhost), self.release)
        return mark if mark.holds else replace(mark, policies=self._policies_of_mark)

    @cached_property
    def _evidence(self) -> Evidence:
        """What the broker keeps of the ring, with the mark if that has to prove a record."""
        evidence = read_evidence(self._api, self.vhost, self.name)
        has_records = evidence.records or self.name in self._broker.file_records
        return replace(evidence, mark=self.mark) if has_records else evidence

    @property
    def record(self) -> RingRecord | None:
        """The record of the ring on the broker, if there is one."""
        return self._evidence.records.get(self.name)

    @cached_property
    def is_recorded(self) -> bool:
        """True if the record on the broker proves the ring, so that it is known without a ring source."""
        return self._evidence.proves(self.name, self.ring, self.members)

    @cached_property
    def slots(self) -> SlotView:
        """The ring and its slots, by the bindings of the exchanges in the ring. A ring of queues alone takes no more requests."""
        if not any(isinstance(place, ExchangeRef) for place in self.ring.destinations):
            return view_slots(self.name, self.ring, (), ())
        return view_slots(self.name, self.ring, *self._behind)

    @cached_property
    def _behind(self) -> tuple[list[ExchangeDefinition], list[BindingDefinition]]:
        """The exchanges and the bindings of the vhost."""
        exchanges = [
            make_object(ExchangeDefinition, entry)
            for entry in list_exchanges(self._api, self.vhost)
            if entry["name"] and isinstance(entry["name"], str)
        ]
        bound = read_bindings(self._api, self.vhost).values()
        return exchanges, [binding for of_one in bound for binding in of_one]

    @cached_property
    def dead_ends(self) -> dict[ExchangeRef, str]:
        """The exchanges in the ring, other than slots, that lead to no queue, with a sentence."""
        others = sorted(self.slots.other_exchanges, key=str)
        if not others:
            return {}
        exchanges, bindings = self._behind
        read = (*exchanges,), (), (*bindings,), (*self._policies[0],)
        reach = Reach(LiveTopology(*read, release=self.release))
        return {
            place: f"exchange {place.name} leads to no queue, and is in the ring of exchange {self.name!r}: bind a queue to it, or take it out of "
            "the ring"
            for place in others
            if reach.leads_nowhere(place.name)
        }

    def mirror(self) -> ConsistentHashExchange | ModulusHashExchange:
        """Return a mirror of the exchange's routing.

        Raises:
            MismatchError: the exchange does not hash.
            BrokerRefusedError: its plugin is not enabled, so that the broker refuses every publish.
            RingSourceError: the ring could not be read.
        """
        if self.why_not_routed:
            raise BrokerRefusedError(self.why_not_routed, exchange=self.name, reply_code=406)
        if self.type == MODULUS_EXCHANGE:
            return modulus_of(self.name, self._binding_definitions, self.release, "read")
        if self.type != HASH_EXCHANGE:
            self._refuse_type("")
        return ConsistentHashExchange(self.name, self.ring, arguments=self.hash_arguments)

    def key_map(self) -> KeyMap:
        """Return what maps keys to queues: the ring or its slots, the modulus exchange, or the super stream.

        Raises:
            MismatchError: the exchange is of another type.
            RingSourceError: a ring could not be read.
        """
        if self.type == HASH_EXCHANGE:
            return self.slots.key_map()
        definition = ExchangeDefinition(self.name, self.type, arguments=self._arguments)
        listed = list_queues(self._api, self.vhost) if is_super_stream(definition) else ()
        queues = LiveObjects().read(QueueDefinition, listed)
        found = modulo_map_of(definition, self._binding_definitions, self.release, "read", queues)
        if found is None:
            self._refuse_type(", or a super stream")
        return found

    def _refuse_type(self, others: str) -> NoReturn:
        raise MismatchError(
            f"exchange {self.name!r} in vhost {self.vhost!r} is of type {self.type}, which does not hash: pass one of type "
            f"{HASH_EXCHANGE} or {MODULUS_EXCHANGE}{others}",
            exchange=self.name,
        )

    def publish_rates(self) -> PublishRates:
        """Return the publish rates of the exchange and of the queues of its vhost, and the queues that do not run."""
        return read_rates_of(self._api, self.vhost, self._entry)


def read_ring(broker: LiveBroker, exchange: str, release: Release) -> HashRing:
    """Read the ring of an exchange. Without a ring source or a record its order is not known.

    Raises:
        NotFoundError: the exchange does not exist.
        MismatchError: the exchange is of another type.
        RingSourceError: the ring could not be read.
    """
    if broker.has_management or not broker.has_source:
        return LiveExchange(broker, exchange, release, broker.amqp.count).ring
    check_declared_name(exchange, "exchange")
    broker.amqp.check_exchange(exchange)
    return _ring_by_source(broker, exchange, release)


def _ring_by_source(broker: BrokerWays, exchange: str, release: Release) -> HashRing:
    ring = broker.read_rings((exchange,), release).get(exchange)
    if ring is None:
        raise MismatchError(
            f"exchange {exchange!r} in vhost {broker.vhost!r} is not of type {HASH_EXCHANGE}, or the ring source asks another broker: "
            "check the exchange and the ring source",
            exchange=exchange,
        )
    return ring


# -- Read an exchange that the plugin rabbitmq_sharding shards, from the management API, and the counts of its shards over AMQP


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
