"""Chunks of a stream: a header, its entries, and what the broker notes at its end. No I/O.

A chunk is what the broker writes, replicates and delivers at a time. Layout: osiris 1.13.1, ``osiris_log.erl``.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Literal, NamedTuple

import pyarrow as pa

from rabbit_chx.errors import DamagedChunkError

#: The most bytes of a sub-entry when unpacked: what RabbitMQ 4.3.5 and newer take from a publisher by default.
MAX_SUB_ENTRY_BYTES = 64 * 1024 * 1024

_HEADER = struct.Struct(">BBHIqQQIIIB3x")
_MAGIC_AND_VERSION = 0x50
_KINDS: tuple[Literal["user", "delta", "snapshot"], ...] = ("user", "delta", "snapshot")
_LENGTH = struct.Struct(">I")
_SUB_ENTRY = struct.Struct(">BHII")
_IS_SUB_ENTRY = 1 << 31
_CODECS: tuple[Literal["none", "gzip", "snappy", "lz4", "zstd"], ...] = (
    "none",
    "gzip",
    "snappy",
    "lz4",
    "zstd",
)
_SNAPPY_STREAM = b"\xff\x06\0\0sNaPpY"
_COMPRESSED, _UNCOMPRESSED, _SNAPPY_SKIPPABLE = 0x00, 0x01, 0x80


class Fingerprint(NamedTuple):
    """What tells a chunk from another one at the same place of a log that was rewritten.

    Attributes:
        offset: the offset of its first row.
        epoch: the number of the term of the leader that wrote it.
        crc: the CRC-32 of its entries.
    """

    offset: int
    epoch: int
    crc: int


class Chunk(NamedTuple):
    """A chunk, its bytes not looked into yet.

    Attributes:
        offset: the offset of the first record.
        records: how many records it has, so many offsets it takes.
        timestamp_ms: when the leader wrote it, in milliseconds since 1970.
        epoch: the number of the leader's term.
        crc: the CRC-32 of `data`.
        kind: "user" for rows; "delta" and "snapshot" for what the broker notes, which has offsets too.
        data: the entries.
        trailer: what the broker notes behind them; empty unless the subscription asked for all.
        entries: how many entries it has: a sub-entry holds several records.
    """

    offset: int
    records: int
    timestamp_ms: int
    epoch: int
    crc: int
    kind: Literal["user", "delta", "snapshot"]
    data: memoryview
    trailer: memoryview
    entries: int

    @property
    def end(self) -> int:
        """The offset behind the last record."""
        return self.offset + self.records

    @property
    def fingerprint(self) -> Fingerprint:
        """What tells it from another chunk at its place."""
        return Fingerprint(self.offset, self.epoch, self.crc)


class Piece(NamedTuple):
    """Records one behind the other, each with its length before it."""

    data: memoryview | bytes
    records: int


def read_chunk(data: memoryview, *, check_crc: bool = True) -> Chunk:
    """Return the chunk of a Deliver frame.

    The bloom filter that the header tells of is never sent, and the trailer only to who asked for all: ``osiris_log.erl``,
    ``select_amount_to_send``.

    Args:
        data: the chunk, from its first byte to the end of the frame.
        check_crc: whether the CRC is compared.

    Raises:
        DamagedChunkError: it is no chunk, it is cut off, or its CRC is not that of its entries.
    """
    if len(data) < _HEADER.size:
        raise DamagedChunkError(
            f"a chunk of {len(data)} bytes is cut off: its header has {_HEADER.size}; read it again"
        )
    magic, kind, entries, records, timestamp_ms, epoch, offset, crc, size, trailer_size, _ = (
        _HEADER.unpack_from(data)
    )
    if magic != _MAGIC_AND_VERSION or kind >= len(_KINDS):
        raise DamagedChunkError(
            f"a chunk begins with the bytes {magic:#04x} {kind:#04x}: version 0 of the format begins with 0x50 and "
            "0, 1 or 2; the broker is newer than this library, or the connection mixed up its bytes"
        )
    end = _HEADER.size + size
    if end > len(data):
        raise _damaged(
            offset, f"{size} bytes of entries are announced, and {len(data) - _HEADER.size} are there"
        )
    body = data[_HEADER.size : end]
    if check_crc and zlib.crc32(body) != crc:
        raise _damaged(offset, f"the CRC of its entries is {zlib.crc32(body):#010x} instead of {crc:#010x}")
    trailer = data[end : end + trailer_size]
    return Chunk(offset, records, timestamp_ms, epoch, crc, _KINDS[kind], body, trailer, entries)


def pieces(chunk: Chunk) -> Iterator[Piece]:
    """Yield the records of a chunk in their order, with sub-entries unpacked.

    Args:
        chunk: a chunk of rows.

    Raises:
        DamagedChunkError: the lengths or the numbers of records do not fit, or a sub-entry cannot be unpacked.
    """
    data, at, begin, single, records = chunk.data, 0, 0, 0, 0
    for _ in range(chunk.entries):
        if at + _LENGTH.size > len(data):
            break
        (length,) = _LENGTH.unpack_from(data, at)
        if length < _IS_SUB_ENTRY:
            at += _LENGTH.size + length
            single += 1
            continue
        if single:
            yield Piece(data[begin:at], single)
        if at + _SUB_ENTRY.size > len(data):
            break
        head, inside, unpacked, packed = _SUB_ENTRY.unpack_from(data, at)
        begin = at = at + _SUB_ENTRY.size + packed
        records, single = records + single + inside, 0
        if at > len(data):
            break
        yield Piece(_unpacked(chunk.offset, head >> 4 & 7, data[at - packed : at], unpacked), inside)
    if at != len(data) or records + single != chunk.records:
        raise damaged_lengths(chunk.offset)
    if single:
        yield Piece(data[begin:], single)


def damaged_lengths(offset: int) -> DamagedChunkError:
    """Return the error for a chunk whose lengths or numbers of records do not fit."""
    return _damaged(offset, "the lengths of its records do not add up to its own")


def _unpacked(offset: int, codec: int, data: memoryview, size: int) -> memoryview | bytes:
    """Return what is in a sub-entry, of the announced size."""
    if codec >= len(_CODECS):
        raise _damaged(offset, f"a sub-entry is compressed by method {codec}, which is not known")
    name = _CODECS[codec]
    if size > MAX_SUB_ENTRY_BYTES:
        raise _damaged(
            offset,
            f"a sub-entry ({name}) announces {size} bytes, and the broker's own limit is {MAX_SUB_ENTRY_BYTES}",
        )
    try:
        if name == "none":
            found: memoryview | bytes = data
        elif name == "snappy":
            found = _snappy(data, size)
        else:  # the frame format of LZ4, as all clients write it
            with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(data)), name) as stream:
                found = stream.read(size + 1)
    except (OSError, pa.ArrowException, ValueError) as error:
        raise _damaged(offset, f"a sub-entry ({name}) cannot be unpacked: {error}") from None
    if len(found) != size:
        raise _damaged(offset, f"a sub-entry ({name}) announces {size} bytes and does not have as many")
    return found


def _snappy(data: memoryview, size: int) -> bytes:
    """Unpack Snappy, framed as the Java client writes it (xerial's SnappyFramedOutputStream) or bare."""
    if bytes(data[: len(_SNAPPY_STREAM)]) != _SNAPPY_STREAM:
        return _bare_snappy(data, size)
    found, at = bytearray(), len(_SNAPPY_STREAM)
    while at < len(data):
        kind, end = data[at], at + 4 + int.from_bytes(data[at + 1 : at + 4], "little")
        if end > len(data) or (kind < _SNAPPY_SKIPPABLE and (kind > _UNCOMPRESSED or end < at + 8)):
            raise ValueError(f"part {kind:#04x} at byte {at} is cut off or unknown")
        part = data[at + 8 : end]  # behind its CRC-32C, which the CRC of the chunk makes needless
        if kind == _COMPRESSED:
            found += _bare_snappy(part, size - len(found))
        elif kind == _UNCOMPRESSED:
            found += part
        at = end
    return bytes(found)


def _bare_snappy(data: memoryview, most: int) -> bytes:
    """Unpack Snappy of at most so many bytes; its own size, in sevens of bits, is before it."""
    size = 0
    for place, byte in enumerate(data[:5]):
        size |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            break
    if size > most:
        raise ValueError(f"{size} bytes instead of {most}")
    return bytes(pa.Codec("snappy").decompress(pa.py_buffer(data), size, asbytes=True))


def _damaged(offset: int, what: str) -> DamagedChunkError:
    return DamagedChunkError(
        f"the chunk at offset {offset} is damaged: {what}; read it again, from another replica if there is one"
    )
