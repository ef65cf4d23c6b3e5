"""Explore and check all states of members whose queues have a delivery limit, and messages that kill the process that handles them.

The members are the `QueueOwnership` and the `Turns` that run in production, without a journal. The broker is a model of quorum queues with a
single active consumer: it counts the returns of each message, and drops one beyond the limit. A member that dies begins again at once.
Subscriptions, deliveries, hooks and acks take their time, in each order; only redelivered messages wait for each other longer than they take.

    python tests/models/poison_exploration.py                    # all sizes
    python tests/models/poison_exploration.py 3 1 0.1 1 2 1    # limit, members, poison message (queue.number), messages of each queue
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from state_search import BrokenModelError, Found, searched

from rabbit_chx.consuming.message import Turns
from rabbit_chx.consuming.ownership import (
    Ack,
    AwaitAcks,
    Command,
    DeliveredMessage,
    QueueOwnership,
    ResumeQueues,
    RunHook,
    StartHandler,
    StartTimer,
    Subscribe,
    TimerReason,
)
from rabbit_chx.consuming.settings import GroupMember

#: A queue and the number of a message in it.
Message: TypeAlias = tuple[str, int]


class Process:
    """A member, and what is under way in it."""

    def __init__(self, queues: list[str]) -> None:
        turns = Turns()
        self.queues = {
            queue: QueueOwnership(queue, GroupMember("a", journal=None), turns) for queue in queues
        }
        self.turns = turns
        self.commands: dict[str, deque[Command]] = {queue: deque() for queue in queues}
        self.subscribing: list[str] = []
        self.hooks: list[str] = []
        self.unsent: list[Message] = []  # acks
        self.running: list[Message] = []
        self.settling: list[Message] = []  # timers
        for queue, ownership in self.queues.items():
            ownership.is_limited = True
            self.take(queue, ownership.consume())

    def take(self, queue: str, commands: list[Command]) -> None:  # noqa: C901  # one branch for each command
        """Execute commands in their order, as a `QueueRunner` does."""
        self.commands[queue].extend(commands)
        while self.commands[queue]:
            command = self.commands[queue][0]
            if isinstance(command, AwaitAcks) and any(each == queue for each, _ in self.unsent):
                return
            self.commands[queue].popleft()
            match command:
                case Subscribe():
                    self.subscribing.append(queue)
                case RunHook():
                    self.hooks.append(queue)
                case StartHandler(_, delivery):
                    if self.running and self.turns.is_suspect(queue, delivery.tag):
                        raise BrokenModelError("a redelivered message is handled beside others")
                    if any(self.turns.is_suspect(*each) for each in self.running):
                        raise BrokenModelError("a message is started beside a redelivered one")
                    self.running.append((queue, delivery.tag))
                case Ack(_, tag):
                    self.unsent.append((queue, tag))
                case StartTimer(_, TimerReason("settle", tag)):
                    self.settling.append((queue, tag))
                case ResumeQueues(tag):
                    self.queues[queue].pass_turn(tag)
                    for each, ownership in self.queues.items():
                        self.take(each, ownership.resume())

    def key(self) -> Hashable:
        """Return what distinguishes this state."""
        told = tuple(
            (
                subscription.state,
                tuple(delivery.tag for delivery in subscription.pending),
                subscription.settling_s,
                (ownership.is_held, ownership._is_hook_running),
                tuple(map(repr, self.commands[queue])),
            )
            for queue, ownership in self.queues.items()
            if (subscription := ownership.subscription) is not None
        )
        turns = (self.turns.turn, self.turns.is_timed, repr(self.turns._suspects))
        waits = (self.subscribing, self.hooks, self.unsent, self.running, self.settling)
        return told, turns, tuple(tuple(sorted(each)) for each in waits)


@dataclass
class PoisonWorld:
    """One state of everything.

    Attributes:
        ready: the messages of each queue that wait.
        consumers: the members that consume each queue, in the order of their coming; the first is active.
        held: what the active member of each queue holds.
        returns: how often each message was returned.
    """

    limit: int
    poisons: frozenset[Message]
    ready: dict[str, list[int]]
    processes: list[Process]
    consumers: dict[str, list[int]]
    held: dict[str, list[int]]
    returns: dict[Message, int] = field(default_factory=dict)
    handled: set[Message] = field(default_factory=set)

    def key(self) -> Hashable:
        """Return the key that identifies this state."""
        broker = repr(
            (self.ready, self.consumers, self.held, sorted(self.returns.items()), sorted(self.handled))
        )
        return broker, tuple(process.key() for process in self.processes)

    def choices(self) -> Iterator[tuple[Any, ...]]:
        """Return what can happen now. Redelivered messages wait until nothing else can happen but ends of handlers."""
        prompt: list[tuple[Any, ...]] = [
            ("deliver", number, queue)
            for queue, waiting in self.ready.items()
            for number in self.consumers[queue][:1]
            if waiting and not self.held[queue]
        ]
        for number, process in enumerate(self.processes):
            prompt += [("subscribe", number, queue) for queue in process.subscribing]
            prompt += [("hook", number, queue) for queue in process.hooks]
            prompt += [("send", number, *message) for message in process.unsent[:1]]
        yield from prompt
        for number, process in enumerate(self.processes):
            for message in process.running:
                yield "die" if message in self.poisons else "handle", number, *message
            if not prompt:
                yield from (("settle", number, *message) for message in sorted(set(process.settling)))

    def do(self, choice: tuple[Any, ...]) -> None:
        """Let something happen."""
        what, number, queue, *rest = choice
        process = self.processes[number]
        ownership = process.queues[queue]
        commands: list[Command] = []
        match what:
            case "deliver":
                message = self.ready[queue].pop(0)
                self.held[queue].append(message)
                returns = self.returns.get((queue, message), 0)
                commands = ownership.on_delivered(1, DeliveredMessage(message, "k", returns=returns))
            case "subscribe":
                process.subscribing.remove(queue)
                self.consumers[queue].append(number)
                commands = ownership.on_subscribed(1)
            case "hook":
                process.hooks.remove(queue)
                commands = ownership.on_hook_done()
            case "send":
                process.unsent.remove((queue, rest[0]))
                self.held[queue].remove(rest[0])
            case "handle":
                process.running.remove((queue, rest[0]))
                self.handled.add((queue, rest[0]))
                commands = ownership.on_handled(1, rest[0])
            case "settle":
                process.settling.remove((queue, rest[0]))
                commands = ownership.on_timer(1, TimerReason("settle", rest[0]))
            case "die":
                self._die(number)
                return
        process.take(queue, commands)

    def _die(self, number: int) -> None:
        """Return what a member holds, and let it begin again."""
        for queue, consumers in self.consumers.items():
            if consumers[:1] == [number]:
                for message in self.held[queue]:
                    self._return((queue, message))
                self.held[queue] = []
            self.consumers[queue] = [each for each in consumers if each != number]
        self.processes[number] = Process(list(self.ready))

    def _return(self, message: Message) -> None:
        queue, number = message
        self.returns[message] = self.returns.get(message, 0) + 1
        if self.returns[message] <= self.limit:
            self.ready[queue] = [number, *self.ready[queue]]
        elif message not in self.poisons and message not in self.handled:
            raise BrokenModelError(f"the good message {message} is dropped at return {self.returns[message]}")

    def check_end(self) -> str:
        """Return the kind of this end: all good messages are handled, and all poison messages dropped."""
        left = {queue: waiting for queue, waiting in self.ready.items() if waiting or self.held[queue]}
        if left or any(self.returns[poison] <= self.limit for poison in self.poisons):
            raise BrokenModelError(f"messages are left: {left}")
        return "all handled"


def poisons_explored(limit: int, members: int, poisons: list[Message], *messages: int) -> Found:
    """Go through all states and return how many there are.

    Args:
        limit: the delivery limit of the queues ``q0``, ``q1`` and so on.
        members: how many members there are.
        poisons: the messages that kill their process, by the queue and their number, from 1 on.
        messages: how many messages each queue has.

    Raises:
        BrokenModelError: a good message is dropped, or a redelivered one is not handled alone; the error lists the steps that lead there.
    """
    ready = {f"q{index}": list(range(1, count + 1)) for index, count in enumerate(messages)}
    world = PoisonWorld(
        limit,
        frozenset(poisons),
        ready,
        [Process(list(ready)) for _ in range(members)],
        {queue: [] for queue in ready},
        {queue: [] for queue in ready},
    )
    return searched(world)


_SIZES: list[tuple[int, int, list[Message], tuple[int, ...]]] = [
    (2, 1, [("q0", 1)], (1, 1, 1)),
    (3, 1, [("q1", 1)], (2, 2)),
    (3, 1, [("q0", 1)], (1, 2, 1)),
    (3, 2, [("q0", 1)], (1, 2)),
    (20, 1, [("q0", 1)], (1, 2)),
    (20, 1, [("q0", 1), ("q2", 1)], (1, 1, 1)),
]


def main() -> None:
    """Explore, and print how much there was."""
    sizes = _SIZES
    if len(sys.argv) > 4:
        poison = tuple(sys.argv[3].split("."))
        sizes = [
            (
                int(sys.argv[1]),
                int(sys.argv[2]),
                [(f"q{poison[0]}", int(poison[1]))],
                tuple(map(int, sys.argv[4:])),
            )
        ]
    for limit, members, poisons, messages in sizes:
        found = poisons_explored(limit, members, poisons, *messages)
        print(f"limit {limit}, {members} members, poison {poisons}, messages {messages}: {found}", flush=True)


if __name__ == "__main__":
    main()
