"""Findings about the queues of an exchange that hashes: those that lose messages, change their order, or differ from the others."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rabbit_chx.analysis import Finding
from rabbit_chx.checking.difference_findings import describe_differences
from rabbit_chx.checks import is_whole
from rabbit_chx.grouping import grouped
from rabbit_chx.planning.movement import shares_moved_without
from rabbit_chx.records.evidence import evidence_of
from rabbit_chx.routing import Release
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.routing.release import NEWEST_COMPARED, QUORUM_V8_SINCE
from rabbit_chx.topology.model import LiveTopology
from rabbit_chx.topology.objects.changes import FieldChange
from rabbit_chx.topology.objects.objects import QueueDefinition
from rabbit_chx.topology.rules.arguments import find_ignored, limit_faults
from rabbit_chx.topology.rules.policies import QueueSetting
from rabbit_chx.words import FEW, listed, percent, plural

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
