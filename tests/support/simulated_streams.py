"""Runs of StreamPublisher and StreamReader beside a scripted broker, with faults that a seed chooses: no broker, no socket.

Real brokers have these faults at no chosen place; tests/fire/streams has the real ones.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import pytest
from scripted_streams import ScriptedBroker, ScriptedConnection, ScriptedStream, publisher
from stream_bytes import chunk_bytes, entry, notes

from rabbit_chx import retry
from rabbit_chx.errors import ConnectionLostError, UnreachableError
from rabbit_chx.retry import Backoff
from rabbit_chx.streams import StreamReader, ends, reader, stored_ids, writer
from rabbit_chx.streams import publisher as publisher_module
from rabbit_chx.streams.frames import Confirms, Delivery, Key, OffsetSpec, PublishErrors, StreamChanged

_MOST_LOOKS = 20_000
_TIMEOUT_S = 60.0
_USER, _DELTA = 0, 1
_UNAVAILABLE = 6


@contextmanager
def scripted_broker() -> Iterator[ScriptedBroker]:
    """Provide a scripted broker with the stream `s`, to which publishers connect; rows go in small batches."""
    broker = ScriptedBroker()
    broker.streams["s"] = ScriptedStream()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(publisher_module, "open_any", lambda _settings: ScriptedConnection(broker))
        patch.setattr(publisher_module, "_WAIT_S", 0.0)
        for name, value in {
            "open_at": broker.open_at,
            "_BACKOFF": Backoff(0.0, 0.0),
            "_SEND_ROWS": 8,
            "_WAIT_S": 0.0,
        }.items():
            patch.setattr(writer, name, value)
        patch.setattr(stored_ids, "StreamReader", broker.reader)
        patch.setattr(stored_ids, "_FIRST_PIECE", 16)
        yield broker


class _Trouble:
    """What happens when a publisher looks for events: confirms late, mixed, twice or never, refusals, lost lines, crashes, copies."""

    def __init__(self, chance: random.Random, faults: int, copies: int) -> None:
        self._chance = chance
        self._faults = faults
        self._copies = copies
        self._late: dict[int, list[Any]] = {}  # confirms that are still under way, by connection
        self._looks = 0

    def __call__(self, connection: ScriptedConnection) -> None:
        self._looks += 1
        assert self._looks < _MOST_LOOKS, "the publisher waits for ever"
        chance, stream = self._chance, connection.stream
        connection.commit(chance.randint(stream.committed, len(stream.log)))
        late = self._late.setdefault(id(connection), [])
        for confirms in connection.confirms():
            cut = chance.randint(0, len(confirms.ids))
            late += [Confirms(confirms.publisher_id, ids) for ids in (confirms.ids[cut:], confirms.ids[:cut])]
        chance.shuffle(late)
        arrived = [late.pop() for _ in range(chance.randint(0, len(late)))]
        arrived += [Confirms(9, np.array([1], np.uint64)), StreamChanged("another", _UNAVAILABLE)]
        connection.news = [event for event in arrived for _ in range(chance.choice([1, 1, 2]))]
        if self._copies and chance.random() < 0.1:
            self._copies -= 1
            self._copy(stream)
        if self._faults and chance.random() < 0.15:
            self._faults -= 1
            self._fault(connection)

    def _copy(self, stream: ScriptedStream) -> None:
        """Let another client publish committed rows again, as they are or with another body."""
        stored = [row_id for row_id in stream.ids[: stream.committed] if row_id]
        first = self._chance.randint(0, len(stored))
        other = self._chance.random() < 0.3
        for row_id in stored[first : first + self._chance.choice([1, 10, 40])]:
            stream.copy([row_id], key=str(row_id), body="another" if other else str(row_id))

    def _fault(self, connection: ScriptedConnection) -> None:
        chance, stream = self._chance, connection.stream
        kind = chance.choice(["line", "crash", "flaw", "refusal", "leader"])
        if kind == "line":  # what is under way may arrive
            connection.lose()
            return
        stream.crash(chance.randint(0, len(stream.log)), flaw=kind == "flaw")
        if kind == "refusal":
            ids = np.array([row_id for _, row_id, _ in connection.unconfirmed], np.uint64)
            connection.news += [PublishErrors(0, ids, np.full(len(ids), 18, np.uint16))] if len(ids) else []
        elif kind == "leader":
            connection.news.append(StreamChanged("s", _UNAVAILABLE))
        connection.lose()


def publish(seed: int) -> None:
    """Publish rows in a few attempts, some of which die, and check what is in the stream.

    Raises:
        AssertionError: a row is missing, there twice or out of order, or the publisher waits for ever.
    """
    chance = random.Random(seed)  # noqa: S311  # it scripts faults
    named = chance.random() < 0.8
    ids = sorted(chance.sample(range(1, 1_000), chance.randint(1, 200)))
    texts = list(map(str, ids))
    resent = 0
    with scripted_broker() as broker, pytest.MonkeyPatch.context() as patch:
        patch.setattr(publisher_module, "_BATCH_ROWS", chance.choice([10, 40, 1_000]))
        for _ in range(chance.randint(1, 3) if named else 1):
            broker.fault = _Trouble(chance, chance.randint(0, 12), chance.randint(0, 2) if named else 0)
            window = chance.choice([1, 7, 20, 500])
            with publisher(name="load" if named else None, window=window) as made:
                report = made.publish_many(texts, texts, ids=ids if named else None)
            assert report.confirmed == len(ids)
            assert report.known + report.repaired <= len(ids)
            resent += report.resent
        stream = broker.streams["s"]
        if named:
            assert stream.originals == ids
        else:
            stored = stream.batch(0, len(stream.log))["value"].to_pylist()
            assert set(map(str.encode, texts)) == set(stored)
            assert len(stored) - len(ids) <= resent


class _Clock:
    """Stands for the module time: it goes on when somebody waits."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class _Chunk(NamedTuple):
    offset: int
    records: int
    kind: int
    data: memoryview


class _Log:
    """A stream that grows, and is cut at its begin."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.chunks: list[_Chunk] = []
        self.next = 0
        self.committed = 0  # chunks

    def grow(self) -> None:
        """Write a chunk of rows, or one of the broker's own."""
        kind = self._chance.choice([_USER, _USER, _DELTA])
        records = self._chance.randint(1, 20) if kind == _USER else 1
        bodies = [b"%d" % offset for offset in range(self.next, self.next + records)]
        rows = [entry(b"\0Su\xa0" + bytes([len(body)]) + body) for body in bodies]
        if kind == _DELTA:
            rows = [entry(notes("consumer", kind=1))]
        data = memoryview(chunk_bytes(rows, offset=self.next, kind=kind))
        self.chunks.append(_Chunk(self.next, records, kind, data))
        self.next += records

    def rows(self, start: int, end: int) -> list[int]:
        """The offsets of the committed rows in a range."""
        chunks = [chunk for chunk in self.chunks[: self.committed] if chunk.kind == _USER]
        offsets = (offset for chunk in chunks for offset in range(chunk.offset, chunk.offset + chunk.records))
        return [offset for offset in offsets if start <= offset < end]


class _Node:
    """Stands for a connection to a node that has the stream: it delivers what is asked for, as far as the credit goes."""

    where = "a scripted node"

    def __init__(self, log: _Log, chance: random.Random, clock: _Clock, faults: list[bool], lag: int) -> None:
        self.commands = {Key.STREAM_STATS: (1, 1)}
        self._log, self._chance, self._clock, self._faults, self._lag = log, chance, clock, faults, lag
        self._news: list[Any] = []
        self._places: dict[
            int, tuple[int, int, bool]
        ] = {}  # offset to deliver next, credit, whether all chunks
        self._looks = 0

    def _visible(self) -> list[_Chunk]:
        return self._log.chunks[: max(0, self._log.committed - self._lag)]

    def stats(self, _stream: str) -> Mapping[str, int]:
        """As a leader tells them."""
        chunks = self._log.chunks
        committed = chunks[self._log.committed - 1].offset if self._log.committed else -1
        return {"first_chunk_id": chunks[0].offset if chunks else -1, "committed_chunk_id": committed}

    def metadata(self, _streams: object) -> None:
        """An answer behind which nothing comes that was there."""

    def subscribe(
        self, number: int, _stream: str, start: OffsetSpec, credit: int, how: Mapping[str, str]
    ) -> None:
        """Begin where a broker does: a start outside of the log is moved into it."""
        users = [chunk for chunk in self._visible() if chunk.kind == _USER]
        begin = start if isinstance(start, int) else 0
        if start == "last":
            begin = users[-1].offset if users else 0
        self._places[number] = (begin, credit, how.get("chunk_selector") == "all")
        self._deliver(number, credit)

    def unsubscribe(self, number: int) -> None:
        """End a subscription."""
        del self._places[number]

    def give_credit(self, number: int, chunks: int) -> None:
        """Let more chunks come."""
        begin, credit, every = self._places[number]
        self._places[number] = (begin, credit + chunks, every)

    def _deliver(self, number: int, most: int) -> None:
        begin, credit, every = self._places[number]
        for chunk in self._visible():
            if not credit or not most:
                break
            if chunk.offset + chunk.records > begin and (every or chunk.kind == _USER):
                self._news.append(Delivery(number, chunk.data))
                begin, credit, most = chunk.offset + chunk.records, credit - 1, most - 1
        self._places[number] = (begin, credit, every)

    def events(self, wait_s: float) -> list[Any]:
        """What has come; meanwhile the log grows, its begin goes, and lines are lost."""
        self._looks += 1
        assert self._looks < _MOST_LOOKS, "the reader waits for ever"
        chance = self._chance
        if self._faults and chance.random() < 0.1:
            self._faults.pop()
            if chance.random() < 0.5:
                raise ConnectionLostError("the line is cut")
            return [*self._news[: chance.randint(0, len(self._news))], StreamChanged("s", _UNAVAILABLE)]
        self._lag = max(0, self._lag - chance.randint(0, 1))
        for number in list(self._places):
            self._deliver(number, chance.randint(0, 3))
        if not self._news:
            self._clock.sleep(min(wait_s, chance.random()))
        news, self._news = self._news, []
        return news

    def close(self) -> None:
        """Nothing is to be done."""


def read(seed: int) -> None:
    """Read a stream while it grows and loses its begin, over lines that are lost, and check what was given.

    Raises:
        AssertionError: an offset is missing, given twice or out of order, or the reader waits for ever.
    """
    chance = random.Random(seed)  # noqa: S311  # it scripts faults
    clock, log = _Clock(), _Log(chance)
    for _ in range(chance.randint(0, 60)):
        log.grow()
    log.committed = len(log.chunks)
    faults = [True] * chance.randint(0, 12)

    def open_at(*_where: object, leader: bool, **_how: object) -> _Node:
        clock.sleep(0.01)
        if faults and chance.random() < 0.2:
            faults.pop()
            raise UnreachableError("nobody answers")
        return _Node(log, chance, clock, faults, 0 if leader else chance.randint(0, 5))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "open_at", open_at)
        patch.setattr(reader, "time", clock)
        for module in (ends, retry):
            patch.setattr(module, "time", clock)
        log_end = max(log.rows(0, log.next), default=-1) + 1
        start: Any = chance.choice(["first", "last", "next", chance.randint(0, log_end)])
        end = chance.choice([None, log_end])
        made = StreamReader(
            "rabbitmq-stream://h",
            "s",
            start=start,
            end=end,
            on_missing="count",
            batch_rows=chance.choice([1, 30]),
            timeout_s=_TIMEOUT_S,
        )
        wanted = log.rows(made.start_offset, made.end_offset)
        removed, found = 0, list[Any]()
        with made:
            for batch in made:
                offsets: list[Any] = batch["offset"].to_pylist()
                assert batch["value"].to_pylist() == [b"%d" % offset for offset in offsets]
                found += offsets
                if chance.random() < 0.3:
                    log.grow()
                    log.committed += 1
                if chance.random() < 0.03 and log.committed > 5:
                    removed = log.chunks[5].offset
                    del log.chunks[:5]
                    log.committed -= 5
    assert found == sorted(set(found))
    assert set(found) <= set(wanted)
    assert all(offset < removed for offset in set(wanted) - set(found)), "rows that are there were not given"
    assert made.missing >= len(wanted) - len(found)
    assert removed or not made.missing
    assert clock.now < (len(wanted) + 1) * _TIMEOUT_S
