"""Nulls among the values that an exchange hashes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from exchange_columns import BOTH, CLIENTS, NEW, OLD, by_header, exchange, names, one_by_one

from rabbit_chx.amqp import AmqpField
from rabbit_chx.errors import ChannelClosedError, InputError, RowError
from rabbit_chx.routing import Release

NULLS: dict[str, Any] = {
    "list": ["a", None, "b"],
    "object": np.array(["a", None, "b"], object),
    "NaN": np.array(["a", float("nan"), "b"], object),
    "pandas": pd.Series(["a", None, "b"], dtype="string"),
    "pandas NA": np.array(["a", pd.NA, "b"], object),
    "arrow": pa.array(["a", None, "b"]),
    "dictionary": pa.array(["a", None, "b"]).dictionary_encode(),
    "chunked": pa.chunked_array([["a", None], ["b"]]),
}


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
def test_nulls_in_a_header(values: Any, around: list[Any], release: Release) -> None:
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


@CLIENTS
@pytest.mark.parametrize("values", NULLS.values(), ids=NULLS)
def test_nulls_among_ids(values: Any, client: Any) -> None:
    x = exchange(NEW, {"hash-property": "message_id"})
    a, b, c, none = (x.route("k", properties=p) for p in (*({"message_id": i} for i in "abc"), {}))
    assert names(x, x.indices(values, client=client, fill_null="c")) == [a, c, b]
    assert names(x, x.indices(values, client=client, missing_nulls=True)) == [a, none, b]


@pytest.mark.parametrize("values", NULLS.values(), ids=NULLS)
def test_nulls_among_routing_keys(values: Any) -> None:
    x = exchange(NEW)
    assert names(x, x.indices(values, fill_null="c")) == [x.route("a"), x.route("c"), x.route("b")]
    with pytest.raises(InputError, match="routing key, which no message lacks"):
        x.indices(values, missing_nulls=True)


def test_a_fill_is_encoded_as_the_values_are() -> None:
    x = by_header(OLD)
    expected = [x.route("k", {"t": AmqpField("long", number)}) for number in (1, 7)]
    assert names(x, x.indices(pa.array([1, None]), field_type="long", fill_null=7)) == expected
    for options in ({"fill_null": 5, "missing_nulls": True}, {"fill_null": 1.5}, {"fill_null": object()}):
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


@BOTH
@pytest.mark.parametrize("mask", [False, [False, False, False]])
def test_a_mask_that_hides_nothing_changes_nothing(release: Release, mask: Any) -> None:
    x = by_header(release)
    assert names(x, x.indices(np.ma.array([5, 6, 7], mask=mask))) == one_by_one(x, [5, 6, 7])
