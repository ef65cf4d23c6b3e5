"""The status of a group of streams: its members, its owners and its lag, from a scripted node."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from unittest.mock import Mock

import pytest
from scheduled_threads import Threads
from stream_bytes import entry
from stream_group_world import GROUP, URL, GroupNode, TimedLog
from stream_node import in_memory

from rabbit_chx.consuming import stream_status
from rabbit_chx.consuming.journal import JOURNAL, EntryKind, JournalEntry
from rabbit_chx.consuming.stream_status import StreamMember, StreamShare, read_stream_group
from rabbit_chx.streams.nodes import open_at, stream_settings


class Site:
    """A node with the stream `s`, whose clock stands still, and a journal."""

    def __init__(self, node: GroupNode) -> None:
        self.node = node
        self.journal = node.streams[JOURNAL] = TimedLog(node.threads)

    def write(self, kind: EntryKind, member: str, age_s: float = 0.0) -> None:
        """Write an entry of this age."""
        at = self.node.threads.time() - age_s
        body = JournalEntry(
            kind, member, at, 1.0, ("s",) if kind == "ready" else (), "s", f"of {member}"
        ).to_json(GROUP)
        self.journal.take(None, 1, [b"\0Su\xb0" + struct.pack(">I", len(body)) + body])
        self.journal.committed += 1

    def status(self) -> tuple[StreamShare, list[StreamMember]]:
        """The status of the stream, and the members."""
        (share,), members, _ = read_stream_group(stream_settings(URL), GROUP, ["s"], JOURNAL)
        return share, members


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    node = GroupNode(Threads(), ["s"])
    monkeypatch.setattr(stream_status, "time", node.threads)
    with in_memory(node):
        yield Site(node)


def test_members_that_are_silent_have_nothing(site: Site) -> None:
    for member, age_s in (("dead", 300.0), ("alive", 10.0)):
        site.write("ready", member, age_s)
    site.write("claim", "dead", 300.0)
    share, members = site.status()
    assert [member.name for member in members] == ["alive"]
    assert (share.assigned, share.active, share.generation) == ("alive", None, 2)


def test_a_stream_is_active_until_it_is_released(site: Site) -> None:
    site.write("ready", "a")
    site.write("claim", "a")
    assert site.status()[0].active == "a"
    site.write("released", "a")
    assert site.status()[0].active is None


def test_the_lag_is_asked_of_the_leader(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica may not have the last rows and the last stored offset yet."""
    asked = Mock(wraps=open_at)
    monkeypatch.setattr(stream_status, "open_at", asked)
    site.status()
    assert asked.call_args.kwargs["leader"] is True


@pytest.mark.parametrize(("stored", "rows"), [(None, 10), (3, 6), (9, 0)])
def test_the_lag_is_that_of_the_rows_after_the_stored_one(site: Site, stored: int | None, rows: int) -> None:
    site.node.publish("s", 10)
    if stored is not None:
        site.node.offsets[GROUP, "s"] = stored
    site.node.threads.now += 40
    share, _ = site.status()
    assert (share.stored, share.lag_rows) == (stored, rows)
    assert share.lag_s == pytest.approx(40 if rows else 0, abs=0.1)
    assert share.oldest_s == pytest.approx(40, abs=0.1)


def test_chunks_of_the_broker_are_no_lag(site: Site) -> None:
    """Such as those of stored offsets, before the next row."""
    site.node.publish("s", 10)
    site.node.offsets[GROUP, "s"] = 9
    for _ in range(3):
        site.node.append("s", [entry(b"\1\7billing" + bytes(8))], 1)
    assert site.status()[0].lag_rows == 0
    site.node.publish("s", 2)
    assert site.status()[0].lag_rows == 2
