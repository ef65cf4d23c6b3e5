"""Findings about the ring of a live exchange by itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rabbit_chx.analysis import Finding, ring_findings
from rabbit_chx.checking.checked_exchange import CheckContext, CheckedExchange
from rabbit_chx.fixes import Argument, CommandLine, Fix
from rabbit_chx.planning.movement import shares_moved_without
from rabbit_chx.routing import ExchangeRef
from rabbit_chx.routing.bindings import Place
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.routing.release import GHOSTS_SINCE
from rabbit_chx.topology.objects.objects import ExchangeDefinition
from rabbit_chx.words import percent, plural

_MOST_PLACES = 5
FEDERATION_LINK = "federation-link"


def live_ring_findings(checked: CheckedExchange) -> Iterator[Finding]:
    """Yield the faults of a ring by itself."""
    if checked.unroutable.share:
        yield _unroutable_finding(checked)
    yield from _find_filters(checked)
    alternate = checked.context.reach.alternate_of(checked.exchange)
    for finding in ring_findings(checked.ring, [member.binding for member in checked.bound], alternate):
        message, fix, place = finding.message, checked.repair_command, finding.destination
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
                fix = Fix(
                    fix,
                    "; unbind an exchange before you delete it: 4.3 before 4.3.6 leaves its buckets (rabbitmq-server #17255)",
                )
        if finding.kind == "hole" and not checked.bound:
            fix = Fix(f"bind a queue to {checked.name}: ", checked.apply_command)
        elif finding.kind == "second-binding" and not checked.needs_repair:
            fix = Fix(f"list {place!s} once, and ", checked.apply_command)
        yield replace(finding, message=message, fix=fix, exchange=checked.name)
    yield from passing_findings(checked.exchange, checked.ring, checked.context)


def passing_findings(
    exchange: ExchangeDefinition, key_map: KeyMap, context: CheckContext
) -> Iterator[Finding]:
    """Yield the destinations of a durable exchange that hashes which the broker deletes by itself, and the federation links."""
    name, shares, links, transient = exchange.name, key_map.shares(), context.links, context.transient
    places = dict.fromkeys(key_map.destinations) if exchange.durable else ()
    passing = [place for place in places if place in transient and place not in links]
    for place, share in shares_moved_without(key_map, passing).items():
        why, fix = transient[place], f"replace {place!s} by a durable queue"
        message = f"{place!s} {why}; {percent(share)} of all keys move then"
        if key_map.hashing.has_order:
            fix += ", in a ring of durable queues"
            if context.release.numbers >= GHOSTS_SINCE and ("exclusive" in why or "not durable" in why):
                lost = percent(shares.get(place, 0.0))
                message += (
                    f", and after a restart of the broker its buckets stay, so that {lost} are unroutable"
                )
        yield Finding("transient-destination", message, fix, exchange=name, destination=place, share=share)
    for place, share in ((place, share) for place, share in shares.items() if place in links):
        message = (
            f"a federation link takes {percent(share)} of the keys: {place!s} sends them to its downstream, so that no queue here gets "
            "them, and the downstream gets no others"
        )
        fix = Fix(
            f"for all messages on both sides, publish to a fanout exchange that is bound to {name}, federate that one, and take {name} "
            "out of the federation policy of the downstream; if this share is intended, ",
            CommandLine("check", "leave this finding out", (name,), (Argument("ignore", FEDERATION_LINK),)),
        )
        yield Finding(FEDERATION_LINK, message, fix, exchange=name, destination=place, share=share)


def _unroutable_finding(checked: CheckedExchange) -> Finding:
    places = sorted(checked.unroutable.by_place.items(), key=lambda place: -place[1])
    parts = [f"{percent(share)} {_why_unroutable(checked, place)}" for place, share in places[:_MOST_PLACES]]
    if len(places) > _MOST_PLACES:
        parts.append(f"{len(places) - _MOST_PLACES:,} more destinations")
    share = checked.unroutable.share
    message = (
        f"{percent(share)} of all keys end in no queue ({', '.join(parts)}): a broker acks and drops such messages, or returns "
        "those that are mandatory"
    )
    leading = [place for place, _ in places if place is not None and checked.context.reach.exists(place)]
    if checked.layout is not None:
        fix = checked.apply_command
    elif leading:
        fix = f"bind a queue to {leading[0]!s}, or take it out of the ring"
    elif checked.bound:
        fix = checked.repair_command
    else:
        fix = Fix(f"bind a queue to {checked.name}: ", checked.apply_command)
    return checked.finding("unroutable-share", message, fix, share=share)


def _why_unroutable(checked: CheckedExchange, place: Place) -> str:
    if place is None:
        alternate = checked.context.reach.alternate_of(checked.exchange)
        without = "at holes" if checked.ring.bucket_count else "without buckets"
        return without if alternate is None else f"{without}, and {alternate} leads to no queue"
    if not checked.context.reach.exists(place):
        return f"at {place!s}, which does not exist"
    if checked.context.reach.leads_nowhere(str(getattr(place, "name", place))):
        return f"at {place!s}, which leads to no queue"
    return f"at {place!s}, behind which they end: at a direct exchange that is bound with other keys, or in a cycle of exchanges"


def _find_filters(checked: CheckedExchange) -> Iterator[Finding]:
    """Yield the exchanges behind the ring that pass only some messages on, unless their loss is counted."""
    for found in checked.context.reach.filters_of(checked.exchange):
        share = checked.shares.get(found.place, 0.0)
        if checked.unroutable.by_place.get(found.place) == share:
            continue
        name, type_ = found.exchange.name, found.exchange.type
        rest = "is lost" if found.alternate is None else f"goes to its alternate exchange {found.alternate}"
        what = "headers" if type_ == "headers" else "routing key"
        message = (
            f"{percent(share)} of all keys go to {found.place!s}, where the {type_} exchange {name} passes only messages with a matching "
            f"{what} on: any other {rest}"
        )
        fix = f"bind a queue to {name} that gets all messages, or use a fanout exchange"
        is_counted = found.alternate is not None and not checked.context.reach.leads_nowhere(found.alternate)
        yield checked.finding("unroutable-share", message, fix, found.place, 0.0 if is_counted else None)
