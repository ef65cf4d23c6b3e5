"""Columns of what an exchange hashes are routed as single messages are."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from key_arrays import BYTES_ARRAYS, KEY_ARRAYS, NULL_ARRAYS, TEXT_ARRAYS
from naming import name_of

from rabbit_chx.amqp import AmqpField
from rabbit_chx.errors import ChannelClosedError, EmptyRingError, InputError, RowError
from rabbit_chx.routing import ConsistentHashExchange, HashRing, Release

OLD, NEW = Release("3.12.14"), Release("4.3.6")
BOTH = pytest.mark.parametrize("release", [OLD, NEW], ids=str)
CLIENTS = pytest.mark.parametrize("client", ["pika", "aio-pika"])
BUCKETS = [*(f"b{n}" for n in range(60)), None, *(f"b{n}" for n in range(60))]
TEXTS = ["", "a", "é", "日本語" * 5, *("x" * size for size in range(40)), "k" * 1_000] * 3
INTEGERS = sorted(
    {sign * (1 << bits) + off for bits in range(63) for sign in (1, -1) for off in (-1, 0, 1)}
    | {2**63 - 1, -(2**63)}
)
UNSIGNED = [number for number in INTEGERS if number >= 0]


def exchange(release: Release, arguments: dict[str, Any] | None = None) -> ConsistentHashExchange:
    return ConsistentHashExchange("x", HashRing.from_buckets(BUCKETS, release), arguments)


def by_header(release: Release) -> ConsistentHashExchange:
    return exchange(release, {"hash-header": "t"})


def names(x: ConsistentHashExchange, indices: Any) -> list[Any]:
    assert indices.dtype == np.int32
    return [(*x.ring.destinations, None)[index] for index in indices]


def one_by_one(x: ConsistentHashExchange, values: list[Any], client: Any = "pika") -> list[Any]:
    return [x.route("k", {"t": value}, client=client) for value in values]


INTEGER_ARRAYS: list[Any] = [
    list,
    tuple,
    np.array,
    pa.array,
    lambda values: np.array(values, object),
    lambda values: pa.chunked_array([values[:7], values[7:7], values[7:]]),
]


@BOTH
@CLIENTS
@pytest.mark.parametrize(
    ("container", "values"),
    [
        *((container, TEXTS) for container in (np.array, *TEXT_ARRAYS.values())),
        *((container, INTEGERS) for container in INTEGER_ARRAYS),
    ],
)
def test_values_in_any_container_route_as_single_values(
    container: Any, values: list[Any], release: Release, client: Any
) -> None:
    x = by_header(release)
    for column in (container(values), container([values[0], *values])[1:]):
        assert names(x, x.indices(column, client=client)) == one_by_one(x, values, client)


@BOTH
@pytest.mark.parametrize("container", BYTES_ARRAYS.values(), ids=BYTES_ARRAYS)
def test_bytes_are_binary_in_pika_unless_they_are_marked_as_text(container: Any, release: Release) -> None:
    x, values = by_header(release), container(TEXTS)
    assert names(x, x.indices(values)) == one_by_one(x, [text.encode() for text in TEXTS])
    for client in ("pika", "aio-pika"):
        found = x.indices(values, field_type="longstr", client=client)
        assert names(x, found) == one_by_one(x, TEXTS)
    with pytest.raises(InputError, match="cannot send b''"):
        x.indices(values, client="aio-pika")


@BOTH
@pytest.mark.parametrize("bits", [8, 16, 32, 64])
@pytest.mark.parametrize("sign", ["", "u"])
def test_integers_of_every_width_route_as_single_values(release: Release, bits: int, sign: str) -> None:
    width: Any = f"{sign}int{bits}"
    x, limits = by_header(release), np.iinfo(width)
    numbers = [n for n in (UNSIGNED if sign else INTEGERS) if limits.min <= n <= limits.max]
    for values in (np.array(numbers, width), pa.array(numbers, width)):
        assert names(x, x.indices(values)) == one_by_one(x, numbers)
    assert names(x, x.indices(np.array(numbers, width)[::3])) == one_by_one(x, numbers[::3])


@BOTH
@pytest.mark.parametrize("type_", ["long", "timestamp", "unsignedbyte", "double"])
def test_integers_of_a_given_type_route_as_single_fields(release: Release, type_: Any) -> None:
    x, numbers = by_header(release), [0, 1, 5, 200, 255]
    expected = one_by_one(x, [AmqpField(type_, number) for number in numbers])
    for values in (numbers, np.array(numbers), np.array(numbers, np.uint64), pa.array(numbers)):
        assert names(x, x.indices(values, field_type=type_)) == expected
    if type_ == "timestamp":
        large = [2**64 - 1, 2**63]
        for values in (large, np.array(large, np.uint64)):
            assert names(x, x.indices(values, field_type=type_)) == one_by_one(
                x, [AmqpField(type_, number) for number in large]
            )


@BOTH
def test_whatever_a_header_can_hold(release: Release) -> None:
    x = by_header(release)
    values = ["a", b"a", 5, -5, True, Decimal("3.14"), datetime(2023, 11, 14, tzinfo=UTC), ["a"], {"k": 1},
              AmqpField("double", 1.5), AmqpField("void"), 2**40]  # fmt: skip
    assert names(x, x.indices(values)) == one_by_one(x, values)
    objects = np.empty(len(values), object)
    objects[:] = values
    assert names(x, x.indices(objects)) == one_by_one(x, values)
    lists = pa.array([["a"], ["b", "c"]])
    for column in (
        lists,
        pa.array([True, False]),
        pa.array([datetime(2023, 11, 14, tzinfo=UTC)]),
        np.array([True]),
    ):
        assert names(x, x.indices(column)) == one_by_one(x, column.tolist())  # lists of text are not text
    floats = np.array([1.5, 0.1])
    assert names(x, x.indices(floats, client="aio-pika")) == one_by_one(x, [1.5, 0.1], "aio-pika")
    assert names(x, x.indices(floats, field_type="double")) == one_by_one(
        x, [AmqpField("double", 1.5), AmqpField("double", 0.1)]
    )
    nested = x.indices([[5], [6]], field_type="array", client="aio-pika")
    assert names(x, nested) == one_by_one(x, [[5], [6]], "aio-pika"), "the values inside are the client's"


@BOTH
@CLIENTS
@pytest.mark.parametrize("name", ["message_id", "correlation_id"])
def test_ids_in_any_container_route_as_single_properties(release: Release, client: Any, name: str) -> None:
    x = exchange(release, {"hash-property": name})
    made_up = (client, name) == ("aio-pika", "message_id")  # where it is empty
    ids = [text for text in TEXTS if len(text) < 100 and (text or not made_up)]
    expected = [x.route("k", properties={name: text}, client=client) for text in ids]
    for values in (ids, pa.array(ids), np.array(ids), tuple(ids)):
        assert names(x, x.indices(values, client=client)) == expected


@BOTH
def test_timestamps_route_as_single_properties(release: Release) -> None:
    x = exchange(release, {"hash-property": "timestamp"})
    seconds = [0, 1, 1_700_000_000, 2**63]
    expected = [x.route("k", properties={"timestamp": second}) for second in seconds]
    for values in (seconds, np.array(seconds, np.uint64), pa.array(seconds, pa.uint64())):
        assert names(x, x.indices(values)) == expected
    times = [datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)]
    assert names(x, x.indices(times, client="aio-pika")) == [expected[2]]


@BOTH
def test_routing_keys_route_as_on_the_ring_and_take_no_field_type(release: Release) -> None:
    x = exchange(release)
    keys = [text for text in TEXTS if len(text.encode()) <= 255]
    assert (x.indices(keys) == x.ring.indices(keys)).all()
    for other in (x, exchange(release, {"hash-property": "message_id"})):
        with pytest.raises(InputError, match="only a header's values have a field type"):
            other.indices(["a"], field_type="longstr")


@pytest.mark.parametrize("arguments", [None, {"hash-header": "t"}, {"hash-property": "message_id"}])
def test_nothing_gives_nothing(arguments: Any) -> None:
    texts: list[Any] = [[], np.array([], str), pa.array([], pa.string()), pa.chunked_array([], pa.string())]
    others = [pa.array([], pa.int64()), pa.array([], pa.binary()), np.array([], "S4")]
    for values in texts + others * (arguments == {"hash-header": "t"}):
        assert exchange(NEW, arguments).indices(values).tolist() == []


@BOTH
@pytest.mark.parametrize(
    ("values", "position"),
    [
        (["a", None], 1),
        (["a", 5, None], 2),
        (np.array([1, None], object), 1),
        (pa.array(["a", "b", None]), 2),
        (pa.array([1, None, 3]), 1),
        (pa.array([True, None]), 1),
        (pa.chunked_array([["a"], ["b", None]]), 2),
        (pa.chunked_array([[1], [2, None]]), 2),
        (pa.array([None, None]), 0),
        ([1, 2**63], 1),
        ([1, 2**64], 1),
        (np.array([1, 2**63], np.uint64), 1),
        ([1, 1j], 1),
        (["a", "b", "\ud800"], 2),
        ([b"a", object()], 1),
    ],
    ids=lambda value: name_of(value)[:30].replace("\ud800", "half a pair"),
)
def test_the_first_bad_value_is_named(release: Release, values: Any, position: int) -> None:
    with pytest.raises(RowError, match=f"at position {position}\\b"):
        by_header(release).indices(values)


@BOTH
@pytest.mark.parametrize(("values", "type_"), [([1, 2, 300], "byte"), (np.array([5, 6, -1]), "timestamp")])
def test_integers_have_to_fit_the_given_type(release: Release, values: Any, type_: Any) -> None:
    with pytest.raises(RowError, match=f"at position 2, .*does not fit {type_}"):
        by_header(release).indices(values, field_type=type_)


NO_VALUES: list[Any] = [
    *("abc", b"abc", 5, None, {"a": 1}, {1, 2}, np.array([["a"]]), np.array([[1]]), np.array(1)),
    *(pa.table({"t": [1]}), np.array(["2023-11-14"], "datetime64[ns]"), np.array([1j])),
]


@pytest.mark.parametrize("values", NO_VALUES)
@pytest.mark.parametrize("arguments", [{"hash-header": "t"}, {"hash-property": "message_id"}])
def test_a_value_without_values_is_refused(values: Any, arguments: Any) -> None:
    with pytest.raises(InputError):
        exchange(NEW, arguments).indices(values)


@BOTH
def test_integers_in_either_order_of_bytes_route_as_single_values(release: Release) -> None:
    x, numbers = by_header(release), [0, 5, 2**40]
    for width in (">u8", ">i8", "<u8", "<i8"):
        assert names(x, x.indices(np.array(numbers, width))) == one_by_one(x, numbers)
    high = np.array([5, 2**63 + 5], ">u8")
    with pytest.raises(RowError, match="position 1, 9223372036854775813, does not fit"):
        x.indices(high)
    expected = one_by_one(x, [AmqpField("timestamp", number) for number in high.tolist()])
    assert names(x, x.indices(high, field_type="timestamp")) == expected


LONG = ["k" * 255, "é" * 128]


@pytest.mark.parametrize("container", [np.array, *KEY_ARRAYS.values()], ids=["array", *KEY_ARRAYS])
@pytest.mark.parametrize("arguments", [None, {"hash-property": "message_id"}])
def test_keys_and_ids_have_at_most_255_bytes(container: Any, arguments: Any) -> None:
    x, values = exchange(NEW, arguments), container(LONG)
    with pytest.raises(RowError, match=r"position 1\b.* has 256 bytes"):
        x.indices(values)
    assert len(x.indices(values[:1])) == 1
    assert len(by_header(NEW).indices(values)) == 2
    assert len(x.ring.indices(values)) == 2


def test_the_first_long_key_is_named_at_any_position() -> None:
    keys = ["a"] * 70_000
    keys[66_000] = "k" * 256
    for values in (keys, pa.array(keys), np.array(keys, object), pa.array(keys).dictionary_encode()):
        with pytest.raises(RowError, match="position 66000 has 256 bytes"):
            exchange(NEW).indices(values)


def test_names_that_aio_pika_cuts() -> None:
    x = exchange(NEW, {"hash-header": "t" * 129})
    with pytest.raises(InputError, match="aio-pika cuts names to 128 bytes"):
        x.indices(["a"], client="aio-pika")
    assert len(x.indices(["a"])) == 1
    assert len(exchange(NEW, {"hash-header": "t" * 128}).indices(["a"], client="aio-pika")) == 1


def test_what_no_message_can_be_is_an_error_in_columns() -> None:
    with pytest.raises(EmptyRingError):
        ConsistentHashExchange("x", HashRing.from_buckets([]), {"hash-header": "t"}).indices([5])
    with pytest.raises(ChannelClosedError):
        by_header(Release("4.0.5")).indices([["a"], []])


@BOTH
@given(values=st.lists(st.text(max_size=50), max_size=80), client=st.sampled_from(["pika", "aio-pika"]))
def test_any_text_routes_as_single_values(release: Release, values: list[str], client: Any) -> None:
    x = by_header(release)
    assert names(x, x.indices(pa.array(values, pa.string()), client=client)) == one_by_one(x, values, client)


@BOTH
@given(st.lists(st.one_of(st.text(max_size=3), st.integers(-300, 300), st.booleans(), st.binary(max_size=3))))
def test_any_mixture_routes_as_single_values(release: Release, values: list[Any]) -> None:
    x = by_header(release)
    assert names(x, x.indices(values)) == one_by_one(x, values)


# ---- bytes that a client cannot send


BYTES_FORMS = [
    list,
    pa.array,
    lambda values: np.array(values, object),
    lambda values: pa.array(values, pa.large_binary()),
    lambda values: pa.chunked_array([values]),
]


@BOTH
@pytest.mark.parametrize("form", BYTES_FORMS)
def test_bytes_that_a_client_cannot_send_are_named_by_their_position(release: Release, form: Any) -> None:
    x = by_header(release)
    with pytest.raises(RowError, match=r"position 1: .*b'\\xff'") as caught:
        x.indices(form([None, b"\xff", b"b"]), client="aio-pika", missing_nulls=True)
    assert "b''" not in str(caught.value)


#: All with the text "a" before the null; those of bytes, and of a null in a dictionary, have other values.
TEXT_NULLS = [kind for kind in NULL_ARRAYS if kind not in ("large_binary", "null in the dictionary")]
NULLS = {kind: NULL_ARRAYS[kind](["a", None, "b"]) for kind in TEXT_NULLS}
INTEGER_NULLS: dict[str, Any] = {
    "list": [1, None, 300],
    "float": np.array([1, float("nan"), 300], object),
    "pandas": pd.Series([1, None, 300], dtype="Int64"),
    "arrow": pa.array([1, None, 300]),
    "arrow8": pa.array([1, None, 300], pa.uint16()),
    "chunked": pa.chunked_array([[1, None], [300]]),
}


@pytest.mark.parametrize("release", [OLD, NEW, Release("3.13.6")], ids=str)
@pytest.mark.parametrize(
    ("values", "around"),
    [*((v, ["a", "b"]) for v in NULLS.values()), *((v, [1, 300]) for v in INTEGER_NULLS.values())],
    ids=[*NULLS, *(f"integers {kind}" for kind in INTEGER_NULLS)],
)
def test_a_null_header_is_refused_filled_or_missing(values: Any, around: list[Any], release: Release) -> None:
    x = by_header(release)
    first, last = one_by_one(x, around)
    with pytest.raises(RowError, match="position 1 is null"):
        x.indices(values)
    for fill in ("nobody", 7, ["x"], AmqpField("void")):
        assert names(x, x.indices(values, fill_null=fill)) == [first, x.route("k", {"t": fill}), last]
    if release.version == "3.13.6":
        with pytest.raises(ChannelClosedError, match="the header 't' is missing"):
            x.indices(values, missing_nulls=True)
        assert len(x.indices(values[:1], missing_nulls=True)) == 1
    else:
        assert names(x, x.indices(values, missing_nulls=True)) == [first, x.route("k"), last]


@pytest.mark.parametrize("client", ["pika", "aio-pika", "amqp-1.0"])
@pytest.mark.parametrize("values", NULLS.values(), ids=NULLS)
def test_a_null_id_is_filled_or_missing(values: Any, client: Any) -> None:
    x = exchange(NEW, {"hash-property": "message_id"})
    a, b, c, none = (x.route("k", properties=p) for p in (*({"message_id": i} for i in "abc"), {}))
    with pytest.raises(RowError, match="position 1 is null"):
        x.indices(values, client=client)
    assert names(x, x.indices(values, client=client, fill_null="c")) == [a, c, b]
    assert names(x, x.indices(values, client=client, missing_nulls=True)) == [a, none, b]


@pytest.mark.parametrize("values", NULLS.values(), ids=NULLS)
def test_a_null_routing_key_is_filled_and_never_missing(values: Any) -> None:
    x = exchange(NEW)
    assert names(x, x.indices(values, fill_null="c")) == [x.route("a"), x.route("c"), x.route("b")]
    with pytest.raises(InputError, match="routing key, which no message lacks"):
        x.indices(values, missing_nulls=True)


def test_a_fill_is_encoded_as_the_values_are() -> None:
    x = by_header(OLD)
    expected = [x.route("k", {"t": AmqpField("long", number)}) for number in (1, 7)]
    assert names(x, x.indices(pa.array([1, None]), field_type="long", fill_null=7)) == expected
    for options in ({"fill_null": 5, "missing_nulls": True}, {"fill_null": 1j}, {"fill_null": object()}):
        wrong: dict[str, Any] = options
        with pytest.raises(InputError):
            x.indices(["a"], **wrong)


@BOTH
@pytest.mark.parametrize("dtype", [np.int64, np.uint64, np.int8, object])
def test_a_masked_integer_is_a_null(release: Release, dtype: Any) -> None:
    x = by_header(release)
    values = np.ma.array([5, 6, 7], mask=[False, True, False], dtype=dtype)

    with pytest.raises(RowError, match="position 1 is null"):
        x.indices(values)
    assert names(x, x.indices(values, fill_null=9)) == one_by_one(x, [5, 9, 7])
    assert names(x, x.indices(values, missing_nulls=True)) == [
        x.route("k", {"t": 5}), x.route("k"), x.route("k", {"t": 7}),
    ]  # fmt: skip
    for mask in (False, [False, False, False]):
        assert names(x, x.indices(np.ma.array([5, 6, 7], mask=mask))) == one_by_one(x, [5, 6, 7])


def test_a_masked_array_without_a_masked_value_has_no_nulls() -> None:
    """A release that crashes on a message without the header gets none."""
    x = by_header(Release("3.13.6"))
    assert names(x, x.indices(np.ma.array([5, 6]), missing_nulls=True)) == one_by_one(x, [5, 6])
