"""Where streams end: after an election the leader has rows that it does not give yet. The connection is scripted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from stream_bytes import chunk_of

from rabbit_chx.errors import BrokerTimeoutError, UnreachableError
from rabbit_chx.streams.chunks import Chunk
from rabbit_chx.streams.frames import Code, Key, Node, StreamPlaces
from rabbit_chx.streams.nodes import settings_of
from spark_connector.reading import log_ends
from spark_connector.reading.log_ends import LogEnd, LogEnds

URL = "rabbitmq-stream://h"
TIMEOUT_S = 30.0
FIRST, LAST = chunk_of([b"a", b"b"], offset=10), chunk_of([b"c"], offset=20)
END = LogEnd(21, LAST.fingerprint)


class Scripted:
    """A connection to the leader, and the looks over it.

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
        self.places = {"s": StreamPlaces(self.node, ())}
        self.figures = {"committed_chunk_id": 20}
        self.asked: list[tuple[Any, float]] = []

    def metadata(self, streams: Iterable[str], *, missing_ok: bool = False) -> dict[str, StreamPlaces]:
        assert missing_ok
        nowhere = StreamPlaces(None, (), Code.STREAM_DOES_NOT_EXIST)
        return {stream: self.places.get(stream, nowhere) for stream in streams}

    def stats(self, _stream: str) -> dict[str, int]:
        return dict(self.figures)

    def close(self) -> None:
        pass

    # What is asked of Look.

    def first_chunk(self, stream: str, wait_s: float) -> Chunk | None:
        return self.chunk_at(stream, "first", wait_s)

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
    monkeypatch.setattr(log_ends, "open_any", lambda _settings: scripted)
    monkeypatch.setattr(log_ends, "Look", lambda connection: connection)
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
    assert leader.asked == [("last", 0.0), ("first", TIMEOUT_S), ("last", TIMEOUT_S)]


def test_a_last_chunk_that_does_not_come_is_an_error(leader: Scripted) -> None:
    del leader.chunks["last"]
    with pytest.raises(BrokerTimeoutError):
        LogEnds(settings_of(URL), {}, 0.1).ends(["s"])


def test_a_stream_without_rows_ends_where_they_will_be(leader: Scripted, ends: LogEnds) -> None:
    leader.chunks.clear()
    assert ends.ends(["s"]) == {"s": LogEnd(0, None)}
    leader.figures, leader.chunks["first"] = {"committed_chunk_id": 20}, FIRST
    assert ends.first("s") == FIRST.offset


def test_the_end_is_asked_again_when_the_figures_change(leader: Scripted, ends: LogEnds) -> None:
    ends.ends(["s"])
    leader.chunks["last"] = chunk_of([b"d"], offset=21)
    leader.figures = {"committed_chunk_id": 21}
    assert ends.ends(["s"])["s"].offset == 22


def test_a_stream_without_a_leader(leader: Scripted) -> None:
    leader.places["s"] = StreamPlaces(None, ())
    with pytest.raises(UnreachableError, match="stream 's' has no leader now"):
        LogEnds(settings_of(URL), {}, 0.1).ends(["s"])
