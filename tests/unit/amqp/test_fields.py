"""Field values: types, ranges, and being values."""

from __future__ import annotations

import math
import pickle
from ast import literal_eval
from copy import deepcopy
from decimal import Decimal
from functools import partial
from http import HTTPStatus
from itertools import product
from typing import Any

import pytest
from stored_cases import stored_cases

from rabbit_chx.amqp import AmqpField
from rabbit_chx.amqp.fields import field_for, table_for
from rabbit_chx.errors import InputError


def field(type_: str, value: Any = None) -> AmqpField:
    return AmqpField(type_, value)  # type: ignore[arg-type]


STORED = stored_cases(__file__, "fields.txt", r"^(\(.*)\n-> (.*)")


@pytest.mark.parametrize(("given", "said"), STORED)
def test_a_value_is_kept_as_it_is_on_the_wire_or_is_refused(given: str, said: str) -> None:
    try:
        result = repr(field(*literal_eval(given)).value)
    except InputError as error:
        result = f"InputError: {error}"
    assert result == said


@pytest.mark.parametrize(
    ("type_", "wrong"),
    [
        *product(["double", "float"], [math.nan, math.inf, -math.inf, 10**400]),
        ("array", [object()]),
        ("table", {"n" * 256: "v"}),
        ("longstr", bytearray(b"a")),
    ],
)
def test_a_value_without_a_literal_is_refused(type_: str, wrong: object) -> None:
    with pytest.raises(InputError):
        field(type_, wrong)


def test_an_int_may_be_of_another_kind_and_of_any_size() -> None:
    assert type(field("long", HTTPStatus.OK).value) is int
    with pytest.raises(InputError, match="is out of range for long"):
        field("long", 10**5000)


def test_tables_keep_their_order() -> None:
    table = field("table", [("b", field("void")), (b"a", 1), ("b", "again")])
    assert table.value == ((b"b", field("void")), (b"a", 1), (b"b", "again"))
    assert field("table", {"b": 1, "a": 2}) == field("table", [("b", 1), ("a", 2)])
    assert field("table", {"b": 1, "a": 2}) != field("table", {"a": 2, "b": 1})


def test_equal_is_what_is_the_same_on_the_wire() -> None:
    assert field("byte", 5) != field("long", 5)
    assert field("longstr", "é") != field("binary", "é")
    assert field("longstr", "é") == field("longstr", b"\xc3\xa9")
    assert field("array", [1]) == field("array", (1,))
    assert field("byte", 5) != 5
    assert field("double", 0.0) != field("double", -0.0)
    assert field("double", 1) == field("double", 1.0)
    fields = [field("array", [1, ["a"], {"k": bytearray(b"b")}, field("table", {"k": None})]) for _ in "ab"]
    assert len({*fields, field("void")}) == 2


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (1, True),
        (1, 1.0),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"a": [1]}, {"a": [1.0]}),
        ({"a": {"b": 0}}, {"a": {"b": False}}),
        (Decimal("1.5"), Decimal("1.50")),
        (0.0, -0.0),
    ],
)
def test_bare_values_are_distinguished_as_on_the_wire(first: Any, second: Any) -> None:
    assert field("array", [first]) != field("array", [second])
    assert field("table", {"k": first}) != field("table", {"k": second})
    again = field("array", [deepcopy(first)])
    assert field("array", [first]) == again
    assert hash(field("array", [first])) == hash(again)


def test_what_is_nested_without_end_is_refused() -> None:
    cyclic: list[Any] = []
    cyclic.append(cyclic)
    table: dict[str, Any] = {}
    table["t"] = table
    built, bare, shallow = field("array", []), list[Any](), list[Any]()
    for level in range(5_000):
        built, bare = field("array", [built]), [bare]
        shallow = bare if level == 100 else shallow
    uses: list[Any] = [field_for, lambda value: table_for({"k": value})]
    for use, value in [*product(uses, [cyclic, bare, table, built]), (partial(field, "array"), cyclic)]:
        with pytest.raises(InputError, match="nested too deep, or holds itself"):
            use(value)
    assert field_for(shallow).type == "array"


def test_a_field_does_not_change() -> None:
    inside, items = {"k": [1]}, [bytearray(b"a"), ["x"]]
    table, array = field("table", [("d", inside)]), field("array", items)
    before = repr(table), repr(array)
    inside["k"].append(2)
    items[0] += b"b"  # type: ignore[operator]
    items[1].append("y")  # type: ignore[attr-defined]
    assert (repr(table), repr(array)) == before
    with pytest.raises(AttributeError):
        table.value = ()  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(table)) == table  # noqa: S301
