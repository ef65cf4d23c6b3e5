"""The validation of numbers and of short strings, and its errors."""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import IntEnum
from functools import partial
from typing import Any

import pytest

from rabbit_chx.checks import (
    bytes_of,
    check_name,
    check_seconds,
    check_whole,
    is_finite,
    is_whole,
    short_string,
)
from rabbit_chx.errors import InputError


class Weight(IntEnum):
    """A kind of int."""

    DOUBLE = 2


def test_true_text_and_infinity_are_no_numbers_and_a_finite_one_may_be_no_whole_one() -> None:
    for value in (True, "1", None, math.nan, math.inf, -math.inf):
        assert not is_finite(value)
        assert not is_whole(value, 1, 5)
    for value in (0, 6, -1.5, 1.0, 10**400):
        assert is_finite(value)
        assert not is_whole(value, 1, 5)
    for value in (1, 5, Weight.DOUBLE):
        assert is_whole(value, 1, 5)


def test_no_time_at_all_is_a_time_where_it_is_allowed() -> None:
    check_seconds("s", 0)
    check_seconds("s", 0.5, zero=False)


@pytest.mark.parametrize(
    ("text", "data"), [("", b""), ("é", b"\xc3\xa9"), (b"\xff", b"\xff"), ("k" * 255, b"k" * 255)]
)
def test_text_is_its_utf_8(text: str | bytes, data: bytes) -> None:
    assert bytes_of(text, "the key") == short_string(text, "the key") == data


def test_256_bytes_are_too_long_for_a_short_string_alone() -> None:
    for text in ("é" * 128, b"k" * 256):
        with pytest.raises(
            InputError, match=r"^the key .*\.\.\. has 256 bytes: AMQP carries at most 255$"
        ) as error:
            short_string(text, "the key", exchange="x")
        assert error.value.exchange == "x"
        assert len(bytes_of(text, "the key")) == 256


REFUSED: list[tuple[Callable[..., object], tuple[Any, ...], str]] = [
    (check_whole, ("n", 0, 1), "^n is 0: pass a whole number, 1 or more$"),
    (check_whole, ("n", True, 0), "^n is True: pass a whole number, 0 or more$"),
    (check_whole, ("n", "7", 1, 9), "^n is '7': pass a whole number from 1 to 9$"),
    (
        check_whole,
        ("n", 1 << 20_000, 1, 9),
        "^n is an integer of 20001 bits: pass a whole number from 1 to 9$",
    ),
    *(
        (check_seconds, ("s", value), "^s is .*: pass a finite number of seconds, 0 or more$")
        for value in (-1, False, "60", None, math.inf, math.nan)
    ),
    (partial(check_seconds, zero=False), ("s", 0), "^s is 0: pass a finite number of seconds, more than 0"),
    *((check, (5, "the key"), "pass str or bytes") for check in (bytes_of, short_string)),
    *((check, ("\ud800", "the key"), "half of a surrogate pair") for check in (bytes_of, short_string)),
    (check_name, ("", "queue"), "'' names no queue"),
    (check_name, (None, "queue"), "None names no queue"),
    (check_name, (b"q", "queue"), "b'q' names no queue"),
    (check_name, ("q" * 256, "queue"), "the queue name 'q{40}'... has 256 bytes: AMQP carries at most 255"),
    (check_name, ("\ud800", "queue"), "the queue name .* holds half of a surrogate pair"),
]


@pytest.mark.parametrize(("check", "given", "says"), REFUSED)
def test_what_is_refused_is_named(check: Callable[..., object], given: tuple[Any, ...], says: str) -> None:
    check_name("é" * 127, "queue")
    with pytest.raises(InputError, match=says):
        check(*given)
