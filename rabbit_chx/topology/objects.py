"""What a topology is made of: exchanges, queues, bindings and policies, as plain values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from rabbit_chx.routing import ExchangeRef
from rabbit_chx.routing.bindings import binding_key, check_destination
from rabbit_chx.topology.argument_table import NO_ARGUMENTS, ArgumentTable

if TYPE_CHECKING:
    from rabbit_chx.routing import Binding, Destination

__all__ = [
    "HASH_EXCHANGE",
    "QUEUE_TYPE",
    "BindingDefinition",
    "ExchangeDefinition",
    "Owner",
    "PolicyDefinition",
    "QueueDefinition",
    "RingMember",
    "natural_order",
    "order_of_name",
    "order_of_place",
]

#: Who declares an object: this topology, or someone else. What is external is checked, never declared or deleted.
Owner: TypeAlias = Literal["ours", "external"]
HASH_EXCHANGE = "x-consistent-hash"
QUEUE_TYPE = "x-queue-type"

_NUMBER = re.compile(r"([0-9]+)")


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
