"""Logs of streams, as a fake node has them: of given chunks, or of the rows that publishers write."""

from __future__ import annotations

import struct
from collections.abc import Iterable

import numpy as np
import pyarrow as pa
from chunk_columns import columns_of
from stream_bytes import chunk_bytes, entry, notes

from rabbit_chx.streams.chunks import Chunk
from rabbit_chx.streams.rows import encode_rows

_HEADER = struct.Struct(">xB2xI16xQ")  # kind, records, offset


def header_of(chunk: bytes) -> tuple[int, int, int]:
    """Return the kind of a chunk (0 for rows), the number of its records and its offset."""
    kind, records, offset = _HEADER.unpack_from(chunk)
    return kind, records, offset


def timestamp_of(chunk: bytes) -> int:
    """Return the time of a chunk, in milliseconds."""
    return int.from_bytes(chunk[8:16], signed=True)


class ChunkLog:
    """A log of chunks. Chunks are numbered from 0, those that retention has removed included.

    Attributes:
        chunks: the chunks as bytes; the first of them has the number `begin`.
    """

    def __init__(self, chunks: Iterable[bytes] = ()) -> None:
        self.chunks = list(chunks)
        self.begin = 0

    @property
    def end(self) -> int:
        """The number after the last chunk."""
        return self.begin + len(self.chunks)

    def chunk(self, number: int) -> bytes:
        """Return a chunk."""
        return self.chunks[number - self.begin]

    def find(self, offset: int) -> int:
        """Return the number of the first chunk that ends behind an offset."""
        ends = ((number, sum(header_of(self.chunk(number))[1:])) for number in self.numbers)
        return next((number for number, end in ends if end > offset), self.end)

    @property
    def numbers(self) -> range:
        """The numbers of the chunks."""
        return range(self.begin, self.end)

    def remove(self, count: int) -> None:
        """Remove the first chunks."""
        del self.chunks[:count]
        self.begin += count


class RowLog:
    """A log that publishers write; each row is a chunk. It has the rules of de-duplication, and the flaw of the roll-over.

    The rows of a sub-entry have one id, and are stored, committed and lost together.

    Attributes:
        log: the reference, the id and the message of each row; None for a chunk of the broker's own.
        claims: the last id of each reference, as the broker believes.
        snapshot: what it had written of them before the rows when it died: it never corrects that.
        committed: how many rows of the log are committed.
        begins_at: the offset of the first row that retention has not removed.
    """

    #: Stands for the reference of another client.
    COPIES = "another client"

    def __init__(self) -> None:
        self.log: list[tuple[str | None, int, bytes] | None] = []
        self.claims: dict[str, int] = {}
        self.snapshot: dict[str, int] = {}
        self.committed = 0
        self.begins_at = 0

    # -- as a log of chunks

    @property
    def begin(self) -> int:
        return self.begins_at

    @property
    def end(self) -> int:
        return self.committed

    @property
    def numbers(self) -> range:
        return range(self.begin, self.end)

    def chunk(self, number: int) -> bytes:
        row = self.log[number]
        data = notes("load") if row is None else row[2]
        return chunk_bytes([entry(data)], offset=number, kind=int(row is None))

    def find(self, offset: int) -> int:
        return min(max(offset, self.begin), self.end)

    # -- what happens to it

    def take(self, reference: str | None, row_id: int, messages: Iterable[bytes]) -> int:
        """Store a row or sub-entry unless its id is known, and return how many rows must be committed before it is confirmed."""
        if reference is None or row_id > self.claims.get(reference, 0):
            self.log += [(reference, row_id, message) for message in messages]
            if reference is not None:
                self.claims[reference] = row_id
        places = range(len(self.log), 0, -1)
        rows = zip(places, reversed(self.log), strict=True)
        return next((place for place, row in rows if row is not None and row[0] == reference), 0)

    def end_of_entry(self, place: int) -> int:
        """Return the place, or the end of the sub-entry that it is inside of."""
        while 0 < place < len(self.log) and self._entry(place) == self._entry(place - 1) is not None:
            place += 1
        return place

    def _entry(self, place: int) -> tuple[str, int] | None:
        row = self.log[place]
        return None if row is None or row[0] in (None, self.COPIES) else (str(row[0]), row[1])

    def crash(self, cut: int, *, flaw: bool) -> None:
        """Lose rows that are not committed; with the flaw the broker still believes that it has them."""
        self.log = self.log[: self.end_of_entry(max(cut, self.committed))]
        self.committed = len(self.log)
        if flaw:
            self.snapshot = dict(self.claims)
        self.claims = dict(self.snapshot)
        for reference, row_id, _ in filter(None, self.log):
            if reference is not None:
                self.claims[reference] = max(row_id, self.claims.get(reference, 0))

    def remove_all(self) -> None:
        """Remove all rows by retention. The new segment begins with a chunk of the broker's own."""
        self.log.append(None)
        self.committed = len(self.log)
        self.begins_at = self.committed - 1

    def copy(self, ids: Iterable[int], name: str = "load", **other: str) -> None:
        """Store copies of rows with their message ids, as another client does that publishes what it has read.

        Args:
            ids: the ids of the rows; each is copied as `publish` makes it.
            name: their name.
            other: the key or the body of all copies, where it is another one.
        """
        for row_id in ids:
            key, body = other.get("key", f"k{row_id}"), other.get("body", f"body {row_id}")
            encoded = encode_rows([key], [body], message_ids=[f"{name}:{row_id}"])
            (sent,) = encoded.frames(0, np.zeros(1, np.uint64), 0, 1, 1 << 20)
            self.log.append((self.COPIES, row_id, bytes(sent)[25:]))
        self.committed = len(self.log)

    # -- its rows

    @property
    def ids(self) -> list[int]:
        """The id in the message-id of each row."""
        texts = self.batch(0, len(self.log))["message_id"].to_pylist()
        return [int(str(text).rpartition(":")[2]) for text in texts]

    @property
    def originals(self) -> list[int]:
        """The ids of the rows that are no copies."""
        rows = zip(filter(None, self.log), self.ids, strict=True)
        return [row_id for (reference, *_), row_id in rows if reference != self.COPIES]

    def batch(self, start: int, end: int) -> pa.RecordBatch:
        """Return rows as columns."""
        messages = [row[2] for row in self.log[start:end] if row is not None]
        data = memoryview(b"".join(map(entry, messages)))
        chunk = Chunk(start, len(messages), 0, 1, 0, "user", data, memoryview(b""), len(messages))
        return columns_of([chunk], start, end, ("message_id", "exchange", "filter_value"))


def chunks_of(count: int, rows: int = 10, body: bytes = b"") -> list[bytes]:
    """Return chunks of rows, each of which has its offset as its body."""

    def row(offset: int) -> bytes:
        return entry(b"\0Su\xb0" + struct.pack(">I", len(body) + 8) + offset.to_bytes(8) + body)

    return [chunk_bytes(map(row, range(at, at + rows)), offset=at) for at in range(0, count * rows, rows)]
