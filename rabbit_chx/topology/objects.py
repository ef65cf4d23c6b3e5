"""What a topology is made of: exchanges, queues, bindings and policies, and their arguments, as plain values.

A slot is an internal fanout exchange that leads to queues alone. Any other exchange in a ring is none: its messages go where
it sends them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, Union

from rabbit_chx.amqp.fields import INTEGER_RANGES
from rabbit_chx.errors import InputError, MismatchError
from rabbit_chx.routing import Binding, Destination, ExchangeRef, HashRing, KeyMap, SlotTable
from rabbit_chx.routing.bindings import binding_key, check_destination

__all__ = [
    "HASH_EXCHANGE",
    "OBJECT_LISTS",
    "QUEUE_TYPE",
    "ArgumentTable",
    "ArgumentValue",
    "BindingDefinition",
    "ExchangeDefinition",
    "LiveSlots",
    "ObjectSet",
    "Owner",
    "PolicyDefinition",
    "QueueDefinition",
    "RingMember",
    "SlotNames",
    "is_slot",
    "live_slots",
    "natural_order",
    "order_of_name",
    "order_of_place",
    "plain",
]

ArgumentValue: TypeAlias = Union[str, int, float, bool, tuple["ArgumentValue", ...], "ArgumentTable", None]

_LONG = INTEGER_RANGES["long"]
#: Who declares an object: this topology, or someone else. What is external is checked, never declared or deleted.
Owner: TypeAlias = Literal["ours", "external"]
HASH_EXCHANGE = "x-consistent-hash"
QUEUE_TYPE = "x-queue-type"

_NUMBER = re.compile(r"([0-9]+)")
OBJECT_LISTS = ("exchanges", "queues", "bindings", "policies")
_NAMED_AS_SLOT = re.compile(r".+\.slot\.[0-9]+", re.DOTALL)
_LEAST_WIDTH = 2


class ArgumentTable(Mapping[str, ArgumentValue]):
    """A table of arguments. A value: it cannot be changed, and it has a hash.

    Two tables are equal if they have the same names with the same values of the same types, in any order. So 1, 1.0
    and true differ, as they do for the broker. A table also equals a dict with the same contents.

    Args:
        arguments: names and values: text, whole numbers, floats, booleans, None, lists and tables of these.

    Raises:
        InputError: a name is not text, or a value has a type that is not listed above.
    """

    __slots__ = ("_values",)

    def __init__(self, arguments: Mapping[str, Any] | None = None) -> None:
        given = arguments or {}
        for name in given:
            if not isinstance(name, str):
                raise InputError(f"the argument name {name!r:.60} is not text: give a str")
        self._values: dict[str, ArgumentValue] = {name: _frozen(name, given[name]) for name in sorted(given)}

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
        """Return the same as dicts and lists, as `json` writes them."""
        return {name: _plain(value) for name, value in self._values.items()}


def plain(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments as dicts and lists, as `json` writes them."""
    return ArgumentTable(arguments).plain()


def _frozen(name: str, value: Any) -> ArgumentValue:  # noqa: ANN401
    if value is None or isinstance(value, (str, bool, ArgumentTable)):
        return value
    if isinstance(value, int):
        if value not in _LONG:
            raise InputError(f"the argument {name!r} is a number of more than 64 bits: AMQP carries none")
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InputError(f"the argument {name!r} is {value}: RabbitMQ reads finite numbers only")
        return value
    if isinstance(value, (list, tuple)):
        return tuple(_frozen(name, item) for item in value)
    if isinstance(value, Mapping):
        return ArgumentTable(value)
    raise InputError(
        f"the argument {name!r} is {value!r:.60} ({type(value).__name__}): give text, a number, true or false, "
        "a list or a table"
    )


def _plain(value: ArgumentValue) -> Any:  # noqa: ANN401
    if isinstance(value, ArgumentTable):
        return value.plain()
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


def _identity(value: ArgumentValue) -> Any:  # noqa: ANN401
    """Return what tells values apart that Python calls equal, and the broker does not: 1, 1.0 and True."""
    if isinstance(value, ArgumentTable):
        return "table", tuple((name, _identity(item)) for name, item in value.items())
    if isinstance(value, tuple):
        return "list", tuple(map(_identity, value))
    return type(value).__name__, value


NO_ARGUMENTS = ArgumentTable()


@dataclass(frozen=True, slots=True)
class RingMember:
    """A binding of an ``x-consistent-hash`` exchange, at its place in the ring.

    Attributes:
        destination: a queue's name, or an ExchangeRef.
        key: the binding key's text. An int is accepted too: the weight 7 is the key ``7``.
        arguments: the binding's arguments. They change nothing in the ring, but they are part of the binding.
        slots: of a queue that shares the slots of an exchange, the numbers of those that it has; None: as many as its weight
            gives it.

    Raises:
        InputError: the destination is none, or the key is neither int nor text.
    """

    destination: Destination
    key: str = "1"
    arguments: Mapping[str, Any] = NO_ARGUMENTS
    slots: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        check_destination(self.destination)
        object.__setattr__(self, "key", binding_key(self.key))
        if self.slots is not None:
            object.__setattr__(self, "slots", tuple(sorted(self.slots)))
        _freeze(self, "arguments")

    @property
    def binding(self) -> Binding:
        """The destination and the binding key, as `HashRing.from_bindings` takes them."""
        return self.destination, self.key


@dataclass(frozen=True, slots=True)
class ExchangeDefinition:
    """An exchange.

    Attributes:
        name: its name.
        type: ``direct``, ``fanout``, ``topic``, ``headers``, ``x-consistent-hash`` or a plugin's.
        durable: whether it survives a restart of the broker.
        auto_delete: whether it goes with its last binding.
        internal: whether only other exchanges may publish to it.
        arguments: its arguments, such as ``hash-header`` or ``alternate-exchange``.
        ring: what is bound to an ``x-consistent-hash`` exchange, in bind order; None where that is not said, and for
            any other type.
        slots: the number of slot exchanges that make its ring; None for a ring without slots.
        members: the queues that share the slots, all with their weights or all with the slots that they have; None without
            slots.
        max_share_moved: the largest share of keys that a plan may move, 0 to 1; None: what the topology says.
        owner: ``ours`` or ``external``.
    """

    name: str
    type: str = "direct"
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    arguments: Mapping[str, Any] = NO_ARGUMENTS
    ring: tuple[RingMember, ...] | None = None
    slots: int | None = None
    members: tuple[RingMember, ...] | None = None
    max_share_moved: float | None = None
    owner: Owner = "ours"

    def __post_init__(self) -> None:
        _freeze(self, "arguments")
        for name in ("ring", "members"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, tuple(getattr(self, name)))


@dataclass(frozen=True, slots=True)
class QueueDefinition:
    """A queue.

    Attributes:
        name: its name.
        type: ``classic``, ``quorum`` or ``stream``.
        durable: whether it survives a restart of the broker.
        exclusive: whether it belongs to the connection that declared it, and goes with that.
        auto_delete: whether it goes with its last consumer.
        arguments: its arguments. ``x-queue-type`` among them becomes the type and is taken out. For the broker a queue that
            was declared without it equals one that was declared with ``classic`` (tried on 3.8.9 to 4.3.6).
        owner: ``ours`` or ``external``.
    """

    name: str
    type: str = "classic"
    durable: bool = True
    exclusive: bool = False
    auto_delete: bool = False
    arguments: Mapping[str, Any] = NO_ARGUMENTS
    owner: Owner = "ours"

    def __post_init__(self) -> None:
        _freeze(self, "arguments")
        said = self.arguments.get(QUEUE_TYPE)
        if isinstance(said, str) and self.type in ("classic", said):
            object.__setattr__(self, "type", said)
            rest = {name: value for name, value in self.arguments.items() if name != QUEUE_TYPE}
            object.__setattr__(self, "arguments", ArgumentTable(rest))

    @property
    def declared_arguments(self) -> ArgumentTable:
        """The arguments of ``queue.declare``: with ``x-queue-type``, so that no default of the vhost decides."""
        return ArgumentTable({**self.arguments, QUEUE_TYPE: self.type})


@dataclass(frozen=True, slots=True)
class BindingDefinition:
    """A binding of any exchange but an ``x-consistent-hash`` one.

    Attributes:
        source: the exchange that messages come from.
        destination: a queue's name, or an ExchangeRef.
        routing_key: the binding key.
        arguments: its arguments, such as ``x-match``.
        owner: ``ours`` or ``external``.

    Raises:
        InputError: the destination is none.
    """

    source: str
    destination: Destination
    routing_key: str = ""
    arguments: Mapping[str, Any] = NO_ARGUMENTS
    owner: Owner = "ours"

    def __post_init__(self) -> None:
        check_destination(self.destination)
        _freeze(self, "arguments")


@dataclass(frozen=True, slots=True)
class PolicyDefinition:
    """A policy.

    Attributes:
        name: its name.
        pattern: the regular expression that names match.
        apply_to: ``all``, ``exchanges``, ``queues``, ``classic_queues``, ``quorum_queues`` or ``streams``.
        definition: what it sets.
        priority: of two policies that match, the one with the larger number applies.
        owner: ``ours`` or ``external``.
    """

    name: str
    pattern: str
    apply_to: str = "all"
    definition: Mapping[str, Any] = NO_ARGUMENTS
    priority: int = 0
    owner: Owner = "ours"

    def __post_init__(self) -> None:
        _freeze(self, "definition")


def order_of_name(name: str) -> tuple[object, ...]:
    """Return a key that sorts names as people do: ``q.2`` before ``q.10``."""
    parts = [part.lstrip("0") if n % 2 else part for n, part in enumerate(_NUMBER.split(name))]
    # A longer number is larger. Text and numbers alternate, so only like is compared with like.
    return tuple((len(part), part) if n % 2 else part for n, part in enumerate(parts)), name


def order_of_place(place: Destination) -> tuple[object, ...]:
    """Return a key that sorts destinations: queues first, then exchanges, each by name as people do."""
    if isinstance(place, ExchangeRef):
        return True, order_of_name(place.name)
    return False, order_of_name(place)


def natural_order(
    one: ExchangeDefinition | QueueDefinition | BindingDefinition | PolicyDefinition,
) -> tuple[object, ...]:
    """Return a key that sorts objects of one kind: by name, bindings by source, destination and key."""
    if not isinstance(one, BindingDefinition):
        return order_of_name(one.name)
    return (
        order_of_name(one.source),
        *order_of_place(one.destination),
        order_of_name(one.routing_key),
        repr(one.arguments),
        one.owner,
    )


def _freeze(one: object, field: str) -> None:
    """Make an ArgumentTable of a mapping. dataclass(frozen=True) leaves no other way to set an attribute."""
    value = getattr(one, field)
    if isinstance(value, Mapping) and not isinstance(value, ArgumentTable):
        object.__setattr__(one, field, ArgumentTable(value))


@dataclass(frozen=True, slots=True, repr=False)
class ObjectSet:
    """Exchanges, queues, bindings and policies of a vhost. A value: equal to another with the same, in any order.

    Attributes:
        exchanges: the exchanges, sorted by name.
        queues: the queues, sorted by name.
        bindings: the bindings of all exchanges but ``x-consistent-hash`` ones, sorted by source, destination and key.
        policies: the policies, sorted by name.
    """

    exchanges: tuple[ExchangeDefinition, ...] = ()
    queues: tuple[QueueDefinition, ...] = ()
    bindings: tuple[BindingDefinition, ...] = ()
    policies: tuple[PolicyDefinition, ...] = ()

    def __post_init__(self) -> None:
        for name in OBJECT_LISTS:
            # dataclass(frozen=True) leaves no other way to set an attribute.
            object.__setattr__(self, name, tuple(sorted(getattr(self, name), key=natural_order)))

    def __repr__(self) -> str:
        counts = (f"{len(getattr(self, name))} {name}" for name in OBJECT_LISTS)
        return f"<{type(self).__name__} {', '.join(counts)}>"

    def exchange(self, name: str) -> ExchangeDefinition | None:
        """Return the exchange of a name; None if there is none."""
        return next((one for one in self.exchanges if one.name == name), None)

    def queue(self, name: str) -> QueueDefinition | None:
        """Return the queue of a name; None if there is none."""
        return next((one for one in self.queues if one.name == name), None)

    @property
    def unlisted(self) -> tuple[Destination, ...]:
        """The exchanges and queues that bindings name and that are not listed, sorted; without ``amq.`` exchanges.

        Someone else declares them. They have to exist before the bindings are made.
        """
        exchanges = {one.name for one in self.exchanges}
        queues = {one.name for one in self.queues}
        used: set[Destination] = {ExchangeRef(binding.source) for binding in self.bindings}
        used.update(binding.destination for binding in self.bindings)
        for exchange in self.exchanges:
            used.update(member.destination for member in exchange.ring or exchange.members or ())
        missing = {
            one
            for one in used
            if (
                one.name not in exchanges and not one.name.startswith("amq.")
                if isinstance(one, ExchangeRef)
                else one not in queues
            )
        }
        return tuple(sorted(missing, key=lambda one: (isinstance(one, str), order_of_name(str(one)))))


@dataclass(frozen=True, slots=True)
class LiveSlots:
    """The slots of an exchange, with all that is bound to them.

    Attributes:
        exchange: the exchange's name.
        ring: its ring.
        queues: the queues of each slot, in the order of the ring; one, if all is well.
        other_exchanges: the exchanges among the destinations of the ring that are no slots.
    """

    exchange: str
    ring: HashRing
    queues: Mapping[ExchangeRef, tuple[str, ...]]
    other_exchanges: frozenset[ExchangeRef]

    @property
    def sole_owners(self) -> dict[ExchangeRef, str]:
        """The queue of each slot that has one, and no other."""
        return {slot: queues[0] for slot, queues in self.queues.items() if len(queues) == 1}

    def table(self) -> SlotTable:
        """Return the table of the slots. A slot without a queue has no owner in it.

        Raises:
            MismatchError: a slot has two queues, so that no table says where its messages go.
        """
        for slot, queues in self.queues.items():
            if len(queues) > 1:
                raise MismatchError(
                    f"slot {slot.name} of exchange {self.exchange!r} is bound to {len(queues)} queues, {' and '.join(queues)}, and each "
                    "of its messages is in all of them: unbind all but one of them",
                    exchange=slot.name,
                    queue=queues[-1],
                )
        return SlotTable(self.ring, self.sole_owners, self.other_exchanges)

    def key_map(self) -> KeyMap:
        """Return the table of the slots, or the ring where there is none.

        Raises:
            MismatchError: a slot has two queues.
        """
        return self.table() if self.queues else self.ring


def live_slots(
    exchange: str,
    ring: HashRing,
    exchanges: Iterable[ExchangeDefinition],
    bindings: Iterable[BindingDefinition],
) -> LiveSlots:
    """Return the slots of an exchange.

    Args:
        exchange: its name.
        ring: its ring.
        exchanges: what exchanges there are.
        bindings: what is bound to them.
    """
    there = {one.name: one for one in exchanges}
    wanted = {one for one in ring.destinations if isinstance(one, ExchangeRef)}
    bound: dict[ExchangeRef, list[BindingDefinition]] = {}
    for binding in bindings:
        if (source := ExchangeRef(binding.source)) in wanted:
            bound.setdefault(source, []).append(binding)
    queues, others = {}, set()
    for place in ring.destinations:
        if not isinstance(place, ExchangeRef):
            continue
        behind = bound.get(place, ())
        if is_slot(place, there.get(place.name), behind):
            queues[place] = tuple(
                sorted({one.destination for one in behind if isinstance(one.destination, str)})
            )
        else:
            others.add(place)
    return LiveSlots(exchange, ring, queues, frozenset(others))


def is_slot(
    place: ExchangeRef, there: ExchangeDefinition | None, behind: Sequence[BindingDefinition]
) -> bool:
    """Return whether an exchange in a ring is a slot.

    Definitions of RabbitMQ 4.3 leave internal exchanges out, and a slot may have been deleted. So one that is not listed is a
    slot by its name, or if it is bound as slots are: with an empty key.

    Args:
        place: the exchange.
        there: the exchange as it is listed; None if it is not.
        behind: its bindings.
    """
    if any(isinstance(one.destination, ExchangeRef) for one in behind):
        return False
    if there is None:
        bound_alike = bool(behind) and all(not one.routing_key for one in behind)
        return bound_alike or _NAMED_AS_SLOT.fullmatch(place.name) is not None
    return there.internal and there.type == "fanout"


@dataclass(frozen=True, slots=True)
class SlotNames:
    """The names that belong to an exchange with slots.

    Attributes:
        exchange: the name of the hash exchange.
        count: how many slots it has.
    """

    exchange: str
    count: int

    @property
    def prefix(self) -> str:
        """What the name of each slot exchange begins with; its number follows."""
        return f"{self.exchange}.slot."

    @property
    def slots(self) -> tuple[str, ...]:
        """The names of the slot exchanges, in the order of the ring."""
        width = max(_LEAST_WIDTH, len(str(self.count - 1)))
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
