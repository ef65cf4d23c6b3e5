"""Findings about the ring of a live exchange by itself, and about its slots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from rabbit_chx.analysis import Finding, ring_findings
from rabbit_chx.checking.checked_exchange import CheckContext, CheckedExchange
from rabbit_chx.command_texts import apply_text
from rabbit_chx.grouping import grouped
from rabbit_chx.planning.movement import shares_moved_without
from rabbit_chx.planning.refusals import apply_fix
from rabbit_chx.routing import Destination, ExchangeRef
from rabbit_chx.routing.bindings import Place
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.routing.release import GHOSTS_SINCE
from rabbit_chx.topology.objects.objects import ExchangeDefinition
from rabbit_chx.topology.rules.reach import Reach, UnroutableKeys
from rabbit_chx.topology.slots.owners import SlotNames
from rabbit_chx.words import FEW, listed, percent, plural, share_text

_MOST_PLACES = 5


def live_ring_findings(checked: CheckedExchange) -> Iterator[Finding]:
    """Yield the faults of a ring by itself."""
    if checked.unroutable.share:
        yield _unroutable_finding(checked)
    alternate = checked.context.reach.alternate_of(checked.exchange)
    for finding in ring_findings(checked.ring, [member.binding for member in checked.bound], alternate):
        message = finding.message
        fix = checked.repair_command
        place = finding.destination
        if finding.kind == "ghost-bucket" and place is not None:
            ends = "go there"
            if not checked.context.reach.exists(place):
                ends = "are unroutable, since it does not exist"
                if alternate is not None:
                    ends += f", and the alternate exchange {alternate!r} does not get them"
            buckets = plural(checked.ring.buckets.count(place), "bucket")
            message = (
                f"{place!s} has {buckets} and no binding: {percent(checked.shares[place])} of all keys {ends}"
            )
            if isinstance(place, ExchangeRef):
                fix += "; unbind an exchange before you delete it: 4.3 before 4.3.6 leaves its buckets (rabbitmq-server #17255)"
        if finding.kind == "hole" and not checked.bound:
            fix = f"bind a queue to {checked.name}: {checked.apply_command}"
        elif finding.kind == "second-binding" and not checked.needs_repair:
            fix = f"list {place!s} once, and {checked.apply_command}"
        yield replace(finding, message=message, fix=fix, exchange=checked.name)
    yield from passing_findings(checked.exchange, checked.ring, checked.context)


def passing_findings(
    exchange: ExchangeDefinition, key_map: KeyMap, context: CheckContext
) -> Iterator[Finding]:
    """Yield the destinations of a durable exchange that hashes which the broker deletes by itself; federation links are none of them."""
    name = exchange.name
    links = context.links
    transient = context.transient
    shares = key_map.shares() if key_map.has_shares else {}
    places = dict.fromkeys(key_map.destinations) if exchange.durable else ()
    passing = [place for place in places if place in transient and place not in links]
    moved: Mapping[Destination, float | None] = dict.fromkeys(passing)
    if key_map.is_determined or not key_map.hashing.has_order:
        moved = shares_moved_without(key_map, passing)
    for place, share in moved.items():
        why = transient[place]
        fix = f"replace {place!s} by a durable queue"
        message = f"{place!s} {why}; {share_text(share)} of all keys move then"
        if key_map.hashing.has_order:
            fix += ", in a ring of durable queues"
            if context.release.numbers >= GHOSTS_SINCE and ("exclusive" in why or "not durable" in why):
                lost = percent(shares.get(place, 0.0))
                message += (
                    f", and after a restart of the broker its buckets stay, so that {lost} are unroutable"
                )
        yield Finding("transient-destination", message, fix, exchange=name, destination=place, share=share)


def _unroutable_finding(checked: CheckedExchange) -> Finding:
    lost, reach = checked.unroutable, checked.context.reach
    by_share = sorted(lost.by_place, key=lambda place: -lost.by_place[place])
    leading = [place for place in by_share if place is not None and reach.exists(place)]
    if checked.layout is not None:
        fix = checked.apply_command
    elif leading:
        fix = f"bind a queue to {leading[0]!s}, or take it out of the ring"
    elif checked.bound:
        fix = checked.repair_command
    else:
        fix = f"bind a queue to {checked.name}: {checked.apply_command}"
    message = _unroutable_text(checked.exchange, checked.ring, lost, reach)
    return checked.finding("unroutable-share", message, fix, share=lost.share)


def modulus_unroutable_findings(
    exchange: ExchangeDefinition, lost: UnroutableKeys, key_map: KeyMap, context: CheckContext
) -> Iterator[Finding]:
    """Yield the findings about keys of an ``x-modulus-hash`` exchange that reach no queue."""
    if not lost.share:
        return
    name = exchange.name
    if not key_map.destinations:
        fix = f"bind a queue to {name}"
        message = "nothing is bound: every message is unroutable"
        yield Finding("hole", message, fix, exchange=name, share=lost.share)
    else:
        fix = f"bind a queue to {listed([str(place) for place in lost.by_place])}, or unbind it from {name}"
    message = _unroutable_text(exchange, key_map, lost, context.reach)
    yield Finding("unroutable-share", message, fix, exchange=name, share=lost.share)


def _unroutable_text(
    exchange: ExchangeDefinition, key_map: KeyMap, lost: UnroutableKeys, reach: Reach
) -> str:
    places = sorted(lost.by_place.items(), key=lambda place: -place[1])
    parts = [
        f"{percent(share)} {_why_unroutable(exchange, key_map, place, reach)}"
        for place, share in places[:_MOST_PLACES]
    ]
    if len(places) > _MOST_PLACES:
        parts.append(f"{len(places) - _MOST_PLACES:,} more destinations")
    return (
        f"{percent(lost.share)} of all keys end in no queue ({', '.join(parts)}): a broker acks and drops such messages, or returns "
        "those that are mandatory"
    )


def _why_unroutable(exchange: ExchangeDefinition, key_map: KeyMap, place: Place, reach: Reach) -> str:
    if place is None:
        alternate = reach.alternate_of(exchange)
        without = "without buckets" if key_map.hashing.has_order else "without bindings"
        if key_map.bucket_count:
            without = "at holes"
        return without if alternate is None else f"{without}, and {alternate} leads to no queue"
    if not reach.exists(place):
        return f"at {place!s}, which does not exist"
    return f"at {place!s}, which leads to no queue"


# -- slots


def slot_findings(checked: CheckedExchange) -> Iterator[Finding]:
    """Yield the faults of an exchange's slots by themselves."""
    yield from _find_slots_without_queue(checked)
    yield from _find_slots_with_several_queues(checked)
    yield from _find_slots_without_alternate(checked)
    yield from _find_parks_without_queue(checked)
    yield from _find_parked_messages(checked)
    yield from _find_transient_queues(checked)


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
            share = _share(checked, slots)
            park = park_of.get(slots[0])
            ends = "end in no queue" if park is None else f"wait in {park}"
            message = f"{_slots_are(slots)} bound to no queue: {percent(share)} of all keys {ends}"
            fix = _fix(checked, f"bind a queue to {slots[0].name}")
            yield checked.finding_about_slots("missing", message, fix, slots, share)


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
    name = checked.name
    bare = list_slots_without_alternate(checked)
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
        fix = apply_fix(checked.file, deletes=True, external=checked.external)
    yield checked.finding_about_slots("different", message, fix, bare, share)


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
            fix = f"write the exchange with `slots` in a topology file, and run: {apply_text()}"
            yield checked.finding("unexpected", message, _fix(checked, fix), queue)


def _find_transient_queues(checked: CheckedExchange) -> Iterator[Finding]:
    slots_of = grouped((queue, slot) for slot, queues in checked.slots.queues.items() for queue in queues)
    for queue, slots in slots_of.items():
        if (why := checked.context.transient.get(queue)) is not None:
            share = _share(checked, slots)
            are = "is" if len(slots) == 1 else "are"
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
