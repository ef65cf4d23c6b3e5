"""Members of a group of streams join and leave on a real broker, and the order of each stream is kept."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import Any
from unittest.mock import AsyncMock

import pytest
from canary import CANARY, canary_user
from declared import with_login
from group_stage import QUICK, eventually, in_order
from stream_group_stage import StreamGroupStage

from rabbit_chx import StreamGroup
from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.broker.management import Management
from rabbit_chx.consuming import stream_channels, stream_connection
from rabbit_chx.errors import MissingRowsError, NotFoundError
from rabbit_chx.streams.nodes import open_any, settings_of
from rabbit_chx.testing import RunningBroker

pytestmark = [pytest.mark.broker, pytest.mark.chx_broker(">=3.13", "creating super streams")]


@pytest.fixture
def stage(vhost: RunningBroker) -> StreamGroupStage:
    made = StreamGroupStage(vhost.stream_url, [f"s.{number}" for number in range(6)])
    made.declare()
    made.most_reconnects = 0
    return made


@pytest.mark.core
def test_members_that_join_and_leave_share_the_partitions(stage: StreamGroupStage) -> None:
    """Nothing is lost or repeated, each stream keeps its order, and the shares are even, under load."""

    async def story() -> None:
        async with stage.member("a", 0.02) as a:
            with stage.load(10):
                await eventually(lambda: len(a.held) == 6, "the first member has every stream")
                async with stage.member("b", 0.02) as b:
                    await eventually(lambda: len(a.held) == len(b.held) == 3, "each has its half")
                    await eventually(lambda: a.healthy().handled_at, "it has handled a batch")
                    await eventually(lambda: a.healthy() and b.healthy(), "both are healthy")
                    async with stage.member("c", 0.02) as c:
                        await eventually(
                            lambda: [len(each.held) for each in (a, b, c)] == [2, 2, 2], "thirds"
                        )
                        await eventually(lambda: c.healthy().handled_at, "the third has handled a batch")
                    await eventually(lambda: len(a.held) == len(b.held) == 3, "halves again")
                await eventually(lambda: len(a.held) == 6, "the first member has every stream again")
            await eventually(stage.all_handled, "all is handled")
        assert not a.healthy().connected

    asyncio.run(story())
    assert len(stage.handled) == stage.sent * 6
    assert all(in_order(handled) for handled in stage.by_queue().values())
    assert {row.member for row in stage.handled} == {"a", "b", "c"}


def test_a_stream_of_no_super_stream_is_read_by_the_member_that_subscribed_first(
    stage: StreamGroupStage,
) -> None:
    """The next member is a stand-by: it goes on where the first one stopped, also after that was killed in a batch."""

    async def story() -> None:
        how: dict[str, Any] = {"super_stream": None, "streams": stage.queues}
        stage.publish(50)
        async with stage.member("a", **how) as a:
            await eventually(stage.all_handled, "all is handled")
            async with stage.member("b", **how) as b:
                await eventually(b.healthy, "it waits")
                await asyncio.to_thread(stage.publish, 50)
                await eventually(stage.all_handled, "all is handled")
                assert (len(a.held), len(b.held)) == (6, 0)
                a.stop()
                await eventually(lambda: len(b.held) == 6, "the next one has all")
                await asyncio.to_thread(stage.publish, 50)
                await eventually(stage.all_handled, "all is handled")

    asyncio.run(story())
    assert len(stage.handled) == stage.sent * 6
    assert all(in_order(handled) for handled in stage.by_queue().values())


def test_a_stream_that_is_deleted_and_created_again_or_not(
    stage: StreamGroupStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group goes on with a new one: the broker has deleted the offset with the stream. Without a new one it ends."""
    monkeypatch.setattr(stream_connection, "_RECREATED_S", 3.0)

    async def delete() -> None:
        with closing(open_any(settings_of(stage.url))) as connection:
            await asyncio.to_thread(connection.delete_stream, "s.0")

    async def story() -> None:
        stage.publish(20)
        async with stage.member("a") as a, stage.member("b") as b:
            await eventually(lambda: len(a.held) == len(b.held) == 3, "each has its half")
            await eventually(stage.all_handled, "all is handled")
            await delete()
            await asyncio.sleep(0.5)
            with closing(open_any(settings_of(stage.url))) as connection:
                await asyncio.to_thread(connection.create_stream, "s.0")
            await asyncio.to_thread(stage.publish, 20)
            await eventually(stage.all_handled, "all is handled")
            assert a.reconnects == b.reconnects == 0
        async with StreamGroup(stage.url, streams=stage.queues, name="late", timing=QUICK) as group:
            running = asyncio.create_task(group.run(AsyncMock()))
            await eventually(lambda: len(group.held) == 6, "it has every stream")
            await delete()
            await asyncio.wait_for(running, 60)

    with pytest.raises(NotFoundError, match=r"s\.0"):
        asyncio.run(story())


def test_a_start_after_the_end_of_the_stream(
    stage: StreamGroupStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a stream was deleted and created again: the broker would begin at the end."""
    monkeypatch.setattr(stream_channels, "_OPEN_S", 1.0)

    handle = AsyncMock()

    async def story() -> None:
        stage.publish(10)
        async with StreamGroup(
            stage.url, streams=stage.queues, name="late", timing=QUICK, on_gained=AsyncMock(return_value=99)
        ) as group:
            await asyncio.wait_for(group.run(handle), 60)

    with pytest.raises(MissingRowsError, match="ends at offset 10, before the start, 99"):
        asyncio.run(story())
    handle.assert_not_called()


def test_a_limit_of_connections_is_a_warning_until_it_allows_all_streams(
    vhost: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """It is not healthy, and has all streams once the limit allows it. A stream takes one connection, and a second one to look up its place."""
    stage = StreamGroupStage(vhost.stream_url, ["s.0", "s.1"])
    stage.declare()
    management = Management(str(vhost.management_url))
    stage.publish(10)

    def limit(most: int) -> None:
        management.put("user-limits", user, "max-connections", body={"value": most})

    async def story(url: str) -> None:
        async with stage.member("m", url=url) as group:
            await eventually(
                lambda: any("limits of connections" in each for each in caplog.messages), "it warns"
            )
            assert not group.healthy()
            await asyncio.to_thread(limit, 10)
            await eventually(stage.all_handled, "it handles both")
            await eventually(group.healthy, "it is healthy")

    of_vhost = ConnectionSettings.from_uri(vhost.url).vhost
    with canary_user(management, of_vhost, configure=".*", write=".*", read=".*") as user:
        limit(2)
        asyncio.run(story(with_login(vhost.stream_url, user, CANARY)))
