"""Values of any class in the rows of a publisher: each one is sent, or is a RowError with its row; no other error, and no other row.

The classes are those of pandas and NumPy, and some whose methods raise.
"""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fuzzing import told

from rabbit_chx.amqp.fields import encode_headers
from rabbit_chx.errors import RowError
from rabbit_chx.publishing.batches import RowBuilder, name_columns
from rabbit_chx.publishing.encoder import PROPERTY_NAMES, Encoder, Properties, Rows

METHODS = (
    *("__str__", "__repr__", "__bytes__", "__len__", "__iter__", "__index__", "__int__", "__float__"),
    *("__eq__", "__hash__", "__bool__", "__getitem__", "__contains__", "__lt__", "__le__", "__format__"),
    *("keys", "items", "encode", "decode", "isascii", "isdigit", "to_bytes", "bit_length", "utcoffset"),
    *("utctimetuple", "timestamp", "astimezone", "normalize", "as_tuple", "item", "dtype", "shape", "hex"),
)
BASES: tuple[tuple[type, tuple[Any, ...]], ...] = (
    (str, ("5",)),
    (bytes, (b"5",)),
    (bytearray, (b"5",)),
    (int, (1,)),
    (float, (1.5,)),
    (dict, ({"a": 1},)),
    (list, ([("a", 1)],)),
    (tuple, ((1,),)),
    (decimal.Decimal, ("1.5",)),
    (dt.datetime, (2026, 1, 1)),
    (object, ()),
)
RAISED = (ValueError, TypeError, KeyError, ZeroDivisionError, RecursionError, AttributeError)


class Zone(dt.tzinfo):
    """A time zone that does not know its offset."""

    def utcoffset(self, _: dt.datetime | None) -> dt.timedelta:
        raise KeyError("no such zone")

    def dst(self, _: dt.datetime | None) -> None:
        """Not known either."""

    def tzname(self, _: dt.datetime | None) -> str:
        return "nowhere"


class Pairs(Mapping[str, Any]):
    """A mapping that breaks while it is read."""

    def __getitem__(self, _: str) -> Any:
        raise LookupError

    def __iter__(self) -> Any:
        yield "a"
        raise OSError

    def __len__(self) -> int:
        return 1


class Colour(enum.Enum):
    """A value of no type that AMQP has."""

    RED = "red"


def raising(base: type, methods: tuple[str, ...], error: type[Exception]) -> type:
    """Return a subclass whose methods raise."""

    def method(*_: object) -> object:
        raise error("a method of the value")

    return type(f"{base.__name__} without {methods[0]}", (base,), dict.fromkeys(methods, method))


def values() -> list[Any]:
    """Return values of many classes."""
    found: list[Any] = [
        pd.NaT,
        pd.NA,
        float("nan"),
        Colour.RED,
        Pairs(),
        Zone(),
        np.array([1, 2]),
        memoryview(b"x"),
    ]
    found += [dt.datetime(2026, 1, 1, tzinfo=Zone()), np.datetime64("2026-01-01"), np.longdouble(1), object]
    errors = itertools.cycle(RAISED)
    for base, arguments in BASES:
        for methods in (*((name,) for name in METHODS), METHODS):
            # A class without a __hash__ of its own has none as soon as it has an __eq__; that is how Python works.
            class_ = raising(base, methods, next(errors))
            try:
                found.append(class_(*arguments))
            except Exception:  # noqa: BLE001, S112  # its constructor calls the method
                continue
    return found


def rows_of(**columns: Any) -> Rows:
    given = {"keys": ["k"] * 3, "bodies": ["b"] * 3, "exchanges": None, **columns}
    keys, bodies, exchanges = (given.pop(name) for name in ("keys", "bodies", "exchanges"))
    defaults = RowBuilder("x", Properties({"app_id": "a"}))
    (rows,) = defaults.with_trace({"traceparent": "00"}).batches_of(
        name_columns(keys, bodies, given, exchanges), 10
    )
    encoder = Encoder(b"x", b"\0\0", mandatory=True, frame_max=4096)
    assert type(encoder.encode(rows)) is bytes
    return rows


PLACES: Mapping[str, Callable[[Any], dict[str, Any]]] = {
    "key": lambda value: {"keys": ["k", value, "k"]},
    "body": lambda value: {"bodies": ["b", value, "b"]},
    "exchange": lambda value: {"exchanges": ["x", value, "x"]},
    "header": lambda value: {"headers": [{"a": 1}, {"a": value}, None]},
    "header inside": lambda value: {"headers": [{"a": 1}, {"a": [{"b": value}]}, None]},
    "pairs": lambda value: {"headers": [{"a": 1}, [("a", value)], None]},
    **{name: (lambda value, name=name: {name: [None, value, None]}) for name in PROPERTY_NAMES},  # type: ignore[misc]
}


@pytest.mark.parametrize("place", PLACES)
def test_each_value_is_sent_or_is_an_error_with_its_row(place: str) -> None:
    for value in values():
        with told(type(value)):
            try:
                rows = rows_of(**PLACES[place](value))
            except RowError as error:
                assert str(error).startswith("row 11: "), error  # noqa: PT017
            else:
                assert len(rows) == 3


@pytest.mark.parametrize("scalar", [np.int64(5), np.int8(-1), np.uint64(2**62), np.bool_(True), np.str_("s")])
def test_a_scalar_of_numpy_is_the_value_that_it_holds(scalar: Any) -> None:
    plain = scalar.item()
    assert encode_headers({"a": scalar}) == encode_headers({"a": plain})
    assert encode_headers([("a", [scalar]), ("b", {"c": scalar})]) == encode_headers(
        [("a", [plain]), ("b", {"c": plain})]
    )


def test_a_missing_time_in_a_header_is_named() -> None:
    with pytest.raises(
        RowError, match=r"row 11: the headers cannot be sent: a publisher cannot send NaT: it is no time"
    ):
        rows_of(headers=[None, {"t": pd.NaT}, None])
