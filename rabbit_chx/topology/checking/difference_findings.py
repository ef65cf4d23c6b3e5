"""The findings of differences: one table has the words of each, and what removes it."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

from rabbit_chx.analysis import Finding
from rabbit_chx.errors import InputError
from rabbit_chx.fixes import Fix
from rabbit_chx.routing import Destination, HashRing
from rabbit_chx.routing.bindings import Place
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.topology.checking.checked_exchange import CheckContext, CheckedExchange
from rabbit_chx.topology.checking.remedies import apply_fix
from rabbit_chx.topology.live_rings import make_ring
from rabbit_chx.topology.objects.changes import FieldChange, TopologyObject
from rabbit_chx.topology.objects.objects import (
    HASH_EXCHANGE,
    BindingDefinition,
    ExchangeDefinition,
    QueueDefinition,
    RingMember,
)
from rabbit_chx.topology.planning.diff import find_out_of_place
from rabbit_chx.topology.planning.difference import Difference, DifferenceKind
from rabbit_chx.topology.planning.refusals import ALLOW_DELETE
from rabbit_chx.topology.rules.policies import policy_in_the_way
from rabbit_chx.topology.slots.layout import SlotLayout
from rabbit_chx.words import listed, percent, plural

#: What a difference is about: an object, a binding, or one of an exchange with `queues` or of a slot; a member of a ring, or a slot as one; or a ring, one
#: that no broker has, or one without any of its slots.
_Sort: TypeAlias = Literal[
    "exchange", "queue", "policy", "binding", "listed", "member", "slot", "ring", "impossible", "unslotted"
]


class _Words(NamedTuple):
    """The message of a difference; `is_deletion`: what removes it is a deletion, which has to be allowed."""

    message: str
    is_deletion: bool = False


_DIFFERS = _Words("{kind} {name} differs: {fields}")
_IS_OWNED = _Words("{kind} {name} is owned and not in the topology", is_deletion=True)
_WORDS: Mapping[tuple[DifferenceKind, _Sort], _Words] = {
    ("missing", "exchange"): _Words(
        "exchange {name} does not exist: a channel that publishes to it is closed"
    ),
    ("missing", "queue"): _Words("queue {name} does not exist: no messages are stored for its consumers"),
    ("missing", "policy"): _Words("policy {name} does not exist: its settings do not apply"),
    ("missing", "binding"): _Words("the binding {name} does not exist: its messages do not reach {place}"),
    ("missing", "member"): _Words(
        "{place} is not bound (key {key}): the {share} of all keys that it would have go to other destinations"
    ),
    ("missing", "slot"): _Words(
        "{place} is not bound (key {key}): {share} of all keys belong to it and go to another queue"
    ),
    ("different", "exchange"): _DIFFERS,
    ("different", "queue"): _DIFFERS,
    ("different", "policy"): _DIFFERS,
    ("different", "member"): _Words("{place} is bound with {live_keys}, and in the topology with {keys}"),
    ("different", "ring"): _Words(
        "the buckets of the ring differ from {source}{counts}: {share} of all keys go to a different queue"
    ),
    ("different", "impossible"): _Words("no broker of this release has {such}: {error}"),
    ("different", "unslotted"): _Words(
        "the ring has none of the {slots} of the topology, but {others}: {share} of all keys have another queue than with slots"
    ),
    ("order", "ring"): _Words(
        "the ring has another order than {source}: {found} is where {belongs} belongs; {share} of all keys go to a different queue"
    ),
    ("unexpected", "exchange"): _IS_OWNED,
    ("unexpected", "queue"): _IS_OWNED,
    ("unexpected", "policy"): _IS_OWNED,
    ("unexpected", "binding"): _Words(
        "the binding {name} is owned and not in the topology: {place} gets its messages", is_deletion=True
    ),
    ("unexpected", "listed"): _Words("the binding {name} is not in the topology: {place} gets its messages"),
    ("unexpected", "member"): _Words(
        "{place} is bound and not in the topology: {share} of all keys go there"
    ),
}


def object_finding(difference: Difference, context: CheckContext) -> Finding:
    """Return the finding of a difference of an object, or of a binding of an exchange without a ring."""
    assert context.compared is not None  # without a topology there are no such differences
    kind, subject, share = difference.kind, difference.subject, None
    sort: _Sort = subject.kind
    place = suffix = ""
    if isinstance(subject, BindingDefinition):
        exchange, place = context.compared.wanted.exchange(subject.source), str(subject.destination)
        if exchange is not None and exchange.queues is not None and difference.share is not None:
            share, suffix = (
                difference.share,
                f"; {percent(difference.share)} of all keys go to a different queue",
            )
        if kind == "unexpected" and context.unwanted_bindings[subject] != "owned":
            sort = "listed"
    elif kind == "different" and isinstance(subject, ExchangeDefinition) and subject.type == HASH_EXCHANGE:
        share = difference.share
        suffix = "; keys are hashed otherwise" if share else ""
    words = _WORDS[kind, sort]
    fields = describe_differences(difference.fields)
    message = words.message.format(kind=subject.kind, name=subject.name, place=place, fields=fields) + suffix
    fix = apply_fix(context.file, external=not difference.is_ours)
    if words.is_deletion:
        fix = Fix("add it to the topology, or ", apply_fix(context.file, ALLOW_DELETE))
    elif kind == "missing" and difference.is_ours and isinstance(subject, ExchangeDefinition):
        fix = _past_policy(subject, context, fix)
    return finding_about(kind, subject, message, fix, share)


def finding_about(
    kind: str, subject: TopologyObject, message: str, fix: str, share: float | None = None
) -> Finding:
    """Return a finding about an object or a binding."""
    exchange = destination = None
    if isinstance(subject, BindingDefinition):
        exchange, destination = subject.source, subject.destination
    elif isinstance(subject, ExchangeDefinition):
        exchange = subject.name
    elif isinstance(subject, QueueDefinition):
        destination = subject.name
    return Finding(kind, message, fix, exchange=exchange, destination=destination, share=share)


def ring_findings_of(
    checked: CheckedExchange, differences: Iterable[Difference], healed: str = ""
) -> Iterator[Finding]:
    """Yield the finding of each difference of a ring and of its members: from the topology, or else from a ring after a repair.

    `healed` says what the repair follows; empty: the topology.
    """
    layout, is_assumed = (None, False) if healed else (checked.layout, checked.is_assumed)
    members = checked.repaired if healed or checked.listed is None else checked.listed.ring or ()
    for difference in differences:
        kind, subject, share = difference.kind, difference.subject, difference.share
        if isinstance(subject, BindingDefinition):
            place: Place = subject.destination
            sort: _Sort = "slot" if kind == "missing" and layout is not None else "member"
            facts = _member_facts(subject.destination, checked.bound, members)
        else:
            place = None
            sort, facts = _ring_facts(checked, members, layout, healed)
        words = _WORDS[kind, sort]
        source = healed or "the topology"
        message = words.message.format(source=source, share=percent(share or 0.0), **facts)
        # Of slots only the order is repaired: other differences are not in the ring alone. An order that is assumed is not repaired.
        is_repair = kind == "order" or not (layout or is_assumed)
        yield checked.finding(
            kind, message, checked.repair_command if is_repair else checked.apply_command, place, share
        )


def partition_finding(difference: Difference, context: CheckContext) -> Finding:
    """Return the finding of a super stream whose partitions differ."""
    seen, wanted = (
        listed([*map(str, side.destinations)])
        for side in (difference.before, difference.after)
        if isinstance(side, KeyMap)
    )
    message = (
        f"{difference.subject.name} has the partitions {seen}, and in the topology {wanted}: {percent(difference.share or 0.0)} of all keys "
        "go to a different partition"
    )
    fix = apply_fix(context.file, external=not difference.is_ours)
    return finding_about(difference.kind, difference.subject, message, fix, difference.share)


def _member_facts(
    place: Destination, bound: Sequence[RingMember], members: Sequence[RingMember]
) -> dict[str, str]:
    live, wanted = ([member for member in side if member.destination == place] for side in (bound, members))
    keys = " and ".join(member.key for member in wanted)
    return {"place": str(place), "key": keys, "live_keys": _keys_text(live), "keys": _keys_text(wanted)}


def _ring_facts(
    checked: CheckedExchange, members: Sequence[RingMember], layout: SlotLayout | None, healed: str
) -> tuple[_Sort, dict[str, str]]:
    ring = checked.ring
    try:
        wanted = make_ring(members, ring.release)
    except InputError as error:
        return "impossible", {
            "such": f"a ring of {healed}" if healed else "such a ring",
            "error": str(error),
        }
    if layout is not None and not {*layout.names.refs} & {*ring.destinations}:
        others = plural(len(ring.destinations), "other destination")
        return "unslotted", {"slots": plural(layout.names.count, "slot"), "others": others}
    found, belongs = find_out_of_place(ring, wanted) or (None, None)
    return "ring", {"found": str(found), "belongs": str(belongs), "counts": _difference(ring, wanted)}


def _difference(ring: HashRing, wanted: HashRing) -> str:
    """Return the differing numbers of buckets, or else the first destination whose number of buckets differs, in brackets."""
    if len(ring.buckets) != len(wanted.buckets):
        return f" ({len(ring.buckets):,}, not {len(wanted.buckets):,})"
    live_counts, wanted_counts = Counter(ring.buckets), Counter(wanted.buckets)
    for place in [*wanted.destinations, *ring.destinations]:
        if live_counts[place] != wanted_counts[place]:
            return f" ({place!s} has {live_counts[place]:,}, not {wanted_counts[place]:,})"
    return ""


def _keys_text(members: Sequence[RingMember]) -> str:
    return " and ".join(
        f"key {member.key}" + (f" and the arguments {dict(member.arguments)}" if member.arguments else "")
        for member in members
    )


def _past_policy(exchange: ExchangeDefinition, context: CheckContext, fix: str) -> str:
    """Return the fix of a missing exchange. A policy that prevents its declaration must be deleted first."""
    policy = policy_in_the_way(exchange, context.live.policies, context.release)
    if policy is None:
        return fix
    return Fix(
        f"remove the policy {policy.name}, under which it cannot be declared (rabbitmqctl clear_policy {shlex.quote(policy.name)}); ",
        fix,
        "; and set the policy again, if the topology does not have it",
    )


def describe_differences(fields: Iterable[FieldChange]) -> str:
    """Return the differences between an object and its wanted version in words."""

    def text(value: object) -> str:
        return "nothing" if value is None else repr(value).lower() if isinstance(value, bool) else repr(value)

    return ", ".join(f"{field.field} is {text(field.old)}, not {text(field.new)}" for field in fields)
