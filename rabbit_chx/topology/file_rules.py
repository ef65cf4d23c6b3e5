"""Rules of a topology file beyond single fields; and misspelled names.

`arguments` has the rules about arguments, flags and settings, by release. A broker accepts a name that is probably misspelled, so that is
not a fault of the file.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias

from rabbit_chx.amqp.exchange_types import EXCHANGE_TYPES
from rabbit_chx.analysis.findings import Finding
from rabbit_chx.checks import MAX_SHORTSTR, similar
from rabbit_chx.routing import ExchangeRef
from rabbit_chx.routing.bindings import MAX_BINDING_WEIGHT, MAX_BUCKETS, weight_of
from rabbit_chx.routing.release import Release
from rabbit_chx.routing.rules import WEIGHT_IS_REFUSED
from rabbit_chx.topology.argument_table import show_value, toml_key
from rabbit_chx.topology.arguments import SHARDS_PER_NODE, find_applying_policy, limit_faults
from rabbit_chx.topology.kinds import NAME, Kind, choice
from rabbit_chx.topology.objects import (
    BROKERS_EXCHANGES,
    BROKERS_OWN,
    HASH_EXCHANGE,
    OBJECT_LISTS,
    QUEUE_TYPE,
    QUEUE_TYPES,
    BindingDefinition,
    ExchangeDefinition,
    ObjectSet,
    PolicyDefinition,
    QueueDefinition,
)
from rabbit_chx.topology.ranges import RangeError, expand
from rabbit_chx.topology.schema import FILE, Entry, EntryType
from rabbit_chx.topology.slots import SlotNames

# -- The reader of a topology file, which walks the tables of `schema`


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
    return Finding("file", _one_line(message), _one_line(fix), subject=_one_line(subject), line=line)


def _one_line(text: str) -> str:
    return text.replace("\r", "\\r").replace("\n", "\\n")


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
    settings["owns"] = tuple(_expand_patterns(settings["owns"], problems))
    lists = {
        name: list(_read_objects(settings.pop(name), kind, problems))
        for name, kind in FILE.fields.items()
        if isinstance(kind, EntryType)
    }
    for name, entries in _expand_super_streams(lists.pop("super_streams"), problems).items():
        lists[name] += entries
    return FileObjects(settings, **lists, problems=problems)


def _expand_patterns(patterns: Iterable[str], problems: Problems) -> Iterator[str]:
    """Yield the patterns of `owns`, with ranges expanded."""
    for number, pattern in enumerate(patterns):
        try:
            yield from (entry["owns"] for entry in expand({"owns": pattern}, ["owns"]))
        except RangeError as error:
            problems.add(f"owns[{number}]", pattern, error.rule, error.remedy)


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
            objects = expand(values, [name for name in type_.ranged if name in written])
        except RangeError as error:
            problems.add(f"{path}.{error.field}", error.text, error.rule, error.remedy)
            continue

        for entry in objects:
            faulty = set()
            for name in spread:
                kind = type_.fields[name]
                fault = kind.fault(entry[name]) if isinstance(kind, Kind) else None
                if fault:
                    faulty.add(name)
                    problems.add(f"{path}.{name}", entry[name], *fault)
            # Without these the object is not known; a text with another fault is a text nevertheless.
            if faulty.isdisjoint({"queue", "exchange"}):
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
            continue

        fault = None if type_.has_ranges(name, value) else kind.fault(value)
        if fault:
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
        if isinstance(entry, dict):
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


#: The field or its path, its value, the fault and the remedy.
_Found: TypeAlias = Iterator[tuple[str, Any, str, str]]

_SHOWN = 10
_CLOSE = 0.85
#: How many names are compared with all others at most.
_COMPARED = 100
#: What a regular expression has, and hardly a name.
_REGEX = re.compile(r"^\^|\$$|\\|[()|+?\[\]]")
_CHOICES = re.compile(r"[()|+?\[\]]")
_NUMBERS = re.compile(r"[0-9]+")
_QUEUE_TYPE = choice(*QUEUE_TYPES)
_MATCH = choice("all", "any", "all-with-x", "any-with-x")


def check_rules(objects: FileObjects, release: Release | None) -> None:
    """Add the faults beyond single fields to the problems of a file. If `release` is None, those of all releases."""
    types = {entry.value.name: entry.value.type for entry in objects.exchanges if "type" not in entry.bad}
    listing = {entry.value.name for entry in objects.exchanges if entry.value.queues is not None}
    policies = [entry.value for entry in objects.policies]

    def limits(entry: FileEntry) -> _Found:
        if release is not None and not {"type", "arguments"} & entry.bad:
            yield from limit_faults(entry.value, release)

    def keep(entry: FileEntry, *found: _Found) -> None:
        for field, value, message, fix in chain(*found):
            path = field if field.startswith(entry.path) else f"{entry.path}.{field}"
            objects.problems.add(path, value, message, fix)

    for entry in objects.exchanges:
        of_ring = _ring_faults(entry, release), _slot_faults(entry), _missing_ring_faults(entry, policies)
        keep(entry, _name_faults(entry), *of_ring)
    for entry in objects.queues:
        keep(entry, _name_faults(entry), _queue_type_faults(entry), limits(entry))
    for entry in objects.bindings:
        keep(entry, _binding_faults(entry.value, types, listing))
    _check_slot_objects(objects)
    _check_repeated(objects.exchanges, "exchange", ("name",), objects.problems)
    _check_repeated(objects.queues, "queue", ("name",), objects.problems)
    _check_repeated(objects.policies, "policy", ("name",), objects.problems)
    of_binding = ("source", "destination", "routing_key", "arguments")
    _check_repeated(objects.bindings, "binding", of_binding, objects.problems)


def _name_faults(entry: FileEntry) -> _Found:
    name = entry.value.name
    if name.startswith(BROKERS_OWN) and entry.value.owner == "ours" and "owner" not in entry.bad:
        fix = 'write another name, or owner = "external" if it exists'
        yield "name", name, "names that begin with amq. are reserved for the broker", fix


def find_lossy_queues(topology: ObjectSet, release: Release) -> list[Finding]:
    """Return the queues of a topology that lose messages by an argument, where no file has their paths."""
    return [
        file_finding(f"queue {queue.name}: {found.field}", found.value, found.message, found.fix)
        for queue in topology.queues
        for found in limit_faults(queue, release)
    ]


def _check_repeated(
    entries: Iterable[FileEntry], noun: str, identity: Sequence[str], problems: Problems
) -> None:
    first: dict[object, str] = {}
    for entry in entries:
        key = attrgetter(*identity)(entry.value)
        if key in first:
            message = f"the file declares this {noun} already, as {first[key]}"
            if first[key] == entry.path:
                message = f"the range of this entry repeats the same {noun}"
            value = getattr(entry.value, identity[0])
            # The bindings of a super stream are not written: an error of theirs is at its name.
            field = identity[0] if identity[0] in entry.written else "name"
            problems.add(f"{entry.path}.{field}", value, message, "write each one once")
        first.setdefault(key, entry.path)


def _ring_faults(entry: FileEntry, release: Release | None) -> _Found:
    buckets = 0
    over: list[FileEntry] = []
    known = set()
    for member in entry.members:
        if member.bad:
            continue

        place = member.value.destination
        weight = weight_of(place, member.value.key)
        buckets += weight
        if weight > MAX_BINDING_WEIGHT:
            over.append(member)
        if place in known:
            if isinstance(place, ExchangeRef):
                field = "exchange"
                name = place.name
            else:
                field = "queue"
                name = place
            more = "buckets" if entry.value.slots is None else "slots"
            fix = f"write each member once; a weight gives it more {more}"
            yield f"{member.path}.{field}", name, f"{field} {name} is a member already", fix

        known.add(place)

    if buckets > MAX_BUCKETS:
        message = f"the weights add up to {buckets}, and at most {MAX_BUCKETS} buckets are computed"
        yield "ring", None, message, "divide all weights by the same number"
    elif release is not None and release.follows(WEIGHT_IS_REFUSED) and entry.value.slots is None:
        for member in over:
            message = f"RabbitMQ {release.version} takes at most {MAX_BINDING_WEIGHT}"
            yield f"{member.path}.weight", member.value.key, message, "divide all weights by the same number"


def _missing_ring_faults(entry: FileEntry, policies: Iterable[PolicyDefinition]) -> _Found:
    exchange: ExchangeDefinition = entry.value
    is_ours = exchange.type == HASH_EXCHANGE and exchange.owner == "ours"
    has_members = {"ring", "slots", "members"} & (entry.written.keys() | entry.bad)  # bad: misspelled
    if not is_ours or has_members or {"type", "owner"} & entry.bad:
        return
    policy = find_applying_policy(exchange, policies)
    if policy is None or SHARDS_PER_NODE not in policy.definition:
        message = f"an exchange of type {HASH_EXCHANGE} needs its members, in bind order"
        fix = 'write ring = [{ queue = "...", weight = 1 }], ring = [] for none, or a policy that shards the exchange'
        yield "ring", None, message, fix


def _queue_type_faults(entry: FileEntry) -> _Found:
    queue: QueueDefinition = entry.value
    if {"type", "arguments"} & entry.bad or QUEUE_TYPE not in entry.written.get("arguments", ()):
        return
    type_ = queue.arguments.get(QUEUE_TYPE, queue.type)
    field = f"arguments.{QUEUE_TYPE}"
    if (written := entry.written.get("type", type_)) != type_:
        yield field, type_, f"the type of the queue is {written}", f"remove {QUEUE_TYPE}"
    elif fault := _QUEUE_TYPE.fault(type_):
        meant = similar(type_, QUEUE_TYPES) if isinstance(type_, str) else None
        fix = f'write type = "{meant}" instead' if meant else "write `type` instead, with one of them"
        yield field, type_, fault[0], fix


def _binding_faults(binding: BindingDefinition, types: Mapping[str, str], listing: Collection[str]) -> _Found:
    type_ = types.get(binding.source)
    if binding.source in listing:
        message = f"the bindings of {binding.source} are those of its `queues`"
        yield (
            "source",
            binding.source,
            message,
            "write the queue there, or all of its bindings as [[bindings]]",
        )
    if type_ == HASH_EXCHANGE:
        message = f"{binding.source} is of type {HASH_EXCHANGE}, so the order of its bindings matters"
        yield "source", binding.source, message, "write the destination as a member of its `ring`"
    if fault := match_fault(binding, types):
        yield "arguments.x-match", binding.arguments["x-match"], *fault


def match_fault(binding: BindingDefinition, types: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the fault of a binding of a headers exchange; `types` has the type of each exchange."""
    is_headers = types.get(binding.source, BROKERS_EXCHANGES.get(binding.source)) == "headers"
    return _MATCH.fault(binding.arguments.get("x-match", "all")) if is_headers else None


def _slot_faults(entry: FileEntry) -> _Found:
    exchange: ExchangeDefinition = entry.value
    count = exchange.slots
    members = exchange.members
    if count is None or members is None:
        return

    yield from _slot_name_faults(entry, SlotNames(exchange.name, count))
    if not entry.written["members"]:
        yield "members", None, "slots need at least one member", "write a member"
    elif count < len(members):
        message = f"{count} slot{'s' if count > 1 else ''} cannot be shared by {len(members)} members"
        yield "slots", count, message, "write at least one slot for each member, better ten"
    elif any(member.bad for member in entry.members):
        return
    elif any(member.slots is not None for member in members):
        yield from _slot_list_faults(entry, exchange.name, count)
    else:
        weights = [weight_of(member.destination, member.key) for member in members]
        for member, weight in zip(entry.members, weights, strict=True):
            if count * weight < sum(weights):
                message = f"{weight} of {sum(weights)} is less than one of {count} slots"
                yield f"{member.path}.weight", weight, message, "write more slots, or a larger weight"


def _slot_name_faults(entry: FileEntry, names: SlotNames) -> _Found:
    last = names.slots[-1]
    if len(last.encode(errors="replace")) > MAX_SHORTSTR:
        message = f"the name of the last slot exchange, {last:.40}..., exceeds {MAX_SHORTSTR} bytes"
        yield "name", names.exchange, message, "write a shorter name"
    for member in entry.members:
        if member.value.destination == names.park:
            message = f"{names.park} is the parking queue of {names.exchange}"
            yield f"{member.path}.queue", names.park, message, "write another queue"


def _slot_list_faults(entry: FileEntry, exchange: str, count: int) -> _Found:
    queue_of: dict[int, str] = {}
    is_sound = True
    entries_of = Counter(member.path for member in entry.members)
    all_listed = (
        f"either all members list their slots, and each of 0 to {count - 1} occurs once, or none does"
    )

    for member in entry.members:
        path = f"{member.path}.slots"
        queue = member.value.destination
        numbers = member.value.slots
        faults: list[tuple[Any, str, str]] = []

        if numbers is None:
            fix = f"list the slots of {queue} in {exchange} too, or set weights of all members"
            faults.append((None, all_listed, fix))
        elif entries_of[member.path] > 1:
            message = (
                f"this entry has {entries_of[member.path]} queues, and a slot of {exchange} has one queue"
            )
            faults.append((None, message, "write an entry with its own `slots` for each queue"))
        else:
            for number in numbers:
                if number >= count:
                    fix = f"remove {number} from {queue}, or write more slots"
                    faults.append((number, f"{exchange} has the slots 0 to {count - 1}", fix))
                elif number in queue_of:
                    message = f"slot {number} of {exchange} belongs to {queue_of[number]} and to {queue}"
                    faults.append((number, message, "write it once"))
                queue_of.setdefault(number, queue)

        for fault in faults:
            is_sound = False
            yield path, *fault

    missing = [number for number in range(count) if number not in queue_of]
    if missing and is_sound:
        listing = ", ".join(map(str, missing[:_SHOWN])) + (", ..." if len(missing) > _SHOWN else "")
        yield "members", None, all_listed, f"assign slot {listing} to a member"


def _check_slot_objects(objects: FileObjects) -> None:
    """Add a problem for each entry that collides with the objects of an exchange with slots."""
    exchange_of: dict[str, str] = {}
    for entry in objects.exchanges:
        exchange: ExchangeDefinition = entry.value
        if exchange.slots is not None:
            names = SlotNames(exchange.name, exchange.slots).exchanges
            exchange_of.update(dict.fromkeys(names, exchange.name))
    for entry in objects.exchanges:
        if of := exchange_of.get(name := entry.value.name):
            message = f"the slots of {of} create an exchange {name}"
            objects.problems.add(
                f"{entry.path}.name", name, message, "write another name, or remove this entry"
            )
    for entry in objects.bindings:
        if of := exchange_of.get(source := entry.value.source):
            message = f"the slots of {of} create the bindings of {source}"
            objects.problems.add(f"{entry.path}.source", source, message, f"write `members` of {of} instead")


def misspellings(topology: ObjectSet) -> Iterator[str]:
    """Yield a sentence for each name that is probably a misspelling of another one."""
    for exchange in topology.exchanges:
        if exchange.type in EXCHANGE_TYPES:
            continue
        meant = similar(exchange.type, EXCHANGE_TYPES, _CLOSE)
        if meant:
            yield f"exchange {exchange.name} is of type {exchange.type}: did you mean {meant}?"

    names = [exchange.name for exchange in topology.exchanges] + [queue.name for queue in topology.queues]
    for pattern in topology.owns:
        glob = _REGEX.sub("", pattern.replace(".*", "*"))
        owned = re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL).fullmatch
        if _REGEX.search(pattern) and not any(map(owned, names)):
            if pattern.startswith("^") and not pattern.endswith(("*", "$")):
                glob += "*"  # a regular expression without $ matches what begins so
            fix = f'write "{glob}"' if not _CHOICES.search(pattern) else "write a pattern for each name"
            yield f"`owns` has {pattern!r}, which looks like a regular expression, and matches no name of the file: only * is special; {fix}"

    exchanges = [place.name for place in topology.unlisted if isinstance(place, ExchangeRef)]
    queues = [place for place in topology.unlisted if isinstance(place, str)]
    yield from _find_unknown_names("exchange", exchanges, [exchange.name for exchange in topology.exchanges])
    yield from _find_unknown_names("queue", queues, [queue.name for queue in topology.queues])


def _find_unknown_names(kind: str, used: Iterable[str], listed: Iterable[str]) -> Iterator[str]:
    """Yield a sentence for each used name that is similar to a listed one; numbers are ignored."""
    by_letters = {_NUMBERS.sub("", name): name for name in reversed(list(listed))}
    unknown: dict[str, str] = {}
    for name in used:
        unknown.setdefault(_NUMBERS.sub("", name), name)
    unlisted = ((letters, name) for letters, name in unknown.items() if letters not in by_letters)
    for letters, name in islice(unlisted, _COMPARED):
        if close := similar(letters, by_letters, _CLOSE):
            yield f"the file does not declare {kind} {name}: did you mean {by_letters[close]}?"
