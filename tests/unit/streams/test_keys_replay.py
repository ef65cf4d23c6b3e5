"""Which stream `replay` takes for a key. `refusals.txt` has what it refuses."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from rabbit_chx.routing import HashRing, ModulusHashExchange, SuperStream
from rabbit_chx.streams.keys import keys_by_stream

RING = HashRing.from_bindings([("s0", 1), ("s1", 1)])
MODULUS = ModulusHashExchange("x", [("s0", ""), ("s1", "")])
KEYS = [b"a", b"b", b"c", b"d", b"e"]


@pytest.mark.parametrize("placing", [RING, SuperStream(["s0", "s1"]), MODULUS])
def test_each_key_is_looked_for_where_it_belongs(
    placing: HashRing | SuperStream | ModulusHashExchange,
) -> None:
    of = placing.partition_for if isinstance(placing, SuperStream) else placing.destination_for
    expected: dict[Any, list[bytes]] = {}
    for key in KEYS:
        expected.setdefault(of(key), []).append(key)
    found = keys_by_stream(placing, pa.array(KEYS, pa.binary()))
    assert {stream: keys.to_pylist() for stream, keys in found.items()} == expected
    assert len(found) == 2
