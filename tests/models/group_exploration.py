"""Explore and check all states of a group's members around one queue: they join, leave and die in every order.

The members are the `QueueOwnership` that runs in production. The broker is a model of a quorum queue with a single active consumer, with
the behaviour that was measured on real ones: it drains the old consumer before it elects another one, and a regular end of a consumer returns
its messages late. Messages, acks, claims and journal entries are in flight between a member and the broker, as in reality.
Claims use a separate connection, and may take as long as an alarm of the broker lasts; they may also be written after the death of
their member. The broker may close the other connection, over which the journal is read, and the member may
learn that late. Queues share only the journal, so one queue is enough.

    python tests/models/group_exploration.py               # all sizes: half an hour
    python tests/models/group_exploration.py 3 1 1 1 0     # members, messages, deaths, steps back, cuts

With `redeclares`, the queue is deleted once and declared again without a single active consumer. Its messages are then those that were left.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any

from group_model import Consumer, Member, Queue, World, state_key
from state_search import BrokenModelError, Found, searched

from rabbit_chx.consuming.ownership import (
    Abandon,
    Ack,
    CancelHandler,
    Claim,
    Command,
    DeliveredMessage,
    QueueOwnership,
    RunHook,
    StartHandler,
    StartTimer,
    Subscribe,
)
from rabbit_chx.consuming.settings import GroupMember

_PREFETCH = 2


@dataclass
class GroupWorld:
    """One state of the members and their queue, and how often things may still happen."""

    world: World
    crashes: int
    returns: int
    cuts: int
    redeclares: int = 0

    def key(self) -> Hashable:
        """Return the key that identifies this state."""
        return state_key(self.world)

    def choices(self) -> Iterator[tuple[Any, ...]]:
        """Return what can happen now."""
        yield from _choices(self.world, self.crashes, self.returns, self.cuts)
        if self.redeclares and self.world.queue.is_fit:
            yield ("redeclare",)

    def do(self, choice: tuple[Any, ...]) -> None:
        """Let something happen.

        Args:
            choice: one of the choices.
        """
        _do(self.world, choice)

    def check_end(self) -> str:
        """Return the kind of this end: with or without a member."""
        return _checked_end(self.world)


def explored(
    members: int, messages: int, *, crashes: int = 1, returns: int = 1, cuts: int = 0, redeclares: int = 0
) -> Found:
    """Go through all states and return how many there are.

    Args:
        members: how many members may join. Each may leave or die once.
        messages: how many messages the queue has.
        crashes: how many members may die.
        returns: how many members may step back, each at any time.
        cuts: how often the broker may close the connection of a member, which learns it later and connects again.
        redeclares: whether the queue is deleted and declared again without a single active consumer.

    Raises:
        BrokenModelError: an invariant does not hold; the error lists the steps that lead there.
    """
    world = World(Queue(list(range(1, messages + 1))), [Member() for _ in range(members)])
    return searched(GroupWorld(world, crashes, returns, cuts, redeclares))


# -- what can happen


def _choices(  # noqa: C901  # one branch for each event
    world: World, crashes: int, returns: int, cuts: int
) -> Iterator[tuple[Any, ...]]:
    queue = world.queue
    if queue.late:
        yield ("return late",)
    if world.testament:
        yield ("write late",)
    for consumer in queue.consumers:
        is_active = consumer is queue.active or not queue.is_fit
        if is_active and queue.ready and len(consumer.unacked) < _PREFETCH:
            yield "deliver", consumer.member, consumer.subscription
    for number, member in enumerate(world.members):
        if member.ownership is None:
            if member.may_join:
                yield "join", number
            continue
        yield from _own_choices(world, number)
        if member.may_return and world.returns < returns and not member.ownership.is_stopping:
            yield "step back", number
        if member.may_end:
            yield "leave", number
            if world.crashes < crashes:
                yield "crash", number, False
                if member.to_journal:
                    yield "crash", number, True
        if (
            world.cuts < cuts
            and not member.ownership.is_stopping
            and any(consumer.member == number for consumer in queue.consumers)
        ):
            yield "cut", number


def _own_choices(world: World, number: int) -> Iterator[tuple[Any, ...]]:
    """Yield what a member does by itself."""
    member = world.members[number]
    if member.is_unfit:
        yield "refuse", number
        return
    if member.to_broker:
        yield "send", number
    if member.to_member:
        yield "receive", number
    if member.to_journal:
        yield "write", number
    if member.is_given_up:
        yield "lose", number
    for subscription, message in member.running:
        yield "handle", number, subscription, message
    for subscription, reason in sorted(set(member.timers)):
        yield "time", number, subscription, reason
    if member.read < (len(world.journal) if member.unread is None else member.unread):
        yield "read", number


def _do(world: World, choice: tuple[Any, ...]) -> None:  # noqa: C901, PLR0912, PLR0915  # one branch for each event
    what, *rest = choice
    if what == "return late":
        world.queue.ready = sorted(world.queue.late.pop(0) + world.queue.ready)
        return
    if what == "deliver":
        _deliver(world, *rest)
        return
    if what == "redeclare":
        for number in {consumer.member for consumer in world.queue.consumers}:
            _do(world, ("cut", number))  # it cancels the consumer, after which a member connects again
        world.queue.is_fit = False
        return
    if what == "write late":
        world.journal.append(world.testament.pop(0))
        return
    number = rest[0]
    member = world.members[number]
    commands: list[Command] = []
    if what == "join":
        member.may_join = False
        member.ownership = QueueOwnership("q", GroupMember("a", prefetch=_PREFETCH))
        member.read = len(world.journal)
        commands = member.ownership.consume()
    ownership = _ownership(member)
    match what:
        case "send":
            commands = _sent(world, number)
        case "receive":
            subscription, message = member.to_member.pop(0)
            commands = ownership.on_delivered(subscription, DeliveredMessage(message, "k"))
        case "handle":
            member.running.remove((rest[1], rest[2]))
            world.handled.append(rest[2])
            commands = ownership.on_handled(rest[1], rest[2])
        case "time":
            member.timers = [timer for timer in member.timers if timer != (rest[1], rest[2])]
            commands = ownership.on_timer(rest[1], rest[2])
        case "read":
            who, subscription = world.journal[member.read]
            member.read += 1
            is_own = (
                who == number and subscription > 0
            )  # a claim over a connection that is lost is as one of another member
            commands = (
                ownership.on_claimed(subscription, member.read) if is_own else ownership.on_superseded()
            )
        case "write":
            world.journal.append((number, member.to_journal.pop(0)))
        case "cut":
            world.cuts += 1
            _end_consumers(world, number)
            member.is_given_up, member.unread = True, None if member.reads_elsewhere else len(world.journal)
        case "lose":
            member.is_given_up, member.is_replaced, member.unread = False, False, None
            member.to_broker, member.to_member = [], []
            # Entries that are written over the other connection may still arrive.
            world.testament += [(number, -subscription) for subscription in member.to_journal]
            member.to_journal = []
            commands = ownership.on_connection_lost() + ownership.consume()
        case "refuse":
            _end_consumers(world, number)
            world.members[number] = Member(None, may_join=False, may_return=False, may_end=False)
            return
        case "step back":
            member.may_return = False
            world.returns += 1
            commands = ownership.step_back()
        case "leave":
            member.may_end = False
            commands = ownership.stop()
        case "crash":
            world.crashes += 1
            if rest[1]:
                world.testament += [(number, -subscription) for subscription in member.to_journal]
            _end_consumers(world, number)
            world.members[number] = Member(None, may_join=False, may_return=False, may_end=False)
            return
    _take(world, number, commands)
    if ownership.is_stopping and ownership.is_finished and not member.to_broker:
        world.members[number] = Member(
            None, may_join=False, may_return=False, may_end=False, read=member.read
        )


def _ownership(member: Member) -> QueueOwnership:
    assert member.ownership is not None
    return member.ownership


def _deliver(world: World, member: int, subscription: int) -> None:
    consumer = next(
        each for each in world.queue.consumers if (each.member, each.subscription) == (member, subscription)
    )
    message = world.queue.ready.pop(0)
    consumer.unacked.append(message)
    world.members[consumer.member].to_member.append((consumer.subscription, message))


def _take(world: World, number: int, commands: list[Command]) -> None:  # noqa: C901  # one branch for each command
    """Do what a ownership asks for; what goes to the broker is on its way first."""
    member = world.members[number]
    for command in commands:
        match command:
            case StartHandler(subscription, delivery, _, generation):
                member.running.append((subscription, delivery.tag))
                if (number, subscription) in world.unfit:
                    raise BrokenModelError("a message of a queue without a single active consumer is started")
                _check_start(world, number, delivery.tag, generation or 0)
            case RunHook():
                _take(world, number, _ownership(member).on_hook_done())  # it concerns nobody else
            case StartTimer(subscription, reason, _):
                member.timers.append((subscription, reason))
            case Subscribe(subscription):
                member.to_broker.append(Consumer(number, subscription))
            case Claim(subscription):
                member.to_journal.append(subscription)
            case Ack() | Abandon():
                member.to_broker.append(command)
            case CancelHandler():  # it ends later, as a handler does that shields itself
                if not world.cuts:
                    raise BrokenModelError("a handler is interrupted, but its subscription is not lost")


def _sent(world: World, number: int) -> list[Command]:
    """Let the broker take the next thing that a member sent, and return what the member does then."""
    member, queue = world.members[number], world.queue
    command = member.to_broker.pop(0)
    ownership = _ownership(member)
    if member.is_given_up:
        return []
    if isinstance(command, Consumer):
        queue.consumers.append(command)
        queue.elect()
        if not queue.is_fit:
            world.unfit.add((number, command.subscription))
            member.is_unfit = queue.is_checked
        return [] if member.is_unfit else ownership.on_subscribed(command.subscription)
    consumer = next(
        (
            consumer
            for consumer in queue.consumers
            if (consumer.member, consumer.subscription) == (number, command.subscription)
        ),
        None,
    )
    if consumer is None:  # the broker has closed the connection
        return []
    if isinstance(command, Ack):
        if command.tag not in consumer.unacked:
            raise BrokenModelError(f"message {command.tag} is acknowledged and not held")
        consumer.unacked.remove(command.tag)
        queue.elect()
        return []
    queue.remove(consumer)
    member.to_member = [delivery for delivery in member.to_member if delivery[0] != command.subscription]
    return ownership.on_abandoned(command.subscription)


def _end_consumers(world: World, number: int) -> None:
    """End the connection of a member at the broker."""
    queue = world.queue
    for consumer in [consumer for consumer in queue.consumers if consumer.member == number]:
        world.repeatable |= set(consumer.unacked)
        queue.remove(consumer)


# -- what must hold


def _check_start(world: World, number: int, message: int, generation: int) -> None:  # noqa: C901  # one for each rule
    starter = world.members[number]
    if not world.cuts and sum(len(member.running) for member in world.members) > 1:
        raise BrokenModelError("two handlers run at once")
    if len(starter.running) > 1:
        raise BrokenModelError("a member runs two handlers at once")
    first = len(set(world.handled)) + 1
    if message != first and not (message in world.handled and message in world.repeatable):
        raise BrokenModelError(f"message {message} is started; the next one is {first}")
    if world.starts:
        last = world.starts[-1]
        repeats = message <= last
        if repeats and message not in world.repeatable:
            raise BrokenModelError(f"message {message} is repeated, and no member that died held it")
    if starter.is_given_up:
        if starter.is_replaced and generation >= world.fence:
            raise BrokenModelError(
                f"generation {generation} is of a member that was replaced: {world.fence} should fence it off"
            )
    elif generation < world.fence or (generation == world.fence and world.fenced_by != number):
        raise BrokenModelError(f"generation {generation} follows {world.fence}")
    if generation > world.fence:
        world.fence, world.fenced_by = generation, number
    for member in world.members:
        member.is_replaced |= member.is_given_up and member is not starter
    world.starts = [message]


def _checked_end(world: World) -> str:
    living = [number for number, member in enumerate(world.members) if member.ownership is not None]
    queue = world.queue
    if not queue.is_fit:
        if living:
            raise BrokenModelError("a member consumes a queue that is not fit")
        return "with a queue that is not fit"
    faults = []
    if living and (queue.ready or queue.late or len(set(world.handled)) != max(world.handled, default=0)):
        faults.append("messages are left although a member lives")
    if living and (queue.active is None or queue.active.member not in living):
        faults.append("members live, and none is active")
    if any(consumer.unacked for consumer in queue.consumers):
        faults.append("a message is held and not handled")
    for number in living:
        ownership = world.members[number].ownership
        if ownership is not None and (
            ownership.is_stopping or ownership.subscription is None or ownership.subscription.state != "open"
        ):
            faults.append(f"member {number} does not get to an end")
    if faults:
        raise BrokenModelError("; ".join(faults))
    return "with a member" if living else "without a member"


_SIZES = [
    (1, 3, 1, 1, 0),
    (2, 2, 1, 1, 0),
    (2, 2, 2, 2, 0),
    (2, 3, 1, 1, 0),
    (2, 2, 0, 0, 1),
    (2, 2, 0, 1, 1),
    (2, 2, 1, 0, 1),
    (3, 1, 1, 1, 0),
    (3, 2, 0, 1, 0),
]


def main() -> None:
    """Explore, and print how much there was."""
    sizes = tuple(int(text) for text in sys.argv[1:6])
    for members, messages, crashes, returns, cuts in [sizes] if len(sizes) == 5 else _SIZES:
        result = explored(members, messages, crashes=crashes, returns=returns, cuts=cuts)
        print(
            f"{members} members, {messages} messages, {crashes} deaths, {returns} steps back, {cuts} cuts: {result}",
            flush=True,
        )


if __name__ == "__main__":
    main()
