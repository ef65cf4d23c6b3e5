"""Properties and header tables as they are written, read back by other implementations."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands

from rabbit_chx.amqp.client_fields import table_for
from rabbit_chx.amqp.header_table import encode_headers, parse_table, properties_in
from rabbit_chx.errors import InputError, RowError
from rabbit_chx.publishing.encoder import PROPERTY_NAMES, Properties

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


def test_the_row_is_named_by_its_number() -> None:
    with pytest.raises(RowError, match="row 12: the reply_to is of type int"):
        Properties({}).of_rows({"type": ["t"] * 3, "reply_to": ["r", None, 7]}, 10)


def test_whole_numbers_may_be_of_any_type() -> None:
    number = np.int64(7)
    rows = {"priority": [number], "timestamp": [number]}
    assert Properties({}).of_rows(rows, 0) == Properties({}).of_rows({"priority": [7], "timestamp": [7]}, 0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("timestamp", pd.NaT),
        ("timestamp", datetime.max.replace(tzinfo=timezone(-timedelta(hours=1)))),
        ("timestamp", 1.5),
        ("priority", True),
        ("priority", np.True_),
        ("priority", np.float64(1)),
        ("priority", np.int64(256)),
    ],
)
def test_a_value_that_is_not_a_whole_number(name: str, value: object) -> None:
    with pytest.raises(RowError, match=f"row 3: the {name} is .*; pass a whole number from 0"):
        Properties({}).of_rows({name: [value]}, 3)


@pytest.mark.parametrize("value", [60_000, "1 min", "", "٣", b"-1", 1.5])
def test_an_expiration_is_milliseconds_as_text(value: object) -> None:
    with pytest.raises(
        RowError, match=r"row 4: the expiration is .*; pass milliseconds as text, such as '60000'"
    ):
        Properties({}).of_rows({"expiration": ["1", value]}, 3)


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
