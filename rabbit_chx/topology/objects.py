"""The objects of a topology: exchanges, queues, bindings and policies, as plain values.

`schema` has the table of their fields.

A slot is an internal fanout exchange that is bound to queues only. Any other exchange in a ring is not a slot: it routes its messages by
its own bindings.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, TypeAlias

from rabbit_chx.amqp import exchange_types
from rabbit_chx.checks import is_whole
from rabbit_chx.errors import InputError
from rabbit_chx.routing import Binding, Destination, ExchangeRef, Release
from rabbit_chx.routing.bindings import binding_key, check_destination, weight_of
from rabbit_chx.routing.message import HASH_ARGUMENTS, HashedOn
from rabbit_chx.topology.argument_table import NO_ARGUMENTS, ArgumentTable, as_table, plain

#: The owner of an object: this topology, or another one. External objects are checked, never declared or deleted.
Owner: TypeAlias = Literal["ours", "external"]
ObjectKind: TypeAlias = Literal["exchange", "queue", "binding", "policy"]
HASH_EXCHANGE = exchange_types.HASH_EXCHANGE
MODULUS_EXCHANGE = exchange_types.MODULUS_EXCHANGE
ALTERNATE_EXCHANGE = "alternate-exchange"
#: The arguments and settings of policies that name an exchange to which messages go on.
_ONWARD = (ALTERNATE_EXCHANGE, "x-dead-letter-exchange", "dead-letter-exchange")
QUEUE_TYPE = "x-queue-type"
QUEUE_TYPES = ("classic", "quorum", "stream")
#: The arguments of a super stream's exchange, and of the bindings of its partitions.
SUPER_STREAM = "x-super-stream"
PARTITION_ORDER = "x-stream-partition-order"
_LEADER_LOCATOR = "x-queue-leader-locator"

#: The names of the broker's own exchanges and queues begin with this.
BROKERS_OWN = "amq."
#: The exchanges that each broker has, with their types. No topology lists them.
BROKERS_EXCHANGES = {
    "": "direct",
    "amq.direct": "direct",
    "amq.fanout": "fanout",
    "amq.headers": "headers",
    "amq.match": "headers",
    "amq.topic": "topic",
    "amq.rabbitmq.log": "topic",
    "amq.rabbitmq.trace": "topic",
}
OBJECT_LISTS = ("exchanges", "queues", "bindings", "policies")
#: The argument of the exchanges and queues of a federation link.
FEDERATION_PURPOSE = {"x-internal-purpose": "federation"}
#: The exchange of a federation link, which is bound to the federated exchange (rabbitmq-server ``rabbit_federation_exchange_link.erl``,
#: ``upstream_queue_name/3`` and ``upstream_exchange_name/2``).
LINK_NAME = re.compile(r"federation: .+ -> .+ [AB]", re.DOTALL)
_NUMBER = re.compile(r"([0-9]+)")


def _set(definition: object, /, **values: Any) -> None:
    """Set attributes in `__post_init__`. dataclass(frozen=True) permits no other way."""
    for name, value in values.items():
        object.__setattr__(definition, name, value)


def _share(share: Any) -> Any:
    """Return 1.0 for 1, so that both give a plan the same checksum."""
    return float(share) if is_whole(share) else share


@dataclass(frozen=True, slots=True)
class RingMember:
    """A binding of an ``x-consistent-hash`` exchange, at its position in the ring.

    Attributes:
        destination: a queue's name, or an ExchangeRef.
        key: the text of the binding key. An int is accepted too: the weight 7 is the key ``7``.
        arguments: the binding's arguments, without effect on the ring.
        slots: for a queue of an exchange with slots, the numbers of its slots; None: its weight determines the number of its slots.

    Raises:
        InputError: the destination is neither a name nor an ExchangeRef, or the key is neither int nor text.
    """

    destination: Destination
    key: str = "1"
    arguments: Mapping[str, Any] = NO_ARGUMENTS
    slots: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        check_destination(self.destination)
        slots = None if self.slots is None else tuple(sorted(self.slots))
        _set(self, key=binding_key(self.key), arguments=as_table(self.arguments), slots=slots)

    @property
    def binding(self) -> Binding:
        """The destination and the binding key, for `HashRing.from_bindings`."""
        return self.destination, self.key

    @property
    def weight(self) -> int:
        """The number of buckets by its key. A key that no broker takes is an InputError."""
        return weight_of(self.destination, self.key)


@dataclass(frozen=True, slots=True)
class ExchangeDefinition:
    """An exchange.

    Attributes:
        name: the exchange's name.
        type: ``direct``, ``fanout``, ``topic``, ``headers``, ``x-consistent-hash``, or any other type that the broker supports.
        durable: whether it survives a restart of the broker.
        auto_delete: whether it is deleted with its last binding.
        internal: whether only other exchanges can publish to it.
        arguments: the arguments of the declaration.
        ring: the members of an ``x-consistent-hash`` exchange, in bind order: the order of the buckets.
        slots: instead of ``ring``, the number of slots.
        members: with ``slots``, the queues that own them.
        queues: all queues that are bound to an ``x-modulus-hash`` exchange, each once with an empty key. RabbitMQ 4.3 sorts them by name.
        max_share_moved: the limit for this exchange. Default: that of the file.
        owner: ``external``: only checked, never declared or deleted.
    """

    kind: ClassVar[ObjectKind] = "exchange"

    name: str
    type: str = "direct"
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    arguments: Mapping[str, Any] = NO_ARGUMENTS
    ring: tuple[RingMember, ...] | None = None
    slots: int | None = None
    members: tuple[RingMember, ...] | None = None
    queues: tuple[str, ...] | None = None
    max_share_moved: float | None = None
    owner: Owner = "ours"

    def __post_init__(self) -> None:
        _set(self, arguments=as_table(self.arguments), max_share_moved=_share(self.max_share_moved))
        ring = None if self.ring is None else tuple(self.ring)
        members = None if self.members is None else tuple(self.members)
        queues = None if self.queues is None else tuple(sorted(self.queues, key=order_of_name))
        _set(self, ring=ring, members=members, queues=queues)

    @property
    def hash_arguments(self) -> dict[str, str]:
        """The arguments that determine the hashed value.

        Raises:
            InputError: they are not those of an exchange that hashes.
        """
        arguments = {name: self.arguments[name] for name in HASH_ARGUMENTS if name in self.arguments}
        HashedOn.from_arguments(arguments)
        return arguments

    @property
    def alternate(self) -> str | None:
        """The alternate exchange of its arguments; None if they name none."""
        name = self.arguments.get(ALTERNATE_EXCHANGE)
        return name if isinstance(name, str) else None

    @property
    def ref(self) -> ExchangeRef:
        """The exchange as a destination of bindings."""
        return ExchangeRef(self.name)

    @property
    def why_transient(self) -> str:
        """Why the broker deletes it by itself; empty if it does not."""
        if self.auto_delete:
            return "is auto-delete: it is deleted with its last binding"
        return "" if self.durable else "is not durable: it is deleted when the broker stops"


@dataclass(frozen=True, slots=True)
class QueueDefinition:
    """A queue.

    ``x-queue-type`` among the arguments becomes the type and is removed from the arguments. An empty type is the default of the vhost. For the broker a queue that was declared
    without it equals one that was declared with ``classic`` (tested on 3.10.8 to 4.3.6).

    Attributes:
        name: the queue's name.
        type: the queue type, ``x-queue-type``.
        durable: whether it survives a restart of the broker.
        exclusive: whether only the connection that declared it can use it. It is deleted with that connection.
        auto_delete: whether it is deleted with its last consumer.
        arguments: the arguments of the declaration.
        owner: ``external``: only checked, never declared or deleted.
    """

    kind: ClassVar[ObjectKind] = "queue"

    name: str
    type: str = "classic"
    durable: bool = True
    exclusive: bool = False
    auto_delete: bool = False
    arguments: Mapping[str, Any] = NO_ARGUMENTS
    owner: Owner = "ours"

    def __post_init__(self) -> None:
        arguments = as_table(self.arguments)
        type_ = arguments.get(QUEUE_TYPE)
        if isinstance(type_, str) and self.type in ("classic", type_):
            rest = {name: value for name, value in arguments.items() if name != QUEUE_TYPE}
            _set(self, type=type_, arguments=ArgumentTable(rest))
        else:
            _set(self, arguments=arguments)

    @property
    def ref(self) -> str:
        """The queue as a destination of bindings: its name."""
        return self.name

    @property
    def why_transient(self) -> str:
        """Why the broker deletes it by itself; empty if it does not."""
        if self.exclusive:
            return "is exclusive: it is deleted with the connection that declared it"
        if self.auto_delete:
            return "is auto-delete: it is deleted with its last consumer"
        return "" if self.durable else "is not durable: it is deleted when its node stops"

    def with_default_type(self, type_: str | None) -> QueueDefinition:
        """Return the queue with the default type of a vhost, as the broker applies it: other queues than durable ones are classic.

        Args:
            type_: the default type; None for classic.
        """
        is_plain = self.durable and not self.exclusive and not self.auto_delete
        return replace(self, type=type_ if type_ in QUEUE_TYPES and is_plain else "classic")

    @property
    def declared_arguments(self) -> ArgumentTable:
        """The arguments of ``queue.declare``: with ``x-queue-type``, so that the vhost's default does not apply, unless the type is empty."""
        return ArgumentTable({**self.arguments, QUEUE_TYPE: self.type} if self.type else self.arguments)


@dataclass(frozen=True, slots=True)
class BindingDefinition:
    """A binding of an exchange of any type except ``x-consistent-hash``.

    Attributes:
        source: the source exchange.
        destination: a queue's name, or an ExchangeRef.
        routing_key: the binding key.
        arguments: the arguments, such as those of a ``headers`` exchange.
        owner: ``external``: only checked, never declared or deleted.

    Raises:
        InputError: the destination is neither a name nor an ExchangeRef.
    """

    kind: ClassVar[ObjectKind] = "binding"

    source: str
    destination: Destination
    routing_key: str = ""
    arguments: Mapping[str, Any] = NO_ARGUMENTS
    owner: Owner = "ours"

    def __post_init__(self) -> None:
        check_destination(self.destination)
        _set(self, arguments=as_table(self.arguments))

    @property
    def name(self) -> str:
        """Both ends, the key and the arguments, as in ``orders -> orders.1 (key 1)``."""
        parts = [f"key {self.routing_key}"] if self.routing_key else []
        parts += [f"{name}={value!r}" for name, value in plain(self.arguments).items()]
        return f"{self.source} -> {self.destination}" + (f" ({', '.join(parts)})" if parts else "")

    @property
    def member(self) -> Binding:
        """The destination and the key, which make a binding of a ring."""
        return self.destination, self.routing_key

    @property
    def identity(self) -> Hashable:
        """What makes it the same binding for the broker: all but its owner."""
        return self.source, self.destination, self.routing_key, self.arguments


@dataclass(frozen=True, slots=True)
class PolicyDefinition:
    """A policy.

    Attributes:
        name: the policy's name.
        pattern: the regular expression that names match.
        apply_to: the kind of objects to which it applies.
        definition: the settings.
        priority: of two policies that match, the one with the larger number applies.
        owner: ``external``: only checked, never declared or deleted.
    """

    kind: ClassVar[ObjectKind] = "policy"

    name: str
    pattern: str
    apply_to: str = "all"
    definition: Mapping[str, Any] = NO_ARGUMENTS
    priority: int = 0
    owner: Owner = "ours"

    def __post_init__(self) -> None:
        _set(self, definition=as_table(self.definition))

    @property
    def ref(self) -> None:
        """A policy is never bound."""
        return None


def order_of_name(name: str) -> tuple[object, ...]:
    """Return a sort key for the natural order of names: ``q.2`` before ``q.10``."""
    parts = [part.lstrip("0") if n % 2 else part for n, part in enumerate(_NUMBER.split(name))]
    # A longer number is larger. Text and numbers alternate, so only equal types are compared.
    return tuple((len(part), part) if n % 2 else part for n, part in enumerate(parts)), name


def order_of_place(place: Destination) -> tuple[object, ...]:
    """Return a sort key for destinations: queues first, then exchanges, each in the natural order of names."""
    if isinstance(place, ExchangeRef):
        return True, order_of_name(place.name)
    return False, order_of_name(place)


def natural_order(
    definition: ExchangeDefinition | QueueDefinition | BindingDefinition | PolicyDefinition,
) -> tuple[object, ...]:
    """Return a sort key for objects of one kind: by name, bindings by source, destination and key."""
    if not isinstance(definition, BindingDefinition):
        return order_of_name(definition.name)
    return (
        order_of_name(definition.source),
        *order_of_place(definition.destination),
        order_of_name(definition.routing_key),
        repr(definition.arguments),
        definition.owner,
    )


_KINDS_OF_OBJECTS: Mapping[str, type] = dict(
    zip(OBJECT_LISTS, (ExchangeDefinition, QueueDefinition, BindingDefinition, PolicyDefinition), strict=True)
)


def list_onward(table: Mapping[str, Any]) -> list[ExchangeRef]:
    """Return the exchanges that arguments, or the settings of a policy, name: messages go on to them."""
    names = (table.get(argument) for argument in _ONWARD)
    return [ExchangeRef(name) for name in names if isinstance(name, str) and name]


@dataclass(frozen=True, slots=True, repr=False)
class ObjectSet:
    """The objects and the limits of a topology. The bindings of an exchange with `queues` are exactly those of these queues."""

    exchanges: tuple[ExchangeDefinition, ...] = ()
    queues: tuple[QueueDefinition, ...] = ()
    bindings: tuple[BindingDefinition, ...] = ()
    policies: tuple[PolicyDefinition, ...] = ()
    cluster: str | None = None
    max_share_moved: float | None = None
    owns: tuple[str, ...] = ()
    vhost: str | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        for name, kind in _KINDS_OF_OBJECTS.items():
            for wrong in (one for one in getattr(self, name) if not isinstance(one, kind)):
                raise InputError(f"{name} contains {wrong!r:.60}: pass a tuple of {kind.__name__}")
        listing = [exchange for exchange in self.exchanges if exchange.queues is not None]
        sources = {exchange.name for exchange in listing}
        bindings = [binding for binding in self.bindings if binding.source not in sources]
        bindings += [
            BindingDefinition(exchange.name, queue, owner=exchange.owner)
            for exchange in listing
            for queue in exchange.queues or ()
        ]
        _set(self, bindings=bindings)
        _set(self, **{name: tuple(sorted(getattr(self, name), key=natural_order)) for name in OBJECT_LISTS})
        _set(self, owns=tuple(self.owns), max_share_moved=_share(self.max_share_moved))

    def __repr__(self) -> str:
        counts = (f"{len(getattr(self, name))} {name}" for name in OBJECT_LISTS)
        return f"<{type(self).__name__} {', '.join(counts)}>"

    @property
    def by_name(
        self,
    ) -> dict[tuple[ObjectKind, str], ExchangeDefinition | QueueDefinition | PolicyDefinition]:
        """The exchanges, queues and policies by kind and name."""
        objects: tuple[ExchangeDefinition | QueueDefinition | PolicyDefinition, ...]
        objects = (*self.exchanges, *self.queues, *self.policies)
        return {(named.kind, named.name): named for named in objects}

    def exchange(self, name: str) -> ExchangeDefinition | None:
        """Return the exchange whose name is `name`; None if it does not exist."""
        return next((exchange for exchange in self.exchanges if exchange.name == name), None)

    def queue(self, name: str) -> QueueDefinition | None:
        """Return the queue whose name is `name`; None if it does not exist."""
        return next((queue for queue in self.queues if queue.name == name), None)

    @property
    def unlisted(self) -> tuple[Destination, ...]:
        """The exchanges and queues that bindings refer to and that are not listed, sorted; without ``amq.`` exchanges.

        They are external: they must exist before the bindings are made.
        """
        exchanges = {exchange.name for exchange in self.exchanges}
        queues = {queue.name for queue in self.queues}
        used: set[Destination] = {ExchangeRef(binding.source) for binding in self.bindings}
        used.update(binding.destination for binding in self.bindings)
        for exchange in self.exchanges:
            used.update(member.destination for member in exchange.ring or exchange.members or ())
        missing: list[Destination] = []
        for place in used:
            if isinstance(place, str):
                is_known = place in queues
            else:
                is_known = place.name in exchanges or place.name.startswith(BROKERS_OWN)
            if not is_known:
                missing.append(place)
        return tuple(sorted(missing, key=lambda place: (isinstance(place, str), order_of_name(str(place)))))


@dataclass(frozen=True, slots=True)
class FileFacts:
    """What a file says beyond the objects, or leaves open.

    Attributes:
        release: the release that wrote a definitions file, if it names one.
        is_import: True for a definitions file: what it leaves out is what an import makes of it.
        untyped_queues: the queues that do not have a type. In a definitions file they get the default type of the vhost, in a topology file
            they are classic.
        unordered: the exchanges whose rings have no known order, as all of a definitions file.
        operator_policies: of a definitions file. A topology file does not contain them, and no plan sets them.
        sources_left_out: the exchanges whose bindings to server-named queues are left out.
    """

    release: Release | None = None
    is_import: bool = False
    untyped_queues: frozenset[str] = frozenset()
    unordered: frozenset[str] = frozenset()
    operator_policies: tuple[PolicyDefinition, ...] = ()
    sources_left_out: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class SuperStreamDefinition:
    """The short form of a super stream in a file: its exchange, a stream for each partition, and their bindings.

    Attributes:
        name: the name of the super stream, and of its exchange. Its partitions are the streams ``NAME-KEY``.
        partitions: the number of partitions, with the binding keys ``0``, ``1`` and so on.
        binding_keys: instead of ``partitions``, their binding keys, in order.
        arguments: the arguments of the streams, whose ``x-queue-leader-locator`` is ``balanced`` by default.
        max_share_moved: the share of keys that may move. Default: that of the file.
        owner: ``external``: only checked, never declared or deleted.
    """

    name: str
    partitions: int | None = None
    binding_keys: tuple[str, ...] | None = None
    arguments: Mapping[str, Any] = NO_ARGUMENTS
    max_share_moved: float | None = None
    owner: Owner = "ours"

    @property
    def keys(self) -> tuple[str, ...]:
        """The binding key of each partition."""
        return (
            tuple(map(str, range(self.partitions or 0))) if self.binding_keys is None else self.binding_keys
        )

    @property
    def streams(self) -> tuple[str, ...]:
        """The name of each partition."""
        return tuple(f"{self.name}-{key}" for key in self.keys)

    def objects(self) -> ObjectSet:
        """Return the objects that ``rabbitmq-streams add_super_stream`` makes.

        These are also those of the stream protocol (rabbitmq-server ``rabbit_stream_manager.erl``, ``create_super_stream``; tested on
        4.3.6).
        """
        name = self.name
        owner = self.owner
        exchange = ExchangeDefinition(
            name, arguments={SUPER_STREAM: True}, max_share_moved=self.max_share_moved, owner=owner
        )
        arguments = ArgumentTable({_LEADER_LOCATOR: "balanced", **self.arguments})
        streams = [
            QueueDefinition(stream, "stream", arguments=arguments, owner=owner) for stream in self.streams
        ]
        bindings = [
            BindingDefinition(name, stream, key, {PARTITION_ORDER: number}, owner)
            for number, (stream, key) in enumerate(zip(self.streams, self.keys, strict=True))
        ]
        return ObjectSet((exchange,), tuple(streams), tuple(bindings))


# -- The names of the exchanges and queues that this program keeps in a vhost. They belong to no topology


#: The name of the queue.
MARK = "rabbit-chx.mark"
#: The exchange with the record of an exchange has this prefix.
RECORD_PREFIX = "rabbit-chx.ring."
#: The exchange with the steps of an apply that has not ended. The lock of an apply is a queue of this name, so that nobody applies without
#: the permission to declare it.
PENDING_APPLY = "rabbit-chx.apply"
#: The exchange that says who has switched tracing on, and the exclusive queue of the connection that gets the copies.
TRACE = "rabbit-chx.trace"
#: What replaces another object is declared under this name first, and deleted at once.
TRIAL = "rabbit-chx.trial"


def is_own(name: object) -> bool:
    """Return True if an exchange or a queue of this name belongs to this program and not to the user.

    An import can make a name that is no text.
    """
    return isinstance(name, str) and (
        name in (MARK, PENDING_APPLY, TRACE, TRIAL) or name.startswith(RECORD_PREFIX)
    )
