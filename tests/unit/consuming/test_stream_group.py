"""Members of a group of streams: their arguments, their entries in the journal, and the loss of a single stream."""

from __future__ import annotations

import asyncio
import gzip
import socket
import struct
from collections import deque
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from group_stage import eventually
from scripted_group import ScriptedConnection, ScriptedJournal
from stream_bytes import chunk_bytes, entry, sub_entry
from stream_logs import chunks_of
from stream_node import HOST, ListeningNode

from rabbit_chx import ConsumerGroup, StreamGroup
from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.consuming import FailurePolicy, GroupMessage, GroupReading, GroupTiming
from rabbit_chx.consuming.channels import GroupConnection
from rabbit_chx.consuming.journal import JOURNAL, JournalEntry, entries_in
from rabbit_chx.consuming.ownership import DeliveredMessage, QueueOwnership
from rabbit_chx.consuming.runner import QueueRunner
from rabbit_chx.consuming.session import GroupSession
from rabbit_chx.consuming.settings import GroupMember
from rabbit_chx.consuming.stream_channels import Feed, StreamBatch, StreamReading
from rabbit_chx.consuming.stream_connection import StreamGroupConnection, in_thread
from rabbit_chx.errors import (
    ConnectionLostError,
    DamagedChunkError,
    InputError,
    NotFoundError,
    RabbitChxError,
    UnreachableError,
)

URL = "rabbitmq-stream://user:secret-word@host:5552/v"
BRISK = GroupTiming(settle_s=0.05, alive_s=0.02, gone_s=0.2, watch_s=9.0, stop_s=1.0, journal_s=0.3)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({}, "pass one of streams and super_stream"),
        ({"streams": ["a"], "super_stream": "b"}, "pass one of streams and super_stream"),
        ({"streams": "orders"}, "pass a list of names"),
        ({"streams": []}, "streams is empty"),
        ({"streams": [""]}, "names no stream"),
        ({"streams": ["a"], "name": ""}, "names no group"),
        ({"streams": ["a"], "member": ""}, "member is ''"),
        ({"streams": ["a"], "weight": 0}, "weight is 0"),
        ({"streams": ["a"], "start": "begin"}, "the start of a stream is 'begin'"),
        ({"streams": ["a"], "include": ["nope"]}, "no further column 'nope'"),
        ({"streams": ["a"], "include": "headers"}, "pass a list of columns"),
        ({"streams": ["a"], "on_missing": "skip"}, "on_missing is 'skip'"),
        ({"streams": ["a"], "batch_rows": 0}, "batch_rows is 0"),
        ({"streams": ["a"], "timing": GroupTiming(hook_s=60)}, "hook_s 60: pass 50 at most"),
        ({"streams": ["a"], "on_gained": lambda _: None}, "on_gained is .* not async: write async def"),
        ({"streams": ["a"], "on_lost": print}, "on_lost is .* not async"),
    ],
)
def test_invalid_arguments_are_refused(how: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        StreamGroup(URL, **{"name": "billing", **how})


def test_the_hooks_of_a_consumer_group_are_async() -> None:
    for name in ("on_gained", "on_lost"):
        with pytest.raises(InputError, match=f"{name} is .* not async"):
            ConsumerGroup("amqp://host", ["q"], **cast("Any", {name: print}))


def test_missing_rows_are_those_of_the_streams() -> None:
    """Not those of the journal, which retention removes while a member is not connected."""
    group = StreamGroup(URL, streams=["a", "b"], name="billing", reading=GroupReading(on_missing="count"))
    group._reading.missing.update({"a": 2, "b": 3, JOURNAL: 40})
    assert group.missing == 5


@pytest.mark.parametrize(("journal_s", "reconnect_s"), [(7.0, 11.0), (11.0, 7.0)])
async def test_a_member_goes_on_without_its_journal_for_the_shorter_of_both_limits(
    monkeypatch: pytest.MonkeyPatch, journal_s: float, reconnect_s: float
) -> None:
    """After `journal_s` the others may have removed it, and handle its streams."""
    given: list[float] = []

    async def open_(_: object, reconnect_s: float) -> None:
        given.append(reconnect_s)

    monkeypatch.setattr(StreamGroupConnection, "open", open_)
    group = StreamGroup(
        URL,
        streams=["a"],
        name="billing",
        timing=GroupTiming(journal_s=journal_s),
        failures=FailurePolicy(reconnect_timeout_s=reconnect_s),
    )
    await group._open()
    assert given == [7.0]


def test_a_damaged_chunk_is_read_again_from_another_replica() -> None:
    with ListeningNode(chunks_of(8)) as leader, ListeningNode(leader.chunks) as replica:
        leader.replicas = [replica]
        damaged = leader.chunks[5]

        def damage(chunk: bytes) -> bytes:
            return chunk[:-1] + bytes([chunk[-1] ^ 1]) if chunk == damaged else chunk

        replica.delivered = damage
        reading = StreamReading(deque([leader.settings]), "billing")
        with pytest.raises(
            ConnectionLostError, match=f"offset 50 is damaged.*read 1 times, from .*{replica.port}"
        ):
            rows_of(reading, 0)
        assert rows_of(reading, 0) == list(range(80)), "from the leader"
        leader.delivered = damage
        for _ in range(2):
            with pytest.raises(ConnectionLostError):
                rows_of(reading, 0)
        with pytest.raises(DamagedChunkError, match="read 3 times"):
            rows_of(reading, 0)


def test_the_journal_is_read_on_behind_damaged_sub_entries() -> None:
    """A client has written them, so each replica has the same."""
    good = entry(b"\0Su\xa0\1x")
    odd = [
        chunk_bytes([sub_entry([b"a", b"b"], 1, b"no gzip")], offset=1, records=2),
        chunk_bytes([struct.pack(">BHII", 0x80 | 1 << 4, 2, 1 << 31, 3) + b"bomb"[:3]], offset=3, records=2),
        chunk_bytes([entry(b"not AMQP")], offset=5),
    ]
    with ListeningNode([chunk_bytes([good]), *odd, chunk_bytes([good], offset=6)]) as node:
        reading = StreamReading(deque([node.settings]), "billing")
        found: list[Any] = []
        with closing(Feed(reading, "s", 0, {}, is_lenient=True)) as feed:
            while 6 not in found:
                feed.poll(0.1)
                batch = feed.batch()
                found += [] if batch is None else batch["offset"].to_pylist()
        assert (found, sorted(feed.unreadable)) == ([0, 5, 6], [1, 3])
        with pytest.raises(InputError, match="sub-entry"):
            rows_of(reading, 0)


def test_a_batch_is_bounded_in_bytes_of_its_unpacked_rows() -> None:
    row = b"\0Su\xb0" + (6 << 20).to_bytes(4) + bytes(6 << 20)
    packed = [sub_entry([row], 1, gzip.compress(entry(row), 1)) for _ in range(7)]
    with ListeningNode([chunk_bytes(packed, records=7)]) as node:
        reading = StreamReading(deque([node.settings]), "billing")
        with closing(Feed(reading, "s", 0, {})) as feed:
            sizes: list[int] = []
            while sum(sizes) < 7:
                feed.poll(0.1)
                batch = feed.batch()
                sizes += [] if batch is None else [batch.num_rows]
    assert sizes == [2, 2, 2, 1]


def rows_of(reading: StreamReading, start: int) -> list[Any]:
    """The offsets of the stream `s`, which has 80."""
    found: list[Any] = []
    with closing(Feed(reading, "s", start, {})) as feed:
        while len(found) < 80:
            feed.poll(0.1)
            batch = feed.batch()
            found += [] if batch is None else batch["offset"].to_pylist()
    return found


def test_a_node_that_does_not_answer_is_asked_last_from_then_on() -> None:
    with ListeningNode(chunks_of(1)) as node, socket.create_server((HOST, 0)) as silent:
        dead = replace(node.settings, port=silent.getsockname()[1], connection_timeout_s=0.3)
        reading = StreamReading(deque([dead, node.settings]), "billing")
        for connect in (reading.open_any, lambda: reading.open("s")):
            reading.settings = deque([dead, node.settings])
            connect().close()
            assert reading.settings[0] == node.settings


def test_a_hook_may_take_50_seconds() -> None:
    assert StreamGroup(URL, streams=["a"], name="billing", timing=GroupTiming(hook_s=50))


def test_a_group_names_its_connection_and_hides_its_password() -> None:
    group = StreamGroup(URL, streams=["a", "b", "a"], name="billing", member="pod-7")
    assert group.streams == ("a", "b")
    assert (group.held, group.members, group.generation("a"), group.missing) == ((), (), None, 0)
    settings = group._reading.settings[0]
    assert settings.connection_name == "rabbit-chx.stream-group.billing.pod-7"
    assert settings.heartbeat_s == 10
    own = StreamGroup(f"{URL}?heartbeat=4", streams=["a"], name="billing")._reading.settings[0]
    assert own.heartbeat_s == 4
    assert "secret-word" not in repr(group)
    assert "0 of 2 streams" in repr(group)


async def test_a_group_must_be_open_and_its_handler_async() -> None:
    group = StreamGroup(URL, streams=["a"], name="billing")

    async def handle(stream: str, batch: object) -> None:
        raise NotImplementedError

    with pytest.raises(InputError, match=r"async with StreamGroup\(\.\.\.\) as group"):
        await group.run(handle)
    with pytest.raises(InputError, match="which is not async"):
        await group.run(lambda *_: None)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"async with ConsumerGroup\(\.\.\.\) as group"):
        await ConsumerGroup("amqp://host", ["q"]).run(cast("Any", handle))


def test_groups_do_not_read_the_entries_of_others() -> None:
    """Also a ConsumerGroup, and one of an earlier release, which has read any JSON with a kind and a member."""
    entry = JournalEntry("ready", "pod-7", 1000.0, 2.0, ("orders-0",), token="t")  # noqa: S106
    body = entry.to_json("billing")
    assert entries_in(body, "billing") == [entry]
    assert entries_in(body, "audit") == []
    assert entries_in(body) == []
    assert entries_in(entry.to_json()) == [entry]
    assert entries_in(entry.to_json(), "billing") == []
    assert b'"entry"' in body
    assert b'{"kind"' not in body[:8], "an earlier release finds no kind"
    assert entries_in(b'{"group": "billing"}', "billing") == [None]
    assert entries_in(b"[]", "billing") == [None]


class Stage:
    """A member of the queues `q.0` and `q.1`, whose channels fail alone."""

    def __init__(self) -> None:
        self.connection = ScriptedConnection(ScriptedJournal())
        self.connection.channels_fail_alone = True
        self.handled: list[int] = []
        member = GroupMember("a", timing=BRISK)
        self.session = GroupSession(cast("GroupConnection", self.connection), member, self.handle)
        self.session.attach(
            QueueRunner(QueueOwnership(queue, member), self.session, 1) for queue in ("q.0", "q.1")
        )
        self.stop = asyncio.Event()

    async def handle(self, message: GroupMessage) -> None:
        """Note a message."""
        self.handled.append(int(message.body))

    async def run(self, losses: list[tuple[str, RabbitChxError | None]]) -> None:
        """Run until each queue was lost as wanted, and each delivers again."""
        running = asyncio.create_task(self.session.run(self.stop))
        lines = self.connection.lines
        try:
            await eventually(lambda: self.session.is_up, "it consumes both queues")
            await self.connection.deliver("q.0", 1)
            await self.connection.deliver("q.1", 2)
            await eventually(lambda: sorted(self.handled) == [1, 2], "it handles both")
            for queue, refusal in losses:
                count = len(lines[queue])
                lines[queue][-1]._closed(refusal)
                await eventually(lambda: len(lines[queue]) > count or running.done(), "again")  # noqa: B023
                if running.done():
                    await running
            await self.connection.deliver("q.0", 3)
            await self.connection.deliver("q.1", 4)
            await eventually(lambda: sorted(self.handled) == [1, 2, 3, 4], "it goes on")
        finally:
            self.stop.set()
            await asyncio.gather(running, return_exceptions=True)
            await self.session.close(self.session.detach())


async def test_a_lost_stream_is_consumed_again_and_the_others_are_not() -> None:
    stage = Stage()
    await stage.run([("q.0", None), ("q.0", UnreachableError("gone"))])
    assert [len(stage.connection.lines[queue]) for queue in ("q.0", "q.1")] == [3, 1]


async def test_a_refused_stream_ends_the_session() -> None:
    with pytest.raises(NotFoundError):
        await Stage().run([("q.0", NotFoundError("no stream 'q.0'"))])


async def test_a_blocking_function_returns_or_raises_from_its_thread() -> None:
    assert await in_thread(lambda: 1 + 1) == 2
    with pytest.raises(UnreachableError, match="gone"):
        await in_thread(_fail)
    waiting = asyncio.create_task(in_thread(lambda: 1))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


def _fail() -> None:
    raise UnreachableError("gone")


def test_several_nodes_get_the_port_of_streams_and_a_name_for_the_connection() -> None:
    nodes = [ConnectionSettings(host="a"), ConnectionSettings(host="b", connection_name="mine")]
    reading = StreamGroup(nodes, streams=["a"], name="g", member="m")._reading
    assert isinstance(reading.settings, deque)
    assert [one.connection_name for one in reading.settings] == ["rabbit-chx.stream-group.g.m", "mine"]
    assert {one.port for one in reading.settings} == {5552}


STARTS = (
    "first",
    "last",
    "next",
    0,
    40,
    datetime(2026, 11, 1, tzinfo=UTC),
    "latest",
    "begin",
    "",
    40.0,
    -1,
    True,
)
MORE_STARTS = (np.int64(40), 1 << 64, datetime(2026, 11, 1), b"first", ["first"])  # noqa: DTZ001


def refusal_of(start: Any) -> str | None:
    try:
        StreamGroup(URL, streams=["a"], name="billing", reading=GroupReading(start=start))
    except InputError as error:
        return f"{error}"
    return None


@pytest.mark.parametrize("start", [*STARTS, *MORE_STARTS])
async def test_what_on_gained_returns_is_checked_as_a_start_is(start: Any) -> None:
    async def on_gained(_: str) -> Any:
        return start

    begun: list[object] = []
    group = StreamGroup(URL, streams=["a"], name="billing", on_gained=on_gained)
    channel: Any = SimpleNamespace(confirm=lambda _: asyncio.sleep(0), begin=begun.append)
    refusal = refusal_of(start)
    if refusal is None:
        await group._take_over(StreamBatch("a", channel))
        assert begun == [start]
        assert not group._reading.failed_starts
    else:
        with pytest.raises(InputError, match="on_gained returned") as raised:
            await group._take_over(StreamBatch("a", channel))
        assert refusal in f"{raised.value}"
        assert begun == []
        assert group._reading.failed_starts == {"a": 1}


async def test_an_election_is_not_a_handled_batch() -> None:
    stage = Stage()
    task = asyncio.create_task(stage.session.run(stage.stop))
    await eventually(lambda: stage.session.is_up, "it consumes both queues")
    (runner, _) = stage.session._runners.values()
    stage.session.handle = lambda _: asyncio.sleep(0)
    line = stage.connection.lines["q.0"][-1]
    line.take(DeliveredMessage(0, "", StreamBatch("q.0", cast("Any", line))))
    await eventually(lambda: line.acked == [0], "the election is handled")
    assert [runner.handled_at] == [None]
    rows = pa.RecordBatch.from_pydict({"offset": [0]})
    line.take(DeliveredMessage(1, "", StreamBatch("q.0", cast("Any", line), rows)))
    await eventually(lambda: line.acked == [0, 1], "the batch is handled")
    assert runner.handled_at is not None
    stage.stop.set()
    await task
    await stage.session.close(stage.session.detach())
