"""One change of a plan: an action on an object, field by field."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from rabbit_chx.topology.objects.argument_table import ArgumentTable, ArgumentValue, plain
from rabbit_chx.topology.objects.objects import (
    BindingDefinition,
    ExchangeDefinition,
    ObjectKind,
    PolicyDefinition,
    QueueDefinition,
)
from rabbit_chx.topology.objects.schema import SCHEMA

Action: TypeAlias = Literal["create", "update", "replace", "delete", "bind", "unbind"]
NamedObject: TypeAlias = ExchangeDefinition | QueueDefinition | PolicyDefinition
TopologyObject: TypeAlias = NamedObject | BindingDefinition


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A field whose value changes, such as ``durable`` or ``arguments.x-max-length``; a missing value is None."""

    field: str
    old: ArgumentValue
    new: ArgumentValue

    @property
    def texts(self) -> list[str]:
        """The old and the new value in words."""
        values = plain({"old": self.old, "new": self.new})
        return [
            "unset" if value is None else repr(value).lower() if isinstance(value, bool) else repr(value)
            for value in (values["old"], values["new"])
        ]


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
        return self.subject.kind

    @property
    def name(self) -> str:
        """The object's name; for a binding both ends and its key, as in ``orders -> orders.1 (key 1)``."""
        return self.subject.name

    @property
    def fields(self) -> tuple[FieldChange, ...]:
        """The fields that differ. A creation or bind has no old values, a deletion or unbind no new ones."""
        return fields_between(self.live, self.wanted)


def fields_between(live: TopologyObject | None, wanted: TopologyObject | None) -> tuple[FieldChange, ...]:
    """Return the fields that differ between two versions of an object, each argument as one field. A missing version is None.

    Values of different types differ, as in the broker: 1, 1.0 and true are three values.
    """
    old, new = ({} if side is None else dict(_values(side)) for side in (live, wanted))
    return tuple(
        FieldChange(name, old.get(name), new.get(name))
        for name in dict.fromkeys([*new, *old])
        if name not in old or name not in new or _differ(old[name], new[name])
    )


def _differ(old: ArgumentValue, new: ArgumentValue) -> bool:
    if isinstance(old, tuple) and isinstance(new, tuple):
        return len(old) != len(new) or any(map(_differ, old, new))
    return type(old) is not type(new) or old != new


def _values(subject: TopologyObject) -> Iterator[tuple[str, ArgumentValue]]:
    for name in SCHEMA[subject.kind].compared:
        value: Any = getattr(subject, name)
        if isinstance(value, ArgumentTable):
            yield from ((f"{name}.{argument}", inner) for argument, inner in value.items())
        else:
            yield name, value if isinstance(value, (str, int, bool)) else str(value)
