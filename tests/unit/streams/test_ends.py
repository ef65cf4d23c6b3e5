"""The ends of streams: after an election the leader has rows that it does not deliver yet. The broker is fake."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from unittest.mock import Mock

import pytest
from stream_bytes import TIMESTAMP_MS, chunk_bytes, entry
from stream_logs import ChunkLog
from stream_node import Clock, Session, StreamNode, event_frame, in_memory

from rabbit_chx.errors import BrokerTimeoutError, ConnectionLostError, DamagedChunkError, UnreachableError
from rabbit_chx.streams import ReadLimits, StreamReader
from rabbit_chx.streams.chunks import read_chunk
from rabbit_chx.streams.frames import Code, Key, OffsetSpec, StreamChanged
from rabbit_chx.streams.log_lookup import ChunkFinder, LogEnd, LogEnds
from rabbit_chx.streams.nodes import open_any, settings_of

TIMEOUT_S = 30.0
FIRST, LAST = chunk_bytes([entry(b"a"), entry(b"b")], offset=10), chunk_bytes([entry(b"c")], offset=20)
END = LogEnd(21, read_chunk(memoryview(LAST)).fingerprint)


class Leader(StreamNode):
    """The leader of the stream `s`; `clock` is that of all waits, `looks` how often a client waits until all chunks are committed."""

    heartbeat_s = 0
    clock: Clock

    def __init__(self) -> None:
        super().__init__()
        self.version, self.commands = "4.3.6", (Key.STREAM_STATS,)
        self.log = self.streams["s"] = ChunkLog([FIRST, LAST])
        self.looks = 0
        self.on_read = self._commit

    def _commit(self, session: Session) -> None:
        self.looks -= 1
        if self.looks <= 0 and self.withheld:
            self.withheld = session.withheld = 0
            for number in session.subscriptions:
                session.out += session.deliver(number)


@pytest.fixture
def leader() -> Iterator[Leader]:
    made = Leader()
    with in_memory(made) as made.clock:
        yield made


def log_ends(timeout_s: float = TIMEOUT_S) -> LogEnds:
    return LogEnds(settings_of("rabbitmq-stream://h"), {}, timeout_s)


def test_the_end_is_after_the_last_row(leader: Leader) -> None:
    assert log_ends().ends(["s", "gone"]) == {"s": END}
    assert log_ends().ends([]) == {}
    assert leader.starts == [(2, 0)]
    leader.leader = None
    with pytest.raises(UnreachableError, match="stream 's' has no leader now"):
        log_ends(0.1).ends(["s"])


def test_a_last_chunk_that_is_late_is_waited_for(leader: Leader) -> None:
    leader.withheld, leader.looks = 1, 10
    assert log_ends().ends(["s"]) == {"s": END}
    assert leader.starts == [(2, 0), (1, 0), (2, 0)]


def test_a_stream_without_rows_ends_where_they_will_be(leader: Leader) -> None:
    """The end is asked again when the figures change."""
    leader.log.chunks.clear()
    ends = log_ends()
    assert ends.ends(["s"]) == {"s": LogEnd(0, None)}
    leader.log.chunks.append(FIRST)
    assert ends.offset_of("s", "first", END) == 10
    assert ends.offset_of("s", "first", LogEnd(0, None)) == 0  # what is written since then is behind the end
    assert ends.ends(["s"])["s"].offset == 12
    leader.log.chunks.append(chunk_bytes([entry(b"d")], offset=21))
    assert ends.ends(["s"])["s"].offset == 22


def finder(timeout_s: float) -> ChunkFinder:
    return ChunkFinder(open_any(settings_of("rabbitmq-stream://h")), timeout_s)


@pytest.mark.parametrize("commands", [[Key.STREAM_STATS], []])
def test_a_leader_that_does_not_know_yet_what_is_committed_is_waited_for(
    leader: Leader, commands: list[int]
) -> None:
    """A real one is so for some tenths of a second after its start; tests/fire/streams meets it."""
    leader.withheld, leader.looks, leader.commands = 2, 5, commands
    first = finder(TIMEOUT_S).first("s")
    assert first is not None
    assert first.offset == 10


def test_a_chunk_of_the_same_millisecond_is_before_a_later_microsecond(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ChunkFinder, "chunk_at", lambda *_: read_chunk(memoryview(FIRST)))
    moment = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=TIMESTAMP_MS)
    assert ChunkFinder(Mock()).locate("s", moment, END)[0] == 10
    later = moment + timedelta(microseconds=1)
    assert ChunkFinder(Mock()).locate("s", later, END) == (END.offset, None)


def test_an_empty_stream_has_no_first_chunk(leader: Leader) -> None:
    leader.log.chunks.clear()
    began = leader.clock.now
    assert finder(TIMEOUT_S).first("s") is None
    assert leader.clock.now - began < 1
    leader.commands = ()
    assert finder(TIMEOUT_S).first("s") is None
    assert leader.clock.now - began < 5


def test_a_leader_without_a_committed_offset_is_given_up(leader: Leader) -> None:
    leader.withheld, leader.looks = 2, 1_000_000
    with pytest.raises(BrokerTimeoutError, match=r"'s' has rows, and does not send them within 0\.1 s"):
        finder(0.1).first("s")
    leader.withheld = 1
    with pytest.raises(BrokerTimeoutError):
        log_ends(0.1).ends(["s"])


@pytest.mark.parametrize("start", ["first", "last", "next", 0, 15])
def test_a_node_that_has_chunks_and_delivers_none_is_an_error(
    leader: Leader, monkeypatch: pytest.MonkeyPatch, start: OffsetSpec
) -> None:
    monkeypatch.setattr(Session, "deliver", lambda *_: b"")
    began = leader.clock.now
    with pytest.raises(BrokerTimeoutError, match="'s' has rows, and does not send them"):
        StreamReader("rabbitmq-stream://h", "s", start=start, limits=ReadLimits(timeout_s=5))
    assert leader.clock.now - began <= 5 + 1


@pytest.mark.usefixtures("leader")
def test_a_stream_that_is_deleted_while_a_chunk_is_looked_for_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    changed = [StreamChanged(name, Code.STREAM_NOT_AVAILABLE) for name in ("another", "s")]
    monkeypatch.setattr(Session, "deliver", lambda *_: event_frame(changed.pop(0)))
    assert finder(TIMEOUT_S).chunk_at("s", "first") is None
    with pytest.raises(ConnectionLostError, match="'s' is deleted or has another leader"):
        finder(TIMEOUT_S).chunk_at("s", "first")


def test_a_stream_that_is_deleted_right_after_its_chunk_is_a_lost_connection(leader: Leader) -> None:
    """The broker has ended the subscription before the client does."""
    leader.refused[Key.UNSUBSCRIBE] = Code.SUBSCRIPTION_DOES_NOT_EXIST
    with pytest.raises(ConnectionLostError, match=r"end subscription 0 .*the stream was deleted"):
        finder(TIMEOUT_S).chunk_at("s", "first")


@pytest.mark.parametrize("offset", [2**63 - 1, 2**63, 2**64 - 3])
def test_offsets_that_no_column_has_are_an_error(leader: Leader, offset: int) -> None:
    leader.log.chunks[:] = [FIRST, chunk_bytes([entry(b"c"), entry(b"d")], offset=offset)]
    with pytest.raises(DamagedChunkError, match=f"{offset}.*offsets end at"):
        StreamReader("rabbitmq-stream://h", "s", limits=ReadLimits(timeout_s=5))
