"""Read, write and edit a topology file.

TOML text becomes entries, entries become objects, and each mistake is collected with its line: ``tomllib`` does not report the line, so it
is derived from the headings. In the text of a topology, runs of names are ranges, and defaults are left out.
"""

from __future__ import annotations

import dataclasses
import json
import re
import tomllib
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby
from operator import attrgetter
from typing import Any, cast

from rabbit_chx.analysis.findings import Finding
from rabbit_chx.checks import similar
from rabbit_chx.errors import InputError, TopologyError
from rabbit_chx.routing import ExchangeRef, Release
from rabbit_chx.topology.argument_table import plain, show_value, toml_key, toml_value
from rabbit_chx.topology.file_rules import FileEntry, Problems, check_rules, file_finding, read_document
from rabbit_chx.topology.kinds import QUEUE_LIST
from rabbit_chx.topology.objects import (
    OBJECT_LISTS,
    QUEUE_TYPE,
    ExchangeDefinition,
    ObjectSet,
    RingMember,
    order_of_name,
)
from rabbit_chx.topology.ranges import fold, fold_names
from rabbit_chx.topology.schema import FILE, EntryType
from rabbit_chx.topology.slots import slot_width
from rabbit_chx.version import missing_extra

# -- Variables of a topology file: one file for several environments
# ``${NAME}`` in any text of the file is a value that is passed: by ``--set NAME=VALUE``, the environment, or ``values`` in Python. In a table,
# such as ``arguments``, the names are texts, too. Ranges are expanded afterwards: ``orders.{1..${COUNT}}``. ``$${NAME}`` is the text ``${NAME}``.

#: A reference; with ``$`` before it, its text. Any other text in braces is a mistake, but ``${1..3}`` is ``$`` and a range.
_REFERENCE = re.compile(r"(\$?)\$\{(?![^{}]*\.\.|[0-9]+ *[-,:] *[0-9]+\})([^{}]*)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
#: A step of a path such as ``queues[0].arguments."a b"``.
_STEP = re.compile(r"""\[([0-9]+)\]|\.?([A-Za-z0-9_-]+)|\.?("(?:[^"\\]|\\.)*")""")


def escape(value: Any) -> Any:
    """Escape the texts of a value: ``${NAME}`` becomes ``$${NAME}``."""
    if isinstance(value, str):
        return _REFERENCE.sub(r"$\g<0>", value)
    if isinstance(value, Mapping):
        return {escape(name): escape(inner) for name, inner in value.items()}
    return type(value)(map(escape, value)) if isinstance(value, (list, tuple)) else value


def has_reference(value: object) -> bool:
    """Return whether a text, or one within a value, refers to a variable."""
    return any(True for _ in names_in(value))


def names_in(value: object) -> Iterator[str]:
    """Yield the names of the variables to which the texts of a value refer."""
    if isinstance(value, str):
        yield from (name for escaped, name in _REFERENCE.findall(value) if not escaped)
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from names_in(name)
            yield from names_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from names_in(inner)


def substitute(document: Mapping[str, Any], values: Mapping[str, str], problems: Problems) -> dict[str, Any]:
    """Return a parsed file with values in the place of references.

    Args:
        document: the parsed file.
        values: the texts of the variables, by their names.
        problems: receives the mistakes: names that are not set, or not used.

    Raises:
        InputError: `values` is not a mapping of names to texts.
    """
    if not isinstance(values, Mapping) or not all(
        isinstance(part, str) for pair in values.items() for part in pair
    ):
        raise InputError(
            f"values is {values!r:.60}: pass a dict of names and texts, such as {{'ENV': 'prod'}}"
        )
    used = set(names_in(document))
    for name in values.keys() - used:
        close = similar(name, used)
        fix = f"did you mean {close}?" if close else f"write ${{{name}}} where it belongs, or do not pass it"
        problems.add(toml_key(name), None, f"the file does not use the variable {name}, which is given", fix)
    return {name: _replace(value, name, values, problems) for name, value in document.items()}


def _replace(value: Any, path: str, values: Mapping[str, str], problems: Problems) -> Any:
    if isinstance(value, str):
        return _text(value, path, values, problems)
    if isinstance(value, list):
        return [_replace(inner, f"{path}[{number}]", values, problems) for number, inner in enumerate(value)]
    if not isinstance(value, Mapping):
        return value
    result: dict[str, Any] = {}
    for written, inner in value.items():
        inner_path = f"{path}.{toml_key(written)}"
        name = _text(written, inner_path, values, problems)
        if name in result:
            message = f"its variables make the name {show_value(name)}, which the table has already"
            problems.add(inner_path, None, message, "write each name once")
        result[name] = _replace(inner, inner_path, values, problems)
    return result


def _text(text: str, path: str, values: Mapping[str, str], problems: Problems) -> str:
    def value_of(reference: re.Match[str]) -> str:
        is_escaped = reference[1]
        name = reference[2]
        if is_escaped:
            return reference[0][1:]
        if name in values:
            return values[name]
        fix: str
        as_text = f"$${{{name}}} is this text itself"
        if _NAME.fullmatch(name):
            fix = f"set it by `--set {name}=VALUE` (`values={{{name!r}: VALUE}}`), or for a command by the environment variable {name}; {as_text}"
            problems.add(path, None, f"the variable {name} is not set", fix)
        else:
            fix = f"write ${{NAME}}, with a name of letters, digits, _ and -; {as_text}"
            message = f"{show_value(f'${{{name}}}')} is not a reference to a variable"
            problems.add(path, None, message, fix)
        return ""

    return _REFERENCE.sub(value_of, text)


def with_variables(problem: Finding, written: Mapping[str, Any]) -> Finding:
    """Return a mistake of a value with the variables that make the value.

    Args:
        problem: the mistake, in a file with values in the place of references.
        written: the parsed file.
    """
    value: Any = written
    try:
        for key in _steps(problem.subject):
            value = value[key]
    except (LookupError, TypeError):
        return problem  # something is missing
    if not isinstance(value, str) or not has_reference(value):
        return problem
    return replace(problem, message=f"{problem.message} (written as {show_value(value)})")


def _steps(subject: str) -> Iterator[str | int]:
    """Yield the steps of the path with which the subject of a mistake begins."""
    end = 0
    while step := _STEP.match(subject, end):
        end = step.end()
        if step[1]:
            yield int(step[1])
        else:
            yield json.loads(step[3]) if step[3] else step[2]


BYTE_ORDER_MARK = "\ufeff"
_MOST_LEVELS = 100
_TOO_DEEP = file_finding(
    "the text", None, "the text is nested too deeply", f"write at most {_MOST_LEVELS} levels"
)
_MANY_DIGITS = re.compile(r"[0-9_]{4000}")
_HEADING = re.compile(r"\s*\[\[\s*(\w+)\s*\]\]")
_TABLE = re.compile(r"\s*\[+\s*(\w+)")
_INNER_HEADING = re.compile(r"""\s*\[\[\s*\w+\s*\.\s*["']?([\w-]+)["']?\s*\]\]""")
_KEY = re.compile(r"""\s*(?:\[\s*\w+\s*\.\s*)?["']?([\w-]+)["']?\s*(?:=|\.|\])""")
_PATH = re.compile(r"(\w+)(?:\[(\d+)\])?(?:\.([\w-]+))?(?:\[(\d+)\])?")
_PLAIN_NUMBER = re.compile(r"[1-9][0-9]{0,17}")
_WIDTH = 110
_SHORT_RUN = 2


def parse(text: str, file: str | None = None) -> dict[str, Any]:
    """Return the tables of TOML text, which may begin with a byte order mark. `file` is its name for the error.

    Raises:
        TopologyError: the text is not TOML.
    """
    problem = _TOO_DEEP
    text = text.removeprefix(BYTE_ORDER_MARK)  # which some Windows editors write
    try:
        document = tomllib.loads(text)
        if not _deeper_than(document, _MOST_LEVELS):
            return document
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"at line (\d+)", str(error))
        lines = text.rstrip().split("\n")
        line = int(place[1]) if place else len(lines)
        shown = "".join(lines[line - 1 : line]).strip()
        message = f"invalid TOML: {str(error).partition(' (at ')[0]} in `{shown:.60}`"
        fix = "write strings in quotes, and each key once; see https://toml.io"
        if text.endswith(".toml"):
            fix = "this is the name of a file: read it with Topology.from_file(path)"
        elif text.lstrip().startswith("{"):
            fix = "this is JSON: read a definitions file with Topology.from_definitions(text)"
        problem = file_finding("the text", None, message, fix, line)
    except RecursionError:
        pass
    except ValueError:  # of int(), which reads no more than 4,300 digits
        digits = _MANY_DIGITS.search(text)
        line = text.count("\n", 0, digits.start()) + 1 if digits else 1
        problem = file_finding(
            "the text", None, "a number has thousands of digits", "write a shorter number", line
        )

    raise TopologyError([problem], file=file)


def toml_content(
    text: str, file: str | None, release: Release | None, values: Mapping[str, str]
) -> tuple[dict[str, Any], frozenset[str]]:
    """Return the lists and limits in the text of a file, and its queues without a type. Arguments and errors: `Topology.from_toml`."""
    text = text.removeprefix(BYTE_ORDER_MARK)
    written = parse(text, file)
    problems = Problems()
    document = substitute(written, values, problems)
    if problems:
        raise TopologyError(_with_lines(problems.values(), text, written), file=file)

    objects = read_document(document)
    check_rules(objects, release)
    if objects.problems:
        found = [with_variables(problem, written) for problem in objects.problems.values()]
        raise TopologyError(_with_lines(found, text, document), file=file)

    lists = {name: tuple(entry.value for entry in getattr(objects, name)) for name in OBJECT_LISTS}
    untyped = {
        entry.value.name
        for entry in objects.queues
        if "type" not in entry.written and QUEUE_TYPE not in entry.written.get("arguments", ())
    }
    return {**lists, **objects.settings}, frozenset(untyped)


def _with_lines(problems: Iterable[Finding], text: str, document: Mapping[str, Any]) -> list[Finding]:
    lines = FileLines(text.split("\n"), document)
    placed = [replace(problem, line=lines.line_of(problem.subject)) for problem in problems]
    return sorted(
        placed, key=lambda problem: (problem.line is None, problem.line or 0, order_of_name(problem.subject))
    )


def _deeper_than(value: object, levels: int) -> bool:
    """Return True if a value has more than `levels` levels. Dotted keys make a thousand without a bracket."""
    level: list[Any] = [value]
    for _ in range(levels):
        inner: list[Any] = []
        for container in level:
            if isinstance(container, dict):
                inner += container.values()
            elif isinstance(container, list):
                inner += container
        level = inner
    return bool(level)


class FileLines:
    """The lines of a file, in which `line_of` finds fields. Each line is read a few times, whatever the number of fields.

    Args:
        lines: the lines of the file.
        document: the parsed file.
    """

    def __init__(self, lines: list[str], document: Mapping[str, Any]) -> None:
        self._lines = lines
        self._document = document
        self._starts: list[int] = []
        self._headings: dict[str, list[int]] = {}
        self._tables: dict[str, int] = {}
        for n, line in enumerate(lines):
            if heading := _HEADING.match(line):
                self._starts.append(n)
                self._headings.setdefault(heading[1], []).append(n)
            if table := _TABLE.match(line):
                self._tables.setdefault(table[1], n + 1)
        self._top_end = next((n for n, line in enumerate(lines) if line.lstrip().startswith("[")), len(lines))
        # By the first line and the end of an entry or a list.
        self._keys = cache(self._find_keys)
        self._inner = cache(self._find_inner)
        self._members = cache(self._find_members)

    def line_of(self, path: str) -> int | None:
        """Return the number of a field's line, counted from 1; None if it cannot be found.

        Args:
            path: the field's path, such as ``exchanges[2].ring[0].weight``.
        """
        match = _PATH.match(path)
        if match is None:
            return None

        table, index, key, member = match.groups()
        at = self._keys(0, self._top_end).get(table)
        if index is None:
            of_table = self._tables.get(table)
            of_variable = self._keys(of_table, len(self._lines)).get(key) if key and of_table else None
            return of_variable or at or of_table

        headings = self._headings.get(table, [])
        entries = self._document.get(table)
        if not isinstance(entries, list) or len(headings) != len(entries):
            # An array on one line or several.
            return None if at is None else self._line_of_member(int(index), entries, at, self._top_end)

        start = headings[int(index)] + 1
        following = bisect_left(self._starts, start)
        end = self._starts[following] if following < len(self._starts) else len(self._lines)
        if key is None:
            return start

        return self._line_of_key(key, member, entries[int(index)].get(key), start, end)

    def _line_of_key(self, key: str, member: str | None, members: object, start: int, end: int) -> int:
        """Return the line of a field, or of a member in its list, of the entry in some lines."""
        of_members = self._inner(start, end).get(key)
        if of_members and isinstance(members, list):
            return of_members[int(member or 0) if len(of_members) == len(members) else 0]
        at = self._keys(start, end).get(key)
        if at is None or member is None:
            return at or start
        return self._line_of_member(int(member), members, at, end)

    def _line_of_member(self, member: int, members: object, at: int, end: int) -> int:
        """Return the line of a table in a list that begins in line `at`, if each table is on a separate line; else `at`."""
        numbers = self._members(at, end)
        return numbers[member] if isinstance(members, list) and len(numbers) == len(members) else at

    def _find_keys(self, start: int, end: int) -> dict[str, int]:
        found: dict[str, int] = {}
        for n in range(start, end):
            if key := _KEY.match(self._lines[n]):
                found.setdefault(key[1], n + 1)
        return found

    def _find_inner(self, start: int, end: int) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for n in range(start, end):
            if heading := _INNER_HEADING.match(self._lines[n]):
                found.setdefault(heading[1], []).append(n + 1)
        return found

    def _find_members(self, at: int, end: int) -> list[int]:
        end = next((n for n in range(at, end) if _KEY.match(self._lines[n])), end)
        return [n + 1 for n in range(at, end) if self._lines[n].lstrip().startswith("{")]


def toml_text(topology: ObjectSet) -> str:
    """Return the text of a topology file.

    Raises:
        TopologyError: an argument is None, which TOML cannot express.
    """
    settings = {}
    parts = []
    sources = {exchange.name for exchange in topology.exchanges if exchange.queues is not None}
    listed = {binding for binding in topology.bindings if binding.source in sources}
    for name, kind in FILE.fields.items():
        value: Any = getattr(topology, name, ())  # super streams are written in full
        if not isinstance(kind, EntryType):
            settings[name] = escape(tuple(fold_names(value)) if name == "owns" else value)
            continue
        entries = [_entry_of(definition) for definition in value if definition not in listed]
        _refuse_none(name, entries)
        parts += ["\n".join([f"[[{name}]]", *_lines(entry, kind)]) for entry in fold(entries, kind.ranged)]
    head = "\n".join(_lines(settings, FILE))
    return "\n\n".join([head, *parts] if head else parts) + "\n"


def _entry_of(definition: Any) -> dict[str, Any]:
    entry: dict[str, Any] = {}
    for attribute in dataclasses.fields(definition):
        name = attribute.name
        value = getattr(definition, attribute.name)
        if name == "destination":
            is_exchange = isinstance(value, ExchangeRef)
            entry["exchange" if is_exchange else "queue"] = value.name if is_exchange else value
        elif name == "key":
            entry["weight"] = int(value) if _PLAIN_NUMBER.fullmatch(value) else value
        else:
            entry[name] = plain(value) if isinstance(value, Mapping) else value
    return {name: escape(value) for name, value in entry.items()}


def _lines(entry: Mapping[str, Any], type_: EntryType) -> Iterator[str]:
    for name, kind in type_.fields.items():
        value = entry.get(name)
        if value is not None and (value != type_.defaults[name] or name in type_.required):
            is_list = isinstance(kind, EntryType)
            if kind is QUEUE_LIST:
                value = [
                    folded["queue"] for folded in fold([{"queue": queue} for queue in value], ("queue",))
                ]
            yield f"{name} = {members_text(value) if is_list else toml_value(value)}"


def members_text(members: Iterable[RingMember]) -> str:
    """Return ring members as TOML, in their order, with ranges; on separate lines if one line is too long."""
    members = tuple(members)
    texts = _member_texts(members, members)
    line = f"[{', '.join(texts)}]"
    return line if len(line) <= _WIDTH else "\n".join(["[", *(f"    {text}," for text in texts), "]"])


def _member_texts(members: Iterable[RingMember], ring: Iterable[RingMember]) -> list[str]:
    """Return some members of a ring as TOML, with ranges."""
    width = slot_width(max((slot for member in ring for slot in member.slots or ()), default=0) + 1)
    entries = []
    for member in members:
        entry = _entry_of(member)
        del entry["slots" if member.slots is None else "weight"]
        if member.slots is not None:
            entry["slots"] = list(_slot_texts(member.slots, width))
        entries.append({name: value for name, value in entry.items() if value != {}})
    return [toml_value(entry) for entry in fold(entries, ("queue", "exchange", "arguments"))]


def _slot_texts(slots: Sequence[int], width: int) -> Iterator[str]:
    """Yield slots by the numbers in their names; three or more in a row become a range."""
    for _, run in groupby(enumerate(slots), lambda place: place[1] - place[0]):
        numbers = [f"{slot:0{width}d}" for _, slot in run]
        yield from [f"{numbers[0]}..{numbers[-1]}"] if len(numbers) > _SHORT_RUN else numbers


def _refuse_none(heading: str, entries: Iterable[Mapping[str, Any]]) -> None:
    problems = []
    for entry in entries:
        object_ = f"{heading} {entry.get('name', entry.get('source'))}"
        for field in ("arguments", "definition"):
            nulls = [name for name, value in entry.get(field, {}).items() if _has_none(value)]
            problems += [
                file_finding(
                    f"{object_}: {field}.{name}",
                    None,
                    "the value is null, which TOML cannot express",
                    "remove the object",
                )
                for name in nulls
            ]
    if problems:
        raise TopologyError(problems)


def _has_none(value: object) -> bool:
    if isinstance(value, Mapping):
        return any(map(_has_none, value.values()))
    return value is None or (isinstance(value, list) and any(map(_has_none, value)))


#: The beginning of an entry of a list, and of an exchange; what is behind a member on its line.
_ENTRY = re.compile(r"""^(?=[ \t]*\[\[[ \t]*["']?[\w-]+["']?[ \t]*\]\])""", re.MULTILINE)
_EXCHANGE = re.compile(r"""[ \t]*\[\[[ \t]*["']?exchanges["']?[ \t]*\]\]""")
_BEHIND = re.compile(r"(?:[ \t]*,)?([ \t]*#[^\r\n]*|)")


@dataclass(frozen=True, slots=True)
class RingText:
    """The text of a file with rearranged rings.

    Attributes:
        unwritten: the exchanges whose order could not be written, because one entry describes several exchanges that need different orders,
            because the order divides an entry with variables, or because the list is not in brackets.
    """

    text: str
    unwritten: tuple[str, ...] = ()


def rearrange(
    text: str, orders: Mapping[str, Sequence[RingMember]], values: Mapping[str, str] | None = None
) -> RingText:
    """Return the text of a topology file with other members of some rings. All other text is unchanged.

    An entry keeps its text and its variables if its members stay together in their order, and its comments in any case.

    Args:
        text: the file's text, without mistakes.
        orders: the new members of a ring, or those that share slots, by the name of the exchange.
        values: the texts of its variables.

    Raises:
        MissingExtraError: tomlkit is not installed.
    """
    content = text.removeprefix(BYTE_ORDER_MARK)
    document = substitute(tomllib.loads(content), values or {}, Problems())
    # Each entry alone: tomlkit would move exchanges together that have queues between them.
    pieces = _ENTRY.split(content)
    found = [(at, 0) for at, piece in enumerate(pieces) if _EXCHANGE.match(piece)]
    unwritten: list[str] = []

    for path, entries in groupby(read_document(document).exchanges, attrgetter("path")):
        of_path = list(entries)
        before = {entry.value.name: members_of(entry.value) for entry in of_path}
        wanted = {name: tuple(orders.get(name, members)) for name, members in before.items()}
        changed = [name for name, members in before.items() if wanted[name] != members]
        if not changed:
            continue

        number = int(path.removeprefix("exchanges[")[:-1])
        at = 0
        inner = number
        if len(found) == len(document["exchanges"]):
            at, inner = found[number]

        is_one = len(set(wanted.values())) == 1
        edited = _edit(pieces[at], inner, of_path[0].members, wanted[changed[0]]) if is_one else None
        if edited is None:
            unwritten += changed
        else:
            pieces[at] = edited

    return RingText(text[: len(text) - len(content)] + "".join(pieces), tuple(unwritten))


def _edit(piece: str, number: int, members: Sequence[FileEntry], wanted: Sequence[RingMember]) -> str | None:
    """Return the text of an exchange with other members; None if it cannot be written."""
    try:
        import tomlkit
    except ModuleNotFoundError:
        raise missing_extra("another order in the text of a file", "tomlkit", "cli") from None

    try:
        document = tomlkit.parse(piece)
        exchange: Any = cast("Any", document)["exchanges"][number]
        field = "ring" if "ring" in exchange else "members"
        array = exchange[field]
        if not isinstance(array, tomlkit.items.Array):
            return None
        old = [tuple(entry.value for entry in same) for _, same in groupby(members, attrgetter("path"))]
        newline = "\r\n" if "\r\n" in piece else "\n"
        items = [item.as_string() for item in array]
        text = _array_text(array.as_string(), items, old, wanted, newline)
        exchange[field] = tomlkit.parse(f"x = {text}")["x"]
    except (ValueError, LookupError):  # as where the text of a value has the heading of an entry
        return None

    return document.as_string()


def _array_text(
    array: str,
    items: Sequence[str],
    old: Sequence[tuple[RingMember, ...]],
    wanted: Sequence[RingMember],
    newline: str,
) -> str:
    """Return an array with other members, each entry with the lines before it and the comment behind it.

    Raises:
        ValueError: an entry with variables would be divided.
    """
    end = 1
    around: list[tuple[str, str]] = []
    for item in items:
        start = array.index(item, end)
        behind = cast("re.Match[str]", _BEHIND.match(array, start + len(item)))
        lead = array[end:start]
        around.append((lead if "\n" in lead else f"{newline}    {lead.lstrip()}", behind[1]))
        end = behind.end()

    places = {member.destination: at for at, of_one in enumerate(old) for member in of_one}
    parts: list[tuple[int, str]] = []
    for at, run in groupby(wanted, lambda member: places.get(member.destination, -1)):
        part = tuple(run)
        is_whole = at >= 0 and part == old[at]
        if at >= 0 and not is_whole and has_reference(items[at]):
            raise ValueError(items[at])
        parts.append((at, items[at] if is_whole else ", ".join(_member_texts(part, wanted))))

    line = f"[{', '.join(text for _, text in parts)}]"
    if "\n" not in array and len(line) <= _WIDTH:
        return line

    lines = []
    for at, text in parts:
        lead = f"{newline}    "
        behind_it = ""
        if at >= 0:
            lead, behind_it = around[at]
        lines.append(f"{lead}{text},{behind_it}")
        around[at] = (f"{newline}    ", "")  # of the first part of an entry that is divided

    return f"[{''.join(lines)}{array[end:-1] if newline in array[end:] else newline}]"


def members_of(exchange: ExchangeDefinition) -> tuple[RingMember, ...]:
    """Return the members of a ring, or those that share slots."""
    return (exchange.ring if exchange.slots is None else exchange.members) or ()
