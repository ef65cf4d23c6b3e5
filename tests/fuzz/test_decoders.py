"""On what is valid, our readers of bytes say what those of pamqp and pika say."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands, decode, frame
from pika.data import decode_table  # type: ignore[import-untyped]

from rabbit_chx.amqp import AmqpField
from rabbit_chx.amqp.fields import INTEGER_RANGES, encode_table, parse_table
from rabbit_chx.amqp.frames import next_frame, parse_return

SHORT = st.text(max_size=40).filter(lambda text: len(text.encode("utf-8", "ignore")) < 256)
#: Types that both clients read, with values that fit their Python types. Times: what a calendar has.
PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    **{
        type_: st.integers(
            numbers[0], min(numbers[-1], (1 << 32) - 1 if type_ == "timestamp" else numbers[-1])
        )
        for type_, numbers in INTEGER_RANGES.items()
    },
    "longstr": st.binary(max_size=30),
    "binary": st.binary(max_size=30),
    "bool": st.booleans(),
    "double": st.floats(allow_nan=False, allow_infinity=False),
    "float": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "decimal": st.tuples(st.integers(0, 20), st.integers(0, (1 << 31) - 1)),
    "void": st.none(),
}
FIELDS = st.recursive(
    st.one_of([st.builds(AmqpField, st.just(type_), values) for type_, values in PLAIN.items()]),
    lambda inner: st.one_of(
        st.builds(AmqpField, st.just("array"), st.lists(inner, max_size=4)),
        st.builds(
            AmqpField, st.just("table"), st.dictionaries(st.text("abc", max_size=5), inner, max_size=4)
        ),
    ),
    max_leaves=12,
)
TABLES = st.dictionaries(st.text("abcdefgh", max_size=9), FIELDS, max_size=6)


def plain(field: AmqpField, client: str) -> Any:  # noqa: PLR0911  # one for each type
    """What a client makes of a field."""
    value = field.value
    match field.type:
        case "longstr":
            try:
                return value.decode()
            except UnicodeDecodeError:
                return value
        case "array":
            return [plain(inner, client) for inner in value]
        case "table":
            return {name.decode(): plain(inner, client) for name, inner in value}
        case "timestamp":
            return datetime.fromtimestamp(value, tz=UTC)
        case "decimal":
            return Decimal(value[1]).scaleb(-value[0])
        case "double" | "float" if client == "pika":
            return int(value)  # pika 1.4.4 cuts it off
    return value


def same(first: Any, second: Any) -> bool:
    """Equal, with what is a float compared as one."""
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(first[key], second[key]) for key in first)
    if isinstance(first, list):
        return len(first) == len(second) and all(map(same, first, second))
    if isinstance(first, float):
        return math.isclose(first, second, rel_tol=1e-6, abs_tol=1e-30)
    return bool(first == second)


@given(TABLES)
def test_tables_are_decoded_as_by_other_clients(table: dict[str, AmqpField]) -> None:
    data = encode_table(tuple((name.encode(), field) for name, field in table.items()))
    read = dict(parse_table(data[4:]))
    assert {name.decode(): field for name, field in read.items()} == table
    size, by_pamqp = decode.field_table(data)
    by_pika, end = decode_table(data, 0)
    assert size == end == len(data)
    for client, found in (("pamqp", by_pamqp), ("pika", by_pika)):
        assert same({name: plain(field, client) for name, field in table.items()}, found), client


@given(st.integers(200, 599), SHORT, st.text("aZ9-_.:", max_size=100), SHORT)  # pamqp takes no other names
def test_returns_are_decoded_as_by_other_clients(code: int, text: str, exchange: str, key: str) -> None:
    text, key = (part.encode("utf-8", "ignore").decode() for part in (text, key))
    whole = frame.marshal(commands.Basic.Return(code, text, exchange, key), 1)
    found = next_frame(whole, 0, 4096)
    assert found is not None
    assert parse_return(found.payload) == (code, text, key.encode(), exchange.encode())
