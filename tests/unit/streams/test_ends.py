"""The ends of streams: after an election the leader has rows that it does not deliver yet. The connection is scripted."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import pytest
from stream_bytes import chunk_of

from rabbit_chx.errors import BrokerTimeoutError, UnreachableError
from rabbit_chx.streams import ends as ends_module
from rabbit_chx.streams.chunks import Chunk
from rabbit_chx.streams.ends import ChunkFinder, LogEnd, LogEnds
from rabbit_chx.streams.frames import Code, Key, Node, StreamMetadata
from rabbit_chx.streams.nodes import settings_of

URL = "rabbitmq-stream://h"
TIMEOUT_S = 30.0
FIRST, LAST = chunk_of([b"a", b"b"], offset=10), chunk_of([b"c"], offset=20)
END = LogEnd(21, LAST.fingerprint)


class Scripted:
    """A connection to the leader, and the lookups over it.

    Attributes:
        chunks: the first and the last chunk of rows, as far as the leader gives them at once.
        late: those that come when somebody waits for them.
        places: where each stream is.
    """

    commands = {Key.STREAM_STATS: (1, 1)}  # noqa: RUF012  # never changed
    node = Node("h", 5552)
    where = "a scripted leader"

    def __init__(self) -> None:
        self.chunks: dict[Any, Chunk] = {"first": FIRST, "last": LAST}
        self.late: dict[Any, Chunk] = {}
        self.places = {"s": StreamMetadata(self.node, ())}
        self.figures = {"committed_chunk_id": 20, "first_chunk_id": 10}
        self.asked: list[tuple[Any, float]] = []

    def metadata(self, streams: Iterable[str], *, missing_ok: bool = False) -> dict[str, StreamMetadata]:
        assert missing_ok
        nowhere = StreamMetadata(None, (), Code.STREAM_DOES_NOT_EXIST)
        return {stream: self.places.get(stream, nowhere) for stream in streams}

    def stats(self, _stream: str) -> dict[str, int]:
        return dict(self.figures)

    def close(self) -> None:
        pass

    def chunk_at(self, _stream: str, start: Any, wait_s: float = 0.0, **_how: str) -> Chunk | None:
        self.asked.append((start, wait_s))
        if start in self.chunks:
            return self.chunks[start]
        if wait_s and start in self.late:
            return self.late[start]
        if wait_s and start == "last":
            raise BrokerTimeoutError("it does not come")
        return None


@pytest.fixture
def leader(monkeypatch: pytest.MonkeyPatch) -> Scripted:
    scripted = Scripted()
    monkeypatch.setattr(ends_module, "open_any", lambda _settings: scripted)
    monkeypatch.setattr(
        ChunkFinder, "chunk_at", lambda _finder, *place, **how: scripted.chunk_at(*place, **how)
    )
    return scripted


@pytest.fixture
def ends() -> LogEnds:
    return LogEnds(settings_of(URL), {}, TIMEOUT_S)


def test_the_end_is_behind_the_last_row(leader: Scripted, ends: LogEnds) -> None:
    assert ends.ends(["s", "gone"]) == {"s": END}
    assert ends.ends([]) == {}
    assert leader.asked == [("last", 0.0)]


def test_a_last_chunk_that_is_late_is_waited_for(leader: Scripted, ends: LogEnds) -> None:
    leader.late["last"] = leader.chunks.pop("last")
    assert ends.ends(["s"]) == {"s": END}
    assert leader.asked == [("last", 0.0), ("first", 0.0), ("last", TIMEOUT_S)]


def test_a_last_chunk_that_does_not_come_is_an_error(leader: Scripted) -> None:
    del leader.chunks["last"]
    with pytest.raises(BrokerTimeoutError):
        LogEnds(settings_of(URL), {}, 0.1).ends(["s"])


def test_a_stream_without_rows_ends_where_they_will_be(leader: Scripted, ends: LogEnds) -> None:
    leader.chunks.clear()
    assert ends.ends(["s"]) == {"s": LogEnd(0, None)}
    leader.chunks["first"] = FIRST
    assert ends.offset_of("s", "first", END) == FIRST.offset
    assert ends.offset_of("s", "first", LogEnd(0, None)) == 0  # what is written since then is behind the end


def test_the_end_is_asked_again_when_the_figures_change(leader: Scripted, ends: LogEnds) -> None:
    ends.ends(["s"])
    leader.chunks["last"] = chunk_of([b"d"], offset=21)
    leader.figures["committed_chunk_id"] = 21
    assert ends.ends(["s"])["s"].offset == 22


def test_a_stream_without_a_leader(leader: Scripted) -> None:
    leader.places["s"] = StreamMetadata(None, ())
    with pytest.raises(UnreachableError, match="stream 's' has no leader now"):
        LogEnds(settings_of(URL), {}, 0.1).ends(["s"])


class ScriptedLeader:
    """Stands for a connection to a leader that does not know yet what a majority has: no broker, no socket.

    A real one is so for some tenths of a second after its start; tests/fire/streams meets it.
    """

    where = "a scripted leader"

    def __init__(self, looks: int, *, rows: bool, figures: bool) -> None:
        self.commands = {Key.STREAM_STATS: (1, 1)} if figures else {}
        self.looks = looks
        self.rows = rows

    def stats(self, _stream: str) -> dict[str, int]:
        committed = self.rows and not self.looks
        return {"first_chunk_id": 0 if self.rows else -1, "committed_chunk_id": 0 if committed else -1}

    def chunk_at(self, _stream: str, _start: Any) -> Chunk | None:
        self.looks = max(0, self.looks - 1)
        return FIRST if self.rows and not self.looks else None

    def first(self: Any, monkeypatch: pytest.MonkeyPatch, timeout_s: float) -> Chunk | None:
        monkeypatch.setattr(ends_module, "_EMPTY_POLL_S", 0.01)
        finder = ChunkFinder(self, timeout_s)
        monkeypatch.setattr(finder, "chunk_at", self.chunk_at)
        return finder.first("s")


@pytest.mark.parametrize("figures", [True, False])
def test_a_leader_that_does_not_know_yet_what_is_committed_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, *, figures: bool
) -> None:
    assert ScriptedLeader(5, rows=True, figures=figures).first(monkeypatch, 30) == FIRST


def test_an_empty_stream_has_no_first_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    started = time.monotonic()
    assert ScriptedLeader(1, rows=False, figures=True).first(monkeypatch, 30) is None
    assert time.monotonic() - started < 20
    assert ScriptedLeader(1, rows=False, figures=False).first(monkeypatch, 0.1) is None


def test_a_leader_that_never_knows_what_is_committed_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BrokerTimeoutError, match=r"'s' has rows, and does not give them within 0\.1 s"):
        ScriptedLeader(1_000_000, rows=True, figures=True).first(monkeypatch, 0.1)
