"""Members of a group of streams: their arguments, and the loss of a single stream.

python tests/unit/consuming/test_stream_group.py    # writes the refusals of this version into `group_refusals.txt`
"""

from __future__ import annotations

import asyncio
import gzip
import socket
from collections import deque
from contextlib import closing, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock

import numpy as np
import pyarrow as pa
import pytest
from group_stage import eventually
from loopback import HOST
from scripted_group import ScriptedStage
from stories import each_story, played, refusals, write_stories
from stream_bytes import chunk_bytes, entry, sub_entry
from stream_logs import chunks_of
from stream_node import ListeningNode

from rabbit_chx import ConsumerGroup, StreamGroup, errors
from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.consuming import GroupReading, GroupTiming
from rabbit_chx.consuming.ownership import DeliveredMessage
from rabbit_chx.consuming.stream_channels import GroupStreams, StreamBatch, SubscribedStream

STORIES = Path(__file__).with_name("group_refusals.txt")
URL = "rabbitmq-stream://user:secret-word@host:5552/v"


CALLS: dict[str, Any] = {
    "StreamGroup": partial(StreamGroup, URL),
    "ConsumerGroup": partial(ConsumerGroup, "amqp://host"),
}


@each_story(STORIES)
def test_invalid_arguments_are_refused(how: str, lines: list[str]) -> None:
    assert played(refusals(CALLS[how]), lines) == lines


def test_the_hooks_of_a_consumer_group_are_async() -> None:
    for name in ("on_gained", "on_lost"):
        with pytest.raises(errors.InputError, match=f"{name} is .* not async"):
            ConsumerGroup("amqp://host", ["q"], **cast("Any", {name: print}))


def batches_of(feed: SubscribedStream, last: int) -> list[list[Any]]:
    """The offsets of each batch, up to this offset."""
    found: list[list[Any]] = []
    with closing(feed):
        while not found or found[-1][-1] < last:
            feed.poll(0.1)
            if (batch := feed.batch()) is not None:
                found.append(batch["offset"].to_pylist())
    return found


def rows_of(reading: GroupStreams) -> list[Any]:
    """The offsets of the stream `s`, which has 80."""
    return [row for batch in batches_of(SubscribedStream(reading, "s", 0, {}), 79) for row in batch]


def test_a_damaged_chunk_is_read_again_from_another_replica() -> None:
    with ListeningNode(chunks_of(8)) as leader, ListeningNode(leader.chunks) as replica:
        leader.replicas = [replica]
        damaged = leader.chunks[5]

        def damage(chunk: bytes) -> bytes:
            return chunk[:-1] + bytes([chunk[-1] ^ 1]) if chunk == damaged else chunk

        replica.delivered = damage
        reading = GroupStreams(deque([leader.settings]), "billing")
        with pytest.raises(
            errors.ConnectionLostError, match=f"offset 50 is damaged.*read 1 times: .*{replica.port}"
        ):
            rows_of(reading)
        assert rows_of(reading) == list(range(80)), "from the leader"
        leader.delivered = damage
        for _ in range(2):
            with pytest.raises(errors.ConnectionLostError):
                rows_of(reading)
        with pytest.raises(errors.DamagedChunkError, match="read 3 times"):
            rows_of(reading)


def test_a_batch_is_bounded_in_bytes_of_its_unpacked_rows() -> None:
    row = b"\0Su\xb0" + (6 << 20).to_bytes(4) + bytes(6 << 20)
    packed = [sub_entry([row], 1, gzip.compress(entry(row), 1)) for _ in range(7)]
    with ListeningNode([chunk_bytes(packed, records=7)]) as node:
        reading = GroupStreams(deque([node.settings]), "billing")
        sizes = [len(batch) for batch in batches_of(SubscribedStream(reading, "s", 0, {}), 6)]
    assert sizes == [2, 2, 2, 1]


def test_a_node_that_does_not_answer_is_asked_last_from_then_on() -> None:
    with ListeningNode(chunks_of(1)) as node, socket.create_server((HOST, 0)) as silent:
        dead = replace(node.settings, port=silent.getsockname()[1], connection_timeout_s=0.3)
        reading = GroupStreams(deque([dead, node.settings]), "billing")
        for connect in (reading.open_any, lambda: reading.open("s")):
            reading.settings = deque([dead, node.settings])
            connect().close()
            assert reading.settings[0] == node.settings


def test_a_group_names_its_connection_and_hides_its_password() -> None:
    group = StreamGroup(
        URL, streams=["a", "b", "a"], name="billing", member="pod-7", timing=GroupTiming(hook_s=50)
    )
    assert group.streams == ("a", "b")
    assert (group.held, group.missing) == ((), 0)
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

    with pytest.raises(errors.InputError, match=r"async with StreamGroup\(\.\.\.\) as group"):
        await group.run(handle)
    with pytest.raises(errors.InputError, match="which is not async"):
        await group.run(lambda *_: None)  # type: ignore[arg-type]


async def test_a_lost_stream_is_consumed_again_and_a_refused_one_ends_the_session() -> None:
    stage = ScriptedStage()
    stage.connection.channels_fail_alone = True
    lines = stage.connection.lines
    async with stage.running() as running:
        await stage.consuming()
        for refusal in (None, errors.UnreachableError("gone")):
            count = len(lines["q.0"])
            lines["q.0"][-1]._closed(refusal)
            await eventually(lambda count=count: len(lines["q.0"]) > count, "it consumes again")  # type: ignore[misc]
        await stage.connection.deliver("q.0", 1)
        await eventually(lambda: stage.handled == [1], "it handles")
        assert len(lines["q.1"]) == 1
        lines["q.0"][-1]._closed(errors.NotFoundError("no stream 'q.0'"))
        with pytest.raises(errors.NotFoundError):
            await running


def test_several_nodes_get_the_port_of_streams_and_a_name_for_the_connection() -> None:
    nodes = [ConnectionSettings(host="a"), ConnectionSettings(host="b", connection_name="mine")]
    reading = StreamGroup(nodes, streams=["a"], name="g", member="m")._reading
    assert isinstance(reading.settings, deque)
    assert [one.connection_name for one in reading.settings] == ["rabbit-chx.stream-group.g.m", "mine"]
    assert {one.port for one in reading.settings} == {5552}


GOOD_STARTS = ("first", "last", "next", 0, 40, datetime(2026, 11, 1, tzinfo=UTC))
NAIVE = datetime(2026, 11, 1)  # noqa: DTZ001
BAD_STARTS = ("latest", "begin", "", 40.0, -1, True, np.int64(40), 1 << 64, NAIVE, b"first", ["first"])


@pytest.mark.parametrize("start", [*GOOD_STARTS, *BAD_STARTS])
async def test_what_on_gained_returns_is_checked_as_a_start_is(start: Any) -> None:
    begun: list[object] = []
    group = StreamGroup(URL, streams=["a"], name="billing", on_gained=AsyncMock(return_value=start))
    channel: Any = SimpleNamespace(begin=begun.append)
    if any(start is good for good in GOOD_STARTS):
        StreamGroup(URL, streams=["a"], name="billing", reading=GroupReading(start=start))
        await group._take_over(StreamBatch("a", channel))
        assert (begun, group._reading.failed_starts) == ([start], {})
    else:
        with pytest.raises(errors.InputError) as refusal:
            StreamGroup(URL, streams=["a"], name="billing", reading=GroupReading(start=start))
        with pytest.raises(errors.InputError, match="on_gained returned") as raised:
            await group._take_over(StreamBatch("a", channel))
        assert f"{refusal.value}" in f"{raised.value}"
        assert (begun, group._reading.failed_starts) == ([], {"a": 1})


async def test_on_gained_that_goes_on_although_it_is_cancelled_has_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rabbit_chx.consuming.settings.CANCELLED_S", 0.05)
    is_over = asyncio.Event()

    async def goes_on(_: str) -> None:
        while not is_over.is_set():
            with suppress(asyncio.CancelledError):
                await is_over.wait()

    group = StreamGroup(
        URL, streams=["a"], name="billing", on_gained=goes_on, timing=GroupTiming(hook_s=0.05)
    )
    channel: Any = SimpleNamespace()
    taking = asyncio.ensure_future(group._take_over(StreamBatch("a", channel)))
    await asyncio.wait({taking}, timeout=8)
    is_over.set()
    with pytest.raises(TimeoutError, match="goes on although it was cancelled"):
        await taking
    assert group._reading.failed_starts == {"a": 1}


async def test_an_election_is_not_a_handled_batch() -> None:
    stage = ScriptedStage(journal=None)
    stage.connection.has_priorities = False
    stage.session.handle = lambda _: asyncio.sleep(0)
    async with stage.running():
        await stage.consuming()
        runner, line = stage.runners[0], stage.connection.lines["q.0"][-1]
        line.take(DeliveredMessage(0, "", StreamBatch("q.0", cast("Any", line))))
        await eventually(lambda: line.acked == [0], "the election is handled")
        assert runner.handled_at is None
        rows = pa.RecordBatch.from_pydict({"offset": [0]})
        line.take(DeliveredMessage(1, "", StreamBatch("q.0", cast("Any", line), rows)))
        await eventually(lambda: line.acked == [0, 1], "the batch is handled")
        assert runner.handled_at is not None


if __name__ == "__main__":
    write_stories(STORIES, lambda how: refusals(CALLS[how]))
