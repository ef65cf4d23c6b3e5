"""A scripted broker of streams, for faults that no real one has at a chosen place: no broker, no socket.

It knows the rules of de-duplication, and the flaw of the roll-over.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Iterable
from typing import Any, Self

import numpy as np
import pyarrow as pa

from rabbit_chx.errors import ConnectionLostError, NotFoundError
from rabbit_chx.streams.chunks import Chunk
from rabbit_chx.streams.frames import Confirms, Key
from rabbit_chx.streams.publisher import StreamPublisher
from rabbit_chx.streams.rows import columns_of, encode_rows

URL = "rabbitmq-stream://user:secret@broker"
ROWS = 200
#: Stands for the reference of another client.
COPIES = "another client"
#: Rows of a batch that a scripted reader gives.
BATCH_ROWS = 7


class ScriptedStream:
    """A stream of a scripted broker: no broker, no socket. It knows the rules of de-duplication, and the flaw of the roll-over.

    Attributes:
        log: (reference, id, message) of each row.
        claims: the last id of each reference, as the broker believes.
        snapshot: what it had written of them before the rows when it died: it believes that for ever.
        committed: how many rows of the log are committed.
        begins_at: the offset of the first row, where retention has removed those before it.
    """

    def __init__(self) -> None:
        self.log: list[tuple[str | None, int, bytes]] = []
        self.claims: dict[str, int] = {}
        self.snapshot: dict[str, int] = {}
        self.committed = 0
        self.begins_at = 0

    def crash(self, cut: int, *, flaw: bool) -> None:
        """Lose rows that are not committed; with the flaw the broker still believes that it has them."""
        self.log = self.log[: max(cut, self.committed)]
        self.committed = len(self.log)
        if flaw:
            self.snapshot = dict(self.claims)
        self.claims = dict(self.snapshot)
        for reference, row_id, _ in self.log:
            if reference is not None:
                self.claims[reference] = max(row_id, self.claims.get(reference, 0))

    @property
    def ids(self) -> list[int]:
        """The id that each row tells in its property message-id."""
        texts = self.batch(0, len(self.log))["message_id"].to_pylist()
        return [int(str(text).rpartition(":")[2]) for text in texts]

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
            (frame,) = encoded.frames(0, np.zeros(1, np.uint64), 0, 1, 1 << 20)
            self.log.append((COPIES, row_id, bytes(frame)[25:]))
        self.committed = len(self.log)

    @property
    def originals(self) -> list[int]:
        """The ids of the rows that are no copies."""
        return [
            row_id for (reference, *_), row_id in zip(self.log, self.ids, strict=True) if reference != COPIES
        ]

    def batch(self, start: int, end: int) -> pa.RecordBatch:
        rows = self.log[start:end]
        data = b"".join(struct.pack(">I", len(message)) + message for _, _, message in rows)
        chunk = Chunk(start, len(rows), 0, 1, 0, "user", memoryview(data), memoryview(b""), len(rows))
        return columns_of([chunk], start, end, ("message_id", "exchange"))


class ScriptedBroker:
    """Streams, and what happens to connections to them. `fault` is called whenever a connection looks for events."""

    def __init__(self) -> None:
        self.streams: dict[str, ScriptedStream] = {}
        self.super_streams: dict[str, tuple[str, ...]] = {}
        self.connections: list[ScriptedConnection] = []
        self.fault: Callable[[ScriptedConnection], object] = lambda _connection: None

    def open_at(self, _settings: Any, stream: str, **_how: Any) -> ScriptedConnection:
        return ScriptedConnection(self, stream)

    def reader(self, *, stream: str, start: Any, end: int | None, **_how: Any) -> ScriptedReader:
        return ScriptedReader(self.streams[stream], start, end)


class ScriptedReader:
    """Stands for StreamReader: a range of the committed rows."""

    def __init__(self, stream: ScriptedStream, start: Any, end: int | None) -> None:
        self._stream = stream
        self.end_offset = stream.committed if end is None else end
        self.start_offset = max(self.end_offset - 1, stream.begins_at) if start == "last" else start
        self.missing = max(0, min(self.end_offset, stream.begins_at) - self.start_offset)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __iter__(self) -> Any:
        begin = max(self.start_offset, self._stream.begins_at)
        for start in range(begin, self.end_offset, BATCH_ROWS):
            yield self._stream.batch(start, min(start + BATCH_ROWS, self.end_offset))


class ScriptedConnection:
    """Stands for StreamConnection: it takes Publish frames and confirms what is committed."""

    frame_max = 4_096
    request_timeout_s = 60.0
    commands = {Key.STREAM_STATS: (1, 1)}  # noqa: RUF012
    where = "a scripted broker"

    def __init__(self, broker: ScriptedBroker, stream: str = "") -> None:
        self.sent: list[tuple[str | None, int]] = []
        self.failure: Exception | None = None
        self.unconfirmed: list[tuple[int, int, int]] = []  # publisher, id, rows that must be committed first
        self.news: list[Any] = []
        self.stream = broker.streams.get(stream, ScriptedStream())
        self._broker = broker
        self._references: dict[int, str | None] = {}
        broker.connections.append(self)

    def metadata(self, streams: Any) -> dict[str, None]:
        for stream in streams:
            if stream not in self._broker.streams:
                raise NotFoundError(f"no stream {stream!r}", queue=stream)
        return dict.fromkeys(streams)

    def partitions(self, super_stream: str) -> tuple[str, ...]:
        return self._broker.super_streams[super_stream]

    def declare_publisher(self, publisher_id: int, _stream: str, reference: str | None) -> None:
        assert publisher_id not in self._references
        self._references[publisher_id] = reference

    def delete_publisher(self, publisher_id: int) -> None:
        del self._references[publisher_id]

    def publisher_sequence(self, reference: str, _stream: str) -> int:
        return self.stream.claims.get(reference, 0)

    def stats(self, _stream: str) -> dict[str, int]:
        return {"committed_chunk_id": self.stream.committed - 1}

    def send(self, frames: memoryview, *, stall_s: float) -> None:
        assert stall_s
        data = bytes(frames)
        assert len(data) <= self.frame_max
        size, key, version, publisher_id, rows = struct.unpack_from(">IHHBI", data)
        assert (size, key, version) == (len(data) - 4, 2, 1)
        place = 13
        for _ in range(rows):
            row_id, length = struct.unpack_from(">QI", data, place)
            self._take(publisher_id, row_id, data[place + 12 : place + 12 + length])
            place += 12 + length
        assert place == len(data)

    def _take(self, publisher_id: int, row_id: int, message: bytes) -> None:
        if self.failure is not None:
            raise self.failure
        stream, reference = self.stream, self._references[publisher_id]
        self.sent.append((reference, row_id))
        if reference is None or row_id > stream.claims.get(reference, 0):
            stream.log.append((reference, row_id, message))
            if reference is not None:
                stream.claims[reference] = row_id
        ours = [place for place, row in enumerate(stream.log, 1) if row[0] == reference]
        self.unconfirmed.append((publisher_id, row_id, max(ours, default=0)))

    def events(self, wait_s: float) -> list[Any]:
        assert wait_s <= 1
        if self.failure is None:
            self._broker.fault(self)
        if self.news:
            news, self.news = self.news, []
            return news
        if self.failure is not None:
            raise self.failure
        self.commit(len(self.stream.log))
        return self.confirms()

    def commit(self, rows: int) -> None:
        self.stream.committed = max(self.stream.committed, rows)

    def confirms(self) -> list[Any]:
        ready = [each for each in self.unconfirmed if each[2] <= self.stream.committed]
        self.unconfirmed = [each for each in self.unconfirmed if each[2] > self.stream.committed]
        return [
            Confirms(publisher_id, np.array([row_id for _, row_id, _ in each], np.uint64))
            for publisher_id, each in itertools.groupby(ready, key=lambda entry: entry[0])
        ]

    def lose(self) -> None:
        self.failure = ConnectionLostError("the line is cut")

    def close(self) -> None:
        self.failure = self.failure or ConnectionLostError("it is closed")


def publisher(**how: Any) -> StreamPublisher:
    if not {"stream", "super_stream", "ring"} & set(how):
        how["stream"] = "s"
    return StreamPublisher(URL, **{"window": 20, **how})


def publish(made: StreamPublisher, first: int = 1, rows: int = ROWS) -> Any:
    ids = range(first, first + rows)
    return made.publish_many([f"k{n}" for n in ids], [f"body {n}" for n in ids], ids=ids)
