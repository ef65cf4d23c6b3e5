"""The objects of a topology: exchanges, queues, bindings and policies, as plain values.

The metadata of a field determines its values in a topology file.

A slot is an internal fanout exchange that is bound to queues only. Any other exchange in a ring is not a slot: it routes its messages by
its own bindings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from rabbit_chx.errors import MismatchError
from rabbit_chx.routing import Binding, Destination, ExchangeRef, HashRing, SlotTable
from rabbit_chx.routing.bindings import binding_key, check_destination
from rabbit_chx.routing.slot_table import KeyMap
from rabbit_chx.topology.arguments import NO_ARGUMENTS, ArgumentTable
from rabbit_chx.topology.fields import (
    FLAG,
    NAME,
    NAMES,
    SHARE,
    TABLE,
    TEXT,
    WEIGHT,
    Entry,
    EntryRule,
    EntryType,
    Fault,
    FileField,
    choice,
    default,
    documented,
    fields_of,
    slot_list,
    spec,
    whole_number,
)

#: The owner of an object: this topology, or another one. External objects are checked, never declared or deleted.
Owner: TypeAlias = Literal["ours", "external"]
HASH_EXCHANGE = "x-consistent-hash"
MODULUS_EXCHANGE = "x-modulus-hash"
QUEUE_TYPE = "x-queue-type"
QUEUE_TYPES = ("classic", "quorum", "stream")

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
_INT_32 = 1 << 31
_MAX_SLOTS = 16_384
_NUMBER = re.compile(r"([0-9]+)")
_NAMED_AS_SLOT = re.compile(r".+\.slot\.[0-9]+", re.DOTALL)
_LEAST_WIDTH = 2

# The fields of several kinds of objects.
_OWNER = spec(
    choice("an owner", "ours", "external"),
    "`external`: it is checked, and never declared or deleted.",
)
_ARGUMENTS = (TABLE, "Arguments of the declaration.")
_DURABLE = (FLAG, "Whether it survives a restart of the broker.")


def _one_destination(entry: Entry) -> tuple[str, Fault] | None:
    if ("queue" in entry) != ("exchange" in entry):
        return None
    rule = "the destination is either a queue or an exchange"
    if "queue" in entry:
        return "exchange", (rule, "write only one of `queue` and `exchange`")
    return "queue", (rule, "write `queue` or `exchange`")


_DESTINATION = EntryRule(
    ("queue", "exchange"), _one_destination, {"oneOf": [{"required": ["queue"]}, {"required": ["exchange"]}]}
)


@dataclass(frozen=True, slots=True)
class RingMember:
    """A binding of an ``x-consistent-hash`` exchange, at its position in the ring.

    Attributes:
        destination: a queue's name, or an ExchangeRef.
        key: the text of the binding key. An int is accepted too: the weight 7 is the key ``7``.
        arguments: the binding's arguments. They do not change the ring, but they are part of the binding.
        slots: for a queue of an exchange with slots, the numbers of its slots; None: its weight determines the number of its slots.

    Raises:
        InputError: the destination is neither a name nor an ExchangeRef, or the key is neither int nor text.
    """

    destination: Destination = field(
        metadata=spec(NAME, "The destination: `queue` or `exchange`.", name="queue", ranges=True)
        | spec(NAME, "The destination exchange.", name="exchange", ranges=True)
    )
    key: str = default(
        "1",
        WEIGHT,
        'How many buckets it has. A text is the binding key as it is: `"007"` is another binding than 7.',
        name="weight",
        in_file=1,
    )
    arguments: Mapping[str, Any] = default(
        NO_ARGUMENTS, TABLE, "Arguments of the binding, without effect on the ring.", ranges=True
    )
    slots: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        check_destination(self.destination)
        object.__setattr__(self, "key", binding_key(self.key))
        if self.slots is not None:
            object.__setattr__(self, "slots", tuple(sorted(self.slots)))
        _freeze(self, "arguments")

    @property
    def binding(self) -> Binding:
        """The destination and the binding key, for `HashRing.from_bindings`."""
        return self.destination, self.key


_MEMBER = EntryType(
    "a member", RingMember, fields_of(RingMember), (_DESTINATION,), '{ queue = "...", weight = 1 }'
)


def _weight_or_slots(entry: Entry) -> tuple[str, Fault] | None:
    if "weight" in entry and "slots" in entry:
        rule = "a member has a weight, or a list of its slots"
        return "slots", (rule, "write only one of `weight` and `slots`")
    return None


#: A member of an exchange with slots is a queue, and shares the slots by its weight or has those that it lists.
_SHARER = EntryType(
    "a member",
    RingMember,
    (
        FileField("queue", NAME, "The queue.", required=True, ranges=True),
        FileField("weight", WEIGHT, "Its share of the slots, relative to the other members.", 1),
        FileField(
            "slots",
            slot_list(_MAX_SLOTS - 1),
            'Instead of `weight`: the slots that it has, as in `["00..11", "37"]` or `[0, 1, 2]`. A range includes both bounds. '
            "All members list their slots; each slot occurs once.",
        ),
    ),
    (EntryRule(("weight", "slots"), _weight_or_slots, {"not": {"required": ["weight", "slots"]}}),),
    '{ queue = "...", weight = 1 }',
)


@documented
@dataclass(frozen=True, slots=True)
class ExchangeDefinition:
    """An exchange."""

    name: str = field(metadata=spec(NAME, "Its name.", ranges=True))
    type: str = default(
        "direct",
        NAME,
        f"`direct`, `fanout`, `topic`, `headers`, `{HASH_EXCHANGE}`, or any other type that the broker knows.",
    )
    durable: bool = default(True, *_DURABLE)
    auto_delete: bool = default(False, FLAG, "Whether it is deleted with its last binding.")
    internal: bool = default(False, FLAG, "Whether only other exchanges may publish to it.")
    arguments: Mapping[str, Any] = default(NO_ARGUMENTS, *_ARGUMENTS, ranges=True)
    ring: tuple[RingMember, ...] | None = default(
        None,
        _MEMBER,
        f"The members of an `{HASH_EXCHANGE}` exchange, in bind order: the order of the buckets.",
    )
    slots: int | None = default(
        None,
        whole_number("the number of slots", 1, _MAX_SLOTS),
        "Instead of `ring`: the number of slots.",
    )
    members: tuple[RingMember, ...] | None = default(None, _SHARER, "With `slots`: the queues that own them.")
    max_share_moved: float | None = default(
        None,
        SHARE,
        "The largest share of keys that a plan may move in this exchange. Default: that of the file.",
    )
    owner: Owner = field(default="ours", metadata=_OWNER)

    def __post_init__(self) -> None:
        _freeze(self, "arguments")
        _share_as_float(self)
        for name in ("ring", "members"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, tuple(getattr(self, name)))


def _ring_where_none_is(entry: Entry) -> tuple[str, Fault] | None:
    type_ = entry.get("type", "direct")
    written = next((name for name in _OF_RINGS if name in entry), None)
    if written is None and type_ not in (HASH_EXCHANGE, MODULUS_EXCHANGE) and "max_share_moved" in entry:
        rule = f"only an exchange of type {HASH_EXCHANGE} or {MODULUS_EXCHANGE} hashes keys, and this is of type {type_}"
        return "max_share_moved", (rule, "leave `max_share_moved` out")
    if written is None or type_ == HASH_EXCHANGE:
        return None
    rule = f"only an exchange of type {HASH_EXCHANGE} has a ring, and this is of type {type_}"
    return written, (rule, f'write type = "{HASH_EXCHANGE}", or [[bindings]] instead of `{written}`')


def _ring_or_slots(entry: Entry) -> tuple[str, Fault] | None:
    written = [name for name in ("ring", "slots", "members") if name in entry]
    if entry.get("type") != HASH_EXCHANGE or written in ([], ["ring"], ["slots", "members"]):
        return None
    if "ring" in written:
        rule = "slots make the ring, so an exchange has either"
        return written[1], (rule, "leave out `ring`, or `slots` and `members`")
    rule = "`slots` is the number of slots, and `members` share them"
    if written == ["slots"]:
        return "members", (rule, "write `members` too")
    return "slots", (rule, "write `slots` too, or `ring` instead of `members`")


_OF_RINGS = ("ring", "slots", "members")
_IS_HASH_EXCHANGE = {"properties": {"type": {"const": HASH_EXCHANGE}}, "required": ["type"]}
_HAS_SLOTS = {"anyOf": [{"required": ["slots"]}, {"required": ["members"]}]}
_NO_RING = EntryRule(
    ("type", *_OF_RINGS, "max_share_moved"),
    _ring_where_none_is,
    {
        "if": {"not": _IS_HASH_EXCHANGE},
        "then": {
            "not": {"anyOf": [{"required": [name]} for name in _OF_RINGS]},
            "if": {"not": {"properties": {"type": {"const": MODULUS_EXCHANGE}}, "required": ["type"]}},
            "then": {"not": {"required": ["max_share_moved"]}},
        },
    },
)
_RING = EntryRule(
    ("type", "ring", "slots", "members"),
    _ring_or_slots,
    {
        "if": _IS_HASH_EXCHANGE,
        "then": {
            "oneOf": [
                {"required": ["ring"], "not": _HAS_SLOTS},
                {"required": ["slots", "members"], "not": {"required": ["ring"]}},
                {"not": {"anyOf": [{"required": ["ring"]}, _HAS_SLOTS]}},
            ]
        },
    },
)
EXCHANGE = EntryType("an exchange", ExchangeDefinition, fields_of(ExchangeDefinition), (_NO_RING, _RING))


@documented
@dataclass(frozen=True, slots=True)
class QueueDefinition:
    """A queue.

    ``x-queue-type`` among the arguments becomes the type and is removed from the arguments. For the broker a queue that was declared
    without it equals one that was declared with ``classic`` (tested on 3.8.9 to 4.3.6).
    """

    name: str = field(metadata=spec(NAME, "Its name.", ranges=True))
    type: str = default("classic", choice("a queue's type", *QUEUE_TYPES), f"Its type, `{QUEUE_TYPE}`.")
    durable: bool = default(True, *_DURABLE)
    exclusive: bool = default(
        False, FLAG, "Whether it belongs to the connection that declared it, and is deleted with that."
    )
    auto_delete: bool = default(False, FLAG, "Whether it is deleted with its last consumer.")
    arguments: Mapping[str, Any] = default(NO_ARGUMENTS, *_ARGUMENTS, ranges=True)
    owner: Owner = field(default="ours", metadata=_OWNER)

    def __post_init__(self) -> None:
        _freeze(self, "arguments")
        type_ = self.arguments.get(QUEUE_TYPE)
        if isinstance(type_, str) and self.type in ("classic", type_):
            object.__setattr__(self, "type", type_)
            rest = {name: value for name, value in self.arguments.items() if name != QUEUE_TYPE}
            object.__setattr__(self, "arguments", ArgumentTable(rest))

    @property
    def declared_arguments(self) -> ArgumentTable:
        """The arguments of ``queue.declare``: with ``x-queue-type``, so that the vhost's default does not apply."""
        return ArgumentTable({**self.arguments, QUEUE_TYPE: self.type})


QUEUE = EntryType("a queue", QueueDefinition, fields_of(QueueDefinition))


@documented
@dataclass(frozen=True, slots=True)
class BindingDefinition:
    """A binding of an exchange of any type except ``x-consistent-hash``.

    The destination is a queue's name, or an ExchangeRef.

    Raises:
        InputError: the destination is neither a name nor an ExchangeRef.
    """

    source: str = field(metadata=spec(NAME, "The source exchange.", ranges=True))
    destination: Destination = field(
        metadata=spec(NAME, "The destination: `queue` or `exchange`.", name="queue", ranges=True)
        | spec(NAME, "The destination exchange.", name="exchange", ranges=True)
    )
    routing_key: str = default("", TEXT, "The binding key.", ranges=True)
    arguments: Mapping[str, Any] = default(
        NO_ARGUMENTS,
        TABLE,
        "Arguments, such as those of a `headers` exchange.",
        ranges=True,
    )
    owner: Owner = field(default="ours", metadata=_OWNER)

    def __post_init__(self) -> None:
        check_destination(self.destination)
        _freeze(self, "arguments")


BINDING = EntryType("a binding", BindingDefinition, fields_of(BindingDefinition), (_DESTINATION,))


@documented
@dataclass(frozen=True, slots=True)
class PolicyDefinition:
    """A policy."""

    name: str = field(metadata=spec(NAME, "Its name."))
    pattern: str = field(metadata=spec(TEXT, "The regular expression that names match."))
    apply_to: str = default("all", choice(
                "what a policy applies to",
                "all", "exchanges", "queues", "classic_queues", "quorum_queues", "streams",
            ),
            "What it applies to.")  # fmt: skip
    definition: Mapping[str, Any] = default(NO_ARGUMENTS, TABLE, "What it sets.", required=True)
    priority: int = default(
        0,
        whole_number("a priority", -_INT_32, _INT_32 - 1),
        "Of two policies that match, the one with the larger number applies.",
    )
    owner: Owner = field(default="ours", metadata=_OWNER)

    def __post_init__(self) -> None:
        _freeze(self, "definition")


POLICY = EntryType("a policy", PolicyDefinition, fields_of(PolicyDefinition))


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


def _freeze(definition: object, field: str) -> None:
    """Replace a mapping by an ArgumentTable. dataclass(frozen=True) permits no other way to set an attribute."""
    value = getattr(definition, field)
    if isinstance(value, Mapping) and not isinstance(value, ArgumentTable):
        object.__setattr__(definition, field, ArgumentTable(value))


def _share_as_float(limited: ExchangeDefinition | ObjectSet) -> None:
    """Convert a `max_share_moved` of 1 to 1.0, so that both give a plan the same checksum."""
    share: object = limited.max_share_moved
    if isinstance(share, int) and not isinstance(share, bool):
        object.__setattr__(limited, "max_share_moved", float(share))


@documented
@dataclass(frozen=True, slots=True, repr=False)
class ObjectSet:
    """The contents of a topology file: the objects of a vhost, in natural order, and the limits of a plan. Order does not affect equality."""

    exchanges: tuple[ExchangeDefinition, ...] = default((), EXCHANGE, "The exchanges.")
    queues: tuple[QueueDefinition, ...] = default((), QUEUE, "The queues.")
    bindings: tuple[BindingDefinition, ...] = default(
        (), BINDING, f"The bindings of exchanges other than `{HASH_EXCHANGE}`."
    )
    policies: tuple[PolicyDefinition, ...] = default((), POLICY, "The policies.")
    cluster: str | None = default(None, NAME, "The name of the cluster. A plan for another one is refused.")
    max_share_moved: float | None = default(
        None,
        SHARE,
        "The largest share of keys that a plan may move in a hash exchange.",
    )
    owns: tuple[str, ...] = default(
        (),
        NAMES,
        "Names that belong to this file, as `orders.*`: a plan may delete exchanges and queues of such names that the "
        "file does not list.",
    )

    def __post_init__(self) -> None:
        for name in OBJECT_LISTS:
            # dataclass(frozen=True) leaves no other way to set an attribute.
            object.__setattr__(self, name, tuple(sorted(getattr(self, name), key=natural_order)))
        object.__setattr__(self, "owns", tuple(self.owns))
        _share_as_float(self)

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
        missing = {
            place
            for place in used
            if (
                place.name not in exchanges and not place.name.startswith("amq.")
                if isinstance(place, ExchangeRef)
                else place not in queues
            )
        }
        return tuple(sorted(missing, key=lambda place: (isinstance(place, str), order_of_name(str(place)))))


#: A file has its own fields before the lists of its objects, as TOML requires.
FILE = EntryType(
    "the file",
    ObjectSet,
    tuple(sorted(fields_of(ObjectSet), key=lambda file_field: isinstance(file_field.kind, EntryType))),
)


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
        says = f"slot {slot.name} of exchange {self.exchange!r} is bound to"
        if not queues:
            return f"{says} no queue: bind a queue to it"
        return (
            f"{says} {len(queues)} queues, {' and '.join(queues)}, and each of its messages is in all of them: unbind all but "
            "one of them"
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

    def key_map(self) -> KeyMap:
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
    by its name, or if it is bound like a slot: with an empty key.
    """
    if any(isinstance(binding.destination, ExchangeRef) for binding in bindings):
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
