"""The bounds of publishing: what they may be, and how long to wait before the next attempt."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbit_chx.errors import InputError
from rabbit_chx.publishing.limits import Limits, Retries


@pytest.mark.parametrize(
    "limit",
    [
        {"max_in_flight": 0},
        {"max_in_flight_bytes": 0},
        {"max_in_flight": "10"},
        {"max_in_flight": 10.5},
        {"max_in_flight": True},
        {"confirm_timeout_s": float("inf")},
        {"blocked_timeout_s": float("inf")},
        {"blocked_timeout_s": None},
        {"confirm_timeout_s": "x"},
        {"confirm_timeout_s": 0},
        {"confirm_timeout_s": float("nan")},
        {"blocked_timeout_s": -1},
    ],
    ids=str,
)
def test_limits_that_cannot_be(limit: dict[str, Any]) -> None:
    (name,) = limit
    with pytest.raises(InputError, match=name):
        Limits(**limit)


def test_the_smallest_limits() -> None:
    Limits(max_in_flight=1, max_in_flight_bytes=1, confirm_timeout_s=0.001, blocked_timeout_s=0)
    Retries(max_reconnects=0, nack_retries=0, backoff_s=0)


def test_a_wait_doubles_from_attempt_to_attempt() -> None:
    backoff = Retries(backoff_s=0.1).backoff
    assert [backoff.delay_s(attempts, 1.0) for attempts in range(4)] == [0.1, 0.2, 0.4, 0.8]


@given(backoff_s=st.floats(0, 100), attempts=st.integers(0, 10_000), chance=st.floats(0, 1))
def test_chance_takes_off_half_of_a_wait_at_the_most(backoff_s: float, attempts: int, chance: float) -> None:
    backoff = Retries(backoff_s=backoff_s).backoff
    longest = backoff.delay_s(attempts, 1.0)
    assert longest / 2 <= backoff.delay_s(attempts, chance) <= longest


def test_waits_grow_to_a_bound() -> None:
    waits = [Retries(backoff_s=1.0).backoff.delay_s(attempts, 1.0) for attempts in range(2000)]
    assert all(before <= after for before, after in pairwise(waits))
    assert waits[-1] == waits[10] < 60


def test_without_a_backoff_nobody_waits() -> None:
    assert Retries(backoff_s=0).backoff.delay_s(5, 1.0) == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_reconnects": -1},
        {"max_reconnects": True},
        {"nack_retries": 1.5},
        {"backoff_s": -1},
        {"reconnect_timeout_s": float("inf")},
        {"reconnect_timeout_s": None},
    ],
)
def test_retries_that_cannot_be(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(InputError, match=name):
        Retries(**wrong)


def test_the_delay_is_bounded_and_varies() -> None:
    backoff = Retries(backoff_s=1.0).backoff
    assert [backoff.delay_s(n, 1.0) for n in range(6)] == [1, 2, 4, 5, 5, 5]
    assert backoff.delay_s(0, 0.0) == 0.5
