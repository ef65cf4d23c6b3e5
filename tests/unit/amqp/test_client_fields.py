"""What the real libraries put on the wire is what is said of them."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from http import HTTPMethod, HTTPStatus
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from naming import name_of
from pamqp import decode as pamqp_decode
from pamqp import encode as pamqp_encode
from pika.compat import long
from pika.data import decode_table as pika_decode_table  # type: ignore[import-untyped]
from pika.data import encode_table as pika_encode_table

from rabbit_chx.amqp import AmqpField
from rabbit_chx.amqp.fields import FieldType, encode_headers, field_for, parse_table, table_for
from rabbit_chx.errors import InputError

CLIENTS = ("pika", "aio-pika")


def sent(table: dict[Any, Any], client: str) -> tuple[tuple[bytes, AmqpField], ...]:
    """The table that the real library sends."""
    if client == "pika":
        pieces: list[bytes] = []
        pika_encode_table(pieces, table)
        return parse_table(b"".join(pieces)[4:])
    return parse_table(pamqp_encode.field_table(table)[4:])


VALUES: list[Any] = [
    "", "a", "é", "日本語", "\0", HTTPMethod.GET,
    b"", b"a", b"\xff", bytearray(b""), bytearray(b"ab"),
    True, False, None,
    0, 1, -1, 127, 128, -128, -129, 255, 256, 32767, 32768, -32768, -32769, 65535, 65536,
    2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**32 - 1, 2**32, 2**63 - 1, -(2**63), 2**63, -(2**63) - 1,
    HTTPStatus.MULTIPLE_CHOICES, long(5), long(2**40), long(2**63),
    0.0, -0.0, 1.5, 0.1, 1e-46, 1e38, 1e39,
    Decimal("3.14"), Decimal("-3.14"), Decimal("1.50"), Decimal(100), Decimal("1E+2"), Decimal("1E-255"), Decimal("1E-256"),
    Decimal("0.00"), Decimal("-0"), Decimal("1E+9"), Decimal("1E+10"), Decimal(2**31 - 1), Decimal(2**31), Decimal(-(2**31)),
    Decimal("0E+5000"), Decimal("0E-300"), Decimal("1." + "0" * 40), Decimal("1." + "0" * 40 + "1"), Decimal("NaN"),
    Decimal("sNaN"), Decimal("Infinity"), Decimal("1E+4000"), Decimal("1E-999999"),
    datetime(2023, 11, 14, 22, 13, 20), datetime(2023, 11, 14, 22, 13, 20, 999_999, tzinfo=UTC),  # noqa: DTZ001
    datetime(2023, 11, 14, tzinfo=timezone(timedelta(hours=5, minutes=30))), datetime(1970, 1, 1, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 59, 500_000, tzinfo=UTC), datetime(1900, 1, 1, tzinfo=UTC),
    date(2023, 11, 14), time.gmtime(1_700_000_000), time.gmtime(-5),
    [], ["a"], [1, [2, [b"x"]], {"k": None}], [bytearray(b"z")], [1.5], (1, 2), {1, 2}, object(), 1j,
    {}, {"b": 1, "a": 2}, {"a": {"z": 1, "y": [2**40]}}, {b"k": 1}, {5: 1}, {None: 1}, {b"k": 1, "l": 2}, {"k" * 256: 1}, {"k": object()}, OrderedDict(z=1, y=2),
    {"n" * 128: 1, "n" * 129: 2}, {"n" * 255: 1}, {"n" * 256: 1}, {"é" * 64 + "a": 1}, {"a" + "é" * 64: 1},
]  # fmt: skip


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("value", VALUES, ids=lambda value: name_of(value)[:40])
def test_as_the_real_library_sends_it(value: Any, client: Any) -> None:
    """As a value of the headers, and as the headers if it is a dict."""
    assert_sent_alike({"k": value}, client)
    if isinstance(value, dict):
        assert_sent_alike(value, client)


def assert_sent_alike(headers: dict[Any, Any], client: Any) -> None:
    try:
        on_the_wire = sent(headers, client)
    except Exception:  # noqa: BLE001 - the libraries raise whatever they meet
        with pytest.raises(InputError):
            table_for(headers, client)
    else:
        assert table_for(headers, client) == on_the_wire


@pytest.mark.parametrize(
    ("value", "client", "words"),
    [
        (1.5, "pika", "no encoding for float"),
        (b"a", "aio-pika", "no encoding for bytes"),
        (bytearray(b"a"), "pika", "no encoding for bytearray"),
        ((1, 2), "pika", "no encoding for tuple"),
        (2**63, "pika", "more than 64 bits"),
        (2**300, "aio-pika", "an integer of 301 bits: it needs more than 64 bits"),
        (Decimal("NaN"), "pika", "NaN"),
        (datetime(1900, 1, 1, tzinfo=UTC), "pika", "1970"),
        ([[b"a"]], "aio-pika", "cannot send b'a'"),
        ({"k": 1.5}, "pika", "cannot send 1.5"),
        ({b"k": 1}, "aio-pika", "a name in a table is a str"),
        (float("inf"), "aio-pika", "cannot read inf"),  # it would leave the client and break the broker
        *((Decimal("1E+999998"), client, "32 bits") for client in CLIENTS),  # at once
        *((5, client, "no client") for client in ("kombu", "", None)),
    ],
)
def test_values_that_a_client_cannot_send_are_reported(value: Any, client: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        field_for(value, client)


@pytest.mark.parametrize("client", CLIENTS)
def test_fields_stay_and_bare_values_inside_them_are_encoded(client: Any) -> None:
    """Pairs stand as they are."""
    five, long = field_for(5, client), AmqpField("long", 5)
    table = field_for(AmqpField("table", [("b", 5), ("a", AmqpField("array", [long, 5]))]), client)
    assert table == AmqpField("table", [("b", five), ("a", AmqpField("array", [long, five]))])
    assert field_for(AmqpField("double", 1.5), client) == AmqpField("double", 1.5)
    pairs = table_for([("b", 1), (b"a", 2), ("b", 3)], client)
    assert [(name, item.value) for name, item in pairs] == [(b"b", 1), (b"a", 2), (b"b", 3)]


@pytest.mark.parametrize("headers", ["ab", 5, [1], ["ab"], [("a", 1, 2)]])
def test_an_invalid_table_is_refused(headers: Any) -> None:
    with pytest.raises(InputError, match="pass a dict"):
        table_for(headers)


#: A value of each wire type, at the ends of its range.
WIRE_VALUES: dict[str, list[Any]] = {
    "longstr": ["", "é", b"\xff"], "binary": [b"", b"\x00\xff"], "bool": [True, False], "void": [None],
    "byte": [-128, 127], "unsignedbyte": [0, 255], "short": [-(2**15), 2**15 - 1], "unsignedshort": [2**16 - 1],
    "signedint": [-(2**31), 2**31 - 1], "unsignedint": [2**32 - 1], "long": [-(2**63), 2**63 - 1],
    "double": [1.5, 0.1, -1e15], "float": [1.5, 0.1], "timestamp": [0, 1_700_000_000],
    "decimal": [(2, 150), (0, 2**31 - 1), (9, 2**32 - 1), (255, 1)],
    "array": [[], [AmqpField("double", 1.5), AmqpField("table", {"b": AmqpField("binary", b"x")})]],
    "table": [{}, {"d": AmqpField("double", 0.5), "l": AmqpField("array", [AmqpField("float", 2.5)])}],
}  # fmt: skip


def pika_decoded(data: bytes) -> Any:
    return pika_decode_table(data, 0)[0]


def pamqp_decoded(data: bytes) -> Any:
    return pamqp_decode.field_table(data)[1]


@pytest.mark.parametrize("hand_out", [pika_decoded, pamqp_decoded])
@pytest.mark.parametrize("type_", get_args(FieldType))
def test_the_publishers_take_what_a_client_hands_out_and_the_client_reads_it_again(
    type_: FieldType, hand_out: Callable[[bytes], Any]
) -> None:
    """Alone, and inside a list and a table."""
    for value in WIRE_VALUES[type_]:
        field = AmqpField(type_, value)
        table = AmqpField("table", {"inner": field})
        headers = hand_out(encode_headers({"a": field, "l": AmqpField("array", [field]), "t": table}))
        assert hand_out(encode_headers(headers)) == headers


SENDABLE = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=5),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=3), inside, max_size=3),
    max_leaves=8,
)


@given(SENDABLE, st.sampled_from(CLIENTS))
def test_whatever_both_can_send(value: Any, client: Any) -> None:
    assert table_for({"k": value}, client) == sent({"k": value}, client)


@given(st.decimals(-(10**12), 10**12), st.sampled_from(CLIENTS))
def test_decimals_are_sent_as_the_real_library_does(value: Decimal, client: Any) -> None:
    assert_sent_alike({"k": value}, client)
