"""Every way in which members of a group can come, go and die around one queue: explored, and checked in each state.

The members are the `Seat` that runs in production. The broker is a model of a quorum queue with a single active consumer, with
what was measured on real ones: it drains the old consumer before it elects another one, and a polite end of a consumer returns
its messages late. What is in flight between a member and the broker is in flight here too: messages, acks, claims, and what the
journal says. Queues share nothing but the journal, so one queue shows what several would.

    python tools/group_exploration.py             # some sizes, in a minute
    python tools/group_exploration.py 3 1 1 1     # members, messages, crashes, rises: an hour
"""

from __future__ import annotations

import pickle
import sys
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from group_model import Consumer, Member, Queue, World, state_key

from rabbit_chx.consuming.handling import Handling
from rabbit_chx.consuming.seat import Seat
from rabbit_chx.consuming.seat_commands import (
    Abandon,
    Ack,
    AwaitTime,
    Claim,
    CloseLine,
    DeliveredMessage,
    Interrupt,
    Probe,
    RunHook,
    Start,
    Subscribe,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rabbit_chx.consuming.seat_commands import SeatCommand

__all__ = ["BrokenInvariantError", "Explored", "explored"]

_PREFETCH = 2


class BrokenInvariantError(Exception):
    """What must always hold does not hold."""


@dataclass
class Explored:
    """What was explored.

    Attributes:
        members: how many members there are.
        messages: how many messages there are.
        states: how many different states were reached.
        steps: how many steps were tried.
        ends: how many of the states are ends, in which nothing can happen any more.
        outranked: how many times a member abandoned a consumer that held messages and was outranked.
        seconds: how long it took.
    """

    members: int
    messages: int
    states: int = 0
    steps: int = 0
    ends: int = 0
    outranked: int = 0
    seconds: float = 0.0


def explored(members: int, messages: int, *, crashes: int = 1, rises: int = 1) -> Explored:
    """Go through all states and return how many there are.

    Args:
        members: how many members may come. Each may leave or die once.
        messages: how many messages the queue has.
        crashes: how many members may die.
        rises: how many times a member may take a higher priority, each member once.

    Raises:
        BrokenInvariantError: an invariant does not hold; the error tells the steps that lead there.
    """
    began = time.monotonic()
    found = Explored(members, messages)
    first = World(Queue(list(range(1, messages + 1))), [Member() for _ in range(members)])
    packed = pickle.dumps(first, protocol=5)
    seen: dict[tuple[Any, ...], tuple[tuple[Any, ...] | None, str]] = {state_key(first): (None, "begin")}
    frontier = deque([(state_key(first), packed)])
    while frontier:
        key, packed = frontier.popleft()
        choices = list(_choices(pickle.loads(packed), crashes, rises))  # noqa: S301  # our own bytes
        if not choices:
            found.ends += 1
            _check_end(pickle.loads(packed), lambda key=key: _way(seen, key))  # noqa: S301
        for choice in choices:
            world: World = pickle.loads(packed)  # noqa: S301
            found.steps += 1
            try:
                _do(world, choice, found)
            except BrokenInvariantError as broken:
                raise BrokenInvariantError(
                    f"{broken}\n" + "\n".join([*_way(seen, key), str(choice)])
                ) from None
            after = state_key(world)
            if after not in seen:
                seen[after] = (key, str(choice))
                frontier.append((after, pickle.dumps(world, protocol=5)))
    found.states = len(seen)
    found.seconds = time.monotonic() - began
    return found


def _way(seen: dict[Any, tuple[Any, str]], key: Any) -> list[str]:  # noqa: ANN401
    steps: list[str] = []
    while key is not None:
        key, step = seen[key]
        steps.append(step)
    return steps[::-1]


# -- what can happen


def _choices(world: World, crashes: int, rises: int) -> Iterator[tuple[Any, ...]]:
    queue = world.queue
    if queue.late:
        yield ("return late",)
    active = queue.active
    if active and queue.ready and len(active.unacked) < _PREFETCH and not queue.is_outranked:
        yield ("deliver",)
    for number, member in enumerate(world.members):
        if member.seat is None:
            if member.may_join:
                yield "join", number
            continue
        yield from _own_choices(world, number)
        if member.may_rise and world.term < rises and not member.seat.stopping:
            yield "rise", number
        if member.may_end:
            yield "leave", number
            if world.crashes < crashes:
                yield "crash", number


def _own_choices(world: World, number: int) -> Iterator[tuple[Any, ...]]:
    """Yield what a member does by itself."""
    member = world.members[number]
    if member.to_broker:
        yield "send", number
    if member.to_member:
        yield "receive", number
    for line, message in member.running:
        yield "handle", number, line, message
    for line, reason in sorted(set(member.timers)):
        yield "time", number, line, reason
    if member.read < len(world.journal):
        yield "read", number


def _do(world: World, choice: tuple[Any, ...], found: Explored) -> None:  # noqa: C901  # one branch for each event
    what, *rest = choice
    if what == "return late":
        world.queue.ready = sorted(world.queue.late.pop(0) + world.queue.ready)
        return
    if what == "deliver":
        _deliver(world)
        return
    number = rest[0]
    member = world.members[number]
    commands: list[SeatCommand] = []
    if what == "join":
        member.may_join = False
        member.seat = Seat("q", Handling(prefetch=_PREFETCH))
        member.read = len(world.journal)
        commands = member.seat.want(-number - 1)
    seat = _seat(member)
    match what:
        case "send":
            commands = _sent(world, number, found)
        case "receive":
            line, message = member.to_member.pop(0)
            commands = seat.delivered(line, DeliveredMessage(message, "k")) if message else seat.probed(line)
        case "handle":
            member.running.remove((rest[1], rest[2]))
            world.handled.append(rest[2])
            commands = seat.handled(rest[1], rest[2])
        case "time":
            member.timers = [timer for timer in member.timers if timer != (rest[1], rest[2])]
            commands = seat.time_passed(rest[1], rest[2])
        case "read":
            who, line = world.journal[member.read]
            member.read += 1
            commands = seat.claimed(line, member.read) if who == number else seat.superseded()
        case "rise":
            member.may_rise = False
            world.term += 1
            commands = seat.want(world.term)
        case "leave":
            member.may_end = False
            commands = seat.stop(
                drain=any(other.priority > _priority(seat) for other in world.queue.consumers)
            )
        case "crash":
            world.crashes += 1
            _crash(world, number)
            return
    _take(world, number, commands)
    if seat.stopping and seat.is_empty and not member.to_broker:
        world.members[number] = Member(None, may_join=False, may_rise=False, may_end=False, read=member.read)


def _seat(member: Member) -> Seat:
    assert member.seat is not None
    return member.seat


def _priority(seat: Seat) -> int:
    return max((line.priority for line in seat.lines), default=0)


def _deliver(world: World) -> None:
    consumer = world.queue.active
    assert consumer is not None
    message = world.queue.ready.pop(0)
    consumer.unacked.append(message)
    world.members[consumer.member].to_member.append((consumer.line, message))


def _take(world: World, number: int, commands: list[SeatCommand]) -> None:
    """Do what a seat asks for; what goes to the broker is on its way first."""
    member = world.members[number]
    for command in commands:
        match command:
            case Start(line, delivery, _, generation):
                member.running.append((line, delivery.tag))
                _check_start(world, number, delivery.tag, generation or 0)
            case RunHook():
                _take(world, number, _seat(member).hook_done())  # it concerns nobody else
            case AwaitTime(line, reason, _):
                member.timers.append((line, reason))
            case Subscribe() | Claim() | Probe() | Ack() | Abandon() | CloseLine():
                member.to_broker.append(command)
            case Interrupt():
                raise BrokenInvariantError("a handler is interrupted although no line is lost")


def _sent(world: World, number: int, found: Explored) -> list[SeatCommand]:
    """Let the broker take the next thing that a member sent, and return what the member does then."""
    member, queue = world.members[number], world.queue
    command = member.to_broker.pop(0)
    seat = _seat(member)
    if isinstance(command, Subscribe):
        queue.consumers.append(Consumer(number, command.line, command.priority))
        queue.elect()
        return seat.subscribed(command.line)
    if isinstance(command, Claim):
        world.journal.append((number, command.line))
        return []
    if isinstance(command, Probe):
        member.to_member.append((command.line, 0))
        return []
    consumer = next(one for one in queue.consumers if (one.member, one.line) == (number, command.line))
    if isinstance(command, Ack):
        if command.tag not in consumer.unacked:
            raise BrokenInvariantError(f"message {command.tag} is acknowledged and not held")
        consumer.unacked.remove(command.tag)
        queue.elect()
        return []
    if isinstance(command, Abandon) and consumer is queue.active and queue.is_outranked and consumer.unacked:
        found.outranked += 1
    queue.remove(consumer, politely=isinstance(command, CloseLine))
    member.to_member = [one for one in member.to_member if one[0] != command.line]
    return seat.closed(command.line)


def _crash(world: World, number: int) -> None:
    queue = world.queue
    for consumer in [one for one in queue.consumers if one.member == number]:
        world.repeatable |= set(consumer.unacked)
        queue.consumers.remove(consumer)
        queue.ready = sorted(consumer.unacked + queue.ready)
        if queue.active is consumer:
            queue.active = None
    queue.elect()
    world.members[number] = Member(None, may_join=False, may_rise=False, may_end=False)


# -- what must hold


def _check_start(world: World, number: int, message: int, generation: int) -> None:
    if sum(len(member.running) for member in world.members) > 1:
        raise BrokenInvariantError("two handlers run at once")
    first = len(set(world.handled)) + 1
    if message != first and not (message in world.handled and message in world.repeatable):
        raise BrokenInvariantError(f"message {message} is started; the next one is {first}")
    if world.starts:
        who, last, before = world.starts[-1]
        repeats = message <= last
        if repeats and message not in world.repeatable:
            raise BrokenInvariantError(f"message {message} is repeated, and no member that died held it")
        knows_all = world.members[number].read == len(world.journal)
        if who != number and (generation == before or (generation < before and knows_all)):
            raise BrokenInvariantError(f"the generation {generation} comes after {before}")
    world.starts = [(number, message, generation)]


def _check_end(world: World, way: Any) -> None:  # noqa: ANN401
    living = [number for number, member in enumerate(world.members) if member.seat is not None]
    queue = world.queue
    faults = []
    if living and (queue.ready or queue.late or len(set(world.handled)) != max(world.handled, default=0)):
        faults.append("messages are left although a member lives")
    if living and (queue.active is None or queue.active.member not in living):
        faults.append("members live, and none is active")
    if any(consumer.unacked for consumer in queue.consumers):
        faults.append("a message is held and not handled")
    for number in living:
        seat = world.members[number].seat
        if seat is not None and (seat.stopping or len(seat.lines) != 1):
            faults.append(f"member {number} does not get to an end")
    if faults:
        raise BrokenInvariantError("; ".join(faults) + "\n" + "\n".join(way()))


_SIZES = [(1, 3, 1, 1), (2, 1, 1, 0), (2, 1, 0, 1)]


def main() -> None:
    """Explore, and print how much there was."""
    given = tuple(int(text) for text in sys.argv[1:5])
    for members, messages, crashes, rises in [given] if len(given) == 4 else _SIZES:
        found = explored(members, messages, crashes=crashes, rises=rises)
        print(
            f"{members} members, {messages} messages, {crashes} crashes, {rises} rises: {found.states:,} states, {found.steps:,} steps, "
            f"{found.ends:,} ends; all invariants hold. A consumer that held messages was abandoned while outranked in "
            f"{found.outranked} steps ({found.seconds:.0f} s)",
            flush=True,
        )


if __name__ == "__main__":
    main()
