"""Super streams and sharded exchanges."""

from __future__ import annotations

from typing import Any, cast

import mmh3
import numpy as np
import pyarrow as pa
import pytest

from rabbit_chx.errors import InputError, RowError
from rabbit_chx.routing import SuperStream
from rabbit_chx.routing.arrays import murmur3_hashes
from rabbit_chx.routing.super_stream import murmur3_x64_128, murmur3_x86_32

# As the tests of rabbitmq-stream-go-client have it (super_stream_producer_test.go); the .NET client has the same.
INVOICES = {
    "hello1": "invoices-02", "hello2": "invoices-01", "hello3": "invoices-02", "hello4": "invoices-03",
    "hello5": "invoices-01", "hello6": "invoices-03", "hello7": "invoices-01", "hello8": "invoices-02",
    "hello9": "invoices-01", "hello10": "invoices-03", "hello88": "invoices-02",
}  # fmt: skip


def test_keys_go_where_the_official_clients_send_them() -> None:
    stream = SuperStream([f"invoices-0{n}" for n in (1, 2, 3)])
    assert {key: stream.partition_for(key) for key in INVOICES} == INVOICES
    assert stream.partition_for(b"hello1") == "invoices-02"


def test_partitions_stand_in_the_order_of_their_bindings() -> None:
    stream = SuperStream.from_bindings(
        [
            ("s-b", "emea", 10),
            ("s-x", "late", None),
            ("s-a", "amer", 2),
            ("s-w", "later", None),
            ("s-c", "apac", 0),
        ]
    )
    assert stream.partitions == ("s-c", "s-a", "s-b", "s-x", "s-w")
    assert stream.partitions_bound_with("emea") == ("s-b",)
    assert stream.partitions_bound_with("mars") == ()
    assert SuperStream(["s-0", "s-1"], ["k", "k"]).partitions_bound_with("k") == ("s-0", "s-1")
    assert SuperStream(["s-0", "s-1"]).partitions_bound_with("1") == ("s-1",)


@pytest.mark.parametrize("partitions", ["ab", b"ab", None, 5, [], [5], [b"s-0"], ["n" * 256]])
def test_invalid_partitions_are_refused(partitions: Any) -> None:
    with pytest.raises(InputError):
        SuperStream(partitions)


def test_each_partition_has_a_binding_key() -> None:
    with pytest.raises(InputError, match="2 partitions have 1 binding keys"):
        SuperStream(["a", "b"], ["0"])
    for keys in ("01", b"01", [b"0", b"1"], [0, 1], 5):
        wrong: Any = keys
        with pytest.raises(InputError):
            SuperStream(["a", "b"], wrong)


@pytest.mark.parametrize(
    "bindings",
    [None, 5, "ab", [("s", "k")], ["abc"], [("s", "k", "1")], [("s", "k", True)], [("s", "k", 1.5)]],
)
def test_bindings_are_stream_and_key_and_order(bindings: Any) -> None:
    with pytest.raises(InputError):
        SuperStream.from_bindings(bindings)


def test_partitions_are_bound_with_text_or_bytes() -> None:
    stream = SuperStream(["s-0", "s-1"])
    assert stream.partitions_bound_with(b"1") == stream.partitions_bound_with("1") == ("s-1",)
    wrong: Any = 1
    with pytest.raises(InputError):
        stream.partitions_bound_with(wrong)


@pytest.mark.parametrize("key", [5, None, "\ud800"])
def test_keys_are_text_or_bytes(key: Any) -> None:
    with pytest.raises(InputError):
        SuperStream(["a"]).partition_for(key)


@pytest.mark.parametrize("key", ["", "k1", "é", "😀", "k" * 300])
def test_rstream_hashes_otherwise(key: str) -> None:
    partitions = [f"s-{n}" for n in range(1000)]
    hash_ = int.from_bytes(mmh3.hash_bytes(bytes(key, "UTF-16"), 104729), "little")
    assert SuperStream(partitions).partition_for(key, client="rstream") == f"s-{hash_ % 1000}"
    assert SuperStream(partitions).partition_for(key.encode(), client="rstream") == f"s-{hash_ % 1000}"


def test_rstream_sends_text() -> None:
    with pytest.raises(InputError, match="not UTF-8"):
        SuperStream(["s-0"]).partition_for(b"\xff", client="rstream")
    with pytest.raises(InputError, match="no client 'go'"):
        SuperStream(["s-0"]).partition_for("k", client="go")  # type: ignore[arg-type]


def test_arrays_of_keys_go_where_each_key_goes() -> None:
    keys = ["", "é", "日本語", "😀" * 100, *INVOICES, *(f"k{n}" * (n % 50) for n in range(2_000))]
    stream = SuperStream([f"s-{n}" for n in range(7)])
    wanted = [stream.partitions.index(stream.partition_for(key)) for key in keys]
    texts = pa.array(keys)
    for column in (
        keys,
        [key.encode() for key in keys],
        np.array(keys, object),
        texts,
        texts.cast(pa.large_binary()),
        texts.dictionary_encode(),
        pa.chunked_array([texts.slice(0, 5), texts.slice(5)]),
        pa.concat_arrays([pa.array(["other"]), texts]).slice(1),
    ):
        assert stream.indices(column).tolist() == wanted
    assert stream.indices([]).tolist() == []


@pytest.mark.parametrize("null", [["a", None], pa.array(["a", None]), pa.chunked_array([["a"], [None]])])
def test_an_array_with_a_null_is_refused(null: Any) -> None:
    with pytest.raises(RowError, match="position 1 is null"):
        SuperStream(["s-0", "s-1"]).indices(null)


def test_a_value_that_is_not_an_array_of_keys_is_refused() -> None:
    for wrong in ("key", 5, pa.array([1, 2]), np.array([1, 2]), pa.array([["a"]])):
        with pytest.raises(InputError):
            SuperStream(["s-0"]).indices(cast("Any", wrong))


@pytest.mark.parametrize(
    ("data", "seed", "hashed"),
    [
        (b"", 0, 0),
        (b"", 1, 0x514E28B7),
        (b"", 0xFFFFFFFF, 0x81F16F39),
        (b"\0\0\0\0", 0, 0x2362F9DE),
        (b"\xff\xff\xff\xff", 0, 0x76293B50),
        (b"!Ce", 0, 0x7E4A8634),
        (b"test", 0x9747B28C, 0x704B81DC),
        (b"Hello, world!", 0x9747B28C, 0x24884CBA),
    ],
)
def test_murmur3_hashes_as_the_reference(data: bytes, seed: int, hashed: int) -> None:
    assert murmur3_x86_32(data, seed) == hashed


@pytest.mark.parametrize("size", [*range(40), 255, 256, 1000])
def test_128_bits_are_those_of_mmh3(size: int) -> None:
    data = bytes(range(256)) * 4
    for seed in (0, 1, 104729):
        expected = int.from_bytes(mmh3.hash_bytes(data[:size], seed), "little")
        assert murmur3_x64_128(data[:size], seed) == expected


@pytest.mark.parametrize("seed", [0, 1, 104729, 0xFFFFFFFF])
def test_many_at_once_are_hashed_as_one_by_one(seed: int) -> None:
    data = bytes(range(256)) * 2
    keys = [data[start : start + size] for size in [*range(40), 255, 256] for start in (0, 7, 200)]
    assert murmur3_hashes(keys, seed).tolist() == [murmur3_x86_32(key, seed) for key in keys]
    assert murmur3_hashes(keys, seed).tolist() == [mmh3.hash(key, seed, signed=False) for key in keys]


def test_clients_may_route_by_binding_key() -> None:
    stream = SuperStream(["s-a", "s-b"], ["a", "b"], routing="key")
    assert [stream.partition_for(key) for key in ("b", b"a")] == ["s-b", "s-a"]
    for keys in (["b", "c", b"a"], np.array(["b", "c", "a"]), pa.array(["b", "c", "a"])):
        assert stream.indices(keys).tolist() == [1, -1, 0]
    assert [stream.partition_for(key) for key in ("c", "", "0")] == [None] * 3
    assert [stream.route("b"), stream.route("c")] == ["s-b", None]
    assert SuperStream.from_json(stream.to_json()) == stream
    with pytest.raises(InputError, match="the shares of the keys are not known"):
        stream.shares()
    with pytest.raises(InputError, match="routing is 'keys': pass 'hash' or 'key'"):
        SuperStream(["s"], routing="keys")  # type: ignore[arg-type]
    assert [SuperStream(["a", "b"], keys).has_named_keys for keys in (None, ["0", "1"], ["1", "0"], ["x", "1"])] == [
        False, False, True, True,
    ]  # fmt: skip
