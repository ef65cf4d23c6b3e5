"""A group as the broker shows it: its queues, who consumes them, and who is active. A value, made without I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rabbit_chx.topology.applying import member_of

__all__ = ["GroupStatus", "MemberStatus", "QueueConsumer", "QueueStatus"]


@dataclass(frozen=True, slots=True)
class QueueConsumer:
    """A consumer of a queue.

    Attributes:
        tag: its consumer tag.
        active: whether the broker delivers to it. Of a queue without a single active consumer, all are active.
        priority: its ``x-priority``.
        connection: the name of its connection.
    """

    tag: str
    active: bool
    priority: int = 0
    connection: str = ""

    @property
    def name(self) -> str:
        """The member that it belongs to, or its tag where it belongs to no group."""
        return member_of(self.tag) or self.tag


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """A queue of a group.

    Attributes:
        name: its name.
        type: ``quorum``, ``classic`` or ``stream``; None where the queue does not exist.
        single_active: whether it has a single active consumer.
        ready: how many messages wait; None where the broker has not counted yet.
        unacked: how many messages are delivered and not acknowledged; None where the broker has not counted yet.
        consumers: its consumers.
    """

    name: str
    type: str | None
    single_active: bool
    ready: int | None
    unacked: int | None
    consumers: tuple[QueueConsumer, ...] = ()

    @property
    def active(self) -> tuple[QueueConsumer, ...]:
        """The consumers that the broker delivers to."""
        return tuple(one for one in self.consumers if one.active)


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """A member of a group.

    Attributes:
        name: its name.
        active: the queues that it is the active consumer of.
        waiting: the queues that it waits for.
        connected_at: when its connection began, in seconds since 1970; None where the broker does not show it.
    """

    name: str
    active: tuple[str, ...]
    waiting: tuple[str, ...]
    connected_at: float | None = None


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """The queues and the members of a group.

    Attributes:
        queues: the queues, in the order of the ring.
        members: the members, by name.
    """

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
        """Return the status that answers of the management API tell.

        Args:
            names: the queues of the group.
            queues: the queues of the vhost, as ``/api/queues/VHOST`` lists them.
            consumers: the consumers of the vhost, as ``/api/consumers/VHOST`` lists them.
            connections: the connections of the vhost, as ``/api/vhosts/VHOST/connections`` lists them.
        """
        there = {one["name"]: one for one in queues}
        by_queue: dict[str, list[QueueConsumer]] = {name: [] for name in names}
        for one in consumers:
            if (queue := one["queue"]["name"]) in by_queue:
                by_queue[queue].append(_consumer(one))
        listed = tuple(_queue(name, there.get(name), by_queue[name]) for name in names)
        began = {one["name"]: one["connected_at"] / 1000 for one in connections if one.get("connected_at")}
        return cls(listed, _members(listed, began))

    @property
    def nobody_active(self) -> tuple[QueueStatus, ...]:
        """The queues that have consumers, and none that is active."""
        return tuple(one for one in self.queues if one.consumers and not one.active)


def _consumer(listed: Mapping[str, Any]) -> QueueConsumer:
    arguments = listed.get("arguments") or {}  # a list where there is none
    priority = arguments.get("x-priority", 0)
    details = listed.get("channel_details") or {}
    return QueueConsumer(
        listed["consumer_tag"],
        bool(listed.get("active", True)),
        priority if isinstance(priority, int) else 0,
        str(details.get("connection_name", "")) if details else "",
    )


def _queue(name: str, listed: Mapping[str, Any] | None, consumers: Iterable[QueueConsumer]) -> QueueStatus:
    if listed is None:
        return QueueStatus(name, None, single_active=False, ready=None, unacked=None)
    arguments = listed.get("arguments") or {}
    return QueueStatus(
        name,
        str(listed.get("type", "classic")),
        single_active=bool(arguments.get("x-single-active-consumer", False)),
        ready=listed.get("messages_ready"),
        unacked=listed.get("messages_unacknowledged"),
        consumers=tuple(sorted(consumers, key=lambda one: (not one.active, one.tag))),
    )


def _members(queues: Iterable[QueueStatus], began: Mapping[str, float]) -> tuple[MemberStatus, ...]:
    active: dict[str, list[str]] = {}
    waiting: dict[str, list[str]] = {}
    since: dict[str, list[float]] = {}
    for queue in queues:
        for one in queue.consumers:
            member = member_of(one.tag)
            if member is None:
                continue
            (active if one.active else waiting).setdefault(member, []).append(queue.name)
            since.setdefault(member, []).extend([began[one.connection]] if one.connection in began else [])
    return tuple(
        MemberStatus(
            name, tuple(active.get(name, ())), tuple(waiting.get(name, ())), max(since[name], default=None)
        )
        for name in sorted(since)
    )
