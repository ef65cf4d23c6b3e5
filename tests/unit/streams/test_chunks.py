"""Chunks: headers, checksums, sub-entries in each compression, and what is damaged."""

from __future__ import annotations

import gzip
import struct
import tracemalloc
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest
from stream_bytes import TIMESTAMP_MS, chunk_bytes, entry, notes, sub_entry

from rabbit_chx.errors import DamagedChunkError, InputError
from rabbit_chx.streams import chunks
from rabbit_chx.streams.chunks import ends_of, pieces, read_chunk

ROWS = [b"first", b"", b"third" * 50]
INSIDE = b"".join(map(entry, ROWS))


def arrow(name: Any) -> Callable[[bytes], bytes]:
    return lambda data: pa.Codec(name).compress(data, asbytes=True)


def framed_snappy(data: bytes) -> bytes:
    """As xerial's SnappyFramedOutputStream writes it: a stream identifier, then parts with a checksum each."""
    half = len(data) // 2
    packed = arrow("snappy")(data[:half])
    return (
        b"\xff\x06\0\0sNaPpY"
         b"\x00" + (len(packed) + 4).to_bytes(3, "little") + b"crc!" + packed
        + b"\x80" + (3).to_bytes(3, "little") + b"new"
        + b"\xfe" + (3).to_bytes(3, "little") + b"pad"
        + b"\x01" + (len(data) - half + 4).to_bytes(3, "little") + b"crc!" + data[half:]
    )  # fmt: skip


PACKED = {
    "none": (0, bytes),
    "gzip": (1, gzip.compress),
    "snappy": (2, arrow("snappy")),
    "snappy, framed": (2, framed_snappy),
    "lz4": (3, arrow("lz4")),
    "zstd": (4, arrow("zstd")),
}


def test_a_chunk_has_the_fields_of_its_header() -> None:
    data = chunk_bytes(map(entry, ROWS), offset=41, trailer=b"tracked")
    chunk = read_chunk(memoryview(data))
    assert (chunk.offset, chunk.records, chunk.entries) == (41, 3, 3)
    assert (chunk.timestamp_ms, chunk.epoch, chunk.kind) == (TIMESTAMP_MS, 7, "user")
    assert bytes(chunk.data) == INSIDE
    assert bytes(chunk.trailer) == b"tracked"
    assert not read_chunk(memoryview(data[:-7])).trailer, "one that was not asked for is not sent"


def test_a_wrong_crc_is_found_unless_it_is_not_looked_for() -> None:
    data = bytearray(chunk_bytes(map(entry, ROWS), offset=41))
    data[-1] ^= 1
    with pytest.raises(
        DamagedChunkError, match=r"offset 41 .* CRC .* 0x[0-9a-f]{8} instead of 0x[0-9a-f]{8}"
    ):
        read_chunk(memoryview(data))
    assert read_chunk(memoryview(data), check_crc=False).records == 3


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "cut off"),
        (chunk_bytes(map(entry, ROWS))[:47], "cut off"),
        (chunk_bytes(map(entry, ROWS))[:-1], "are announced, and"),
        (b"\x51" + chunk_bytes([])[1:], "begins with 0x50"),
        (chunk_bytes([], kind=3), "begins with 0x50"),
    ],
)
def test_an_incomplete_chunk_is_refused(data: bytes, says: str) -> None:
    with pytest.raises(DamagedChunkError, match=says):
        read_chunk(memoryview(data))


@pytest.mark.parametrize(("codec", "pack"), PACKED.values(), ids=PACKED)
def test_a_sub_entry_is_unpacked(codec: int, pack: Callable[[bytes], bytes]) -> None:
    data = chunk_bytes(
        [entry(b"before"), sub_entry(ROWS, codec, pack(INSIDE)), entry(b"a"), entry(b"")],
        offset=7,
        records=6,
    )

    found = [
        (piece.offset, piece.records, bytes(piece.unpack()[0]))
        for piece in pieces(read_chunk(memoryview(data)))
    ]

    assert found == [(7, 1, entry(b"before")), (8, 3, INSIDE), (11, 2, entry(b"a") + entry(b""))]


def unpack_one(codec: int, size: int, packed: bytes) -> None:
    """Unpack a sub-entry of three rows that announces this size."""
    head = struct.pack(">BHII", 0x80 | codec << 4, 3, size, len(packed))
    (piece,) = pieces(read_chunk(memoryview(chunk_bytes([head + packed], offset=41, records=3))))
    piece.unpack()


@pytest.mark.parametrize(("codec", "pack"), PACKED.values(), ids=PACKED)
@pytest.mark.parametrize("wrong", [-1, 1])
def test_a_sub_entry_of_another_size_than_announced_is_refused(
    codec: int, pack: Callable[[bytes], bytes], wrong: int
) -> None:
    with pytest.raises(DamagedChunkError, match="offset 41"):
        unpack_one(codec, len(INSIDE) + wrong, pack(INSIDE))


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ([b"\x80\x80\x80\x80\x04"], "1073741824 bytes instead of 100"),
        ([arrow("snappy")(bytes(60))] * 2, "60 bytes instead of 40"),
    ],
)
def test_framed_snappy_is_bounded_before_each_part_is_unpacked(parts: list[bytes], says: str) -> None:
    framed = (b"\0" + (len(part) + 4).to_bytes(3, "little") + b"crc!" + part for part in parts)
    with pytest.raises(DamagedChunkError, match=says):
        unpack_one(2, 100, b"\xff\x06\0\0sNaPpY" + b"".join(framed))


@pytest.mark.parametrize("codec", range(1, 8))
def test_a_sub_entry_that_cannot_be_unpacked_is_refused(codec: int) -> None:
    with pytest.raises(DamagedChunkError, match="sub-entry"):
        unpack_one(codec, len(INSIDE), b"\x99not packed")


def test_a_codec_that_is_not_installed_is_no_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another replica would be no remedy."""
    packed = arrow("zstd")(INSIDE)
    monkeypatch.setattr(pa, "Codec", Mock(is_available=lambda _name: False))
    with pytest.raises(
        InputError, match="offset 41 is packed by zstd, and this pyarrow was built without it: install"
    ):
        unpack_one(4, len(INSIDE), packed)
    unpack_one(0, len(INSIDE), INSIDE)


def test_a_sub_entry_that_announces_too_little_is_not_unpacked_whole() -> None:
    bomb = gzip.compress(bytes(32 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(DamagedChunkError, match="does not have as many"):
            unpack_one(1, len(INSIDE), bomb)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_a_chunk_of_large_rows_is_cut_between_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [bytes([n]) * size for n, size in enumerate((90, 40, 60, 250, 1, 2))]
    monkeypatch.setattr(chunks, "_PIECE_BYTES", 104)
    found = pieces(read_chunk(memoryview(chunk_bytes(map(entry, rows), offset=41))))
    assert [(piece.offset, piece.records, piece.size) for piece in found] == [
        (41, 1, 94), (42, 1, 44), (43, 1, 64), (44, 1, 254), (45, 2, 11)
    ]  # fmt: skip
    assert b"".join(bytes(piece.unpack()[0]) for piece in found) == b"".join(map(entry, rows))
    assert [piece.unpack()[1].tolist() for piece in found] == [[94], [44], [64], [254], [5, 11]]


def test_many_empty_rows_have_the_length_of_their_size_fields() -> None:
    ends = ends_of(bytes(4 * 40), 40)
    assert ends is not None
    assert ends.tolist() == list(range(4, 164, 4))


@pytest.mark.parametrize("kind", [1, 2])
@pytest.mark.parametrize(
    "rows", [ROWS, [b"\0Su\xa0\x04body"], [notes("ours")[:-1]], [notes("ours", 3)], [b"\0"], []]
)
def test_rows_are_not_taken_for_what_the_broker_notes(kind: int, rows: list[bytes]) -> None:
    """No CRC covers the header."""
    data = chunk_bytes(map(entry, rows), offset=41, kind=kind)
    with pytest.raises(DamagedChunkError, match=rf"offset 41 .* type {kind}, tracking data of the broker"):
        read_chunk(memoryview(data))


@pytest.mark.parametrize(("number", "kind", "size"), [(1, "delta", 8), (2, "snapshot", 16)])
def test_notes_of_the_broker_are_one_entry(number: int, kind: str, size: int) -> None:
    noted = [notes("a", size=size), notes("b" * 255, 1), notes("", 2)]
    chunk = read_chunk(memoryview(chunk_bytes([entry(b"".join(noted))], kind=number)))
    assert (chunk.kind, chunk.end) == (kind, 1)
