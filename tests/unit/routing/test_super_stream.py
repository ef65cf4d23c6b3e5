"""Super streams and sharded exchanges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mmh3
import numpy as np
import pyarrow as pa
import pytest
from key_arrays import KEY_ARRAYS

from rabbit_chx.errors import InputError
from rabbit_chx.routing import SuperStream
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
    assert stream.partitions_bound_with(b"apac") == ("s-c",)
    assert SuperStream(["s-0", "s-1"], ["k", "k"]).partitions_bound_with("k") == ("s-0", "s-1")
    assert SuperStream(["s-0", "s-1"]).partitions_bound_with("1") == ("s-1",)


TWO: Any = SuperStream(["s-0", "s-1"])  # wrong input has no types
NULLS = (["a", None], pa.array(["a", None]), pa.chunked_array([["a"], [None]]))
REFUSED: list[tuple[Callable[..., object], tuple[Any, ...], str | None]] = [
    *((SuperStream, (given,), None) for given in ("ab", b"ab", None, 5, [], [5], [b"s-0"], ["n" * 256])),
    *((SuperStream, (["a", "b"], keys), None) for keys in ("01", b"01", [b"0", b"1"], [0, 1], 5)),
    (SuperStream, (["a", "b"], ["0"]), "2 partitions have 1 binding keys"),
    (lambda: SuperStream(["s"], routing="keys"), (), "routing is 'keys': pass 'hash' or 'key'"),  # type: ignore[arg-type]
    *((SuperStream.from_bindings, (given,), None) for given in (None, 5, "ab", [("s", "k")], ["abc"])),
    *((SuperStream.from_bindings, ([("s", "k", order)],), None) for order in ("1", True, 1.5)),
    *((TWO.partition_for, (key,), None) for key in (5, None, "\ud800")),
    (TWO.partition_for, (b"\xff", "rstream"), "not UTF-8"),
    (TWO.partition_for, ("k", "go"), "no client 'go'"),
    (TWO.partitions_bound_with, (1,), None),
    *((TWO.indices, (keys,), None) for keys in ("key", 5, np.array([1, 2]), pa.array([["a"]]))),
    *((TWO.indices, (keys,), "position 1 is null") for keys in NULLS),
]


@pytest.mark.parametrize(("call", "given", "says"), REFUSED)
def test_what_no_super_stream_takes_is_refused(
    call: Callable[..., object], given: tuple[Any, ...], says: str | None
) -> None:
    with pytest.raises(InputError, match=says):
        call(*given)


@pytest.mark.parametrize("key", ["", "k1", "é", "😀", "k" * 300])
def test_rstream_hashes_otherwise(key: str) -> None:
    partitions = [f"s-{n}" for n in range(1000)]
    hash_ = int.from_bytes(mmh3.hash_bytes(bytes(key, "UTF-16"), 104729), "little")
    assert SuperStream(partitions).partition_for(key, client="rstream") == f"s-{hash_ % 1000}"
    assert SuperStream(partitions).partition_for(key.encode(), client="rstream") == f"s-{hash_ % 1000}"


def test_arrays_of_keys_go_where_each_key_goes() -> None:
    keys = ["", "é", "日本語", "😀" * 100, *INVOICES, *(f"k{n}" * (n % 50) for n in range(2_000))]
    stream = SuperStream([f"s-{n}" for n in range(7)])
    wanted = [stream.partitions.index(stream.partition_for(key)) for key in keys]
    for make in KEY_ARRAYS.values():
        assert stream.indices(make(keys)).tolist() == wanted
        assert stream.indices(make(["other", *keys])[1:]).tolist() == wanted
    assert stream.indices([]).tolist() == []


@pytest.mark.parametrize("size", [*range(40), 255, 256, 1000])
def test_hashes_are_those_of_mmh3(size: int) -> None:
    data = bytes(range(256)) * 4
    for seed in (0, 1, 104729):
        expected = int.from_bytes(mmh3.hash_bytes(data[:size], seed), "little")
        assert murmur3_x64_128(data[:size], seed) == expected
        assert murmur3_x86_32(data[:size], seed) == mmh3.hash(data[:size], seed, signed=False)


def test_clients_may_route_by_binding_key() -> None:
    stream = SuperStream(["s-a", "s-b"], ["a", "b"], routing="key")
    assert [stream.partition_for(key) for key in ("b", b"a")] == ["s-b", "s-a"]
    for keys in (["b", "c", b"a"], np.array(["b", "c", "a"]), pa.array(["b", "c", "a"])):
        assert stream.indices(keys).tolist() == [1, -1, 0]
    assert [stream.partition_for(key) for key in ("c", "", "0")] == [None] * 3
    assert [SuperStream(["a", "b"], keys).has_named_keys for keys in (None, ["0", "1"], ["1", "0"], ["x", "1"])] == [
        False, False, True, True,
    ]  # fmt: skip
