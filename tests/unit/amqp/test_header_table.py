"""Header tables read from the wire, and written to it: the bytes by AMQP 0-9-1, not by what we read ourselves."""

from __future__ import annotations

from typing import Any

import pika
import pytest

from rabbit_chx.amqp import fields
from rabbit_chx.amqp.fields import PROPERTY_FLAGS, AmqpField, FieldType, table_for
from rabbit_chx.errors import InputError

NUMBERS_AND_TABLES = ("headers", "delivery_mode", "priority", "timestamp")


def test_every_property_that_pika_writes() -> None:
    text = {name: f"{name}-ä" for name in PROPERTY_FLAGS if name not in NUMBERS_AND_TABLES}
    given: dict[str, Any] = {**text, "delivery_mode": 2, "priority": 9, "timestamp": 1 << 33}
    wire = b"".join(pika.BasicProperties(headers={"n": 1}, **given).encode())
    assert fields.properties_in(wire) == {**given, "headers": table_for({"n": 1})}
    assert list(fields.properties_in(wire)) == list(PROPERTY_FLAGS)
    assert fields.properties_in(b"".join(pika.BasicProperties(message_id="m").encode())) == {
        "message_id": "m"
    }
    for end in range(len(wire)):
        with pytest.raises(InputError, match="end too early"):
            fields.properties_in(wire[:end])


def test_equal_names_are_both_there() -> None:
    assert fields.parse_table(b"\1hV\1ht\1") == (
        (b"h", AmqpField("void")),
        (b"h", AmqpField("bool", True)),
    )


@pytest.mark.parametrize("data", [b"\1h", b"\1hS\0\0\0\5abc", b"\1hI\0", b"\1hS\0", b"\1hZ\0\0\0\0", b"\1h?"])
def test_bytes_that_are_not_a_table(data: bytes) -> None:
    with pytest.raises(InputError, match="not a header table"):
        fields.parse_table(data)
    for properties in (b"", b"\xff", b"\x20\0", b"\x80\0"):
        with pytest.raises(InputError, match="not message properties"):
            fields.properties_in(properties)


# ---- written

#: What other clients do not read; `fuzz/test_decoders.py` compares the rest with theirs.
BYTES: list[tuple[FieldType, Any, str]] = [
    ("byte", -128, "62 80"),
    ("long", -(2**63), "6c 80 00 00 00 00 00 00 00"),
    ("timestamp", 2**63, "54 80 00 00 00 00 00 00 00"),
    ("timestamp", 2**64 - 1, "54 ff ff ff ff ff ff ff ff"),
    ("decimal", (2, 2**31), "44 02 80 00 00 00"),  # unsigned, as `parse_table/1` reads it
    ("table", {"k": AmqpField("byte", 1)}, "46 00 00 00 04 01 6b 62 01"),
]


@pytest.mark.parametrize(("type_", "value", "expected"), BYTES)
def test_each_type_has_its_tag_and_size(type_: FieldType, value: Any, expected: str) -> None:
    field = bytes.fromhex(expected)
    table = (len(field) + 2).to_bytes(4) + b"\x01n" + field

    assert fields.encode_table(((b"n", AmqpField(type_, value)),)) == table
    assert fields.encode_headers({"n": AmqpField(type_, value)}) == table
    for tag in b"lL" if type_ == "long" else field[:1]:
        assert fields.parse_table(table[4:6] + bytes([tag]) + field[1:]) == ((b"n", AmqpField(type_, value)),)
