"""A reader without an end, with scripted nodes: silence, replicas that lag behind, retention. The clock is the test's."""

from __future__ import annotations

import random
from typing import Any

import pytest
from stream_logs import ChunkLog, chunks_of
from stream_node import Session, StreamNode, in_memory

from rabbit_chx import retry
from rabbit_chx.errors import BrokerTimeoutError, UnreachableError
from rabbit_chx.streams import ReadLimits, StreamReader
from rabbit_chx.streams.chunk_readers import FollowingChunkReader
from rabbit_chx.streams.frames import Key
from rabbit_chx.streams.options import ReaderOptions


def cluster(chunks: int) -> tuple[StreamNode, StreamNode]:
    """A leader, and a replica."""
    leader, replica = StreamNode("leader"), StreamNode("replica")
    log = ChunkLog(chunks_of(chunks))
    for node in (leader, replica):
        node.streams["s"] = log
        node.leader, node.replicas = leader, [replica]
        node.version, node.commands, node.heartbeat_s = "4.3.6", list(Key), 0
    return leader, replica


def follower(**how: Any) -> StreamReader:
    return StreamReader("rabbitmq-stream://leader", "s", end="never", **{"max_wait_s": 0.0, **how})


def rows_of(reader: StreamReader, rows: int) -> list[int]:
    """The next offsets, as many as these."""
    found: list[Any] = []
    while len(found) < rows:
        found += next(reader)["offset"].to_pylist()
    return found


def test_a_replica_that_does_not_deliver_what_its_leader_has_is_left() -> None:
    leader, replica = cluster(8)
    replica.withheld = 2
    with in_memory(leader, replica) as clock, follower(timeout_s=30) as reader:
        assert rows_of(reader, 60) == list(range(60))
        began = clock.now
        with pytest.raises(BrokerTimeoutError, match="delivers nothing, and its leader has further rows"):
            next(reader)
        assert 15 < clock.now - began < 45
        assert len(replica.sessions) > 1


def test_an_idle_stream_is_asked_for_in_half_of_the_timeout_until_the_reader_is_stopped() -> None:
    leader, replica = cluster(3)
    with in_memory(leader, replica) as clock, follower(timeout_s=30) as reader:
        assert rows_of(reader, 30) == list(range(30))
        until, stopped = clock.now + 300, list[float]()

        def stop(_: Session) -> None:
            if clock.now > until:
                stopped.append(clock.now)
                reader.stop()

        replica.on_read = stop
        asked = len(leader.sessions)
        assert list(reader) == []
        assert clock.now - stopped[0] < 1
        assert 18 <= len(leader.sessions) - asked <= 21
        assert reader.next_offset == 30


@pytest.mark.parametrize("is_ready", [True, False])
def test_an_empty_leader_of_an_old_broker_may_be_a_new_one(
    monkeypatch: pytest.MonkeyPatch, *, is_ready: bool
) -> None:
    """If it stays empty, the error says that, whichever request of the last attempt the end of the timeout cuts short."""
    for seed in range(20):
        monkeypatch.setattr(retry, "SYSTEM_RANDOM", random.Random(seed))  # noqa: S311  # the pauses between attempts
        leader, replica = cluster(3)
        for node in (leader, replica):
            node.version, node.commands = "3.10.8", ()
        with in_memory(leader, replica), follower(timeout_s=30) as reader:
            assert rows_of(reader, 30) == list(range(30))
            replica.sessions[-1].lose()
            leader.streams["s"] = replica.streams["s"] = ChunkLog(chunks_of(4))
            leader.withheld, accepted = 4, len(leader.sessions)

            def elect(_: Session, leader: StreamNode = leader, accepted: int = accepted) -> None:
                if is_ready and len(leader.sessions) > accepted + 1:
                    leader.withheld = 0

            leader.on_read = elect
            if is_ready:
                assert rows_of(reader, 10) == list(range(30, 40))
            else:
                with pytest.raises(UnreachableError, match="gives no rows now"):
                    next(reader)


@pytest.mark.parametrize(
    ("found", "has_more"),
    [
        ((), False),
        ((False, True), False),
        ((True, False, False, True), False),  # the program was slow: the first chunk has waited
        ((False, True, False, False, True), True),  # a gap does not end a batch
    ],
)
def test_the_waits_of_a_batch(found: tuple[bool, ...], has_more: bool) -> None:  # noqa: FBT001
    limits, left = ReadLimits(max_wait_s=1.0), list(found)
    reading: Any = FollowingChunkReader(
        ReaderOptions("rabbitmq-stream://host", "s", end="never", limits=limits)
    )

    def receive(_: object, wait_s: float) -> bool:
        clock.sleep(wait_s)
        has_chunk = bool(left) and left.pop(0)
        reading.subscription.waiting.extend([memoryview(b"")] * has_chunk)
        return has_chunk

    reading.receive, reading.is_behind = receive, lambda _: False
    with in_memory(StreamNode()) as clock:
        reading.wait(None, clock.now + 10)
        assert len(reading.subscription.waiting) == any(found), "no chunk if the stream is idle"
        assert reading._wait_for_more(None) == has_more


def test_rows_that_arrived_long_ago_are_returned_at_once() -> None:
    """The program was slow. A batch waits for further rows from the arrival of its first row, not from the call."""
    leader, replica = cluster(1)
    with in_memory(leader, replica) as clock, follower(max_wait_s=20.0, timeout_s=60) as reader:
        assert rows_of(reader, 10) == list(range(10))
        replica.streams["s"].chunks += chunks_of(2)[1:]  # type: ignore[union-attr]
        replica.on_read = lambda session: session.out.extend(
            b"".join(map(session.deliver, session.subscriptions))
        )
        clock.now += 100
        began = clock.now
        assert rows_of(reader, 10) == list(range(10, 20))
        assert clock.now - began < 5
