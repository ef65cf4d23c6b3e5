"""Field values: types, ranges, and being values."""

from __future__ import annotations

import math
import pickle
from copy import deepcopy
from decimal import Decimal
from functools import partial
from http import HTTPStatus
from itertools import product
from typing import Any

import pytest

from rabbit_chx.amqp import AmqpField
from rabbit_chx.amqp.client_fields import field_for, table_for
from rabbit_chx.errors import InputError

RANGES = {
    "byte": (-(2**7), 2**7 - 1),
    "unsignedbyte": (0, 2**8 - 1),
    "short": (-(2**15), 2**15 - 1),
    "unsignedshort": (0, 2**16 - 1),
    "signedint": (-(2**31), 2**31 - 1),
    "unsignedint": (0, 2**32 - 1),
    "long": (-(2**63), 2**63 - 1),
    "timestamp": (0, 2**64 - 1),
}


def field(type_: str, value: Any = None) -> AmqpField:
    return AmqpField(type_, value)  # type: ignore[arg-type]


@pytest.mark.parametrize("type_", RANGES)
def test_integers_have_ranges(type_: str) -> None:
    low, high = RANGES[type_]
    assert (field(type_, low).value, field(type_, high).value) == (low, high)
    for outside in (low - 1, high + 1, 10**5000):
        with pytest.raises(InputError, match=f"is out of range for {type_}: pass {low} to {high}"):
            field(type_, outside)
    for wrong in (True, 1.0, "1", None):
        with pytest.raises(InputError, match="holds an int"):
            field(type_, wrong)


WRONG: dict[str, list[Any]] = {
    "bool": [1, "true"],
    "void": [0, False],
    "decimal": [3.14, (2,), (256, 1), (2, -1), (2, 2**32), (True, 1)],
    "array": ["ab", {"a": 1}, [object()], [(1, 2)]],
    "table": ["ab", 5, ["ab"], {5: "v"}, {"n" * 256: "v"}, {"k": {1, 2}}],
    "longstr": [5, None, bytearray(b"a"), "\ud800"],
    "double": [math.nan, math.inf, -math.inf, True, "1.5", None, 10**400],
    "float": [math.nan, math.inf, True, 10**400, 1e39],
}


@pytest.mark.parametrize(("type_", "wrong"), [(type_, wrong) for type_ in WRONG for wrong in WRONG[type_]])
def test_values_of_another_type_are_refused(type_: str, wrong: object) -> None:
    with pytest.raises(InputError):
        field(type_, wrong)


@pytest.mark.parametrize(
    ("type_", "value", "kept"),
    [
        ("longstr", "é", b"\xc3\xa9"),
        ("binary", "é", b"\xc3\xa9"),
        ("float", 0.1, 0.10000000149011612),
        ("float", 1e-46, 0.0),
        ("double", 0.1, 0.1),
        ("double", 2, 2.0),
        ("long", HTTPStatus.OK, 200),  # a kind of int
    ],
)
def test_a_value_is_kept_as_it_is_on_the_wire(type_: str, value: object, kept: object) -> None:
    assert field(type_, value).value == kept
    assert type(field(type_, value).value) is type(kept)


@pytest.mark.parametrize("type_", ["string", "int", "", "LONGSTR", None, ["longstr"]])
def test_types_that_do_not_exist_are_refused(type_: Any) -> None:
    with pytest.raises(InputError, match="not an AMQP field type"):
        AmqpField(type_, "a")


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
