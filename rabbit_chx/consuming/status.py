"""The status of a group according to the broker, without I/O: its queues, their consumers, and findings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rabbit_chx.analysis.finding_kinds import GROUP_KINDS
from rabbit_chx.analysis.findings import Finding
from rabbit_chx.analysis.wording import moment_as_json, moment_text
from rabbit_chx.result_fields import shown
from rabbit_chx.routing import Release
from rabbit_chx.topology.slots.hand_over_marker import parse_member
from rabbit_chx.words import listed

_PRIORITIES_SINCE = (4, 0, 0)
_MAX_LISTED = 5


@dataclass(frozen=True, slots=True)
class ConsumerStatus:
    """A consumer of a queue.

    Attributes:
        active: whether the broker delivers to it. All consumers of a queue without a single active consumer are active.
        priority: its ``x-priority``.
        connection: the name of its connection.
    """

    tag: str
    active: bool
    priority: int = 0
    connection: str = ""

    @property
    def name(self) -> str:
        """The member of this consumer, or its tag if it does not belong to a group."""
        return parse_member(self.tag) or self.tag


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
    consumers: tuple[ConsumerStatus, ...] = ()
    hidden: int | None = 0

    @property
    def count(self) -> int | None:
        """The number of consumers; None if it is not known."""
        return None if self.hidden is None else len(self.consumers) + self.hidden

    @property
    def active(self) -> tuple[ConsumerStatus, ...]:
        """The consumers that the broker delivers to."""
        return tuple(consumer for consumer in self.consumers if consumer.active)


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
        cls,
        names: Sequence[str],
        queues: Iterable[Mapping[str, Any]],
        consumers: Iterable[Mapping[str, Any]],
        connections: Iterable[Mapping[str, Any]] = (),
    ) -> GroupStatus:
        """Return the status from responses of the management API.

        Args:
            names: the queues of the group.
            queues: the queues of the vhost, as ``/api/queues/VHOST`` lists them.
            consumers: the consumers of the vhost, as ``/api/consumers/VHOST`` lists them.
            connections: the connections of the vhost, as ``/api/vhosts/VHOST/connections`` lists them.
        """
        by_name = {queue["name"]: queue for queue in queues}
        by_queue: dict[str, list[ConsumerStatus]] = {name: [] for name in names}
        for consumer in consumers:
            if (queue := consumer["queue"]["name"]) in by_queue:
                by_queue[queue].append(_consumer(consumer))
        statuses = tuple(_queue(name, by_name.get(name), by_queue[name]) for name in names)
        connected_at = {
            connection["name"]: connection["connected_at"] / 1000
            for connection in connections
            if connection.get("connected_at")
        }
        return cls(statuses, _members(statuses, connected_at))

    @property
    def nobody_active(self) -> tuple[QueueStatus, ...]:
        """The queues that have consumers, but no active one."""
        return tuple(
            queue for queue in self.queues if queue.consumers and not queue.active and queue.hidden == 0
        )

    def counted(self, counts: Mapping[str, int | None]) -> GroupStatus:
        """Return the status for a user to whom the broker lists its own consumers only; `counts` are the numbers of all, by queue."""

        def hidden(queue: QueueStatus) -> int | None:
            count, seen = counts.get(queue.name), len(queue.consumers)
            return max(0, count - seen) if count is not None else None if not seen else 0

        return replace(self, queues=tuple(replace(queue, hidden=hidden(queue)) for queue in self.queues))

    @property
    def is_seen(self) -> bool:
        """True if the user sees all consumers."""
        return all(queue.hidden == 0 for queue in self.queues)


def _consumer(response: Mapping[str, Any]) -> ConsumerStatus:
    arguments = response.get("arguments") or {}  # an empty list if there are none
    priority = arguments.get("x-priority", 0)
    details = response.get("channel_details") or {}
    return ConsumerStatus(
        response["consumer_tag"],
        bool(response.get("active", True)),
        priority if isinstance(priority, int) else 0,
        str(details.get("connection_name", "")) if details else "",
    )


def _queue(name: str, response: Mapping[str, Any] | None, consumers: Iterable[ConsumerStatus]) -> QueueStatus:
    if response is None:
        return QueueStatus(name, None, single_active=False, ready=None, unacked=None)
    arguments = response.get("arguments") or {}
    return QueueStatus(
        name,
        str(response.get("type", "classic")),
        single_active=bool(arguments.get("x-single-active-consumer", False)),
        ready=response.get("messages_ready"),
        unacked=response.get("messages_unacknowledged"),
        consumers=tuple(sorted(consumers, key=lambda consumer: (not consumer.active, consumer.tag))),
    )


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
    status: GroupStatus,
    release: Release,
    weights: Mapping[str, float] | None = None,
    *,
    has_group: bool = True,
) -> tuple[Finding, ...]:
    """Return the findings about the queues of an exchange and the group that consumes them, the most severe first.

    Args:
        status: the queues and their consumers. What depends on consumers that the user does not see is not found.
        release: the release of the broker.
        weights: the known weights of the members, by default 1.
        has_group: whether there is a group: what is a fault in one is none of other consumers.
    """
    findings = list(_queue_findings(status))
    if has_group and status.is_seen:
        findings += _group_findings(status)
        findings += _priority_findings(status, release)
        findings += _balance_findings(status, weights or {})
    severity = list(GROUP_KINDS)
    return tuple(sorted(findings, key=lambda finding: severity.index(finding.kind)))


def _queue_findings(status: GroupStatus) -> Iterator[Finding]:
    """Yield the findings about single queues. In a message, ``{}`` is the names of the queues and the verb: see `_findings`."""
    existing = [queue for queue in status.queues if queue.type is not None]
    yield from _findings(
        "missing-queue",
        [queue for queue in status.queues if queue.type is None],
        "{} bound, but not listed: it was just deleted, or this user may not see it",
        "list the queues of the vhost: rabbitmqctl list_queues -p VHOST name",
    )
    yield from _findings(
        "nobody-active",
        [queue for queue in status.nobody_active if not queue.unacked],
        "{} consumers and none of them active, so nothing is handled",
        "members of a ConsumerGroup notice this and consume again; cancel and consume again with other consumers",
    )
    stalled = [queue for queue in status.nobody_active if queue.unacked]
    yield from _findings(
        "nobody-active",
        stalled,
        f"{{}} consumers and none of them active: the broker waits until the one that was active acks what it holds "
        f"({sum(queue.unacked or 0 for queue in stalled):,} messages)",
        "if this lasts, look for a handler that hangs; if there is none, the broker waits for a consumer that is dead: restart the "
        "node that leads the queue",
    )
    unread = [queue for queue in existing if queue.count == 0]
    # Those of a node that does not run are not counted.
    least = "at least " if any(queue.ready is None for queue in unread) else ""
    yield from _findings(
        "no-consumer",
        unread,
        f"{{}} no consumer, and {least}{sum(queue.ready or 0 for queue in unread):,} messages wait",
        "start a consumer; if a group consumes the exchange, a member of it that consumes all of its queues",
    )


def _group_findings(status: GroupStatus) -> Iterator[Finding]:
    """Yield what is a fault in a group only, about single queues."""
    existing = [queue for queue in status.queues if queue.type is not None]
    yield from _findings(
        "no-single-active-consumer",
        [queue for queue in existing if not queue.single_active],
        "{} no single active consumer: two consumers handle messages of one key at the same time, and overtake each other",
        "the argument cannot be added later: declare the queue again with x-single-active-consumer = true, or use slots and "
        "move them to new queues",
    )
    foreign = [
        (queue, consumer.tag)
        for queue in existing
        for consumer in queue.consumers
        if parse_member(consumer.tag) is None
    ]
    tags = sorted({tag for _, tag in foreign})
    yield from _findings(
        "other-consumer",
        [*dict.fromkeys(queue for queue, _ in foreign)],
        f"{{}} a consumer that is not a member of a group ({listed(tags, _MAX_LISTED)}): it takes no part in hand-overs, and may become the active consumer",
        "stop it, or run its handler in a ConsumerGroup",
    )


def _priority_findings(status: GroupStatus, release: Release) -> Iterator[Finding]:
    ignoring = [
        queue
        for queue in status.queues
        if queue.single_active
        and len({consumer.priority for consumer in queue.consumers}) > 1
        and (queue.type != "quorum" or release.numbers < _PRIORITIES_SINCE)
    ]
    why = f"RabbitMQ {release.version} ignores the priority of consumers here; it counts for quorum queues from 4.0 on"
    yield from _findings(
        "priority-ignored",
        ignoring,
        f"{{}} consumers of different priority. {why}. Without a journal, the first one stays active until it leaves",
        "assign other queues to each member (static), or upgrade and use quorum queues",
    )


def _balance_findings(status: GroupStatus, weights: Mapping[str, float]) -> Iterator[Finding]:
    """Yield a finding if a member has at least 2 queues and 50% more than its share, or none of a share of 1 or more."""
    shared = [queue for queue in status.queues if queue.single_active and len(queue.consumers) > 1]
    total = sum(weights.get(member.name, 1.0) for member in status.members)
    if not shared or len(status.members) < 2:
        return
    names = {queue.name for queue in shared}
    active = {member.name: len(names.intersection(member.active)) for member in status.members}
    share = {name: len(shared) * weights.get(name, 1.0) / total for name in active}
    heavy = [name for name, count in active.items() if count >= max(share[name] + 2, 1.5 * share[name])]
    idle = [name for name, count in active.items() if not count and share[name] >= 1]
    if heavy or idle:
        uneven = ", ".join(
            f"{name} has {active[name]} (its share is {share[name]:.1f})"
            for name in [*heavy, *idle][:_MAX_LISTED]
        )
        yield Finding(
            "unbalanced",
            f"{len(shared)} queues are shared unevenly: {uneven}",
            "a member takes its share some seconds after it has started; look again. If this stays, look for priority-ignored, or "
            "for members of different weight",
        )


def _findings(kind: str, queues: Sequence[QueueStatus], message: str, fix: str) -> Iterator[Finding]:
    """Yield a finding about queues, if there are any. Its message has {} for their names and the verb."""
    names = tuple(queue.name for queue in queues)
    singular, plural = ("is", "are") if kind == "missing-queue" else ("has", "have")
    verb = singular if len(names) == 1 else plural
    if names:
        yield Finding(kind, message.format(f"{listed(names, _MAX_LISTED)} {verb}"), fix, names=names)
