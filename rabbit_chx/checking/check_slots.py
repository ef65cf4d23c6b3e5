"""Findings about the slots of a live exchange by themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rabbit_chx.analysis import Finding
from rabbit_chx.checking.checked_exchange import CheckedExchange
from rabbit_chx.fixes import CommandLine, Fix
from rabbit_chx.grouping import grouped
from rabbit_chx.planning.refusals import ALLOW_DELETE
from rabbit_chx.planning.remedies import apply_fix
from rabbit_chx.routing import ExchangeRef
from rabbit_chx.topology.slots.owners import SlotNames
from rabbit_chx.words import FEW, listed, percent, plural


def slot_findings(checked: CheckedExchange) -> Iterator[Finding]:
    """Yield the faults of an exchange's slots by themselves."""
    yield from _find_slots_without_queue(checked)
    yield from _find_slots_with_several_queues(checked)
    yield from _find_slots_without_alternate(checked)
    yield from _find_parks_without_queue(checked)
    yield from _find_parked_messages(checked)
    yield from _find_transient_queues(checked)


def only(slots: Sequence[ExchangeRef]) -> ExchangeRef | None:
    """Return the slot that is the only one."""
    return slots[0] if len(slots) == 1 else None


def _share(checked: CheckedExchange, slots: Iterable[ExchangeRef]) -> float:
    return sum(checked.shares.get(slot, 0.0) for slot in slots)


def _fix(checked: CheckedExchange, by_hand: str) -> str:
    """Return the command that applies the topology, or without a topology the manual fix."""
    return checked.apply_command if checked.external or checked.file is not None else by_hand


def _find_slots_without_queue(checked: CheckedExchange) -> Iterator[Finding]:
    park_of = {slot: park for park, slots in checked.parks.items() for slot in slots}
    bare = [
        slot
        for slot, queues in checked.slots.queues.items()
        if not queues and checked.context.reach.exists(slot)
    ]
    for slots in ([slot for slot in bare if slot in park_of], [slot for slot in bare if slot not in park_of]):
        if slots:
            share, park = _share(checked, slots), park_of.get(slots[0])
            ends = "end in no queue" if park is None else f"wait in {park}"
            message = f"{_slots_are(slots)} bound to no queue: {percent(share)} of all keys {ends}"
            fix = _fix(checked, f"bind a queue to {slots[0].name}")
            yield checked.finding("missing", message, fix, only(slots), share)


def _find_slots_with_several_queues(checked: CheckedExchange) -> Iterator[Finding]:
    for slot, queues in checked.slots.queues.items():
        if len(queues) > 1:
            share = _share(checked, [slot])
            message = (
                f"slot {slot.name} is bound to {len(queues)} queues, {' and '.join(queues)}: each message of {percent(share)} of "
                "all keys is in all of them"
            )
            fix = _fix(checked, f"unbind all but one of them from {slot.name}")
            yield checked.finding("second-binding", message, fix, slot, share)


def list_slots_without_alternate(checked: CheckedExchange) -> list[ExchangeRef]:
    """Return the slots whose messages are lost while they have no queue."""
    with_alternate = {slot for slots in checked.parks.values() for slot in slots}
    prefix = SlotNames(checked.name, 1).prefix
    return [
        slot
        for slot in checked.slots.queues
        if slot not in with_alternate and slot.name.startswith(prefix) and checked.context.reach.exists(slot)
    ]


def _find_slots_without_alternate(checked: CheckedExchange) -> Iterator[Finding]:
    name, bare = checked.name, list_slots_without_alternate(checked)
    if not bare:
        return
    share = _share(checked, bare)
    message = (
        f"{_slots_are(bare)} without an alternate exchange: while one has no queue, as when it moves to another, its messages are "
        f"dropped or returned; that concerns {percent(share)} of all keys"
    )
    definition = """'{"alternate-exchange": "EXCHANGE"}'"""
    by_policy = f"rabbitmqctl set_policy {name}-slots '^{name}\\.slot\\.' {definition} --apply-to exchanges"
    fix = f"set one by a policy: {by_policy}"
    if checked.layout is not None:
        fix = apply_fix(checked.file, ALLOW_DELETE, external=checked.external)
    yield checked.finding("different", message, fix, only(bare), share)


def _find_parks_without_queue(checked: CheckedExchange) -> Iterator[Finding]:
    for park, slots in checked.parks.items():
        if checked.context.reach.leads_nowhere(park):
            message = (
                f"{park}, the alternate exchange of {plural(len(slots), 'slot')}, leads to no queue: a message that arrives while a slot has no "
                "queue is dropped or returned"
            )
            fix = _fix(checked, f"bind a queue to {park}")
            yield checked.finding("missing", message, fix, ExchangeRef(park), _share(checked, slots))


def _find_parked_messages(checked: CheckedExchange) -> Iterator[Finding]:
    for queue, count in checked.parked.items():
        if count:
            wait = "message waits" if count == 1 else "messages wait"
            message = f"{count:,} {wait} in {queue}: they arrived while their slot had no queue"
            fix = Fix(
                "write the exchange with `slots` in a topology file, and run: ",
                CommandLine("apply", "Broker.apply(plan(wanted, live))", ("FILE",)),
            )
            yield checked.finding("unexpected", message, _fix(checked, fix), queue)


def _find_transient_queues(checked: CheckedExchange) -> Iterator[Finding]:
    slots_of = grouped((queue, slot) for slot, queues in checked.slots.queues.items() for queue in queues)
    for queue, slots in slots_of.items():
        if (why := checked.context.transient.get(queue)) is not None:
            share, are = _share(checked, slots), "is" if len(slots) == 1 else "are"
            message = f"{queue} {why}; its {plural(len(slots), 'slot')} with {percent(share)} of all keys {are} without a queue then"
            fix = f"replace {queue} by a durable queue"
            yield checked.finding("transient-destination", message, fix, queue, share)


def _slots_are(slots: Sequence[ExchangeRef]) -> str:
    return f"{name_or_count([slot.name for slot in slots], 'slot', 'slots')} {'is' if len(slots) == 1 else 'are'}"


def name_or_count(names: Sequence[str], single: str, several: str) -> str:
    """Return the only name, or the number of names and the first of them."""
    if len(names) == 1:
        return f"{single} {names[0]}"
    return f"{len(names):,} {several} ({listed(names, FEW)})"
