"""Runs of StreamPublisher, of StreamReader and of Spark's stream tasks beside a fake broker, with faults that a seed chooses: no broker, no
socket.

Real brokers have these faults at no chosen place; tests/fire/streams has the real ones.
"""

from __future__ import annotations

import io
import random
import struct
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.serializers import SpecialLengths
from scheduled_threads import Threads
from spark_messages import SCHEMA
from stream_bytes import chunk_bytes, entry, notes
from stream_logs import ChunkLog, RowLog, header_of
from stream_node import Line, Session, StreamNode, in_memory
from stream_publishers import UNAVAILABLE, publisher, running_broker

from rabbit_chx import retry
from rabbit_chx.errors import ConnectionLostError, RabbitChxError, UnreachableError
from rabbit_chx.routing import SuperStream
from rabbit_chx.streams import ReadLimits, StreamReader, nodes, writer
from rabbit_chx.streams import publisher as publisher_module
from rabbit_chx.streams.frames import Confirms, Key, PublishErrors, StreamChanged
from rabbit_chx.streams.rows import ROW_BITS
from spark_connector.writing import stream_sink, task_writer
from spark_connector.writing.preflight import WritePlan
from spark_connector.writing.stream_layout import StreamLayout
from spark_connector.writing.task_writer import TaskWriter
from spark_connector.writing.tasks import Task

_MOST_LOOKS = 20_000
_TIMEOUT_S = 60.0
_USER, _DELTA = 0, 1
_SUB_ENTRIES = (None, 1, 7, 500)
_KINDS = ("line", "crash", "flaw", "refusal", "leader")
_SIGNAL = struct.pack("!i", SpecialLengths.END_OF_STREAM)


def _repeatable(patch: pytest.MonkeyPatch, chance: random.Random) -> None:
    """Let pauses and the order of replicas depend on the seed."""
    for module in (nodes, retry, writer):
        patch.setattr(module, "jitter", chance.random)


class _Trouble:
    """What happens when a publisher waits for events: confirms late, mixed, twice or never, refusals, lost lines, crashes, copies."""

    def __init__(
        self, chance: random.Random, faults: int, copies: int, kinds: Sequence[str] = _KINDS
    ) -> None:
        self._chance = chance
        self._kinds = kinds
        self._faults = faults
        self._copies = copies
        self._late: dict[int, list[Confirms]] = {}  # confirms that are still under way, by connection
        self._looks = 0

    def __call__(self, session: Session) -> None:
        self._looks += 1
        assert self._looks < _MOST_LOOKS, "the publisher waits for ever"
        chance, stream = self._chance, session.stream
        session.commit(chance.randint(stream.committed, len(stream.log)))
        late = self._late.setdefault(id(session), [])
        for confirms in session.confirms():
            cut = chance.randint(0, len(confirms.ids))
            late += [Confirms(confirms.publisher_id, ids) for ids in (confirms.ids[cut:], confirms.ids[:cut])]
        chance.shuffle(late)
        arrived: list[Any] = [late.pop() for _ in range(chance.randint(0, len(late)))]
        arrived += [Confirms(9, np.array([1], np.uint64)), StreamChanged("another", UNAVAILABLE)]
        session.tell(*(event for event in arrived for _ in range(chance.choice([1, 1, 2]))))
        if self._copies and chance.random() < 0.1:
            self._copies -= 1
            self._copy(stream)
        if self._faults and chance.random() < 0.15:
            self._faults -= 1
            self._fault(session)

    def _copy(self, stream: RowLog) -> None:
        """Let another client publish committed rows again, as they are or with another body."""
        stored = [row_id for row_id in stream.ids[: stream.committed] if row_id]
        first = self._chance.randint(0, len(stored))
        other = self._chance.random() < 0.3
        for row_id in stored[first : first + self._chance.choice([1, 10, 40])]:
            stream.copy([row_id], key=str(row_id), body="another" if other else str(row_id))

    def _fault(self, session: Session) -> None:
        chance, stream = self._chance, session.stream
        kind = chance.choice(self._kinds)
        if kind == "kill":
            raise KeyboardInterrupt
        if kind == "line":  # what is under way may arrive
            session.lose()
            return
        stream.crash(chance.randint(0, len(stream.log)), flaw=kind == "flaw")
        if kind == "refusal":
            ids = np.array([row_id for _, row_id, _ in session.unconfirmed], np.uint64)
            if len(ids):
                session.tell(PublishErrors(0, ids, np.full(len(ids), 18, np.uint16)))
        elif kind == "leader":
            session.tell(StreamChanged("s", UNAVAILABLE))
        session.lose()


def publish(seed: int) -> None:
    """Publish rows in a few attempts, some of which die, and check what is in the stream.

    Raises:
        AssertionError: a row is missing, there twice or out of order, or the publisher waits for ever.
    """
    chance = random.Random(seed)  # noqa: S311  # it scripts faults
    named = chance.random() < 0.8
    also = random.Random(~seed)  # noqa: S311  # a second one, so that the others stay as they are
    ids = sorted(chance.sample(range(1, 1_000), chance.randint(1, 200)))
    texts = list(map(str, ids))
    resent = 0
    sub_entry_rows = also.choice(_SUB_ENTRIES)  # of all attempts with a name
    with running_broker() as broker, pytest.MonkeyPatch.context() as patch:
        _repeatable(patch, chance)
        broker.commands = (*broker.commands, Key.PUBLISH)
        patch.setattr(publisher_module, "_BATCH_ROWS", chance.choice([10, 40, 1_000]))
        patch.setattr(publisher_module, "ENTRY_BYTES", also.choice([500, 4_000]))
        for _ in range(chance.randint(1, 3) if named else 1):
            broker.fault = _Trouble(chance, chance.randint(0, 12), chance.randint(0, 2) if named else 0)
            window = chance.choice([1, 7, 20, 500])
            how: dict[str, Any] = {"sub_entry_rows": sub_entry_rows if named else also.choice(_SUB_ENTRIES)}
            if named:
                how["name"] = "load"
            if not how.get("sub_entry_rows"):
                how["filter_value"] = also.choice([None, "key"])
            with publisher(window=window, **how) as made:
                report = made.publish_many(texts, texts, ids=ids if named else None)
            assert report.confirmed == len(ids)
            assert report.known + report.repaired <= len(ids)
            resent += report.resent
        stream = broker.rows["s"]
        if named:
            assert stream.originals == ids
        else:
            stored = stream.batch(0, len(stream.log))["value"].to_pylist()
            assert set(map(str.encode, texts)) == set(stored)
            assert len(stored) - len(ids) <= resent


class _SharedLine(Line):
    """The transport of one of several writers: the others go on whenever it sends or receives."""

    _clock: Threads

    def send(self, data: memoryview) -> int:
        self._clock.sleep(0.001)
        return super().send(data)

    def receive(self, wait_s: float = 0.0) -> bytes:
        self._clock.sleep(max(wait_s, 0.001))
        return super().receive()

    def wait(self, timeout_s: float) -> None:
        self._clock.sleep(timeout_s)


class _Writers:
    """Writers of one name that publish at the same time, are killed, and begin again: what the calls of each have reported.

    Attributes:
        confirmed: the id and the body of each row that a call has reported as confirmed, with the call.
        refused: the calls that have raised an error.
    """

    def __init__(self, threads: Threads, *, same_rows: bool) -> None:
        self.confirmed: dict[tuple[int, str], str] = {}
        self.refused: list[str] = []
        self._threads, self._same_rows = threads, same_rows
        self._sub_entry_rows = threads.chance.choice([None, None, 5])

    def run(self, name: str) -> None:
        """Publish in a few lives of a writer, some of which are killed."""
        chance, first = (
            self._threads.chance,
            1 if self._same_rows else self._threads.chance.choice([1, 1, 20]),
        )
        self._threads.sleep(chance.choice([0.0, 0.01, 0.03, 3.0]))
        for life in range(chance.randint(1, 3)):
            made = publisher(name="load", window=chance.choice([3, 20]), sub_entry_rows=self._sub_entry_rows)
            try:
                for call in range(chance.randint(1, 5)):
                    first = self._publish(made, first, f"{name}, life {life}, call {call}")
                    self._threads.sleep(chance.choice([0.0, 0.0, 0.2, 4.0]))
            except RabbitChxError as error:
                self.refused.append(f"{name}: {error}")
            if chance.random() < 0.5:
                made.close()
            else:
                _kill(made)
            if self._same_rows:
                first = 1

    def _publish(self, made: Any, first: int, call: str) -> int:
        chance = self._threads.chance
        rows, step = (10, 1) if self._same_rows else (chance.choice([5, 10, 40]), chance.choice([1, 3]))
        ids = range(first, first + rows * step, step)
        bodies = [f"{'' if self._same_rows else call} {row_id}" for row_id in ids]
        report = made.publish_many(["k"] * rows, bodies, ids=ids)
        assert report.confirmed == rows
        self.confirmed |= dict.fromkeys(zip(ids, bodies, strict=True), call)
        return ids[-1] + 1


def _kill(made: Any) -> None:
    """Let a publisher end as a process does that is killed: its connections are closed by nobody."""
    for each in made._writers:  # a process does not end in a simulation
        if each.connected:
            each._connection._transport.session.end(ConnectionLostError("killed"))
        each.close()


def share(seed: int, *, same_rows: bool = False) -> None:
    """Let two or three writers publish under one name, with interleavings that a seed chooses, and check what is stored.

    Raises:
        AssertionError: a row that a call has reported as confirmed is not stored, or a writer of the same rows is refused.
    """
    threads = Threads(seed)
    chance = threads.chance
    with (
        running_broker(clock=threads, line=_SharedLine) as broker,
        pytest.MonkeyPatch.context() as patch,
        threads.playing(),
    ):
        patch.setattr(publisher_module, "ENTRY_BYTES", 500)

        def confirm_some(session: Session) -> None:
            stream = session.stream
            session.commit(chance.randint(stream.committed, len(stream.log)))
            session.tell(*session.confirms())
            if chance.random() < 0.02:
                session.lose()

        broker.fault = confirm_some
        writers = _Writers(threads, same_rows=same_rows)
        for number in range(chance.choice([2, 3])):
            threads.start(partial(writers.run, f"writer {number}"))
        threads.join()
        stream = broker.rows["s"]
        values: list[Any] = stream.batch(0, len(stream.log))["value"].to_pylist()
        bodies = [value.decode() for value in values]
    stored = Counter(zip(stream.ids, bodies, strict=True))
    lost = {row: call for row, call in writers.confirmed.items() if row not in stored}
    assert not lost, f"confirmed, and not stored: {lost}"
    assert max(stored.values(), default=1) == 1
    assert not (same_rows and writers.refused), writers.refused


def repeat(seed: int) -> None:
    """Let two or three writers publish the same rows under one name: each row is stored once, and none is refused."""
    share(seed, same_rows=True)


def write(seed: int) -> None:
    """Write a partition exactly once by attempts of a task, of which the last one alone ends well for sure, and check what is in the stream.

    The input of the others may be cut at any row. It then ends as a whole one does, and the signal behind it is missing.

    Raises:
        AssertionError: a row is missing, there twice or out of order, or a task has reported a part of its rows as all of them.
    """
    chance = random.Random(seed)  # noqa: S311  # it scripts faults
    rows = sorted((f"k{chance.randint(0, 9)}", f"{number:03}") for number in range(chance.randint(0, 120)))
    sorts, entries = chance.random() < 0.5, chance.choice([None, 2, 7, 50])
    verify = chance.choice(["tail", "full"])
    once: dict[str, str] = {"superStream": "x", "delivery": "exactly-once", "appId": "load", "verify": verify}
    if entries:
        once |= {"subEntryRows": str(entries), "compression": chance.choice(["none", "gzip"])}
    if not sorts:
        once |= {"version": "1"}
    plan = WritePlan.parse({"url": "rabbitmq-stream://broker", **once}, SCHEMA, streaming=sorts)
    plan = replace(plan, layout=StreamLayout.of(SuperStream(["s"]), SCHEMA), batch_id=0)
    kinds = [*_KINDS, "kill"]
    with running_broker() as broker, pytest.MonkeyPatch.context() as patch:
        _repeatable(patch, chance)
        broker.commands = (*broker.commands, Key.PUBLISH)
        broker.frame_max = 1 << 20
        patch.setattr(stream_sink, "_PIECE_ROWS", chance.choice([1, 10, 30, 1_000]))
        for attempts_left in range(chance.randint(0, 4), -1, -1):
            given = chance.sample(rows, len(rows)) if sorts else rows
            is_cut = attempts_left > 0 and chance.random() < 0.7
            # As a release did that took the end of the file for the end of the rows.
            is_trusted = is_cut and not sorts and chance.random() < 0.2
            if is_cut:
                given = given[: chance.randint(0, len(given))]
            signal = b"" if is_cut and not is_trusted else _SIGNAL
            patch.setattr(
                task_writer, "find_input", lambda signal=signal: io.BufferedReader(io.BytesIO(signal))
            )
            faults = chance.randint(0, 8)
            broker.fault = _Trouble(
                chance, faults, 0, kinds if attempts_left else [kind for kind in kinds if kind != "kill"]
            )
            table = pa.table(
                [pa.array([row[place] for row in given], pa.string()) for place in (0, 1)],
                ["key", "value"],
            )
            batches = table.to_batches(max_chunksize=chance.choice([1, 7, 40, 1_000]))
            writer = TaskWriter(plan, Task(write_id="query", batch_id=0))
            refusal = ""
            with suppress(KeyboardInterrupt):
                try:
                    report = writer.publish_partition(batches)
                except RabbitChxError as error:
                    refusal = str(error)
                else:
                    assert report.rows == report.publish_report.confirmed == len(given)
                assert bool(refusal) == is_cut or is_trusted, refusal
                assert not refusal or is_trusted or "was cut after" in refusal
        stream = broker.rows["s"]
        assert stream.originals == [(1 << ROW_BITS) + row for row in range(1, len(rows) + 1)]
        stored = stream.batch(0, len(stream.log)).select(["key", "value"]).to_pylist()
        assert [(row["key"].decode(), row["value"].decode()) for row in stored] == rows


class _GrowingLog(ChunkLog):
    """A stream that grows, and is cut at its begin."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self._chance = chance
        self._next = 0
        for _ in range(chance.randint(0, 60)):
            self.grow()

    def grow(self) -> None:
        """Write a chunk of rows, or one of the broker's own."""
        kind = self._chance.choice([_USER, _USER, _DELTA])
        records = self._chance.randint(1, 20) if kind == _USER else 1
        bodies = [b"%d" % offset for offset in range(self._next, self._next + records)]
        rows = [entry(b"\0Su\xa0" + bytes([len(body)]) + body) for body in bodies]
        if kind == _DELTA:
            rows = [entry(notes("consumer", kind=1))]
        self.chunks.append(chunk_bytes(rows, offset=self._next, kind=kind))
        self._next += records

    def rows(self, start: int, end: int, value: bytes = b"") -> list[int]:
        """The offsets of the rows in a range; of those in chunks with a filter value."""
        chunks = [chunk for chunk in self.chunks if not value or value in _parity(chunk)]
        headers = map(header_of, chunks)
        ranges = (range(offset, offset + records) for kind, records, offset in headers if kind == _USER)
        return [offset for each in ranges for offset in each if start <= offset < end]


def _parity(chunk: bytes) -> set[bytes]:
    """Stands for the filter values of a chunk."""
    kind, _, offset = header_of(chunk)
    return set() if kind else {b"even", b"all"} if offset % 2 == 0 else {b"odd", b"all"}


class _Node(StreamNode):
    """A node to which lines are lost, and which is not always reached; as a replica it is behind at first."""

    heartbeat_s = 0

    def __init__(self, host: str, log: ChunkLog, chance: random.Random, faults: list[bool]) -> None:
        super().__init__(host)
        self.streams = {"s": log}
        self.version, self.commands = "4.3.6", (Key.STREAM_STATS, Key.PUBLISH)
        self.filter_values = _parity
        self.at_once = 0  # chunks come when the reader waits for them
        self.on_read = self._trouble
        self._chance, self._faults = chance, faults
        self._looks = 0

    def accept(self, owner: str = "") -> Session:
        if self._faults and self._chance.random() < 0.2:
            self._faults.pop()
            raise UnreachableError("nobody answers")
        session = super().accept(owner)
        session.withheld = 0 if self.leader is self else self._chance.randint(0, 5)
        return session

    def _trouble(self, session: Session) -> None:
        self._looks += 1
        assert self._looks < _MOST_LOOKS, "the reader waits for ever"
        chance = self._chance
        is_fault = bool(self._faults) and chance.random() < 0.1
        if is_fault and self._faults.pop() and chance.random() < 0.5:
            session.out.clear()
            session.lose()
            return
        session.withheld = max(0, session.withheld - chance.randint(0, 1))
        for number in list(session.subscriptions):
            session.out += session.deliver(number, chance.randint(0, 3))
        if is_fault:
            session.tell(StreamChanged("s", UNAVAILABLE))


def read(seed: int) -> None:
    """Read a stream while it grows and loses its begin, over lines that are lost, and check what was given.

    Raises:
        AssertionError: an offset is missing, given twice or out of order, or the reader waits for ever.
    """
    chance = random.Random(seed)  # noqa: S311  # it scripts faults
    log, faults = _GrowingLog(chance), [True] * chance.randint(0, 12)
    leader, replica = (_Node(host, log, chance, faults) for host in ("leader", "replica"))
    for node in (leader, replica):
        node.leader, node.replicas = leader, [replica]
    with in_memory(leader, replica) as clock, pytest.MonkeyPatch.context() as patch:
        _repeatable(patch, chance)
        began = clock.now
        log_end = max(log.rows(0, 1 << 62), default=-1) + 1
        start: Any = chance.choice(["first", "last", "next", chance.randint(0, log_end)])
        value = random.Random(~seed).choice([b"", b"", b"even", b"odd", b"all", b"none"])  # noqa: S311
        made = StreamReader(
            "rabbitmq-stream://leader",
            "s",
            start=start,
            end=chance.choice([None, log_end]),
            on_missing="count",
            filters=[value] if value else [],
            limits=ReadLimits(batch_rows=chance.choice([1, 30]), timeout_s=_TIMEOUT_S),
        )
        in_range = log.rows(made.start_offset, made.end_offset)
        wanted = log.rows(made.start_offset, made.end_offset, value)
        removed, found = 0, list[Any]()
        with made:
            for batch in made:
                offsets: list[Any] = batch["offset"].to_pylist()
                assert batch["value"].to_pylist() == [b"%d" % offset for offset in offsets]
                found += offsets
                if chance.random() < 0.3:
                    log.grow()
                if chance.random() < 0.03 and len(log.chunks) > 5:
                    log.remove(5)
                    removed = header_of(log.chunks[0])[2]
    assert found == sorted(set(found))
    assert set(found) <= set(wanted)
    assert all(offset < removed for offset in set(wanted) - set(found)), "rows that are there were not given"
    assert made.missing >= len(wanted) - len(found)
    assert removed or not made.missing
    assert made.next_offset == made.end_offset
    assert clock.now - began < (len(in_range) + 1) * _TIMEOUT_S
