"""What a member decides at one queue: each test tells a story in events."""

from __future__ import annotations

from typing import Any

import pytest

from rabbit_chx.consuming.ownership import (
    POLL,
    Abandon,
    Ack,
    CancelHandler,
    Claim,
    DeliveredMessage,
    FailGroup,
    FetchParked,
    LogWarning,
    QueueOwnership,
    Reject,
    RunHook,
    SendReply,
    StartHandler,
    StartTimer,
    Subscribe,
    TimerReason,
)
from rabbit_chx.consuming.settings import FailurePolicy, GroupMember
from rabbit_chx.topology.hand_over_marker import HandOverMarker

FLUSH, BEGIN, END = (HandOverMarker(kind, "e.slot.00", "1", "e.park") for kind in ("flush", "begin", "end"))


def message(tag: int, key: str = "k") -> DeliveredMessage:
    return DeliveredMessage(tag, key)


def marker(tag: int, what: HandOverMarker) -> DeliveredMessage:
    return DeliveredMessage(tag, "", marker=what, reply_to="mover")


def active(**how: Any) -> QueueOwnership:
    """A ownership that was elected: it has handled the message 1."""
    ownership = QueueOwnership("q", GroupMember("a", **how))
    assert ownership.consume() == [Subscribe(1)]
    assert ownership.on_subscribed(1) == []
    assert ownership.on_delivered(1, message(1)) == [Claim(1)]
    assert ownership.on_claimed(1, 40) == [RunHook("gained", 40)]
    assert ownership.on_hook_done() == [StartHandler(1, message(1), 1, 40)]
    assert ownership.on_handled(1, 1) == [Ack(1, 1)]
    return ownership


def test_one_message_is_handled_at_a_time() -> None:
    ownership = active()
    assert ownership.on_delivered(1, message(2)) == [StartHandler(1, message(2), 1, 40)]
    assert ownership.on_delivered(1, message(3)) == []
    assert ownership.on_handled(1, 2) == [Ack(1, 2), StartHandler(1, message(3), 1, 40)]
    assert ownership.on_handled(1, 3) == [Ack(1, 3)]
    assert ownership.is_idle


def test_lanes_keep_the_order_of_each_key() -> None:
    ownership = active(concurrency=2, prefetch=10)
    even, odd = "a", "d"  # crc32 puts them into different concurrency
    assert [type(c) for c in ownership.on_delivered(1, message(2, even))] == [StartHandler]
    assert ownership.on_delivered(1, message(3, even)) == []
    assert ownership.on_delivered(1, message(4, odd)) == [StartHandler(1, message(4, odd), 1, 40)]
    assert ownership.on_delivered(1, message(5, odd)) == []
    assert ownership.on_handled(1, 4) == [Ack(1, 4), StartHandler(1, message(5, odd), 1, 40)]
    assert ownership.on_handled(1, 2) == [Ack(1, 2), StartHandler(1, message(3, even), 1, 40)]


def test_messages_of_a_key_that_wait_together_are_started_in_their_order() -> None:
    ownership = active(concurrency=2, prefetch=10)
    even, odd = "a", "d"
    ownership.on_delivered(1, message(2, even))
    ownership.on_delivered(1, message(3, odd))
    for tag in (4, 5, 6, 7):
        assert ownership.on_delivered(1, message(tag, even)) == []
    assert ownership.on_delivered(1, message(8, odd)) == []
    assert ownership.on_handled(1, 3) == [Ack(1, 3), StartHandler(1, message(8, odd), 1, 40)]
    for tag in (2, 4, 5, 6):
        following = 4 if tag == 2 else tag + 1
        assert ownership.on_handled(1, tag) == [Ack(1, tag), StartHandler(1, message(following, even), 1, 40)]


@pytest.mark.parametrize("on_failure", ["dead-letter", "stop"])
def test_a_handler_that_fails_while_its_member_steps_back_leaves_the_message_to_the_next_member(
    on_failure: Any,
) -> None:
    ownership = active(failures=FailurePolicy(retries=0, on_failure=on_failure))
    ownership.on_delivered(1, message(2))
    assert ownership.step_back() == []
    assert ownership.on_handled(1, 2, failed=True) == [RunHook("lost", 40)]
    assert ownership.on_hook_done() == [Abandon(1)]


def test_a_member_that_leaves_waits_for_the_end_of_its_claim() -> None:
    """A claim that came later would look like that of a member that has the queue."""
    ownership = QueueOwnership("q", GroupMember("a"))
    ownership.consume()
    ownership.on_subscribed(1)
    ownership.on_delivered(1, message(1))
    assert ownership.stop() == []
    assert ownership.on_claimed(1, 40) == [Abandon(1)]


def test_a_message_is_repeated_in_its_place() -> None:
    ownership = active(failures=FailurePolicy(retries=1, backoff_s=2.0))
    ownership.on_delivered(1, message(2))
    ownership.on_delivered(1, message(3))
    assert ownership.on_handled(1, 2, failed=True) == [StartTimer(1, TimerReason("retry", 0), 2.0)]
    assert ownership.on_timer(1, TimerReason("retry", 0)) == [StartHandler(1, message(2), 2, 40)]
    assert ownership.on_handled(1, 2) == [Ack(1, 2), StartHandler(1, message(3), 1, 40)]


def test_an_attempt_after_another_member_had_the_queue_has_a_new_generation() -> None:
    """A store that refuses the old generation makes the handler raise, and the next attempt is accepted."""
    ownership = active(failures=FailurePolicy(retries=2, backoff_s=2.0))
    ownership.on_delivered(1, message(2))
    ownership.on_handled(1, 2, failed=True)
    assert ownership.on_superseded() == []
    assert ownership.on_timer(1, TimerReason("retry", 0)) == [
        Claim(1),
        StartTimer(1, TimerReason("retry", 0), 0.05),
    ]
    assert ownership.on_claimed(1, 60) == []
    assert ownership.on_timer(1, TimerReason("retry", 0)) == [StartHandler(1, message(2), 2, 60)]
    assert ownership.on_handled(1, 2) == [Ack(1, 2), RunHook("lost", 60)]


@pytest.mark.parametrize(
    ("on_failure", "expected"),
    [
        ("dead-letter", [Reject(1, 2), StartHandler(1, message(3), 1, 40)]),
        ("stop", [FailGroup(1, message(2))]),
    ],
)
def test_after_the_last_attempt_a_message_is_dead_lettered_or_the_group_fails(
    on_failure: Any, expected: list[Any]
) -> None:
    ownership = active(failures=FailurePolicy(retries=0, on_failure=on_failure))
    ownership.on_delivered(1, message(2))
    ownership.on_delivered(1, message(3))
    assert ownership.on_handled(1, 2, failed=True) == expected


def test_nothing_is_handled_after_a_message_that_stopped_the_group() -> None:
    ownership = active(failures=FailurePolicy(retries=0))
    ownership.on_delivered(1, message(2))
    ownership.on_handled(1, 2, failed=True)
    assert ownership.on_delivered(1, message(3)) == []
    assert ownership.stop() == [RunHook("lost", 40)]
    assert ownership.on_hook_done() == [Abandon(1)]


#: What follows the end of a channel: a member that stops is finished, and one that steps back consumes behind the others.
ENDINGS = pytest.mark.parametrize(("end", "follows"), [("stop", []), ("step_back", [Subscribe(2)])])


@ENDINGS
def test_the_message_in_hand_is_finished_and_the_rest_goes_back(end: str, follows: list[Any]) -> None:
    ownership = active()
    ownership.on_delivered(1, message(2))
    ownership.on_delivered(1, message(3))
    assert getattr(ownership, end)() == []
    assert ownership.on_handled(1, 2) == [Ack(1, 2), RunHook("lost", 40)], (
        "on_lost before the next member is elected"
    )
    assert ownership.on_hook_done() == [Abandon(1)]
    assert not ownership.is_finished
    assert ownership.on_abandoned(1) == follows
    assert ownership.is_finished == (not follows)
    if follows:
        assert ownership.on_subscribed(2) == []
        assert ownership.on_delivered(2, message(3)) == [Claim(2)]


@ENDINGS
def test_an_end_while_the_broker_is_asked_to_consume(end: str, follows: list[Any]) -> None:
    """Other members may have joined meanwhile."""
    ownership = QueueOwnership("q", GroupMember("a"))
    ownership.consume()
    assert getattr(ownership, end)() == []
    assert ownership.on_subscribed(1) == [Abandon(1)]
    assert ownership.on_abandoned(1) == follows
    assert ownership.is_finished == (not follows)
    if follows:
        assert ownership.on_subscribed(2) == []
        assert ownership.is_idle


@pytest.mark.parametrize("end", ["stop", "step_back"])
def test_a_message_that_waits_for_its_next_attempt_goes_to_the_next_member(end: str) -> None:
    ownership = active(failures=FailurePolicy(retries=3))
    ownership.on_delivered(1, message(2))
    ownership.on_handled(1, 2, failed=True)
    assert getattr(ownership, end)() == [RunHook("lost", 40)]
    assert ownership.on_timer(1, TimerReason("retry", 0)) == []
    assert ownership.on_hook_done() == [Abandon(1)]


def test_stepping_back_twice_is_stepping_back_once() -> None:
    ownership = active()
    assert ownership.step_back() == [RunHook("lost", 40)]
    assert ownership.step_back() == []
    assert ownership.on_hook_done() == [Abandon(1)]
    assert ownership.step_back() == []
    assert ownership.on_abandoned(1) == [Subscribe(2)]


def test_stopping_while_stepping_back_finishes_after_the_hook() -> None:
    ownership = active()
    assert ownership.step_back() == [RunHook("lost", 40)]
    assert ownership.stop() == []
    assert ownership.on_hook_done() == [Abandon(1)]
    assert ownership.on_abandoned(1) == []
    assert ownership.is_finished


def test_another_member_has_had_the_queue() -> None:
    ownership = active()
    assert ownership.on_superseded() == [RunHook("lost", 40)]
    assert ownership.on_hook_done() == []
    assert ownership.on_delivered(1, message(2)) == [Claim(1)]
    assert ownership.on_claimed(1, 50) == [RunHook("gained", 50)]


def test_a_lost_connection_interrupts_the_handler_and_waits_for_its_end() -> None:
    ownership = active()
    ownership.on_delivered(1, message(2))
    assert ownership.on_connection_lost() == [CancelHandler(1, 2)]
    ownership.consume()
    ownership.on_subscribed(2)
    assert ownership.on_delivered(2, message(1)) == [], "the old handler still runs"
    assert ownership.on_handled(1, 2, failed=True) == [RunHook("lost", 40)]
    assert ownership.on_hook_done() == [Claim(2)]


def test_what_a_closed_channel_still_delivers_is_not_handled() -> None:
    """The broker has returned it, and delivers it to the next consumer."""
    ownership = active()
    assert ownership.on_connection_lost() == [RunHook("lost", 40)]
    assert ownership.on_hook_done() == []
    assert ownership.consume() == [Subscribe(2)]
    assert ownership.on_subscribed(2) == []
    assert ownership.on_delivered(1, message(2)) == []
    assert ownership.on_delivered(2, message(1)) == [Claim(2)]


def test_a_flush_is_answered_when_all_before_it_is_handled() -> None:
    ownership = active(concurrency=4, prefetch=9)
    ownership.on_delivered(1, message(2))
    assert ownership.on_delivered(1, marker(3, FLUSH)) == []
    assert ownership.on_delivered(1, message(4, "other")) == []
    assert ownership.on_handled(1, 2) == [
        Ack(1, 2),
        SendReply(1, "mover", FLUSH.reply("flushed")),
        Ack(1, 3),
        StartHandler(1, message(4, "other"), 1, 40),
    ]


def test_a_message_after_a_marker_is_started() -> None:
    ownership = active()
    ownership.on_delivered(1, message(2))
    ownership.on_delivered(1, marker(3, FLUSH))
    ownership.on_delivered(1, message(4))
    assert ownership.on_handled(1, 2)[-1] == StartHandler(1, message(4), 1, 40)


def test_a_begin_reads_the_parking_queue_up_to_the_end() -> None:
    ownership = active()
    assert ownership.on_delivered(1, marker(2, BEGIN)) == [
        StartTimer(1, TimerReason("hand-over", 2), 30.0),
        FetchParked(1, "e.park"),
    ]
    ownership.on_delivered(1, message(3))
    assert ownership.on_fetched(1, message(4)) == [StartHandler(1, message(4), 1, 40)]
    assert ownership.on_handled(1, 4) == [Ack(1, 4), FetchParked(1, "e.park")]
    assert ownership.on_fetched(1, None) == [StartTimer(1, POLL, 0.05)]
    assert ownership.on_timer(1, POLL) == [FetchParked(1, "e.park")]
    assert ownership.on_fetched(1, marker(5, END)) == [
        Ack(1, 2),
        Ack(1, 5),
        SendReply(1, "mover", BEGIN.reply("taken")),
        StartHandler(1, message(3), 1, 40),
    ]
    assert ownership.on_timer(1, TimerReason("hand-over", 2)) == []


def test_an_end_that_does_not_come() -> None:
    ownership = active()
    ownership.on_delivered(1, marker(2, BEGIN))
    ownership.on_delivered(1, message(3))
    ownership.on_fetched(1, None)
    note, *rest = ownership.on_timer(1, TimerReason("hand-over", 2))
    assert isinstance(note, LogWarning)
    assert "e.slot.00" in note.message
    assert rest == [Ack(1, 2), StartHandler(1, message(3), 1, 40)]


def test_what_is_fetched_while_the_member_leaves_goes_back() -> None:
    """The channel ends when the answer is here, and the message is in the parking queue again."""
    ownership = active()
    ownership.on_delivered(1, marker(2, BEGIN))
    assert ownership.stop() == []
    assert ownership.on_fetched(1, message(3)) == [RunHook("lost", 40)]
    assert ownership.on_hook_done() == [Abandon(1)]
    assert ownership.on_fetched(1, message(4)) == []


def test_the_end_is_awaited_until_the_answer_of_the_parking_queue_is_here() -> None:
    ownership = active()
    ownership.on_delivered(1, marker(2, BEGIN))
    assert ownership.on_timer(1, TimerReason("hand-over", 2)) == [
        StartTimer(1, TimerReason("hand-over", 2), 0.05)
    ]
    assert ownership.on_fetched(1, message(3)) == [StartHandler(1, message(3), 1, 40)]
    assert ownership.on_timer(1, TimerReason("hand-over", 2)) == [
        StartTimer(1, TimerReason("hand-over", 2), 30.0)
    ]
    assert ownership.on_timer(1, TimerReason("hand-over", 2))[1:] == [Ack(1, 2)]


def test_the_end_is_awaited_as_long_as_parked_messages_come() -> None:
    ownership = active()
    ownership.on_delivered(1, marker(2, BEGIN))
    for tag in range(3, 6):
        assert ownership.on_fetched(1, message(tag)) == [StartHandler(1, message(tag), 1, 40)]
        assert ownership.on_timer(1, TimerReason("hand-over", 2)) == [
            StartTimer(1, TimerReason("hand-over", 2), 30.0)
        ]
        assert ownership.on_handled(1, tag) == [Ack(1, tag), FetchParked(1, "e.park")]
    assert ownership.on_fetched(1, None) == [StartTimer(1, POLL, 0.05)]
    assert isinstance(ownership.on_timer(1, TimerReason("hand-over", 2))[0], LogWarning)


def test_what_is_parked_later_does_not_keep_a_dead_mover_awaited() -> None:
    ownership = active()
    ownership.on_delivered(1, marker(2, BEGIN))
    ownership.on_fetched(1, None)
    assert ownership.on_timer(1, POLL) == [FetchParked(1, "e.park")]
    assert ownership.on_fetched(1, message(3)) == [StartHandler(1, message(3), 1, 40)]
    assert isinstance(ownership.on_timer(1, TimerReason("hand-over", 2))[0], LogWarning)


@pytest.mark.parametrize("slot", ["e.slot.00", "e.slot.01"])
def test_the_end_of_a_later_hand_over_is_known_at_its_begin(slot: str) -> None:
    """A mover has died between `begin` and `end`, and the next one hands over the same slot, or another one."""
    begin, end = (HandOverMarker(kind, slot, "2", "e.park") for kind in ("begin", "end"))
    ownership = active()
    ownership.on_delivered(1, marker(2, BEGIN))
    ownership.on_delivered(1, marker(3, begin))
    assert ownership.on_fetched(1, marker(4, end)) == [Ack(1, 4), FetchParked(1, "e.park")]
    assert ownership.on_fetched(1, None) == [StartTimer(1, POLL, 0.05)]
    assert ownership.on_timer(1, TimerReason("hand-over", 2)) == [
        StartTimer(1, TimerReason("hand-over", 2), 30.0)
    ]
    assert ownership.on_timer(1, TimerReason("hand-over", 2))[1:] == [
        Ack(1, 2),
        SendReply(1, "mover", begin.reply("taken")),
        Ack(1, 3),
    ]


def test_markers_that_come_too_late_are_dropped() -> None:
    ownership = active()
    assert ownership.on_delivered(1, marker(2, END)) == [Ack(1, 2)]
    assert ownership.on_delivered(1, DeliveredMessage(3, "", marker=FLUSH)) == [Ack(1, 3)], (
        "nobody waits for the reply"
    )


def test_without_a_journal_there_is_no_generation() -> None:
    ownership = QueueOwnership("q", GroupMember("a", journal=None))
    ownership.consume()
    ownership.on_subscribed(1)
    assert ownership.on_delivered(1, message(1)) == [RunHook("gained", None)]
    assert ownership.on_hook_done() == [StartHandler(1, message(1), 1, None)]
