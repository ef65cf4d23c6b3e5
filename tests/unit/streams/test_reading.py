"""A reader and a node that is scripted: bounded batches, silent nodes, damaged chunks, other protocols. No broker."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from frame_secrets import locals_with
from loopback import HOST
from stream_bytes import chunk_bytes, entry
from stream_logs import ChunkLog, chunks_of
from stream_node import ListeningNode, Session, StreamNode, in_memory

from rabbit_chx import errors
from rabbit_chx.streams import ReadLimits, StreamReader, options, reader
from rabbit_chx.streams.frames import Key, frame
from rabbit_chx.streams.reader import RangeReader

PASSWORD = "Kestrel-7vQ2mXw9Tz4"  # noqa: S105


@pytest.fixture
def log() -> Iterator[ListeningNode]:
    with ListeningNode(chunks_of(8)) as made:
        yield made


def opened(log: ListeningNode, **arguments: Any) -> StreamReader:
    kind: Any = RangeReader if "landmarks" in arguments else StreamReader
    reading: StreamReader = kind(log.settings, "s", **{"timeout_s": 20.0, **arguments})
    return reading


def numbers(batches: Any) -> list[int]:
    return [int.from_bytes(value[:8]) for batch in batches for value in batch["value"].to_pylist()]


def zipped(rows: int, size: int = 0, first: int = 0) -> bytes:
    """A sub-entry of rows that say their offsets."""
    body = b"".join(
        entry(b"\0Su\xb0" + struct.pack(">I", 8 + size) + (first + row).to_bytes(8) + bytes(size))
        for row in range(rows)
    )
    packed = pa.Codec("zstd").compress(body, asbytes=True)
    return struct.pack(">BHII", 0x80 | 4 << 4, rows, len(body), len(packed)) + packed


def bomb(entries: int, rows: int, size: int, offset: int = 0) -> bytes:
    each = [zipped(rows, size, offset + place * rows) for place in range(entries)]
    return chunk_bytes(each, offset=offset, records=entries * rows)


# -- a range that somebody else has found


def test_a_known_range_takes_one_connection_and_no_look(log: ListeningNode) -> None:
    with opened(log) as reading:
        next(reading)
        known = reading.fingerprint
    with ListeningNode(log.chunks) as replica:
        log.replicas = [replica]
        log.seen.clear()
        log.starts.clear()
        with opened(log, start=80, end=80, landmarks=()) as reading:
            assert numbers(reading) == []
        assert log.seen == []
        with opened(log, start=5, end=75, landmarks=()) as reading:
            assert numbers(reading) == list(range(5, 75))
        with opened(log, start=80, end=80, expect=known, landmarks=[known]) as reading:
            pass
        assert replica.seen == []
    assert log.seen.count(Key.OPEN) == log.seen.count(Key.METADATA) == 1
    assert log.starts == [(4, 5)]


def test_what_is_before_a_known_range_is_compared_and_not_given(log: ListeningNode) -> None:
    with opened(log, end=35) as reading:
        assert numbers(reading) == list(range(35))
        known: Any = reading.fingerprint
    in_range: dict[str, Any] = {"start": 35, "end": 80, "expect": known, "landmarks": [known]}
    log.seen.clear()
    with opened(log, **in_range) as reading:
        assert numbers(reading) == list(range(35, 80))
    assert log.seen.count(Key.OPEN) == 1
    log.chunks = [*log.chunks[:3], *chunks_of(8, body=b"another")[3:]]
    rewritten = pytest.raises(
        errors.MissingRowsError, match=r"'s' has been rewritten: where .* was, .* is there"
    )
    with opened(log, **in_range) as reading, rewritten:
        next(reading)


@pytest.mark.parametrize(
    ("chunks", "start", "end", "moves_starts", "words"),
    [
        (8, 5, 90, False, "does not have the offsets 80 to 89, it ends at 80"),
        (8, 85, 90, False, "does not have the offsets 85 to 89, it ends at 80"),
        (8, 85, 90, True, "does not have the offsets 85 to 89, it ends at 80"),
        (0, 5, 9, False, "does not have the offsets 5 to 8, it ends at 0"),
    ],
)
def test_a_known_range_of_a_log_that_was_cut_has_missing_rows(
    chunks: int, start: int, end: int, words: str, *, moves_starts: bool
) -> None:
    """A broker may move a start into the log: rows before the start are not the ones that were meant.

    The end of the log is noticed long before the timeout.
    """
    node = StreamNode()
    node.streams["s"], node.heartbeat_s, node.moves_starts = ChunkLog(chunks_of(chunks)), 0, moves_starts

    def reading(**how: Any) -> RangeReader:
        return RangeReader(
            "rabbitmq-stream://broker", "s", start=start, end=end, **how, limits=ReadLimits(timeout_s=60.0)
        )

    with in_memory(node) as clock:
        began = clock.now
        with pytest.raises(errors.MissingRowsError, match=words):
            numbers(reading())
        counting = reading(on_missing="count")
        assert numbers(counting) == list(range(start, 10 * chunks))
        assert counting.missing == end - max(start, 10 * chunks)
        assert clock.now - began < 20


# -- how much is read at a time


@pytest.mark.parametrize(("entries", "rows"), [(6, 100), (600, 1)])
def test_a_batch_is_bounded_by_what_is_unpacked(
    log: ListeningNode, monkeypatch: pytest.MonkeyPatch, entries: int, rows: int
) -> None:
    log.chunks = [bomb(entries, rows, 1_000), *chunks_of(62)[60:]]
    monkeypatch.setattr(reader, "BATCH_BYTES", 250_000)
    with opened(log) as reading:
        batches = list(reading)
    assert numbers(batches) == list(range(620))
    assert max(batch["value"].nbytes for batch in batches) < 260_000
    assert len(batches) == 3
    assert reading.chunks == 3


@pytest.mark.parametrize("given", [1, 2, 3, 5])
def test_a_reading_goes_on_in_the_middle_of_a_chunk(log: ListeningNode, given: int) -> None:
    """By another reader, and by the same one after its line was cut."""
    log.chunks = [*chunks_of(2), bomb(3, 10, 10, offset=20), *chunks_of(6)[5:]]
    with opened(log, batch_rows=1) as first:
        read = numbers(next(first) for _ in range(given))
        place, before, chunks = first.next_offset, first.fingerprint, first.chunks
        log.cut()
        assert read + numbers(first) == list(range(60))
    assert (place, chunks) == (10 * given, min(given, 3))
    assert before is not None
    assert before.offset == (min(given, 3) - 1) * 10
    with opened(log, start=place, expect=before) as second:
        assert read + numbers(second) == list(range(60))


def test_the_fingerprint_is_of_a_chunk_whose_rows_were_given(
    log: ListeningNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second chunk is taken before it turns out that it is for the next batch; its sub-entry is above the bound."""
    log.chunks = [bomb(1, 10, 1_000), bomb(2, 10, 2_000, offset=10)]
    monkeypatch.setattr(reader, "BATCH_BYTES", 15_000)
    with opened(log) as reading:
        next(reading)
        assert (reading.next_offset, reading.chunks) == (10, 1)
        assert reading.fingerprint is not None
        assert reading.fingerprint.offset == 0
        assert [batch.num_rows for batch in reading] == [10, 10]


def test_only_the_sub_entries_of_the_range_are_unpacked(log: ListeningNode) -> None:
    broken = struct.pack(">BHII", 0x80 | 4 << 4, 10, 300, 3) + b"bad"
    log.chunks = [chunk_bytes([broken, zipped(10, 5, 10), broken], records=30)]
    with opened(log, start=13, end=20) as reading:
        assert numbers(reading) == list(range(13, 20))
    with pytest.raises(errors.DamagedChunkError, match="cannot be unpacked"), opened(log, end=20) as reading:
        list(reading)


def test_a_sub_entry_that_is_too_large_names_what_to_do(log: ListeningNode) -> None:
    log.chunks = [bomb(1, 100, 1_000)]
    words = r"'s': .* offset 0 has 102,000 bytes when unpacked, and max_sub_entry_bytes is 101,999: raise it, .* at offset 100"
    with opened(log, max_sub_entry_bytes=101_999) as reading, pytest.raises(errors.InputError, match=words):
        list(reading)
    with opened(log, max_sub_entry_bytes=102_000) as reading:
        assert numbers(reading) == list(range(100))


@pytest.mark.timeout(20)
@pytest.mark.parametrize(("how", "limit"), [({}, 512 << 20), ({"max_frame_bytes": 1 << 20}, 1 << 20)])
def test_a_frame_above_the_limit_is_refused_before_it_is_received(
    log: ListeningNode, monkeypatch: pytest.MonkeyPatch, how: dict[str, Any], limit: int
) -> None:
    announced = (900 << 20).to_bytes(4) + frame(Key.DELIVER, b"\0")[4:]
    monkeypatch.setattr(Session, "subscribe", lambda *_: announced)
    words = (
        rf"'s': the broker sends a chunk in a frame of 943,718,400 bytes, and max_frame_bytes is {limit:,}"
    )
    with pytest.raises(errors.InputError, match=words):
        opened(log, **how)


@pytest.mark.parametrize(
    ("limit", "value", "chunks", "credit"),
    [
        ("_MAX_CREDIT", 8, chunks_of(100), range(5, 9)),  # chunks that wait here are part of it
        ("_READ_AHEAD_BYTES", 5_000, chunks_of(20, 10, bytes(1_000)), [1]),
    ],
    ids=["small chunks", "large chunks"],
)
def test_the_credit_is_what_may_be_under_way(
    log: ListeningNode, monkeypatch: pytest.MonkeyPatch, limit: str, value: int, *, chunks: Any, credit: Any
) -> None:
    monkeypatch.setattr(options, limit, value)
    log.chunks, log.at_once = chunks, 4
    with opened(log, batch_rows=1) as reading:
        assert len(numbers(reading)) == 10 * len(chunks)
    assert log.most_credit in credit


# -- nodes that are silent, late or behind


def test_a_node_that_logs_in_and_is_silent_costs_little_among_several() -> None:
    silent, node = StreamNode("silent"), StreamNode("node")
    silent.silent = {Key.METADATA}
    node.streams["s"] = ChunkLog(chunks_of(8))
    with in_memory(silent, node) as clock:
        began = clock.now
        with StreamReader([f"rabbitmq-stream://{each.host}" for each in (silent, node)], "s") as reading:
            assert numbers(reading) == list(range(80))
        assert clock.now - began < 10
    assert Key.METADATA in silent.seen


@pytest.mark.parametrize("command", [Key.METADATA, Key.SUBSCRIBE])
@pytest.mark.timeout(30)
def test_a_request_has_no_longer_than_the_reader(log: ListeningNode, command: Key) -> None:
    log.silent = {command}
    with pytest.raises(errors.BrokerTimeoutError, match="no answer to"):
        opened(log, timeout_s=1.5)


@pytest.mark.timeout(60)
def test_a_replica_that_repeats_known_chunks_ends_at_the_timeout(log: ListeningNode) -> None:
    with ListeningNode() as behind:
        log.replicas = [behind]
        behind.chunks = chunks_of(1) * 60_000  # for two minutes
        slow = threading.Event()

        def repeated(chunk: bytes) -> bytes:
            slow.wait(0.002)
            return chunk

        behind.delivered = repeated
        with opened(log, timeout_s=1.0) as reading:
            words = "delivers nothing from offset 10 on, and the reading ends at 80"
            with pytest.raises((errors.BrokerTimeoutError, errors.UnreachableError), match=words):
                list(reading)


def test_stop_ends_the_wait_for_a_silent_replica(log: ListeningNode) -> None:
    with opened(log, timeout_s=60) as reading:
        log.withheld = 8
        threading.Timer(0.3, reading.stop).start()
        started = time.monotonic()
        assert list(reading) == []
        assert time.monotonic() - started < 30, "half of the timeout"
        assert reading.next_offset == 0


def test_a_connection_that_is_lost_after_stop_ends_the_reading(
    log: ListeningNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(log) as reading:

        def lose(*_: object) -> None:
            reading.stop()
            raise errors.ConnectionLostError("the line is cut")

        monkeypatch.setattr(reading._reading, "wait", lose)
        assert list(reading) == []


# -- damage


def flipped(chunk: bytes) -> bytes:
    return chunk[:-1] + bytes([chunk[-1] ^ 1])


def test_a_damaged_chunk_is_read_again_from_another_replica_or_the_same_node(log: ListeningNode) -> None:
    with ListeningNode(log.chunks) as replica:
        log.replicas = [replica]
        replica.delivered = lambda chunk: flipped(chunk) if chunk == replica.chunks[5] else chunk
        with opened(log) as reading:
            assert numbers(reading) == list(range(80))
        assert len(log.starts) == 3, "the reading does not go on at the leader"
    log.replicas, damaged = [], [log.chunks[5]]
    with opened(log) as reading:
        log.delivered = lambda chunk: flipped(damaged.pop()) if chunk in damaged else chunk
        assert numbers(reading) == list(range(80))
    assert not damaged


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "CRC": flipped,
    "the broker's own notes": lambda chunk: chunk[:1] + b"\1" + chunk[2:],
    "another number of records": lambda chunk: chunk[:7] + b"\x0b" + chunk[8:],
    "another number of entries": lambda chunk: chunk[:3] + b"\x09" + chunk[4:],
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_chunk_that_stays_damaged_is_an_error_that_reports_where_it_was_read(
    log: ListeningNode, damage: Callable[[bytes], bytes]
) -> None:
    """In the range, or where the range is looked for."""
    with ListeningNode(log.chunks) as replica:
        log.replicas = [replica]
        with opened(log) as reading:
            for node in (log, replica):
                node.delivered = lambda chunk: damage(chunk) if chunk == log.chunks[5] else chunk
            words = rf"stream 's': the chunk at offset 50 is damaged: .*read 3 times: .*:{replica.port}, .*:{log.port}"
            with pytest.raises(errors.DamagedChunkError, match=words):
                list(reading)
    log.replicas = []
    log.delivered = lambda chunk: damage(chunk) if chunk == log.chunks[7] else chunk
    with pytest.raises(errors.DamagedChunkError, match=r"stream 's': .* offset 70 .*read 3 times"):
        opened(log)


# -- what is no stream port


@pytest.mark.parametrize(
    ("answer", "protocol"),
    [(b"AMQP\0\0\x09\1", "AMQP"), (b"AMQP\3\1\0\0", "AMQP"), (b"HTTP/1.1 400 Bad Request\r\n", "HTTP")],
)
def test_another_protocol_is_reported_at_once(log: ListeningNode, answer: bytes, protocol: str) -> None:
    log.handle = lambda *_: answer  # type: ignore[method-assign]
    with pytest.raises(errors.InputError, match=f"this port speaks {protocol}, .* streams are on port 5552"):
        opened(log, timeout_s=30)
    assert len(log.sessions) == 1


@pytest.mark.parametrize(
    "told",
    [
        {"advertised_host": HOST},
        {"advertised_host": HOST, "advertised_port": "abc"},
        {"advertised_host": HOST, "advertised_port": "65536"},
        {"advertised_host": "", "advertised_port": "5552"},
    ],
)
def test_an_odd_address_is_an_error_that_may_pass(log: ListeningNode, told: dict[str, str]) -> None:
    log.opening = told
    with pytest.raises(errors.UnreachableError, match="a node advertises the host"):
        opened(log, timeout_s=1.0)


def test_an_answer_without_the_stream_is_an_error_that_may_pass(
    log: ListeningNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = log.metadata(["t"])
    monkeypatch.setattr(log, "metadata", lambda _: answer)
    with pytest.raises(errors.ConnectionLostError, match="the answer to metadata does not have 's'"):
        opened(log, timeout_s=1.0)


# -- secrets


@pytest.mark.parametrize(
    ("silent", "code"),
    [
        *(({key}, None) for key in (Key.SUBSCRIBE, Key.SASL_AUTHENTICATE, Key.METADATA)),
        *((set(), key) for key in (Key.SASL_AUTHENTICATE, Key.OPEN)),
    ],
)
def test_no_variable_of_our_frames_has_the_password(
    log: ListeningNode, silent: set[int], code: Key | None
) -> None:
    """Error trackers print the variables of each frame of a traceback."""
    log.silent, said = silent, log.said

    def refusing(session: Session, key: int, content: bytes) -> bytes:
        return frame(0x8000 | key, content[:4] + b"\0\x08") if key == code else said(session, key, content)

    log.said = refusing  # type: ignore[method-assign]
    url = f"rabbitmq-stream://guest:{PASSWORD}@{HOST}:{log.port}/?connection_timeout=500"
    for urls in (url, url.replace("rabbitmq-stream", "http"), [url, None]):
        with pytest.raises(errors.RabbitChxError) as error:
            StreamReader(urls, "s", limits=ReadLimits(timeout_s=0.5))  # type: ignore[arg-type]
        assert locals_with(PASSWORD, error.value) == []
