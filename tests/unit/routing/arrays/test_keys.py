"""Arrays of keys route as single keys do, whatever holds them."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from key_arrays import KEY_ARRAYS, NULL_ARRAYS
from naming import name_of

from rabbit_chx.erlang.hashing import hash_binary
from rabbit_chx.errors import InputError, RowError
from rabbit_chx.routing import ExchangeRef, HashRing
from rabbit_chx.routing.arrays.keys import hashes

RING = HashRing.from_buckets(["q1", "q2", "q2", None, ExchangeRef("x"), "q1", "q3"])
HOSTILE = [
    *("", "\0", "a\0", "a\0\0", "é", "\x7f\x80", "\u2028", "\ufeff", "\U0001d4b3" * 63, "日本語" * 7),
    *("x" * size for size in range(50)),
    *("ß" * size for size in range(26)),
    *("k" * size for size in (254, 255, 256, 5_000)),
]
# Often enough that the arrays do the work: a few keys alone are hashed one by one.
MANY = HOSTILE * 64


def one_by_one(ring: HashRing, keys: list[Any]) -> list[Any]:
    return [ring.destination_for(key) for key in keys]


def by_array(ring: HashRing, keys: Any) -> list[Any]:
    indices = ring.indices(keys)
    assert indices.dtype == np.int32
    names = (*ring.destinations, None)
    return [names[index] for index in indices]


@pytest.mark.parametrize("make", KEY_ARRAYS.values(), ids=KEY_ARRAYS)
def test_every_kind_of_array_and_each_slice_agrees_with_single_keys(make: Any) -> None:
    keys = make(MANY)
    assert by_array(RING, keys) == one_by_one(RING, HOSTILE) * 64
    for start, stop in ((1, 40), (5, 5), (3, len(MANY)), (len(MANY) - 1, len(MANY))):
        assert by_array(RING, keys[start:stop]) == one_by_one(RING, MANY[start:stop])
    assert by_array(RING, make([])) == []


def test_fixed_width_numpy_arrays_lose_trailing_nuls_as_numpy_does() -> None:
    words = [f"key-{n}-é" for n in range(500)]
    assert by_array(RING, np.array(words)) == one_by_one(RING, words)
    encoded = np.array([word.encode() for word in words])
    assert by_array(RING, encoded) == one_by_one(RING, words)
    assert by_array(RING, np.array([b"a\0"])) == one_by_one(RING, [b"a"])
    assert by_array(RING, encoded[::-3]) == one_by_one(RING, words[::-3])


def test_fixed_size_binaries_agree_with_single_keys() -> None:
    keys = [bytes([n % 251] * 16) for n in range(1_000)]
    assert by_array(RING, pa.array(keys, pa.binary(16))[3:]) == one_by_one(RING, keys[3:])


@pytest.mark.parametrize("size", [1, 31, 32, 33, 32_767, 32_768, 32_769])
def test_every_size_of_batch_agrees_with_single_keys(size: int) -> None:
    keys = [bytes([n % 256]) * (n % 30) for n in range(size)]
    answers = {key: hash_binary(key) for key in set(keys)}
    assert hashes(keys).tolist() == [answers[key] for key in keys]


def test_keys_of_more_than_65535_blocks_agree_with_single_keys() -> None:
    keys = [b"k" * 12 * 65_536, b"k"]
    assert hashes(keys).tolist() == [hash_binary(key) for key in keys]


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=40))
def test_arrays_and_single_keys_agree(keys: list[bytes]) -> None:
    assert by_array(RING, keys * 40) == one_by_one(RING, keys) * 40


@given(st.lists(st.text(), min_size=1, max_size=40))
def test_text_and_single_keys_agree(keys: list[str]) -> None:
    assert by_array(RING, pa.array(keys * 40)) == one_by_one(RING, keys) * 40


@pytest.mark.parametrize("kind", NULL_ARRAYS)
def test_the_first_null_is_named(kind: str) -> None:
    keys = NULL_ARRAYS[kind](["a", "b", "c", "d", None, "e", None])
    with pytest.raises(RowError, match="position 4 "):
        RING.indices(keys)
    with pytest.raises(RowError, match="position 2 "):
        RING.indices(keys[2:])
    if kind != "null in the dictionary":
        assert len(RING.indices(keys[:4])) == 4


@pytest.mark.parametrize("kind", NULL_ARRAYS)
def test_nulls_count_as_configured(kind: str) -> None:
    keys = ["a", "b", None, "a", None] * 20_000
    nulls = [key is None for key in keys]
    found = RING.indices(NULL_ARRAYS[kind](keys), fill_null="k" * 300)
    assert set(found[nulls].tolist()) == set(RING.indices(["k" * 300]).tolist())
    if kind != "null in the dictionary":
        filled = ["k" * 300 if key is None else key for key in keys]
        assert (found == RING.indices(filled)).all()


@pytest.mark.parametrize("fill", [5, "\ud800", 1.5, True])
def test_nulls_count_as_keys(fill: Any) -> None:
    with pytest.raises(InputError, match="fill_null"):
        RING.indices(pa.array(["a"]), fill_null=fill)


@pytest.mark.parametrize("kind", [list, tuple, np.array, pa.array, lambda keys: np.array(keys, object), iter])
def test_positions_go_on_from_chunk_to_chunk(kind: Any) -> None:
    for text in ("é{}", "{:036}"):
        texts = [text.format(n) for n in range(70_000)]
        assert by_array(RING, kind(texts))[::999] == one_by_one(RING, texts[::999])
    keys = ["a"] * 70_000
    keys[65_540] = "\ud800"
    if kind not in (np.array, pa.array):
        with pytest.raises(RowError, match=r"position 65540 .*half of a surrogate pair"):
            RING.indices(kind(keys))


@pytest.mark.parametrize("kind", ["S", "U", "object", "list"])
def test_scratch_is_for_a_chunk_alone(kind: str) -> None:
    texts = [f"é{n:09d}" for n in range(100_000)]
    keys: Any = texts if kind == "list" else np.array(texts, object if kind == "object" else "U")
    keys = np.char.encode(keys, "utf-8") if kind == "S" else keys
    RING.indices(["a"])
    tracemalloc.start()
    try:
        RING.indices(keys)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * len(keys) + (12 << 20)


def test_an_unused_null_of_a_dictionary_does_no_harm() -> None:
    keys = pa.DictionaryArray.from_arrays(pa.array([0, 1, 1]), pa.array(["a", "b", None]))
    assert by_array(RING, keys) == one_by_one(RING, ["a", "b", "b"])


@pytest.mark.parametrize("key", [5, 1.5, float("nan"), True, bytearray(b"a"), ("a",), np.int64(5), "\ud800"])
def test_an_invalid_key_is_named_by_its_position(key: Any) -> None:
    with pytest.raises(RowError, match="position 1"):
        RING.indices(["a", key])
    with pytest.raises(InputError):
        RING.destination_for(key)


NO_KEYS: list[Any] = [
    *("abc", b"abc", bytearray(b"abc"), memoryview(b"abc"), {"a": 1}, {"a"}, 7),
    *(np.array([1, 2]), np.array([["a", "b"]]), np.array("a"), pd.DataFrame({"key": ["x"]})),
    *(pa.array([1, 2]), pa.array([1, 2]).dictionary_encode(), pa.scalar("a"), pa.table({"k": ["a"]})),
    pa.nulls(0, pa.list_(pa.string())),
]


@pytest.mark.parametrize("keys", NO_KEYS, ids=name_of)
def test_a_value_without_keys_is_refused(keys: Any) -> None:
    with pytest.raises(InputError, match=r"not an array of keys: pass a list|holds no keys"):
        RING.indices(keys)
