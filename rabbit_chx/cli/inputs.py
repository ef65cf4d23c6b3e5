"""The contents of files and stdin: rings and topologies. Keys are in `samples`."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, NamedTuple, TypeVar

import click

from rabbit_chx.amqp.fields import FIELD_TYPES, INTEGER_RANGES, AmqpField, FieldType, field_for
from rabbit_chx.checks import similar
from rabbit_chx.cli.command import TEXT, option, say
from rabbit_chx.errors import InputError, TopologyError
from rabbit_chx.routing import Destination, ExchangeRef, HashRing, Release
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.text import command_text

if TYPE_CHECKING:
    from rabbit_chx.analysis import Finding
    from rabbit_chx.analysis.key_routing import Hashing
    from rabbit_chx.records.ring_records import RingRecord
    from rabbit_chx.topology import Imported, Topology

STDIN = "-"
_MOST_LEFT_OUT = 5
_TOPOLOGY_FORMAT = "rabbit-chx/topology"
_EXPORT_VERSION = 1


@dataclass(frozen=True, slots=True)
class VariableOptions:
    """The option with the values of the variables of a topology file."""

    section: ClassVar = "Variable"
    assigned: tuple[str, ...] = option(
        "--set",
        type=TEXT,
        metavar="NAME=VALUE",
        help="The value of ${NAME} in the topology file; may be repeated.  [default: the environment variable NAME]",
    )

    @property
    def is_typed(self) -> bool:
        """True if there are some."""
        return bool(self.assigned)

    def read(self) -> dict[str, str]:
        """Return the values by name."""
        values: dict[str, str] = {}
        for assignment in self.assigned:
            name, is_assigned, value = assignment.partition("=")
            if not (name and is_assigned):
                raise InputError(f"--set {shlex.quote(assignment)} has no value: write --set NAME=VALUE")
            values[name] = value
        return values


class TopologyInput(NamedTuple):
    """A topology as given.

    Attributes:
        text: the file's text, unchanged.
        name: the file's name for messages.
        is_definitions: True for a RabbitMQ definitions file, False for TOML.
        oddities: a finding of what RabbitMQ imports from a definitions file otherwise than written.
        variables: the values of its variables.
    """

    topology: Topology
    text: str
    name: str
    is_definitions: bool
    oddities: tuple[Finding, ...]
    variables: Mapping[str, str]


def read_topology(
    path: str,
    vhost: str = "/",
    content: bytes | None = None,
    *,
    variables: VariableOptions | None = None,
    release: Release | None = None,
    is_strict: bool = False,
    has_others: bool = False,
    is_compared: bool = False,
) -> TopologyInput:
    """Read a topology, and write warnings about it to stderr.

    `variables` are the options of the command; None: it has no such options, and the environment has the values. The rules of
    `release` apply; None: those of every release. `is_strict` refuses what an import of a definitions file does not make as
    written. `has_others`: the values are for several files, so a variable that this one does not have is not a mistake. `is_compared`: the
    result names the arguments that the broker's release ignores.
    """
    from rabbit_chx.topology import Imported

    name = file_name(path)
    text = _text_of(path, "topology", content)
    exported = _toml_of_export(text, name)
    text = exported or text
    values: dict[str, str] = {}
    oddities: tuple[Finding, ...] = ()
    is_definitions = text.lstrip("\ufeff \t\r\n").startswith("{")  # not valid in TOML
    if not is_definitions:
        values = _values_of(text, name, variables or VariableOptions(()), has_others=has_others)
        topology = _topology_of(text, name, values, release, has_lines=exported is None)
        parts = (topology.exchanges, topology.queues, topology.bindings, topology.policies, topology.owns)
        # The export of an empty vhost contains only the names of its cluster and itself.
        if not any((*parts, topology.cluster, topology.vhost)):
            raise InputError(f"{name} is empty: pass a file with exchanges, queues, bindings or policies")
    else:
        try:
            imported = Imported.from_definitions(text, vhost)
        except TopologyError as error:
            raise TopologyError(error.problems, file=name) from None
        topology = imported.topology
        oddities = imported.oddities
        if is_strict and oddities:
            raise TopologyError(oddities, file=name)
        _report_definitions(name, imported)
    sentences: list[str] = []
    if not is_strict:  # those of a file that is only validated are findings
        sentences += topology.misspellings
    if not is_strict and not is_compared:
        sentences += topology.ignored_arguments(release)
    for sentence in sentences:
        say(f"{name}: {sentence}")
    return TopologyInput(topology, text, name, is_definitions, oddities, values)


def _values_of(text: str, name: str, given: VariableOptions, *, has_others: bool) -> dict[str, str]:
    """Return the values of the variables that a file has: those of the command line, or else of the environment."""
    from rabbit_chx.topology.toml_file import names_in, parse

    known = {*names_in(parse(text, name))}
    assigned = given.read()
    if has_others:
        assigned = {variable: value for variable, value in assigned.items() if variable in known}
    of_environment = {variable: os.environ[variable] for variable in known if variable in os.environ}
    return of_environment | assigned


def _topology_of(
    text: str, name: str, values: Mapping[str, str], release: Release | None, *, has_lines: bool
) -> Topology:
    """Return the topology of TOML text. `has_lines` is False for the text of a JSON document, which has other lines."""
    from rabbit_chx.topology import Topology

    try:
        return Topology.from_toml(text, file=name, release=release, values=values)
    except TopologyError as error:
        if has_lines:
            raise
        raise TopologyError((replace(problem, line=None) for problem in error.problems), file=name) from None


def read_ring_record(path: str) -> RingRecord:
    """Read the record of a ring from a file: what `show -o json` wrote, or an exchange with a record.

    Raises:
        InputError: the file is neither, or the order of its ring is not known.
    """
    from rabbit_chx.records.ring_records import read_record

    name = file_name(path)
    text = _text_of(path, "record").removeprefix("\ufeff")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict) or document.get("format") == _TOPOLOGY_FORMAT:
        raise InputError(
            f"{name} is not the record of a ring: a topology file says what is wanted, not what the broker has. Leave --from out, "
            f"as apply keeps the order; or read the ring with --ring-via and keep it with {command_text('record', 'EXCHANGE')}"
        )
    arguments = document.get("record") or document.get("arguments") or document
    if isinstance(arguments, dict) and arguments.get("format") == "rabbit-chx/record":
        try:
            return read_record(arguments)
        except InputError as error:
            raise InputError(f"{name}: {error}") from None
    return _record_of_ring(name, text, document)


def _record_of_ring(name: str, text: str, document: Mapping[str, Any]) -> RingRecord:
    """Return the record of a ring that was read without the management API."""
    from rabbit_chx.records.live_rings import make_members
    from rabbit_chx.records.ring_records import RecordedStart, make_record
    from rabbit_chx.routing.key_map import SHOW_FORMAT
    from rabbit_chx.topology.objects import RingMember

    if document.get("format") == SHOW_FORMAT and "buckets" not in document:
        raise InputError(f"{name} does not contain a ring: pass what show -o json printed")
    try:
        ring = HashRing.from_json(text)
    except InputError as error:
        raise InputError(f"{name}: {error}") from None
    if not ring.order.is_certain:
        raise InputError(
            f"the ring of {name} is {ring.order}, so it is not a record: pass a ring that was read from the broker"
        )
    if not isinstance(document.get("exchange"), str):
        raise InputError(
            f"{name} does not contain the name of its exchange: write it again with show -o json"
        )
    bound = make_members(ring.buckets)
    if ring.bindings is not None:
        bound = tuple(RingMember(*binding) for binding in ring.bindings)
    cluster = document.get("cluster")
    vhost = document.get("vhost")
    recorded_start = RecordedStart(
        cluster if isinstance(cluster, str) else None, vhost if isinstance(vhost, str) else None
    )
    return make_record(
        document["exchange"],
        ring,
        bound,
        written="an unknown time",
        writer=name,
        recorded_start=recorded_start,
    )


def _text_of(path: str, what: str, content: bytes | None = None) -> str:
    if content is None:
        content = read_whole(path, what)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(f"line {line} of {file_name(path)} is not UTF-8: a {what} file is") from None


def _report_definitions(name: str, imported: Imported) -> None:
    for finding in imported.oddities:
        say(f"{name}: {finding.message}")
    for line in imported.left_out[:_MOST_LEFT_OUT]:
        say(f"{name}, left out: {line}")
    if len(imported.left_out) > _MOST_LEFT_OUT:
        say(f"{name}, left out: {len(imported.left_out) - _MOST_LEFT_OUT:,} more")
    if hashed := [exchange.name for exchange in imported.topology.exchanges if exchange.ring]:
        say(
            f"{name} is a definitions file, which does not contain the order of a ring: the order of {', '.join(hashed)} is assumed to be that of "
            "the bindings, and a plan keeps the order of the broker"
        )


def _toml_of_export(text: str, name: str) -> str | None:
    """Return the TOML text of the JSON document that `export` writes; None for any other text.

    Other programs may have sorted its fields, so its format may be anywhere.
    """
    from rabbit_chx.topology.argument_table import toml_key, toml_value
    from rabbit_chx.topology.file_rules import file_finding

    text = text.removeprefix("\ufeff")
    if f'"{_TOPOLOGY_FORMAT}"' not in text:
        return None
    try:
        tables = json.loads(text)
        if tables.pop("format") != _TOPOLOGY_FORMAT:
            return None
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return None
    version = tables.pop("format_version", None)
    if version != _EXPORT_VERSION:
        raise InputError(
            f"{name} has format_version {version!r:.60}, and this release reads {_EXPORT_VERSION}: write it again with export "
            "--output json"
        )
    try:
        if nulls := [
            file_finding(path, None, "the value is null", "remove the field, or write its value")
            for path in _nulls(tables)
        ]:
            raise TopologyError(nulls, file=name)
        return "".join(f"{toml_key(field)} = {toml_value(value)}\n" for field, value in tables.items())
    except RecursionError:
        raise InputError(f"{name} is nested too deeply: write fewer levels") from None


def _nulls(value: Any, path: str = "") -> Iterator[str]:
    """Yield the path of each null in a JSON document."""
    from rabbit_chx.topology.argument_table import toml_key

    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _nulls(inner, f"{path}.{toml_key(name)}".lstrip("."))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _nulls(inner, f"{path}[{number}]")
    elif value is None:
        yield path


def read_whole(path: str, content: str) -> bytes:
    """Read a whole file. `content` is its content in words."""
    with open_input(path, content, f"{content} file") as file:
        return file.read()


def claim_stdin(content: str) -> None:
    """Record the use of stdin in this run."""
    context = click.get_current_context(silent=True)
    if context is None:
        return
    other = context.find_root().meta.setdefault(__name__, content)
    if other != content:
        raise InputError(f"stdin cannot be both {other} and {content}: pass one of them as a file")


def file_name(path: str) -> str:
    """Return the file's name for messages."""
    return "stdin" if path == STDIN else path


@contextmanager
def open_input(path: str, content: str, what: str) -> Iterator[BinaryIO]:
    """Open a file, or stdin for ``-``, which one option of a run can have.

    Args:
        path: the file.
        content: its content in words.
        what: the file in words, for errors.
    """
    if path == STDIN:
        claim_stdin(f"the {content}")
    try:
        with Path(path).open("rb") if path != STDIN else _stdin(content) as file:
            yield file
    except OSError as error:
        why = error.strerror or str(error)
        raise InputError(f"the {what} {file_name(path)} cannot be read: {why:.200}") from None


def _stdin(content: str) -> BinaryIO:
    if sys.stdin is None:  # Python sets None if the stream is closed
        pipe = "keys" if content != "topology" else "a topology"
        raise InputError(f"stdin is closed: pipe {pipe} into it, or pass a file")
    if sys.stdin.closed:  # the first reader closes it
        raise InputError(f"stdin cannot be the {content} twice: pass one of them as a file")
    return sys.stdin.buffer


_T = TypeVar("_T")

_MAX_DECIMALS = 255
_EXCHANGE = "exchange:"
#: A binding, and the beginning of another one.
_SEVERAL = re.compile(r"(=[0-9]+)[\s;,]+[^\s=]")
_BOOLS = {"true": True, "false": False}
_SHOWN_DESTINATIONS = 10

# Python accepts more than intended: 1_000, blanks around a number, digits of other scripts.
_NUMBER = re.compile(r"[-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?", re.ASCII)


def parse_destination(text: str) -> Destination:
    """Parse a queue's name, or ``exchange:NAME``. Note on stderr if the name of a queue resembles that of an exchange."""
    prefix, colon, _ = text.partition(":")
    if colon and prefix != "exchange" and similar(prefix, ("exchange", "queue"), 0.8):
        say(
            f"{text!r:.60} is taken for the name of a queue: write exchange:NAME for an exchange, and a queue by its name alone"
        )
    return ExchangeRef(text.removeprefix(_EXCHANGE)) if text.startswith(_EXCHANGE) else text


def expand_ranges(texts: Sequence[str]) -> list[str]:
    """Return the texts with each range expanded as in a topology file: ``q{1..3}=1`` is three bindings."""
    if not any("{" in text for text in texts):
        return list(texts)
    from rabbit_chx.topology.ranges import RangeError, expand

    expanded: list[str] = []
    for text in texts:
        try:
            expanded += (entry["text"] for entry in expand({"text": text}, ["text"]))
        except RangeError as error:
            raise InputError(f"{text!r:.80}: {error}") from None
    return expanded


def parse_bindings(texts: Sequence[str]) -> list[tuple[Destination, str]]:
    """Parse bindings as `parse_binding`; a range is several of them."""
    return list(map(parse_binding, expand_ranges(texts)))


def parse_binding(text: str) -> tuple[Destination, str]:
    """Parse ``DESTINATION=WEIGHT``; the last equals sign separates, because a name may contain one."""
    name, equals, weight = text.rpartition("=")
    if not equals:
        raise InputError(f"the binding {text!r} lacks a weight: write QUEUE=WEIGHT, as in q1=10")
    _refuse_several(text)
    return parse_destination(name), weight


def _refuse_several(text: str) -> None:
    """Raise an error for a text that looks like two values: a name with a weight in its midst."""
    if found := _SEVERAL.search(text):
        one = text[: found.end(1)]
        raise InputError(
            f"{text!r:.80} looks like several bindings, of which {one!r:.60} is the first: pass one at a time"
        )


def bound_destination(text: str, source: KeyMap) -> Destination:
    """Parse a destination that has buckets in the ring, or the queue of a slot. Without a ring any destination is valid."""
    destination = parse_destination(text)
    known = source.destinations
    if not source.hashing.has_order:
        return destination
    if destination not in known and destination not in source.underlying.destinations:
        shown = [
            f"{_EXCHANGE}{place.name}" if isinstance(place, ExchangeRef) else place
            for place in known[:_SHOWN_DESTINATIONS]
        ]
        more = ", ..." if len(known) > _SHOWN_DESTINATIONS else ""
        if not shown:
            raise InputError(
                f"{text} does not have a bucket, because no destination has one: bind a queue first"
            )
        raise InputError(f"{text} does not have a bucket: pass one of {', '.join(shown)}{more}")
    return destination


def parse_unbind(text: str, source: KeyMap) -> tuple[Destination, str | None]:
    """Parse ``DESTINATION``, for all its bindings, or ``DESTINATION=WEIGHT``; a name may contain an equals sign."""
    name, equals, weight = text.rpartition("=")
    if parse_destination(text) not in source.destinations:
        _refuse_several(text)
    if not equals or parse_destination(text) in source.destinations:
        return bound_destination(text, source), None
    return bound_destination(name, source), weight


def change_map(source: KeyMap, removed: Sequence[str], added: Sequence[tuple[Destination, str]]) -> KeyMap:
    """Return a key map without some bindings, and then with others."""
    for text in expand_ranges(removed):
        source = source.unbind(*parse_unbind(text, source))
    for destination, key in added:
        source = source.bind(destination, key)
    return source


def parse_header(text: str) -> tuple[str, Any]:
    """Parse ``NAME=VALUE`` or ``NAME:TYPE=VALUE``; the first equals sign separates, because a value may contain one."""
    name, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"the header {text!r} lacks a value: write NAME=VALUE, or NAME:TYPE=VALUE")
    stem, type_ = parse_header_type(name)
    return stem or "", parse_field(type_ or "longstr", value)


def parse_header_type(text: str | None) -> tuple[str | None, FieldType | None]:
    """Parse ``NAME`` or ``NAME:TYPE`` of a header; the last colon separates. The type longstr is the default, None."""
    stem, colon, type_ = (text or "").rpartition(":")
    if not colon:
        return text, None
    for known in FIELD_TYPES:
        if type_ == known:
            return stem, None if known == "longstr" else known
    raise InputError(
        f"{type_!r:.60} is not the type of a header: pass one of {', '.join(FIELD_TYPES)}; if the colon belongs to the name, "
        f"write the type too, as in {text}:longstr"
    )


def parse_property(text: str) -> tuple[str, str | int]:
    """Parse ``NAME=VALUE``; a timestamp is in whole seconds since 1970."""
    name, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"the property {text!r} lacks a value: write NAME=VALUE, as in message_id=m1")
    return name, _property(name, value)


def parse_field(type_: FieldType, text: str) -> AmqpField:
    """Parse a header field."""
    try:
        return field_for(AmqpField(type_, _value(type_, text)))
    except RecursionError:
        raise InputError(f"{text!r:.60} cannot be sent as {type_}: it is nested too deeply") from None


def hashed_value(hashing: Hashing, key: str) -> Any:
    """Return the value that an exchange hashes for a key of the command line.

    A header is a bare text or int if its type permits, because whole columns of those hash fast.
    """
    if hashing.hash_property is not None:
        return _property(hashing.hash_property, key)
    type_ = hashing.field_type or "longstr"
    if hashing.hash_header is None or type_ == "longstr":
        return key
    return _number(int, type_, key) if type_ in INTEGER_RANGES else parse_field(type_, key)


def _property(name: str, text: str) -> str | int:
    return _number(int, "timestamp", text) if name == "timestamp" else text


def _value(type_: FieldType, text: str) -> Any:
    if type_ in INTEGER_RANGES:
        return _number(int, type_, text)
    if type_ in ("double", "float"):
        return _number(float, type_, text)
    if type_ == "bool":
        return _read(_BOOLS.__getitem__, type_, text)
    if type_ == "decimal":
        return _decimal(text)
    if type_ in ("array", "table"):
        return _read(partial(json.loads, object_pairs_hook=_table), type_, text)
    return (text or None) if type_ == "void" else text


def _decimal(text: str) -> tuple[int, int]:
    number = _number(Decimal, "decimal", text)
    exponent = number.as_tuple().exponent
    if not isinstance(exponent, int) or not -_MAX_DECIMALS <= exponent <= 0:
        raise InputError(
            f"{text!r:.60} is not a valid decimal: write it out, as in 3.14, with at most {_MAX_DECIMALS} decimals"
        )
    return -exponent, int(number.scaleb(-exponent))


def _table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        raise InputError(
            f"a table has a name twice among {', '.join(name for name, _ in pairs):.60}: pass it once"
        )
    return table


def _number(reader: Callable[[str], _T], type_: str, text: str) -> _T:
    if not _NUMBER.fullmatch(text):
        raise InputError(f"{text!r:.60} is not a valid {type_}: write a number in digits")
    return _read(reader, type_, text)


def _read(reader: Callable[[str], _T], type_: str, text: str) -> _T:
    try:
        return reader(text)
    except InputError:
        raise
    except (ValueError, KeyError, ArithmeticError):
        raise InputError(f"{text!r:.60} is not a valid {type_}") from None


# -- Files that commands write: what fails leaves the old file whole, and nothing beside it


def write_file(path: Path, text: str) -> None:
    """Write a file whole, or not at all. An existing one keeps its permissions, and a link stays a link.

    Raises:
        InputError: it cannot be written; the message has the reason.
    """
    target = path.resolve()
    content = text.encode()
    try:
        if not target.exists():
            _write_new(target, content)
        elif not target.is_file():  # such as /dev/stdout
            target.write_bytes(content)
        else:
            _replace(target, content)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from None


def _write_new(target: Path, content: bytes) -> None:
    with target.open("xb") as file:
        try:
            file.write(content)
            file.flush()
        except OSError:
            target.unlink()
            raise


def _replace(target: Path, content: bytes) -> None:
    """Replace a file in one step, or write over it where its folder does not permit that: a single file is mounted, or the folder is read-only."""
    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    except OSError:
        _write_in_place(target, content)
        return
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        shutil.copymode(target, temporary)
        try:
            temporary.replace(target)
        except OSError:
            _write_in_place(target, content)
    finally:
        temporary.unlink(missing_ok=True)


def _write_in_place(target: Path, content: bytes) -> None:
    """Write over a file. If that fails, for example since the disk is full, its old content takes the same place again."""
    old = target.read_bytes()
    with target.open("r+b", buffering=0) as file:
        try:
            _overwrite(file.fileno(), content)
        except OSError:
            with suppress(OSError):
                _overwrite(file.fileno(), old)
            raise


def _overwrite(handle: int, content: bytes) -> None:
    os.lseek(handle, 0, os.SEEK_SET)
    view = memoryview(content)
    while view:
        view = view[os.write(handle, view) :]
    os.ftruncate(handle, len(content))
