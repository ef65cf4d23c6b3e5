"""The consumers of some queues, the members of a group among them, and the findings about both. No I/O."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from rabbit_chx.analysis.findings import Finding
from rabbit_chx.analysis.wording import moment_as_json, moment_text
from rabbit_chx.result_fields import shown
from rabbit_chx.routing import Release
from rabbit_chx.topology.model import LiveTopology
from rabbit_chx.topology.objects.objects import QueueDefinition
from rabbit_chx.topology.slots.hand_over_marker import parse_member
from rabbit_chx.topology.usage import Consumer, QueueUsage, Usage
from rabbit_chx.words import listed, plural

_SINGLE_ACTIVE = "x-single-active-consumer"
#: Quorum queues obey the priorities of consumers since this release.
_PRIORITIES_SINCE = (4, 0, 0)
_MAX_LISTED = 5


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """A queue of a group.

    Attributes:
        type: ``quorum``, ``classic`` or ``stream``; None if the queue does not exist.
        single_active: whether it has a single active consumer.
        ready: the number of ready messages; None if the broker has no figure yet.
        unacked: the number of unacknowledged messages; None if the broker has no figure yet.
        hidden: the number of consumers that the broker does not list for this user; None if that is not known.
    """

    name: str
    type: str | None
    single_active: bool
    ready: int | None
    unacked: int | None
    consumers: tuple[Consumer, ...] = ()
    hidden: int | None = 0

    @property
    def count(self) -> int | None:
        """The number of consumers; None if it is not known."""
        return None if self.hidden is None else len(self.consumers) + self.hidden

    @property
    def active(self) -> tuple[Consumer, ...]:
        """The consumers that the broker delivers to."""
        return tuple(consumer for consumer in self.consumers if consumer.active)

    @property
    def is_nobody_active(self) -> bool:
        """True if it has consumers, but no active one."""
        return bool(self.consumers) and not self.active and self.hidden == 0


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """A member of a group.

    Attributes:
        connected_at: the start of its connection, in seconds since 1970; None if the broker does not show it.
        active: the queues of which it is the active consumer.
        waiting: the queues that it consumes without being active.
    """

    name: str = field(metadata=shown("member"))
    connected_at: float | None = field(metadata=shown("connected", moment_text, as_json=moment_as_json))
    active: tuple[str, ...] = field(metadata=shown("active", len, number=True))
    waiting: tuple[str, ...] = field(metadata=shown("waiting", len, number=True))


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """The queues of a group, in the order of the ring, and its members, by name."""

    queues: tuple[QueueStatus, ...]
    members: tuple[MemberStatus, ...]

    @classmethod
    def of(
        cls, names: Iterable[str], live: LiveTopology, connected_at: Mapping[str, float] | None = None
    ) -> GroupStatus:
        """Return the status of some queues of a broker.

        Args:
            names: the queues.
            live: the broker, with its `facts.usage`.
            connected_at: the start of each connection, in seconds since 1970.
        """
        declared = {queue.name: queue for queue in live.queues}
        usage = live.facts.usage or Usage()
        statuses = tuple(_queue(name, declared.get(name), usage) for name in names)
        return cls(statuses, _members(statuses, connected_at or {}))

    @property
    def is_seen(self) -> bool:
        """True if the user sees all consumers."""
        return all(queue.hidden == 0 for queue in self.queues)


def _queue(name: str, declared: QueueDefinition | None, usage: Usage) -> QueueStatus:
    consumers = (usage.consumers or {}).get(name, ())
    counted = usage.queues.get(name, QueueUsage())
    return QueueStatus(
        name,
        None if declared is None else declared.type,
        single_active=declared is not None and declared.arguments.get(_SINGLE_ACTIVE) is True,
        ready=counted.ready,
        unacked=counted.unacked,
        consumers=tuple(sorted(consumers, key=lambda consumer: (not consumer.active, consumer.tag))),
        hidden=_count_hidden(name, usage),
    )


def _count_hidden(name: str, usage: Usage) -> int | None:
    """Return the number of consumers of a queue that the broker does not list for this user; None if it is not known."""
    if usage.consumers is not None and usage.sees_all:
        return 0
    count = usage.consumers_of(name)
    listed = len((usage.consumers or {}).get(name, ()))
    return None if count is None else count - listed


def _members(queues: Iterable[QueueStatus], connected_at: Mapping[str, float]) -> tuple[MemberStatus, ...]:
    active: dict[str, list[str]] = defaultdict(list)
    waiting: dict[str, list[str]] = defaultdict(list)
    since: dict[str, list[float]] = {}
    for queue in queues:
        for consumer in queue.consumers:
            member = parse_member(consumer.tag)
            if member is None:
                continue
            (active if consumer.active else waiting)[member].append(queue.name)
            times = since.setdefault(member, [])
            if consumer.connection in connected_at:
                times.append(connected_at[consumer.connection])
    return tuple(
        MemberStatus(name, max(since[name], default=None), tuple(active[name]), tuple(waiting[name]))
        for name in sorted(since)
    )


def group_findings(
    exchange: str, shares: Mapping[str, float], live: LiveTopology, release: Release
) -> Iterator[Finding]:
    """Yield the findings about the consumers of an exchange's queues, and about the group that they are, if they are one.

    Args:
        exchange: the exchange.
        shares: its queues, each with its share of the keys.
        live: the broker. What depends on consumers that the user does not see is not found.
        release: the release of the broker.
    """
    status = GroupStatus.of(shares, live)
    for queue in status.queues:
        found = [*_find_nobody_active(queue)]
        # What is a fault in a group is none of other consumers.
        if status.members and status.is_seen:
            found += [
                *_find_overtaking(queue),
                *_find_strangers(queue),
                *_find_ignored_priority(queue, release),
            ]
        for kind, message, fix in found:
            yield Finding(
                kind,
                f"{queue.name} {message}",
                fix,
                exchange=exchange,
                destination=queue.name,
                share=shares[queue.name],
            )


def _find_nobody_active(queue: QueueStatus) -> Iterator[tuple[str, str, str]]:
    if not queue.is_nobody_active:
        return
    if queue.unacked:
        message = (
            "has consumers and none of them active: the broker waits until the one that was active acks what it holds "
            f"({plural(queue.unacked, 'message')})"
        )
        fix = (
            "if this lasts, look for a handler that hangs; if there is none, the broker waits for a consumer that is dead: restart the "
            "node that leads the queue"
        )
    else:
        message = "has consumers and none of them active, so nothing is handled"
        fix = "members of a ConsumerGroup notice this and consume again; cancel and consume again with other consumers"
    yield "nobody-active", message, fix


def _find_overtaking(queue: QueueStatus) -> Iterator[tuple[str, str, str]]:
    if queue.type is not None and not queue.single_active:
        message = "has no single active consumer: two consumers handle messages of one key at the same time, and overtake each other"
        fix = (
            "the argument cannot be added later: declare the queue again with x-single-active-consumer = true, or use slots and "
            "move them to new queues"
        )
        yield "no-single-active-consumer", message, fix


def _find_strangers(queue: QueueStatus) -> Iterator[tuple[str, str, str]]:
    tags = sorted({consumer.tag for consumer in queue.consumers if parse_member(consumer.tag) is None})
    if tags:
        message = (
            f"has a consumer that is not a member of a group ({listed(tags, _MAX_LISTED)}): it takes no part in hand-overs, and may "
            "become the active consumer"
        )
        yield "other-consumer", message, "stop it, or run its handler in a ConsumerGroup"


def _find_ignored_priority(queue: QueueStatus, release: Release) -> Iterator[tuple[str, str, str]]:
    has_priorities = len({consumer.priority for consumer in queue.consumers}) > 1
    is_ignored = queue.type != "quorum" or release.numbers < _PRIORITIES_SINCE
    if queue.single_active and has_priorities and is_ignored:
        message = (
            f"has consumers of different priority. RabbitMQ {release.version} ignores the priority of consumers here; it counts for "
            "quorum queues from 4.0 on. Without a journal, the first one stays active until it leaves"
        )
        fix = "assign other queues to each member (static), or upgrade and use quorum queues"
        yield "priority-ignored", message, fix
