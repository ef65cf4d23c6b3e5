"""The fields of a topology file: a table for each kind of entry, and the reader that walks the tables.

The writer, the JSON Schema and the tables of docs/topology.md use the same tables.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from rabbit_chx.analysis.findings import Finding
from rabbit_chx.checks import MAX_SHORTSTR, is_number, is_whole, similar
from rabbit_chx.routing import ExchangeRef
from rabbit_chx.routing.ring_changes import MAX_BUCKETS
from rabbit_chx.topology.file.ranges import Items, RangeError, expand
from rabbit_chx.topology.objects.argument_table import argument_fault, unsendable
from rabbit_chx.topology.objects.kinds import (
    FLAG,
    KEY,
    NAME,
    STRING,
    Fault,
    Kind,
    choice,
    kind_of,
    name_fault,
    whole_number,
)
from rabbit_chx.topology.objects.objects import (
    HASH_EXCHANGE,
    MODULUS_EXCHANGE,
    OBJECT_LISTS,
    QUEUE_TYPES,
    BindingDefinition,
    ExchangeDefinition,
    ObjectSet,
    PolicyDefinition,
    QueueDefinition,
    RingMember,
    SuperStreamDefinition,
)
from rabbit_chx.topology.objects.toml_values import show_value, toml_key

Entry = Mapping[str, Any]
#: The binding key of a weight: Erlang's ``binary_to_integer/1`` accepts a sign and leading zeros.
WEIGHT_PATTERN = r"\+?0*[1-9][0-9]*"
SLOT_PATTERN = r"([0-9]{1,9})(?:\.\.([0-9]{1,9}))?"
MAX_SLOTS = 16_384
MAX_PARTITIONS = 10_000


def file_finding(path: str, value: object, message: str, fix: str, line: int | None = None) -> Finding:
    """Return the finding of a mistake in a file. Its texts are on one line each, also if a name has several.

    Args:
        path: the path of the field, such as ``exchanges[2].ring[0].weight``, counted from 0.
        value: its value; None if something is missing.
        message: the mistake.
        fix: the remedy.
        line: the number of the line, counted from 1; None if it is not known.
    """
    subject = path if value is None else f"{path} = {show_value(value)}"
    subject, message, fix = (
        text.replace("\r", "\\r").replace("\n", "\\n") for text in (subject, message, fix)
    )
    return Finding("file", message, fix, subject=subject, line=line)


def _weight_fault(value: Any) -> Fault | None:
    if is_whole(value, 1, MAX_BUCKETS):
        return None
    if isinstance(value, str) and len(value) <= MAX_SHORTSTR and re.fullmatch(WEIGHT_PATTERN, value):
        return None
    remedy = "write a positive integer"
    if is_whole(value) and value > MAX_BUCKETS:
        remedy = "divide all weights by the same number"
    elif value in (0, "0") and not isinstance(value, bool):
        remedy = "remove the member if it should get no messages"
    return f"a weight must be an integer from 1 to {MAX_BUCKETS}", remedy


def _table_fault(value: object) -> Fault | None:
    if not isinstance(value, Mapping):
        return "the value must be a table", "write it as { name = value, other = value }"
    faults = (
        argument_fault(str(name), inner) or unsendable(str(name), inner) for name, inner in value.items()
    )
    return next(filter(None, faults), None)


def _slots_fault(value: Any) -> Fault | None:
    """Return the fault of a list of slots: numbers, and texts such as ``"37"`` and ``"00..11"``."""
    if not isinstance(value, list) or not value:
        return "the value must be a list of slots", 'write it as ["00..11", "37"] or as [0, 1, 2]'
    known: set[int] = set()
    for part in value:
        numbers, shown = _slots_of(part), show_value(part)
        if numbers is None:
            return (
                f"{shown} is neither a slot nor a range",
                'write a slot as 37 or "37", and a range as "00..11"',
            )
        if not numbers:
            first, _, last = part.partition("..")
            return f"the range {shown} counts down", f'write "{last}..{first}"'
        if not 0 <= numbers[0] <= numbers[-1] < MAX_SLOTS:
            return f"{shown} is out of range", f"write slots from 0 to {MAX_SLOTS - 1}"
        if twice := known.intersection(numbers):
            return f"the list contains slot {min(twice)} twice", "write each slot once"
        known.update(numbers)
    return None


def _slots_of(part: object) -> range | None:
    """Return the slots of a part of a list; an empty range if it counts down, None if it is invalid."""
    if isinstance(part, str):
        bounds = re.fullmatch(SLOT_PATTERN, part)
        if bounds is None:
            return None
        first, last = bounds.groups()
        return range(int(first), int(last or first) + 1)
    return range(part, part + 1) if is_whole(part) else None


def _list_once(noun: str, plural: str, example: str, once: str, least: int = 0) -> Kind:
    """Return the kind of a list of names with ranges, in which each name occurs once."""

    def fault(value: Any) -> Fault | None:
        if not _is_list_of_names(value) or len(value) < least:
            return f"the value must be a list of {plural}", f"write it as {example}"
        try:
            names = _expand_names(value)
        except RangeError as error:
            return error.rule, error.remedy
        if twice := next((name for name, count in Counter(names).items() if count > 1), None):
            return f"{noun} {twice} is listed twice", f"write each {noun} once{once}"
        return next(filter(None, map(name_fault, names)), None)

    return Kind("list of names", fault)


def _expand_names(names: Iterable[str]) -> list[str]:
    return [entry["queue"] for name in names for entry in expand({"queue": name}, ["queue"])]


def _is_list_of_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) and name for name in value)


def _is_share(value: object) -> bool:
    return is_number(value) and 0 <= value <= 1


NAMES = kind_of("list of names", _is_list_of_names, "a list of names", 'write it as ["orders.*"]')
SHARE = kind_of("number, 0 to 1", _is_share, "a number from 0 to 1", "write 5% as 0.05")
WEIGHT = Kind("integer from 1", _weight_fault)
TABLE = Kind("table", _table_fault)
SLOT_LIST = Kind("list of slots", _slots_fault)
QUEUE_LIST = _list_once("queue", "names of queues", '["orders.{1..8}"]', ": x-modulus-hash has no weights")
KEY_LIST = _list_once("binding key", "binding keys", '["amer", "emea"]', "", 1)
OWNER = choice("ours", "external")
APPLY_TO = choice("all", "exchanges", "queues", "classic_queues", "quorum_queues", "streams")
PRIORITY = whole_number(-(1 << 31), (1 << 31) - 1)
#: The faults of several fields of an entry as written: the field, the fault and the remedy of each.
Faults = Iterator[tuple[str, str, str]]


@dataclass(frozen=True, eq=False)
class EntryType:
    """The type of an entry.

    Attributes:
        noun: the name of an entry, with its article.
        model: the class of its objects. Its attributes are the fields, with the same defaults.
        fields: the kind of each field, or the type of the entries in its list, in the order of the documentation.
        required: the fields that an entry must have.
        ranged: the fields in which ``{1..40}`` is expanded to forty values.
        rules: yields the faults of several fields together.
        reads: the fields that `rules` reads. It is not called if one of them is invalid by itself.
        example: an entry as TOML in a list.
        build: returns the arguments of `model`, of the values of the fields.
    """

    noun: str
    model: type
    fields: Mapping[str, Kind | EntryType]
    required: tuple[str, ...] = ()
    ranged: tuple[str, ...] = ()
    rules: Callable[[Entry], Faults] = lambda _: iter(())
    reads: tuple[str, ...] = ()
    example: str = "{ name = value, ... }"
    build: Callable[[dict[str, Any]], dict[str, Any]] = dict

    @cached_property
    def defaults(self) -> Mapping[str, Any]:
        """The value of each field that is not written; None for fields without a default."""
        known = {attribute.name: attribute.default for attribute in dataclasses.fields(self.model)}
        known |= dict.fromkeys(self.required) | {"weight": 1, "super_streams": ()}
        return {name: known.get(name) for name in self.fields}

    def has_ranges(self, name: str, value: object) -> bool:
        """Return True if a field has a text or list that is expanded. It is checked after the expansion."""
        if isinstance(value, Items):
            return self.fields[name] in (NAME, KEY, WEIGHT) and name in (*self.ranged, "weight")
        is_text = isinstance(value, str) and value != ""
        return is_text and name in self.ranged and self.fields[name] in (NAME, KEY)

    def object_of(self, entry: Entry) -> Any:
        """Return the object of an entry that has a value for each field."""
        return self.model(**self.build(dict(entry)))


def _with_destination(values: dict[str, Any]) -> dict[str, Any]:
    queue, exchange = values.pop("queue"), values.pop("exchange", None)
    return {**values, "destination": ExchangeRef(exchange) if queue is None else queue}


def _with_key(values: dict[str, Any]) -> dict[str, Any]:
    weight = values.pop("weight")
    return {**_with_destination(values), "key": weight}


def _with_slots(values: dict[str, Any]) -> dict[str, Any]:
    slots = values.pop("slots")
    numbers = None if slots is None else [number for part in slots for number in _slots_of(part) or ()]
    return {**_with_key(values), "slots": numbers}


def _with_queues(values: dict[str, Any]) -> dict[str, Any]:
    queues = values.pop("queues")
    return {**values, "queues": None if queues is None else _expand_names(queues)}


def _with_binding_keys(values: dict[str, Any]) -> dict[str, Any]:
    keys = values.pop("binding_keys")
    return {**values, "binding_keys": None if keys is None else tuple(_expand_names(keys))}


def _destination_faults(entry: Entry) -> Faults:
    message = "the destination must be either a queue or an exchange"
    if {"queue", "exchange"} <= entry.keys():
        yield "exchange", message, "write only one of `queue` and `exchange`"
    elif not {"queue", "exchange"} & entry.keys():
        yield "queue", message, "write `queue` or `exchange`"


def _slot_member_faults(entry: Entry) -> Faults:
    if {"weight", "slots"} <= entry.keys():
        message = "a member has either a weight or a list of its slots"
        yield "slots", message, "write only one of `weight` and `slots`"


def _super_stream_faults(entry: Entry) -> Faults:
    message = "a super stream has either a number of partitions or a list of their binding keys"
    if {"partitions", "binding_keys"} <= entry.keys():
        yield "binding_keys", message, "write only one of `partitions` and `binding_keys`"
    elif not {"partitions", "binding_keys"} & entry.keys():
        yield "partitions", message, "write partitions = 3, or `binding_keys`"


def _exchange_faults(entry: Entry) -> Faults:
    type_ = entry.get("type", "direct")
    written = [name for name in ("ring", "slots", "members") if name in entry]
    if written and type_ != HASH_EXCHANGE:
        message = f"only an exchange of type {HASH_EXCHANGE} has a ring, and this one is of type {type_}"
        fix = f'write type = "{HASH_EXCHANGE}", or [[bindings]] instead of `{written[0]}`'
        yield written[0], message, fix
    elif "queues" in entry and type_ != MODULUS_EXCHANGE:
        message = f"only an exchange of type {MODULUS_EXCHANGE} has `queues`, and this one is of type {type_}"
        fix = "write its members as `ring`" if type_ == HASH_EXCHANGE else "write [[bindings]] instead"
        yield "queues", message, fix
    elif "max_share_moved" in entry and type_ not in (HASH_EXCHANGE, MODULUS_EXCHANGE):
        hashing = f"{HASH_EXCHANGE} or {MODULUS_EXCHANGE}"
        message = f"only an exchange of type {hashing} hashes keys, and this one is of type {type_}"
        yield "max_share_moved", message, "remove `max_share_moved`"
    elif len(written) > 1 and "ring" in written:
        message = "an exchange has either `ring`, or `slots` with `members`"
        yield written[1], message, "remove `ring`, or `slots` and `members`"
    elif written in (["slots"], ["members"]):
        (missing,) = {"slots", "members"} - set(written)
        fix = (
            "write `members` too"
            if missing == "members"
            else "write `slots` too, or `ring` instead of `members`"
        )
        yield missing, "`slots` is the number of slots, and `members` share them", fix


_MEMBER_EXAMPLE = '{ queue = "...", weight = 1 }'
MEMBER = EntryType(
    "a member", RingMember, {"queue": NAME, "exchange": NAME, "weight": WEIGHT, "arguments": TABLE},
    ranged=("queue", "exchange", "arguments"),
    rules=_destination_faults, reads=("queue", "exchange"), example=_MEMBER_EXAMPLE, build=_with_key,
)  # fmt: skip
#: A member of an exchange with slots is a queue. It owns a part of the slots by its weight, or the slots that it lists.
SLOT_MEMBER = EntryType(
    "a member", RingMember, {"queue": NAME, "weight": WEIGHT, "slots": SLOT_LIST}, ("queue",), ("queue",),
    rules=_slot_member_faults, reads=("weight", "slots"), example=_MEMBER_EXAMPLE, build=_with_slots,
)  # fmt: skip
EXCHANGE = EntryType(
    "an exchange", ExchangeDefinition,
    {
        "name": NAME, "type": NAME, "durable": FLAG, "auto_delete": FLAG, "internal": FLAG, "arguments": TABLE,
        "ring": MEMBER, "slots": whole_number(1, MAX_SLOTS), "members": SLOT_MEMBER, "queues": QUEUE_LIST,
        "max_share_moved": SHARE, "owner": OWNER,
    },
    required=("name",), ranged=("name", "arguments"),
    rules=_exchange_faults, reads=("type", "ring", "slots", "members", "queues", "max_share_moved"), build=_with_queues,
)  # fmt: skip
QUEUE = EntryType(
    "a queue", QueueDefinition,
    {
        "name": NAME, "type": choice(*QUEUE_TYPES), "durable": FLAG, "exclusive": FLAG, "auto_delete": FLAG,
        "arguments": TABLE, "owner": OWNER,
    },
    required=("name",), ranged=("name", "arguments"),
)  # fmt: skip
BINDING = EntryType(
    "a binding", BindingDefinition,
    {
        "source": NAME, "queue": NAME, "exchange": NAME, "routing_key": KEY, "arguments": TABLE, "owner": OWNER,
    },
    required=("source",), ranged=("source", "queue", "exchange", "routing_key", "arguments"),
    rules=_destination_faults, reads=("queue", "exchange"), build=_with_destination,
)  # fmt: skip
#: The short form of the three before.
SUPER_STREAM = EntryType(
    "a super stream", SuperStreamDefinition,
    {
        "name": NAME, "partitions": whole_number(1, MAX_PARTITIONS), "binding_keys": KEY_LIST, "arguments": TABLE, "owner": OWNER,
    },
    required=("name",), ranged=("name", "arguments"),
    rules=_super_stream_faults, reads=("partitions", "binding_keys"), build=_with_binding_keys,
)  # fmt: skip
POLICY = EntryType(
    "a policy", PolicyDefinition,
    {
        "name": NAME, "pattern": STRING,
        "apply_to": APPLY_TO, "definition": TABLE, "priority": PRIORITY, "owner": OWNER,
    },
    required=("name", "pattern", "definition"),
)  # fmt: skip
#: A file has its own fields before the lists of its objects, as TOML requires.
FILE = EntryType(
    "the file", ObjectSet,
    {
        "cluster": NAME, "vhost": NAME, "max_share_moved": SHARE, "owns": NAMES,
        "exchanges": EXCHANGE, "queues": QUEUE, "bindings": BINDING, "super_streams": SUPER_STREAM, "policies": POLICY,
    },
)  # fmt: skip


class Problems(dict[tuple[str, str], Finding]):
    """The mistakes of a file by their path and remedy: each once, although an entry with ranges has several objects."""

    def add(self, path: str, value: object, message: str, fix: str) -> None:
        """Add a mistake. `value` is None if something is missing."""
        if (path, fix) not in self:
            self[path, fix] = file_finding(path, value, message, fix)


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
        settings: the fields of the file itself: ``cluster``, ``vhost``, ``max_share_moved``, ``owns``.
        problems: the faults of single fields, of fields that depend on each other, and of ranges.
    """

    settings: dict[str, Any]
    exchanges: list[FileEntry]
    queues: list[FileEntry]
    bindings: list[FileEntry]
    policies: list[FileEntry]
    problems: Problems


def read_document(document: Entry) -> FileObjects:
    """Return the content of a parsed file."""
    problems = Problems()
    settings, _ = _read_fields(document, "", FILE, problems)
    lists = {
        name: list(_read_objects(settings.pop(name), kind, problems))
        for name, kind in FILE.fields.items()
        if isinstance(kind, EntryType)
    }
    for name, entries in _expand_super_streams(lists.pop("super_streams"), problems).items():
        lists[name] += entries
    return FileObjects(settings, **lists, problems=problems)


def _expand_super_streams(super_streams: list[FileEntry], problems: Problems) -> dict[str, list[FileEntry]]:
    """Return the objects of super streams, each in the place of its super stream, by the name of their list."""
    lists: dict[str, list[FileEntry]] = {name: [] for name in OBJECT_LISTS}
    for entry in super_streams:
        faults = {stream: fault for stream in entry.value.streams if (fault := NAME.fault(stream))}
        for stream, fault in faults.items():
            problems.add(f"{entry.path}.name", stream, *fault)
        if faults:
            continue
        objects = entry.value.objects()
        written = {**entry.written, "type": "stream"}
        for name, found in lists.items():
            found += [FileEntry(entry.path, written, entry.bad, each) for each in getattr(objects, name)]
    return lists


def _read_objects(
    entries: Iterable[tuple[str, Entry]], type_: EntryType, problems: Problems
) -> Iterator[FileEntry]:
    """Yield the objects of a list of entries, with ranges expanded."""
    for path, written in entries:
        values, bad = _read_fields(written, path, type_, problems)
        members: tuple[FileEntry, ...] = ()
        for name, kind in type_.fields.items():
            if isinstance(kind, EntryType) and values[name] is not None:
                members = tuple(_read_objects(values[name], kind, problems))
                values[name] = tuple(member.value for member in members)
        # Without these the object of the entry is not known.
        if bad & {*type_.required, "queue", "exchange"}:
            continue
        spread = [name for name in type_.fields if type_.has_ranges(name, values[name])]
        try:
            objects = expand(values, [name for name in (*type_.ranged, "weight") if name in written])
        except RangeError as error:
            problems.add(f"{path}.{error.field}", error.text, error.rule, error.remedy)
            continue
        for entry in objects:
            faults = {
                name: fault
                for name in spread
                if isinstance(kind := type_.fields[name], Kind) and (fault := kind.fault(entry[name]))
            }
            for name, fault in faults.items():
                problems.add(f"{path}.{name}", entry[name], *fault)
            # Without these the object is not known; a text with another fault is a text nevertheless.
            unknown = {"queue", "exchange"} | {name for name in spread if isinstance(values[name], Items)}
            if faults.keys().isdisjoint(unknown):
                yield FileEntry(path, written, bad, type_.object_of(entry), members)


def _read_fields(
    written: Entry, path: str, type_: EntryType, problems: Problems
) -> tuple[dict[str, Any], frozenset[str]]:
    """Return the value of each field, the default if it is missing or invalid, and the names of the invalid fields."""
    values = dict(type_.defaults)
    bad = _report_unknown(written, path, type_, problems)
    for name, kind in type_.fields.items():
        if name not in written:
            if name in type_.required and name not in bad:
                bad.add(name)
                problems.add(_join(path, name), None, f"{type_.noun} needs `{name}`", f"write {name} = ...")
            continue
        value = written[name]
        if isinstance(kind, EntryType):
            values[name] = list(_tables(value, _join(path, name), kind, problems))
        elif not type_.has_ranges(name, value) and (fault := kind.fault(value)):
            bad.add(name)
            problems.add(_join(path, name), value, *fault)
        else:
            values[name] = value
    if bad.isdisjoint(type_.reads):
        for name, message, fix in type_.rules(written):
            bad.add(name)
            problems.add(_join(path, name), written.get(name), message, fix)
    return values, frozenset(bad)


def _tables(value: object, path: str, type_: EntryType, problems: Problems) -> Iterator[tuple[str, Entry]]:
    """Yield the entries of a list, each with its path."""
    if not isinstance(value, list):
        name = path.rpartition(".")[2]
        fix = f"write each one as {name} = [{{ ... }}]" if "." in path else f"begin each one with [[{name}]]"
        problems.add(path, value, f"`{name}` must be a list of tables", fix)
        return
    for n, entry in enumerate(value):
        if isinstance(value, Items) and isinstance(entry, str) and "queue" in type_.fields:
            yield f"{path}[{n}]", {"queue": entry}
        elif isinstance(entry, dict):
            yield f"{path}[{n}]", entry
        else:
            problems.add(
                f"{path}[{n}]", entry, f"{type_.noun} must be a table", f"write it as {type_.example}"
            )


def _report_unknown(written: Entry, path: str, type_: EntryType, problems: Problems) -> set[str]:
    """Add a problem for each unknown field of an entry; return the missing fields that were probably meant."""
    # A list may have a second heading; any other field that is written already was not meant.
    candidates = [
        name for name, kind in type_.fields.items() if name not in written or isinstance(kind, EntryType)
    ]
    meant = set()
    for name, value in written.items():
        if name in type_.fields:
            continue
        fix = f"its fields are {', '.join(candidates)}"
        if close := similar(name, candidates):
            meant.add(close)
            fix = f"did you mean `{close}`?"
        if name == "vhost":
            fix = "remove it: a file is for one vhost, and may name it before its first table"
        problems.add(_join(path, name), value, f"{type_.noun} has no field `{name}`", fix)
    return meant - written.keys()


def _join(path: str, name: str) -> str:
    return f"{path}.{toml_key(name)}" if path else toml_key(name)
