"""What is wrong with a group, as far as the broker shows it, and the cure of each finding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from rabbit_chx.analysis.findings import Finding
from rabbit_chx.analysis.wording import listed
from rabbit_chx.topology.applying import member_of

if TYPE_CHECKING:
    from rabbit_chx.consuming.group_status import GroupStatus, QueueStatus
    from rabbit_chx.routing import Release

__all__ = ["GROUP_KINDS", "group_findings"]

#: The kinds of findings, the gravest first.
GROUP_KINDS = (
    "missing-queue",
    "nobody-active",
    "no-consumer",
    "no-single-active-consumer",
    "other-consumer",
    "priority-ignored",
    "unbalanced",
)

_PRIORITIES_SINCE = (4, 0, 0)
_SHOWN = 5


def group_findings(
    status: GroupStatus, release: Release, weights: Mapping[str, float] | None = None
) -> tuple[Finding, ...]:
    """Return what is wrong with a group, the gravest first.

    Args:
        status: the group.
        release: the release of the broker.
        weights: the weights of its members, as far as they are known; else each weighs 1.
    """
    found = [*_of_queues(status), *_priorities(status, release), *_balance(status, weights or {})]
    return tuple(sorted(found, key=lambda one: GROUP_KINDS.index(one.kind)))


def _of_queues(status: GroupStatus) -> Iterator[Finding]:
    there = [one for one in status.queues if one.type is not None]
    missing = [one for one in status.queues if one.type is None]
    if missing:
        yield _finding(
            "missing-queue",
            missing,
            "{} bound, but not listed: it was just deleted, or this user may not see it",
            "list the queues of the vhost: rabbitmqctl list_queues -p VHOST name",
        )
    if dead := [one for one in status.nobody_active if not one.unacked]:
        yield _finding(
            "nobody-active",
            dead,
            "{} consumers and none of them active, so nothing is handled",
            "members of a ConsumerGroup notice this and consume anew; cancel and consume again with other consumers",
        )
    if held := [one for one in status.nobody_active if one.unacked]:
        count = sum(one.unacked or 0 for one in held)
        yield _finding(
            "nobody-active",
            held,
            f"{{}} consumers and none of them active: the broker waits until the one that was active acks what it holds "
            f"({count:,} messages)",
            "if this lasts, look for a handler that hangs; if there is none, the broker waits for a consumer that is dead, as "
            "RabbitMQ 4.3.6 may: restart the node that leads the queue",
        )
    if unread := [one for one in there if not one.consumers]:
        waiting = sum(one.ready or 0 for one in unread)
        yield _finding(
            "no-consumer",
            unread,
            f"{{}} no consumer, and {waiting:,} messages wait",
            "start a member of the group that consumes all of its queues",
        )
    if shared := [one for one in there if not one.single_active]:
        yield _finding(
            "no-single-active-consumer",
            shared,
            "{} no single active consumer: two consumers handle messages of one key at the same time, and overtake each other",
            "the argument cannot be added later: declare the queue anew with x-single-active-consumer = true, or use slots and "
            "move them to new queues",
        )
    if foreign := [one for one in there if any(member_of(each.tag) is None for each in one.consumers)]:
        tags = sorted({each.tag for one in foreign for each in one.consumers if member_of(each.tag) is None})
        yield _finding(
            "other-consumer",
            foreign,
            f"{{}} a consumer that is no member of a group ({listed(tags, _SHOWN)}): it knows nothing of hand-overs, and may take the queue",
            "stop it, or run its handler in a ConsumerGroup",
        )


def _priorities(status: GroupStatus, release: Release) -> Iterator[Finding]:
    ignoring = [
        one
        for one in status.queues
        if one.single_active
        and len({each.priority for each in one.consumers}) > 1
        and (one.type != "quorum" or release.numbers < _PRIORITIES_SINCE)
    ]
    if ignoring:
        why = f"RabbitMQ {release.version} ignores the priority of consumers here; it counts for quorum queues from 4.0 on"
        yield _finding(
            "priority-ignored",
            ignoring,
            f"{{}} consumers of different priority. {why}. Without a journal, the first one stays active until it leaves",
            "give each member its own queues (static), or upgrade and use quorum queues",
        )


def _balance(status: GroupStatus, weights: Mapping[str, float]) -> Iterator[Finding]:
    """Find members with two queues more than their share and more than half as many again, and members with none."""
    shared = [one for one in status.queues if one.single_active and len(one.consumers) > 1]
    total = sum(weights.get(member.name, 1.0) for member in status.members)
    if not shared or len(status.members) < 2:
        return
    active = {
        member.name: len(set(member.active) & {one.name for one in shared}) for member in status.members
    }
    share = {name: len(shared) * weights.get(name, 1.0) / total for name in active}
    heavy = [name for name, count in active.items() if count >= max(share[name] + 2, 1.5 * share[name])]
    idle = [name for name, count in active.items() if not count and share[name] >= 1]
    if heavy or idle:
        told = ", ".join(
            f"{name} has {active[name]} (its share is {share[name]:.1f})" for name in [*heavy, *idle][:_SHOWN]
        )
        yield Finding(
            "unbalanced",
            f"{len(shared)} queues are shared unevenly: {told}",
            "a member takes its share some seconds after it has started; look again. If this stays, look for priority-ignored, or "
            "for members of different weight",
        )


def _finding(kind: str, queues: Sequence[QueueStatus], says: str, cure: str) -> Finding:
    names = tuple(queue.name for queue in queues)
    verb = {"missing-queue": ("is", "are")}.get(kind, ("has", "have"))[len(names) > 1]
    return Finding(kind, says.format(f"{listed(names, _SHOWN)} {verb}"), cure, names=names)
