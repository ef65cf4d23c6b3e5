"""How long a wait may last. The connection's bytes and answers and the time are scripted."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

import pytest
from scripted_delivery import A, Event, ScriptedConnection, ack, blocked, nothing, unblocked

from rabbit_chx.connection.failures import StallError
from rabbit_chx.errors import BrokerTimeoutError
from rabbit_chx.publishing.limits import ProgressTimeout
from rabbit_chx.publishing.options import Limits

LIMITS = Limits(confirm_timeout_s=60, blocked_timeout_s=300)


def open_connection() -> ScriptedConnection:
    """A connection with ten messages that are not answered."""
    connection = ScriptedConnection(A)
    connection.session.publish(b"wire", 10)
    return connection


def sent(connection: ScriptedConnection) -> None:
    """Let the socket take a byte."""
    connection.bytes_sent += 1


def wait(connection: ScriptedConnection, limits: Limits, *story: float | Event) -> list[float]:
    """Look at these times, with events between them, and return the seconds of each look in which the broker blocked."""
    timeout = ProgressTimeout(limits, 0)
    told = []
    for moment in story:
        if callable(moment):
            moment(connection)
        else:
            told.append(timeout.check(connection, moment))
    return told


def every_50_s(event: Callable[[int], Event], until: int) -> list[float | Event]:
    """An event at each time, and a look after it."""
    return list(chain.from_iterable((event(now // 50), now) for now in range(0, until, 50)))


@pytest.mark.parametrize(
    ("story", "says"),
    [
        ([0, 30, 59, 60], "answered nothing for 60 s, and 10 messages are unconfirmed"),
        ([*every_50_s(lambda _: sent, 1000), 1010], "answered nothing for 60 s"),
        ([*every_50_s(lambda number: ack(min(number, 9)) if number else nothing, 500), 510], "1 messages are unconfirmed"),
        # The time in which the broker blocks is not a stall.
        ([0, blocked, 10, 200, unblocked, 201, 250, 251], "answered nothing for 60 s"),
    ],
    ids=["nothing", "bytes are progress", "answers are progress", "a block"],
)  # fmt: skip
def test_a_stall_is_the_time_without_progress(story: list[float | Event], says: str) -> None:
    connection = open_connection()
    wait(connection, LIMITS, *story[:-1])
    with pytest.raises(StallError, match=says):
        wait(open_connection(), LIMITS, *story)


def test_another_connection_is_progress() -> None:
    timeout = ProgressTimeout(LIMITS, 0)
    for now in range(0, 500, 50):
        timeout.check(open_connection(), now)


def test_only_what_is_on_its_way_can_stall() -> None:
    connection, timeout = ScriptedConnection(A), ProgressTimeout(LIMITS, 0)
    for now in (0, 100, 200):
        timeout.check(connection, now)
    connection.backlog = True
    timeout.check(connection, 259)
    with pytest.raises(StallError):
        timeout.check(connection, 260)


def test_the_time_in_which_the_broker_blocks_is_reported() -> None:
    told = wait(open_connection(), LIMITS, 0, blocked, 10, 11, 14, unblocked, 15, 20)
    assert told == [0, 0, 1, 3, 1, 0]


@pytest.mark.parametrize(
    ("limits", "story", "says"),
    [
        (LIMITS, [blocked, 100, 399, 400], r"blocked publishers \(low on memory\) for 300 s"),
        # After progress a block has the whole time again.
        (LIMITS, [blocked, 0, 299, unblocked, ack(1), 299, blocked, 300, 599, 600], "for 300 s"),
        (LIMITS, [blocked, 0, 299, unblocked, sent, 299, blocked, 300, 599, 600], "for 300 s"),
        (Limits(blocked_timeout_s=0), [blocked, 1], "for 0 s"),
    ],
    ids=["a block", "an answer", "bytes", "no timeout"],
)
def test_a_block_is_bounded(limits: Limits, story: list[float | Event], says: str) -> None:
    wait(open_connection(), limits, *story[:-1])
    with pytest.raises(BrokerTimeoutError, match=says) as caught:
        wait(open_connection(), limits, *story)
    assert not isinstance(caught.value, StallError), "another connection would be blocked as well"


@pytest.mark.parametrize(
    ("of_ten_s", "says"),
    [(9, r"blocked publishers \(low on memory\) for 300 s"), (1, "answered nothing for 60 s")],
)
def test_blocks_count_together_and_so_do_the_times_between_them(of_ten_s: int, says: str) -> None:
    story: list[float | Event] = []
    for now in range(361):
        story += [blocked if now % 10 < of_ten_s else unblocked, now]
    with pytest.raises(BrokerTimeoutError, match=says):
        wait(open_connection(), LIMITS, *story)
