"""Chunks of a stream: a header, entries, and a trailer of the broker. No I/O.

A chunk is the unit that the broker writes, replicates and delivers. Layout: osiris 1.13.1, ``osiris_log.erl``.
"""

from __future__ import annotations

import struct
import zlib
from functools import cache
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rabbit_chx.errors import DamagedChunkError, InputError

#: The most unpacked bytes of a sub-entry: the default limit of RabbitMQ 4.3.5 and newer for publishers.
MAX_SUB_ENTRY_BYTES = 64 * 1024 * 1024
#: The most rows of a sub-entry: their number has 16 bits.
MAX_SUB_ENTRY_ROWS = (1 << 16) - 1
#: A chunk without sub-entries is cut into pieces of about this size in bytes.
_PIECE_BYTES = 16 << 20

Places: TypeAlias = NDArray[np.int64]

_HEADER = struct.Struct(">BBHIqQQIIIB3x")
_MAGIC_AND_VERSION = 0x50
_MOST_OFFSET = (1 << 63) - 1  # an Arrow column of offsets has signed 64-bit integers
_KINDS: tuple[Literal["user", "delta", "snapshot"], ...] = ("user", "delta", "snapshot")
_LENGTH = struct.Struct(">I")
_length_at = _LENGTH.unpack_from
_FEW_RECORDS = 32  # for which a loop is faster than NumPy
_SUB_ENTRY = struct.Struct(">BHII")
_IS_SUB_ENTRY = 1 << 31
_LAST_TRACKING_TYPE = 2  # 0 is a publisher's id, 1 a consumer's offset, 2 a consumer's time
Codec: TypeAlias = Literal["none", "gzip", "snappy", "lz4", "zstd"]
#: The codecs by their numbers.
CODECS: tuple[Codec, ...] = get_args(Codec)
#: What is to do about a codec that `has_codec` denies.
NO_CODEC = "this pyarrow was built without it: install pyarrow from PyPI or conda-forge"
_SNAPPY_STREAM = b"\xff\x06\0\0sNaPpY"
_COMPRESSED = 0x00
_UNCOMPRESSED = 0x01
_SNAPPY_SKIPPABLE = 0x80
#: A frame of LZ4 whose blocks do not need each other: lz4-java, with which the Java client unpacks, refuses the frames of pyarrow above a block.
_LZ4_FRAME = bytes.fromhex("04224d18 60 40 82")  # its magic, its flags, 64 KiB, and their checksum
_LZ4_UNCOMPRESSED = 1 << 31
_BLOCK = 1 << 16  # bytes, as the Java client takes them for LZ4 and Snappy
_CRC_LANES = 256


class Fingerprint(NamedTuple):
    """The identity of a chunk. A different chunk at its offset means that the log was rewritten.

    Attributes:
        offset: the offset of its first row.
        epoch: the term of the leader that wrote it.
        crc: the CRC-32 of its entries.
    """

    offset: int
    epoch: int
    crc: int


class Chunk(NamedTuple):
    """A chunk whose entries are not parsed yet.

    Attributes:
        timestamp_ms: when the leader wrote it, in milliseconds since 1970.
        crc: the CRC-32 of `data`.
        kind: "user" for rows; "delta" and "snapshot" for the broker's tracking data, which takes offsets too.
        trailer: tracking data after the entries; empty unless the subscription requested all chunks.
        entries: the number of entries; a sub-entry contains several records.
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
        """The offset after the last record."""
        return self.offset + self.records

    @property
    def fingerprint(self) -> Fingerprint:
        """The identity of the chunk."""
        return Fingerprint(self.offset, self.epoch, self.crc)

    def piece(self, offset: int, records: int, data: memoryview, ends: Places | None = None) -> Piece:
        """Return records of it that are not packed."""
        return Piece(offset, records, self.timestamp_ms, data, len(data), None, ends)


class Piece(NamedTuple):
    """Records of a chunk, each prefixed with its length; or a packed sub-entry.

    Attributes:
        data: the records, or the packed data of a sub-entry.
        size: the bytes of the unpacked records.
        codec: the compression of a sub-entry; None for plain records.
        ends: the end of each record in `data`; None if not known yet.
    """

    offset: int
    records: int
    timestamp_ms: int
    data: memoryview
    size: int
    codec: Codec | None = None
    ends: Places | None = None

    @property
    def end(self) -> int:
        """The offset after the last record."""
        return self.offset + self.records

    def unpack(self) -> tuple[memoryview | bytes, Places]:
        """Return the records and the end of each; a DamagedChunkError if a sub-entry cannot be unpacked."""
        data = self.data if self.codec is None else _unpack(self.offset, self.codec, self.data, self.size)
        ends = ends_of(data, self.records) if self.ends is None else self.ends
        if ends is None:
            raise lengths_error(self.offset)
        return data, ends


def read_chunk(data: memoryview, *, check_crc: bool = True) -> Chunk:
    """Return the chunk of a Deliver frame; a DamagedChunkError if it is truncated or its CRC differs.

    The broker does not send the bloom filter of the header. It sends the trailer only if the subscription requested all chunks:
    ``osiris_log.erl``, ``select_amount_to_send``.
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
    if offset + records > _MOST_OFFSET:  # no CRC covers the header
        raise _damage_error(offset, f"offsets end at {_MOST_OFFSET}")

    end = _HEADER.size + size
    if end > len(data):
        raise _damage_error(
            offset, f"{size} bytes of entries are announced, and {len(data) - _HEADER.size} are there"
        )

    body = data[_HEADER.size : end]
    if check_crc and zlib.crc32(body) != crc:
        raise _damage_error(
            offset, f"the CRC of its entries is {zlib.crc32(body):#010x} instead of {crc:#010x}"
        )

    trailer = data[end : end + trailer_size]
    chunk = Chunk(offset, records, timestamp_ms, epoch, crc, _KINDS[kind], body, trailer, entries)
    if chunk.kind != "user" and not _is_tracking(chunk):  # no CRC covers the header
        raise _damage_error(
            offset,
            f"its header has type {kind}, tracking data of the broker, and its {entries} entries are not tracking data",
        )

    return chunk


def _is_tracking(chunk: Chunk) -> bool:
    """Return whether a chunk has tracking data: a single entry of items (type, name, 8 bytes, or 16 for a publisher in a snapshot).

    osiris v1.8.8 and v1.13.1, osiris_tracking.erl, ``flush/1``, ``snapshot/3``.
    """
    if (chunk.entries, chunk.records) != (1, 1):
        return False
    data = chunk.data
    at = _LENGTH.size
    if len(data) < at or _length_at(data)[0] != len(data) - at:
        return False
    while at + 2 <= len(data):
        type_ = data[at]
        size = data[at + 1]
        if type_ > _LAST_TRACKING_TYPE:
            return False
        at += 2 + size + (16 if type_ == 0 and chunk.kind == "snapshot" else 8)
    return at == len(data)


def pieces(chunk: Chunk, *, max_sub_entry_bytes: int = MAX_SUB_ENTRY_BYTES) -> list[Piece]:
    """Return the records of a chunk in their order. Sub-entries stay packed; one above `max_sub_entry_bytes` is an InputError."""
    if chunk.entries == chunk.records:
        plain = _plain(chunk)
        if plain is not None:
            return plain
    data = chunk.data
    at = 0
    begin = 0
    single = 0
    offset = chunk.offset
    found: list[Piece] = []

    def add_single() -> None:
        if single:
            found.append(chunk.piece(offset - single, single, data[begin:at]))

    for _ in range(chunk.entries):
        if at + _LENGTH.size > len(data):
            raise lengths_error(chunk.offset)
        (length,) = _length_at(data, at)
        if length < _IS_SUB_ENTRY:
            at = at + _LENGTH.size + length
            offset = offset + 1
            single = single + 1
            continue
        add_single()
        sub_entry = _sub_entry(chunk, at, offset, max_sub_entry_bytes)
        found.append(sub_entry)
        at = begin = at + _SUB_ENTRY.size + len(sub_entry.data)
        offset = sub_entry.end
        single = 0
    if at != len(data) or offset != chunk.end:
        raise lengths_error(chunk.offset)
    add_single()
    return found


def _sub_entry(chunk: Chunk, at: int, offset: int, most_bytes: int) -> Piece:
    begin = at + _SUB_ENTRY.size
    if begin > len(chunk.data):
        raise lengths_error(chunk.offset)
    head, records, size, packed = _SUB_ENTRY.unpack_from(chunk.data, at)
    data = chunk.data[begin : begin + packed]
    if len(data) < packed or (size and not records):
        raise lengths_error(chunk.offset)
    number = head >> 4 & 7
    if number >= len(CODECS):
        raise _damage_error(chunk.offset, f"a sub-entry is compressed by method {number}, which is not known")
    if size > most_bytes:
        raise InputError(
            f"a sub-entry ({CODECS[number]}) of the chunk at offset {chunk.offset} has {size:,} bytes when unpacked, and "
            f"max_sub_entry_bytes is {most_bytes:,}: raise it, or start after the chunk, at offset {chunk.end}"
        )
    return Piece(offset, records, chunk.timestamp_ms, data, size, CODECS[number])


def _plain(chunk: Chunk) -> list[Piece] | None:
    """Return a chunk without sub-entries as pieces; None if it has sub-entries or is damaged."""
    if chunk.records > _FEW_RECORDS or len(chunk.data) > _PIECE_BYTES:
        ends = ends_of(chunk.data, chunk.records)
        return None if ends is None else _cut(chunk, ends)
    if not _adds_up(chunk.data, chunk.records):
        return None
    return [chunk.piece(chunk.offset, chunk.records, chunk.data)] if chunk.records else []


def _cut(chunk: Chunk, ends: Places) -> list[Piece]:
    data = chunk.data
    offset = chunk.offset
    found = []
    first = 0
    begin = 0
    while first < len(ends):
        last = max(int(np.searchsorted(ends, begin + _PIECE_BYTES, "right")), first + 1)
        end = int(ends[last - 1])
        found.append(chunk.piece(offset + first, last - first, data[begin:end], ends[first:last] - begin))
        first = last
        begin = end
    return found


def _adds_up(data: memoryview, records: int) -> bool:
    """Return whether the lengths of a few records add up to that of the data, as `ends_of` checks."""
    at = 0
    size = len(data)
    for _ in range(records):
        if at + 4 > size:
            return False
        at += 4 + _length_at(data, at)[0]
    return at == size


def ends_of(data: memoryview | bytes, records: int) -> Places | None:
    """Return the end of each length-prefixed record; None if the lengths do not add up to the size of the data."""
    if 4 * records > len(data) or (len(data) and not records):
        return None
    if records > _FEW_RECORDS:  # often all have the same length
        each = 4 + _length_at(data)[0]
        has_room = each * records == len(data)
        if has_room and (np.ndarray((records,), ">u4", data, 0, (each,)) == each - 4).all():
            return np.arange(each, each * (records + 1), each)
    at = 0
    ends = []
    try:
        for _ in range(records):
            at += 4 + _length_at(data, at)[0]
            ends.append(at)
    except struct.error:
        return None
    return np.array(ends, np.int64) if at == len(data) else None


def lengths_error(offset: int) -> DamagedChunkError:
    """Return the error for lengths or numbers of records that do not match."""
    return _damage_error(offset, "the lengths of its records do not add up to its own")


def _unpack(offset: int, name: Codec, data: memoryview, size: int) -> memoryview | bytes:
    if not has_codec(name):
        raise InputError(f"a sub-entry of the chunk at offset {offset} is packed by {name}, and {NO_CODEC}")
    try:
        if name == "none":
            found: memoryview | bytes = data
        elif name == "snappy":
            found = _snappy(data, size)
        else:  # the frame format of LZ4, as all clients write it
            with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(data)), name) as stream:
                found = stream.read(size + 1)
    except (OSError, pa.ArrowException, ValueError) as error:
        raise _damage_error(offset, f"a sub-entry ({name}) cannot be unpacked: {error}") from None
    if len(found) != size:
        raise _damage_error(offset, f"a sub-entry ({name}) announces {size} bytes and does not have as many")
    return found


def has_codec(name: Codec) -> bool:
    """Return whether the installed pyarrow packs and unpacks by a codec."""
    return name == "none" or pa.Codec.is_available(name)


def _snappy(data: memoryview, size: int) -> bytes:
    """Unpack Snappy, framed as the Java client writes it (xerial's SnappyFramedOutputStream) or bare."""
    if bytes(data[: len(_SNAPPY_STREAM)]) != _SNAPPY_STREAM:
        return _bare_snappy(data, size)
    found = bytearray()
    at = len(_SNAPPY_STREAM)
    while at < len(data):
        kind = data[at]
        end = at + 4 + int.from_bytes(data[at + 1 : at + 4], "little")
        if end > len(data) or (kind < _SNAPPY_SKIPPABLE and (kind > _UNCOMPRESSED or end < at + 8)):
            raise ValueError(f"part {kind:#04x} at byte {at} is cut off or unknown")
        part = data[at + 8 : end]  # after its CRC-32C, which is redundant with the CRC of the chunk
        if kind == _COMPRESSED:
            found += _bare_snappy(part, size - len(found))
        elif kind == _UNCOMPRESSED:
            found += part
        at = end
    return bytes(found)


def _bare_snappy(data: memoryview, most: int) -> bytes:
    """Unpack Snappy of at most `most` bytes; its size precedes it as a varint."""
    size = 0
    for place, byte in enumerate(data[:5]):
        size |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            break
    if size > most:
        raise ValueError(f"{size} bytes instead of {most}")
    return bytes(pa.Codec("snappy").decompress(pa.py_buffer(data), size, asbytes=True))


def pack(codec: Codec, data: memoryview) -> tuple[int, memoryview | bytes]:
    """Compress the records of a sub-entry as all clients do; return the number of the codec, 0 where it does not save bytes, and the bytes."""
    if codec == "none":
        return 0, data
    if codec in _FRAMES:
        packed = _FRAMES[codec](data)
    else:
        packed = pa.Codec(codec).compress(pa.py_buffer(data), asbytes=True)
    return (CODECS.index(codec), packed) if len(packed) < len(data) else (0, data)


def _frame_snappy(data: memoryview) -> bytes:
    parts = [_SNAPPY_STREAM]
    for at in range(0, len(data), _BLOCK):
        block = data[at : at + _BLOCK]
        crc = crc32c(block)
        masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
        packed = pa.Codec("snappy").compress(pa.py_buffer(block), asbytes=True)
        parts += [
            (_COMPRESSED | len(packed) + 4 << 8).to_bytes(4, "little"),
            masked.to_bytes(4, "little"),
            packed,
        ]
    return b"".join(parts)


def _frame_lz4(data: memoryview) -> bytes:
    parts: list[memoryview | bytes] = [_LZ4_FRAME]
    for at in range(0, len(data), _BLOCK):
        block = data[at : at + _BLOCK]
        packed = pa.Codec("lz4_raw").compress(pa.py_buffer(block), asbytes=True)
        if len(packed) < len(block):
            parts += [len(packed).to_bytes(4, "little"), packed]
        else:
            parts += [(_LZ4_UNCOMPRESSED | len(block)).to_bytes(4, "little"), block]
    return b"".join([*parts, bytes(4)])


_FRAMES = {"snappy": _frame_snappy, "lz4": _frame_lz4}


def crc32c(data: memoryview | bytes) -> int:
    """Return the CRC-32C, which neither Python nor PyArrow has: of 256 parts at once, which are then joined in pairs."""
    width = max(4, -(-len(data) // _CRC_LANES))
    padded = np.zeros(_CRC_LANES * width, np.uint8)  # zeros in front do not change a CRC that begins with 0
    begin = len(padded) - len(data)
    padded[begin:] = np.frombuffer(data, np.uint8)
    padded[begin : begin + 4] ^= 0xFF  # instead of beginning with 0xFFFFFFFF
    table = _crc_table()
    crcs = np.zeros(_CRC_LANES, np.uint32)
    for column in padded.reshape(_CRC_LANES, width).T:
        crcs = table[(crcs ^ column) & 0xFF] ^ crcs >> 8
    # How the four bytes of a CRC change with `width` zeros after it.
    shift = np.arange(256, dtype=np.uint32) << np.arange(0, 32, 8, dtype=np.uint32)[:, None]
    for _ in range(width):
        shift = table[shift & 0xFF] ^ shift >> 8
    while len(crcs) > 1:
        crcs = _shift_crcs(shift, crcs[::2]) ^ crcs[1::2]
        shift = _shift_crcs(shift, shift)
    return int(crcs[0]) ^ 0xFFFFFFFF ^ 0xFFFFFFFF >> 8 * len(data)


def _shift_crcs(shift: NDArray[np.uint32], crcs: NDArray[np.uint32]) -> NDArray[np.uint32]:
    found: NDArray[np.uint32] = (
        shift[0][crcs & 0xFF]
        ^ shift[1][crcs >> 8 & 0xFF]
        ^ shift[2][crcs >> 16 & 0xFF]
        ^ shift[3][crcs >> 24]
    )
    return found


@cache
def _crc_table() -> NDArray[np.uint32]:
    table: NDArray[np.uint32] = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = (table >> 1 ^ (table & 1) * np.uint32(0x82F63B78)).astype(np.uint32)
    return table


def _damage_error(offset: int, what: str) -> DamagedChunkError:
    return DamagedChunkError(
        f"the chunk at offset {offset} is damaged: {what}; read it again, from another replica if there is one"
    )
