"""A topology file, read and written.

TOML text becomes entries, entries become objects, and each mistake on the way is kept, with its line: ``tomllib`` does not tell
it, so it is found by the headings. Written, runs of names become ranges, and what is a default is left out.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rabbit_chx.errors import InputError, TopologyError
from rabbit_chx.routing import Destination, ExchangeRef
from rabbit_chx.topology.objects import (
    BindingDefinition,
    ExchangeDefinition,
    ObjectSet,
    PolicyDefinition,
    QueueDefinition,
    RingMember,
    plain,
)
from rabbit_chx.topology.problems import Problem, shown_value, similar
from rabbit_chx.topology.ranges import RangeError, expanded, folded
from rabbit_chx.topology.toml_fields import BINDING, EXCHANGE, FILE, MEMBER, POLICY, QUEUE, EntryType

__all__ = [
    "FileEntry",
    "FileObjects",
    "line_of",
    "member_texts",
    "members_text",
    "parsed",
    "read_document",
    "toml_text",
    "toml_value",
]

Entry = Mapping[str, Any]

_MOST_LEVELS = 100
_TOO_DEEP = Problem("the text", "", "it is nested too deep", f"write at most {_MOST_LEVELS} levels")
_MANY_DIGITS = re.compile(r"[0-9_]{4000}")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_HEADING = re.compile(r"\s*\[\[\s*(\w+)\s*\]\]")
_KEY = re.compile(r"""\s*(?:\[\s*\w+\s*\.\s*)?["']?([\w-]+)["']?\s*(?:=|\.|\])""")
_PATH = re.compile(r"(\w+)(?:\[(\d+)\])?(?:\.([\w-]+))?(?:\[(\d+)\])?")
_WIDTH = 110


@dataclass(frozen=True, slots=True)
class FileEntry:
    """An object, and where the file says it.

    Attributes:
        path: the entry's place in the file.
        written: the entry as it is written.
        bad: the fields that are wrong by themselves; the object has their defaults.
        value: the object.
        members: the entry of each ring member.
    """

    path: str
    written: Entry
    bad: frozenset[str]
    value: Any
    members: tuple[FileEntry, ...] = ()


class FileObjects(NamedTuple):
    """What a file says, in its order.

    Attributes:
        settings: the fields of the file itself: ``cluster``, ``max_share_moved``, ``owns``.
        exchanges: the exchanges.
        queues: the queues.
        bindings: the bindings.
        policies: the policies.
        problems: what is wrong with single fields, and with fields that belong together.
        range_problems: what is wrong with ranges, and with names that come of them.
    """

    settings: dict[str, Any]
    exchanges: list[FileEntry]
    queues: list[FileEntry]
    bindings: list[FileEntry]
    policies: list[FileEntry]
    problems: list[Problem]
    range_problems: list[Problem]


def parsed(text: str, file: str | None = None) -> dict[str, Any]:
    """Return the tables of TOML text.

    Args:
        text: the file's text.
        file: its name, for the error.

    Raises:
        TopologyError: the text is not TOML.
    """
    problem = _TOO_DEEP
    try:
        document = tomllib.loads(text)
        if not _deeper_than(document, _MOST_LEVELS):
            return document
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"at line (\d+)", str(error))
        lines = text.rstrip().split("\n")
        line = int(found[1]) if found else len(lines)
        shown = "".join(lines[line - 1 : line]).strip()
        rule = f"this is not TOML: {str(error).partition(' (at ')[0]} in `{shown:.60}`"
        remedy = "text is written in quotes, and each key once; see https://toml.io"
        if text.endswith(".toml"):
            remedy = "this is the name of a file: give its text, as Path(...).read_text()"
        problem = Problem("the text", "", rule, remedy, line)
    except RecursionError:
        pass
    except ValueError:  # of int(), which reads so many digits and no more
        found = _MANY_DIGITS.search(text)
        line = text.count("\n", 0, found.start()) + 1 if found else 1
        problem = Problem("the text", "", "a number has thousands of digits", "write a shorter one", line)
    raise TopologyError([problem], file=file)


def _deeper_than(value: object, levels: int) -> bool:
    """Whether a value has more levels than these. Dotted keys make a thousand without a bracket."""
    level: list[Any] = [value]
    for _ in range(levels):
        level = [
            inner
            for one in level
            if isinstance(one, (dict, list))
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
    return bool(level)


def read_document(document: Entry) -> FileObjects:
    """Return what the tables of a file say."""
    reader = _Reader()
    settings, _ = reader.fields(document, "", FILE)
    lists = {name: list(reader.objects(settings.pop(name), type_, _MAKERS[name])) for name, type_ in _lists()}
    return FileObjects(settings, **lists, problems=reader.problems, range_problems=reader.range_problems)


def _lists() -> Iterator[tuple[str, EntryType]]:
    for known in FILE.fields:
        if isinstance(known.kind, EntryType):
            yield known.name, known.kind


@dataclass(slots=True)
class _Reader:
    problems: list[Problem] = field(default_factory=list)
    range_problems: list[Problem] = field(default_factory=list)

    def objects(
        self, entries: list[tuple[str, Entry]], type_: EntryType, make: Callable[[Entry], Any]
    ) -> Iterator[FileEntry]:
        """Yield the objects of a list of entries, with ranges expanded."""
        for path, written in entries:
            values, bad = self.fields(written, path, type_)
            members: tuple[FileEntry, ...] = ()
            for known in type_.fields:
                if isinstance(known.kind, EntryType) and values[known.name] is not None:
                    members = tuple(self.objects(values[known.name], known.kind, _member))
                    values[known.name] = tuple(member.value for member in members)
            if bad.intersection(type_.identity):
                continue
            try:
                for entry in expanded(values, type_.ranged):
                    yield FileEntry(path, written, bad, make(entry), members)
            except RangeError as error:
                at = f"{path}.{error.field}"
                self.range_problems.append(Problem(at, shown_value(error.text), error.rule, error.remedy))
            except InputError as error:  # a destination that AMQP cannot carry
                at = f"{path}.{'exchange' if values['queue'] is None else 'queue'}"
                self.range_problems.append(Problem(at, "", str(error), "write another name"))

    def fields(self, written: Entry, path: str, type_: EntryType) -> tuple[dict[str, Any], frozenset[str]]:
        """Return the value of each field, a default where there is none or a wrong one, and the names of the wrong ones."""
        known = {one.name: one for one in type_.fields}
        values = type_.defaults
        bad = self.unknown(written, path, type_)
        for name, one in known.items():
            at = _joined(path, name)
            if name not in written:
                if one.required and name not in bad:
                    bad.add(name)
                    meaning = one.meaning[0].lower() + one.meaning[1:].rstrip(".")
                    self.add(at, None, f"{type_.noun} needs `{name}`", f"write it: {meaning}")
            elif isinstance(one.kind, EntryType):
                values[name] = self.entries(written[name], at, one.kind)
            elif fault := one.kind.fault(written[name]):
                bad.add(name)
                self.add(at, written[name], *fault)
            else:
                values[name] = written[name]
        for rule in type_.rules:
            found = None if bad.intersection(rule.fields) else rule.fault(written)
            if found:
                name, fault = found
                bad.add(name)
                self.add(_joined(path, name), written.get(name), *fault)
        return values, frozenset(bad)

    def entries(self, given: Any, path: str, type_: EntryType) -> list[tuple[str, Entry]]:  # noqa: ANN401
        """Return the entries of a list with the place of each."""
        last = path.rpartition(".")[2]
        if not isinstance(given, list):
            remedy = (
                f"write each one as {last} = [{{ ... }}]"
                if "." in path
                else f"begin each one with [[{last}]]"
            )
            self.add(path, given, f"`{last}` is a list of tables", remedy)
            return []
        places = [(f"{path}[{n}]", entry) for n, entry in enumerate(given)]
        for at, entry in places:
            if not isinstance(entry, dict):
                self.add(at, entry, f"{type_.noun} is a table", f"write it as {type_.example}")
        return [(at, entry) for at, entry in places if isinstance(entry, dict)]

    def unknown(self, written: Entry, path: str, type_: EntryType) -> set[str]:
        """Add a problem for each field that an entry of the type does not have; return those that were probably meant."""
        meant = set()
        for name, value in written.items():
            if all(name != known.name for known in type_.fields):
                # A list that is there may have a second heading; any other field that is there was not meant.
                candidates = [
                    one.name
                    for one in type_.fields
                    if one.name not in written or isinstance(one.kind, EntryType)
                ]
                found = similar(name, candidates)
                if found:
                    meant.add(found)
                remedy = f"did you mean `{found}`?" if found else f"its fields are {', '.join(candidates)}"
                if name == "vhost":
                    remedy = "leave it out: a file is for any vhost, and the URL names it"
                self.add(_joined(path, name), value, f"{type_.noun} has no field `{name}`", remedy)
        return meant - written.keys()

    def add(self, path: str, value: Any, rule: str, remedy: str) -> None:  # noqa: ANN401
        """Add a problem."""
        self.problems.append(Problem(path, shown_value(value), rule, remedy))


def _joined(path: str, name: str) -> str:
    shown = name if _BARE_KEY.fullmatch(name) else json.dumps(name, ensure_ascii=False)
    return f"{path}.{shown}" if path else shown


def _destination(entry: Entry) -> Destination:
    return ExchangeRef(entry["exchange"]) if entry["queue"] is None else str(entry["queue"])


def _member(entry: Entry) -> RingMember:
    return RingMember(_destination(entry), entry["weight"], entry.get("arguments", {}), entry.get("slots"))


def _binding(entry: Entry) -> BindingDefinition:
    return BindingDefinition(
        entry["source"], _destination(entry), entry["routing_key"], entry["arguments"], entry["owner"]
    )


_MAKERS: dict[str, Callable[[Entry], Any]] = {
    "exchanges": lambda entry: ExchangeDefinition(**entry),
    "queues": lambda entry: QueueDefinition(**entry),
    "bindings": _binding,
    "policies": lambda entry: PolicyDefinition(**entry),
}


def line_of(path: str, lines: list[str], document: Mapping[str, Any]) -> int | None:
    """Return the number of the line, counted from 1; None where it cannot be found.

    Args:
        path: the field's path, such as ``exchanges[2].ring[0].weight``.
        lines: the lines of the file.
        document: what they say.
    """
    match = _PATH.match(path)
    if match is None:
        return None
    table, index, key, item = match.groups()
    if index is None:
        end = next((n for n, line in enumerate(lines) if line.lstrip().startswith("[")), len(lines))
        return _key_line(table, lines, 0, end) or _first_heading(table, lines)
    headings = [n for n, line in enumerate(lines) if (found := _HEADING.match(line)) and found[1] == table]
    entries = document.get(table)
    if not isinstance(entries, list) or len(headings) != len(entries):
        return None
    start = headings[int(index)]
    end = next((n for n in range(start + 1, len(lines)) if _HEADING.match(lines[n])), len(lines))
    at = _key_line(key, lines, start + 1, end) if key else None
    if at is None:
        return start + 1
    return at if item is None else _item_line(int(item), lines, at, end, entries[int(index)].get(key))


def _first_heading(table: str, lines: list[str]) -> int | None:
    heading = re.compile(rf"\s*\[+\s*{re.escape(table)}\b")
    return next((n + 1 for n, line in enumerate(lines) if heading.match(line)), None)


def _key_line(key: str, lines: list[str], start: int, end: int) -> int | None:
    return next(
        (n + 1 for n in range(start, end) if (found := _KEY.match(lines[n])) and found[1] == key), None
    )


def _item_line(item: int, lines: list[str], at: int, end: int, items: Any) -> int:  # noqa: ANN401
    """Return the line of an item of a list, if each is on a line of its own; else that of the list."""
    own = []
    for n in range(at, end):
        if _KEY.match(lines[n]):
            break
        if lines[n].lstrip().startswith("{"):
            own.append(n + 1)
    return own[item] if isinstance(items, list) and len(own) == len(items) else at


def toml_text(topology: ObjectSet, settings: Mapping[str, Any]) -> str:
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
        ("bindings", BINDING, [_written_binding(one) for one in topology.bindings]),
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
            entry[name] = folded([_written_member(member) for member in entry[name]], MEMBER.ranged)
    return entry


def _written_member(member: RingMember) -> dict[str, Any]:
    if member.slots is not None:
        return {**_written_destination(member.destination), "slots": list(member.slots)}
    number = re.fullmatch(r"[1-9][0-9]{0,17}", member.key)
    return {
        **_written_destination(member.destination),
        "weight": int(member.key) if number else member.key,
        "arguments": plain(member.arguments),
    }


def _written_binding(one: Any) -> dict[str, Any]:  # noqa: ANN401
    return {
        "source": one.source,
        **_written_destination(one.destination),
        "routing_key": one.routing_key,
        "arguments": plain(one.arguments),
        "owner": one.owner,
    }


def _written_destination(destination: Destination) -> dict[str, str]:
    if isinstance(destination, ExchangeRef):
        return {"exchange": destination.name}
    return {"queue": destination}


def _fields(entry: Mapping[str, Any], type_: EntryType) -> Iterator[str]:
    """Yield a line for each field that is not its default; members are written with their weight."""
    for spec in type_.fields:
        value = entry.get(spec.name)
        if value is None or (value == spec.default and not spec.required):
            continue
        if isinstance(spec.kind, EntryType):
            yield f"{spec.name} = {_members(value)}"
        else:
            yield f"{spec.name} = {toml_value(value)}"


def _members(members: Iterable[Mapping[str, Any]]) -> str:
    return members_text([_member_text(one) for one in members])


def _member_text(entry: Mapping[str, Any]) -> str:
    return toml_value({name: item for name, item in entry.items() if item != {}})


def member_texts(members: Iterable[RingMember]) -> list[str]:
    """Return ring members as a file writes them, in their order, with ranges."""
    return [
        _member_text(one) for one in folded([_written_member(member) for member in members], MEMBER.ranged)
    ]


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
