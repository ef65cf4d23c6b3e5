"""Shares and counts in words."""

from __future__ import annotations

import asyncio

import pytest

from rabbit_chx.text import error_text, percent, plural, typed_error_text


def test_a_positive_share_is_never_shown_as_zero() -> None:
    assert [percent(share) for share in (0, 1e-9, 0.5, 1)] == ["0.000%", "<0.001%", "50.000%", "100.000%"]
    assert [percent(share, 1) for share in (0, 1e-4, 1e-3, 0.125)] == ["0.0%", "<0.1%", "0.1%", "12.5%"]


def test_counts_have_their_noun() -> None:
    assert [plural(count, "bucket") for count in (0, 1, 1000)] == ["0 buckets", "1 bucket", "1,000 buckets"]


def failing(error: BaseException) -> type[Exception]:
    """A kind of errors whose text cannot be had."""

    class Unprintable(Exception):
        def __str__(self) -> str:
            raise error

        __repr__ = __str__

    return Unprintable


def test_an_error_of_foreign_code_has_a_text() -> None:
    assert error_text(ValueError("two\n  lines")) == "two lines"
    assert (error_text(ValueError()), typed_error_text(ValueError())) == ("ValueError", "ValueError")
    assert typed_error_text(ValueError("no")) == "ValueError: no"


@pytest.mark.parametrize("error", [ValueError("no text"), asyncio.CancelledError(), SystemExit(1)])
def test_an_error_that_cannot_be_shown_is_shown_by_its_type(error: BaseException) -> None:
    assert error_text(failing(error)()) == typed_error_text(failing(error)()) == "Unprintable"
