"""RabbitMQ's definitions files: of a whole broker, or of a single vhost.

Tested with exports of 3.8.9, 3.10.8, 4.0.5 and 4.3.6. They do not contain:

- The order in which queues were bound. A ring made from them is assumed.
- Internal exchanges, on 4.3.6. 4.0.5 does include them.
- Exclusive queues. On 4.3.6 the file has their bindings without the queues.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from rabbit_chx.analysis.wording import plural
from rabbit_chx.errors import InputError, TopologyError
from rabbit_chx.routing import ExchangeRef, HashRing, Release
from rabbit_chx.topology.fields import Problems, file_finding
from rabbit_chx.topology.objects import (
    HASH_EXCHANGE,
    OBJECT_LISTS,
    QUEUE_TYPE,
    BindingDefinition,
    ExchangeDefinition,
    PolicyDefinition,
    QueueDefinition,
    RingMember,
)

#: The fields of an entry of each list: the type of a required field, or the default of an optional one.
_FIELDS: dict[str, dict[str, Any]] = {
    "exchanges": {"name": str, "type": str, "durable": False, "auto_delete": False, "internal": False, "arguments": {}},
    "queues": {"name": str, "durable": False, "exclusive": False, "auto_delete": False, "arguments": {}},
    "bindings": {"source": str, "destination": str, "destination_type": str, "routing_key": "", "arguments": {}},
    "policies": {"name": str, "pattern": str, "apply-to": "all", "definition": {}, "priority": 0},
}  # fmt: skip
_BROKERS_OWN = "amq."
_WHAT = "the definitions file"
#: Other contents of a file, by the key, with the noun for one of them.
_OTHER = {
    "users": "user",
    "permissions": "permission",
    "topic_permissions": "topic permission",
    "global_parameters": "global parameter",
}
_KINDS = {str: "a string", bool: "true or false", int: "an integer", dict: "an object"}
_NOT_EXPORTED = "the file names it without a definition; RabbitMQ 4.3 does not export internal exchanges"


def definitions_content(text: str | bytes, vhost: str) -> dict[str, Any]:
    """Return the attributes of the Topology in a definitions file. `vhost` selects one vhost of several.

    Raises:
        TopologyError: the text is not a definitions file, or does not have that vhost.
    """
    try:
        document = json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise _error("the text", f"invalid JSON: {error}", "export the file again") from None
    if not isinstance(document, dict) or not any(name in document for name in OBJECT_LISTS):
        message = f"the text contains none of {', '.join(OBJECT_LISTS)}"
        raise _error("the text", message, "pass the output of `rabbitmqctl export_definitions`")
    version = document.get("rabbitmq_version", document.get("rabbit_version"))
    try:
        release = Release(version) if isinstance(version, str) else None
    except InputError:
        release = None
    lists = _Lists(document, vhost)
    objects = {name: lists.objects(name) for name in OBJECT_LISTS}
    if lists.problems:
        raise TopologyError(lists.problems.values(), what=_WHAT)
    vhosts = lists.vhosts()
    if vhosts and vhost not in vhosts:
        names = ", ".join(sorted(map(repr, vhosts)))
        raise _error("vhosts", f"the file does not contain the vhost {vhost!r}", f"give one of {names}")
    content = topology_content(**objects, release=release, absence=_NOT_EXPORTED)
    return {**content, "left_out": (*lists.other_objects(), *content["left_out"])}


def _error(subject: str, message: str, fix: str) -> TopologyError:
    return TopologyError([file_finding(subject, None, message, fix)], what=_WHAT)


def topology_content(
    exchanges: Iterable[ExchangeDefinition],
    queues: Iterable[QueueDefinition],
    bindings: Iterable[BindingDefinition],
    policies: Iterable[PolicyDefinition],
    *,
    release: Release | None,
    absence: str = "bindings or arguments name it, but it does not exist",
) -> dict[str, Any]:
    """Return the attributes of the Topology that consists of all objects of a vhost.

    Args:
        exchanges: all exchanges.
        queues: all queues.
        bindings: all bindings, including those of the default exchange and of rings.
        policies: all policies.
        release: the broker's release.
        absence: why a referenced exchange may be missing, for the warning.
    """
    queues = tuple(queues)
    exchanges = [
        exchange for exchange in exchanges if exchange.name and not exchange.name.startswith(_BROKERS_OWN)
    ]
    # Each queue is bound to the default exchange.
    bindings = [binding for binding in bindings if binding.source]
    unnamed = [queue.name for queue in queues if queue.name.startswith(_BROKERS_OWN)]
    left_out = [f"queue {name}: the broker generated its name" for name in unnamed]
    named = {queue.name for queue in queues}.difference(unnamed)
    members: dict[str, list[RingMember]] = {
        exchange.name: [] for exchange in exchanges if exchange.type == HASH_EXCHANGE
    }
    plain_bindings, sources_left_out = [], set()
    for binding in bindings:
        source, place = binding.source, binding.destination
        is_transient = isinstance(place, str) and place not in named
        if source in members:
            members[source].append(RingMember(place, binding.routing_key, binding.arguments))
            if is_transient:
                left_out.append(f"queue {place}: a member of {source} that is not among the queues")
        elif is_transient:
            sources_left_out.add(source)
            left_out.append(f"binding of {source} to {place}: that queue is exclusive or has no name")
        else:
            plain_bindings.append(binding)
    left_out += [f"exchange {name}: {absence}" for name in _missing_exchanges(exchanges, bindings)]
    rings = {}
    for name, ring in members.items():
        try:
            rings[name] = HashRing.from_bindings([member.binding for member in ring], release, "assumed")
        except InputError as error:
            left_out.append(f"the ring of {name}: {error}")
    return {
        "exchanges": tuple(
            replace(exchange, ring=tuple(members[exchange.name])) if exchange.name in members else exchange
            for exchange in exchanges
        ),
        "queues": tuple(queue for queue in queues if queue.name in named),
        "bindings": tuple(plain_bindings),
        "policies": tuple(policies),
        "rings": rings,
        "release": release,
        "left_out": tuple(left_out),
        "sources_left_out": frozenset(sources_left_out),
    }


def _missing_exchanges(
    exchanges: Iterable[ExchangeDefinition], bindings: Iterable[BindingDefinition]
) -> list[str]:
    """Return the names of the exchanges that bindings or arguments refer to and that are not listed."""
    named = {binding.source for binding in bindings}
    named |= {place.name for binding in bindings if isinstance(place := binding.destination, ExchangeRef)}
    alternates = (exchange.arguments.get("alternate-exchange") for exchange in exchanges)
    named |= {name for name in alternates if isinstance(name, str)}
    missing = named - {exchange.name for exchange in exchanges}
    return [name for name in sorted(missing) if name and not name.startswith(_BROKERS_OWN)]


class _Lists:
    """The lists of a definitions file, and their problems."""

    def __init__(self, document: Mapping[str, Any], vhost: str) -> None:
        self._document = document
        self._vhost = vhost
        self.problems = Problems()

    def objects(self, name: str) -> list[Any]:
        """Return the objects of a list in the requested vhost."""
        objects = []
        for path, entry in self._entries(name):
            values = {
                field.replace("-", "_"): self._value(f"{path}.{field}", entry, field, expected)
                for field, expected in _FIELDS[name].items()
            }
            try:
                definition = _MAKERS[name](**values)
            except InputError as error:
                self._add(path, None, str(error))
                continue
            if isinstance(definition, QueueDefinition) and QUEUE_TYPE in definition.arguments:
                self._value(f"{path}.arguments.{QUEUE_TYPE}", definition.arguments, QUEUE_TYPE, str)
            objects.append(definition)
        return objects

    def vhosts(self) -> set[str]:
        """Return the vhosts that a file of several vhosts names."""
        named = [entry.get("vhost") for name in OBJECT_LISTS for _, entry in self._all_entries(name)]
        named += [entry.get("name") for _, entry in self._all_entries("vhosts")]
        return {name for name in named if isinstance(name, str)}

    def other_objects(self) -> list[str]:
        """Return a line for each kind of object that a topology does not contain. A line never contains a value."""
        counts = {noun: len(self._entries(name)) for name, noun in _OTHER.items()}
        lines = [plural(count, noun) for noun, count in counts.items() if count]
        for _, entry in self._entries("parameters"):
            lines.append(f"parameter {entry.get('component')} {entry.get('name')}")
        if self._document.get("limits"):
            lines.append("limits of the vhost")
        entries = [entry for name in OBJECT_LISTS for _, entry in self._all_entries(name)]
        by_vhost = Counter(str(entry.get("vhost", self._vhost)) for entry in entries)
        del by_vhost[self._vhost]
        return lines + [f"{plural(by_vhost[vhost], 'object')} of vhost {vhost}" for vhost in sorted(by_vhost)]

    def _all_entries(self, name: str) -> list[tuple[str, dict[str, Any]]]:
        entries = self._document.get(name, [])
        if not isinstance(entries, list):
            self._add(name, entries, "the value must be a list")
            return []
        for n, entry in enumerate(entries):
            if not isinstance(entry, dict):
                self._add(f"{name}[{n}]", entry, "the value must be an object")
        return [(f"{name}[{n}]", entry) for n, entry in enumerate(entries) if isinstance(entry, dict)]

    def _entries(self, name: str) -> list[tuple[str, dict[str, Any]]]:
        """Return the entries of a list in the requested vhost. A file of a single vhost does not name it."""
        entries = self._all_entries(name)
        return [(path, entry) for path, entry in entries if entry.get("vhost", self._vhost) == self._vhost]

    def _value(self, path: str, entry: Mapping[str, Any], field: str, expected: Any) -> Any:
        is_required = isinstance(expected, type)
        type_: type = expected if is_required else type(expected)
        value = entry.get(field, None if is_required else expected)
        if type_ is dict and value == []:
            return {}  # older releases write an empty table as a list
        if is_required and field not in entry:
            self._add(path, None, "the value is missing")
        elif not isinstance(value, type_) or (type_ is int and isinstance(value, bool)):
            self._add(path, value, f"the value must be {_KINDS[type_]}")
        else:
            return value
        return type_()

    def _add(self, path: str, value: object, message: str) -> None:
        self.problems.add(path, value, message, "export the file again")


def _binding(destination: str, destination_type: str, **fields: Any) -> BindingDefinition:
    place = ExchangeRef(destination) if destination_type == "exchange" else destination
    return BindingDefinition(destination=place, **fields)


_MAKERS: dict[str, Any] = {
    "exchanges": ExchangeDefinition,
    "queues": QueueDefinition,
    "bindings": _binding,
    "policies": PolicyDefinition,
}
