"""RabbitMQ's definitions files: of a whole broker, or of a single vhost.

They are read as RabbitMQ 4.3.6 imports them (rabbit_definitions.erl ``add_queue_int/3``, ``add_exchange_int/3``, ``add_binding_int/4``,
``add_policy/3``; tested with files and exports of 3.10.8 to 4.3.6). What the importer refuses is refused. What it imports otherwise than
written, or so that no AMQP client can name it, is in one finding: the topology has what the broker has then, or leaves the object out.

The files do not contain:

- The order in which queues were bound. A ring made from them is assumed, and no plan restores its order.
- Internal exchanges, on 4.3.6. 4.0.5 does include them.
- Exclusive queues. On 4.3.6 the file has their bindings without the queues.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, Literal, TypeAlias

from rabbit_chx.amqp.exchange_types import EXCHANGE_TYPES
from rabbit_chx.analysis.findings import Finding
from rabbit_chx.checks import is_finite, is_whole
from rabbit_chx.errors import InputError, TopologyError
from rabbit_chx.routing import Release
from rabbit_chx.routing.bindings import weight_of
from rabbit_chx.routing.release import NEWEST_COMPARED
from rabbit_chx.text import plural
from rabbit_chx.topology import objects
from rabbit_chx.topology.argument_table import argument_fault, is_utf8, show_value, unsendable
from rabbit_chx.topology.file_rules import file_finding, match_fault
from rabbit_chx.topology.kinds import APPLY_TO, FLAG, NAME, OPEN, PRIORITY, STRING, Kind
from rabbit_chx.topology.schema import (
    SCHEMA,
    Entry,
    ListedObject,
    make_object,
    odd_objects,
    vhost_objects,
)

#: What is wrong with an entry, as text, and what an import does: it refuses the file, makes another object than written, or one that a
#: topology does not contain.
_Faults: TypeAlias = Iterable[tuple[Literal["refused", "changed", "left out"], str]]
_Content: TypeAlias = tuple[dict[str, Any], tuple[str, ...], tuple[Finding, ...]]

_WHAT = "the definitions file"
#: Other contents of a file, by the key, with the noun for one of them.
_OTHER = {
    "users": "user",
    "permissions": "permission",
    "topic_permissions": "topic permission",
    "global_parameters": "global parameter",
}
_NOUNS = {"exchanges": "exchange", "queues": "queue", "policies": "policy", "parameters": "parameter"}
_ODD = "that RabbitMQ imports otherwise than written, or that no client can name"
_NOT_EXPORTED = "the file names it without a definition; RabbitMQ 4.3 does not export internal exchanges"
#: The components of RabbitMQ and its plugins that have parameters, except policies.
_COMPONENTS = ("operator_policy", "vhost-limits", "federation-upstream", "federation-upstream-set", "shovel")
_LIMITS = ("max-connections", "max-queues")
#: Types whose bindings need a key, because the broker refuses the one that it makes of a missing one.
_NEED_KEY = (objects.HASH_EXCHANGE, "topic", "x-local-random")


def read_definitions(text: str | bytes, vhost: str) -> _Content:
    """Return the lists and the facts of the topology in a definitions file, what is left out, and the finding of what is odd.

    `vhost` selects one vhost of several.

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
        file.judge("the text", {}, [("changed", f"an object has the field {name!r:.60} twice")])
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
        is_sound = is_utf8(json.dumps(document, ensure_ascii=False))
    except (ValueError, RecursionError) as error:
        fix = "export the file again"
        if isinstance(text, str) and text.endswith(".json"):
            fix = "this is the name of a file: pass its text, such as Path(...).read_text()"
        raise _error("the text", f"invalid JSON: {error}", fix) from None
    if not isinstance(document, dict) or not any(name in document for name in objects.OBJECT_LISTS):
        message = f"the text contains none of {', '.join(objects.OBJECT_LISTS)}"
        raise _error("the text", message, "pass the output of `rabbitmqctl export_definitions`")
    if not is_sound:
        raise _error("the text", "half of a surrogate pair is not UTF-8", "write whole characters")
    return document, repeated


def _error(subject: str, message: str, fix: str) -> TopologyError:
    return TopologyError([file_finding(subject, None, message, fix)], what=_WHAT)


class _File:
    """The lists of a definitions file as objects, and their faults.

    Attributes:
        problems: what RabbitMQ does not import.
        odd: the objects that it imports otherwise than written, or so that no client can name them, each with what is odd.
    """

    def __init__(self, document: Mapping[str, Any], vhost: str) -> None:
        self._document = document
        self._vhost = vhost
        self.problems: dict[tuple[str, str], Finding] = {}
        self.odd: dict[str, None] = {}

    def judge(self, path: str, entry: Entry, faults: _Faults) -> bool:
        """Keep the faults of an entry. Return True if an import makes its object, and clients can name it."""
        is_made = True
        named = _named(path, entry)
        for fate, fault in faults:
            is_made &= fate == "changed"
            if fate == "refused":
                message = fault if named == path else f"{fault} ({named})"
                self.problems[path, fault] = file_finding(path, None, message, "")
            else:
                self.odd[f"{named} ({fault})"] = None
        return is_made

    def content(self, release: Release | None) -> _Content:
        """Return what the file has for the vhost."""
        exchanges, types = self._read_exchanges()
        queues, untyped = self._read_queues()
        policies = self._read_policies()
        operators, parameters = self._read_parameters()
        bindings = self._read_bindings(types, {queue.name for queue in queues})
        found = vhost_objects(exchanges, queues, bindings, policies, release=release, absence=_NOT_EXPORTED)
        facts = objects.FileFacts(
            release,
            is_import=True,
            untyped_queues=untyped,
            unordered=frozenset(
                exchange.name for exchange in exchanges if exchange.type == objects.HASH_EXCHANGE
            ),
            operator_policies=operators,
            sources_left_out=found.sources_left_out,
        )
        left_out = (*parameters, *self._other_objects(), *found.left_out)
        return {**found.lists, "file": facts}, left_out, odd_objects(self.odd, _ODD, "correct the file")

    def _read_exchanges(self) -> tuple[list[objects.ExchangeDefinition], dict[str, str]]:
        """Return the exchanges, and the type of each one that exists after an import, also of those that are left out."""
        found: dict[str, objects.ExchangeDefinition] = {}
        types: dict[str, str] = dict(objects.BROKERS_EXCHANGES)
        for path, entry in self._entries("exchanges"):
            is_sound = self.judge(path, entry, _exchange_faults(entry))
            name = entry.get("name")
            if not isinstance(name, str) or name == "" or name.startswith(objects.BROKERS_OWN):
                continue
            if name in types:
                self.judge(path, entry, [("changed", "listed twice: the first counts")])
            elif is_sound:
                found[name] = make_object(objects.ExchangeDefinition, entry)
            types.setdefault(name, str(entry.get("type")))
        return list(found.values()), types

    def _read_queues(self) -> tuple[list[objects.QueueDefinition], frozenset[str]]:
        """Return the queues, and the names of those whose type is the default of the broker's vhost."""
        found: dict[str, objects.QueueDefinition | None] = {}
        untyped = set()
        default, is_certain = self._default_queue_type()
        for path, entry in self._entries("queues"):
            name = str(entry.get("name"))
            if not self.judge(path, entry, _queue_faults(entry)):
                found.setdefault(name, None)
                continue
            is_typed = objects.QUEUE_TYPE in entry.get("arguments", ()) or entry.get("exclusive") is True
            queue = make_object(objects.QueueDefinition, {**entry, "exclusive": False})
            queue = queue if is_typed else queue.with_default_type(default)
            if name in found:
                self.judge(path, entry, [("changed", "listed twice: the first counts")])
            else:
                found[name] = queue
                if not is_typed and not is_certain:
                    untyped.add(name)

        return [queue for queue in found.values() if queue is not None], frozenset(untyped)

    def _read_bindings(self, types: Mapping[str, str], queues: set[str]) -> list[objects.BindingDefinition]:
        found: dict[objects.BindingDefinition, None] = {}
        members: set[tuple[str, object]] = set()
        for path, entry in self._entries("bindings"):
            if not self.judge(path, entry, _binding_faults(entry, types)) or not entry["source"]:
                continue

            binding = make_object(objects.BindingDefinition, entry)
            source = binding.source
            place = binding.destination
            is_there = place in queues if isinstance(place, str) else place.name in types
            if source not in types or not is_there:
                self.judge(path, entry, [("changed", "a broker without its ends refuses the file")])
            if binding in found:
                self.judge(path, entry, [("changed", "listed twice")])
            elif types.get(source) == objects.HASH_EXCHANGE:
                self.judge(path, entry, _member_faults(binding, is_second=(source, place) in members))
            elif fault := match_fault(binding, types):
                self.judge(path, entry, [("refused", f"x-match: {fault[0]}")])

            members.add((source, place))
            found[binding] = None

        return list(found)

    def _read_policies(self) -> list[objects.PolicyDefinition]:
        found: dict[str, objects.PolicyDefinition] = {}
        for path, entry in self._entries("policies"):
            policy = self._read_policy(path, entry)
            name = entry.get("name")
            is_named = self.judge(path, entry, _text_faults(entry, "name", NAME, is_lenient="name" in entry))
            if policy is None and isinstance(name, str):
                found.pop(name, None)  # of several, the last counts
            elif policy is not None and is_named:
                if policy.name in found:
                    self.judge(path, entry, [("changed", "listed twice: the last counts")])
                found[policy.name] = policy
        return list(found.values())

    def _read_policy(self, path: str, entry: Entry) -> objects.PolicyDefinition | None:
        """Return a policy; None if it is wrong. The caller checks its name."""
        if not self.judge(path, entry, _policy_faults(entry)):
            return None
        return make_object(objects.PolicyDefinition, {**entry, "name": str(entry.get("name"))})

    def _read_parameters(self) -> tuple[tuple[objects.PolicyDefinition, ...], list[str]]:
        """Return the operator policies, and a line for each parameter. A line contains no values except limits."""
        operators: dict[str, objects.PolicyDefinition] = {}
        lines: list[str] = []
        limits: list[str] = []
        for path, entry in self._entries("parameters"):
            component = entry.get("component")
            value = entry.get("value")
            lines.append(f"parameter {component} {entry.get('name')}")
            self.judge(path, entry, _parameter_faults(entry))
            if component == "vhost-limits" and isinstance(value, dict):
                limits += [f"{limit} {number}" for limit, number in value.items()]
            elif component == "operator_policy" and isinstance(value, dict):
                policy = self._read_policy(path, {**value, "name": entry.get("name")})
                if self.judge(path, entry, _operator_faults(entry)) and policy is not None:
                    operators[policy.name] = policy
        if limits or self._document.get("limits"):
            lines.insert(0, f"limits of the vhost{': ' if limits else ''}{', '.join(limits)}")
        return tuple(operators.values()), lines

    def vhosts(self) -> set[str]:
        """Return the vhosts that a file of several vhosts names."""
        named = [entry.get("vhost") for name in objects.OBJECT_LISTS for _, entry in self._all_entries(name)]
        named += [entry.get("name") for _, entry in self._all_entries("vhosts")]
        return {name for name in named if isinstance(name, str)}

    def _default_queue_type(self) -> tuple[str, bool]:
        """Return the default queue type of the vhost, and True if an import sets it. Otherwise that of the broker precedes it."""
        written: list[Any] = [self._document, self._document.get("metadata")]
        for path, entry in self._all_entries("vhosts"):
            metadata = entry.get("metadata", {})
            type_ = metadata.get("default_queue_type") if isinstance(metadata, dict) else metadata
            if type_ not in (*objects.QUEUE_TYPES, None, "undefined"):
                self.judge(path, entry, [("refused", f"{show_value(type_)} is no queue type")])
            elif entry.get("name") == self._vhost:
                if type_ in objects.QUEUE_TYPES:
                    return str(type_), True
                written.insert(0, entry)
        types = [value.get("default_queue_type") for value in written if isinstance(value, Mapping)]
        return next((type_ for type_ in types if type_ in objects.QUEUE_TYPES), "classic"), False

    def _other_objects(self) -> list[str]:
        """Return a line for each kind of object that a topology does not contain. A line never contains a value."""
        counts = {noun: len(self._entries(name)) for name, noun in _OTHER.items()}
        lines = [plural(count, noun) for noun, count in counts.items() if count]
        entries = [entry for name in objects.OBJECT_LISTS for _, entry in self._all_entries(name)]
        by_vhost = Counter(str(entry.get("vhost", self._vhost)) for entry in entries)
        del by_vhost[self._vhost]
        return lines + [f"{plural(by_vhost[vhost], 'object')} of vhost {vhost}" for vhost in sorted(by_vhost)]

    @cached_property
    def _names_vhosts(self) -> bool:
        """True for a file of several vhosts, whose objects name theirs."""
        for name in objects.OBJECT_LISTS:
            entries = self._document.get(name)
            if not isinstance(entries, list):
                continue
            if any(isinstance(entry, dict) and "vhost" in entry for entry in entries):
                return True
        return False

    def _all_entries(self, name: str) -> list[tuple[str, dict[str, Any]]]:
        entries = self._document.get(name, [])
        if not isinstance(entries, list):
            self.judge(name, {}, [("refused", "the value must be a list")])
            return []
        paths = [(f"{name}[{n}]", entry) for n, entry in enumerate(entries)]
        for path, entry in paths:
            if not isinstance(entry, dict):
                # rabbit_definitions.erl (4.3.6): an import skips it, except where it reads the vhost or the type of the entry.
                is_read = name == "queues" or (self._names_vhosts and name in ("exchanges", "bindings"))
                self.judge(path, {}, [("refused" if is_read else "left out", "the value must be an object")])
        return [(path, entry) for path, entry in paths if isinstance(entry, dict)]

    def _entries(self, name: str) -> list[tuple[str, dict[str, Any]]]:
        """Return the entries of a list in the requested vhost, without those of this program. A file of a single vhost does not name it."""
        return [
            (path, entry)
            for path, entry in self._all_entries(name)
            if entry.get("vhost", self._vhost) == self._vhost
            and not (name in ("exchanges", "queues") and objects.is_own(entry.get("name")))
        ]


def _named(path: str, entry: Entry) -> str:
    """Return how messages name an entry; its path if it has no name."""
    name = entry.get("name")
    if "source" in entry:
        return f"binding {entry['source']!s:.60} -> {entry.get('destination')!s:.60}"
    return (
        f"{_NOUNS.get(path.partition('[')[0], 'object')} {name:.60}"
        if isinstance(name, str) and name
        else path
    )


def _text_faults(entry: Entry, field: str, kind: Kind, *, is_lenient: bool = False) -> _Faults:
    """Yield the fault of a text. `is_lenient`: RabbitMQ imports null, true and false in its place, too."""
    value = entry.get(field)
    if not isinstance(value, str):
        is_kept = is_lenient and (value is None or isinstance(value, bool))
        yield "left out" if is_kept else "refused", f"its {field} is {show_value(value)}, not a string"
    elif fault := kind.fault(value):
        yield "left out", fault[0]


def _table_faults(entry: Entry, field: str) -> _Faults:
    """Yield the faults of arguments or of a definition; older releases write an empty table as a list."""
    table = entry.get(field, {})
    if not isinstance(table, dict) and table != []:
        yield "refused", f"its {field} is {show_value(table)}, not an object"
    if not isinstance(table, dict):
        return
    for name, value in table.items():
        fault = argument_fault(name, value)
        leaves = list(_leaves(value))
        if field == "arguments" and None in leaves:
            yield "refused", f"the argument {name!r} contains null"
        elif fault is not None:
            is_huge = any(isinstance(leaf, float) and not math.isfinite(leaf) for leaf in leaves)
            yield "refused" if is_huge else "left out", fault[0]
        elif field == "arguments":
            odd = unsendable(name, value)
            if odd:
                yield "changed", odd[0]


def _field_faults(model: type[ListedObject], entry: Entry, skip: str | None = None) -> _Faults:
    """Yield the faults of the fields of an entry by themselves, but for the field `skip`."""
    is_exchange = model.kind == "exchange"
    for field, kind in SCHEMA[model.kind].json.items():
        if field == skip:
            continue
        if kind is OPEN:
            yield from _table_faults(entry, field)
        elif kind is not FLAG:
            yield from _text_faults(entry, field, kind, is_lenient=is_exchange and field == "name")
        elif not isinstance(value := entry.get(field, False), bool):
            yield (
                "changed" if is_exchange else "refused",
                f"its {field} is {show_value(value)}, not true or false",
            )


def _exchange_faults(entry: Entry) -> _Faults:
    yield from _field_faults(objects.ExchangeDefinition, entry)
    if str(entry.get("name")).startswith(objects.BROKERS_OWN):
        yield "left out", "an import skips the reserved names amq.*"
    elif entry.get("name") and entry.get("type") not in EXCHANGE_TYPES:
        yield "changed", f"no known plugin has the type {show_value(entry.get('type'))}"


def _queue_faults(entry: Entry) -> _Faults:
    yield from _field_faults(objects.QueueDefinition, entry, "exclusive")
    arguments = entry.get("arguments")
    type_ = arguments.get(objects.QUEUE_TYPE, "classic") if isinstance(arguments, dict) else "classic"
    if not isinstance(type_, str):
        yield "refused", f"its {objects.QUEUE_TYPE} is {show_value(type_)}, not a string"
    elif type_ not in objects.QUEUE_TYPES:
        yield "left out", f"of type {type_:.60}"
    elif entry.get("exclusive") is True:
        yield "changed", "an import makes it for all connections, not exclusive"


def _binding_faults(entry: Entry, types: Mapping[str, str]) -> _Faults:
    source = entry.get("source")
    kind = entry.get("destination_type")
    is_keyless = entry.get("routing_key") is None and types.get(str(source)) not in _NEED_KEY
    yield from _field_faults(objects.BindingDefinition, entry, "routing_key" if is_keyless else None)
    if isinstance(kind, str) and kind not in ("queue", "exchange"):
        yield "refused", f"its destination_type is {show_value(kind)}, not queue or exchange"
    elif (kind, entry.get("destination")) == ("queue", "") and source:
        yield "refused", "'' names no queue"
    elif is_keyless:
        yield "left out", "without a key, no client can make or remove it"


def _member_faults(binding: objects.BindingDefinition, *, is_second: bool) -> _Faults:
    """Yield what is odd about a binding of a ring. `is_second`: its destination is a member already."""
    if is_second:
        yield "changed", "a member of the ring already"
    try:
        weight_of(binding.destination, binding.routing_key, NEWEST_COMPARED)
    except InputError as error:
        yield "changed", str(error)


def _policy_faults(entry: Entry) -> _Faults:
    priority = entry.get("priority", 0)
    yield from _text_faults(entry, "pattern", STRING)
    yield from _table_faults(entry, "definition")
    if not is_finite(priority) or PRIORITY.fault(priority):
        yield (
            "changed" if is_finite(priority) else "refused",
            f"its priority is {show_value(priority)}, not an integer of 32 bits",
        )
    if fault := APPLY_TO.fault(entry.get("apply-to", "all")):
        yield "refused", f"apply-to: {fault[0]}"


def _parameter_faults(entry: Entry) -> _Faults:
    component = entry.get("component")
    value = entry.get("value")
    yield from _text_faults(entry, "component", STRING)
    if (
        component in ("vhost-limits", "operator_policy")
        and not isinstance(value, dict)
        and (component, value) != ("vhost-limits", [])
    ):
        yield "refused", f"its value is {show_value(value)}, not an object"

    if component == "policy":
        yield "refused", "policies are not parameters: write it among the policies"
    elif component == "vhost-limits":
        limits = value.items() if isinstance(value, dict) else ()
        if entry.get("name") != "limits" or not all(
            name in _LIMITS and is_whole(number) for name, number in limits
        ):
            yield "refused", f"its name must be limits, and its values {' and '.join(_LIMITS)}, integers"
    elif isinstance(component, str) and component not in _COMPONENTS:
        yield "changed", f"no known plugin has parameters of the component {component:.60}"


def _operator_faults(entry: Entry) -> _Faults:
    """Yield the faults of an operator policy that other policies do not have."""
    value = entry["value"]
    yield from _text_faults({"name": None, **entry}, "name", NAME, is_lenient=True)
    for field in value.keys() - {"pattern", "definition", "priority", "apply-to"}:
        yield "refused", f"an operator policy has no {field}"
    if "priority" not in value:
        yield "refused", "its priority is missing"
    if "apply-to" not in value:
        yield "left out", "RabbitMQ has no default for its apply-to"


def _leaves(value: object) -> Iterator[object]:
    """Yield the plain values within lists and tables."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            yield from _leaves(inner)
    else:
        yield value
