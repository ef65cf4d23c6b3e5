"""Members of a group of streams join and leave on a real broker, and the order of each stream is kept."""

from __future__ import annotations

import asyncio
from contextlib import closing
from unittest.mock import AsyncMock

import pytest
from canary import CANARY, canary_user
from declared import with_login
from group_stage import QUICK, eventually, in_order
from stream_group_stage import StreamGroupStage

from rabbit_chx import StreamGroup
from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.broker.management import Management
from rabbit_chx.consuming import FailurePolicy, stream_channels, stream_connection
from rabbit_chx.errors import MissingRowsError, NotFoundError, RabbitChxError
from rabbit_chx.streams.nodes import open_any, settings_of
from rabbit_chx.testing import RunningBroker

pytestmark = [pytest.mark.broker, pytest.mark.chx_broker(">=3.11")]


@pytest.fixture
def stage(vhost: RunningBroker) -> StreamGroupStage:
    made = StreamGroupStage(vhost.stream_url, [f"s.{number}" for number in range(6)])
    made.declare()
    made.most_reconnects = 0
    return made


@pytest.mark.core
def test_members_that_join_and_leave_move_only_what_must_move(stage: StreamGroupStage) -> None:
    """Nothing is lost or repeated, each stream keeps its order, and the shares are even."""
    gained: list[str] = []

    async def on_gained(stream: str) -> None:
        gained.append(stream)

    async def story() -> None:
        stage.publish(100)
        async with stage.member("a") as a:
            await eventually(lambda: len(a.held) == 6, "the first member has every stream")
            async with stage.member("b", on_gained=on_gained) as b:
                await eventually(lambda: len(a.held) == len(b.held) == 3, "each has its half")
                assert a.healthy().connected
                assert a.healthy().handled_at is not None
                await eventually(lambda: a.healthy() and b.healthy(), "no stream changes hands any more")
                await eventually(lambda: sorted(gained) == sorted(b.held), "three streams move, once each")
                await asyncio.to_thread(stage.publish, 100)
                async with stage.member("c") as c:
                    before = set(a.held), set(b.held)
                    await eventually(lambda: [len(each.held) for each in (a, b, c)] == [2, 2, 2], "thirds")
                    kept = set(a.held), set(b.held)
                    assert kept[0] < before[0]
                    assert kept[1] < before[1]
                    await asyncio.to_thread(stage.publish, 100)
                    await eventually(stage.all_handled, "all is handled")
                await eventually(lambda: len(a.held) == len(b.held) == 3, "halves again")
                assert kept[0] < set(a.held), "what the others had stays"
                assert kept[1] < set(b.held), "what the others had stays"
            await eventually(lambda: len(a.held) == 6, "the first member has every stream again")
            await asyncio.to_thread(stage.publish, 10)
            await eventually(stage.all_handled, "all is handled")
        assert not a.healthy().connected

    asyncio.run(story())
    assert len(stage.handled) == stage.sent * 6
    assert all(in_order(handled) for handled in stage.by_queue().values())
    assert {row.member for row in stage.handled} == {"a", "b", "c"}


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


@pytest.mark.parametrize("most", [1, 4])
def test_a_limit_of_connections_that_lasts_is_a_warning_and_ends_the_run(
    vhost: RunningBroker, most: int, caplog: pytest.LogCaptureFixture
) -> None:
    """With four connections it has both streams for a moment each time, and no further one for its journal."""
    stage = StreamGroupStage(vhost.stream_url, ["s.0", "s.1"])
    stage.declare()
    management = Management(str(vhost.management_url))

    async def story(url: str) -> None:
        failures = FailurePolicy(reconnect_timeout_s=6.0)
        async with StreamGroup(
            url, streams=stage.queues, name="g", member="m", timing=QUICK, failures=failures
        ) as group:
            with pytest.raises(RabbitChxError, match="limits of connections; gave up after"):
                await asyncio.wait_for(group.run(AsyncMock()), 120)

    of_vhost = ConnectionSettings.from_uri(vhost.url).vhost
    with canary_user(management, of_vhost, configure=".*", write=".*", read=".*") as user:
        management.put("user-limits", user, "max-connections", body={"value": most})
        asyncio.run(story(with_login(vhost.stream_url, user, CANARY)))
    warnings = [
        record.getMessage() for record in caplog.records if record.name == "rabbit_chx.consuming.waits"
    ]
    assert any("limits of connections" in warning for warning in warnings)
