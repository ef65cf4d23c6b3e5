"""Rules of a topology file beyond single fields, which every supported release enforces; and misspelled names.

Each rule about arguments and flags was tested on 3.8.9, 3.10.8, 4.0.5 and 4.3.6, which all refuse such a declaration. Rules of some
releases only are not here, because a file does not contain its release. A broker accepts a name that is probably misspelled, so that is not
a fault of the file.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches
from itertools import islice
from operator import attrgetter
from typing import Any, NamedTuple

from rabbit_chx.amqp.frames import MAX_SHORTSTR
from rabbit_chx.amqp.names import too_long
from rabbit_chx.analysis.findings import Finding
from rabbit_chx.checks import is_whole
from rabbit_chx.routing import Destination, ExchangeRef
from rabbit_chx.routing.bindings import weight_of
from rabbit_chx.routing.message import HASH_ARGUMENTS, HASH_PROPERTIES
from rabbit_chx.routing.ring_changes import MAX_BUCKETS
from rabbit_chx.topology.arguments import plain
from rabbit_chx.topology.fields import FileEntry, FileObjects, file_finding, similar
from rabbit_chx.topology.objects import (
    HASH_EXCHANGE,
    QUEUE_TYPE,
    QUEUE_TYPES,
    BindingDefinition,
    ExchangeDefinition,
    ObjectSet,
    PolicyDefinition,
    QueueDefinition,
    SlotNames,
)
from rabbit_chx.topology.policies import SHARDS_PER_NODE, applying_policy

#: The field, its value, the fault and the remedy.
_Finding = tuple[str, Any, str, str]
_Rule = Callable[["FileEntry"], Iterator[_Finding]]


class _ArgumentRule(NamedTuple):
    """A rule about an argument.

    Attributes:
        is_right: returns True if a value is valid.
        rule: the message otherwise.
        of_type: the type of exchange or queue; None: any type.
    """

    argument: str
    is_right: Callable[[Any], bool]
    rule: str
    remedy: str
    of_type: str | None = None


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _count(argument: str, least: int, most: int | None = None, unit: str = "") -> _ArgumentRule:
    return _ArgumentRule(
        argument,
        lambda value: is_whole(value) and value >= least and (most is None or value <= most),
        f"{argument} is a whole number{unit} from {least}{'' if most is None else f' to {most}'}",
        "write such a number, without quotes",
    )


_MAX_AGE = re.compile(r"[0-9]+[YMDhms]")
_OVERFLOWS = ("drop-head", "reject-publish", "reject-publish-dlx")
#: The arguments that a type of queue refuses.
_REFUSED = {
    "quorum": ("x-max-priority", "x-queue-mode"),
    "stream": (
        "x-message-ttl", "x-expires", "x-max-length", "x-max-priority", "x-dead-letter-exchange", "x-overflow",
        "x-dead-letter-routing-key", "x-single-active-consumer", "x-queue-mode", "x-delivery-limit",
    ),
}  # fmt: skip
_NOUNS = {"quorum": "a quorum queue", "stream": "a stream"}
_QUEUE_RULES = (
    *(
        _ArgumentRule(name, lambda _: False, f"{_NOUNS[type_]} has no {name}", "leave it out", type_)
        for type_, refused in _REFUSED.items()
        for name in refused
    ),
    _count("x-message-ttl", 0, unit=" of milliseconds"),
    _count("x-expires", 1, unit=" of milliseconds"),
    _count("x-max-length", 0),
    _count("x-max-length-bytes", 0),
    _count("x-max-priority", 0, 255),
    _ArgumentRule("x-dead-letter-exchange", _is_text, "x-dead-letter-exchange is text", "write it in quotes"),
    _ArgumentRule(
        "x-dead-letter-routing-key", _is_text, "x-dead-letter-routing-key is text", "write it in quotes"
    ),
    _ArgumentRule(
        "x-single-active-consumer",
        lambda value: isinstance(value, bool),
        "x-single-active-consumer is true or false",
        "write one of them, without quotes",
    ),
    _ArgumentRule(
        "x-overflow",
        lambda value: value in _OVERFLOWS,
        f"x-overflow is {', '.join(_OVERFLOWS[:-1])} or {_OVERFLOWS[-1]}",
        "write one of them",
    ),
    _ArgumentRule(
        "x-max-age",
        lambda value: _is_text(value) and _MAX_AGE.fullmatch(value) is not None,
        "x-max-age is a number with a unit: Y, M, D, h, m or s",
        'write it as "7D"',
        "stream",
    ),
)
_EXCHANGE_RULES = (
    _ArgumentRule("alternate-exchange", _is_text, "an exchange is named by text", "write its name in quotes"),
    _ArgumentRule(
        "hash-header",
        _is_text,
        "a header is named by text",
        "write the header's name in quotes",
        HASH_EXCHANGE,
    ),
)
_DEAD_LETTER_KEY = "x-dead-letter-routing-key"
_MATCHES = ("all", "any", "all-with-x", "any-with-x")
#: The value of a flag that queues other than classic ones refuse, and why.
_REFUSED_FLAGS = (
    ("durable", False, "always durable"),
    ("exclusive", True, "never exclusive"),
    ("auto_delete", True, "never deleted automatically"),
)
_SHOWN = 10
_ENTRY_EACH = "write an entry with its own `slots` for each queue"
_TYPES = ("direct", "fanout", "topic", "headers", HASH_EXCHANGE, "x-modulus-hash")
_EXCHANGE_ARGUMENTS = ("alternate-exchange",)
_QUEUE_ARGUMENTS = (
    "x-message-ttl", "x-expires", "x-max-length", "x-max-length-bytes", "x-max-priority", "x-max-age", "x-overflow",
    "x-dead-letter-exchange", "x-dead-letter-routing-key", "x-dead-letter-strategy", "x-single-active-consumer",
    "x-queue-mode", "x-queue-version", "x-queue-master-locator", "x-queue-leader-locator", "x-delivery-limit",
    "x-initial-cluster-size", "x-quorum-initial-group-size", "x-quorum-target-group-size", "x-consumer-timeout",
    "x-max-in-memory-length", "x-max-in-memory-bytes", "x-stream-max-segment-size-bytes", "x-stream-filter-size-bytes",
)  # fmt: skip
_CLOSE = 0.85
_NUMBERS = re.compile(r"[0-9]+")
#: How many names are compared with all others at most.
_COMPARED = 100


def problems_of(objects: FileObjects) -> Iterator[Finding]:
    """Yield the faults beyond single fields; for an entry with ranges, each fault once."""
    types = {entry.value.name: entry.value.type for entry in objects.exchanges if "type" not in entry.bad}
    policies = [entry.value for entry in objects.policies]
    rules: tuple[tuple[list[FileEntry], tuple[_Rule, ...]], ...] = (
        (
            objects.exchanges,
            (_name, _exchange_arguments, _ring, _slots, lambda entry: _no_ring(entry, policies)),
        ),
        (objects.queues, (_name, _queue_type, _queue_flags, _queue_arguments)),
        (objects.bindings, (_binding_names, lambda entry: _binding_source(entry, types))),
        (objects.policies, (lambda entry: _text("name", entry.value.name),)),
    )
    for entries, of_entries in rules:
        reported = set()
        for entry in entries:
            for field, value, what, remedy in (finding for rule in of_entries for finding in rule(entry)):
                path = field if field.startswith(entry.path) else f"{entry.path}.{field}"
                if (path, remedy) not in reported:
                    reported.add((path, remedy))
                    yield file_finding(path, value, what, remedy)
    yield from _made_by_slots(objects)
    yield from _twice(objects.exchanges, "exchange", "name")
    yield from _twice(objects.queues, "queue", "name")
    yield from _twice(objects.policies, "policy", "name")
    yield from _twice(objects.bindings, "binding", "source", "destination", "routing_key", "arguments")


def _twice(entries: list[FileEntry], noun: str, *identity: str) -> Iterator[Finding]:
    first: dict[object, str] = {}
    reported = set()
    for entry in entries:
        key = attrgetter(*identity)(entry.value)
        if key not in first:
            first[key] = entry.path
        elif entry.path not in reported:
            reported.add(entry.path)
            rule = f"this {noun} is in the file already, as {first[key]}"
            if first[key] == entry.path:
                rule = f"this entry stands for the same {noun} more than once"
            value = getattr(entry.value, identity[0])
            yield file_finding(f"{entry.path}.{identity[0]}", value, rule, "write each one once")


def _name(entry: FileEntry) -> Iterator[_Finding]:
    name = entry.value.name
    yield from _text("name", name)
    if name.startswith("amq.") and entry.value.owner == "ours" and "owner" not in entry.bad:
        rule = "names that begin with amq. are the broker's own"
        yield "name", name, rule, 'write another name, or owner = "external" if it is there already'


def _text(field: str, text: str) -> Iterator[_Finding]:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        rule = "the name has half of a surrogate pair, which no UTF-8 has"
        yield field, None, rule, "write whole characters"
        return
    if size > MAX_SHORTSTR:
        yield field, text, too_long("the text", size), "write a shorter one"
    if "\n" in text or "\r" in text:
        rule = "RabbitMQ takes line ends out of names, so the name would be another"
        yield field, text, rule, "write it on one line"


def _destination(place: Destination) -> tuple[str, str]:
    return ("exchange", place.name) if isinstance(place, ExchangeRef) else ("queue", place)


def _arguments(
    definition: ExchangeDefinition | QueueDefinition, rules: Iterable[_ArgumentRule]
) -> Iterator[_Finding]:
    right = set(definition.arguments)
    for rule in rules:
        if rule.argument in right and rule.of_type in (None, definition.type):
            value = definition.arguments[rule.argument]
            if not rule.is_right(value):
                right.remove(rule.argument)
                yield f"arguments.{rule.argument}", value, rule.rule, rule.remedy


def _exchange_arguments(entry: FileEntry) -> Iterator[_Finding]:
    exchange: ExchangeDefinition = entry.value
    arguments = exchange.arguments
    yield from _arguments(exchange, _EXCHANGE_RULES)
    if exchange.type != HASH_EXCHANGE or "hash-property" not in arguments:
        return
    if "hash-header" in arguments:
        rule = "hash-header and hash-property exclude each other"
        yield "arguments", plain(arguments), rule, "write only one of them"
    hashed = arguments["hash-property"]
    if hashed not in HASH_PROPERTIES:
        meant = similar(hashed, HASH_PROPERTIES) if isinstance(hashed, str) else None
        rule = f"only {', '.join(HASH_PROPERTIES[:-1])} and {HASH_PROPERTIES[-1]} can be hashed"
        remedy = f'write "{meant}"' if meant else "write one of them, or use hash-header"
        yield "arguments.hash-property", hashed, rule, remedy


def _ring(entry: FileEntry) -> Iterator[_Finding]:
    buckets = 0
    places = set()
    for member in entry.members:
        place: Destination = member.value.destination
        field, name = _destination(place)
        path = f"{member.path}.{field}"
        yield from _text(path, name)
        if member.bad:
            continue
        buckets += weight_of(place, member.value.key)
        if place in places:
            more = "buckets" if entry.value.slots is None else "slots"
            remedy = f"write each member once; a weight gives it more {more}"
            yield path, name, f"{field} {name} is a member already", remedy
        places.add(place)
    if buckets > MAX_BUCKETS:
        rule = f"the weights add up to {buckets}: at most {MAX_BUCKETS} buckets are computed here"
        yield "ring", None, rule, "divide all weights by the same number"


def _no_ring(entry: FileEntry, policies: Sequence[PolicyDefinition]) -> Iterator[_Finding]:
    exchange: ExchangeDefinition = entry.value
    is_ours = exchange.type == HASH_EXCHANGE and exchange.owner == "ours"
    has_members = {"ring", "slots", "members"} & (entry.written.keys() | entry.bad)  # bad: misspelled
    if not is_ours or has_members or {"type", "owner"} & entry.bad:
        return
    policy = applying_policy(exchange, policies)
    if policy is None or SHARDS_PER_NODE not in policy.definition:
        rule = f"an exchange of type {HASH_EXCHANGE} needs its members, in the order in which they are bound"
        remedy = 'write ring = [{ queue = "...", weight = 1 }], or ring = [] for none'
        yield "ring", None, rule, f"{remedy}; only a policy of the file that shards it may stand in for them"


def _queue_type(entry: FileEntry) -> Iterator[_Finding]:
    queue: QueueDefinition = entry.value
    if {"type", "arguments"} & entry.bad or QUEUE_TYPE not in entry.written.get("arguments", ()):
        return
    type_ = queue.arguments.get(QUEUE_TYPE, queue.type)
    field = f"arguments.{QUEUE_TYPE}"
    if type_ not in QUEUE_TYPES:
        meant = similar(type_, QUEUE_TYPES) if isinstance(type_, str) else None
        remedy = f'write type = "{meant}" instead' if meant else "write `type` instead, with one of them"
        yield field, type_, "a queue's type is classic, quorum or stream", remedy
    elif entry.written.get("type", queue.type) != type_ or type_ != queue.type:
        yield field, type_, "`type` says another type", f"leave {QUEUE_TYPE} out"


def _queue_flags(entry: FileEntry) -> Iterator[_Finding]:
    queue: QueueDefinition = entry.value
    if queue.type not in _NOUNS or "type" in entry.bad:
        return
    for field, refused, message in _REFUSED_FLAGS:
        if getattr(queue, field) is refused:
            yield (
                field,
                refused,
                f"{_NOUNS[queue.type]} is {message}",
                f'leave `{field}` out, or write type = "classic"',
            )


def _queue_arguments(entry: FileEntry) -> Iterator[_Finding]:
    queue: QueueDefinition = entry.value
    yield from _arguments(queue, _QUEUE_RULES)
    key = queue.arguments.get(_DEAD_LETTER_KEY)
    if _is_text(key) and queue.type != "stream" and "x-dead-letter-exchange" not in queue.arguments:
        rule = "a routing key for dead letters needs an exchange for them"
        remedy = 'write x-dead-letter-exchange too; "" is the default exchange'
        yield f"arguments.{_DEAD_LETTER_KEY}", key, rule, remedy


def _binding_names(entry: FileEntry) -> Iterator[_Finding]:
    binding: BindingDefinition = entry.value
    yield from _text("source", binding.source)
    yield from _text(*_destination(binding.destination))
    size = len(binding.routing_key.encode(errors="replace"))
    if size > MAX_SHORTSTR:
        yield "routing_key", binding.routing_key, too_long("the text", size), "write a shorter one"


def _binding_source(entry: FileEntry, types: dict[str, str]) -> Iterator[_Finding]:
    binding: BindingDefinition = entry.value
    type_ = types.get(binding.source)
    if type_ == HASH_EXCHANGE:
        rule = f"{binding.source} is of type {HASH_EXCHANGE}, and the order of its bindings decides"
        yield "source", binding.source, rule, "write the destination as a member of its `ring`"
    match = binding.arguments.get("x-match", "all")
    if (type_ == "headers" or binding.source in ("amq.headers", "amq.match")) and match not in _MATCHES:
        rule = f"x-match is {', '.join(_MATCHES[:-1])} or {_MATCHES[-1]}"
        yield "arguments.x-match", match, rule, "write one of them"


def _slots(entry: FileEntry) -> Iterator[_Finding]:
    exchange: ExchangeDefinition = entry.value
    count, members = exchange.slots, exchange.members
    if count is None or members is None:
        return
    yield from _slot_names(entry, SlotNames(exchange.name, count))
    if not entry.written["members"]:
        yield "members", None, "the slots have no queue", "write one member at least"
    elif count < len(members):
        rule = f"{count} {'slot is' if count == 1 else 'slots are'} not enough for {len(members)} members"
        yield "slots", count, rule, "give each member a slot, and better ten"
    elif any(member.bad for member in entry.members):
        return
    elif any(member.slots is not None for member in members):
        yield from _slot_lists(entry, exchange.name, count)
    else:
        weights = [weight_of(member.destination, member.key) for member in members]
        for member, weight in zip(entry.members, weights, strict=True):
            if count * weight < sum(weights):
                rule = f"{weight} of {sum(weights)} is less than one of {count} slots"
                yield f"{member.path}.weight", weight, rule, "write more slots, or a larger weight"


def _slot_names(entry: FileEntry, names: SlotNames) -> Iterator[_Finding]:
    longest = names.slots[-1]
    if len(longest.encode(errors="replace")) > MAX_SHORTSTR:
        rule = (
            f"the last slot exchange would be {longest:.40}..., and a name has at most {MAX_SHORTSTR} bytes"
        )
        yield "name", names.exchange, rule, "write a shorter one"
    for member in entry.members:
        if member.value.destination == names.park:
            rule = f"{names.park} is the parking queue of {names.exchange}"
            yield f"{member.path}.queue", names.park, rule, "write another queue"


def _slot_lists(entry: FileEntry, exchange: str, count: int) -> Iterator[_Finding]:
    rule = f"if one member lists its slots, all do, and each of 0 to {count - 1} is there once"
    queue_of: dict[int, str] = {}
    findings: list[_Finding] = []
    entries_of = Counter(member.path for member in entry.members)
    for member in entry.members:
        path, queue = f"{member.path}.slots", member.value.destination
        numbers = member.value.slots
        if numbers is None:
            remedy = f"list the slots of {queue} in {exchange} too, or give weights to all members"
            findings.append((path, None, rule, remedy))
        elif entries_of[member.path] > 1:
            several = f"this entry stands for {entries_of[member.path]} queues, and a slot of {exchange} has one queue"
            if (path, None, several, _ENTRY_EACH) not in findings:
                findings.append((path, None, several, _ENTRY_EACH))
            queue_of |= dict.fromkeys(numbers, queue)
            continue
        for number in numbers or ():
            if number >= count:
                out = f"{exchange} has the slots 0 to {count - 1}"
                findings.append((path, number, out, f"take {number} out of {queue}, or write more slots"))
            elif number in queue_of:
                twice = f"slot {number} of {exchange} is at {queue_of[number]} and at {queue}"
                findings.append((path, number, twice, "write it at one of them"))
            queue_of.setdefault(number, queue)
    missing = [number for number in range(count) if number not in queue_of]
    if missing and not findings:
        listing = ", ".join(map(str, missing[:_SHOWN])) + (", ..." if len(missing) > _SHOWN else "")
        findings.append(("members", None, rule, f"give slot {listing} to a member"))
    yield from findings


def _made_by_slots(objects: FileObjects) -> Iterator[Finding]:
    """Yield a fault for each entry that collides with the objects of an exchange with slots."""
    exchange_of: dict[str, str] = {}
    for entry in objects.exchanges:
        exchange: ExchangeDefinition = entry.value
        if exchange.slots is not None:
            exchange_of.update(
                dict.fromkeys(SlotNames(exchange.name, exchange.slots).exchanges, exchange.name)
            )
    reported = set()
    for entry in (*objects.exchanges, *objects.bindings):
        is_binding = isinstance(entry.value, BindingDefinition)
        field = "source" if is_binding else "name"
        name = getattr(entry.value, field)
        if name not in exchange_of or entry.path in reported:
            continue
        reported.add(entry.path)
        rule = f"the slots of {exchange_of[name]} make an exchange {name} of their own"
        remedy = "give this one another name, or leave it out"
        if is_binding:
            rule = f"the slots of {exchange_of[name]} make the bindings of {name}"
            remedy = f"write `members` of {exchange_of[name]} instead"
        yield file_finding(f"{entry.path}.{field}", name, rule, remedy)


def misspellings(topology: ObjectSet) -> Iterator[str]:
    """Yield a sentence for each name that is probably a misspelling of another one."""
    for exchange in topology.exchanges:
        if exchange.type not in _TYPES and (meant := _meant(exchange.type, _TYPES)):
            yield f"exchange {exchange.name} is of type {exchange.type}: did you mean {meant}?"
        known = (*_EXCHANGE_ARGUMENTS, *(HASH_ARGUMENTS if exchange.type == HASH_EXCHANGE else ()))
        yield from _strange_arguments(f"exchange {exchange.name}", exchange.arguments, known)
    for queue in topology.queues:
        yield from _strange_arguments(f"queue {queue.name}", queue.arguments, _QUEUE_ARGUMENTS)
    used_exchanges = [place.name for place in topology.unlisted if isinstance(place, ExchangeRef)]
    used_queues = [place for place in topology.unlisted if isinstance(place, str)]
    yield from _strange_names("exchange", used_exchanges, [exchange.name for exchange in topology.exchanges])
    yield from _strange_names("queue", used_queues, [queue.name for queue in topology.queues])


def _strange_arguments(what: str, arguments: Iterable[str], known: Iterable[str]) -> Iterator[str]:
    for name in arguments:
        if name not in known and (meant := _meant(name, known)):
            yield f"{what} has the argument {name}, which RabbitMQ ignores: did you mean {meant}?"


def _meant(name: str, known: Iterable[str]) -> str | None:
    spelled = name.lower().replace("_", "-")
    close = get_close_matches(spelled, known, 1, _CLOSE) or get_close_matches(
        f"x-{spelled}", known, 1, _CLOSE
    )
    return close[0] if close else None


def _strange_names(kind: str, used: Iterable[str], listed: Iterable[str]) -> Iterator[str]:
    """Yield a sentence for each used name that is similar to a listed one; numbers are ignored."""
    by_letters = {_NUMBERS.sub("", name): name for name in reversed(list(listed))}
    unknown: dict[str, str] = {}
    for name in used:
        unknown.setdefault(_NUMBERS.sub("", name), name)
    strange = ((letters, name) for letters, name in unknown.items() if letters not in by_letters)
    for letters, name in islice(strange, _COMPARED):
        close = get_close_matches(letters, by_letters, 1, _CLOSE)
        if close:
            yield f"{kind} {name} is not in the file: did you mean {by_letters[close[0]]}?"
