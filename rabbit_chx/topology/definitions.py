"""RabbitMQ's own definitions files, read and written: of a whole broker, or of a single vhost.

Read on exports of 3.8.9, 3.10.8, 4.0.5 and 4.3.6. What they do not tell:

- The order in which queues were bound. A ring made of them is assumed.
- Internal exchanges, on 4.3.6: the broker leaves them out of the file. 4.0.5 does not.
- Exclusive queues. On 4.3.6 their bindings are in the file, without the queues.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rabbit_chx.errors import InputError, TopologyError
from rabbit_chx.routing import Destination, ExchangeRef, HashRing, Release
from rabbit_chx.topology.arguments import plain
from rabbit_chx.topology.objects import (
    HASH_EXCHANGE,
    QUEUE_TYPE,
    BindingDefinition,
    ExchangeDefinition,
    ObjectSet,
    PolicyDefinition,
    QueueDefinition,
    RingMember,
)
from rabbit_chx.topology.problems import Problem, shown_value

__all__ = [
    "definitions_content",
    "definitions_text",
    "hash_exchanges",
    "listed_bindings",
    "read_lists",
    "unwritable",
]

_LISTS = ("exchanges", "queues", "bindings", "policies")
_OURS = "amq."
_WHAT = "the definitions file"
#: What a file holds besides, by its key: words for one of it.
_OTHER = {
    "users": "user",
    "permissions": "permission",
    "topic_permissions": "topic permission",
    "global_parameters": "global parameter",
}
_KINDS = {str: "text", bool: "true or false", int: "a whole number", dict: "an object"}
_MISSING = object()
_NOT_EXPORTED = "it is named, but not in the file; RabbitMQ 4.3 leaves internal exchanges out"
_NOT_THERE = "it is named, but not there"


def definitions_content(text: str | bytes, vhost: str) -> dict[str, Any]:
    """Return the attributes of the Topology that a definitions file says.

    Args:
        text: the JSON text.
        vhost: the vhost, if the file has several.

    Raises:
        TopologyError: the text is not a definitions file, or does not have that vhost.
    """
    document = _document(text)
    file = _File(document, vhost, _release(document), _NOT_EXPORTED)
    file.refuse_other_vhost()
    return _objects_of(file)


def read_lists(lists: Mapping[str, Any], vhost: str, release: Release) -> dict[str, Any]:
    """Return the attributes of the Topology that the lists of the management API say.

    Args:
        lists: the exchanges, queues, bindings and policies, as the API lists them.
        vhost: their vhost.
        release: the broker's release.

    Raises:
        TopologyError: an entry is not what the API of a broker lists.
    """
    return _objects_of(_File(lists, vhost, release, _NOT_THERE))


def _objects_of(file: _File) -> dict[str, Any]:
    queues = [file.queue(entry) for entry in file.entries("queues")]
    exchanges = [file.exchange(entry) for entry in file.entries("exchanges")]
    bindings = [file.binding(entry) for entry in file.entries("bindings")]
    policies = [file.policy(entry) for entry in file.entries("policies")]
    if file.problems:
        raise TopologyError(file.problems, what=_WHAT)
    return _assembled(
        file,
        [one for one in exchanges if one and not one.name.startswith(_OURS) and one.name],
        [one for one in queues if one],
        [one for one in bindings if one and one.source],
        [one for one in policies if one],
    )


def _assembled(
    file: _File,
    exchanges: list[ExchangeDefinition],
    queues: list[QueueDefinition],
    bindings: list[BindingDefinition],
    policies: list[PolicyDefinition],
) -> dict[str, Any]:
    left_out = file.other_objects()
    named = {one.name for one in queues}
    kept_queues = [one for one in queues if not one.name.startswith(_OURS)]
    left_out += [
        f"queue {one.name}: the broker made its name" for one in queues if one.name.startswith(_OURS)
    ]
    rings: dict[str, list[RingMember]] = {one.name: [] for one in exchanges if one.type == HASH_EXCHANGE}
    plain, sources_left_out = [], set()
    for binding in bindings:
        destination = binding.destination
        transient = isinstance(destination, str) and (
            destination not in named or destination.startswith(_OURS)
        )
        if binding.source in rings:
            rings[binding.source].append(RingMember(destination, binding.routing_key, binding.arguments))
            if transient:
                left_out.append(
                    f"queue {destination}: a member of {binding.source} that is not among the queues"
                )
        elif transient:
            sources_left_out.add(binding.source)
            left_out.append(
                f"binding of {binding.source} to {destination}: that queue is exclusive or without a name"
            )
        else:
            plain.append(binding)
    release = file.release
    left_out += _missing_exchanges(exchanges, bindings, file.absence)
    listed = tuple(
        ExchangeDefinition(
            one.name, one.type, one.durable, one.auto_delete, one.internal, one.arguments,
            tuple(rings[one.name]) if one.name in rings else None,
        )
        for one in exchanges
    )  # fmt: skip
    assumed = {
        name: ring for name, members in rings.items() if (ring := _ring(members, release, name, left_out))
    }
    return {
        "exchanges": listed,
        "queues": tuple(kept_queues),
        "bindings": tuple(plain),
        "policies": tuple(policies),
        "rings": assumed,
        "release": release,
        "left_out": tuple(left_out),
        "sources_left_out": frozenset(sources_left_out),
    }


def _document(text: str | bytes) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        problem = Problem("the text", "", f"this is not JSON: {error}", "export it again")
        raise TopologyError([problem], what=_WHAT) from None
    if not isinstance(document, dict) or not any(name in document for name in _LISTS):
        rule = f"there is none of {', '.join(_LISTS)}"
        problem = Problem("the text", "", rule, "give what `rabbitmqctl export_definitions` writes")
        raise TopologyError([problem], what=_WHAT)
    return document


def _release(document: Mapping[str, Any]) -> Release | None:
    version = document.get("rabbitmq_version", document.get("rabbit_version"))
    try:
        return Release(version) if isinstance(version, str) else None
    except InputError:
        return None


def _ring(
    members: Iterable[RingMember], release: Release | None, exchange: str, left_out: list[str]
) -> HashRing | None:
    try:
        return HashRing.from_bindings([one.binding for one in members], release, "assumed")
    except InputError as error:
        left_out.append(f"the ring of {exchange}: {error}")
        return None


def _missing_exchanges(
    exchanges: Iterable[ExchangeDefinition], bindings: Iterable[BindingDefinition], absence: str
) -> list[str]:
    """Return a line for each exchange that others name and that is not there."""
    named = {binding.source for binding in bindings}
    named.update(one.destination.name for one in bindings if isinstance(one.destination, ExchangeRef))
    alternates = (one.arguments.get("alternate-exchange") for one in exchanges)
    named.update(name for name in alternates if isinstance(name, str))
    missing = named - {one.name for one in exchanges}
    return [f"exchange {name}: {absence}" for name in sorted(missing) if not name.startswith(_OURS)]


@dataclass(slots=True)
class _File:
    document: Mapping[str, Any]
    vhost: str
    release: Release | None
    absence: str
    problems: list[Problem] = field(default_factory=list)

    def all_entries(self, name: str) -> list[tuple[str, dict[str, Any]]]:
        """Return the entries of a list, of all vhosts, with the place of each."""
        given = self.document.get(name, [])
        if not isinstance(given, list):
            self.problems.append(Problem(name, shown_value(given), "this is a list", "export the file again"))
            return []
        places = [(f"{name}[{n}]", entry) for n, entry in enumerate(given)]
        for path, entry in places:
            if not isinstance(entry, dict):
                self.problems.append(
                    Problem(path, shown_value(entry), "this is an object", "export the file again")
                )
        return [(path, entry) for path, entry in places if isinstance(entry, dict)]

    def entries(self, name: str) -> list[tuple[str, dict[str, Any]]]:
        """Return the entries of a list that are of our vhost. A file of a single vhost does not name it."""
        return [
            (path, entry)
            for path, entry in self.all_entries(name)
            if entry.get("vhost", self.vhost) == self.vhost
        ]

    def refuse_other_vhost(self) -> None:
        """Refuse a file of several vhosts that does not have ours.

        Raises:
            TopologyError: the vhost is not there.
        """
        named = [entry.get("vhost") for name in _LISTS for _, entry in self.all_entries(name)]
        named += [entry.get("name") for _, entry in self.all_entries("vhosts")]
        there = {name for name in named if isinstance(name, str)}
        if there and self.vhost not in there:
            rule = f"there is no vhost {self.vhost!r} in the file"
            remedy = f"give one of {', '.join(sorted(map(repr, there)))}"
            raise TopologyError([Problem("vhosts", "", rule, remedy)], what=_WHAT)
        self.problems.clear()  # whatever is wrong is found again, once

    def other_objects(self) -> list[str]:
        """Return a line for each kind of object that is no part of a topology. No line holds a value."""
        said = []
        for name, noun in _OTHER.items():
            count = len(self.entries(name))
            if count:
                said.append(f"{count} {noun}{'' if count == 1 else 's'}")
        said += [
            f"parameter {entry.get('component')} {entry.get('name')}"
            for _, entry in self.entries("parameters")
        ]
        if self.document.get("limits"):
            said.append("limits of the vhost")
        others = Counter(
            str(entry["vhost"])
            for name in _LISTS
            for _, entry in self.all_entries(name)
            if entry.get("vhost", self.vhost) != self.vhost
        )
        return said + [
            f"{count} object{'' if count == 1 else 's'} of vhost {vhost}"
            for vhost, count in sorted(others.items())
        ]

    def value(
        self, path: str, entry: Mapping[str, Any], name: str, type_: type, default: object = _MISSING
    ) -> Any:  # noqa: ANN401
        """Return a field of an entry, and add a problem if it is missing or of another type."""
        value = entry.get(name, default)
        if type_ is dict and value == []:
            return {}  # so older releases write an empty table
        if value is _MISSING:
            self.problems.append(Problem(f"{path}.{name}", "", "this is missing", "export the file again"))
        elif not isinstance(value, type_) or (type_ is int and isinstance(value, bool)):
            rule = f"this is {_KINDS[type_]}"
            self.problems.append(Problem(f"{path}.{name}", shown_value(value), rule, "export the file again"))
        else:
            return value
        return type_()

    def made(self, path: str, make: Any) -> Any:  # noqa: ANN401
        """Return what a function makes; None, and a problem, where it raises."""
        try:
            return make()
        except InputError as error:
            self.problems.append(Problem(path, "", str(error), "export the file again"))
            return None

    def exchange(self, given: tuple[str, dict[str, Any]]) -> ExchangeDefinition | None:
        """Return an exchange."""
        path, entry = given
        name, type_ = self.value(path, entry, "name", str), self.value(path, entry, "type", str)
        durable, auto_delete, internal = (
            self.value(path, entry, flag, bool, False) for flag in ("durable", "auto_delete", "internal")
        )
        arguments = self.value(path, entry, "arguments", dict, {})
        made: ExchangeDefinition | None = self.made(
            path, lambda: ExchangeDefinition(name, type_, durable, auto_delete, internal, arguments)
        )
        return made

    def queue(self, given: tuple[str, dict[str, Any]]) -> QueueDefinition | None:
        """Return a queue."""
        path, entry = given
        name = self.value(path, entry, "name", str)
        durable, exclusive, auto_delete = (
            self.value(path, entry, flag, bool, False) for flag in ("durable", "exclusive", "auto_delete")
        )
        arguments = self.value(path, entry, "arguments", dict, {})
        made: QueueDefinition | None = self.made(
            path, lambda: QueueDefinition(name, "classic", durable, exclusive, auto_delete, arguments)
        )
        if made is not None and QUEUE_TYPE in made.arguments:
            self.value(f"{path}.arguments", made.arguments, QUEUE_TYPE, str)  # adds the problem
        return made

    def binding(self, given: tuple[str, dict[str, Any]]) -> BindingDefinition | None:
        """Return a binding."""
        path, entry = given
        source, name = self.value(path, entry, "source", str), self.value(path, entry, "destination", str)
        to_exchange = self.value(path, entry, "destination_type", str) == "exchange"
        key = self.value(path, entry, "routing_key", str, "")
        arguments = self.value(path, entry, "arguments", dict, {})

        def make() -> BindingDefinition:
            destination: Destination = ExchangeRef(name) if to_exchange else name
            return BindingDefinition(source, destination, key, arguments)

        made: BindingDefinition | None = self.made(path, make)
        return made

    def policy(self, given: tuple[str, dict[str, Any]]) -> PolicyDefinition | None:
        """Return a policy."""
        path, entry = given
        name, pattern = (self.value(path, entry, text, str) for text in ("name", "pattern"))
        apply_to = self.value(path, entry, "apply-to", str, "all")
        definition = self.value(path, entry, "definition", dict, {})
        priority = self.value(path, entry, "priority", int, 0)
        made: PolicyDefinition | None = self.made(
            path, lambda: PolicyDefinition(name, pattern, apply_to, definition, priority)
        )
        return made


def definitions_text(topology: ObjectSet, vhost: str | None, *, rings: bool) -> str:
    """Return the JSON text.

    Args:
        topology: what to write; external objects are not written.
        vhost: the vhost of all objects; None for a file of a single vhost.
        rings: whether to write the bindings of hash exchanges.

    Raises:
        TopologyError: an exchange has slots, or a queue is exclusive.
    """
    problems = list(unwritable(topology, "definitions"))
    if problems:
        raise TopologyError(problems)
    place = {} if vhost is None else {"vhost": vhost}
    document: dict[str, Any] = {"explanation": _explanation(topology, rings=rings)}
    document["exchanges"] = [
        {
            "name": one.name, **place, "type": one.type, "durable": one.durable, "auto_delete": one.auto_delete,
            "internal": one.internal, "arguments": plain(one.arguments),
        }
        for one in topology.exchanges
        if one.owner == "ours"
    ]  # fmt: skip
    document["queues"] = [
        {
            "name": one.name, **place, "durable": one.durable, "auto_delete": one.auto_delete,
            "arguments": plain(one.declared_arguments),
        }
        for one in topology.queues
        if one.owner == "ours"
    ]  # fmt: skip
    document["bindings"] = [_binding(one, place) for one in listed_bindings(topology, rings=rings)]
    document["policies"] = [
        {
            "name": one.name, **place, "pattern": one.pattern, "apply-to": one.apply_to,
            "definition": plain(one.definition), "priority": one.priority,
        }
        for one in topology.policies
        if one.owner == "ours"
    ]  # fmt: skip
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def listed_bindings(topology: ObjectSet, *, rings: bool) -> Iterator[BindingDefinition]:
    """Yield the bindings that are ours; those of hash exchanges come last, in ring order.

    Args:
        topology: whose bindings.
        rings: whether those of hash exchanges are wanted.
    """
    yield from (one for one in topology.bindings if one.owner == "ours")
    for exchange in topology.exchanges:
        if rings and exchange.owner == "ours":
            for member in exchange.ring or ():
                yield BindingDefinition(exchange.name, member.destination, member.key, member.arguments)


def unwritable(topology: ObjectSet, where: str) -> Iterator[Problem]:
    """Yield what neither a definitions file nor the Kubernetes operator can say.

    Args:
        topology: what to write.
        where: names the format, in the plural.
    """
    for exchange in topology.exchanges:
        if exchange.owner == "ours" and exchange.slots is not None:
            rule = f"{where} do not know which queue has which slot"
            yield Problem(
                f"exchange {exchange.name}",
                "",
                rule,
                "apply the file, and write what broker.topology() says then",
            )
    for queue in topology.queues:
        if queue.owner == "ours" and queue.exclusive:
            rule = f"{where} have no exclusive queues"
            yield Problem(f"queue {queue.name}", "", rule, "leave the queue out: its client declares it")


def hash_exchanges(topology: ObjectSet) -> str:
    """Return the names of our hash exchanges that have members, for a sentence."""
    return ", ".join(
        one.name
        for one in topology.exchanges
        if one.type == HASH_EXCHANGE and one.owner == "ours" and one.ring
    )


def _explanation(topology: ObjectSet, *, rings: bool) -> str:
    names = hash_exchanges(topology)
    if not names:
        return "Written by rabbit_chx."
    if rings:
        return (
            f"Written by rabbit_chx. RabbitMQ binds in parallel when it imports this file, so the ring order of {names} "
            "is lost. To keep it, export without the rings, import that, and bind their members in order."
        )
    return f"Written by rabbit_chx without the bindings of {names}: after the import, bind their members in ring order."


def _binding(one: BindingDefinition, place: dict[str, str]) -> dict[str, Any]:
    to_exchange = isinstance(one.destination, ExchangeRef)
    return {
        "source": one.source,
        **place,
        "destination": one.destination.name if isinstance(one.destination, ExchangeRef) else one.destination,
        "destination_type": "exchange" if to_exchange else "queue",
        "routing_key": one.routing_key,
        "arguments": plain(one.arguments),
    }
