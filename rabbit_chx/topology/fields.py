"""The values of a topology file's fields, and the conversion of entries to objects.

Each field is declared once, as dataclass metadata (`spec`) in `objects` and `model`. The reader, the writer, the JSON Schema and the tables
of docs/topology.md are derived from it.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, NamedTuple, TypeVar

from rabbit_chx.analysis.findings import Finding
from rabbit_chx.checks import is_number, is_whole
from rabbit_chx.errors import InputError
from rabbit_chx.routing import ExchangeRef
from rabbit_chx.routing.ring_changes import MAX_BUCKETS
from rabbit_chx.topology.arguments import argument_fault
from rabbit_chx.topology.ranges import RangeError, expanded

_SHOWN = 60
#: str() refuses a number of 4,300 digits, which TOML may have in another base.
_MOST_BITS = 200
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def file_finding(path: str, value: object, message: str, fix: str, line: int | None = None) -> Finding:
    """Return the finding of a mistake in a file.

    Args:
        path: the path of the field, such as ``exchanges[2].ring[0].weight``, counted from 0.
        value: its value; None if something is missing.
        message: the mistake.
        fix: the remedy.
        line: the number of the line, counted from 1; None if it is not known.
    """
    subject = path if value is None else f"{path} = {shown_value(value)}"
    return Finding("file", message, fix, subject=subject, line=line)


def similar(word: str, words: Iterable[str]) -> str | None:
    """Return the most similar word; None if no word is close."""
    by_lower = {known.lower(): known for known in words}
    close = get_close_matches(word.lower().replace("-", "_"), by_lower, n=1, cutoff=0.6)
    return by_lower[close[0]] if close else None


def shown_value(value: object) -> str:
    """Return a value as TOML for a message, shortened."""
    text = toml_value(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def toml_value(value: object) -> str:
    """Return a value as TOML on one line."""
    if isinstance(value, Mapping):
        pairs = ", ".join(f"{toml_key(name)} = {toml_value(inner)}" for name, inner in value.items())
        return f"{{ {pairs} }}" if pairs else "{}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        return f"a number of {value.bit_length()} bits"  # only a message has such a number
    if value is None or isinstance(value, (str, int)):
        # JSON text is TOML text, except for U+007F, which TOML requires to be escaped.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value)


def toml_key(name: str) -> str:
    """Return the name of a field as TOML."""
    return name if _BARE_KEY.fullmatch(name) else toml_value(name)


T = TypeVar("T")
Entry = Mapping[str, Any]
#: The fault of a value, and its remedy.
Fault = tuple[str, str]

_WEIGHT = r"^\+?0*[1-9][0-9]*$"
_MAX_KEY = 255
_SLOTS = re.compile(r"([0-9]{1,9})(?:\.\.([0-9]{1,9}))?")


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """The set of values that a field accepts.

    Attributes:
        label: the name of the kind in the documentation.
        schema: the JSON Schema of its values.
        fault: returns the fault of a value and its remedy; None if the value is valid.
    """

    label: str
    schema: Mapping[str, Any]
    fault: Callable[[Any], Fault | None]


def choice(what: str, *words: str) -> Kind:
    """Return the kind of a field with a few permitted words; `what` is the subject of the rule."""

    def fault(value: Any) -> Fault | None:  # noqa: ANN401
        if isinstance(value, str) and value in words:
            return None
        meant = similar(value, words) if isinstance(value, str) else None
        remedy = f'write "{meant}"' if meant else "write one of them, in quotes"
        return f"{what} is {', '.join(words[:-1])} or {words[-1]}", remedy

    return Kind(" or ".join(f"`{word}`" for word in words), {"enum": list(words)}, fault)


def whole_number(what: str, least: int, most: int) -> Kind:
    """Return the kind of a field that is a whole number; `what` is the subject of the rule."""
    return _simple_kind(
        "whole number",
        {"type": "integer", "minimum": least, "maximum": most},
        lambda value: is_whole(value) and least <= value <= most,
        f"{what} is a whole number from {least} to {most}",
        "write such a number, without quotes",
    )


def slot_list(most: int) -> Kind:
    """Return the kind of a field that lists slots from 0 to `most`: as numbers, and as text such as ``"37"`` and ``"00..11"``."""

    def fault(value: Any) -> Fault | None:  # noqa: ANN401
        if not isinstance(value, list) or not value:
            return "this is a list of slots", 'write it as ["00..11", "37"] or as [0, 1, 2]'
        known: set[int] = set()
        for part in value:
            numbers = _slots_of(part)
            if numbers is None:
                rule = (
                    f"{shown_value(part)} is not a slot: a slot is a whole number, and a range is two of them"
                )
                return rule, 'write a number as 37 or "37", and a range as "00..11"'
            if not numbers:
                first, _, last = part.partition("..")
                return f'the range "{part}" counts down', f'write "{last}..{first}"'
            if not 0 <= numbers[0] <= numbers[-1] <= most:
                return f"{shown_value(part)} is out of range", f"write slots from 0 to {most}"
            if twice := known.intersection(numbers):
                return f"slot {min(twice)} is in this list twice", "write each slot once"
            known.update(numbers)
        return None

    number = {"type": "integer", "minimum": 0, "maximum": most}
    text = {"type": "string", "pattern": f"^{_SLOTS.pattern}$"}
    schema = {"type": "array", "minItems": 1, "uniqueItems": True, "items": {"anyOf": [number, text]}}
    return Kind("list of slots", schema, fault)


def _slots_of(part: object) -> range | None:
    """Return the slots of a part of a list; an empty range if it counts down, None if it is invalid."""
    if isinstance(part, str):
        bounds = _SLOTS.fullmatch(part)
        if bounds is None:
            return None
        first, last = bounds.groups()
        return range(int(first), int(last or first) + 1)
    return range(part, part + 1) if is_whole(part) else None


def _simple_kind(
    label: str, schema: Mapping[str, Any], is_right: Callable[[Any], bool], rule: str, remedy: str
) -> Kind:
    return Kind(label, schema, lambda value: None if is_right(value) else (rule, remedy))


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _name_fault(value: object) -> Fault | None:
    if isinstance(value, list):
        return "this is one name", 'write an entry for each, or a range, as in "orders.{1..4}"'
    return None if _is_name(value) else ("a name is text that is not empty", "write the name in quotes")


def _weight_fault(value: Any) -> Fault | None:  # noqa: ANN401
    if is_whole(value) and 1 <= value <= MAX_BUCKETS:
        return None
    if isinstance(value, str) and len(value) <= _MAX_KEY and re.match(_WEIGHT, value) and value[-1] != "\n":
        return None
    rule = f"a weight is a whole number from 1 to {MAX_BUCKETS}"
    if is_whole(value) and value > MAX_BUCKETS:
        return rule, "divide all weights by the same number"
    if value in (0, "0") and not isinstance(value, bool):
        return rule, "leave the member out if it gets no messages"
    return rule, "write such a number"


def _table_fault(value: object) -> Fault | None:
    if not isinstance(value, Mapping):
        return "this is a table", "write it as { name = value, other = value }"
    return next(filter(None, (argument_fault(str(name), inner) for name, inner in value.items())), None)


NAME = Kind("name", {"type": "string", "minLength": 1}, _name_fault)
TEXT = _simple_kind(
    "text", {"type": "string"}, lambda value: isinstance(value, str), "this is text", "write it in quotes"
)
NAMES = _simple_kind(
    "list of names",
    {"type": "array", "items": {"type": "string", "minLength": 1}},
    lambda value: isinstance(value, list) and all(map(_is_name, value)),
    "this is a list of names",
    'write it as ["orders.*"]',
)
FLAG = _simple_kind(
    "`true` or `false`",
    {"type": "boolean"},
    lambda value: isinstance(value, bool),
    "this is true or false",
    "write one of them, without quotes",
)
SHARE = _simple_kind(
    "number, 0 to 1",
    {"type": "number", "minimum": 0, "maximum": 1},
    lambda value: is_number(value) and 0 <= value <= 1,
    "a share is a number from 0 to 1",
    "write 5 % as 0.05",
)
WEIGHT = Kind(
    "whole number from 1",
    {
        "anyOf": [
            {"type": "integer", "minimum": 1, "maximum": MAX_BUCKETS},
            {"type": "string", "pattern": _WEIGHT, "maxLength": _MAX_KEY},
        ]
    },
    _weight_fault,
)
TABLE = Kind("table", {"$ref": "#/definitions/table"}, _table_fault)


@dataclass(frozen=True, slots=True)
class FileField:
    """A field of an entry.

    Attributes:
        kind: the permitted values, or the type of the entries in its list.
        meaning: the description in the documentation.
        default: its value if it is not written; None: it has no default.
        ranges: True if ``{1..40}`` in it is expanded to forty values.
    """

    name: str
    kind: Kind | EntryType
    meaning: str
    default: Any = None
    required: bool = False
    ranges: bool = False


def spec(
    kind: Kind | EntryType,
    meaning: str,
    *,
    name: str = "",
    in_file: object = None,
    required: bool = False,
    ranges: bool = False,
) -> dict[str, FileField]:
    """Return the metadata of a dataclass field that a topology file contains.

    Args:
        kind: the permitted values in the file.
        meaning: the description in the documentation.
        name: the name of the field in the file, if it differs. Two fields of a file may set one attribute together.
        in_file: the default of a field of another name.
        required: True if a file must contain the field although the attribute has a default.
        ranges: True if the field may contain ranges.
    """
    return {name: FileField(name, kind, meaning, in_file, required, ranges)}


def default(value: T, kind: Kind | EntryType, meaning: str, **more: Any) -> T:  # noqa: ANN401
    """Return a dataclass field with a default, typed as the default value. The other arguments are those of `spec`."""
    field: T = dataclasses.field(default=value, metadata=spec(kind, meaning, **more))
    return field


def documented(model: type[T]) -> type[T]:
    """Return a dataclass whose docstring lists the meanings of its fields from `spec`, for `help`."""
    heading = "    Attributes:\n"
    meanings = [
        f"        {attribute.name}: {' '.join(field.meaning for field in attribute.metadata.values())}\n"
        for attribute in dataclasses.fields(model)  # type: ignore[arg-type]
        if attribute.metadata
    ]
    text, _, others = (model.__doc__ or "").partition(heading)
    model.__doc__ = f"{text.rstrip()}\n\n{heading}{''.join(meanings)}{others}"
    return model


def fields_of(model: type) -> tuple[FileField, ...]:
    """Return the file fields of a dataclass's attributes."""
    fields = []
    for attribute in dataclasses.fields(model):
        for name, field in attribute.metadata.items():
            if name:
                fields.append(field)
            elif field.required or attribute.default is dataclasses.MISSING:
                fields.append(replace(field, name=attribute.name, required=True))
            else:
                fields.append(replace(field, name=attribute.name, default=attribute.default))
    return tuple(fields)


class EntryRule(NamedTuple):
    """A rule about several fields of an entry.

    Attributes:
        fields: the fields that the rule reads.
        fault: returns the field, the fault and the remedy for the written fields; None if they are valid. It is not called if one of
            `fields` is invalid by itself.
        schema: the rule as JSON Schema.
    """

    fields: tuple[str, ...]
    fault: Callable[[Entry], tuple[str, Fault] | None]
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class EntryType:
    """The type of an entry.

    Attributes:
        noun: the name of an entry, with its article.
        model: the class of its objects.
        fields: its fields, in the order of the documentation.
        rules: the rules about several fields.
        example: an entry as TOML in a list.
    """

    noun: str
    model: type
    fields: tuple[FileField, ...]
    rules: tuple[EntryRule, ...] = ()
    example: str = "{ name = value, ... }"

    @property
    def ranged(self) -> tuple[str, ...]:
        """The names of the fields that may contain ranges."""
        return tuple(field.name for field in self.fields if field.ranges)

    def object_of(self, entry: Entry) -> Any:  # noqa: ANN401
        """Return the object of an entry that has a value for each field."""
        values = dict(entry)
        if "queue" in values:
            queue, exchange = values.pop("queue"), values.pop("exchange", None)
            values["destination"] = ExchangeRef(exchange) if queue is None else queue
        if "weight" in values:
            values["key"] = values.pop("weight")
        if isinstance(slots := values.get("slots"), list):
            values["slots"] = [number for part in slots for number in _slots_of(part) or ()]
        return self.model(**values)


@dataclass(frozen=True, slots=True)
class FileEntry:
    """An object and its place in the file.

    Attributes:
        path: the entry's path in the file.
        written: the entry as written.
        bad: the fields that are invalid by themselves; the object has their defaults.
        members: the entry of each ring member.
    """

    path: str
    written: Entry
    bad: frozenset[str]
    value: Any
    members: tuple[FileEntry, ...] = ()


class FileObjects(NamedTuple):
    """The content of a file, in its order.

    Attributes:
        settings: the fields of the file itself: ``cluster``, ``max_share_moved``, ``owns``.
        problems: the faults of single fields, of fields that depend on each other, and of ranges.
    """

    settings: dict[str, Any]
    exchanges: list[FileEntry]
    queues: list[FileEntry]
    bindings: list[FileEntry]
    policies: list[FileEntry]
    problems: list[Finding]


def read_document(document: Entry, file: EntryType) -> FileObjects:
    """Return the content of a parsed file."""
    reader = _Reader()
    settings, _ = reader.fields(document, "", file)
    lists = {
        field.name: list(reader.objects(settings.pop(field.name), field.kind))
        for field in file.fields
        if isinstance(field.kind, EntryType)
    }
    return FileObjects(settings, **lists, problems=reader.problems)


class _Reader:
    def __init__(self) -> None:
        self.problems: list[Finding] = []

    def objects(self, entries: list[tuple[str, Entry]], type_: EntryType) -> Iterator[FileEntry]:
        """Yield the objects of a list of entries, with ranges expanded."""
        for path, written in entries:
            values, bad = self.fields(written, path, type_)
            members: tuple[FileEntry, ...] = ()
            for field in type_.fields:
                if isinstance(field.kind, EntryType) and values[field.name] is not None:
                    members = tuple(self.objects(values[field.name], field.kind))
                    values[field.name] = tuple(member.value for member in members)
            # Without these the object of the entry is not known.
            identity = {field.name for field in type_.fields if field.required} | {"queue", "exchange"}
            if bad & identity:
                continue
            try:
                for entry in expanded(values, [name for name in type_.ranged if name in written]):
                    yield FileEntry(path, written, bad, type_.object_of(entry), members)
            except RangeError as error:
                self.add(f"{path}.{error.field}", error.text, error.rule, error.remedy)
            except InputError as error:  # a destination that AMQP cannot carry
                at = f"{path}.{'exchange' if values['queue'] is None else 'queue'}"
                self.add(at, None, str(error), "write another name")

    def fields(self, written: Entry, path: str, type_: EntryType) -> tuple[dict[str, Any], frozenset[str]]:
        """Return the value of each field, the default if it is missing or invalid, and the names of the invalid fields."""
        values = {field.name: field.default for field in type_.fields}
        bad = self.unknown(written, path, type_)
        for field in type_.fields:
            name, kind, at = field.name, field.kind, _joined(path, field.name)
            if name not in written:
                if field.required and name not in bad:
                    bad.add(name)
                    meaning = field.meaning[0].lower() + field.meaning[1:].rstrip(".")
                    self.add(at, None, f"{type_.noun} needs `{name}`", f"write it: {meaning}")
            elif isinstance(kind, EntryType):
                values[name] = self.entries(written[name], at, kind)
            elif fault := kind.fault(written[name]):
                bad.add(name)
                self.add(at, written[name], *fault)
            else:
                values[name] = written[name]
        for rule in type_.rules:
            if not bad.intersection(rule.fields) and (broken := rule.fault(written)):
                name, fault = broken
                bad.add(name)
                self.add(_joined(path, name), written.get(name), *fault)
        return values, frozenset(bad)

    def entries(self, value: object, path: str, type_: EntryType) -> list[tuple[str, Entry]]:
        if not isinstance(value, list):
            name = path.rpartition(".")[2]
            each = (
                f"write each one as {name} = [{{ ... }}]"
                if "." in path
                else f"begin each one with [[{name}]]"
            )
            self.add(path, value, f"`{name}` is a list of tables", each)
            return []
        entries: list[tuple[str, Entry]] = []
        for n, entry in enumerate(value):
            if isinstance(entry, dict):
                entries.append((f"{path}[{n}]", entry))
            else:
                self.add(f"{path}[{n}]", entry, f"{type_.noun} is a table", f"write it as {type_.example}")
        return entries

    def unknown(self, written: Entry, path: str, type_: EntryType) -> set[str]:
        """Add a problem for each unknown field of an entry; return the similar known fields."""
        known = {field.name for field in type_.fields}
        # An existing list may have a second heading; any other existing field is a mistake.
        candidates = [
            field.name
            for field in type_.fields
            if field.name not in written or isinstance(field.kind, EntryType)
        ]
        meant = set()
        for name, value in written.items():
            if name in known:
                continue
            remedy = f"its fields are {', '.join(candidates)}"
            if close := similar(name, candidates):
                meant.add(close)
                remedy = f"did you mean `{close}`?"
            if name == "vhost":
                remedy = "leave it out: a file is for any vhost, and the URL names it"
            self.add(_joined(path, name), value, f"{type_.noun} has no field `{name}`", remedy)
        return meant - written.keys()

    def add(self, path: str, value: object, rule: str, remedy: str) -> None:
        self.problems.append(file_finding(path, value, rule, remedy))


def _joined(path: str, name: str) -> str:
    return f"{path}.{toml_key(name)}" if path else toml_key(name)
