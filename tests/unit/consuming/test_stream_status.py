"""The lag of a group of streams, from a scripted node."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import Mock

import pytest
from scheduled_threads import Threads
from stream_bytes import entry
from stream_group_world import GROUP, URL, GroupNode
from stream_node import in_memory

from rabbit_chx.consuming import stream_connection
from rabbit_chx.consuming.stream_connection import StreamShare, read_stream_group
from rabbit_chx.streams.nodes import open_at, stream_settings


class Site:
    """A node with the stream `s`, whose clock stands still."""

    def __init__(self, node: GroupNode) -> None:
        self.node = node

    def status(self) -> StreamShare:
        """The status of the stream."""
        (share,) = read_stream_group(stream_settings(URL), GROUP, ["s"])
        return share


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    node = GroupNode(Threads(), ["s"])
    monkeypatch.setattr(stream_connection, "time", node.threads)
    with in_memory(node):
        yield Site(node)


def test_the_lag_is_asked_of_the_leader(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica may not have the last rows and the last stored offset yet."""
    asked = Mock(wraps=open_at)
    monkeypatch.setattr(stream_connection, "open_at", asked)
    site.status()
    assert asked.call_args.kwargs["leader"] is True


@pytest.mark.parametrize(("stored", "rows"), [(None, 10), (3, 6), (9, 0)])
def test_the_lag_is_that_of_the_rows_after_the_stored_one(site: Site, stored: int | None, rows: int) -> None:
    site.node.publish("s", 10)
    if stored is not None:
        site.node.offsets[GROUP, "s"] = stored
    site.node.threads.now += 40
    share = site.status()
    assert (share.stored, share.lag_rows) == (stored, rows)
    assert share.lag_s == pytest.approx(40 if rows else 0, abs=0.1)
    assert share.oldest_s == pytest.approx(40, abs=0.1)


def test_chunks_of_the_broker_are_no_lag(site: Site) -> None:
    """Such as those of stored offsets, before the next row."""
    site.node.publish("s", 10)
    site.node.offsets[GROUP, "s"] = 9
    for _ in range(3):
        site.node.append("s", [entry(b"\1\7billing" + bytes(8))], 1)
    assert site.status().lag_rows == 0
    site.node.publish("s", 2)
    assert site.status().lag_rows == 2
