"""One exchange of a live broker: its ring, its slots and its map of keys, in few requests. Nothing is declared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, NoReturn

from rabbit_chx.amqp.exchange_types import exchange_type_remedy, why_not_routed
from rabbit_chx.broker.live_broker import (
    BrokerWays,
    LiveBroker,
    QueueCounts,
    check_declared_name,
)
from rabbit_chx.broker.reading import (
    OVERVIEW,
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
from rabbit_chx.records.evidence import Evidence, Means
from rabbit_chx.records.mark import Mark
from rabbit_chx.records.ring_records import RingRecord
from rabbit_chx.routing import ConsistentHashExchange, ExchangeRef, HashRing, ModulusHashExchange, Release
from rabbit_chx.routing.bindings import Binding
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.routing.message import HASH_ARGUMENTS
from rabbit_chx.routing.rules import RESTART_KEEPS
from rabbit_chx.topology.model import LiveTopology
from rabbit_chx.topology.modulus import is_super_stream, modulo_map_of, modulus_of
from rabbit_chx.topology.objects.objects import (
    ALTERNATE_EXCHANGE,
    HASH_EXCHANGE,
    MODULUS_EXCHANGE,
    BindingDefinition,
    ExchangeDefinition,
    PolicyDefinition,
    QueueDefinition,
    RingMember,
)
from rabbit_chx.topology.objects.vhost_objects import make_object
from rabbit_chx.topology.rules.policies import policies_of_mark
from rabbit_chx.topology.rules.reach import Reach
from rabbit_chx.topology.slots.slot_view import SlotView, view_slots
from rabbit_chx.topology.usage import PublishRates
from rabbit_chx.words import listed


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
    def means(self) -> Means:
        """How the user may learn the order of the ring."""
        voids = self._policies_of_mark
        is_administrator = bool(read_vhost(self._api, self.vhost))
        return Means(is_administrator, "" if not voids or self.mark.holds else voids)

    @cached_property
    def _policies_of_mark(self) -> str:
        return policies_of_mark(*self._policies)

    @cached_property
    def _policies(self) -> tuple[list[PolicyDefinition], list[PolicyDefinition]]:
        """The policies and the operator policies of the vhost."""
        return read_policies(self._api, self.vhost, LiveObjects())

    @cached_property
    def mark(self) -> Mark:
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
