"""The objects of a topology: exchanges, queues, bindings and policies, as plain values.

`fields` has the table of their fields in a topology file.

A slot is an internal fanout exchange that is bound to queues only. Any other exchange in a ring is not a slot: it routes its messages by
its own bindings.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from dataclasses import fields as fields_of
from typing import Any, ClassVar, Literal, TypeAlias, Union

from rabbit_chx.amqp.fields import INTEGER_RANGES
from rabbit_chx.checks import MAX_SHORTSTR, is_whole
from rabbit_chx.errors import InputError, MismatchError
from rabbit_chx.routing import Binding, Destination, ExchangeRef, HashRing, SlotTable
from rabbit_chx.routing.bindings import binding_key, check_destination

ArgumentValue: TypeAlias = Union[str, int, float, bool, tuple["ArgumentValue", ...], "ArgumentTable", None]

_LONG = INTEGER_RANGES["long"]
#: The owner of an object: this topology, or another one. External objects are checked, never declared or deleted.
Owner: TypeAlias = Literal["ours", "external"]
ObjectKind: TypeAlias = Literal["exchange", "queue", "binding", "policy"]
HASH_EXCHANGE = "x-consistent-hash"
MODULUS_EXCHANGE = "x-modulus-hash"
ALTERNATE_EXCHANGE = "alternate-exchange"
#: The arguments and settings of policies that name an exchange to which messages go on.
ONWARD_ARGUMENTS = (ALTERNATE_EXCHANGE, "x-dead-letter-exchange", "dead-letter-exchange")
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
_NAMED_AS_SLOT = re.compile(r".+\.slot\.[0-9]+", re.DOTALL)
_LEAST_WIDTH = 2


class ArgumentTable(Mapping[str, ArgumentValue]):
    """An immutable, hashable table of arguments.

    Two tables are equal if they have the same names with the same values of the same types, in any order. So 1, 1.0 and true differ, as in
    the broker. A table also equals a dict with the same contents.

    Args:
        arguments: names and values: text, whole numbers, floats, booleans, None, lists and tables of these.

    Raises:
        InputError: a name is not text, or a value has a type that is not listed above.
    """

    __slots__ = ("_values",)

    def __init__(self, arguments: Mapping[str, Any] | None = None) -> None:
        arguments = arguments or {}
        for name in arguments:
            if not isinstance(name, str):
                raise InputError(f"the argument name {name!r:.60} is not a string: give a str")
        self._values: dict[str, ArgumentValue] = {
            name: _immutable(name, arguments[name]) for name in sorted(arguments)
        }

    def __getitem__(self, name: str) -> ArgumentValue:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ArgumentTable):
            return bool(_identity(self) == _identity(other))
        if isinstance(other, Mapping):
            try:
                return self == ArgumentTable(other)
            except InputError:
                return False
        return NotImplemented

    def __hash__(self) -> int:
        return hash(_identity(self))

    def __repr__(self) -> str:
        return f"ArgumentTable({self.plain()!r})"

    def plain(self) -> dict[str, Any]:
        """Return the table as dicts and lists for `json`."""
        return {name: _plain_value(value) for name, value in self._values.items()}


def plain(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments as dicts and lists for `json`."""
    return ArgumentTable(arguments).plain()


def argument_fault(name: str, value: object) -> tuple[str, str] | None:
    """Return the fault of an argument's value and its remedy; None if the broker accepts the value."""
    if isinstance(value, (list, tuple)):
        return next(filter(None, (argument_fault(name, inner) for inner in value)), None)
    if isinstance(value, Mapping):
        return next(filter(None, (argument_fault(str(key), inner) for key, inner in value.items())), None)
    if isinstance(value, float) and not math.isfinite(value):
        return f"the argument {name!r} is {value}", "give a finite number"
    if isinstance(value, int) and value not in _LONG:
        return f"the argument {name!r} is an integer of more than 64 bits", "give a smaller one"
    if value is None or isinstance(value, (str, int, float)):
        return None
    rule = f"the argument {name!r} is {value!r:.60} ({type(value).__name__})"
    return rule, "give a string, a number, true or false, a list or a table"


def unsendable(name: str, value: object) -> tuple[str, str] | None:
    """Return why AMQP, or pika, cannot send an argument, and the remedy; None if it can be sent."""
    if len(name.encode(errors="replace")) > MAX_SHORTSTR:
        return f"the argument name {name[:40]!r}... exceeds {MAX_SHORTSTR} bytes", "write a shorter name"
    if not is_utf8(name) or (isinstance(value, str) and not is_utf8(value)):
        return f"the argument {name!a} contains half of a surrogate pair", "write whole characters"
    if isinstance(value, float):
        return f"the argument {name!r} is {value}, and pika sends no floats", "write an integer, or a text"
    if isinstance(value, Mapping):
        return next(filter(None, (unsendable(str(key), inner) for key, inner in value.items())), None)
    if isinstance(value, list | tuple):
        return next(filter(None, (unsendable(name, inner) for inner in value)), None)
    return None


def is_utf8(text: str) -> bool:
    """Return True if a text has no half of a surrogate pair."""
    return text.isascii() or text == text.encode(errors="replace").decode()


def _immutable(name: str, value: Any) -> ArgumentValue:
    if isinstance(value, (list, tuple)):
        return tuple(_immutable(name, inner) for inner in value)
    if isinstance(value, Mapping):
        return value if isinstance(value, ArgumentTable) else ArgumentTable(value)
    if fault := argument_fault(name, value):
        raise InputError(": ".join(fault))
    checked: ArgumentValue = value
    return checked


def _plain_value(value: ArgumentValue) -> Any:
    if isinstance(value, ArgumentTable):
        return value.plain()
    if isinstance(value, tuple):
        return [_plain_value(inner) for inner in value]
    return value


def _identity(value: ArgumentValue) -> Any:
    """Return a key that distinguishes values that are equal in Python but not in the broker: 1, 1.0 and True."""
    if isinstance(value, ArgumentTable):
        return "table", tuple((name, _identity(inner)) for name, inner in value.items())
    if isinstance(value, tuple):
        return "list", tuple(map(_identity, value))
    return type(value).__name__, value


def canonical_json(value: object) -> str:
    """Return canonical JSON text of objects. The texts of 1, 1.0 and true differ, as the values do in the broker.

    `queues` are left out, because they are among the bindings.
    """

    def as_dict(value: Any) -> dict[str, Any]:
        if isinstance(value, Mapping):
            return dict(value)
        return {"is": type(value).__name__} | {
            part.name: getattr(value, part.name) for part in fields_of(value) if part.name != "queues"
        }

    return json.dumps(value, default=as_dict, sort_keys=True, separators=(",", ":"))


def canonical_texts(values: Iterable[object]) -> list[str]:
    """Return the sorted `canonical_json` of each value."""
    return sorted(map(canonical_json, values))


NO_ARGUMENTS = ArgumentTable()


def _set(definition: object, /, **values: Any) -> None:
    """Set attributes in `__post_init__`. dataclass(frozen=True) permits no other way."""
    for name, value in values.items():
        object.__setattr__(definition, name, value)


def _as_table(arguments: Mapping[str, Any]) -> ArgumentTable:
    return arguments if isinstance(arguments, ArgumentTable) else ArgumentTable(arguments)


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
        _set(self, key=binding_key(self.key), arguments=_as_table(self.arguments), slots=slots)

    @property
    def binding(self) -> Binding:
        """The destination and the binding key, for `HashRing.from_bindings`."""
        return self.destination, self.key


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
        _set(self, arguments=_as_table(self.arguments), max_share_moved=_share(self.max_share_moved))
        ring, members = (None if some is None else tuple(some) for some in (self.ring, self.members))
        queues = None if self.queues is None else tuple(sorted(self.queues, key=order_of_name))
        _set(self, ring=ring, members=members, queues=queues)

    @property
    def ref(self) -> ExchangeRef:
        """The exchange as a destination of bindings."""
        return ExchangeRef(self.name)


@dataclass(frozen=True, slots=True)
class QueueDefinition:
    """A queue.

    ``x-queue-type`` among the arguments becomes the type and is removed from the arguments. For the broker a queue that was declared
    without it equals one that was declared with ``classic`` (tested on 3.8.9 to 4.3.6).

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
        arguments = _as_table(self.arguments)
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

    def with_default_type(self, type_: str | None) -> QueueDefinition:
        """Return the queue with the default type of a vhost, as the broker applies it: other queues than durable ones are classic.

        Args:
            type_: the default type; None for classic.
        """
        is_plain = self.durable and not self.exclusive and not self.auto_delete
        return replace(self, type=type_ if type_ in QUEUE_TYPES and is_plain else "classic")

    @property
    def declared_arguments(self) -> ArgumentTable:
        """The arguments of ``queue.declare``: with ``x-queue-type``, so that the vhost's default does not apply."""
        return ArgumentTable({**self.arguments, QUEUE_TYPE: self.type})


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
        _set(self, arguments=_as_table(self.arguments))

    @property
    def name(self) -> str:
        """Both ends and the key, as in ``orders -> orders.1 (key 1)``."""
        key = f" (key {self.routing_key})" if self.routing_key else ""
        return f"{self.source} -> {self.destination}{key}"

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
        _set(self, definition=_as_table(self.definition))

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


@dataclass(frozen=True, slots=True, repr=False)
class ObjectSet:
    """The attributes of a `Topology` that a file contains. The bindings of an exchange with `queues` are exactly those of these queues."""

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
                raise InputError(f"{name} contains {wrong!r:.60}: give a tuple of {kind.__name__}")
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
        missing = [
            place
            for place in used
            if (isinstance(place, str) and place not in queues)
            or (
                isinstance(place, ExchangeRef)
                and place.name not in exchanges
                and not place.name.startswith(BROKERS_OWN)
            )
        ]
        return tuple(sorted(missing, key=lambda place: (isinstance(place, str), order_of_name(str(place)))))


@dataclass(frozen=True, slots=True)
class SuperStreamDefinition:
    """The short form of a super stream in a file: its exchange, a stream for each partition, and their bindings.

    Attributes:
        name: the name of the super stream, and of its exchange. Its partitions are the streams ``NAME-KEY``.
        partitions: the number of partitions, with the binding keys ``0``, ``1`` and so on.
        binding_keys: instead of ``partitions``, their binding keys, in order.
        arguments: the arguments of the streams, whose ``x-queue-leader-locator`` is ``balanced`` by default.
        owner: ``external``: only checked, never declared or deleted.
    """

    name: str
    partitions: int | None = None
    binding_keys: tuple[str, ...] | None = None
    arguments: Mapping[str, Any] = NO_ARGUMENTS
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
        name, owner = self.name, self.owner
        exchange = ExchangeDefinition(name, arguments={SUPER_STREAM: True}, owner=owner)
        arguments = ArgumentTable({_LEADER_LOCATOR: "balanced", **self.arguments})
        streams = [
            QueueDefinition(stream, "stream", arguments=arguments, owner=owner) for stream in self.streams
        ]
        bindings = [
            BindingDefinition(name, stream, key, {PARTITION_ORDER: number}, owner)
            for number, (stream, key) in enumerate(zip(self.streams, self.keys, strict=True))
        ]
        return ObjectSet((exchange,), tuple(streams), tuple(bindings))


@dataclass(frozen=True, slots=True)
class LiveSlots:
    """The slots of an exchange, with the queues that are bound to them.

    Attributes:
        queues: the queues of each slot, in the order of the ring; normally one.
        other_exchanges: the exchanges among the destinations of the ring that are not slots.
    """

    exchange: str
    ring: HashRing
    queues: Mapping[ExchangeRef, tuple[str, ...]]
    other_exchanges: frozenset[ExchangeRef]

    @property
    def sole_owners(self) -> dict[ExchangeRef, str]:
        """The queue of each slot that has exactly one queue."""
        return {slot: queues[0] for slot, queues in self.queues.items() if len(queues) == 1}

    @property
    def faults(self) -> dict[ExchangeRef, str]:
        """The reason for each slot that has no queue or several queues."""
        return {slot: self._fault(slot) for slot, queues in self.queues.items() if len(queues) != 1}

    def _fault(self, slot: ExchangeRef) -> str:
        queues = self.queues[slot]
        name = f"slot {slot.name} of exchange {self.exchange!r}"
        if not queues:
            return f"{name} is bound to no queue: bind a queue to it"
        return (
            f"{name} is bound to {len(queues)} queues, {' and '.join(queues)}, and each of its messages is copied to all of "
            "them: unbind all but one of them"
        )

    def table(self) -> SlotTable:
        """Return the table of the slots.

        In it, a slot without a queue has no owner. A slot with several queues is another exchange, which is the destination of its keys. So
        such a slot concerns only its own keys.
        """
        several = {slot for slot, queues in self.queues.items() if len(queues) > 1}
        return SlotTable(self.ring, self.sole_owners, self.other_exchanges | several)

    def sound_table(self) -> SlotTable:
        """Return the table of the slots, each of which has at most one queue.

        Raises:
            MismatchError: a slot has several queues.
        """
        for slot, queues in self.queues.items():
            if len(queues) > 1:
                raise MismatchError(self._fault(slot), exchange=slot.name, queue=queues[-1])
        return self.table()

    def key_map(self) -> HashRing | SlotTable:
        """Return the table of the slots, or the ring of an exchange without slots."""
        return self.table() if self.queues else self.ring


def live_slots(
    exchange: str,
    ring: HashRing,
    exchanges: Iterable[ExchangeDefinition],
    bindings: Iterable[BindingDefinition],
) -> LiveSlots:
    """Return the slots of an exchange, with its ring, from exchanges and bindings."""
    listed = {definition.name: definition for definition in exchanges}
    bound: dict[ExchangeRef, list[BindingDefinition]] = {
        place: [] for place in ring.destinations if isinstance(place, ExchangeRef)
    }
    for binding in bindings:
        source = ExchangeRef(binding.source)
        if source in bound:
            bound[source].append(binding)
    queues = {
        place: tuple(sorted({binding.destination for binding in own if isinstance(binding.destination, str)}))
        for place, own in bound.items()
        if is_slot(place, listed.get(place.name), own)
    }
    return LiveSlots(exchange, ring, queues, frozenset(bound.keys() - queues.keys()))


def is_slot(
    place: ExchangeRef, listed: ExchangeDefinition | None, bindings: Sequence[BindingDefinition]
) -> bool:
    """Return True if an exchange in a ring is a slot, from its definition (`listed`, if it is listed) and its bindings.

    Definitions of RabbitMQ 4.3 leave internal exchanges out, and a slot may have been deleted. So an exchange that is not listed is a slot
    by its name, or if it is bound like a slot: with an empty key. The exchange of a federation link is none.
    """
    if any(isinstance(binding.destination, ExchangeRef) for binding in bindings) or LINK_NAME.fullmatch(
        place.name
    ):
        return False
    if listed is None:
        is_bound_alike = bool(bindings) and all(not binding.routing_key for binding in bindings)
        return is_bound_alike or _NAMED_AS_SLOT.fullmatch(place.name) is not None
    return listed.internal and listed.type == "fanout"


def slot_width(count: int) -> int:
    """Return the number of digits in the names of `count` slots."""
    return max(_LEAST_WIDTH, len(str(count - 1)))


@dataclass(frozen=True, slots=True)
class SlotNames:
    """The names of the objects of an exchange with slots."""

    exchange: str
    count: int

    @property
    def prefix(self) -> str:
        """The prefix of each slot exchange's name; its number follows."""
        return f"{self.exchange}.slot."

    @property
    def slots(self) -> tuple[str, ...]:
        """The names of the slot exchanges, in the order of the ring."""
        width = slot_width(self.count)
        return tuple(f"{self.prefix}{number:0{width}d}" for number in range(self.count))

    @property
    def refs(self) -> tuple[ExchangeRef, ...]:
        """The slot exchanges as destinations of the ring, in its order."""
        return tuple(map(ExchangeRef, self.slots))

    @property
    def park(self) -> str:
        """The name of the parking exchange, and of the parking queue."""
        return f"{self.exchange}.park"

    @property
    def exchanges(self) -> frozenset[str]:
        """The names of all exchanges that the layout adds."""
        return frozenset((*self.slots, self.park))
