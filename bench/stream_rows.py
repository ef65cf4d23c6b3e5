"""Compare rows of streams as columns with a plain Python loop, both ways, in CPU time for a row.

The rows are of about 100 bytes, in chunks of 1,000, as three kinds of publishers write them: an AMQP client through an
exchange, ours, and a client of the stream protocol that writes no key. All runs are on one core; the figures are
medians of several, taken in turns.

    python bench/stream_rows.py [--quick]
"""

from __future__ import annotations

import argparse
import random
import statistics
import struct
import time
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from indices import run_on_one_core

from rabbit_chx.streams.chunks import Chunk, pieces, read_chunk
from rabbit_chx.streams.rows import Column, columns_in, encode_rows

ROWS = 120_000
QUICK_PART = 10
CHUNK_ROWS = 1_000
FRAME_MAX = 1 << 20
HEADER = b"\0Sp\xc0\x07\x05BP\0@AC"  # as RabbitMQ 4.3 writes it for an AMQP client


def main() -> None:
    """Measure, and print two tables."""
    parser = argparse.ArgumentParser(
        description="compare rows as columns with a plain loop, in CPU time for a row"
    )
    parser.add_argument("--quick", action="store_true", help=f"a {QUICK_PART}th of the rows, fewer runs")
    parser.add_argument("--runs", type=int, help="runs of each (default: 9, with --quick 3)")
    options = parser.parse_args()
    count = ROWS // QUICK_PART if options.quick else ROWS
    runs = options.runs or (3 if options.quick else 9)
    print(f"{count:,} rows, {run_on_one_core()}, medians of {runs} runs, CPU ns/row")

    rng = random.Random(1)  # noqa: S311 - no secret
    keys = [f"N{rng.randrange(4_000):05}" for _ in range(count)]
    alike, varied = [b"x" * 60] * count, [b"x" * rng.randint(30, 90) for _ in range(count)]
    print(f"\n{'read':<32}{'columns':>10}{'loop':>10}{'of loop':>10}{'rows/s':>14}")
    for name, messages in (
        ("AMQP client", [HEADER + message for message in messages_of(keys, varied)]),
        ("ours, bodies of all sizes", messages_of(keys, varied)),
        ("ours, bodies of one size", messages_of(keys, alike)),
        ("ours, with message ids", messages_of(keys, varied, [f"load/0:{n}" for n in range(count)])),
        ("data alone", messages_of(None, varied)),
    ):
        chunks = chunks_of(messages)
        include = ("message_id",) if "ids" in name else ()

        def columns(chunks: Sequence[bytes] = chunks, include: Sequence[str] = include) -> pa.RecordBatch:
            found = [piece for chunk in chunks for piece in pieces(read_chunk(memoryview(chunk)))]
            return columns_in(found, 0, 1 << 62, include)

        def loop(chunks: Sequence[bytes] = chunks) -> pa.RecordBatch:
            return read_one_by_one([read_chunk(memoryview(chunk)) for chunk in chunks])

        if columns().select(["offset", "timestamp", "key", "value"]) != loop():
            raise SystemExit(f"{name}: columns and the loop disagree, so their speed means nothing")
        fast, slow = in_turns([columns, loop], runs)
        print(
            f"{name:<32}{fast / count * 1e9:>10.0f}{slow / count * 1e9:>10.0f}{slow / fast:>10.1f}{count / fast:>14,.0f}"
        )

    print(f"\n{'write':<32}{'columns':>10}{'loop':>10}{'of loop':>10}{'rows/s':>14}")
    ids = np.arange(1, count + 1, dtype=np.uint64)
    for name, given, bodies in (
        ("Arrow columns", pa.array(keys), pa.array(varied)),
        ("Arrow columns, of one size", pa.array(keys), pa.array(alike)),
        ("lists", keys, varied),
    ):

        def encoded(given: Column = given, bodies: Column = bodies) -> list[memoryview]:
            return encode_rows(given, bodies, exchange="orders").frames(1, ids, 0, count, FRAME_MAX)

        def one_by_one(bodies: Sequence[bytes] = alike if "one size" in name else varied) -> bytes:
            return encode_one_by_one(keys, bodies)

        if b"".join(frame[13:] for frame in encoded()) != one_by_one():
            raise SystemExit(f"{name}: columns and the loop disagree, so their speed means nothing")
        fast, slow = in_turns([encoded, one_by_one], runs)
        print(
            f"{name:<32}{fast / count * 1e9:>10.0f}{slow / count * 1e9:>10.0f}{slow / fast:>10.1f}{count / fast:>14,.0f}"
        )


def messages_of(keys: Column, bodies: Sequence[bytes], ids: Column = None) -> list[bytes]:
    """Return rows as messages."""
    frames = encode_rows(keys, bodies, exchange="orders", message_ids=ids).frames(
        1, np.zeros(len(bodies), np.uint64), 0, len(bodies), FRAME_MAX
    )
    messages = []
    for frame in frames:
        at = 13
        while at < len(frame):
            (length,) = struct.unpack_from(">I", frame, at + 8)
            messages.append(bytes(frame[at + 12 : at + 12 + length]))
            at += 12 + length
    return messages


def chunks_of(messages: Sequence[bytes]) -> list[bytes]:
    """Return messages in chunks, as the broker delivers them."""
    chunks = []
    for first in range(0, len(messages), CHUNK_ROWS):
        part = messages[first : first + CHUNK_ROWS]
        data = b"".join(struct.pack(">I", len(message)) + message for message in part)
        head = (0x50, 0, len(part), len(part), 1_700_000_000_000, 1, first, zlib.crc32(data), len(data), 0, 0)
        chunks.append(struct.pack(">BBHIqQQIIIB3x", *head) + data)
    return chunks


def read_one_by_one(chunks: Sequence[Chunk]) -> pa.RecordBatch:
    """Return the same columns by a loop over sections, as short as it can be."""
    offsets, times, keys, values = [], [], [], []
    unpack = struct.Struct(">I").unpack_from
    for chunk in chunks:
        data, at = bytes(chunk.data), 0
        for number in range(chunk.records):
            (length,) = unpack(data, at)
            at += 4
            end, key = at + length, None
            while at < end:
                code, constructor = data[at + 2], data[at + 3]
                wide = constructor & 0x10
                size = unpack(data, at + 4)[0] if wide else data[at + 4]
                begin = at + (8 if wide else 5)
                at = begin + size
                if code == 0x72:
                    place = data.index(b"x-routing-key", begin, at) + 13
                    key = data[place + 2 : place + 2 + data[place + 1]]
                elif code == 0x75:
                    values.append(data[begin:at])
            keys.append(key)
            offsets.append(chunk.offset + number)
            times.append(chunk.timestamp_ms * 1000)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(offsets, pa.int64()),
            pa.array(times, pa.timestamp("us", "UTC")),
            pa.array(keys, pa.binary()),
            pa.array(values, pa.binary()),
        ],
        ["offset", "timestamp", "key", "value"],
    )


def encode_one_by_one(keys: Sequence[str], bodies: Sequence[bytes]) -> bytes:
    """Return the messages of Publish frames by a loop."""
    parts = []
    names = b"\xa3\x0ax-exchange\xa1\x06orders\xa3\x0dx-routing-key\xa1"
    pack = struct.Struct(">QI").pack
    for number, (text, body) in enumerate(zip(keys, bodies, strict=True), 1):
        key = text.encode()
        message = b"".join(
            (
                b"\0Sr\xc1", bytes((len(names) + 2 + len(key), 4)), names, bytes((len(key),)), key,
                b"\0Su\xa0", bytes((len(body),)), body,
            )
        )  # fmt: skip
        parts.append(pack(number, len(message)))
        parts.append(message)
    return b"".join(parts)


def in_turns(ways: Sequence[Callable[[], Any]], runs: int) -> list[float]:
    """Return the median CPU seconds of each way, after one run of each that does not count."""
    seconds: list[list[float]] = [[] for _ in ways]
    for _ in range(runs + 1):
        for way, measured in zip(ways, seconds, strict=True):
            start = time.process_time()
            way()
            measured.append(time.process_time() - start)
    return [statistics.median(measured[1:]) for measured in seconds]


if __name__ == "__main__":
    main()
