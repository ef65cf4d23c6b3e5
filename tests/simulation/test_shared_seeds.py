"""Seeds for SharedPublisher: whatever goes wrong, each message has its own outcome in time, and a confirmed one is in its queue."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from typing import Any

import pytest
from simulated_scenarios import doubtful
from simulated_shared import shared_scenario, simulate_shared

from rabbit_chx.connection.session import RowLedger, Session
from rabbit_chx.publishing.delivery import Delivery
from rabbit_chx.publishing.outbox import Outbox, OutboxRows

_AT_ONCE = 20
#: More by `make long WHAT=simulate`.
_SEEDS = int(os.environ.get("SHARED_SEEDS", "20"))


@pytest.mark.parametrize("first", range(0, _SEEDS, _AT_ONCE))
def test_each_message_has_its_own_outcome(first: int) -> None:
    for seed in range(first, first + _AT_ONCE):
        course = simulate_shared(shared_scenario(seed))
        assert not course.faults, (
            f"{course}\nagain: simulated_shared.simulate_shared(shared_scenario({seed}))"
        )


@pytest.mark.parametrize(
    "first",
    [pytest.param(first, marks=[pytest.mark.extended] if first else []) for first in range(0, 1000, 100)],
)
def test_no_message_is_in_a_queue_and_said_to_be_in_none(first: int) -> None:
    for seed in range(first, first + 100):
        course = simulate_shared(doubtful(shared_scenario(seed, most=80)))
        assert not course.faults, (
            f"{course}\nagain: simulate_shared(doubtful(shared_scenario({seed}, most=80)))"
        )


def confirm_what_is_refused(nack: Any, ledger: Any, tag: int, *, multiple: bool) -> None:
    """Take a refusal for a confirm."""
    nack(ledger, tag, multiple=multiple)
    ledger.confirmed += [
        number for part in ledger.take_refused() for number in part.batch.pick(part.indices).numbers
    ]


def confirm_the_next_one(ack_each: Any, ledger: Any, tags: list[int]) -> None:
    """Confirm the neighbour of an acked message."""
    ack_each(ledger, tags)
    if tags and ledger.is_open(max(tags) + 1):
        ledger._confirm([max(tags) + 1])


def return_the_oldest(_: Any, delivery: Any, returned: Any, *__: Any) -> None:
    """Take the oldest open message for the returned one."""
    delivery._returned[min(delivery._ledger._numbers.values())] = returned


def drop_the_content(_: Any, session: Session, __: bytes) -> None:
    """Do not look at a message that comes back."""


def blame_all(refuse: Any, delivery: Any, cause: Any, alone: Any) -> None:
    """Give the error of a row that closes the connection to all open rows."""
    refuse(delivery, cause, alone)
    for batch in delivery._unsent:
        refuse(delivery, cause, batch)
    delivery._unsent = []


def resend_newest_first(take_back: Any, delivery: Any, *given: Any) -> None:
    """Send what was open in another order."""
    take_back(delivery, *given)
    delivery._unsent.reverse()


def forget_what_was_sent(take: Any, outbox: Any, *given: Any) -> Any:
    """Take sent messages for unsent ones."""
    taken = take(outbox, *given)
    for number in taken[0] if taken else ():
        outbox._open[number].is_sent = False
    return taken


def forget_the_doubt(settle: Any, rows: Any, *given: Any, **_: Any) -> None:
    """Tell the refusal of the last copy only."""
    settle(rows, *given, is_in_doubt=False)


def believe_a_close(_: Any, __: Delivery, *___: Any, **____: Any) -> None:
    """Forget that messages before the one that closed the channel may be stored."""


def forget_what_has_passed(_: Any, session: Session, __: Any) -> None:
    """Take an exchange that is deleted for one that was never there."""
    session._probes.popleft()


def never_expire(_: Any, __: Outbox, ___: Any) -> None:
    """Wait for an outcome for ever."""


def await_each_confirm(_: Any, __: Delivery, connection: Any) -> bool:
    """Let all messages wait for the slow confirm of each one in doubt."""
    return not connection.session.ledger.open


#: Small ones that show a bug each, so they come first.
SHOW_ONE = (0, 15, 27, 47, 78, 81, 119, 155)


@pytest.mark.parametrize(
    ("replacement", "owner", "method", "breaks"),
    [
        (confirm_what_is_refused, RowLedger, "nack", "lost"),
        (confirm_the_next_one, RowLedger, "ack_each", "lost"),
        (return_the_oldest, OutboxRows, "_on_returned", "blamed"),
        (drop_the_content, Session, "_on_return", "lost"),
        (blame_all, Delivery, "_refuse_closing", "blamed"),
        (resend_newest_first, Delivery, "_take_back", "out of order"),
        (forget_what_was_sent, Outbox, "take", "blamed"),
        (never_expire, Outbox, "expire", "late"),
        (await_each_confirm, Delivery, "_is_next_due", "gave up"),
    ],
)
def test_a_deliberate_bug_is_found(
    replacement: Callable[..., Any], owner: type, method: str, breaks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = getattr(owner, method)

    @wraps(original)
    def buggy(*given: Any, **named: Any) -> Any:
        return replacement(original, *given, **named)

    monkeypatch.setattr(owner, method, buggy)
    found: set[str] = set()
    for seed in (*SHOW_ONE, *range(400)):
        found |= simulate_shared(shared_scenario(seed, most=150)).kinds
        if breaks in found:
            return
    pytest.fail(f"the seeds show {sorted(found) or 'nothing'}, not {breaks!r}")


@pytest.mark.parametrize(
    ("replacement", "owner", "method"),
    [
        (forget_the_doubt, OutboxRows, "_settle"),
        (believe_a_close, Delivery, "_doubt"),
        (forget_what_has_passed, Session, "_on_probe_ok"),
    ],
)
def test_a_message_that_is_wrongly_said_to_be_in_no_queue_is_found(
    replacement: Callable[..., Any], owner: type, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = getattr(owner, method)
    monkeypatch.setattr(owner, method, lambda *given, **named: replacement(original, *given, **named))
    for seed in range(100):
        if "not in no queue" in simulate_shared(doubtful(shared_scenario(seed, most=80))).kinds:
            return
    pytest.fail("no seed shows it")
