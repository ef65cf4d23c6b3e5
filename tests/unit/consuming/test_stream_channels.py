"""How a member of a group of streams subscribes, takes over, stores offsets and releases, at moments that a test chooses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
from stream_group_world import GROUP, TIMING, URL, GroupWorld

from rabbit_chx import errors
from rabbit_chx.consuming.stream_channels import GroupStreams, StreamChannel, SubscribedStream
from rabbit_chx.consuming.stream_connection import StreamGroupConnection
from rabbit_chx.streams.frames import Code, Key
from rabbit_chx.streams.log_lookup import ChunkFinder, LogEnd
from rabbit_chx.streams.nodes import settings_of


def stores(world: GroupWorld) -> list[int]:
    """The offsets that were stored, each once."""
    return list(dict.fromkeys(store.offset for store in world.node.stores))


def batches(world: GroupWorld) -> list[list[int]]:
    """The offsets of the batches that were handled."""
    return [call.offsets for call in world.calls if call.ended]


# -- batches and their offsets


async def test_batch_rows_splits_a_chunk_and_the_offset_of_each_part_is_stored(world: GroupWorld) -> None:
    world.node.publish("s", 7)
    async with world.joined(batch_rows=3, before=lambda _: asyncio.sleep(1.5)):
        await world.until(world.is_all_handled, "all is handled")
    assert batches(world) == [[0, 1, 2], [3, 4, 5], [6]]
    assert stores(world) == [2, 5, 6]


async def test_a_handler_that_fails_for_good_leaves_its_batch_to_the_next_member(world: GroupWorld) -> None:
    world.node.publish("s", 2)

    failing = world.member("a", retries=1, before=AsyncMock(side_effect=ValueError("I cannot")))
    with pytest.raises(errors.HandlerError, match="for the offsets 0 to 1 at the last of 2 attempts"):
        await failing.end()
    world.members.clear()
    assert world.node.stores == []
    async with world.joined("b"):
        await world.until(world.is_all_handled, "the next member has it")
    assert batches(world) == [[0, 1]]


async def test_an_offset_is_stored_when_the_handler_has_returned_and_once(world: GroupWorld) -> None:
    async with world.joined(before=lambda _: asyncio.sleep(0.05)):
        for count in range(1, 5):
            world.node.publish("s", 100)
            await world.until(world.is_all_handled, "it is handled")
            await asyncio.sleep(1)
            assert stores(world) == [call.offsets[-1] for call in world.calls]
            assert len(world.node.stores) == count


async def test_missing_rows_are_counted_over_all_losses(world: GroupWorld) -> None:
    async with world.joined(on_missing="count") as member:
        for expected in (3, 6):
            world.node.publish("s", 3)
            world.node.publish("s", 1)
            del world.node.logs["s"].chunks[-2]  # a number of a chunk that was not delivered
            await world.until(lambda: world.node.rows_of("s")[-1] in world.handled("s"), "it is handled")
            assert member.group.missing == expected
            await asyncio.sleep(3)


# -- where a member starts


async def test_a_stream_that_was_read_to_its_end_is_taken_over_at_once(world: GroupWorld) -> None:
    world.node.publish("s", 4)
    del world.node.logs["s"]  # no chunks of stored offsets follow
    world.node.logs["s"] = world.node.streams["s"]  # type: ignore[assignment]
    world.node.offsets[GROUP, "s"] = 3
    world.skipped = set(range(4))
    async with world.joined() as member:
        await world.until(lambda: member.group.held, "it has the stream", 10)
        await asyncio.sleep(1)
        began = world.threads.now
        world.node.publish("s", 1)
        await world.until(lambda: world.calls, "it is handled")
        assert world.threads.now - began < 1
    assert batches(world) == [[4]]


@pytest.mark.parametrize(
    ("start", "first"), [("first", 20), ("last", 40), (25, 25), (None, 33)], ids=lambda each: f"{each}"
)
async def test_what_on_gained_returns_is_where_it_starts(world: GroupWorld, start: Any, first: int) -> None:
    """Rows before it are not handled, though they are in its chunk. Nothing is stored before a row is handled, as an offset is stored already."""
    for _ in range(5):
        world.node.publish("s", 10)
    world.node.logs["s"].remove(2)
    world.node.offsets[GROUP, "s"] = 32
    world.skipped = set(range(50))

    gain = AsyncMock(return_value=start)
    async with world.joined(gain=gain, before=lambda _: asyncio.sleep(3)) as member:
        await world.until(lambda: world.calls, "it handles")
        await asyncio.sleep(1)
        assert world.node.stores == []
        await world.until(lambda: 49 in world.handled("s"), "all is handled")
        assert member.group.missing == 0
    assert batches(world)[0][0] == first


async def test_a_start_that_on_gained_returns_needs_no_rows_that_retention_has_removed(
    world: GroupWorld,
) -> None:
    """Without it rows are missing: no position is stored, and a position that retention removes looks like none."""
    world.node.publish("s", 10)
    world.node.publish("s", 10)
    world.node.logs["s"].remove(1)

    async with world.joined(gain=AsyncMock(return_value="first")):
        await world.until(world.is_all_handled, "all is handled")
    world.node.offsets.clear()
    late = world.member("late")
    with pytest.raises(errors.MissingRowsError, match="begins at offset 10, and has no position"):
        await late.end()


async def test_a_member_that_dies_before_its_first_row_leaves_it_to_the_next(world: GroupWorld) -> None:
    """``next`` is resolved once, and stored."""
    world.node.publish("s", 10)
    world.skipped = set(range(10))
    first = world.member("first", start="next")
    await world.until(lambda: world.node.offsets, "it is stored")
    assert world.node.offsets[GROUP, "s"] == 9
    await first.kill()
    world.node.publish("s", 2)
    async with world.joined("second", start="next"):
        await world.until(lambda: world.calls, "it handles")
    assert len(batches(world)) == 1
    assert world.handled("s") == world.node.rows_of("s")[10:]


@pytest.mark.parametrize("origin", ["stored", "returned", "the start of the group"])
@pytest.mark.parametrize("rows", [0, 10])
async def test_a_start_after_the_end_is_an_error_at_once_and_in_the_log(
    world: GroupWorld, origin: str, rows: int, caplog: pytest.LogCaptureFixture
) -> None:
    """As of a stream that was made again, or of an offset that another program has stored."""
    if rows:
        world.node.publish("s", rows)
    how: dict[str, Any] = {"gain": AsyncMock(return_value=5_000)} if origin == "returned" else {}
    if origin == "stored":
        world.node.offsets[GROUP, "s"] = 4_999
    elif not how:
        how = {"start": 5_000}
    member, began = world.member("a", **how), world.threads.now
    with pytest.raises(errors.MissingRowsError, match=f"ends at offset {rows}, before the start, 5000, "):
        await member.end()
    assert world.threads.now - began < 5
    assert not member.group.healthy()
    assert "group member a ends: stream 's' ends at offset" in caplog.text
    assert world.calls == []


async def test_a_stored_offset_is_awaited_while_a_new_leader_has_rows_that_no_majority_has(
    world: GroupWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end is earlier until then. The fake would withhold the last chunk instead, which `ChunkFinder.end` awaits."""
    for _ in range(3):
        world.node.publish("s", 10)
    world.node.offsets[GROUP, "s"] = 19
    world.skipped = set(range(20))
    end = ChunkFinder.end

    def committed_end(finder: ChunkFinder, stream: str) -> LogEnd:
        return LogEnd(10, None) if world.node.withheld else end(finder, stream)

    async def gain(_: str) -> None:
        world.node.withheld = 2  # of the next connections
        monkeypatch.setattr(ChunkFinder, "end", committed_end)

    async with world.joined(gain=gain):
        await world.until(lambda: world.node.withheld, "it is elected")
        await asyncio.sleep(20)
        assert world.calls == []
        world.node.withheld = 0
        for session in world.node.open_sessions():
            session.withheld = 0
        await world.until(lambda: 29 in world.handled("s"), "it goes on after the stored offset")
    assert world.handled("s") == list(range(20, 30))


# -- hooks


async def test_an_on_gained_that_hangs_is_ended_and_called_again(world: GroupWorld) -> None:
    world.node.publish("s", 1)
    timing = replace(TIMING, hook_s=2.0)

    async def hangs_once(_: str) -> None:
        if len(world.members[0].gained) == 1:
            await asyncio.Event().wait()

    async with world.joined(timing=timing, gain=hangs_once) as member:
        await world.until(world.is_all_handled, "it is handled", 10)
        assert member.gained == ["s", "s"]


async def test_an_on_gained_that_fails_once_at_each_election_never_ends_the_group(world: GroupWorld) -> None:
    """The pauses of a stream that goes on after each loss do not grow, either."""

    async def fails_at_first(_: str) -> None:
        if len(world.members[0].gained) % 2:
            raise OSError("the store does not answer")

    async with world.joined(retries=2, gain=fails_at_first) as member:
        for count in range(1, 8):
            world.node.publish("s", 1)
            await world.until(world.is_all_handled, "it goes on", 2)
            assert len(member.gained) == 2 * count
            world.lose(world.node.reader_of("s"))
        assert member.group.reconnects == 0
    world.check()


async def test_failures_of_on_gained_are_counted_over_lost_connections(world: GroupWorld) -> None:
    async def fails(_: str) -> None:
        if len(world.members[0].gained) == 2:
            world.lose(world.node.reader_of("s"))
            await asyncio.sleep(5)
        raise OSError("the store does not answer")

    member = world.member("a", retries=1, gain=fails)
    with pytest.raises(errors.HandlerError, match="on_gained raised OSError at the last of 2 attempts"):
        await member.end()
    assert member.gained == ["s"] * 3


async def test_hooks_alternate(world: GroupWorld) -> None:
    async with world.joined("a") as a:
        await world.until(lambda: a.group.held, "it has the stream")
        async with world.joined("b") as b:
            await world.until(lambda: len(world.node.consumers[GROUP, "s"]) == 2, "the second waits")
            for count in range(1, 4):
                for owner in (a, b):
                    assert owner.group.held == ("s",)
                    world.node.move((GROUP, "s"))
                    await world.until(lambda owner=owner: not owner.group.held, "it moves")  # type: ignore[misc]
                    other = a if owner is b else b
                    await world.until(lambda other=other: other.group.held, "the other one has it")  # type: ignore[misc]
                    assert len(owner.gained) == len(owner.lost)
                assert (len(a.lost), len(b.lost)) == (count, count)


# -- losses


async def test_a_stop_while_a_handler_runs_ends_the_thread(world: GroupWorld) -> None:
    """The handler is cancelled after `stop_s`; its batch is not stored."""
    world.node.publish("s", 1)
    async with world.joined(before=lambda _: asyncio.sleep(1_000)):
        await world.until(lambda: world.calls, "it handles")
    began = world.threads.now
    await world.until(lambda: not any("stream" in name for name in world.threads.names), "it ends", 5)
    assert world.threads.now - began < 5
    assert world.node.stores == []


# -- a channel by itself


@pytest.mark.parametrize("is_abandoned", [True, False])
async def test_a_subscription_that_is_lost_before_anybody_listens_is_told_and_one_that_is_abandoned_is_not(
    *, world: GroupWorld, is_abandoned: bool
) -> None:
    heard: list[errors.RabbitChxError | None] = []
    began = world.threads.now
    channel = StreamChannel(GroupStreams(settings_of(URL), GROUP), "s", lambda _: None, lambda: None, 2.0)
    await channel.subscribed
    assert world.threads.now >= began + 2.0, "the pause before it subscribes"
    if is_abandoned:
        channel.when_closed(heard.append)
        await channel.abandon()
    else:
        world.lose(world.node.reader_of("s"))
        await asyncio.sleep(1)
        channel.when_closed(heard.append)
    assert [type(error) for error in heard] == ([] if is_abandoned else [errors.ConnectionLostError])


async def test_few_large_chunks_are_read_ahead(world: GroupWorld) -> None:
    """Also if a batch is full before it has all that have arrived."""
    for _ in range(20):
        world.node.publish("s", 60_000)  # 1.4 MB
    delivered = world.node.delivered = Mock(side_effect=lambda chunk: chunk)
    rows = 0
    with closing(SubscribedStream(GroupStreams(settings_of(URL), GROUP), "s", 0, {})) as feed:
        while rows < 20 * 60_000:
            feed.poll(1.0)
            ahead = delivered.call_count - rows // 60_000
            assert ahead <= 6, "8 MiB, and one that is taken apart"
            batch = feed.batch()
            assert batch is not None
            rows += batch.num_rows


async def test_a_chunk_of_half_the_bound_is_followed_by_the_next_one_only_at_a_wait(
    world: GroupWorld,
) -> None:
    for _ in range(2):
        world.node.publish("s", 1, size=5 << 20)
    with closing(SubscribedStream(GroupStreams(settings_of(URL), GROUP), "s", 0, {})) as feed:
        arrived = []
        for wait_s in (1.0, 0.0, 0.0, 1.0):
            feed.poll(wait_s)
            arrived.append(feed.batch() is not None)
    assert arrived == [True, False, False, True]


async def test_rows_that_are_missing_behind_a_first_chunk_are_an_error(world: GroupWorld) -> None:
    for _ in range(3):
        world.node.publish("s", 2)
    del world.node.logs["s"].chunks[1]
    with closing(SubscribedStream(GroupStreams(settings_of(URL), GROUP), "s", "first", {})) as feed:
        feed.poll(1.0)
        assert feed.batch() is not None
        feed.poll(1.0)
        with pytest.raises(errors.MissingRowsError, match="the offsets 2 to 3"):
            feed.batch()


# -- the connections of a member


@asynccontextmanager
async def connected() -> AsyncIterator[StreamGroupConnection]:
    """The connections of a member, with a patience of 5 s while nothing is subscribed."""
    connection = await StreamGroupConnection.open(GroupStreams(settings_of(URL), GROUP), 5.0)
    yield connection
    await connection.close()


def consume(connection: StreamGroupConnection) -> asyncio.Task[StreamChannel]:
    """Subscribe to `s`."""
    return asyncio.ensure_future(connection.consume_behind("s", 0, 1, "tag", lambda _: None))


async def test_a_subscription_that_is_cancelled_is_given_up(world: GroupWorld) -> None:
    """Its thread and its connection end: otherwise the broker elects it, and nobody handles the stream."""
    async with connected() as connection:
        subscribing = consume(connection)
        await asyncio.sleep(0)  # its thread begins
        subscribing.cancel()
        await asyncio.wait({subscribing})
        await asyncio.sleep(2)
        assert world.node.open_sessions() == []
        assert world.threads.names == []


async def test_closed_connections_subscribe_no_more(world: GroupWorld) -> None:
    async with connected() as connection:
        world.node.dead.add("")
        subscribing = consume(connection)
        await asyncio.sleep(1)
    await asyncio.wait({subscribing}, timeout=80)
    assert isinstance(subscribing.exception(), errors.RabbitChxError)
    world.node.dead.clear()
    count = len(world.node.sessions)
    await asyncio.sleep(20)
    assert len(world.node.sessions) == count


async def test_a_member_without_any_stream_gives_up_after_its_time(world: GroupWorld) -> None:
    member = world.member("a", reconnect_timeout_s=20.0)
    await world.until(lambda: member.group.held, "it has the stream")
    world.node.dead.add("")
    began = world.threads.now
    for session in world.node.open_sessions():
        world.lose(session)
    with pytest.raises(errors.UnreachableError, match="nobody answers"):
        await member.end()
    # The last attempt may begin shortly before the end.
    assert 20 <= world.threads.now - began <= 45
    assert not member.group.healthy()
    world.members.clear()


async def test_a_stream_that_does_not_exist_is_an_error_at_once(world: GroupWorld) -> None:
    member = world.member("a", streams=["s", "nope"])
    with pytest.raises(errors.NotFoundError, match="nope"):
        await member.end()
    assert world.node.starts == []


async def test_a_super_stream_that_may_not_be_read_names_the_permissions(world: GroupWorld) -> None:
    world.node.refused[Key.PARTITIONS] = Code.ACCESS_REFUSED
    async with connected() as connection:
        with pytest.raises(errors.AccessRefusedError, match="needs the permission read on its streams"):
            await connection.find_streams((), "orders")
