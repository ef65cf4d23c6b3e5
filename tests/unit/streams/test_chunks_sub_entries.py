"""Rows in sub-entries: their bytes, their confirms and what is refused, with a scripted broker."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pytest
from chunk_columns import columns_of
from stream_bytes import chunk_bytes
from stream_logs import RowLog
from stream_publishers import Broker, publisher

from rabbit_chx.routing import HashRing
from rabbit_chx.streams.chunks import CODECS, Codec, crc32c, pack, pieces, read_chunk
from rabbit_chx.streams.frames import Key
from rabbit_chx.streams.rows import SubEntries

KEYS = [f"k{n}" for n in range(100)]
BODIES = [f"body {n} " * 5 for n in range(100)]


def values(broker: Broker, stream: str = "s") -> list[str]:
    found: list[Any] = broker.rows[stream].batch(0, 1_000)["value"].to_pylist()
    return [value.decode() for value in found]


def test_sub_entries_are_encoded_a_few_at_a_time(broker: Broker) -> None:
    """As many rows at once as without sub-entries: 8 in these tests."""
    with publisher(sub_entry_rows=4, window=80) as made:
        assert made.publish_many(KEYS, BODIES).complete
    requests = zip(broker.seen, broker.requests, strict=True)
    entries = [content[0] for key, content in requests if key == Key.PUBLISH]  # the last byte of their count
    assert sum(entries) == 25
    assert max(entries) == 2


# -- bytes


@pytest.mark.parametrize("codec", get_args(Codec))
def test_a_chunk_of_sub_entries_has_the_rows(codec: Codec) -> None:
    """A broker stores each entry as it was sent, without its id."""
    sub_entries = SubEntries(
        KEYS,
        BODIES,
        ids=np.arange(1, 101),
        exchange="x",
        most_rows=10,
        codec=codec,
        most_bytes=1 << 20,
        overhead=60,
    )
    assert sub_entries.rows.tolist() == [10] * 10
    (frame,) = map(bytes, sub_entries.frames(7, np.arange(1, 11, dtype=np.uint64), 0, 10, 1 << 20))
    assert frame[4:13] == b"\0\2\0\1\7" + (10).to_bytes(4)
    entries, at = [], 13
    for number in range(1, 11):
        assert int.from_bytes(frame[at : at + 8]) == number
        assert frame[at + 8] == 0x80 | CODECS.index(codec) << 4
        size = 11 + int.from_bytes(frame[at + 15 : at + 19])
        entries.append(frame[at + 8 : at + 8 + size])
        at += 8 + size
    assert at == len(frame)
    chunk = read_chunk(memoryview(chunk_bytes(entries, records=100)))
    assert [piece.records for piece in pieces(chunk)] == [10] * 10
    rows = columns_of([chunk], 0, 100, ["exchange"])
    assert rows["key"].to_pylist() == [key.encode() for key in KEYS]
    assert rows["value"].to_pylist() == [body.encode() for body in BODIES]
    assert set(rows["exchange"].to_pylist()) == {"x"}


def test_the_compressed_data_is_as_other_clients_read_it() -> None:
    """The frame format of LZ4 in independent blocks, and Snappy with the frames and the CRC-32C of its format description."""
    data = memoryview(b"some text " * 20_000)
    assert pack("none", data) == (0, data)
    assert bytes(pack("gzip", data)[1][:2]) == b"\x1f\x8b"
    assert bytes(pack("lz4", data)[1][:7]) == b"\x04\x22\x4d\x18\x60\x40\x82"
    assert bytes(pack("zstd", data)[1][:4]) == b"\x28\xb5\x2f\xfd"
    snappy, at, sizes = bytes(pack("snappy", data)[1]), 10, list[int]()
    assert snappy[:10] == b"\xff\x06\0\0sNaPpY"
    while at < len(snappy):
        assert snappy[at] == 0
        end = at + 4 + int.from_bytes(snappy[at + 1 : at + 4], "little")
        block = data[sum(sizes) : sum(sizes) + 65_536]
        rotated = (int.from_bytes(snappy[at + 4 : at + 8], "little") - 0xA282EAD8) % (1 << 32)
        assert ((rotated << 15 | rotated >> 17) & 0xFFFFFFFF) == crc32c(block)
        assert pa.Codec("snappy").decompress(snappy[at + 8 : end], len(block), asbytes=True) == block
        sizes.append(len(block))
        at = end
    assert sum(sizes) == len(data)


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, 200_000])
def test_blocks_of_lz4_that_do_not_become_shorter_are_stored_as_they_are(size: int) -> None:
    """Random bytes, and some that make the whole shorter."""
    data = bytes(100_000) + np.random.default_rng(1).bytes(size)
    number, packed = pack("lz4", memoryview(data))
    assert (number, len(packed) < size + 2_000) == (3, True)
    with pa.CompressedInputStream(pa.BufferReader(bytes(packed)), "lz4") as stream:
        assert stream.read() == data


def test_data_that_compression_does_not_shorten_is_not_compressed() -> None:
    data = memoryview(np.random.default_rng(1).bytes(1_000))
    for codec in get_args(Codec):
        assert pack(codec, data) == (0, data)


@pytest.mark.parametrize("size", [1, 3, 4, 255, 1_023, 1_025, 65_536])
def test_the_crc_of_any_size_is_that_of_castagnoli_bit_by_bit(size: int) -> None:
    data, crc = np.random.default_rng(size).bytes(size), 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    assert crc32c(data) == crc ^ 0xFFFFFFFF
    rfc_3720 = {bytes(32): 0x8A9136AA, b"\xff" * 32: 0x62A8AB43, bytes(range(32)): 0x46DD794E}
    assert {known: crc32c(known) for known in rfc_3720} == rfc_3720


def test_a_sub_entry_ends_before_it_exceeds_its_bytes() -> None:
    entries = SubEntries(
        KEYS,
        ["x" * 100] * 100,
        ids=np.arange(1, 101),
        exchange="",
        most_rows=50,
        codec="none",
        most_bytes=1_000,
        overhead=60,
    )
    assert entries.rows.tolist() == ([6] * 8 + [2]) * 2


# -- publishing


def test_rows_of_several_streams_are_in_sub_entries_of_their_stream(broker: Broker) -> None:
    for stream in ("a", "b"):
        broker.rows[stream] = RowLog()
    with publisher(
        ring=HashRing.from_buckets(["a", "b"]), exchange="orders", sub_entry_rows=8, compression="zstd"
    ) as made:
        report = made.publish_many(KEYS, BODIES)
    assert (report.rows, report.confirmed) == (100, 100)
    assert sorted(values(broker, "a") + values(broker, "b")) == sorted(BODIES)
    assert report.streams == {stream: len(values(broker, stream)) for stream in ("a", "b")}
