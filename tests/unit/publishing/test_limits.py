"""Which bounds of publishing are possible."""

from __future__ import annotations

from typing import Any

import pytest

from rabbit_chx.errors import InputError
from rabbit_chx.publishing.limits import Limits, Retries


@pytest.mark.parametrize(
    ("kind", "name", "values"),
    [
        (Limits, "max_in_flight", [0, "10", 10.5, True]),
        (Limits, "max_in_flight_bytes", [0]),
        (Limits, "confirm_timeout_s", [0, "x", float("inf"), float("nan")]),
        (Limits, "blocked_timeout_s", [-1, None, float("inf")]),
        (Retries, "max_reconnects", [-1, True]),
        (Retries, "nack_retries", [1.5]),
        (Retries, "backoff_s", [-1]),
        (Retries, "reconnect_timeout_s", [None, float("inf")]),
    ],
)
def test_bounds_that_cannot_be(kind: Any, name: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(InputError, match=name):
            kind(**{name: value})


def test_the_smallest_bounds() -> None:
    Limits(max_in_flight=1, max_in_flight_bytes=1, confirm_timeout_s=0.001, blocked_timeout_s=0)
    Retries(max_reconnects=0, nack_retries=0, backoff_s=0)


def test_a_backoff_grows_to_five_seconds() -> None:
    backoff = Retries(backoff_s=1.0).backoff
    assert [backoff.delay_s(failures) for failures in range(6)] == [1, 2, 4, 5, 5, 5]
    assert Retries(backoff_s=0).backoff.delay_s(5) == 0
