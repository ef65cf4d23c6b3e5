"""What RabbitMQ refuses whatever its release, and what a file cannot mean: rules beyond single fields; and misspelled names.

A broker takes a name that is probably misspelled all the same, so it is no mistake of the file. Each rule about arguments and flags was tried on 3.8.9, 3.10.8, 4.0.5 and 4.3.6, which all refuse such a declaration. What
only some releases refuse is not here, since a file does not say its release.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from difflib import get_close_matches
from itertools import islice
from typing import TYPE_CHECKING, Any

from rabbit_chx.amqp.frames import MAX_SHORTSTR
from rabbit_chx.amqp.names import too_long
from rabbit_chx.checks import is_whole
from rabbit_chx.routing import HASH_ARGUMENTS, HASH_PROPERTIES, ExchangeRef
from rabbit_chx.routing.bindings import weight_of
from rabbit_chx.routing.ring_state import MAX_BUCKETS
from rabbit_chx.topology.arguments import plain
from rabbit_chx.topology.objects import (
    HASH_EXCHANGE,
    QUEUE_TYPE,
    QUEUE_TYPES,
    BindingDefinition,
    ExchangeDefinition,
    ObjectSet,
    PolicyDefinition,
    QueueDefinition,
    RingMember,
    SlotNames,
)
from rabbit_chx.topology.policies import SHARDS_PER_NODE, applying_policy
from rabbit_chx.topology.problems import Problem, shown_value, similar

if TYPE_CHECKING:
    from rabbit_chx.topology.fields import FileEntry, FileObjects

__all__ = ["misspellings", "problems_of"]

#: The field concerned, its value, what is wrong and what to do.
_Finding = tuple[str, Any, str, str]

_MATCHES = ("all", "any", "all-with-x", "any-with-x")
_OVERFLOWS = ("drop-head", "reject-publish", "reject-publish-dlx")
_MAX_AGE = re.compile(r"[0-9]+[YMDhms]")
#: The least and, where there is one, the largest value of arguments that are whole numbers.
_COUNTS = {
    "x-message-ttl": (0, None),
    "x-expires": (1, None),
    "x-max-length": (0, None),
    "x-max-length-bytes": (0, None),
    "x-max-priority": (0, 255),
}
_MILLISECONDS = ("x-message-ttl", "x-expires")
_REFUSED = {
    "quorum": ("x-max-priority", "x-queue-mode"),
    "stream": (
        "x-message-ttl", "x-expires", "x-max-length", "x-max-priority", "x-dead-letter-exchange", "x-overflow",
        "x-dead-letter-routing-key", "x-single-active-consumer", "x-queue-mode", "x-delivery-limit",
    ),
}  # fmt: skip
_SHOWN = 10
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


def problems_of(objects: FileObjects) -> Iterator[Problem]:
    """Yield what is wrong beyond single fields; of an entry with ranges, each mistake once."""
    kinds = {one.value.name: one.value.type for one in objects.exchanges if "type" not in one.bad}
    policies = [one.value for one in objects.policies]
    for entries, rules in (
        (
            objects.exchanges,
            (
                _exchange_name,
                _exchange_arguments,
                _ring,
                slot_findings,
                lambda entry: _no_ring(entry, policies),
            ),
        ),
        (objects.queues, (_queue_name, _queue_type, _queue_flags, _queue_arguments)),
        (objects.bindings, (_binding_names, lambda entry: _binding_source(entry, kinds))),
        (objects.policies, (_policy_name,)),
    ):
        yield from _found(entries, rules)
    yield from slot_clashes(objects)
    yield from _twice(objects.exchanges, "name", "exchange", lambda one: one.name)
    yield from _twice(objects.queues, "name", "queue", lambda one: one.name)
    yield from _twice(objects.policies, "name", "policy", lambda one: one.name)
    yield from _twice(
        objects.bindings,
        "source",
        "binding",
        lambda one: (one.source, one.destination, one.routing_key, one.arguments),
    )


def _found(
    entries: list[FileEntry], rules: tuple[Callable[[FileEntry], Iterator[_Finding]], ...]
) -> Iterator[Problem]:
    said = set()
    for entry in entries:
        for rule in rules:
            for field, value, what, remedy in rule(entry):
                path = field if field.startswith(entry.path) else f"{entry.path}.{field}"
                if (path, remedy) not in said:
                    said.add((path, remedy))
                    yield Problem(path, shown_value(value), what, remedy)


def _twice(
    entries: list[FileEntry], field: str, noun: str, identity: Callable[[Any], Hashable]
) -> Iterator[Problem]:
    first: dict[Hashable, str] = {}
    said = set()
    for entry in entries:
        before = first.get(identity(entry.value))
        if before is None:
            first[identity(entry.value)] = entry.path
        elif entry.path not in said:
            said.add(entry.path)
            rule = f"this {noun} is in the file already, as {before}"
            if before == entry.path:
                rule = f"this entry stands for the same {noun} more than once"
            yield Problem(
                f"{entry.path}.{field}", shown_value(getattr(entry.value, field)), rule, "write each one once"
            )


def _name_finding(field: str, name: str) -> Iterator[_Finding]:
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        yield (
            field,
            None,
            "the name has half of a surrogate pair, which no UTF-8 has",
            "write whole characters",
        )
        return
    if size > MAX_SHORTSTR:
        yield field, name, too_long("the text", size), "write a shorter one"
    if "\n" in name or "\r" in name:
        yield (
            field,
            name,
            "RabbitMQ takes line ends out of names, so the name would be another",
            "write it on one line",
        )


def _declared_name(entry: FileEntry) -> Iterator[_Finding]:
    name = entry.value.name
    yield from _name_finding("name", name)
    if name.startswith("amq.") and entry.value.owner == "ours" and "owner" not in entry.bad:
        rule = "names that begin with amq. are the broker's own"
        yield "name", name, rule, 'write another name, or owner = "external" if it is there already'


_exchange_name = _queue_name = _declared_name


def _policy_name(entry: FileEntry) -> Iterator[_Finding]:
    yield from _name_finding("name", entry.value.name)


def _exchange_arguments(entry: FileEntry) -> Iterator[_Finding]:
    exchange: ExchangeDefinition = entry.value
    arguments = exchange.arguments
    alternate = arguments.get("alternate-exchange", "")
    if not isinstance(alternate, str):
        yield (
            "arguments.alternate-exchange",
            alternate,
            "an exchange is named by text",
            "write its name in quotes",
        )
    if exchange.type != HASH_EXCHANGE or "type" in entry.bad:
        return
    header, hashed = arguments.get("hash-header"), arguments.get("hash-property")
    if header is not None and hashed is not None:
        rule = "hash-header and hash-property exclude each other"
        yield "arguments", plain(arguments), rule, "write only one of them"
    if header is not None and not isinstance(header, str):
        yield (
            "arguments.hash-header",
            header,
            "a header is named by text",
            "write the header's name in quotes",
        )
    if hashed is not None and hashed not in HASH_PROPERTIES:
        rule = f"only {', '.join(HASH_PROPERTIES[:-1])} and {HASH_PROPERTIES[-1]} can be hashed"
        meant = similar(hashed, HASH_PROPERTIES) if isinstance(hashed, str) else None
        yield (
            "arguments.hash-property",
            hashed,
            rule,
            f'write "{meant}"' if meant else "write one of them, or use hash-header",
        )


def _destination_name(member: RingMember | BindingDefinition) -> tuple[str, str]:
    if isinstance(member.destination, ExchangeRef):
        return "exchange", member.destination.name
    return "queue", member.destination


def _ring(entry: FileEntry) -> Iterator[_Finding]:
    buckets = 0
    first: dict[Any, str] = {}
    for member in entry.members:
        value: RingMember = member.value
        field, name = _destination_name(value)
        yield from _name_finding(f"{member.path}.{field}", name)
        if member.bad:
            continue
        buckets += weight_of(*value.binding)
        if value.destination in first:
            rule = f"{field} {name} is a member already"
            more = "buckets" if entry.value.slots is None else "slots"
            remedy = f"write each member once; a weight gives it more {more}"
            yield f"{member.path}.{field}", name, rule, remedy
        first[value.destination] = member.path
    if buckets > MAX_BUCKETS:
        rule = f"the weights add up to {buckets}: at most {MAX_BUCKETS} buckets are computed here"
        yield "ring", None, rule, "divide all weights by the same number"


def _no_ring(entry: FileEntry, policies: Sequence[PolicyDefinition]) -> Iterator[_Finding]:
    exchange: ExchangeDefinition = entry.value
    is_ours = exchange.type == HASH_EXCHANGE and exchange.owner == "ours"
    said = {"ring", "slots", "members"} & (entry.written.keys() | entry.bad)  # bad: misspelled
    if not is_ours or said or {"type", "owner"} & entry.bad:
        return
    policy = applying_policy(exchange, policies)
    if policy is None or SHARDS_PER_NODE not in policy.definition:
        rule = f"an exchange of type {HASH_EXCHANGE} needs its members, in the order in which they are bound"
        remedy = 'write ring = [{ queue = "...", weight = 1 }], or ring = [] for none'
        yield "ring", None, rule, f"{remedy}; only a policy of the file that shards it may stand in for them"


def _queue_type(entry: FileEntry) -> Iterator[_Finding]:
    queue: QueueDefinition = entry.value
    if "type" in entry.bad:
        return
    said = queue.arguments.get(QUEUE_TYPE, queue.type)
    field = f"arguments.{QUEUE_TYPE}"
    if said not in QUEUE_TYPES:
        meant = similar(said, QUEUE_TYPES) if isinstance(said, str) else None
        remedy = f'write type = "{meant}" instead' if meant else "write `type` instead, with one of them"
        yield field, said, "a queue's type is classic, quorum or stream", remedy
    elif entry.written.get("type", queue.type) != said or said != queue.type:
        yield field, said, "`type` says another type", f"leave {QUEUE_TYPE} out"


def _noun(type_: str) -> str:
    return "a stream" if type_ == "stream" else f"a {type_} queue"


def _queue_flags(entry: FileEntry) -> Iterator[_Finding]:
    queue: QueueDefinition = entry.value
    if queue.type == "classic" or "type" in entry.bad:
        return
    for field, refused, says in (
        ("durable", False, "always durable"),
        ("exclusive", True, "never exclusive"),
        ("auto_delete", True, "never deleted automatically"),
    ):
        if getattr(queue, field) is refused:
            rule = f"{_noun(queue.type)} is {says}"
            yield field, refused, rule, f'leave `{field}` out, or write type = "classic"'


def _queue_arguments(entry: FileEntry) -> Iterator[_Finding]:
    queue: QueueDefinition = entry.value
    arguments = queue.arguments
    refused = () if "type" in entry.bad else _REFUSED.get(queue.type, ())
    for name, value in arguments.items():
        field = f"arguments.{name}"
        if name in refused:
            yield field, value, f"{_noun(queue.type)} has no {name}", "leave it out"
        elif name in _COUNTS:
            least, most = _COUNTS[name]
            if not is_whole(value, least, most or float("inf")):
                unit = " of milliseconds" if name in _MILLISECONDS else ""
                rule = f"{name} is a whole number{unit} from {least}{f' to {most}' if most else ''}"
                yield field, value, rule, "write such a number, without quotes"
        elif name in ("x-dead-letter-exchange", "x-dead-letter-routing-key") and not isinstance(value, str):
            yield field, value, f"{name} is text", "write it in quotes"
        elif name == "x-dead-letter-routing-key" and "x-dead-letter-exchange" not in arguments:
            rule = "a routing key for dead letters needs an exchange for them"
            yield field, value, rule, 'write x-dead-letter-exchange too; "" is the default exchange'
        elif name == "x-single-active-consumer" and not isinstance(value, bool):
            yield field, value, f"{name} is true or false", "write one of them, without quotes"
        elif name == "x-overflow" and value not in _OVERFLOWS:
            yield (
                field,
                value,
                f"x-overflow is {', '.join(_OVERFLOWS[:-1])} or {_OVERFLOWS[-1]}",
                "write one of them",
            )
        elif name == "x-max-age" and queue.type == "stream" and not (
            isinstance(value, str) and _MAX_AGE.fullmatch(value)
        ):  # fmt: skip
            yield field, value, "x-max-age is a number with a unit: Y, M, D, h, m or s", 'write it as "7D"'


def _binding_names(entry: FileEntry) -> Iterator[_Finding]:
    binding: BindingDefinition = entry.value
    field, name = _destination_name(binding)
    yield from _name_finding("source", binding.source)
    yield from _name_finding(field, name)
    size = len(binding.routing_key.encode(errors="replace"))
    if size > MAX_SHORTSTR:
        yield "routing_key", binding.routing_key, too_long("the text", size), "write a shorter one"


def _binding_source(entry: FileEntry, kinds: dict[str, str]) -> Iterator[_Finding]:
    binding: BindingDefinition = entry.value
    kind = kinds.get(binding.source)
    if kind == HASH_EXCHANGE:
        rule = f"{binding.source} is of type {HASH_EXCHANGE}, and the order of its bindings decides"
        yield "source", binding.source, rule, "write the destination as a member of its `ring`"
    match = binding.arguments.get("x-match", "all")
    headers = kind == "headers" or binding.source in ("amq.headers", "amq.match")
    if headers and match not in _MATCHES:
        rule = f"x-match is {', '.join(_MATCHES[:-1])} or {_MATCHES[-1]}"
        yield "arguments.x-match", match, rule, "write one of them"


def slot_findings(entry: FileEntry) -> Iterator[_Finding]:
    """Yield what is wrong with the slots of one exchange.

    Args:
        entry: the exchange.
    """
    exchange: ExchangeDefinition = entry.value
    if exchange.slots is None or exchange.members is None:
        return
    names = SlotNames(exchange.name, exchange.slots)
    yield from _name_findings(entry, names)
    if not entry.written["members"]:
        yield "members", None, "the slots have no queue", "write one member at least"
    elif exchange.slots < len(exchange.members):
        rule = f"{exchange.slots} {'slot is' if exchange.slots == 1 else 'slots are'} not enough for "
        rule += f"{len(exchange.members)} members"
        yield "slots", exchange.slots, rule, "give each member a slot, and better ten"
    elif any(member.bad for member in entry.members):
        return
    elif any(member.slots is not None for member in exchange.members):
        yield from _list_findings(entry, exchange.slots)
    else:
        yield from _weight_findings(entry, exchange.slots)


def _name_findings(entry: FileEntry, names: SlotNames) -> Iterator[_Finding]:
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


def _weight_findings(entry: FileEntry, count: int) -> Iterator[_Finding]:
    weights = [weight_of(*member.value.binding) for member in entry.members]
    total = sum(weights)
    for member, weight in zip(entry.members, weights, strict=True):
        if count * weight < total:
            rule = f"{weight} of {total} is less than one of {count} slots"
            yield f"{member.path}.weight", weight, rule, "write more slots, or a larger weight"


def _list_findings(entry: FileEntry, count: int) -> Iterator[_Finding]:
    rule = f"if one member lists its slots, all do, and each of 0 to {count - 1} is there once"
    taken: dict[int, str] = {}
    findings: list[_Finding] = []
    for member in entry.members:
        path = f"{member.path}.slots"
        listed = member.value.slots
        if listed is None:
            findings.append((path, None, rule, "list its slots too, or give weights to all members"))
        for number in listed or ():
            if number >= count:
                findings.append((path, number, rule, f"take {number} out, or write more slots"))
            elif number in taken:
                remedy = f"slot {number} is in {taken[number]} already: write it once"
                findings.append((path, number, rule, remedy))
            taken.setdefault(number, path)
    missing = [number for number in range(count) if number not in taken]
    if missing and not findings:
        listing = ", ".join(map(str, missing[:_SHOWN])) + (", ..." if len(missing) > _SHOWN else "")
        findings.append(("members", None, rule, f"give slot {listing} to a member"))
    yield from findings


def slot_clashes(objects: FileObjects) -> Iterator[Problem]:
    """Yield what the file says of exchanges that slots are made of.

    Args:
        objects: what the file says.
    """
    made: dict[str, str] = {}
    for entry in objects.exchanges:
        exchange: ExchangeDefinition = entry.value
        if exchange.slots is not None:
            made.update(dict.fromkeys(SlotNames(exchange.name, exchange.slots).exchanges, exchange.name))
    said = set()
    for entry in objects.exchanges:
        name = entry.value.name
        if name in made and entry.path not in said:
            said.add(entry.path)
            rule = f"the slots of {made[name]} make an exchange {name} of their own"
            yield Problem(
                f"{entry.path}.name", shown_value(name), rule, "give this one another name, or leave it out"
            )
    for entry in objects.bindings:
        source = entry.value.source
        if source in made and entry.path not in said:
            said.add(entry.path)
            rule = f"the slots of {made[source]} make the bindings of {source}"
            yield Problem(
                f"{entry.path}.source",
                shown_value(source),
                rule,
                f"write `members` of {made[source]} instead",
            )


def misspellings(topology: ObjectSet) -> Iterator[str]:
    """Yield a sentence for each name that is like another one that was probably meant.

    Args:
        topology: whose names.
    """
    for exchange in topology.exchanges:
        if exchange.type not in _TYPES and (meant := _meant(exchange.type, _TYPES)):
            yield f"exchange {exchange.name} is of type {exchange.type}: did you mean {meant}?"
        known = (*_EXCHANGE_ARGUMENTS, *(HASH_ARGUMENTS if exchange.type == HASH_EXCHANGE else ()))
        yield from _arguments(f"exchange {exchange.name}", exchange.arguments, known)
    for queue in topology.queues:
        yield from _arguments(f"queue {queue.name}", queue.arguments, _QUEUE_ARGUMENTS)
    used_exchanges = [one.name for one in topology.unlisted if isinstance(one, ExchangeRef)]
    used_queues = [one for one in topology.unlisted if isinstance(one, str)]
    yield from _names("exchange", used_exchanges, [one.name for one in topology.exchanges])
    yield from _names("queue", used_queues, [one.name for one in topology.queues])


def _arguments(what: str, arguments: Iterable[str], known: Iterable[str]) -> Iterator[str]:
    for name in arguments:
        if name not in known and (meant := _meant(name, known)):
            yield f"{what} has the argument {name}, which RabbitMQ ignores: did you mean {meant}?"


def _meant(name: str, known: Iterable[str]) -> str | None:
    plain = name.lower().replace("_", "-")
    close = get_close_matches(plain, known, 1, _CLOSE) or get_close_matches(f"x-{plain}", known, 1, _CLOSE)
    return close[0] if close else None


def _names(kind: str, used: Iterable[str], listed: Iterable[str]) -> Iterator[str]:
    """Yield a sentence for each used name whose letters are nearly those of a listed one; numbers do not count."""
    by_letters = {_NUMBERS.sub("", name): name for name in reversed(list(listed))}
    unknown: dict[str, str] = {}
    for name in used:
        unknown.setdefault(_NUMBERS.sub("", name), name)
    strange = ((letters, name) for letters, name in unknown.items() if letters not in by_letters)
    for letters, name in islice(strange, _COMPARED):
        close = get_close_matches(letters, by_letters, 1, _CLOSE)
        if close:
            yield f"{kind} {name} is not in the file: did you mean {by_letters[close[0]]}?"
