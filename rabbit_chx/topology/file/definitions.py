"""RabbitMQ's definitions files: of a whole broker, or of a single vhost.

They are read as RabbitMQ 4.3.6 imports them (rabbit_definitions.erl ``add_queue_int/3``, ``add_exchange_int/3``, ``add_binding_int/4``,
``add_policy/3``; tested with files and exports of 3.8.9 to 4.3.6). What the importer refuses is a mistake. What it imports otherwise than
written, or so that no AMQP client can name it, is an *oddity*: the topology has what the broker has then, or leaves the object out.

The files do not contain:

- The order in which queues were bound. A ring made from them is assumed, and no plan restores its order.
- Internal exchanges, on 4.3.6. 4.0.5 does include them.
- Exclusive queues. On 4.3.6 the file has their bindings without the queues.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from rabbit_chx.amqp.exchange_types import EXCHANGE_TYPES
from rabbit_chx.analysis.findings import Finding
from rabbit_chx.checks import is_finite, is_whole
from rabbit_chx.errors import InputError, TopologyError
from rabbit_chx.routing import Release
from rabbit_chx.routing.bindings import weight_of
from rabbit_chx.routing.release import NEWEST_COMPARED
from rabbit_chx.topology.file.fields import FileEntry, Problems, file_finding
from rabbit_chx.topology.file.file_rules import (
    match_fault,
    object_faults,
    operator_policy_faults,
)
from rabbit_chx.topology.objects.argument_table import argument_fault, is_utf8, unsendable
from rabbit_chx.topology.objects.kinds import APPLY_TO, FLAG, NAME, OPEN, PRIORITY, STRING, Kind
from rabbit_chx.topology.objects.objects import (
    ALTERNATE_EXCHANGE,
    BROKERS_EXCHANGES,
    BROKERS_OWN,
    HASH_EXCHANGE,
    OBJECT_LISTS,
    QUEUE_TYPE,
    QUEUE_TYPES,
    BindingDefinition,
    ExchangeDefinition,
    FileFacts,
    PolicyDefinition,
    QueueDefinition,
)
from rabbit_chx.topology.objects.schema import SCHEMA
from rabbit_chx.topology.objects.vhost_objects import ListedObject, make_object, vhost_objects
from rabbit_chx.words import plural

_WHAT = "the definitions file"
#: Other contents of a file, by the key, with the noun for one of them.
_OTHER = {
    "users": "user",
    "permissions": "permission",
    "topic_permissions": "topic permission",
    "global_parameters": "global parameter",
}
_NOUNS = {"exchanges": "exchange", "queues": "queue", "bindings": "binding", "policies": "policy", "parameters": "parameter"}  # fmt: skip
_NOT_EXPORTED = "the file names it without a definition; RabbitMQ 4.3 does not export internal exchanges"
_FIX = "correct the file, or export it again"
_ONCE = "write each one once"
_LEFT_OUT = "RabbitMQ 4.3 imports it all the same, and it is left out here"
#: The components of RabbitMQ and its plugins that have parameters, except policies.
_COMPONENTS = ("operator_policy", "vhost-limits", "federation-upstream", "federation-upstream-set", "shovel")
_LIMITS = ("max-connections", "max-queues")
#: The fields that RabbitMQ imports with values of other types, so that no client can declare the object: flags with any, names with null,
#: true and false. It refuses such values of other fields.
_ODD_FIELDS: Mapping[type, tuple[str, ...]] = {
    ExchangeDefinition: ("name", "durable", "auto_delete", "internal")
}
#: Types whose bindings need a key, because the broker refuses the one that it makes of a missing one.
_NEED_KEY = ("topic", "x-local-random")


class DefinitionsContent(NamedTuple):
    """The lists and the facts of the topology in a definitions file; the rest is that of `Imported`."""

    lists: dict[str, Any]
    facts: FileFacts
    left_out: tuple[str, ...]
    oddities: tuple[Finding, ...]


def definitions_content(text: str | bytes, vhost: str) -> DefinitionsContent:
    """Return the contents of a definitions file. `vhost` selects one vhost of several.

    Raises:
        TopologyError: the text is not a definitions file, or does not have that vhost, or RabbitMQ does not import it.
        InputError: the text is neither str nor bytes.
    """
    document, repeated = _parse(text)
    version = document.get("rabbitmq_version", document.get("rabbit_version"))
    try:
        release = Release(version) if isinstance(version, str) else None
    except InputError:
        release = None
    file = _File(document, vhost)
    for name in repeated:
        message = f"an object has the field {name!r:.60} twice, and RabbitMQ 4.3 takes the first"
        file.oddities.add("the text", None, message, "write each field once")
    content = file.content(release)
    if file.problems:
        raise TopologyError(file.problems.values(), what=_WHAT)
    vhosts = file.vhosts()
    if vhosts and vhost not in vhosts:
        names = ", ".join(sorted(map(repr, vhosts)))
        raise _error("vhosts", f"the file does not contain the vhost {vhost!r}", f"pass one of {names}")
    return content


def _parse(text: object) -> tuple[dict[str, Any], Iterable[str]]:
    """Return the JSON document, and the names of fields that an object has twice; of these the first is taken."""
    if not isinstance(text, str | bytes):
        raise InputError(
            f"a {type(text).__name__} is not the text of a definitions file: pass the text, such as Path(...).read_text()"
        )
    repeated: dict[str, None] = {}

    def first_of_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = Counter(name for name, _ in pairs)
        repeated.update(dict.fromkeys(name for name, count in names.items() if count > 1))
        return dict(reversed(pairs)) if len(names) < len(pairs) else dict(pairs)

    try:
        plain = text.removeprefix("\ufeff") if isinstance(text, str) else text
        document = json.loads(plain, object_pairs_hook=first_of_each)
    except (ValueError, RecursionError) as error:
        fix = "export the file again"
        if isinstance(text, str) and text.endswith(".json"):
            fix = "this is the name of a file: pass its text, such as Path(...).read_text()"
        raise _error("the text", f"invalid JSON: {error}", fix) from None
    if not isinstance(document, dict) or not any(name in document for name in OBJECT_LISTS):
        message = f"the text contains none of {', '.join(OBJECT_LISTS)}"
        raise _error("the text", message, "pass the output of `rabbitmqctl export_definitions`")
    if half := next(_half_characters(document, ""), None):
        raise _error(
            half, "the text contains half of a surrogate pair, which is not UTF-8", "write whole characters"
        )
    return document, repeated


def _half_characters(value: object, path: str) -> Iterator[str]:
    """Yield the path of each text that has half of a surrogate pair. Valid JSON may have one."""
    levels = [(path, value)]
    while levels:
        place, inner = levels.pop()
        if isinstance(inner, dict):
            levels += [(f"{place}.{name}".lstrip("."), one) for name, one in inner.items()]
            levels += [(f"{place}.{name!a}".lstrip("."), name) for name in inner]
        elif isinstance(inner, list):
            levels += [(f"{place}[{n}]", one) for n, one in enumerate(inner)]
        elif isinstance(inner, str) and not is_utf8(inner):
            yield ascii(place) if not is_utf8(place) else place


def _error(subject: str, message: str, fix: str) -> TopologyError:
    return TopologyError([file_finding(subject, None, message, fix)], what=_WHAT)


@dataclass(frozen=True, slots=True)
class _Entry:
    """An entry of a list of the file. Its methods add faults, which name the object."""

    file: _File
    path: str
    fields: Mapping[str, Any]

    def refuse(self, field: str | None, message: str, value: object = None, fix: str = _FIX) -> None:
        """Add what RabbitMQ does not import. The value is by default that of the field."""
        self._add(self.file.problems, field, message, fix, value)

    def note(self, field: str, message: str, fix: str = _FIX, value: object = None) -> str:
        """Add what RabbitMQ imports otherwise than written, and return its subject and message."""
        return self._add(self.file.oddities, field, message, fix, value)

    def leave_out(self, field: str, message: str, fix: str = _FIX, value: object = None) -> None:
        """Add what RabbitMQ imports and a topology does not contain."""
        self.file.left_out.append(self.note(field, message, fix, value))

    def _add(self, found: Problems, field: str | None, message: str, fix: str, value: object) -> str:
        noun, name = _NOUNS.get(self.path.partition("[")[0]), self.fields.get("name")
        if noun == "binding":
            message += (
                f" (binding {self.fields.get('source')!s:.60} -> {self.fields.get('destination')!s:.60})"
            )
        elif noun and isinstance(name, str) and name:
            message += f" ({noun} {name:.60})"
        value = self.fields.get(field) if value is None and field is not None else value
        path = self.path if field is None else f"{self.path}.{field}"
        found.add(path, value, message, fix)
        return f"{found[path, fix].subject}: {found[path, fix].message}"

    def refuse_value(self, field: str, expected: str) -> None:
        """Add that a value is missing, or is not as expected."""
        self.refuse(
            field, f"the value must be {expected}" if field in self.fields else "the value is missing"
        )

    def read(self, model: type[ListedObject], **known: Any) -> ListedObject | None:
        """Return the object of the entry; None if a field is wrong, or no client can name the object. `known` replaces fields."""
        fields, is_sound = {**self.fields, **known}, True
        for name, kind in SCHEMA[model.kind].json.items():
            if kind is OPEN:
                fields[name] = self.table(name)
                is_sound &= fields[name] is not None
            elif name not in known:
                is_sound &= self.check(name, kind, odd=name in _ODD_FIELDS.get(model, ()))
        return make_object(model, fields) if is_sound else None

    def check(self, field: str, kind: Kind = STRING, *, odd: bool = False) -> bool:
        """Return True if a text or a flag is valid, and AMQP can carry it; otherwise add its fault. `odd`: as in `_ODD_FIELDS`."""
        value, is_flag = self.fields.get(field), kind is FLAG
        if is_flag and field not in self.fields:
            return True
        if isinstance(value, bool if is_flag else str):
            if fault := kind.fault(value):
                self.leave_out(field, f"{fault[0]}: {_LEFT_OUT}", fault[1])
            return fault is None
        expected = "true or false" if is_flag else "a string"
        if odd and (is_flag or value is None or isinstance(value, bool)):
            self.leave_out(field, f"the value must be {expected}: {_LEFT_OUT}")
        else:
            self.refuse_value(field, expected)
        return False

    def table(self, field: str) -> dict[str, Any] | None:
        """Return the arguments or the definition; None if they are wrong, or cannot be compared."""
        table = self.fields.get(field, {})
        if table == []:
            return {}  # older releases write an empty table as a list
        if not isinstance(table, dict):
            self.refuse_value(field, "an object")
            return None
        for name, value in table.items():
            where, fault, leaves = f"{field}.{name}", argument_fault(name, value), list(_leaves(value))
            if field == "arguments" and None in leaves:
                self.refuse(where, "the value contains null", value)
                return None
            if fault is not None and any(
                isinstance(leaf, float) and not math.isfinite(leaf) for leaf in leaves
            ):
                self.refuse(None, ": ".join(fault))
                return None
            if fault is not None:
                self.leave_out(where, f"{fault[0]}: {_LEFT_OUT}", fault[1], value)
                return None
            if field == "arguments" and (odd := unsendable(name, value)):
                self.note(where, *odd, value)
        return table


class _File:
    """The lists of a definitions file as objects, and their faults.

    Attributes:
        problems: what RabbitMQ does not import.
        oddities: what it imports otherwise than written, or so that no client can name it.
        left_out: those oddities that are not part of the topology, as text.
    """

    def __init__(self, document: Mapping[str, Any], vhost: str) -> None:
        self._document = document
        self._vhost = vhost
        self.left_out: list[str] = []
        self.problems = Problems()
        self.oddities = Problems()

    def content(self, release: Release | None) -> DefinitionsContent:
        """Return what the file has for the vhost."""
        exchanges, types = self._read_exchanges()
        queues, untyped = self._read_queues()
        policies = self._read_policies()
        operators, parameters = self._read_parameters()
        bindings = self._read_bindings(types, {queue.name for queue in queues})
        found = vhost_objects(exchanges, queues, bindings, policies, release=release, absence=_NOT_EXPORTED)
        facts = FileFacts(
            release,
            is_import=True,
            untyped_queues=untyped,
            unordered=frozenset(exchange.name for exchange in exchanges if exchange.type == HASH_EXCHANGE),
            operator_policies=operators,
            sources_left_out=found.sources_left_out,
        )
        left_out = (*self.left_out, *parameters, *self._other_objects(), *found.left_out)
        return DefinitionsContent(found.lists, facts, left_out, tuple(self.oddities.values()))

    def _read_exchanges(self) -> tuple[list[ExchangeDefinition], dict[str, str]]:
        """Return the exchanges, and the type of each one that exists after an import, also of those that are left out."""
        found: dict[str, ExchangeDefinition] = {}
        types: dict[str, str] = dict(BROKERS_EXCHANGES)
        first: dict[str, str] = {}
        for entry in self._entries("exchanges"):
            name, type_ = entry.fields.get("name"), entry.fields.get("type")
            exchange = entry.read(ExchangeDefinition)
            if not name or not isinstance(name, str):  # the default exchange, or one that is left out
                continue
            if name.startswith(BROKERS_OWN):
                message = "names that begin with amq. are reserved for the broker, and an import skips them"
                entry.leave_out("name", message)
                continue
            types.setdefault(name, str(type_))
            if exchange is None:
                first.setdefault(name, entry.path)
                continue
            if type_ not in EXCHANGE_TYPES:
                message = "neither RabbitMQ nor a known plugin has exchanges of this type"
                entry.note("type", message, "correct the type")
            _keep_first(found, first, exchange, entry)
        return list(found.values()), types

    def _read_queues(self) -> tuple[list[QueueDefinition], frozenset[str]]:
        """Return the queues, and the names of those whose type is the default of the broker's vhost."""
        found: dict[str, QueueDefinition] = {}
        first: dict[str, str] = {}
        untyped = set()
        default, is_certain = self._default_queue_type()
        for entry in self._entries("queues"):
            queue = entry.read(QueueDefinition, exclusive=False)
            if queue is None:
                first.setdefault(str(entry.fields.get("name")), entry.path)
                continue
            type_ = queue.arguments.get(QUEUE_TYPE, queue.type)
            if not isinstance(type_, str):
                entry.refuse(f"arguments.{QUEUE_TYPE}", "the value must be a string", type_)
                continue
            if type_ not in QUEUE_TYPES:
                message = f"a queue type must be {', '.join(QUEUE_TYPES[:-1])} or {QUEUE_TYPES[-1]}"
                entry.leave_out(f"arguments.{QUEUE_TYPE}", message, value=type_)
                first.setdefault(queue.name, entry.path)
                continue
            if entry.fields.get("exclusive") is True:
                entry.note("exclusive", "an import makes a queue for all connections", "remove the field")
            elif QUEUE_TYPE not in entry.fields.get("arguments", ()):
                if not is_certain and queue.name not in first:
                    untyped.add(queue.name)
                queue = queue.with_default_type(default)
            _keep_first(found, first, queue, entry)
        return list(found.values()), frozenset(untyped & found.keys())

    def _read_bindings(self, types: Mapping[str, str], queues: set[str]) -> list[BindingDefinition]:
        found: dict[BindingDefinition, str] = {}
        members: dict[tuple[str, object], str] = {}
        for entry in self._entries("bindings"):
            binding = _read_binding(entry, types)
            if binding is None:
                continue
            source, place = binding.source, binding.destination
            is_absent = place not in queues if isinstance(place, str) else place.name not in types
            for field, absent in (("source", source not in types), ("destination", is_absent)):
                if absent:
                    message = "the file does not contain it: a broker without it refuses the file"
                    entry.note(field, message, "add it to the file, or remove the binding")
            if binding in found:
                entry.note("source", f"the file declares this binding already, as {found[binding]}", _ONCE)
                continue
            found[binding] = entry.path
            if types.get(source) == HASH_EXCHANGE:
                try:
                    weight_of(place, binding.routing_key, NEWEST_COMPARED)
                except InputError as error:
                    entry.note("routing_key", str(error), "write a positive integer as text")
                if (source, place) in members:
                    entry.note(
                        "destination",
                        f"it is a member of {source} already, as {members[source, place]}",
                        _ONCE,
                    )
                members.setdefault((source, place), entry.path)
            elif fault := match_fault(binding, types):
                entry.refuse("arguments.x-match", fault[0], binding.arguments.get("x-match"))
        return list(found)

    def _read_policies(self) -> list[PolicyDefinition]:
        found: dict[str, tuple[str, PolicyDefinition]] = {}
        for entry in self._entries("policies"):
            policy, is_named = (
                _read_policy(entry, object_faults),
                entry.check("name", NAME, odd="name" in entry.fields),
            )
            if policy is None:
                found.pop(str(entry.fields.get("name")), None)  # of several, the last counts
            elif is_named:
                if policy.name in found:
                    message = f"the file declares this policy already, as {found[policy.name][0]}, and RabbitMQ takes the last"
                    entry.note("name", message, _ONCE)
                found[policy.name] = entry.path, policy
        return [policy for _, policy in found.values()]

    def _read_parameters(self) -> tuple[tuple[PolicyDefinition, ...], list[str]]:
        """Return the operator policies, and a line for each parameter. A line contains no values except limits."""
        operators: dict[str, PolicyDefinition] = {}
        lines: list[str] = []
        limits: list[str] = []
        for entry in self._entries("parameters"):
            component = entry.fields.get("component")
            lines.append(f"parameter {component} {entry.fields.get('name')}")
            if not entry.check("component"):
                continue
            if component == "policy":
                entry.refuse("component", "policies are not parameters: write it among the policies")
            elif component == "operator_policy":
                if (policy := _read_operator_policy(entry)) is not None:
                    operators[policy.name] = policy
            elif component == "vhost-limits":
                limits += _read_limits(entry)
            elif component not in _COMPONENTS:
                message = "neither RabbitMQ nor a plugin of it has parameters of this component"
                entry.note("component", message, "correct it, or remove the parameter")
        if limits or self._document.get("limits"):
            lines.insert(0, f"limits of the vhost{': ' if limits else ''}{', '.join(limits)}")
        return tuple(operators.values()), lines

    def vhosts(self) -> set[str]:
        """Return the vhosts that a file of several vhosts names."""
        named = [entry.fields.get("vhost") for name in OBJECT_LISTS for entry in self._all_entries(name)]
        named += [entry.fields.get("name") for entry in self._all_entries("vhosts")]
        return {name for name in named if isinstance(name, str)}

    def _default_queue_type(self) -> tuple[str, bool]:
        """Return the default queue type of the vhost, and True if an import sets it. Otherwise that of the broker precedes it."""
        written: list[Any] = [self._document, self._document.get("metadata")]
        for entry in self._all_entries("vhosts"):
            metadata = entry.fields.get("metadata", {})
            type_ = metadata.get("default_queue_type") if isinstance(metadata, dict) else metadata
            if type_ not in (*QUEUE_TYPES, None, "undefined"):
                entry.refuse("metadata", "default_queue_type must be a queue type", type_)
            elif entry.fields.get("name") == self._vhost:
                if type_ in QUEUE_TYPES:
                    return str(type_), True
                written.insert(0, entry.fields)
        types = [value.get("default_queue_type") for value in written if isinstance(value, Mapping)]
        return next((type_ for type_ in types if type_ in QUEUE_TYPES), "classic"), False

    def _other_objects(self) -> list[str]:
        """Return a line for each kind of object that a topology does not contain. A line never contains a value."""
        counts = {noun: len(self._entries(name)) for name, noun in _OTHER.items()}
        lines = [plural(count, noun) for noun, count in counts.items() if count]
        entries = [entry for name in OBJECT_LISTS for entry in self._all_entries(name)]
        by_vhost = Counter(str(entry.fields.get("vhost", self._vhost)) for entry in entries)
        del by_vhost[self._vhost]
        return lines + [f"{plural(by_vhost[vhost], 'object')} of vhost {vhost}" for vhost in sorted(by_vhost)]

    @cached_property
    def _names_vhosts(self) -> bool:
        """True for a file of several vhosts, whose objects name theirs."""
        lists = [self._document.get(name) for name in OBJECT_LISTS]
        return any(
            isinstance(entry, dict) and "vhost" in entry
            for entries in lists
            if isinstance(entries, list)
            for entry in entries
        )

    def _all_entries(self, name: str) -> list[_Entry]:
        entries = self._document.get(name, [])
        if not isinstance(entries, list):
            self.problems.add(name, entries, "the value must be a list", _FIX)
            return []
        for n, entry in enumerate(entries):
            if not isinstance(entry, dict):
                # rabbit_definitions.erl (4.3.6): an import skips it, except where it reads the vhost or the type of the entry.
                is_read = name == "queues" or (self._names_vhosts and name in ("exchanges", "bindings"))
                found = self.problems if is_read else self.oddities
                found.add(f"{name}[{n}]", entry, "the value must be an object", _FIX)
        return [
            _Entry(self, f"{name}[{n}]", entry) for n, entry in enumerate(entries) if isinstance(entry, dict)
        ]

    def _entries(self, name: str) -> list[_Entry]:
        """Return the entries of a list in the requested vhost. A file of a single vhost does not name it."""
        return [
            entry
            for entry in self._all_entries(name)
            if entry.fields.get("vhost", self._vhost) == self._vhost
        ]


def _keep_first(found: dict[str, Any], first: dict[str, str], definition: Any, entry: _Entry) -> None:
    """Keep an exchange or a queue, unless the file has one of that name already: the broker ignores the second."""
    name = definition.name
    if name in first:
        noun = _NOUNS[entry.path.partition("[")[0]]
        message = f"the file declares this {noun} already, as {first[name]}, and RabbitMQ takes the first"
        entry.note("name", message, _ONCE)
        return
    first[name] = entry.path
    for field, value, message, fix in object_faults(
        FileEntry(entry.path, entry.fields, frozenset(), definition)
    ):
        if isinstance(definition, QueueDefinition) and field in ("durable", "auto_delete"):
            entry.leave_out(field, f"{message}: an import succeeds, and does not make the queue", fix, value)
            del first[name]
            return
        if field == f"arguments.{ALTERNATE_EXCHANGE}":
            entry.note(field, message, fix, value)
        else:
            entry.refuse(field, message, value, fix)
    found[name] = definition


def _read_binding(entry: _Entry, types: Mapping[str, str]) -> BindingDefinition | None:
    """Return the binding of an entry; None if it is wrong or left out, or if it is one of the default exchange."""
    source, key = entry.fields.get("source"), entry.fields.get("routing_key")
    is_keyless = key is None and types.get(str(source)) not in (HASH_EXCHANGE, *_NEED_KEY)
    binding = entry.read(BindingDefinition, **({"routing_key": ""} if is_keyless else {}))
    kind, name = entry.fields.get("destination_type"), entry.fields.get("destination")
    if isinstance(kind, str) and kind not in ("queue", "exchange"):
        entry.refuse("destination_type", "the value must be queue or exchange")
    elif (kind, name) == ("queue", "") and source:
        entry.refuse(None, "'' names no queue")
    elif binding is not None and is_keyless:
        message = "without a key RabbitMQ 4.3 makes a binding that no client can make or remove, so it is left out here"
        entry.leave_out("routing_key", message, 'write "routing_key": ""')
    elif source:
        return binding
    return None


def _read_policy(
    entry: _Entry, faults: Callable[[FileEntry], Iterable[tuple[str, Any, str, str]]]
) -> PolicyDefinition | None:
    """Return a policy; None if it is wrong."""
    has_pattern, definition = entry.check("pattern"), entry.table("definition")
    apply_to: Any = entry.fields.get("apply-to", "all")
    priority: Any = entry.fields.get("priority", 0)
    is_wrong = not is_finite(priority) or APPLY_TO.fault(apply_to) is not None
    if not is_finite(priority):
        entry.refuse_value("priority", "an integer")
    elif fault := PRIORITY.fault(priority):
        entry.note("priority", *fault)
    if fault := APPLY_TO.fault(apply_to):
        entry.refuse("apply-to", fault[0])
    if not has_pattern or definition is None or is_wrong:
        return None
    name = str(entry.fields.get("name"))
    policy = make_object(PolicyDefinition, {**entry.fields, "name": name, "definition": definition})
    for field, value, message, fix in faults(FileEntry(entry.path, entry.fields, frozenset(), policy)):
        entry.refuse(field, message, value, fix)
    return policy


def _read_operator_policy(entry: _Entry) -> PolicyDefinition | None:
    """Return the operator policy of a parameter; None if it is wrong or left out."""
    name, value = entry.fields.get("name"), entry.fields.get("value")
    if not isinstance(value, dict):
        entry.refuse_value("value", "an object")
        return None
    fields = {**value, "name": name}
    inner = _Entry(entry.file, f"{entry.path}.value", fields)
    for field in value.keys() - {"pattern", "definition", "priority", "apply-to"}:
        inner.refuse(field, "an operator policy does not have this field")
    if "priority" not in value:
        inner.refuse_value("priority", "an integer")
    policy = _read_policy(inner, operator_policy_faults)
    if not entry.check("name", NAME, odd=True):
        return None
    if "apply-to" not in value:
        inner.leave_out("apply-to", f"RabbitMQ has no default for it here: {_LEFT_OUT}")
        return None
    return policy


def _read_limits(entry: _Entry) -> Iterator[str]:
    """Yield the limits of a vhost, as text."""
    value = entry.fields.get("value")
    if entry.fields.get("name") != "limits":
        entry.refuse("name", "the name must be limits")
    if not isinstance(value, dict) and value != []:
        entry.refuse_value("value", "an object")
    for limit, number in value.items() if isinstance(value, dict) else ():
        if limit not in _LIMITS or not is_whole(number):
            entry.refuse(f"value.{limit}", f"the limits are {' and '.join(_LIMITS)}, and integers", number)
        yield f"{limit} {number}"


def _leaves(value: object) -> Iterator[object]:
    """Yield the plain values within lists and tables."""
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _leaves(inner)
    else:
        yield value
