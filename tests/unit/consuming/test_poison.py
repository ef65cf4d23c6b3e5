"""A redelivered message of a queue with a delivery limit is handled alone, and waits for others of its kind.

tests/models/poison_exploration.py has all orders of events, and tests/fire/group/ members that die.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from scripted_group import BRISK

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
    TimerReason,
)
from rabbit_chx.consuming.settings import FailurePolicy, GroupMember

QUEUES = ("p", "q")


class Queues:
    """A member without a journal that owns the queues `p` and `q`, as far as their hooks have ended.

    Attributes:
        started: the messages whose handlers were started.
        timers: the timers that run.
    """

    def __init__(self, hooks: Iterable[str] = QUEUES, **how: bool) -> None:
        self.turns = Turns()
        member = GroupMember("a", journal=None, timing=BRISK, failures=FailurePolicy(retries=1))
        self.owned = {queue: QueueOwnership(queue, member, self.turns) for queue in QUEUES}
        self.hooks = list(hooks)
        self.started: list[tuple[str, int]] = []
        self.timers: list[tuple[str, TimerReason]] = []
        for queue, ownership in self.owned.items():
            ownership.is_limited = how.get("is_limited", True)
            self.take(queue, ownership.consume())
            self.take(queue, ownership.on_subscribed(1))

    def deliver(self, queue: str, tag: int, returns: int) -> None:
        """Deliver a message that was returned so often."""
        self.take(queue, self.owned[queue].on_delivered(1, DeliveredMessage(tag, "k", returns=returns)))

    def pass_time(self, *kinds: str) -> None:
        """Let the timers of these kinds end."""
        ended = [timer for timer in self.timers if timer[1].kind in kinds]
        self.timers = [timer for timer in self.timers if timer not in ended]
        for queue, reason in ended:
            self.take(queue, self.owned[queue].on_timer(1, reason))

    def handle(self, queue: str, tag: int, *, failed: bool = False) -> list[Command]:
        """Let a handler end, and return the commands."""
        commands = self.owned[queue].on_handled(1, tag, failed=failed)
        self.take(queue, commands)
        return commands

    def take(self, queue: str, commands: list[Command]) -> None:
        """Do what a queue asks for."""
        for command in commands:
            match command:
                case StartHandler(_, delivery):
                    self.started.append((queue, delivery.tag))
                case StartTimer(_, reason):
                    self.timers.append((queue, reason))
                case RunHook() if queue in self.hooks:
                    self.take(queue, self.owned[queue].on_hook_done())
                case ResumeQueues(tag):
                    self.owned[queue].pass_turn(tag)
                    for each, ownership in self.owned.items():
                        self.take(each, ownership.resume())


def test_a_redelivered_message_is_handled_alone_and_others_wait() -> None:
    queues = Queues()
    queues.deliver("p", 1, 1)
    queues.deliver("q", 1, 0)
    assert queues.started == [], "others may arrive"
    queues.pass_time("settle")
    assert queues.started == [("p", 1)]
    ended = queues.handle("p", 1)
    assert ended[:2] == [Ack(1, 1), AwaitAcks(1)], "the broker has its ack before another one begins"
    assert queues.started == [("p", 1), ("q", 1)]
    queues.deliver("p", 2, 0)
    assert queues.started[2:] == [("p", 2)], "ordinary ones are handled at the same time"
    assert queues.handle("p", 2) == [Ack(1, 2)]


def test_a_redelivered_message_waits_for_handlers_that_run() -> None:
    queues = Queues()
    queues.deliver("p", 1, 0)
    queues.deliver("q", 1, 1)
    queues.pass_time("settle")
    assert queues.started == [("p", 1)]
    queues.handle("p", 1)
    assert queues.started == [("p", 1), ("q", 1)]


def test_the_order_of_two_redelivered_messages_is_reversed_at_each_second_return() -> None:
    """So a poison message is only once before a good one."""
    first = []
    for returns in range(1, 21):
        queues = Queues()
        for queue in QUEUES:
            queues.deliver(queue, 1, returns)
        queues.pass_time("settle")
        first += queues.started
    assert len(first) == 20
    assert all(one != other for one, other in zip(first[::2], first[1::2], strict=True))


@pytest.mark.parametrize("returns", [(1, 5), (5, 1)])
def test_a_message_with_more_returns_does_not_always_come_last_or_first(returns: tuple[int, int]) -> None:
    """A good message may have moved often before the poison comes: it would never have its turn."""
    starts = set()
    for more in range(2):
        queues = Queues()
        for queue, count in zip(QUEUES, returns, strict=True):
            queues.deliver(queue, 1, count + more)
        queues.pass_time("settle")
        starts |= set(queues.started)
    assert starts == {("p", 1), ("q", 1)}


@pytest.mark.parametrize("end", ["fails", "takes its time"])
def test_a_message_that_does_not_end_its_process_holds_up_no_other_queue(end: str) -> None:
    queues = Queues()
    queues.deliver("p", 1, 1)
    queues.deliver("q", 1, 0)
    queues.pass_time("settle")
    if end == "fails":
        queues.handle("p", 1, failed=True)
    else:
        queues.pass_time("turn")
    assert queues.started == [("p", 1), ("q", 1)]


def test_a_redelivered_message_waits_for_those_whose_hooks_run_for_the_time_of_a_hook() -> None:
    queues = Queues(hooks=["p"])
    queues.deliver("p", 1, 1)
    queues.deliver("q", 1, 1)
    queues.pass_time("settle")
    assert queues.started == []
    for _ in range(int(BRISK.hook_s / 0.25)):
        queues.pass_time("settle")
    assert queues.started == [("p", 1)]


@pytest.mark.parametrize("end", ["step_back", "on_connection_lost"])
def test_a_queue_that_is_released_lets_the_others_go_on(end: str) -> None:
    queues = Queues()
    queues.deliver("p", 1, 1)
    queues.deliver("q", 1, 0)
    queues.take("p", getattr(queues.owned["p"], end)())
    queues.take("q", queues.owned["q"].resume())
    assert queues.started == [("q", 1)]
    assert not queues.turns.are_taken


def test_without_a_delivery_limit_nothing_waits() -> None:
    queues = Queues(is_limited=False)
    for queue in QUEUES:
        queues.deliver(queue, 1, 3)
    assert queues.started == [("p", 1), ("q", 1)]
