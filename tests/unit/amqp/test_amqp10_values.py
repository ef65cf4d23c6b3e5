"""Values of AMQP 1.0."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from rabbit_chx.amqp import Amqp10Value
from rabbit_chx.amqp.amqp10_values import id_for, named_values, value_for
from rabbit_chx.errors import InputError

SOME_ID = UUID(int=5)


@pytest.mark.parametrize(
    ("bare", "type_", "value"),
    [
        (None, "null", None),
        (True, "boolean", True),
        (5, "long", 5),
        (1.5, "double", 1.5),
        ("é", "string", b"\xc3\xa9"),
        *((bare, "binary", bytes(bare)) for bare in (b"\xff", bytearray(b"a"))),
        (SOME_ID, "uuid", SOME_ID.bytes),
        *((bare, "list", None) for bare in ([1], (1,))),
        ({"a": 1}, "map", None),
    ],
)
def test_a_bare_value_is_what_proton_sends_for_it(bare: Any, type_: str, value: Any) -> None:
    assert (value_for(bare).type, value_for(bare).value) == (type_, value)


@pytest.mark.parametrize(
    ("name", "base", "bare", "type_", "value"),
    [
        ("ulong", int, 2**64 - 1, "ulong", 2**64 - 1),
        ("int32", int, -5, "int", -5),
        ("float32", float, 0.1, "float", 0.10000000149011612),
        ("symbol", str, "a", "symbol", b"a"),
        ("char", str, "é", "char", 0xE9),
        ("timestamp", int, -1, "timestamp", -1),
        ("decimal32", int, 5, "decimal32", None),
        ("Array", object, None, "array", None),
    ],
)
def test_protons_own_classes_are_known_by_name(
    name: str, base: Any, bare: Any, type_: str, value: Any
) -> None:
    """Scripted: Proton itself needs a C compiler. The parity suite sends its real classes."""
    for package in ("proton._data", "rabbitmq_amqp_python_client.qpid.proton._data"):
        kind = type(name, (base,), {"__module__": package})
        given = value_for(kind(bare) if base is not object else kind())
        assert (given.type, given.value) == (type_, value)


OUT_OF_RANGE: dict[Any, list[Any]] = {
    "ubyte": [256, -1],
    "byte": [128],
    "ushort": [2**16],
    "short": [-(2**15) - 1],
    "uint": [2**32],
    "int": [2**31],
    "ulong": [2**64, True],
    "long": [1.0],
    "float": [1e39],
    "double": [10**400, "1"],
    "char": ["ab", 0x110000],
    "timestamp": [2**63],
    "uuid": [b"short", str(SOME_ID)],
    "string": [5, "\ud800"],
    "symbol": [None],
    "boolean": [1],
    "null": [0],
    "utf8": ["a"],
}
REFUSED: list[tuple[Callable[..., object], tuple[Any, ...], str | None]] = [
    *((Amqp10Value, (type_, value), None) for type_, values in OUT_OF_RANGE.items() for value in values),
    *(
        (value_for, (bare,), None)
        for bare in (1 + 2j, object(), {1}, type("ulong", (int,), {})(5), 2**63, -(2**63) - 1)
    ),
    *(
        (id_for, ("message_id", bare), None)
        for bare in (-1, 2**64, 1.5, True, [1], Amqp10Value("long", 5), Amqp10Value("symbol", "a"))
    ),
    (named_values, ("ab",), "not a table"),
    (named_values, ({5: 1},), "name of an application property"),
]


@pytest.mark.parametrize(("make", "given", "says"), REFUSED)
def test_a_value_of_another_type_is_refused(make: Callable[..., Any], given: Any, says: str | None) -> None:
    with pytest.raises(InputError, match=says):
        make(*given)


def test_what_rabbitmq_does_not_look_into_is_not_simple() -> None:
    left_out = [Amqp10Value("list", [1]), Amqp10Value("decimal64"), value_for(math.nan), value_for(-math.inf)]
    assert not any(value.is_simple for value in left_out)
    assert all(value_for(bare).is_simple for bare in (None, False, 0, 0.0, "", b"", SOME_ID))


@pytest.mark.parametrize(
    ("bare", "type_"),
    [("a", "string"), (b"a", "binary"), (SOME_ID, "uuid"), (5, "ulong"), (2**64 - 1, "ulong"), (None, None)],
)
def test_an_id_has_the_type_that_a_client_sends(bare: Any, type_: str | None) -> None:
    given = id_for("message_id", bare)
    assert (given and given.type) == type_


def test_named_values_keep_their_order_and_names_given_twice() -> None:
    assert [name for name, _ in named_values([("b", 1), (b"a", 2), ("b", 3)])] == [b"b", b"a", b"b"]
