"""Faults of the queues of a hash exchange: queues that lose messages, and queues that differ from the others.

The queues are the members of the ring, and those that have its slots. Queues of other exchanges in the ring depend on the message.

A stream loses nothing here: its limits determine the retention. A queue that rejects messages over its limit loses nothing either, because
the publisher gets a nack.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rabbit_chx.analysis import Finding
from rabbit_chx.analysis.wording import listed, percent, plural
from rabbit_chx.topology.changes import FieldChange
from rabbit_chx.topology.check_rings import CheckedExchange, differing_fields
from rabbit_chx.topology.objects import QueueDefinition
from rabbit_chx.topology.policies import QueueSetting

_TTL, _EXPIRES, _OVERFLOW = "x-message-ttl", "x-expires", "x-overflow"
_LIMITS = {"x-max-length": "message", "x-max-length-bytes": "byte"}
_DEAD_LETTERS = "x-dead-letter-exchange"
#: Quorum queues have a message TTL since this release; before it a policy with one changes nothing.
_QUORUM_TTL_SINCE = (3, 10, 0)
#: The overflow settings that reject new messages. Quorum queues treat the second one as drop-head
#: (rabbitmq-server v4.3.6, ``rabbit_quorum_queue.erl``, ``overflow/3``).
_REFUSES = {"classic": ("reject-publish", "reject-publish-dlx"), "quorum": ("reject-publish",)}
#: Arguments that determine the place of replicas and do not affect messages.
_OF_PLACEMENT = {
    "x-queue-leader-locator",
    "x-queue-master-locator",
    "x-initial-cluster-size",
    "x-quorum-initial-group-size",
    "x-quorum-target-group-size",
}
_MOST_NAMES = 3


def queue_findings(checked: CheckedExchange) -> Iterator[Finding]:
    """Yield the findings of queues that lose messages or differ from the others."""
    queues = [queue for queue in checked.live.queues if queue.name in checked.queues]
    for queue in queues:
        if queue.type != "stream":
            yield from _short_lived(checked, queue)
            yield from _dropping(checked, queue)
    yield from _expiring(checked, queues)
    yield from _odd_members(checked, queues)


def _short_lived(checked: CheckedExchange, queue: QueueDefinition) -> Iterator[Finding]:
    ttl = checked.setting(queue, _TTL)
    if ttl is None or (queue.type == "quorum" and checked.ring.release.numbers < _QUORUM_TTL_SINCE):
        return
    message = f"{queue.name} has a message TTL of {ttl.value:,} ms{_by(ttl)}: what nobody reads in that time {_ends(checked, queue)}"
    yield _finding(checked, "expiring-destination", queue, message, _without(queue, _TTL, ttl))


def _expiring(checked: CheckedExchange, queues: Sequence[QueueDefinition]) -> Iterator[Finding]:
    settings = {
        queue.name: setting
        for queue in queues
        if queue.type != "stream" and (setting := checked.setting(queue, _EXPIRES))
    }
    moved = checked.moved_without(place for place in checked.ring.destinations if place in settings)
    for queue in (queue for queue in queues if queue.name in settings):
        expires = settings[queue.name]
        message = f"{queue.name} expires after {expires.value:,} ms without use{_by(expires)}, and its messages go with it"
        if queue.name in moved:
            message = f"{message}: {percent(moved[queue.name])} of all keys move then"
        yield _finding(checked, "expiring-destination", queue, message, _without(queue, _EXPIRES, expires))


def _dropping(checked: CheckedExchange, queue: QueueDefinition) -> Iterator[Finding]:
    overflow = checked.setting(queue, _OVERFLOW)
    if overflow is not None and overflow.value in _REFUSES[queue.type]:
        return
    limits = {
        argument: limit for argument in _LIMITS if (limit := checked.setting(queue, argument)) is not None
    }
    if not limits:
        return
    most = " or ".join(
        f"{plural(limit.value, _LIMITS[argument])}{_by(limit)}" for argument, limit in limits.items()
    )
    message = f"{queue.name} holds at most {most}: beyond that the oldest one {_ends(checked, queue)}, though it was confirmed"
    policy = overflow.policy if overflow is not None else _named_policy(limits.values())
    if policy is not None:
        fix = f"set overflow to reject-publish in the {policy}: publishers then get a nack for what does not fit"
    elif overflow is not None:
        fix = f"let a queue with {_OVERFLOW} = reject-publish take the place of {queue.name}"
    else:
        fix = f"set overflow to reject-publish for {queue.name} by a policy: publishers then get a nack for what does not fit"
    yield _finding(checked, "dropping-destination", queue, message, fix)


def _named_policy(limits: Iterable[QueueSetting]) -> str | None:
    """Return the policy that sets a limit. An operator policy has no overflow setting."""
    return next((limit.policy for limit in limits if (limit.policy or "").startswith("policy ")), None)


def _by(setting: QueueSetting) -> str:
    return "" if setting.policy is None else f" by the {setting.policy}"


def _ends(checked: CheckedExchange, queue: QueueDefinition) -> str:
    onwards = checked.setting(queue, _DEAD_LETTERS)
    if onwards is None:
        return "is lost"
    return (
        f"goes to the dead-letter exchange {onwards.value}"
        if onwards.value
        else "goes to the default exchange"
    )


def _without(queue: QueueDefinition, argument: str, setting: QueueSetting) -> str:
    if setting.policy is not None:
        return f"take {argument.removeprefix('x-')} out of the {setting.policy}"
    return f"let a queue without {argument} take the place of {queue.name}"


def _finding(checked: CheckedExchange, kind: str, queue: QueueDefinition, message: str, fix: str) -> Finding:
    share = checked.queues[queue.name]
    return checked.finding(kind, f"{message}; {percent(share)} of all keys go there", fix, queue.name, share)


def _odd_members(checked: CheckedExchange, queues: Sequence[QueueDefinition]) -> Iterator[Finding]:
    """Yield each queue that differs from the majority; without a majority, the differences."""
    unlike: dict[str, list[FieldChange]] = {}
    traits = {queue.name: _traits(queue) for queue in queues}
    for trait in sorted({trait for of_queue in traits.values() for trait in of_queue}):
        groups: dict[str, list[QueueDefinition]] = {}
        for queue in queues:
            groups.setdefault(_compared(queue, trait, traits[queue.name].get(trait)), []).append(queue)
        usual, *others = sorted(groups.values(), key=len, reverse=True)
        if 2 * len(usual) <= len(queues):
            yield _divided(checked, trait, [usual, *others], traits)
            continue
        for queue in (queue for group in others for queue in group):
            values = traits[queue.name].get(trait), traits[usual[0].name].get(trait)
            unlike.setdefault(queue.name, []).append(FieldChange(trait, *values))
    for name, fields in unlike.items():
        share = checked.queues[name]
        message = f"{name} is unlike most of the {len(queues):,} queues: {differing_fields(fields)}; {percent(share)} of all keys go there"
        fix = f"let a queue like the others take the place of {name}"
        yield checked.finding("odd-member", message, fix, name, share)


def _traits(queue: QueueDefinition) -> dict[str, Any]:
    arguments = {name: value for name, value in queue.arguments.items() if name not in _OF_PLACEMENT}
    return {"type": queue.type, **arguments}


def _compared(queue: QueueDefinition, trait: str, value: object) -> str:
    """Return a value for comparison: arguments that differ only in the queue's name or in numbers are equal."""
    if isinstance(value, str) and trait != "type":
        return re.sub("[0-9]+", "{n}", value.replace(queue.name, "{name}"))
    return repr(value)


def _divided(
    checked: CheckedExchange,
    trait: str,
    groups: Sequence[Sequence[QueueDefinition]],
    traits: dict[str, dict[str, Any]],
) -> Finding:
    parts = []
    for group in groups:
        value = traits[group[0].name].get(trait)
        shown = "nothing" if value is None else repr(value)
        parts.append(f"{shown} at {listed([queue.name for queue in group], _MOST_NAMES)}")
    share = sum(checked.queues[queue.name] for group in groups for queue in group)
    message = f"the queues have no {trait} in common: {'; '.join(parts)}"
    fix = "decide which of them is right, and let such queues take the places of the others"
    return checked.finding("odd-member", message, fix, share=share)
