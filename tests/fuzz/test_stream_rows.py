"""Chunks and messages of streams, mutated: columns or our own error, the same from arrays as from one message, in bounds."""

from __future__ import annotations

import gzip
import random
import struct

import pyarrow as pa
from chunk_columns import columns_of
from fuzzing import NUMBERS, Mutator, any_byte, bounded_memory, fuzzed
from stream_bytes import chunk_bytes, chunk_of, entry, sub_entry
from stream_writers import WRITERS, recorded

from rabbit_chx.amqp.amqp10_values import read_message
from rabbit_chx.errors import DamagedChunkError
from rabbit_chx.streams.chunks import Chunk, pieces, read_chunk

INCLUDE = ("exchange", "message_id", "properties", "headers", "filter_value")
CHUNKS = [chunk for client in WRITERS for chunk in recorded(client)[1]]
MESSAGES = [
    bytes(piece.data[4:])
    for chunk in CHUNKS
    for piece in pieces(read_chunk(memoryview(chunk)))
    if piece.records == 1
]
INSIDE = b"".join(map(entry, MESSAGES))
CHUNKS += [
    chunk_bytes([entry(MESSAGES[0]), sub_entry(MESSAGES, codec, packed)], records=1 + len(MESSAGES))
    for codec, packed in (
        (0, INSIDE),
        (1, gzip.compress(INSIDE)),
        (2, pa.Codec("snappy").compress(INSIDE, asbytes=True)),
        (3, pa.Codec("lz4").compress(INSIDE, asbytes=True)),
        (4, pa.Codec("zstd").compress(INSIDE, asbytes=True)),
    )
]
TYPES = [bytes([constructor]) for constructor in (*range(0x40, 0x46), *range(0x50, 0x57), 0x98, 0xA0, 0xA1, 0xA3, 0xB0, 0xB1, 0xB3)]  # fmt: skip
COMPOUND = [bytes([constructor]) for constructor in (0xC0, 0xC1, 0xD0, 0xD1, 0xE0, 0xF0)]
SECTIONS = [bytes([0, 0x53, code]) for code in range(0x70, 0x79)]


BYTES = Mutator(CHUNKS, [*NUMBERS, b"\x80", b"\x90", b"\xa0"], any_byte)
ROWS = Mutator(MESSAGES, [*NUMBERS, *TYPES, *COMPOUND, *SECTIONS, b"\xa3\x0dx-routing-key"], any_byte)


def checked_columns(chunks: list[Chunk]) -> pa.RecordBatch:
    found = columns_of(chunks, 0, 1 << 62, INCLUDE)
    found.validate(full=True)
    return found


@fuzzed(BYTES.mutated)
def test_a_chunk_is_read_or_refused(data: bytes) -> None:
    try:
        chunk = read_chunk(memoryview(data), check_crc=False)
        found = checked_columns([chunk])
    except DamagedChunkError:
        return
    assert found.num_rows <= chunk.records


def some_rows(chance: random.Random) -> list[bytes]:
    return [
        ROWS.mutated(chance, most=3) if chance.random() < 0.7 else chance.choice(MESSAGES) for _ in range(10)
    ]


@fuzzed(some_rows, each=5)
def test_rows_are_those_of_the_plain_reader(rows: list[bytes]) -> None:
    found = checked_columns([chunk_of(rows)])
    plain = [read_message(row) for row in rows]
    for name in ("key", "value", "exchange", "message_id"):
        assert found[name].to_pylist() == [getattr(message, name) for message in plain], name


def test_declared_sizes_take_no_memory() -> None:
    with bounded_memory():
        for row in (
            b"\0Sw\xd0\0\0\0\x05\xff\xff\xff\xff\x40",
            b"\0Sw\xf0\0\0\0\x05\xff\xff\xff\xff\x40",
            b"\0Sr\xd1\0\0\0\x04\xff\xff\xff\xff\0Su\xa0\0",
            b"\0Sw\xb0\xff\xff\xff\xff",
            b"\0Sw" + b"\0\x40" * 100_000,
            b"\0Sw" + b"\xd0" + struct.pack(">II", 1 << 20, 1) * 1_000,
        ):
            checked_columns([chunk_of([row])])
        for records in (1 << 31, (1 << 32) - 1):
            chunk = read_chunk(memoryview(chunk_bytes([entry(b"")], records=records)))
            try:
                columns_of([chunk], 0, 1)
            except DamagedChunkError:
                continue
            raise AssertionError(records)
