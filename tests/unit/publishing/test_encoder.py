"""Rows as columns of bytes, and what the encoder writes, read back by another implementation of AMQP (pamqp)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone, tzinfo
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import body, commands, frame, header

from rabbit_chx.amqp.fields import encode_headers, parse_table, properties_in, table_for
from rabbit_chx.errors import InputError, RowError
from rabbit_chx.publishing.encoder import PROPERTY_NAMES, Encoder, Properties, Rows, as_bytes, one_as_bytes

PROPERTIES = commands.Basic.Properties(delivery_mode=2, content_type="text/plain")
FRAME_MAX = 4096
FULL = Rows([b"k0", b"k1", b"k2"], [b"b0", b"b1", b"b2"], [b"p0", b"p1", b"p2"], [b"x0", b"x1", b"x2"])


def encoder(*, mandatory: bool = True) -> Encoder:
    return Encoder(b"orders", PROPERTIES.marshal(), mandatory=mandatory, frame_max=FRAME_MAX)


def rows_of(keys: Sequence[Any], bodies: Sequence[Any]) -> Rows:
    return Rows(as_bytes(keys, "routing key", 0, 255), as_bytes(bodies, "body", 0))


def decode(wire: bytes) -> list[list[Any]]:
    """The messages of the wire, by pamqp: each a method, a header and a body."""
    messages: list[list[Any]] = []
    while wire:
        used, channel, part = frame.unmarshal(wire)
        assert used <= FRAME_MAX
        assert channel == 1
        wire = wire[used:]
        match part:
            case commands.Basic.Publish():
                messages.append([part])
            case header.ContentHeader():
                messages[-1] += [part, b""]
            case body.ContentBody():
                messages[-1][2] += part.value
            case _:
                pytest.fail(f"another frame: {part}")
    assert [head.body_size for _, head, _ in messages] == [len(content) for _, _, content in messages]
    return messages


keys = st.binary(max_size=255).filter(lambda key: key.isascii())  # pamqp reads keys as UTF-8
sizes = st.sampled_from([0, 1, 100, FRAME_MAX - 9, FRAME_MAX - 8, FRAME_MAX - 7, 3 * FRAME_MAX])


@given(rows=st.lists(st.tuples(keys, sizes), max_size=6), mandatory=st.booleans())
def test_what_is_written_is_read_back(rows: list[tuple[bytes, int]], mandatory: bool) -> None:  # noqa: FBT001
    bodies = [bytes([i % 251]) * size for i, (_, size) in enumerate(rows)]
    wire = encoder(mandatory=mandatory).encode(rows_of([key for key, _ in rows], bodies))
    decoded = decode(wire)
    assert [message for _, _, message in decoded] == bodies
    for (publish, head, _), (key, _) in zip(decoded, rows, strict=True):
        assert publish.exchange == "orders"
        assert publish.routing_key == key.decode()
        assert publish.mandatory is mandatory
        assert head.properties.delivery_mode == 2
        assert head.properties.content_type == "text/plain"


def test_more_body_lengths_than_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rabbit_chx.publishing.encoder._KEPT_LENGTHS", 3)
    writer = encoder()
    bodies = [b"x" * size for size in (*range(10), *range(10))]
    assert [message for _, _, message in decode(writer.encode(rows_of(["k"] * 20, bodies)))] == bodies


# -- columns of bytes


@pytest.mark.parametrize("places", [[1], [0, 2], [2, 0], []], ids=str)
def test_picked_rows_keep_all_that_is_theirs(places: list[int]) -> None:
    picked = FULL.pick(places)
    assert len(picked) == len(places)
    for name in ("keys", "bodies", "properties", "exchanges"):
        assert getattr(picked, name) == [getattr(FULL, name)[i] for i in places]
    assert FULL.pick([0, 1, 2]) is FULL
    assert Rows([b"k0", b"k1"], [b"b0", b"b1"]).pick([1]) == Rows([b"k1"], [b"b1"], None, None)


@pytest.mark.parametrize(
    "values",
    [
        ["grün", "b"],
        [b"gr\xc3\xbcn", b"b"],
        ["grün", b"b"],
        [b"gr\xc3\xbcn", "b"],
        [bytearray(b"gr\xc3\xbcn"), bytearray(b"b")],
        ("grün", "b"),
    ],
    ids=str,
)
def test_text_is_its_utf_8_and_bytes_are_themselves(values: Any) -> None:
    found = as_bytes(values, "body", 0)
    assert [one_as_bytes(value, "body") for value in values] == found
    assert list(found) == [b"gr\xc3\xbcn", b"b"]
    assert {type(value) for value in found} == {bytes}
    if isinstance(values[0], bytearray):  # it may change afterwards
        values[0][:] = b"later"
        assert list(found) == [b"gr\xc3\xbcn", b"b"]


def test_a_key_of_255_bytes_and_no_row_can_be_carried() -> None:
    fits = "ü" * 127 + "a"
    assert as_bytes([fits], "routing key", 0, 255) == [fits.encode()]
    assert one_as_bytes(fits, "routing key", 255) == fits.encode()
    assert list(as_bytes([], "routing key", 0, 255)) == []


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("body", None, r"row 8: the body is missing \(None\)"),
        ("body", 5, "row 8: the body is of type int; pass a str or bytes"),
        ("body", "\ud800", "row 8: the body is not valid Unicode text"),
        ("body", memoryview(b"\0" * 8).cast("Q"), "the body is of type memoryview"),  # its length is 1, its size 8
        ("routing key", None, "row 8: the routing key is missing"),
        ("routing key", 7, "row 8: the routing key is of type int; pass a str or bytes"),
        ("routing key", "\ud800", "row 8: the routing key is not valid Unicode text .* at character 0"),
        ("routing key", memoryview(b"k"), "row 8: the routing key is of type memoryview"),
        ("routing key", "x" * 256, r"row 8: the routing key b'x+'\.\.\. has 256 bytes: AMQP carries at most 255"),
        ("routing key", "é" * 128, "has 256 bytes"),
        ("routing key", b"x" * 300, "has 300 bytes"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("before", ["a", b"a"])
def test_the_row_that_amqp_cannot_carry_is_named(name: str, value: Any, message: str, before: Any) -> None:
    limit = (255,) if name == "routing key" else ()
    with pytest.raises(RowError, match=message):
        as_bytes([before, value], name, 7, *limit)
    with pytest.raises(RowError, match=message.replace("row 8", "row 7")):
        as_bytes([value, before], name, 7, *limit)
    with pytest.raises(RowError, match=message.replace("row 8", "row 0")):
        one_as_bytes(value, name, *limit)


# -- properties and headers

names = st.text(max_size=8)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.text(max_size=8)
    | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)


@given(headers=st.dictionaries(names, values, max_size=4))
def test_headers_are_what_pika_would_send(headers: dict[str, Any]) -> None:
    assert parse_table(encode_headers(headers)[4:]) == table_for(headers)


def columns(size: int) -> st.SearchStrategy[dict[str, list[Any]]]:
    def column(value: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
        return st.lists(st.none() | value, min_size=size, max_size=size)

    short = st.text(max_size=12)
    kinds: dict[str, st.SearchStrategy[Any]] = {
        **dict.fromkeys(PROPERTY_NAMES, short),
        "headers": st.dictionaries(st.text("abc", min_size=1, max_size=5), short, max_size=3),
        "delivery_mode": st.sampled_from([1, 2]),
        "priority": st.integers(0, 255),
        "expiration": st.integers(0, 10**9).map(str),
        "timestamp": st.integers(0, 2**31),
    }
    return st.fixed_dictionaries({}, optional={name: column(kind) for name, kind in kinds.items()}).filter(
        bool
    )


@given(rows=columns(3))
def test_rows_are_read_back_by_another_implementation(rows: dict[str, list[Any]]) -> None:
    constants = {"app_id": "app", "content_type": "text/plain", "delivery_mode": 2}
    written = Properties(constants).of_rows(rows, 0)
    for i, wire in enumerate(written):
        wanted: dict[str, Any] = constants | {
            name: column[i] for name, column in rows.items() if column[i] is not None
        }
        read = commands.Basic.Properties()
        flags = int.from_bytes(wire[:2], "big")
        read.unmarshal(flags, wire[2:])
        found: dict[str, Any] = dict(read)
        found["type"] = found.pop("message_type")
        for name in PROPERTY_NAMES:
            if name == "timestamp" and name in wanted:
                assert int(found[name].timestamp()) == wanted[name]
            elif name == "headers":
                assert properties_in(wire).get("headers", ()) == table_for(wanted.get("headers", {}))
            else:
                assert (found[name] or None) == (wanted.get(name) or None)


def test_without_constants_a_row_may_have_nothing() -> None:
    assert Properties({}).constant == b"\0\0"
    assert Properties({}).of_rows({"type": [None, "t"]}, 0) == [b"\0\0", b"\0\x20\x01t"]


NO_OFFSET = datetime(2026, 1, 1, tzinfo=tzinfo())  # type: ignore[abstract]  # its methods raise a NotImplementedError
NOT_WHOLE = [
    ("timestamp", pd.NaT),
    ("timestamp", datetime.max.replace(tzinfo=timezone(-timedelta(hours=1)))),
    ("timestamp", 1.5),
    ("priority", True),
    ("priority", np.True_),
    ("priority", np.float64(1)),
    ("priority", np.int64(256)),
]
NOT_MILLISECONDS = [60_000, "1 min", "", "٣", b"-1", 1.5]


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        *(({name: [value]}, f"row 10: the {name} is {re.escape(f'{value!r:.40}')}; pass a whole number from 0") for name, value in NOT_WHOLE),
        *(({"expiration": ["1", value]}, "row 11: the expiration is .*; pass milliseconds, as '60000'") for value in NOT_MILLISECONDS),
        ({"type": ["t"] * 3, "reply_to": ["r", None, 7]}, "row 12: the reply_to is of type int"),
        ({"expiration": ["1", "2", "\ud800"]}, "row 12: the expiration is not valid Unicode text"),
        ({"timestamp": [1, 2, NO_OFFSET]}, "row 12: the timestamp is of type datetime, and reading it raises NotImpl"),
        ({"timestamp": [1, 2.5, NO_OFFSET]}, "row 11: the timestamp is 2.5; pass a whole number"),
    ],
)  # fmt: skip
def test_the_row_is_named_by_its_number(columns: dict[str, list[Any]], says: str) -> None:
    with pytest.raises(RowError, match=says):
        Properties({}).of_rows(columns, 10)


def test_whole_numbers_may_be_of_any_type() -> None:
    number = np.int64(7)
    rows = {"priority": [number], "timestamp": [number]}
    assert Properties({}).of_rows(rows, 0) == Properties({}).of_rows({"priority": [7], "timestamp": [7]}, 0)


def test_properties_that_no_frame_holds() -> None:
    def headers(size: int) -> dict[str, str]:
        return {"h": "x" * (size - 13)}  # 2 bytes of flags, 4 and 4 of lengths, 3 of name and type

    assert len(Properties({}).of_rows({"headers": [headers(131_052)]}, 0)[0]) == 131_052
    with pytest.raises(
        RowError, match="row 8: the properties are 131,053 bytes long; one frame holds 131,052"
    ):
        Properties({}).of_rows({"headers": [None, headers(131_053)]}, 7)
    with pytest.raises(InputError, match=r"^the properties are 131,053 bytes long.*shorten the headers"):
        Properties({"headers": headers(131_053)})


@pytest.mark.parametrize(
    ("own", "sent"),
    [
        (None, {"tenant": "a", "v": 1}),
        ({}, {"tenant": "a", "v": 1}),
        ({"trace": "t"}, {"tenant": "a", "v": 1, "trace": "t"}),
        ([("tenant", "b")], {"v": 1, "tenant": "b"}),
        ({"tenant": None}, {"v": 1, "tenant": None}),
    ],
)
@pytest.mark.parametrize("form", [dict, lambda headers: list(headers.items())])
def test_headers_of_a_message_are_added_to_those_of_all(own: Any, sent: dict[str, Any], form: Any) -> None:
    properties = Properties({"headers": form({"tenant": "a", "v": 1})})
    [wire] = properties.of_rows({"headers": [own]}, 0)
    assert properties_in(wire)["headers"] == table_for(sent)


def test_headers_that_cannot_be_are_refused_beside_those_of_all_as_without() -> None:
    for constant in ({}, {"headers": {"tenant": "a"}}):
        with pytest.raises(RowError, match=r"^row 3: the headers cannot be sent"):
            Properties(constant).of_rows({"headers": [5]}, 3)


def test_properties_that_do_not_fit_into_the_negotiated_frame_are_the_error_of_their_row() -> None:
    most = FRAME_MAX - 8 - 12
    encoder().check(Rows([b"k"], [b"b"], [b"p" * most]), 0)
    with pytest.raises(
        RowError, match=rf"^row 8: the properties are 4,077 bytes long; one frame holds {most:,}:"
    ):
        encoder().check(Rows([b"k", b"k"], [b"b", b"b"], [b"p", b"p" * (most + 1)]), 7)
