"""MurmurHash3, beside known answers and mmh3."""

from __future__ import annotations

import mmh3
import pytest

from rabbit_chx.routing.arrays import murmur3_hashes
from rabbit_chx.routing.super_stream import murmur3_x64_128, murmur3_x86_32


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
def test_murmur3(data: bytes, seed: int, hashed: int) -> None:
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
