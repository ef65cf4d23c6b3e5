"""A model of a quorum queue with a single active consumer, of the members of a group, and of what is on its way between them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from rabbit_chx.consuming.ownership import QueueOwnership, TimerReason

#: What decides nothing.
_LEFT_OUT = {"subscription", "_member", "_turns", "delivered_count", "generation", "queue"}


@dataclass
class Consumer:
    """A consumer, as the broker sees it."""

    member: int
    subscription: int
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
    ends_politely: ClassVar[bool] = False
    is_checked: ClassVar[bool] = True  # whether a member checks it before it handles a message
    is_fit: bool = True  # whether it has a single active consumer

    def elect(self) -> None:
        """Elect the consumer that subscribed first, if no consumer is active."""
        if self.active is None and self.consumers:
            self.active = self.consumers[0]

    def remove(self, consumer: Consumer) -> None:
        """End a consumer. Its messages are returned before the election; after that where consumers end politely."""
        self.consumers.remove(consumer)
        if self.ends_politely and consumer.unacked:
            self.late.append(consumer.unacked)
        else:
            self.ready = sorted(consumer.unacked + self.ready)
        if self.active is consumer:
            self.active = None
            self.elect()


@dataclass
class Member:
    """A member: its ownership, what is on its way, and what may still happen to it."""

    ownership: QueueOwnership | None = None
    may_join: bool = True
    may_return: bool = True
    may_end: bool = True
    to_broker: list[Any] = field(default_factory=list)
    to_journal: list[int] = field(default_factory=list)  # claims: subscriptions; over a separate connection
    answers: list[tuple[int, int]] = field(
        default_factory=list
    )  # to what was asked over a subscription: subscription, generation
    is_unfit: bool = False  # its check of the queue finds that
    is_given_up: bool = False  # the broker has closed its connection, and the member has not noticed it yet
    is_replaced: bool = False  # another member has started a message since then
    unread: int | None = None  # where its journal ends meanwhile, which it reads over the same connection
    reads_elsewhere: ClassVar[bool] = False  # over a separate connection
    to_member: list[tuple[int, int]] = field(default_factory=list)  # deliveries: subscription, message
    running: list[tuple[int, int]] = field(default_factory=list)  # handlers: subscription, message
    timers: list[tuple[int, TimerReason]] = field(default_factory=list)
    read: int = 0  # how much of the journal it has read


@dataclass
class World:
    """One state of everything."""

    queue: Queue
    members: list[Member]
    journal: list[tuple[int, int]] = field(default_factory=list)  # claims: member, subscription
    testament: list[tuple[int, int]] = field(
        default_factory=list
    )  # claims that are written after the death of their member
    handled: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)  # the message that was started last
    fence: int = 0  # the highest generation of a start
    fenced_by: int = -1  # its member
    repeatable: set[int] = field(default_factory=set)  # held by a member that died
    crashes: int = 0
    cuts: int = 0
    returns: int = 0
    unfit: set[tuple[int, int]] = field(
        default_factory=set
    )  # members, subscriptions of a queue that is not fit


def state_key(world: World) -> tuple[Any, ...]:
    """Return the key that identifies this state."""
    queue = world.queue
    ranks = {generation: rank for rank, generation in enumerate(sorted(_generations(world)))}
    unread = min(
        (member.read for member in world.members if member.ownership is not None), default=len(world.journal)
    )
    return (
        tuple(queue.ready),
        tuple((c.member, c.subscription, tuple(c.unacked), c is queue.active) for c in queue.consumers),
        tuple(map(tuple, queue.late)),
        tuple(_member_key(member, world, ranks) for member in world.members),
        len(set(world.handled)),
        (tuple(world.starts), ranks[world.fence], world.fenced_by),
        frozenset(world.repeatable),
        (world.crashes, world.cuts),
        tuple(world.journal[unread:]),
        tuple(world.testament),
        world.returns,
        (queue.is_fit, frozenset(world.unfit)),
    )


def _generations(world: World) -> set[int]:
    """Return the generations that are still in use; only their order counts."""
    known = {world.fence, 0, -1}
    for member in world.members:
        if member.ownership is not None:
            known.add(member.ownership.subscription.generation or 0 if member.ownership.subscription else 0)
    return known


def _member_key(member: Member, world: World, ranks: dict[int, int]) -> tuple[Any, ...]:
    return (
        None if member.ownership is None else _ownership_key(member.ownership, ranks),
        (member.may_join, member.may_return, member.may_end),
        tuple(map(repr, member.to_broker)),
        tuple(member.to_journal),
        (member.is_given_up, member.is_replaced, member.is_unfit),
        None if member.unread is None else len(world.journal) - member.unread,
        tuple(member.to_member),
        tuple(member.running),
        tuple(sorted(set(member.timers))),
        len(world.journal) - member.read,
    )


def _ownership_key(ownership: QueueOwnership, ranks: dict[int, int]) -> tuple[Any, ...]:
    subscription = ownership.subscription
    told = None
    if subscription is not None:
        told = (
            subscription.number,
            subscription.state,
            tuple(delivery.tag for delivery in subscription.pending),
            tuple(
                (lane, message.delivery.tag, message.attempt, message.is_running)
                for lane, message in subscription.in_progress.items()
            ),
            subscription.claim,
            ranks[subscription.generation or 0],
            subscription.has_failed,
            subscription.is_step_back_due,
        )
    rest = {name: value for name, value in vars(ownership).items() if name not in _LEFT_OUT}
    return told, tuple(sorted((name, repr(value)) for name, value in rest.items()))
