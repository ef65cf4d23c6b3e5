"""Deliberate bugs in the publisher: the simulation finds each of them within a few seeds, and says what it breaks.

A bug is one patch of the real code. So this shows that the invariants of the simulation can fail, each for its own reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

import pytest
from simulated_run import simulate
from simulated_scenarios import scenario_of

from rabbit_chx.connection.blocking_connection import Connection
from rabbit_chx.connection.session import Ledger, OpenConnection, Session
from rabbit_chx.publishing.delivery import Delivery
from rabbit_chx.publishing.options import ProgressTimeout

_SEEDS = 200  # of the rarest: a publisher that does not hear an alarm


def ack_before_confirm(publish: Any, session: Session, *given: Any) -> None:
    """Take a message for confirmed as soon as it is sent."""
    publish(session, *given)
    session.ledger.ack(session.ledger.sent, multiple=True)


def forget_nack(_: Any, ledger: Ledger[Any], tag: int, *, multiple: bool) -> None:
    """Take a refusal for an answer like any other."""
    ledger.ack(tag, multiple=multiple)


def off_by_one_in_multiple(answer_through: Any, ledger: Ledger[Any], tag: int) -> None:
    """Let an ack of all up to a tag answer one more."""
    answer_through(ledger, min(tag + 1, ledger.sent))


def drop_a_return(_: Any, __: Session, ___: bytes) -> None:
    """Do not count a message that comes back."""


def reuse_a_tag(adopt: Any, delivery: Delivery, connection: OpenConnection) -> None:
    """Give the tags of what was sent again after a reconnect to the next messages, too."""
    adopt(delivery, connection)
    connection.session.ledger.sent = 0


def ignore_blocked(_: Any, __: Session, ___: Any) -> None:
    """Do not hear that the broker asks publishers to wait."""


def resend_without_counting(adopt: Any, delivery: Delivery, connection: OpenConnection) -> None:
    """Send again without a word in the report."""
    before = delivery.tally.republished
    adopt(delivery, connection)
    delivery.tally.republished = before


def resend_newest_first(take_back: Any, delivery: Delivery, *given: Any) -> None:
    """Send what was open in another order."""
    take_back(delivery, *given)
    delivery._unsent.reverse()


def blame_nobody(_: Any, __: Delivery, *___: Any, **____: Any) -> None:
    """Send a row that closes the connection again and again, with all others."""


def blame_the_first_row(_: Any, __: Delivery, *___: Any) -> bool:
    """Refuse whatever is open alone when the connection is lost."""
    return True


def ignore_the_window(_: Any, __: Delivery, *___: Any) -> bool:
    """Send without waiting for answers."""
    return True


def forget_an_incomplete_frame(receive: Any, session: Session, data: bytes) -> None:
    """Read each piece for itself."""
    receive(session, data)
    session._rest = b""


def never_lose_patience(_: Any, __: ProgressTimeout, *___: Any) -> float:
    """Wait for ever."""
    return 0.0


def send_no_heartbeats(_: Any, __: Connection) -> None:
    """Leave the broker without a sign of life."""


@dataclass(frozen=True)
class Bug:
    """A deliberate bug.

    Attributes:
        replacement: is called instead of the method, with the method before its arguments.
        owner: the class.
        method: the name of its method.
        breaks: what the simulation says is wrong; one of these.
    """

    replacement: Callable[..., Any]
    owner: type
    method: str
    breaks: frozenset[str]


def bug(replacement: Callable[..., Any], owner: type, method: str, *breaks: str) -> Any:
    return pytest.param(Bug(replacement, owner, method, frozenset(breaks)), id=replacement.__name__)


BUGS = [
    bug(ack_before_confirm, Session, "publish", "lost"),
    bug(forget_nack, Ledger, "nack", "lost"),
    bug(off_by_one_in_multiple, Ledger, "_answer_through", "lost"),
    bug(drop_a_return, Session, "_on_return", "lost"),
    bug(reuse_a_tag, Delivery, "_adopt", "count"),
    bug(ignore_blocked, Session, "_on_blocked", "gave up"),
    bug(resend_without_counting, Delivery, "_adopt", "uncounted"),
    # Beyond the publisher's classic bugs: each other invariant can fail, too.
    bug(resend_newest_first, Delivery, "_take_back", "out of order"),
    bug(blame_nobody, Delivery, "_suspect", "blamed"),
    bug(blame_the_first_row, Delivery, "_is_refused", "blamed"),
    bug(ignore_the_window, Delivery, "_has_room", "memory"),
    bug(forget_an_incomplete_frame, Session, "receive", "gave up"),
    bug(never_lose_patience, ProgressTimeout, "check", "hang"),
    bug(send_no_heartbeats, Connection, "_keep_heart_beating", "heartbeat"),
]


@pytest.mark.parametrize("planted", BUGS)
def test_a_deliberate_bug_is_found(planted: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    original = getattr(planted.owner, planted.method)

    @wraps(original)
    def buggy(*given: Any, **named: Any) -> Any:
        return planted.replacement(original, *given, **named)

    monkeypatch.setattr(planted.owner, planted.method, buggy)
    found: set[str] = set()
    for seed in range(_SEEDS):
        found |= simulate(scenario_of(seed, fewest=20, most=200)).kinds
        if planted.breaks <= found:
            return
    pytest.fail(f"{_SEEDS} seeds show {sorted(found) or 'nothing'}, not {sorted(planted.breaks)}")
