"""A topology as the text of a file: runs of names become ranges, and what is a default is left out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rabbit_chx.errors import TopologyError
from rabbit_chx.routing import ExchangeRef
from rabbit_chx.topology.argument_table import plain
from rabbit_chx.topology.files.entry_fields import BINDING, EXCHANGE, FILE, MEMBER, POLICY, QUEUE, EntryType
from rabbit_chx.topology.files.ranges import folded
from rabbit_chx.topology.problems import Problem

if TYPE_CHECKING:
    from rabbit_chx.routing import Destination
    from rabbit_chx.topology.object_set import ObjectSet
    from rabbit_chx.topology.objects import RingMember

__all__ = ["member_texts", "members_text", "toml_value", "written"]

_WIDTH = 110
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def written(topology: ObjectSet, settings: Mapping[str, Any]) -> str:
    """Return the text of a file that says the topology.

    Args:
        topology: its objects.
        settings: the fields of the file itself: ``cluster``, ``max_share_moved``, ``owns``.

    Raises:
        TopologyError: an argument is None, which TOML cannot write.
    """
    parts = ["\n".join(_fields({**settings, "owns": list(settings["owns"])}, FILE))]
    for heading, type_, entries in (
        ("exchanges", EXCHANGE, [_exchange(one) for one in topology.exchanges]),
        ("queues", QUEUE, [_plain(one, QUEUE) for one in topology.queues]),
        ("bindings", BINDING, [_binding(one) for one in topology.bindings]),
        ("policies", POLICY, [_plain(one, POLICY) for one in topology.policies]),
    ):
        _refuse_none(heading, entries)
        parts += [
            "\n".join([f"[[{heading}]]", *_fields(entry, type_)]) for entry in folded(entries, type_.ranged)
        ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _plain(one: object, type_: EntryType) -> dict[str, Any]:
    """Return the fields of an object, in the order of the file."""
    entry = {field.name: getattr(one, field.name) for field in type_.fields}
    for name in ("arguments", "definition"):
        if name in entry:
            entry[name] = plain(entry[name])
    return entry


def _exchange(one: Any) -> dict[str, Any]:  # noqa: ANN401
    entry = _plain(one, EXCHANGE)
    for name in ("ring", "members"):
        if entry[name] is not None:
            entry[name] = folded([_member(member) for member in entry[name]], MEMBER.ranged)
    return entry


def _member(member: RingMember) -> dict[str, Any]:
    if member.slots is not None:
        return {**_destination(member.destination), "slots": list(member.slots)}
    number = re.fullmatch(r"[1-9][0-9]{0,17}", member.key)
    return {
        **_destination(member.destination),
        "weight": int(member.key) if number else member.key,
        "arguments": plain(member.arguments),
    }


def _binding(one: Any) -> dict[str, Any]:  # noqa: ANN401
    return {
        "source": one.source,
        **_destination(one.destination),
        "routing_key": one.routing_key,
        "arguments": plain(one.arguments),
        "owner": one.owner,
    }


def _destination(destination: Destination) -> dict[str, str]:
    if isinstance(destination, ExchangeRef):
        return {"exchange": destination.name}
    return {"queue": destination}


def _fields(entry: Mapping[str, Any], type_: EntryType) -> Iterator[str]:
    """Yield a line for each field that is not its default; members are written with their weight."""
    for field in type_.fields:
        value = entry.get(field.name)
        if value is None or (value == field.default and not field.required):
            continue
        if isinstance(field.kind, EntryType):
            yield f"{field.name} = {_members(value)}"
        else:
            yield f"{field.name} = {toml_value(value)}"


def _members(members: Iterable[Mapping[str, Any]]) -> str:
    return members_text([_member_text(one) for one in members])


def _member_text(entry: Mapping[str, Any]) -> str:
    return toml_value({name: item for name, item in entry.items() if item != {}})


def member_texts(members: Iterable[RingMember]) -> list[str]:
    """Return ring members as a file writes them, in their order, with ranges."""
    return [_member_text(one) for one in folded([_member(member) for member in members], MEMBER.ranged)]


def members_text(members: Sequence[str]) -> str:
    """Return the list of the texts of members, on lines of their own where one line is too long."""
    line = f"[{', '.join(members)}]"
    if len(line) <= _WIDTH:
        return line
    return "\n".join(["[", *(f"    {member}," for member in members), "]"])


def toml_value(value: Any) -> str:  # noqa: ANN401
    """Return a value as TOML writes it, on one line."""
    if isinstance(value, Mapping):
        pairs = ", ".join(f"{_key(name)} = {toml_value(item)}" for name, item in value.items())
        return f"{{ {pairs} }}" if pairs else "{}"
    if isinstance(value, list):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, float):
        return repr(value)
    # JSON text is TOML text but for U+007F, which TOML wants escaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else toml_value(name)


def _refuse_none(heading: str, entries: Iterable[Mapping[str, Any]]) -> None:
    problems = [
        Problem(f"{heading} {entry.get('name', entry.get('source'))}: {field}.{name}", "", "the value is null, which TOML cannot write", "leave the object out")
        for entry in entries
        for field in ("arguments", "definition")
        for name, value in entry.get(field, {}).items()
        if _has_none(value)
    ]  # fmt: skip
    if problems:
        raise TopologyError(problems)


def _has_none(value: object) -> bool:
    if isinstance(value, Mapping):
        return any(map(_has_none, value.values()))
    return value is None or (isinstance(value, list) and any(map(_has_none, value)))
