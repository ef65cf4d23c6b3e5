"""Findings about the queues of an exchange that hashes: those that lose messages, change their order, or differ from the others."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from rabbit_chx.analysis import Finding
from rabbit_chx.checking.check_rings import (
    CheckContext,
    CheckedExchange,
    list_slots_without_alternate,
    name_or_count,
)
from rabbit_chx.checks import is_whole
from rabbit_chx.errors import InputError
from rabbit_chx.planning.diff import Difference, DifferenceKind, find_out_of_place, list_partitions
from rabbit_chx.planning.refusals import apply_fix
from rabbit_chx.planning.ring_plan import shares_moved_without
from rabbit_chx.planning.slot_layout import SlotLayout
from rabbit_chx.records.live_rings import evidence_of, make_ring
from rabbit_chx.records.ring_records import unlisted_queues
from rabbit_chx.routing import Destination, ExchangeRef, HashRing, Release
from rabbit_chx.routing.bindings import Place
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.routing.release import NEWEST_COMPARED, QUORUM_V8_SINCE
from rabbit_chx.text import FEW, grouped, listed, percent, plural, share_text
from rabbit_chx.topology.arguments import QueueSetting, find_ignored, limit_faults, policy_in_the_way
from rabbit_chx.topology.model import LiveTopology
from rabbit_chx.topology.objects import (
    HASH_EXCHANGE,
    BindingDefinition,
    ExchangeDefinition,
    QueueDefinition,
    RingMember,
    order_of_name,
)
from rabbit_chx.topology.schema import FieldChange, TopologyObject

# -- The findings of differences: one table has the words of each, and what removes it

#: What a difference is about: an object, a binding, or one of an exchange with `queues` or of a slot; a member of a ring, or a slot as one; or a ring, one
#: that no broker has, or one without any of its slots.
_Sort: TypeAlias = Literal[
    "exchange", "queue", "policy", "binding", "listed", "member", "slot", "ring", "impossible", "unslotted"
]
_DIFFERS = "{kind} {name} differs: {fields}"
_NOTHING_BOUND = "{place} is not bound (key {key}), and nothing else is: {share} of the keys belong to it and reach no queue of the ring"
_IS_OWNED = "{kind} {name} is owned and not in the topology"
_WORDS: Mapping[DifferenceKind, Mapping[_Sort, str]] = {
    "missing": {
        "exchange": "exchange {name} does not exist: a channel that publishes to it is closed",
        "queue": "queue {name} does not exist: no messages are stored for its consumers",
        "policy": "policy {name} does not exist: its settings do not apply",
        "binding": "the binding {name} does not exist: its messages do not reach {place}",
        "member": "{place} is not bound (key {key}): {share} of the keys are routed to other destinations instead",
        "slot": "{place} is not bound (key {key}): {share} of all keys belong to it and go to another queue",
    },
    "different": {
        "exchange": _DIFFERS,
        "queue": _DIFFERS,
        "policy": _DIFFERS,
        "member": "{place} is bound with {live_keys}, and in the topology with {keys}",
        "ring": "the buckets of the ring differ from {source}{counts}: {share} of all keys go to a different queue",
        "impossible": "no broker of this release has {such}: {error}",
        "unslotted": "the ring has none of the {slots} of the topology, but {others}: {share} of all keys have another queue than with slots",
    },
    "order": {
        "ring": "the ring has another order than {source}: {found} is where {belongs} belongs; {share} of all keys go to a different queue",
    },
    "unexpected": {
        "exchange": _IS_OWNED,
        "queue": _IS_OWNED,
        "policy": _IS_OWNED,
        "binding": "the binding {name} is owned and not in the topology: {place} gets its messages",
        "listed": "the binding {name} is not in the topology: {place} gets its messages",
        "member": "{place} is bound and not in the topology: {share} of all keys go there",
    },
}
#: Of bindings that differ in their arguments only: the other one is in the place of the fields.
_OF_TWINS: Mapping[DifferenceKind, str] = {
    "missing": "the binding {name} does not exist; with other arguments it does: {fields}",
    "unexpected": "the binding {name} is not in the topology; with other arguments it is: {fields}",
}


def object_finding(difference: Difference, context: CheckContext) -> Finding:
    """Return the finding of a difference of an object, or of a binding of an exchange without a ring."""
    assert context.compared is not None  # without a topology there are no such differences
    kind = difference.kind
    subject = difference.subject
    share = None
    sort: _Sort = subject.kind
    place = suffix = ""
    if isinstance(subject, BindingDefinition):
        exchange = context.compared.wanted.exchange(subject.source)
        place = str(subject.destination)
        if exchange is not None and exchange.queues is not None and difference.share is not None:
            share = difference.share
            suffix = f"; {percent(difference.share)} of all keys go to a different queue"
        if kind == "unexpected" and context.unwanted_bindings[subject] != "owned":
            sort = "listed"
    elif kind == "different" and isinstance(subject, ExchangeDefinition) and subject.type == HASH_EXCHANGE:
        share = difference.share
        suffix = "; keys are hashed otherwise" if share else ""
    words = _WORDS[kind][sort]
    fields = describe_differences(difference.fields)
    if isinstance(subject, BindingDefinition) and (other := _find_twin(difference, subject, context)):
        words = _OF_TWINS[kind]
        fields = other.name
    message = words.format(kind=subject.kind, name=subject.name, place=place, fields=fields) + suffix
    fix = apply_fix(context.file, external=not difference.is_ours)
    if place and kind == "missing" and place in evidence_of(context.live).mark.absent:
        message = f"{place} is down, and the broker lists no bindings of it, so that nobody knows whether the binding {subject.name} exists"
        return finding_about("down-destination", subject, message, _start_node([place]))
    if kind == "unexpected" and sort != "listed":  # what removes it is a deletion, which has to be allowed
        fix = f"add it to the topology, or {apply_fix(context.file, deletes=True)}"
    elif kind == "missing" and difference.is_ours and isinstance(subject, ExchangeDefinition):
        fix = _past_policy(subject, context, fix)
    return finding_about(kind, subject, message, fix, share)


def _find_twin(
    difference: Difference, binding: BindingDefinition, context: CheckContext
) -> BindingDefinition | None:
    """Return the binding that the other side has alone and that differs in arguments only; None if there is none."""
    assert context.compared is not None  # it has the difference
    wanted = context.compared.wanted.bindings
    live = context.live.bindings
    if difference.kind == "missing":
        there = live
        here = wanted
    else:
        there = wanted
        here = live
    route = binding.source, binding.destination, binding.routing_key
    for other in there:
        if (other.source, other.destination, other.routing_key) == route and other not in here:
            return other
    return None


def _start_node(queues: Sequence[str]) -> str:
    return f"start the node of {listed(queues)} first"


def finding_about(
    kind: str, subject: TopologyObject, message: str, fix: str, share: float | None = None
) -> Finding:
    """Return a finding about an object or a binding."""
    exchange = destination = None
    if isinstance(subject, BindingDefinition):
        exchange = subject.source
        destination = subject.destination
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
    if healed:
        layout = None
        is_unordered = False
    else:
        layout = checked.layout
        is_unordered = checked.is_unordered
    members = checked.repaired if healed or checked.listed is None else checked.listed.ring or ()
    unlisted = unlisted_queues(members, checked.bound, evidence_of(checked.live).mark)
    for difference in differences:
        kind = difference.kind
        subject = difference.subject
        share = difference.share
        if kind == "missing" and isinstance(subject, BindingDefinition) and subject.destination in unlisted:
            continue  # `absent_member_findings` says why it is not listed
        if isinstance(subject, BindingDefinition):
            place: Place = subject.destination
            sort: _Sort = "slot" if kind == "missing" and layout is not None else "member"
            facts = _member_facts(subject.destination, checked.bound, members)
        else:
            place = None
            sort, facts = _ring_facts(checked, members, layout, healed)
        words = _WORDS[kind][sort]
        if kind == "missing" and sort == "member" and not checked.bound:
            words = _NOTHING_BOUND
        source = healed or "the topology"
        message = words.format(source=source, share=share_text(share), **facts)
        # Of slots only the order is repaired: other differences are not in the ring alone. The order that a definitions file has is not repaired.
        is_repair = kind == "order" or not (layout or is_unordered)
        fix = checked.repair_command if is_repair else checked.apply_command
        if unlisted:
            fix = _start_node(unlisted)
        yield checked.finding(kind, message, fix, place, share)


def slot_findings_of(checked: CheckedExchange, layout: SlotLayout) -> Iterator[Finding]:
    """Yield the findings of the differences of slots, alike ones together.

    A slot without a queue, with several, or without an alternate exchange is a fault by itself, and has a finding as that.
    """
    assert checked.context.compared is not None  # it has the layout
    missing = set()
    moved = []
    bare = list_slots_without_alternate(checked)
    for one in checked.context.compared.counted:
        subject = one.subject
        if isinstance(subject, BindingDefinition) and subject.source in layout.names.exchanges:
            sort = _sort_binding(checked, layout, subject)
            moved += [ExchangeRef(subject.source)] if sort == "moved" else []
            if sort == "other":
                yield object_finding(one, checked.context)
        elif not isinstance(subject, ExchangeDefinition) or subject.name not in layout.names.exchanges:
            continue
        elif one.kind == "missing":
            missing.add(subject.name)
        else:
            shown = "arguments.alternate-exchange" if ExchangeRef(subject.name) in bare else ""
            if fields := [field for field in one.fields if field.field != shown]:
                message = f"exchange {subject.name} differs: {describe_differences(fields)}"
                fix = apply_fix(checked.file, deletes=True, external=checked.external)
                yield checked.finding("different", message, fix, ExchangeRef(subject.name))
    if missing:
        names = [name for name in (*layout.names.slots, layout.names.park) if name in missing]
        verb = "is" if len(missing) == 1 else "are"
        message = f"{name_or_count(names, 'the exchange', 'exchanges')} {verb} not there"
        yield checked.finding_about_slots(
            "missing", message, checked.apply_command, [*map(ExchangeRef, names)]
        )
    if moved:
        yield _moved_slots_finding(checked, layout, [*dict.fromkeys(moved)])


def _sort_binding(
    checked: CheckedExchange, layout: SlotLayout, binding: BindingDefinition
) -> Literal["fault", "moved", "other"]:
    """Return whether a binding that differs is that of a slot with a fault, or of one with another queue; or another one."""
    slot = ExchangeRef(binding.source)
    reach = checked.context.reach
    if not reach.exists(slot):
        return "fault"
    if slot.name == layout.names.park:
        return "fault" if slot.name in checked.parks and reach.leads_nowhere(slot.name) else "other"
    queues = checked.slots.queues.get(slot, ())
    is_other = isinstance(binding.destination, ExchangeRef) or slot in checked.slots.other_exchanges
    if is_other or queues == (layout.owners[slot.name],):
        return "other"
    return "moved" if len(queues) == 1 else "fault"


def _moved_slots_finding(
    checked: CheckedExchange, layout: SlotLayout, moved: Sequence[ExchangeRef]
) -> Finding:
    """Return the finding of slots that have another queue than in the topology."""
    share = sum(checked.shares.get(slot, 0.0) for slot in moved)
    owners = {slot: queues[0] for slot, queues in checked.slots.queues.items() if len(queues) == 1}
    now = Counter(owners.values())
    then = Counter(layout.owners.values())
    # If the file lists the slots, the finding is about these slots and not about the number of slots of each queue.
    counts = [
        f"{queue} has {plural(now[queue], 'slot')}, not {then[queue]:,}"
        for queue in sorted({*now, *then}, key=order_of_name)
        if now[queue] != then[queue] and not layout.is_pinned
    ]
    places = [f"{slot.name} is at {owners[slot]}, not {layout.owners[slot.name]}" for slot in moved]
    verb = "slot has another queue" if len(moved) == 1 else "slots have other queues"
    message = (
        f"{len(moved):,} {verb} than in the topology ({listed(counts or places, FEW, ';')}): {percent(share)} of all keys "
        "go to a different queue"
    )
    return checked.finding_about_slots("different", message, checked.apply_command, moved, share)


def partition_finding(difference: Difference, context: CheckContext) -> Finding:
    """Return the finding of a super stream whose partitions differ."""
    assert context.compared is not None  # it has the difference
    name = difference.subject.name
    seen, wanted = (
        listed([*map(str, list_partitions(side, name))]) for side in (context.live, context.compared.wanted)
    )
    share = share_text(difference.share)
    message = f"{name} has the partitions {seen}, and in the topology {wanted}: {share} of all keys go to a different partition"
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
    live_counts = Counter(ring.buckets)
    wanted_counts = Counter(wanted.buckets)
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
    clear = f"rabbitmqctl clear_policy {shlex.quote(policy.name)}"
    return (
        f"remove the policy {policy.name}, under which it cannot be declared ({clear}); {fix}; and set the policy again, if the topology does "
        "not have it"
    )


def describe_differences(fields: Iterable[FieldChange]) -> str:
    """Return the differences between an object and its wanted version in words."""
    return ", ".join("{} is {}, not {}".format(field.field, *field.texts) for field in fields)


_TTL = "x-message-ttl"
_EXPIRES = "x-expires"
_OVERFLOW = "x-overflow"
_PRIORITIES = "x-max-priority"
_DELAYED_RETRY = "x-delayed-retry-type"
_CONSUMER_TIMEOUT = "x-consumer-timeout"
#: What settings do to the order of messages.
_BREAKS = {
    _PRIORITIES: "delivers messages of a higher priority first",
    _DELAYED_RETRY: "delays messages that are returned, and later ones overtake them",
    _CONSUMER_TIMEOUT: (
        "returns a message whose handler takes longer before those that were delivered after it: a consumer that takes more than one "
        "message at a time gets them out of order"
    ),
}
#: The default of RabbitMQ. A shorter timeout is a decision of the user.
_DEFAULT_TIMEOUT_MS = 1_800_000
_DEFAULT_OF_BROKER = "broker's default"
_LIMITS = {"x-max-length": "message", "x-max-length-bytes": "byte"}
#: The settings that are whole numbers.
_WHOLE = {_TTL, _EXPIRES, *_LIMITS}
_DEAD_LETTERS = "x-dead-letter-exchange"
#: Quorum queues have a message TTL since this release; before it a policy with one changes nothing.
#: The overflow settings that reject new messages. Quorum queues treat the second one as drop-head
#: (rabbitmq-server v4.3.6, ``rabbit_quorum_queue.erl``, ``overflow/3``).
_REFUSES = {"classic": ("reject-publish", "reject-publish-dlx"), "quorum": ("reject-publish",)}
#: The types of queues whose settings may lose messages. A stream keeps them, and what settings do to a plugin's type is not known.
_LOSING_TYPES = _REFUSES.keys()
#: Arguments that determine the place of replicas and do not affect messages.
_OF_PLACEMENT = {
    "x-queue-leader-locator",
    "x-queue-master-locator",
    "x-initial-cluster-size",
    "x-quorum-initial-group-size",
    "x-quorum-target-group-size",
}


@dataclass(frozen=True)
class CheckedQueues:
    """The queues that get the keys of an exchange.

    Attributes:
        exchange: the exchange's name.
        shares: the exact share of the keys of each queue. Queues that other exchanges route to are omitted.
        key_map: its own map, without its slots. If its order is not known, no share that depends on it is told.
    """

    exchange: str
    live: LiveTopology
    release: Release
    shares: Mapping[str, float]
    key_map: KeyMap

    def setting(self, queue: QueueDefinition, argument: str) -> QueueSetting | None:
        """Return the value of an argument or policy key that applies to a queue; None if it is not set."""
        found = self.live.setting(queue, argument)
        # The broker refuses other values of these, so the effect of one is not known.
        return None if found and argument in _WHOLE and not is_whole(found.value) else found

    def share_text(self, share: float) -> str:
        """Return the end of a sentence that tells the share of the keys which go somewhere; empty if it is not known."""
        return f"; {percent(share)} of all keys go there" if self.key_map.has_shares else ""

    def finding(
        self, kind: str, message: str, fix: str, queue: str | None = None, share: float = 0.0
    ) -> Finding:
        """Return a finding about a queue; None for several queues."""
        return Finding(kind, message, fix, exchange=self.exchange, destination=queue, share=share)


def queue_findings(checked: CheckedQueues) -> Iterator[Finding]:
    """Yield the findings of queues that lose messages, change their order, or differ from the others.

    A stream loses no messages here: its limits determine the retention. A queue that rejects messages over its limit loses none either,
    because the publisher gets a nack.
    """
    queues = [queue for queue in checked.live.queues if queue.name in checked.shares]
    for queue in queues:
        yield from _find_down(checked, queue)
        if queue.type in _LOSING_TYPES:
            yield from _find_ttl(checked, queue)
            yield from _find_drops(checked, queue)
            for found in limit_faults(queue, checked.release):
                message = f"queue {queue.name}: {found.message}"
                yield _finding_of_queue(checked, "dropping-destination", queue, message, found.fix)
            yield from _find_order_breaks(checked, queue)
    yield from _find_expiry(checked, queues)
    yield from _find_odd_members(checked, queues)


def ignored_argument_findings(
    exchange: str, queues: Collection[str], live: LiveTopology
) -> Iterator[Finding]:
    """Yield the arguments of an exchange that hashes, and of its queues, that the broker ignores; equal ones of queues together."""
    own = live.exchange(exchange)
    objects = [*(() if own is None else (own,)), *(queue for queue in live.queues if queue.name in queues)]
    for names, message, fix in find_ignored(objects, live.release or NEWEST_COMPARED):
        queue = names[0] if len(names) == 1 and names[0] in queues else None
        yield Finding("ignored-argument", message, fix, exchange=exchange, destination=queue)


def _find_down(checked: CheckedQueues, queue: QueueDefinition) -> Iterator[Finding]:
    if state := checked.live.facts.queues.down.get(queue.name):
        nodes = sorted(evidence_of(checked.live).mark.nodes.get(queue.name, ()))
        message = f"the broker reports {queue.name} as {state}: it takes no messages, and a publish with confirms gets a nack"
        fix = f"start {listed(nodes) or 'its node'} again, or see the log of the broker"
        yield _finding_of_queue(checked, "down-destination", queue, message, fix)


def _find_ttl(checked: CheckedQueues, queue: QueueDefinition) -> Iterator[Finding]:
    ttl = checked.setting(queue, _TTL)
    if ttl is None:
        return
    message = f"{queue.name} has a message TTL of {ttl.value:,} ms{_set_by(ttl)}: a message that is not consumed in that time {_end_of_messages(checked, queue)}"
    yield _finding_of_queue(
        checked, "expiring-destination", queue, message, _fix_of_setting(queue, _TTL, ttl)
    )


def _find_expiry(checked: CheckedQueues, queues: Sequence[QueueDefinition]) -> Iterator[Finding]:
    settings = {
        queue.name: setting
        for queue in queues
        if queue.type in _LOSING_TYPES and (setting := checked.setting(queue, _EXPIRES))
    }
    is_known = checked.key_map.is_determined or not checked.key_map.hashing.has_order
    moved = shares_moved_without(checked.key_map, settings) if is_known else {}
    for queue in (queue for queue in queues if queue.name in settings):
        expires = settings[queue.name]
        message = f"{queue.name} expires after {expires.value:,} ms without use{_set_by(expires)}, and its messages are deleted with it"
        if queue.name in moved:
            message = f"{message}: {percent(moved[queue.name])} of all keys move then"
        yield _finding_of_queue(
            checked, "expiring-destination", queue, message, _fix_of_setting(queue, _EXPIRES, expires)
        )


def _find_drops(checked: CheckedQueues, queue: QueueDefinition) -> Iterator[Finding]:
    overflow = checked.setting(queue, _OVERFLOW)
    if overflow is not None and overflow.value in _REFUSES[queue.type]:
        return
    limits = {
        argument: limit for argument in _LIMITS if (limit := checked.setting(queue, argument)) is not None
    }
    if not limits:
        return
    most = " or ".join(
        f"{plural(limit.value, _LIMITS[argument])}{_set_by(limit)}" for argument, limit in limits.items()
    )
    message = f"{queue.name} holds at most {most}: beyond that the oldest one {_end_of_messages(checked, queue)}, though it was confirmed"
    policies = [overflow.policy] if overflow is not None else [limit.policy for limit in limits.values()]
    # An operator policy has no overflow setting.
    policy = next((name for name in policies if name and (overflow or name.startswith("policy "))), None)
    if policy is not None:
        fix = f"set overflow to reject-publish in the {policy}: publishers then get a nack for what does not fit"
    elif overflow is not None:
        fix = f"replace {queue.name} by a queue with {_OVERFLOW} = reject-publish"
    else:
        fix = f"set overflow to reject-publish for {queue.name} by a policy: publishers then get a nack for what does not fit"
    yield _finding_of_queue(checked, "dropping-destination", queue, message, fix)


def _find_order_breaks(checked: CheckedQueues, queue: QueueDefinition) -> Iterator[Finding]:
    """Yield what makes a queue deliver in another order than that of its messages (tested on 4.3.6).

    A setting of a quorum queue does not show that its messages have priorities. Waiting messages show it.
    """
    priorities = _waiting_priorities(checked.live, queue.name)
    if len(priorities) > 1:
        message = f"{queue.name} has waiting messages of the priorities {', '.join(map(str, priorities))}, and delivers those of a higher priority first"
        fix = f"publish without a priority to {checked.exchange}"
        yield _finding_of_queue(checked, "order-breaking", queue, message, fix)
    argument_names = [_PRIORITIES] if queue.type == "classic" else []
    if not argument_names and checked.release.numbers >= QUORUM_V8_SINCE:
        argument_names = [_DELAYED_RETRY, _CONSUMER_TIMEOUT]
    for argument in argument_names:
        setting = checked.setting(queue, argument)
        is_timeout = argument == _CONSUMER_TIMEOUT
        default_ms = checked.live.facts.limits.consumer_timeout_ms if is_timeout else None
        if setting is None and default_ms is not None:
            setting = QueueSetting(default_ms, _DEFAULT_OF_BROKER)
        if setting is None or setting.value in (0, "disabled"):
            continue
        fix = _fix_of_setting(queue, argument, setting)
        if is_timeout:
            if not isinstance(setting.value, int) or setting.value >= _DEFAULT_TIMEOUT_MS:
                continue
            fix = f"{fix}, or ignore this if each message is handled within {setting.value / 1000:g} s"
        message = f"{queue.name} has {argument.removeprefix('x-')} = {setting.value}{_set_by(setting)}, and {_BREAKS[argument]}"
        yield _finding_of_queue(checked, "order-breaking", queue, message, fix)


def _waiting_priorities(live: LiveTopology, queue: str) -> tuple[int, ...]:
    """Return the priorities of the messages that wait in a queue. Its statistics may be older than the number of its messages."""
    found = None if live.facts.usage is None else live.facts.usage.queues.get(queue)
    return () if found is None or found.ready == 0 else found.priorities


def _set_by(setting: QueueSetting) -> str:
    return "" if setting.policy is None else f" by the {setting.policy}"


def _end_of_messages(checked: CheckedQueues, queue: QueueDefinition) -> str:
    onwards = checked.setting(queue, _DEAD_LETTERS)
    if onwards is None:
        return "is lost"
    return (
        f"is published to the dead-letter exchange {onwards.value}"
        if onwards.value
        else "is published to the default exchange"
    )


def _fix_of_setting(queue: QueueDefinition, argument: str, setting: QueueSetting) -> str:
    if setting.policy == _DEFAULT_OF_BROKER:
        return "raise consumer_timeout in rabbitmq.conf"
    if setting.policy is not None:
        return f"take {argument.removeprefix('x-')} out of the {setting.policy}"
    return f"replace {queue.name} by a queue without {argument}"


def _finding_of_queue(
    checked: CheckedQueues, kind: str, queue: QueueDefinition, message: str, fix: str
) -> Finding:
    share = checked.shares[queue.name]
    return checked.finding(kind, f"{message}{checked.share_text(share)}", fix, queue.name, share)


def _find_odd_members(checked: CheckedQueues, queues: Sequence[QueueDefinition]) -> Iterator[Finding]:
    """Yield each queue that differs from the majority; without a majority, the differences."""
    unlike: dict[str, list[FieldChange]] = {}
    traits = {queue.name: _traits(queue) for queue in queues}
    for trait in sorted({trait for of_queue in traits.values() for trait in of_queue}):
        groups = grouped((_comparable_value(one, trait, traits[one.name].get(trait)), one) for one in queues)
        usual, *others = sorted(groups.values(), key=len, reverse=True)
        if 2 * len(usual) <= len(queues):
            yield _compare_groups(checked, trait, [usual, *others], traits)
            continue
        for queue in (queue for group in others for queue in group):
            values = traits[queue.name].get(trait), traits[usual[0].name].get(trait)
            unlike.setdefault(queue.name, []).append(FieldChange(trait, *values))
    for name, fields in unlike.items():
        share = checked.shares[name]
        message = f"{name} differs from most of the {len(queues):,} queues: {describe_differences(fields)}{checked.share_text(share)}"
        fix = f"replace {name} by a queue like the others"
        yield checked.finding("odd-member", message, fix, name, share)


def _traits(queue: QueueDefinition) -> dict[str, Any]:
    arguments = {name: value for name, value in queue.arguments.items() if name not in _OF_PLACEMENT}
    return {"type": queue.type, **arguments}


def _comparable_value(queue: QueueDefinition, trait: str, value: object) -> str:
    """Return a value for comparison: arguments that differ only in the queue's name or in numbers are equal."""
    if isinstance(value, str) and trait != "type":
        return re.sub("[0-9]+", "{n}", value.replace(queue.name, "{name}"))
    return repr(value)


def _compare_groups(
    checked: CheckedQueues,
    trait: str,
    groups: Sequence[Sequence[QueueDefinition]],
    traits: dict[str, dict[str, Any]],
) -> Finding:
    parts = []
    for group in groups:
        value = traits[group[0].name].get(trait)
        shown = "nothing" if value is None else repr(value)
        parts.append(f"{shown} at {listed([queue.name for queue in group], FEW)}")
    share = sum(checked.shares[queue.name] for group in groups for queue in group)
    message = f"the queues have no {trait} in common: {'; '.join(parts)}"
    fix = "decide which of them is right, and let such queues take the places of the others"
    return checked.finding("odd-member", message, fix, share=share)
