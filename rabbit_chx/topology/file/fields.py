"""The reader of a topology file, which walks the tables of `schema`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from rabbit_chx.analysis.findings import Finding
from rabbit_chx.checks import similar
from rabbit_chx.topology.objects.kinds import NAME, Kind
from rabbit_chx.topology.objects.objects import OBJECT_LISTS
from rabbit_chx.topology.objects.ranges import RangeError, expand
from rabbit_chx.topology.objects.schema import FILE, Entry, EntryType
from rabbit_chx.topology.objects.toml_values import show_value, toml_key


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
            faults = {
                name: fault
                for name in spread
                if isinstance(kind := type_.fields[name], Kind) and (fault := kind.fault(entry[name]))
            }
            for name, fault in faults.items():
                problems.add(f"{path}.{name}", entry[name], *fault)
            # Without these the object is not known; a text with another fault is a text nevertheless.
            if faults.keys().isdisjoint({"queue", "exchange"}):
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
