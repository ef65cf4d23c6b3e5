"""A model of a quorum queue with a single active consumer, of the members of a group, and of what is on its way between them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rabbit_chx.consuming.seat import Seat

__all__ = ["Consumer", "Member", "Queue", "World", "state_key"]

#: What decides nothing.
_LEFT_OUT = {"lines", "_handling", "delivered_count", "_last_generation", "queue", "_journal"}


@dataclass
class Consumer:
    """A consumer, as the broker knows it."""

    member: int
    line: int
    priority: int
    unacked: list[int] = field(default_factory=list)


@dataclass
class Queue:
    """The model of a quorum queue with a single active consumer."""

    ready: list[int]
    consumers: list[Consumer] = field(default_factory=list)  # in the order of their coming
    active: Consumer | None = None
    late: list[list[int]] = field(
        default_factory=list
    )  # messages of consumers that ended politely, not returned yet

    def elect(self) -> None:
        """Elect the consumer with the highest priority, once the active one holds nothing."""
        best = max(self.consumers, key=lambda one: one.priority, default=None)
        if self.active is None or (best and best.priority > self.active.priority and not self.active.unacked):
            self.active = best

    @property
    def is_outranked(self) -> bool:
        """Whether the active consumer gets nothing more, since another one has a higher priority."""
        return self.active is not None and any(one.priority > self.active.priority for one in self.consumers)

    def remove(self, consumer: Consumer, *, politely: bool) -> None:
        """End a consumer. Its messages are returned before the election, or, where it ends politely, some time after."""
        self.consumers.remove(consumer)
        if politely and consumer.unacked:
            self.late.append(consumer.unacked)
        else:
            self.ready = sorted(consumer.unacked + self.ready)
        if self.active is consumer:
            self.active = None
            self.elect()


@dataclass
class Member:
    """A member: its seat, what is on its way, and what may still happen to it."""

    seat: Seat | None = None
    may_join: bool = True
    may_rise: bool = True
    may_end: bool = True
    to_broker: list[Any] = field(default_factory=list)
    to_member: list[tuple[int, int]] = field(
        default_factory=list
    )  # deliveries: line, message; 0 for the answer to a probe
    running: list[tuple[int, int]] = field(default_factory=list)  # handlers: line, message
    timers: list[tuple[int, str]] = field(default_factory=list)
    read: int = 0  # how much of the journal it has read


@dataclass
class World:
    """One state of everything."""

    queue: Queue
    members: list[Member]
    journal: list[tuple[int, int]] = field(default_factory=list)  # claims: member, line
    handled: list[int] = field(default_factory=list)
    starts: list[tuple[int, int, int]] = field(default_factory=list)  # the last: member, message, generation
    repeatable: set[int] = field(default_factory=set)  # held by a member that died
    crashes: int = 0
    term: int = 0


def state_key(world: World) -> tuple[Any, ...]:
    """Return what tells this state from others."""
    queue = world.queue
    ranks = {generation: rank for rank, generation in enumerate(sorted(_generations(world)))}
    unread = min(
        (member.read for member in world.members if member.seat is not None), default=len(world.journal)
    )
    return (
        tuple(queue.ready),
        tuple((c.member, c.line, c.priority, tuple(c.unacked), c is queue.active) for c in queue.consumers),
        tuple(map(tuple, queue.late)),
        tuple(_member_key(member, world, ranks) for member in world.members),
        len(set(world.handled)),
        tuple((who, message, ranks[generation]) for who, message, generation in world.starts),
        frozenset(world.repeatable),
        world.crashes,
        tuple(world.journal[unread:]),
        world.term,
    )


def _generations(world: World) -> set[int]:
    """Return the generations that somebody still knows; only their order counts."""
    found = {generation for _, _, generation in world.starts} | {0, -1}
    for member in world.members:
        if member.seat is not None:
            found |= {line.generation or 0 for line in member.seat.lines}
    return found


def _member_key(member: Member, world: World, ranks: dict[int, int]) -> tuple[Any, ...]:
    return (
        None if member.seat is None else _seat_key(member.seat, ranks),
        (member.may_join, member.may_rise, member.may_end),
        tuple(map(repr, member.to_broker)),
        tuple(member.to_member),
        tuple(member.running),
        tuple(sorted(set(member.timers))),
        len(world.journal) - member.read,
    )


def _seat_key(seat: Seat, ranks: dict[int, int]) -> tuple[Any, ...]:
    lines = tuple(
        (
            line.number,
            line.priority,
            line.state,
            tuple(one.tag for one in line.pending),
            tuple(
                (lane, work.delivery.tag, work.attempt, work.running) for lane, work in line.working.items()
            ),
            line.claim,
            ranks[line.generation or 0],
            line.failed,
            line.probed,
        )
        for line in seat.lines
    )
    rest = {
        name: value
        for name, value in vars(seat).items()
        if name not in ("lines", "_handling", "delivered_count")
    }
    return lines, tuple(sorted((name, repr(value)) for name, value in rest.items()))
