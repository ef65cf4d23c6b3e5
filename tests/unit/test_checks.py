"""The validation of numbers and of short strings, and its errors."""

from __future__ import annotations

from enum import IntEnum
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


@pytest.mark.parametrize("value", [True, 1.0, "1", None, float("nan"), 0, 6])
def test_other_types_and_other_numbers_are_not_whole_numbers_from_1_to_5(value: object) -> None:
    assert not is_whole(value, 1, 5)


@pytest.mark.parametrize("value", [1, 5, Weight.DOUBLE])
def test_a_whole_number_may_be_a_member_of_an_enumeration(value: object) -> None:
    assert is_whole(value, 1, 5)


@pytest.mark.parametrize("value", [True, "1", None, float("nan"), float("inf"), float("-inf")])
def test_true_text_and_infinity_are_no_finite_numbers(value: object) -> None:
    assert not is_finite(value)


@pytest.mark.parametrize("value", [0, -1.5, 10**400], ids=["zero", "negative", "huge"])
def test_a_finite_number_may_have_any_size(value: object) -> None:
    assert is_finite(value)


@pytest.mark.parametrize(
    ("value", "bounds", "says"),
    [
        (0, (1,), "n is 0: pass a whole number, 1 or more"),
        (True, (0,), "n is True: pass a whole number, 0 or more"),
        ("7", (1, 9), "n is '7': pass a whole number from 1 to 9"),
        (1 << 20_000, (1, 9), "n is an integer of 20001 bits: pass a whole number from 1 to 9"),
    ],
    ids=["too small", "a bool", "text", "huge"],
)
def test_what_is_not_a_whole_number_within_bounds_is_refused(
    value: Any, bounds: tuple[int, ...], says: str
) -> None:
    with pytest.raises(InputError) as caught:
        check_whole("n", value, *bounds)
    assert str(caught.value) == says


@pytest.mark.parametrize("value", [-1, False, "60", None, float("inf"), float("nan")])
def test_an_invalid_time_is_refused(value: Any) -> None:
    with pytest.raises(InputError, match=r"s is .*: pass a finite number of seconds, 0 or more$"):
        check_seconds("s", value)


def test_no_time_at_all_is_a_time_where_it_is_allowed() -> None:
    check_seconds("s", 0)
    check_seconds("s", 0.5, zero=False)
    with pytest.raises(InputError, match="s is 0: pass a finite number of seconds, more than 0"):
        check_seconds("s", 0, zero=False)


@pytest.mark.parametrize(
    ("text", "data"), [("", b""), ("é", b"\xc3\xa9"), (b"\xff", b"\xff"), ("k" * 255, b"k" * 255)]
)
def test_text_is_its_utf_8(text: str | bytes, data: bytes) -> None:
    assert bytes_of(text, "the key") == short_string(text, "the key") == data


@pytest.mark.parametrize("text", ["é" * 128, b"k" * 256])
def test_256_bytes_are_too_long(text: str | bytes) -> None:
    with pytest.raises(
        InputError, match=r"^the key .*\.\.\. has 256 bytes: AMQP carries at most 255$"
    ) as error:
        short_string(text, "the key", exchange="x")
    assert error.value.exchange == "x"
    assert len(bytes_of(text, "the key")) == 256


@pytest.mark.parametrize(
    ("text", "words"), [(5, "pass str or bytes"), ("\ud800", "half of a surrogate pair")]
)
def test_a_value_without_bytes_is_refused(text: Any, words: str) -> None:
    for check in (bytes_of, short_string):
        with pytest.raises(InputError, match=words):
            check(text, "the key")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "'' names no queue"),
        (None, "None names no queue"),
        (b"q", "b'q' names no queue"),
        ("q" * 256, "the queue name 'q{40}'... has 256 bytes: AMQP carries at most 255"),
        ("\ud800", "the queue name .* holds half of a surrogate pair"),
    ],
)
def test_an_empty_name_is_refused(name: Any, words: str) -> None:
    check_name("é" * 127, "queue")
    with pytest.raises(InputError, match=words):
        check_name(name, "queue")
