"""One change of a plan: an action on an object, field by field."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from rabbit_chx.routing import Destination, ExchangeRef, Release
from rabbit_chx.topology.arguments import same_argument
from rabbit_chx.topology.objects import (
    ArgumentTable,
    ArgumentValue,
    BindingDefinition,
    ExchangeDefinition,
    PolicyDefinition,
    QueueDefinition,
)

Action: TypeAlias = Literal["create", "update", "replace", "delete", "bind", "unbind"]
ObjectKind: TypeAlias = Literal["exchange", "queue", "binding", "policy"]
NamedObject: TypeAlias = ExchangeDefinition | QueueDefinition | PolicyDefinition
TopologyObject: TypeAlias = NamedObject | BindingDefinition

#: The fields of each kind of object in the broker, and its table of arguments.
_FIELDS: dict[type, tuple[ObjectKind, tuple[str, ...], str]] = {
    ExchangeDefinition: ("exchange", ("type", "durable", "auto_delete", "internal"), "arguments"),
    QueueDefinition: ("queue", ("type", "durable", "exclusive", "auto_delete"), "arguments"),
    BindingDefinition: ("binding", ("source", "destination", "routing_key"), "arguments"),
    PolicyDefinition: ("policy", ("pattern", "apply_to", "priority"), "definition"),
}


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A field whose value changes, such as ``durable`` or ``arguments.x-max-length``; a missing value is None."""

    field: str
    old: ArgumentValue
    new: ArgumentValue


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """One change of a plan.

    Attributes:
        action: ``create``, ``update``, ``replace`` (delete and create), ``delete``, ``bind`` or ``unbind``.
        live: the live object; None for ``create`` and ``bind``.
        wanted: the wanted object; None for ``delete`` and ``unbind``.
        ring: True for a step of a ring. Such steps run over one channel, one after the other.
    """

    action: Action
    live: TopologyObject | None
    wanted: TopologyObject | None
    ring: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return the change as an entry of the JSON of a plan."""
        return {"action": self.action, "kind": self.kind, "name": self.name, "fields": self.fields}

    def __str__(self) -> str:
        kind = "" if self.kind == "binding" else f"{self.kind} "
        return f"{self.action} {kind}{self.name}"

    @property
    def subject(self) -> TopologyObject:
        """The wanted object, or else the live one."""
        subject = self.live if self.wanted is None else self.wanted
        assert subject is not None  # a change has an object
        return subject

    @property
    def binding(self) -> BindingDefinition:
        """The binding of a bind or an unbind."""
        subject = self.subject
        assert isinstance(subject, BindingDefinition)  # only bindings are bound or unbound
        return subject

    @property
    def kind(self) -> ObjectKind:
        """``exchange``, ``queue``, ``binding`` or ``policy``."""
        return kind_of(self.subject)

    @property
    def name(self) -> str:
        """The object's name; for a binding both ends and its key, as in ``orders -> orders.1 (key 1)``."""
        return name_of(self.subject)

    @property
    def fields(self) -> tuple[FieldChange, ...]:
        """The fields that differ. A creation or bind has no old values, a deletion or unbind no new ones."""
        return fields_between(self.live, self.wanted)


def kind_of(subject: TopologyObject) -> ObjectKind:
    """Return the kind of an object."""
    return _FIELDS[type(subject)][0]


def name_of(subject: TopologyObject) -> str:
    """Return the object's name; for a binding both ends and its key, as in ``orders -> orders.1 (key 1)``."""
    if isinstance(subject, BindingDefinition):
        key = f" (key {subject.routing_key})" if subject.routing_key else ""
        return f"{subject.source} -> {subject.destination}{key}"
    return subject.name


def reference_to(named: NamedObject) -> Destination | None:
    """Return the object as a destination of bindings; None for a policy."""
    if isinstance(named, ExchangeDefinition):
        return ExchangeRef(named.name)
    return named.name if isinstance(named, QueueDefinition) else None


def fields_between(
    live: TopologyObject | None, wanted: TopologyObject | None, release: Release | None = None
) -> tuple[FieldChange, ...]:
    """Return the fields that differ between two versions of an object, each argument as one field. A missing version is None.

    Values of different types differ, as in the broker: 1, 1.0 and true are three values. With a release, arguments of queues differ only if
    that release refuses to declare the queue with the other value.
    """
    old, new = ({} if side is None else dict(_values(side)) for side in (live, wanted))
    fields = (
        FieldChange(name, old.get(name), new.get(name))
        for name in dict.fromkeys([*new, *old])
        if name not in old or name not in new or _differ(old[name], new[name])
    )
    if release is None or not isinstance(live, QueueDefinition) or not isinstance(wanted, QueueDefinition):
        return tuple(fields)
    return tuple(
        field
        for field in fields
        if not field.field.startswith("arguments.")
        or not same_argument(live.type, field.field.partition(".")[2], field.old, field.new, release)
    )


def _differ(old: ArgumentValue, new: ArgumentValue) -> bool:
    if isinstance(old, tuple) and isinstance(new, tuple):
        return len(old) != len(new) or any(map(_differ, old, new))
    return type(old) is not type(new) or old != new


def _values(subject: TopologyObject) -> Iterator[tuple[str, ArgumentValue]]:
    _, names, table = _FIELDS[type(subject)]
    for name in names:
        value: Any = getattr(subject, name)
        yield name, value if isinstance(value, (str, int, bool)) else str(value)
    arguments: ArgumentTable = getattr(subject, table)
    for name, value in arguments.items():
        yield f"{table}.{name}", value
