"""Rules of a topology file beyond single fields; and misspelled names.

`arguments` has the rules about arguments, flags and settings, by release. A broker accepts a name that is probably misspelled, so that is
not a fault of the file.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from operator import attrgetter
from typing import Any, TypeAlias

from rabbit_chx.amqp.exchange_types import EXCHANGE_TYPES
from rabbit_chx.analysis.findings import Finding
from rabbit_chx.checks import MAX_SHORTSTR, similar
from rabbit_chx.routing import ExchangeRef
from rabbit_chx.routing.bindings import MAX_BINDING_WEIGHT, MAX_BUCKETS, weight_of
from rabbit_chx.routing.release import Release
from rabbit_chx.routing.rules import WEIGHT_IS_REFUSED
from rabbit_chx.topology.file.fields import FileEntry, FileObjects, Problems, file_finding
from rabbit_chx.topology.objects.kinds import choice
from rabbit_chx.topology.objects.objects import (
    BROKERS_EXCHANGES,
    BROKERS_OWN,
    HASH_EXCHANGE,
    QUEUE_TYPE,
    QUEUE_TYPES,
    BindingDefinition,
    ExchangeDefinition,
    ObjectSet,
    PolicyDefinition,
    QueueDefinition,
)
from rabbit_chx.topology.rules.arguments import limit_faults
from rabbit_chx.topology.rules.policies import SHARDS_PER_NODE, find_applying_policy
from rabbit_chx.topology.slots.owners import SlotNames

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
        if exchange.type not in EXCHANGE_TYPES and (meant := similar(exchange.type, EXCHANGE_TYPES, _CLOSE)):
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
