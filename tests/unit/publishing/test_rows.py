"""Rows as columns of bytes."""

from __future__ import annotations

from typing import Any

import pytest

from rabbit_chx.errors import RowError
from rabbit_chx.publishing.encoder import Rows, as_bytes

FULL = Rows([b"k0", b"k1", b"k2"], [b"b0", b"b1", b"b2"], [b"p0", b"p1", b"p2"], [b"x0", b"x1", b"x2"])


@pytest.mark.parametrize("places", [[1], [0, 2], [2, 0], []], ids=str)
def test_picked_rows_keep_all_that_is_theirs(places: list[int]) -> None:
    picked = FULL.pick(places)
    assert len(picked) == len(places)
    for name in ("keys", "bodies", "properties", "exchanges"):
        assert getattr(picked, name) == [getattr(FULL, name)[i] for i in places]


def test_rows_without_properties_and_exchanges_of_their_own_get_none_by_picking() -> None:
    picked = Rows([b"k0", b"k1"], [b"b0", b"b1"]).pick([1])
    assert picked == Rows([b"k1"], [b"b1"], None, None)


def test_all_rows_are_the_same_rows() -> None:
    assert FULL.pick([0, 1, 2]) is FULL


@pytest.mark.parametrize(
    "values",
    [
        ["grün", "b"],
        [b"gr\xc3\xbcn", b"b"],
        ["grün", b"b"],
        [b"gr\xc3\xbcn", "b"],
        [bytearray(b"gr\xc3\xbcn"), "b"],
        ("grün", "b"),
    ],
    ids=str,
)
def test_text_is_its_utf_8_and_bytes_are_themselves(values: Any) -> None:
    found = as_bytes(values, "body", 0)
    assert list(found) == [b"gr\xc3\xbcn", b"b"]
    assert {type(value) for value in found} == {bytes}


def test_a_buffer_may_change_afterwards() -> None:
    body = bytearray(b"before")
    found = as_bytes([body], "body", 0)  # type: ignore[list-item]  # what users give
    body[:] = b"later!"
    assert list(found) == [b"before"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["a", None], r"row 8: the body is missing \(None\)"),
        ([b"a", None], r"row 8: the body is missing \(None\)"),
        ([None, "a"], r"row 7: the body is missing \(None\)"),
        (["a", 5], "row 8: the body is of type int; give a str or bytes"),
        (["a", "\ud800"], "row 8: the body is no valid Unicode text"),
    ],
)
def test_the_row_that_cannot_be_is_named(values: list[Any], message: str) -> None:
    with pytest.raises(RowError, match=message):
        as_bytes(values, "body", 7)


def test_length_is_counted_in_bytes() -> None:
    fits = "ü" * 127 + "a"
    assert as_bytes([fits], "routing key", 0, 255) == [fits.encode()]
    with pytest.raises(RowError, match=r"row 8: the routing key .* has 256 bytes: AMQP carries at most 255"):
        as_bytes(["a", "ü" * 128], "routing key", 7, 255)


def test_there_may_be_no_rows() -> None:
    assert list(as_bytes([], "routing key", 0, 255)) == []


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("x" * 256, r"row 11: the routing key b'x+'\.\.\. has 256 bytes: AMQP carries at most 255"),
        ("é" * 128, "has 256 bytes"),
        (b"x" * 300, "has 300 bytes"),
        (None, "row 11: the routing key is missing"),
        (7, "row 11: the routing key is of type int; give a str or bytes"),
        ("\ud800", "row 11: the routing key is no valid Unicode text .* at character 0"),
        (memoryview(b"k"), "row 11: the routing key is of type memoryview"),
    ],
)
def test_a_key_that_amqp_cannot_carry(key: Any, message: str) -> None:
    with pytest.raises(RowError, match=message):
        as_bytes(["good", key], "routing key", 10, 255)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "row 0: the body is missing"),
        (7, "row 0: the body is of type int"),
        ("\ud800", "the body is no valid Unicode"),
        (memoryview(b"\0" * 8).cast("Q"), "the body is of type memoryview"),  # its length is 1, its size 8
    ],
)
def test_a_body_that_amqp_cannot_carry(content: Any, message: str) -> None:
    with pytest.raises(RowError, match=message):
        as_bytes([content], "body", 0)
