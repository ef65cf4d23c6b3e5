"""Header tables written to the wire: the bytes by AMQP 0-9-1, not by what we read ourselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbit_chx.amqp.decoding import parse_table
from rabbit_chx.amqp.encoding import encode_headers, encode_table
from rabbit_chx.amqp.fields import INTEGER_RANGES, AmqpField

if TYPE_CHECKING:
    from rabbit_chx.amqp.fields import FieldType

BYTES: list[tuple[FieldType, Any, str]] = [
    ("byte", -128, "62 80"),
    ("unsignedbyte", 255, "42 ff"),
    ("short", -(2**15), "73 80 00"),
    ("unsignedshort", 2**16 - 1, "75 ff ff"),
    ("signedint", -(2**31), "49 80 00 00 00"),
    ("unsignedint", 2**31, "69 80 00 00 00"),
    ("unsignedint", 2**32 - 1, "69 ff ff ff ff"),
    ("long", -(2**63), "6c 80 00 00 00 00 00 00 00"),
    ("timestamp", 2**63, "54 80 00 00 00 00 00 00 00"),
    ("timestamp", 2**64 - 1, "54 ff ff ff ff ff ff ff ff"),
    ("decimal", (2, 2**31), "44 02 80 00 00 00"),
    ("bool", True, "74 01"),
    ("double", -2.0, "64 c0 00 00 00 00 00 00 00"),
    ("float", -2.0, "66 c0 00 00 00"),
    ("void", None, "56"),
    ("longstr", "é", "53 00 00 00 02 c3 a9"),
    ("binary", b"\xff", "78 00 00 00 01 ff"),
    ("array", [AmqpField("byte", 1)], "41 00 00 00 02 62 01"),
    ("table", {"k": AmqpField("byte", 1)}, "46 00 00 00 04 01 6b 62 01"),
]


@pytest.mark.parametrize(("type_", "value", "expected"), BYTES)
def test_each_type_has_its_tag_and_size(type_: FieldType, value: Any, expected: str) -> None:
    field = bytes.fromhex(expected)
    table = (len(field) + 2).to_bytes(4) + b"\x01n" + field

    assert encode_table(((b"n", AmqpField(type_, value)),)) == table
    assert encode_headers({"n": AmqpField(type_, value)}) == table


@given(st.sampled_from(sorted(INTEGER_RANGES)), st.data())
def test_every_integer_of_its_type_comes_back(type_: FieldType, data: st.DataObject) -> None:
    allowed = INTEGER_RANGES[type_]
    table = ((b"n", AmqpField(type_, data.draw(st.integers(allowed[0], allowed[-1])))),)

    assert parse_table(encode_table(table)[4:]) == table
