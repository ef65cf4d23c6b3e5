"""Values of AMQP 1.0."""

from __future__ import annotations

import math
from ast import literal_eval
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from stored_cases import stored_cases

from rabbit_chx.amqp import Amqp10Value
from rabbit_chx.amqp.amqp10_values import id_for, named_values, value_for
from rabbit_chx.errors import InputError

SOME_ID = UUID(int=5)
STORED = stored_cases(__file__, "amqp10_values.txt", r"^(\w+) (\(.*)\n-> (.*)")
CALLS: dict[str, Callable[..., Amqp10Value | None]] = {
    "Amqp10Value": Amqp10Value,
    "value_for": value_for,
    "id_for": partial(id_for, "message_id"),
}


@pytest.mark.parametrize(("call", "arguments", "said"), STORED)
def test_a_value_is_as_stored_or_is_refused(call: str, arguments: str, said: str) -> None:
    """A bare value is what Proton sends for it."""
    try:
        made = CALLS[call](*literal_eval(arguments))
    except InputError as error:
        result = f"InputError: {error}"
    else:
        result = f"{made.type} {made.value!r}" if made else "None"
    assert result == said


def test_a_value_without_a_literal_is_what_proton_sends_for_it() -> None:
    made = [value_for(bytearray(b"a")), value_for(SOME_ID), id_for("message_id", SOME_ID)]
    found = [(value.type, value.value) for value in filter(None, made)]
    assert found == [("binary", b"a"), ("uuid", SOME_ID.bytes), ("uuid", SOME_ID.bytes)]


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


REFUSED: list[tuple[Callable[..., object], tuple[Any, ...], str | None]] = [
    (Amqp10Value, ("double", 10**400), None),
    *((value_for, (bare,), None) for bare in (object(), type("ulong", (int,), {})(5))),
    *((id_for, ("message_id", Amqp10Value(*of)), None) for of in (("long", 5), ("symbol", "a"))),
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


def test_named_values_keep_their_order_and_names_given_twice() -> None:
    assert [name for name, _ in named_values([("b", 1), (b"a", 2), ("b", 3)])] == [b"b", b"a", b"b"]
