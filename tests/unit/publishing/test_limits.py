"""Which bounds of publishing are possible."""

from __future__ import annotations

from typing import Any

import pytest

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


def test_a_backoff_grows_to_five_seconds() -> None:
    backoff = Retries(backoff_s=1.0).backoff
    assert [backoff.delay_s(failures) for failures in range(6)] == [1, 2, 4, 5, 5, 5]
    assert Retries(backoff_s=0).backoff.delay_s(5) == 0
