"""How long a wait may last. The connection's bytes and answers and the time are scripted."""

from __future__ import annotations

import pytest
from scripted_delivery import A, Event, ScriptedConnection, ack, blocked, unblocked

from rabbit_chx.connection.failures import StallError
from rabbit_chx.errors import BrokerTimeoutError
from rabbit_chx.publishing.limits import Limits, Patience

LIMITS = Limits(confirm_timeout_s=60, blocked_timeout_s=300)


def open_connection() -> ScriptedConnection:
    """A connection with ten messages that are not answered."""
    connection = ScriptedConnection(A)
    connection.session.publish(b"wire", 10)
    return connection


def sent(connection: ScriptedConnection) -> None:
    """Let the socket take a byte."""
    connection.bytes_sent += 1


def test_what_neither_takes_bytes_nor_answers_is_a_stall() -> None:
    connection, patience = open_connection(), Patience(LIMITS, 0)
    for now in (0, 30, 59):
        assert patience.check(connection, now) == 0
    with pytest.raises(StallError, match="answered nothing for 60 s, and 10 messages are unconfirmed"):
        patience.check(connection, 60)


def test_bytes_that_are_taken_are_progress() -> None:
    connection, patience = open_connection(), Patience(LIMITS, 0)
    for now in range(0, 1000, 50):
        connection.bytes_sent += 1
        patience.check(connection, now)
    with pytest.raises(StallError):
        patience.check(connection, 1010)


def test_answers_are_progress() -> None:
    connection, patience = open_connection(), Patience(LIMITS, 0)
    for tag in range(1, 10):
        ack(tag)(connection)
        patience.check(connection, tag * 50)
    with pytest.raises(StallError, match="1 messages are unconfirmed"):
        patience.check(connection, 510)


def test_another_connection_is_progress() -> None:
    patience = Patience(LIMITS, 0)
    for now in range(0, 500, 50):
        patience.check(open_connection(), now)


def test_only_what_is_on_its_way_can_stall() -> None:
    connection, patience = ScriptedConnection(A), Patience(LIMITS, 0)
    for now in (0, 100, 200):
        patience.check(connection, now)
    connection.backlog = True
    patience.check(connection, 259)
    with pytest.raises(StallError):
        patience.check(connection, 260)


def test_time_in_which_the_broker_blocks_is_no_stall() -> None:
    connection, patience = open_connection(), Patience(LIMITS, 0)
    patience.check(connection, 0)
    blocked(connection)
    patience.check(connection, 10)
    patience.check(connection, 200)
    unblocked(connection)
    for now in (201, 250):
        patience.check(connection, now)
    with pytest.raises(StallError, match="for 60 s"):
        patience.check(connection, 251)


def test_the_time_in_which_the_broker_blocks_is_told() -> None:
    connection, patience = open_connection(), Patience(LIMITS, 0)
    told = [patience.check(connection, 0)]
    blocked(connection)
    told += [patience.check(connection, now) for now in (10, 11, 14)]
    unblocked(connection)
    told += [patience.check(connection, now) for now in (15, 20)]
    assert told == [0, 0, 1, 3, 1, 0]


def test_a_block_is_bounded() -> None:
    connection, patience = open_connection(), Patience(LIMITS, 0)
    blocked(connection)
    patience.check(connection, 100)
    patience.check(connection, 399)
    with pytest.raises(BrokerTimeoutError, match=r"blocked publishers \(low on memory\) for 300 s") as caught:
        patience.check(connection, 400)
    assert not isinstance(caught.value, StallError), "another connection would be blocked as well"


@pytest.mark.parametrize("move", [ack(1), sent], ids=["an answer", "bytes"])
def test_after_what_moves_a_block_has_the_whole_time(move: Event) -> None:
    connection, patience = open_connection(), Patience(LIMITS, 0)
    blocked(connection)
    for now in (0, 299):
        patience.check(connection, now)
    unblocked(connection)
    move(connection)
    patience.check(connection, 299)
    blocked(connection)
    for now in (300, 599):
        patience.check(connection, now)
    with pytest.raises(BrokerTimeoutError, match="for 300 s"):
        patience.check(connection, 600)


@pytest.mark.parametrize(
    ("of_ten_s", "says"),
    [(9, r"blocked publishers \(low on memory\) for 300 s"), (1, "answered nothing for 60 s")],
)
def test_blocks_count_together_and_so_do_the_times_between_them(of_ten_s: int, says: str) -> None:
    connection, patience = open_connection(), Patience(LIMITS, 0)

    def wait() -> None:
        for now in range(361):
            (blocked if now % 10 < of_ten_s else unblocked)(connection)
            patience.check(connection, now)

    with pytest.raises(BrokerTimeoutError, match=says):
        wait()


def test_without_patience_a_block_is_an_error_at_once() -> None:
    connection, patience = open_connection(), Patience(Limits(blocked_timeout_s=0), 0)
    blocked(connection)
    with pytest.raises(BrokerTimeoutError, match="for 0 s"):
        patience.check(connection, 1)
