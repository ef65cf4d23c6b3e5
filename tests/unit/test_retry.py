"""When to repeat what failed."""

from __future__ import annotations

import random
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbit_chx import retry as module
from rabbit_chx.errors import ConnectionLostError, NotFoundError
from rabbit_chx.retry import Backoff, Retry, jitter


class Clock:
    """Stands for the module `time`: it goes on when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def failing(*errors: Exception) -> Mock:
    """Return an operation that fails with these errors and then succeeds."""
    return Mock(side_effect=[*errors, "done"])


def test_a_transient_error_is_followed_by_another_attempt(clock: Clock) -> None:
    assert Retry.within(10, 0.5).call(failing(ConnectionLostError("1"), ConnectionLostError("2"))) == "done"
    assert 0.5 <= clock.now <= 1.0


@pytest.mark.parametrize("within_s", [0, 3])
def test_the_last_error_is_raised_after_the_deadline(clock: Clock, within_s: float) -> None:
    attempt = failing(*(ConnectionLostError("lost") for _ in range(100)))
    with pytest.raises(ConnectionLostError):
        Retry.within(within_s, 0.5).call(attempt)
    assert clock.now == within_s
    assert (attempt.call_count == 1) is (within_s == 0)


@pytest.mark.usefixtures("clock")
def test_an_error_that_would_come_again_is_raised_at_once() -> None:
    attempt = failing(NotFoundError("404", reply_code=404), ConnectionLostError("second"))
    with pytest.raises(NotFoundError):
        Retry.within(10, 0.5).call(attempt)
    attempt.assert_called_once()


def test_attempts_may_be_bounded_by_their_number() -> None:
    retry = Retry(100.0, Backoff(1.0, 5.0), most=2)
    waits = []
    while (wait_s := retry.wait_s(0.0)) is not None:
        waits.append(wait_s)
        retry.attempts += 1
    assert waits == [1.0, 2.0]


@given(first_s=st.floats(0, 100), failures=st.integers(0, 10_000), jitter=st.floats(0, 1))
def test_jitter_takes_off_half_of_a_pause_at_the_most(first_s: float, failures: int, jitter: float) -> None:
    backoff = Backoff(first_s, 5.0)
    longest_s = backoff.delay_s(failures)
    assert longest_s / 2 <= backoff.delay_s(failures, jitter) <= longest_s <= 5


def test_programs_that_seed_their_random_numbers_alike_do_not_retry_at_the_same_time() -> None:
    random.seed(7)
    state = random.getstate()
    pauses = [Backoff(1.0, 5.0).delay_s(0, jitter()) for _ in range(8)]
    assert random.getstate() == state
    assert len(set(pauses)) > 1
    random.seed(7)
    assert [Backoff(1.0, 5.0).delay_s(0, jitter()) for _ in range(8)] != pauses
