"""Three topologies: `Topology`, what a file says; `LiveTopology`, what a broker has; `Imported`, what a definitions file contains.

`plan` takes the first two, in this order: exchanging them is a type error.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from rabbit_chx.amqp.frames import FRAME_MAX
from rabbit_chx.analysis.findings import Finding
from rabbit_chx.errors import InputError, TopologyError
from rabbit_chx.routing import ExchangeRef, HashRing, ModulusHashExchange, Release, SlotTable
from rabbit_chx.routing.bindings import Provenance
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.routing.release import NEWEST_COMPARED, check_release
from rabbit_chx.text import listed, plural
from rabbit_chx.topology.arguments import (
    QueueSetting,
    find_applying_policy,
    find_ignored,
    queue_setting,
)
from rabbit_chx.topology.modulus import modulus_of
from rabbit_chx.topology.objects import (
    HASH_EXCHANGE,
    MODULUS_EXCHANGE,
    ExchangeDefinition,
    FileFacts,
    ObjectSet,
    PolicyDefinition,
    QueueDefinition,
    RingMember,
)
from rabbit_chx.topology.schema import unordered_ring
from rabbit_chx.topology.slots import SlotNames, assign_owners, parse_member, view_slots

# -- What the statistics of a broker say about the traffic and the consumers of a vhost. They are up to 5 s old


@dataclass(frozen=True, slots=True)
class PublishRates:
    """Messages per second, as the broker counted them in the last seconds.

    Attributes:
        exchange: those that were published to the exchange itself; None if the broker has no rate, as before the first message.
        queues: those that reached each queue of the vhost that has a rate, by whatever exchange.
        states: the state of each queue of the vhost that does not run, such as ``down``.
        backlogs: the ready and the unacknowledged messages and the consumers of each queue; then the rates are those of the last minute.
    """

    exchange: float | None
    queues: Mapping[str, float] = field(hash=False)
    states: Mapping[str, str] = field(default_factory=dict, hash=False)
    backlogs: Mapping[str, tuple[int | None, ...]] = field(default_factory=dict, hash=False)

    def traffic(self, queues: Collection[str]) -> dict[str, float]:
        """Return the share of the messages that each of these queues got; empty without messages."""
        rates = {queue: self.queues.get(queue, 0.0) for queue in queues}
        total = sum(rates.values())
        if not total:
            return {}
        return {queue: rate / total for queue, rate in rates.items()}


@dataclass(frozen=True, slots=True)
class Consumer:
    """A consumer of a queue.

    Attributes:
        tag: its consumer tag.
        active: whether the broker delivers to it. All consumers of a queue without a single active consumer are active.
        priority: its ``x-priority``.
        connection: the name of its connection.
    """

    tag: str
    active: bool
    priority: int = 0
    connection: str = ""

    @property
    def name(self) -> str:
        """The member of a group that it is, or its tag if it does not belong to a group."""
        return parse_member(self.tag) or self.tag


@dataclass(frozen=True, slots=True)
class QueueUsage:
    """What is counted of a queue; None: the broker does not say it.

    Attributes:
        ready: the messages that wait.
        unacked: the messages that consumers hold.
        consumers: the number of consumers.
        rate: the messages per second that it got in the last minute.
        state: its state, such as ``running``.
        priorities: the priorities of the waiting messages of a quorum queue; the broker counts them from 4.3 on.
    """

    ready: int | None = None
    unacked: int | None = None
    consumers: int | None = None
    rate: float | None = None
    state: str | None = None
    priorities: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Usage:
    """The traffic and the consumers of a vhost.

    Attributes:
        published: the messages per second that were published to each exchange in the last minute; exchanges without a rate are left out.
        queues: what is counted of each queue.
        consumers: the consumers of each queue that the broker lists for this user; None if it lists none, as without statistics.
        sees_all: whether it lists those of other users, too.
    """

    published: Mapping[str, float] = field(default_factory=dict, hash=False)
    queues: Mapping[str, QueueUsage] = field(default_factory=dict, hash=False)
    consumers: Mapping[str, Sequence[Consumer]] | None = None
    sees_all: bool = True

    @property
    def is_unsettled(self) -> bool:
        """True if a queue has consumers, and none of them is active: statistics that are some seconds old say so after a change."""
        return any(
            consumers and not any(consumer.active for consumer in consumers)
            for consumers in (self.consumers or {}).values()
        )

    def consumers_of(self, queue: str) -> int | None:
        """Return the number of consumers of a queue; None if it is not known."""
        listed = len((self.consumers or {}).get(queue, ()))
        counted = self.queues.get(queue, QueueUsage()).consumers
        if counted is None:
            return listed or None
        return max(counted, listed)

    def ready_in(self, queue: str) -> int | None:
        """Return the number of messages that wait in a queue; None if it is not known."""
        found = self.queues.get(queue)
        return None if found is None else found.ready

    def rates_of(self, exchange: str) -> PublishRates:
        """Return the rates of the last minute of an exchange, with the backlogs of all queues."""
        return PublishRates(
            self.published.get(exchange),
            {name: queue.rate for name, queue in self.queues.items() if queue.rate is not None},
            {
                name: queue.state
                for name, queue in self.queues.items()
                if queue.state is not None and queue.state not in RUNNING
            },
            {name: (queue.ready, queue.unacked, queue.consumers) for name, queue in self.queues.items()},
        )


#: The states of a queue that works.
RUNNING = ("running", "idle")


@dataclass(frozen=True, slots=True, repr=False)
class AnyTopology(ObjectSet, ABC):
    """What the topology of a file and that of a broker have in common: the objects of a vhost, and where their keys go.

    The objects are in the natural order of their names. Two topologies of the same kind are equal if they have the same objects and
    limits, in any order; what else is known about them does not count.

    Attributes:
        exchanges: the exchanges.
        queues: the queues.
        bindings: the bindings of exchanges other than ``x-consistent-hash``.
        policies: the policies.
        cluster: the name of the cluster. A plan for another one is refused.
        vhost: the name of the vhost. A plan of a file for another one needs a permission; equality does not compare it.
        max_share_moved: the largest share of keys of a hash exchange that may have another destination, or none, at any moment of a plan.
        owns: patterns such as ``orders.*``, where ``*`` matches any text: a plan deletes exchanges and queues with these names that the
            file does not list.
    """

    @property
    @abstractmethod
    def release(self) -> Release | None:
        """The release whose rules apply by default; None if it is not known."""

    @property
    @abstractmethod
    def sources_left_out(self) -> frozenset[str]:
        """The exchanges whose bindings to server-named queues are left out."""

    @abstractmethod
    def _find_ring(self, exchange: str, release: Release | None) -> HashRing | None:
        """Return the ring of an exchange; None if its members make it, in their order. `release`: whose rules the caller asks for."""

    def to_toml(self) -> str:
        """Return the text of a topology file with this topology; `Topology.from_toml` returns the same objects.

        Consecutive names become ranges. Defaults, and what is not an object, such as the rings of a broker, are not written.

        Raises:
            TopologyError: an argument is None, which TOML cannot express.
        """
        from rabbit_chx.topology.toml_file import toml_text

        return toml_text(self)

    @property
    def problems(self) -> tuple[Finding, ...]:
        """The mistakes of a topology that was made in Python: those that `from_toml` reports for its `to_toml` and its `release`."""
        try:
            Topology.from_toml(self.to_toml(), release=self.release)
        except TopologyError as error:
            return error.problems
        return ()

    @property
    def misspellings(self) -> tuple[str, ...]:
        """A sentence for each name that is probably misspelled although a broker accepts it: types, members, patterns of `owns`."""
        from rabbit_chx.topology.file_rules import misspellings

        return tuple(misspellings(self))

    def ignored_arguments(self, release: Release | None = None) -> tuple[str, ...]:
        """Return a sentence for each argument of an exchange or a queue that the broker accepts and ignores.

        Args:
            release: the release of the broker. None: that of the topology; of a file, the arguments that every release ignores.
        """
        objects: tuple[ExchangeDefinition | QueueDefinition, ...] = (*self.exchanges, *self.queues)
        return tuple(
            f"{message}: {fix}" for _, message, fix in find_ignored(objects, release or self.release)
        )

    def ring(self, exchange: str, release: Release | None = None) -> HashRing:
        """Return the ring of an ``x-consistent-hash`` exchange. With slots, the slots are its destinations.

        A topology that was read from a broker has its rings. The ring of a file is replayed from the members, in their order; a
        definitions file does not have it.

        Args:
            exchange: the exchange's name.
            release: the release whose rules apply; None: the broker's release, or else the newest.

        Raises:
            InputError: the exchange does not exist or is of another type, or that release refuses a weight.
        """
        definition = self._hash_exchange(exchange)
        ring = self._find_ring(exchange, release)
        if ring is not None:
            return ring if release is None else ring.with_release(release)
        members = definition.ring or ()
        if definition.slots is not None:
            members = tuple(map(RingMember, SlotNames(exchange, definition.slots).refs))
        return HashRing.from_bindings([member.binding for member in members], release or self.release)

    def slots(self, exchange: str, release: Release | None = None) -> SlotTable:
        """Return the owner of each slot of an exchange.

        In a file a member has the slots that it lists. If members have weights instead, each slot gets the queue that it would get on a new
        broker, and `owners_assumed` is true: on an existing exchange, slots keep their queues as far as the weights permit.

        Args:
            exchange: the exchange's name.
            release: the release whose rules apply, as in `ring`.

        Raises:
            InputError: as in `ring`; or the exchange has no slots.
        """
        table = self.key_map(exchange, release)
        if not isinstance(table, SlotTable):
            raise InputError(
                f"exchange {exchange!r} does not have slots: Topology.key_map returns its mapping of keys",
                exchange=exchange,
            )
        return table

    def key_map(self, exchange: str, release: Release | None = None) -> KeyMap:
        """Return the mapping of keys to queues: the `slots` of an exchange with slots, else its `ring`; or the `modulus`.

        Keys end at the exchanges among its destinations.

        Args:
            exchange: the exchange's name.
            release: the release whose rules apply, as in `ring`.

        Raises:
            InputError: as in `ring`.
        """
        named = self.exchange(exchange)
        if named is not None and named.type == MODULUS_EXCHANGE:
            return self.modulus(exchange, release)
        definition = self._hash_exchange(exchange)
        ring = self.ring(exchange, release)
        if definition.slots is None:
            return view_slots(exchange, ring, self.exchanges, self.bindings).key_map()
        names = SlotNames(exchange, definition.slots)
        members = definition.members or ()
        owners = assign_owners(names, members, HashRing.from_bindings(()), {})
        assumed = any(member.slots is None for member in members)
        queues = {ExchangeRef(slot): queue for slot, queue in owners.items()}
        return SlotTable(ring, queues, owners_assumed=assumed)

    def modulus(self, exchange: str, release: Release | None = None) -> ModulusHashExchange:
        """Return an ``x-modulus-hash`` exchange.

        Its bindings determine the queue of each key. So that of a broker's topology is ``read``, without a ring source. Its order is not known
        if the release has none, or if bindings to queues with names of the broker are left out.

        Args:
            exchange: the exchange's name.
            release: the release whose rules apply; None: the broker's release, or else the newest.

        Raises:
            InputError: the exchange does not exist or is of another type.
        """
        self._hash_exchange(exchange, MODULUS_EXCHANGE)
        rules = release or self.release or NEWEST_COMPARED
        bound = [binding for binding in self.bindings if binding.source == exchange]
        provenance: Provenance | None = "replayed" if self.release is None else "read"
        if exchange in self.sources_left_out or rules != (self.release or rules):
            provenance = None
        return modulus_of(exchange, bound, rules, provenance)

    def _hash_exchange(self, name: str, type_: str = HASH_EXCHANGE) -> ExchangeDefinition:
        exchange = self.exchange(name)
        if exchange is not None and exchange.type == type_:
            return exchange
        hashing = [other.name for other in self.exchanges if other.type == type_]
        fault = "does not exist" if exchange is None else f"is of type {exchange.type}"
        if exchange is not None and exchange.type == MODULUS_EXCHANGE:
            fault = f"{fault}, which Topology.modulus returns"
        choices = f"those of type {type_} are {listed(hashing) or 'none'}"
        raise InputError(f"exchange {name!r} {fault}: {choices}", exchange=name)

    def owned(self, name: str) -> bool:
        """Return True if the `name` of an exchange or a queue matches `owns`, where ``*`` is any text."""
        return any(_expression(pattern).fullmatch(name) for pattern in self.owns)


@dataclass(frozen=True, slots=True, repr=False)
class Topology(AnyTopology):
    """The exchanges, queues, bindings and policies of a vhost that a file says. The lists are described at `AnyTopology`.

    Attributes:
        file: what else the file says, or leaves open.
    """

    file: FileFacts = field(default=FileFacts(), compare=False)

    @classmethod
    def from_file(
        cls,
        path: str | PathLike[str],
        *,
        release: Release | None = None,
        values: Mapping[str, str] | None = None,
    ) -> Topology:
        """Return the topology in a topology file, whose text `from_toml` takes. The errors name the file.

        Args:
            path: the file.
            release: as in `from_toml`.
            values: as in `from_toml`.

        Raises:
            TopologyError: the file has mistakes. The error lists all of them.
            InputError: the file cannot be read, or as in `from_toml`.
        """
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, TypeError, ValueError) as error:  # also of text that is not UTF-8
            why = getattr(error, "strerror", None) or error
            raise InputError(f"the topology file {path!s:.200} cannot be read: {why!s:.200}") from None
        return cls.from_toml(text, file=fspath(path), release=release, values=values)

    @classmethod
    def from_toml(
        cls,
        text: str,
        *,
        file: str | None = None,
        release: Release | None = None,
        values: Mapping[str, str] | None = None,
    ) -> Topology:
        """Return the topology in a topology file. docs/reference/topology.md describes the format.

        Args:
            text: the file's text.
            file: its name, for the error; `from_file` passes it.
            release: the release whose rules for arguments and settings apply. None: only what every release refuses is a mistake; a plan
                refuses what the broker's release refuses.
            values: the texts of the variables of the file, by their names: ``${NAME}`` in a text. The environment is not read.

        Raises:
            TopologyError: the file has mistakes. The error lists all of them.
            InputError: the text is not a str, the release is not a Release, or the values are not texts by names.
        """
        from rabbit_chx.topology.toml_file import toml_content

        if not isinstance(text, str):
            raise InputError(
                f"a {type(text).__name__} is not the text of a topology file: pass the text, or read the file with Topology.from_file(path)"
            )
        if release is not None:
            check_release(release)
        content, untyped = toml_content(text, file, release, values or {})
        return cls(**content, file=FileFacts(untyped_queues=untyped))

    @classmethod
    def from_definitions(cls, text: str | bytes, vhost: str = "/") -> Topology:
        """Return the topology of a vhost in a RabbitMQ definitions file. `Imported.from_definitions` also returns what it lacks.

        Arguments and errors (`text`, `vhost`) are those of that method.
        """
        return Imported.from_definitions(text, vhost).topology

    @property
    def release(self) -> Release | None:
        """The release that wrote a definitions file, whose rules apply by default; None if the file does not name one."""
        return self.file.release

    @property
    def sources_left_out(self) -> frozenset[str]:
        """The exchanges whose bindings to server-named queues are left out, in a definitions file."""
        return self.file.sources_left_out

    def is_unordered(self, exchange: str) -> bool:
        """Return True if the topology does not have the order of an exchange's ring, as a definitions file: no plan and no check may restore it.

        Args:
            exchange: the exchange's name.
        """
        return exchange in self.file.unordered

    def with_rings(self, rings: Mapping[str, HashRing]) -> LiveTopology:
        """Return the topology as that of a broker with these `rings`, as `LiveTopology.with_rings` does."""
        return LiveTopology.of_file(self).with_rings(rings)

    def _find_ring(self, exchange: str, release: Release | None) -> HashRing | None:
        definition = self.exchange(exchange)
        if definition is None or definition.ring is None or not self.is_unordered(exchange):
            return None
        try:
            return unordered_ring(definition.ring, self.release)
        except InputError:  # the file's own release refuses a weight, which a broker that was upgraded keeps
            if release is None:
                raise
            return unordered_ring(definition.ring, release)


@dataclass(frozen=True, slots=True)
class Imported:
    """The contents of a RabbitMQ definitions file: a topology, and what that does not have.

    Attributes:
        topology: the topology, as an import makes it.
        left_out: descriptions, without values, of the contents that a topology does not have, such as users, and of objects that the file
            may lack.
        oddities: a finding of what RabbitMQ imports otherwise than written, or so that no client can name it; the latter is left out.
    """

    topology: Topology
    left_out: tuple[str, ...] = ()
    oddities: tuple[Finding, ...] = ()

    @staticmethod
    def from_definitions(text: str | bytes, vhost: str = "/") -> Imported:
        """Return the contents of a definitions file for a vhost.

        The file is one of a whole broker or of a single vhost, of any release from 3.10 on; fields that it leaves out have the values that
        an import by RabbitMQ 4.3 gives them. It does not contain the order in which queues were bound: its rings are those of the bindings
        as listed, in an order that is not known, and a plan keeps the order of the broker.

        Args:
            text: the JSON text.
            vhost: the vhost, if the file has several.

        Raises:
            TopologyError: the text is not a definitions file, does not have that vhost, or RabbitMQ does not import it.
        """
        from rabbit_chx.topology.definitions import read_definitions

        content, left_out, oddities = read_definitions(text, vhost)
        return Imported(Topology(**content), left_out, oddities)


def is_named_after(cluster: str, node: str) -> bool:
    """Return True if a name of a cluster is the default on a node: where nobody has set one, each node reports its own.

    The default is the name of the node, with the whole name of its host (rabbitmq-server ``rabbit_nodes.erl``, ``cluster_name_default/0``).
    """
    return cluster == node or cluster.startswith(f"{node}.")


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """What is known about the queues of a vhost beyond their definitions, by their names.

    Attributes:
        messages: the number of messages of each queue: the current number for a parking queue, else the last count of the management API.
        down: the state of each queue that the broker reports as down, such as ``down`` if its node does not run. Nobody can count its messages.
        consumer_tags: the consumer tags of each queue, or their number if the broker lists none, if they were requested.
        applied_policies: the name of the policy that applies to each queue, None if no policy does; empty if the broker does not return it.
    """

    messages: Mapping[str, int] = field(default_factory=dict, hash=False)
    down: Mapping[str, str] = field(default_factory=dict, hash=False)
    consumer_tags: Mapping[str, tuple[str, ...] | int] = field(default_factory=dict, hash=False)
    applied_policies: Mapping[str, str | None] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class BrokerLimits:
    """What a broker permits, and what it takes by default.

    Attributes:
        exchange_types: the types of exchanges that the broker has.
        denied_features: the deprecated features that the broker denies, such as ``queue_master_locator``, and the feature flags that are
            disabled: True; False for those of which the management API does not tell whether the broker denies them.
        default_queue_type: the default queue type of the vhost.
        queues_left: how many further queues the limit of the vhost permits, beside the lock of an apply; None without a limit.
        frame_max: the largest frame that the broker takes, in bytes.
        consumer_timeout_ms: the broker's default consumer timeout in milliseconds, if a ring source read it.
    """

    exchange_types: frozenset[str] = frozenset()
    denied_features: Mapping[str, bool] = field(default_factory=dict, hash=False)
    default_queue_type: str | None = None
    queues_left: int | None = None
    frame_max: int = FRAME_MAX
    consumer_timeout_ms: int | None = None


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """What is known about a broker beyond its objects and rings; each has a default that means that it is not known.

    Attributes:
        queues: what is known about its queues.
        usage: the traffic and the consumers of the vhost; None if they were not read, as in a vhost where no exchange hashes.
        limits: what it permits.
        evidence: what shows the order of its rings: `records.evidence.Evidence`, which `evidence_of` returns.
        operator_policies: the operator policies of the vhost. A topology file does not contain them.
        exchange_policies: the name of the policy that applies to an exchange that was read alone, None if no policy does.
        nodes: the nodes of the cluster, each with its start in seconds since 1970; None if it does not run, or if that is not known.
        left_out: descriptions, without values, of the contents of the vhost that a topology does not have.
        sources_left_out: the exchanges whose bindings to server-named queues are left out.
        oddities: a finding of the objects that no client can declare or name; the latter are left out.
    """

    queues: QueueFacts = field(default_factory=QueueFacts)
    usage: Usage | None = None
    limits: BrokerLimits = field(default_factory=BrokerLimits)
    evidence: object = None
    operator_policies: tuple[PolicyDefinition, ...] = ()
    exchange_policies: Mapping[str, str | None] = field(default_factory=dict, hash=False)
    nodes: Mapping[str, float | None] = field(default_factory=dict, hash=False)
    left_out: tuple[str, ...] = ()
    sources_left_out: frozenset[str] = frozenset()
    oddities: tuple[Finding, ...] = ()

    @property
    def last_start(self) -> float | None:
        """The last start of a running node, for observations with times; None if it is not known."""
        return max((start for start in self.nodes.values() if start is not None), default=None)

    def leaving_out(self, descriptions: Iterable[str]) -> BrokerFacts:
        """Return the facts with more `descriptions` of what the topology does not have."""
        return replace(self, left_out=(*self.left_out, *descriptions))


@dataclass(frozen=True, slots=True, repr=False)
class LiveTopology(AnyTopology):
    """The live objects of a vhost, its rings, and what else is known about the broker. The lists are described at `AnyTopology`.

    Attributes:
        rings: the ring of each ``x-consistent-hash`` exchange, by its name.
        release: the broker's release; None if it is not known.
        facts: what else is known about the broker.
    """

    rings: Mapping[str, HashRing] = field(default_factory=dict, compare=False)
    release: Release | None = field(default=None, compare=False)
    facts: BrokerFacts = field(default_factory=BrokerFacts, compare=False)

    @classmethod
    def of_file(cls, topology: Topology, release: Release | None = None) -> LiveTopology:
        """Return a file as the live side of a plan or a check: a broker that has exactly its objects.

        Args:
            topology: what the file says. A plan assumes that its rings have the order of the members, because nobody has read them.
            release: the broker's release; None: that of a definitions file, or else not known, so that the newest rules apply.
        """
        rings = {}
        for name in topology.file.unordered:
            definition = topology.exchange(name)
            if definition is not None and definition.ring is not None:
                with suppress(InputError):  # that release refuses a weight
                    rings[name] = unordered_ring(definition.ring, release or topology.release)
        facts = BrokerFacts(
            operator_policies=topology.file.operator_policies, sources_left_out=topology.sources_left_out
        )
        return cls(**_lists_of(topology), rings=rings, release=release or topology.release, facts=facts)

    def as_wanted(self) -> Topology:
        """Return the same objects as the topology of a file, to change and plan them. A ring whose order is not known stays so."""
        unordered = frozenset(name for name, ring in self.rings.items() if not ring.order.is_known)
        file = FileFacts(self.release, unordered=unordered, sources_left_out=self.sources_left_out)
        return Topology(**_lists_of(self), file=file)

    @property
    def sources_left_out(self) -> frozenset[str]:
        """The exchanges whose bindings to server-named queues are left out."""
        return self.facts.sources_left_out

    def is_cluster(self, name: str) -> bool:
        """Return True if the cluster has a `name`: the one that was set, or otherwise that of any of its nodes."""
        nodes = self.facts.nodes
        is_default = any(is_named_after(self.cluster or "", node) for node in nodes)
        return name == self.cluster or (is_default and any(is_named_after(name, node) for node in nodes))

    def use_of(self, queue: str) -> str:
        """Return the consumers and the messages of a queue, as ``1 consumer and 20 messages``; empty if it has none, or if none are known.

        Args:
            queue: the name of the queue.
        """
        tags = self.facts.queues.consumer_tags.get(queue)
        consumers = None if self.facts.usage is None else self.facts.usage.consumers_of(queue)
        if tags is not None:
            consumers = tags if isinstance(tags, int) else len(tags)
        messages = self.facts.queues.messages.get(queue)
        parts = [plural(consumers, "consumer")] if consumers else []
        parts += [plural(messages, "message")] if messages else []
        return " and ".join(parts)

    def policy_of(self, exchange: ExchangeDefinition) -> PolicyDefinition | None:
        """Return the policy that applies to an exchange; None if no policy does.

        Args:
            exchange: the exchange.
        """
        applied = self.facts.exchange_policies
        if exchange.name not in applied:
            return find_applying_policy(exchange, self.policies)
        return next((policy for policy in self.policies if policy.name == applied[exchange.name]), None)

    def setting(self, queue: QueueDefinition, argument: str) -> QueueSetting | None:
        """Return the setting of a queue by an argument or the policies that apply to it; None if it is not set.

        Args:
            queue: the queue.
            argument: the argument, such as ``x-message-ttl``.
        """
        applied = self.facts.queues.applied_policies
        if queue.name in applied:
            # The broker ignores a policy with a key that queues of this type do not have. It returns the policy that applies.
            policy = next((policy for policy in self.policies if policy.name == applied[queue.name]), None)
        else:
            policy = find_applying_policy(queue, self.policies)
        operator_policy = find_applying_policy(queue, self.facts.operator_policies)
        return queue_setting(queue, argument, policy, operator_policy)

    def with_rings(self, rings: Mapping[str, HashRing]) -> LiveTopology:
        """Return the topology with rings that were read, and the members of those exchanges in the order of the rings.

        Members without a bucket are last. `rings` has the name of the exchange as its key.
        """
        return replace(
            self,
            exchanges=tuple(_in_order(exchange, rings.get(exchange.name)) for exchange in self.exchanges),
            rings={**self.rings, **rings},
        )

    def _find_ring(self, exchange: str, release: Release | None) -> HashRing | None:  # noqa: ARG002  # its rings do not depend on it
        return self.rings.get(exchange)


def _lists_of(topology: AnyTopology) -> dict[str, Any]:
    return {each.name: getattr(topology, each.name) for each in fields(ObjectSet)}


@lru_cache(maxsize=256)
def _expression(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL)


def _in_order(exchange: ExchangeDefinition, ring: HashRing | None) -> ExchangeDefinition:
    if ring is None or exchange.ring is None:
        return exchange
    place = {destination: n for n, destination in enumerate(ring.destinations)}
    members = sorted(exchange.ring, key=lambda member: place.get(member.destination, len(place)))
    return replace(exchange, ring=tuple(members))
