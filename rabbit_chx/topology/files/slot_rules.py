"""What a file cannot mean about slots: who shares them, and what is named like something that they are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rabbit_chx.amqp.frames import MAX_SHORTSTR
from rabbit_chx.routing.bindings import weight_of
from rabbit_chx.topology.problems import Problem, shown_value
from rabbit_chx.topology.slots.slot_names import SlotNames

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rabbit_chx.topology.files.toml_reader import FileEntry, FileObjects
    from rabbit_chx.topology.objects import ExchangeDefinition

__all__ = ["slot_clashes", "slot_findings"]

#: The field concerned, its value, what is wrong and what to do.
_Finding = tuple[str, Any, str, str]
_SHOWN = 10


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
