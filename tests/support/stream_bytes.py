"""Chunks of a stream, made by hand: what a broker delivers, byte for byte."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Sequence

from rabbit_chx.streams.chunks import Chunk, read_chunk

TIMESTAMP_MS = 1_700_000_000_123


def entry(row: bytes) -> bytes:
    return struct.pack(">I", len(row)) + row


def sub_entry(rows: Sequence[bytes], codec: int, packed: bytes | None = None) -> bytes:
    """An entry that holds several rows; `packed` is what stands for them on the wire."""
    inside = b"".join(map(entry, rows))
    packed = inside if packed is None else packed
    return struct.pack(">BHII", 0x80 | codec << 4, len(rows), len(inside), len(packed)) + packed


def chunk_bytes(
    entries: Iterable[bytes],
    *,
    offset: int = 0,
    records: int | None = None,
    kind: int = 0,
    trailer: bytes = b"",
    timestamp_ms: int = TIMESTAMP_MS,
) -> bytes:
    """A chunk of these entries; `records` where there are sub-entries."""
    parts = list(entries)
    data = b"".join(parts)
    head = struct.pack(
        ">BBHIqQQIIIB3x",
        0x50,
        kind,
        len(parts),
        len(parts) if records is None else records,
        timestamp_ms,
        7,
        offset,
        zlib.crc32(data),
        len(data),
        len(trailer),
        16,
    )
    return head + data + trailer


def notes(name: str, kind: int = 0, size: int = 8) -> bytes:
    """What the broker notes in a chunk of its own: the last id of a publisher (0), the offset (1) or the time of a consumer (2)."""
    return bytes([kind, len(name)]) + name.encode() + bytes(size)


def chunk_of(rows: Iterable[bytes], *, offset: int = 0) -> Chunk:
    return read_chunk(memoryview(chunk_bytes(map(entry, rows), offset=offset)))


def published(frames: Iterable[memoryview]) -> list[tuple[int, bytes]]:
    """The ids and messages of Publish frames."""
    found = []
    for frame in frames:
        size, key, version, _, count = struct.unpack_from(">IHHBI", frame)
        assert (size, key, version) == (len(frame) - 4, 2, 1)
        at = 13
        for _ in range(count):
            id_, length = struct.unpack_from(">QI", frame, at)
            found.append((id_, bytes(frame[at + 12 : at + 12 + length])))
            at += 12 + length
        assert at == len(frame)
    return found
