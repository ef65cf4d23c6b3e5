"""A group whose connection is cut, or whose user may not do everything."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import pika
import pytest
from group_stage import QUICK, GroupStage, eventually, in_order, nothing_was_skipped
from publishing_support import through

from rabbit_chx import ConsumerGroup
from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.broker import pika_parameters
from rabbit_chx.broker.management import Management
from rabbit_chx.consuming import GroupMessage
from rabbit_chx.consuming.channels import GroupConnection
from rabbit_chx.consuming.ownership import DeliveredMessage
from rabbit_chx.errors import AccessRefusedError, ConnectionLostError, NotFoundError
from rabbit_chx.testing import RunningBroker

pytestmark = pytest.mark.broker

#: A group that takes nobody for gone and no queue for stuck, even where this process gets little of a core.
PATIENT = replace(QUICK, gone_s=30.0, watch_s=10.0, stop_s=60.0)


@pytest.fixture
def stage(vhost_url: str) -> GroupStage:
    made = GroupStage(vhost_url, ["q.0", "q.1"])
    made.declare()
    return made


@pytest.fixture
def management(broker: RunningBroker) -> Management:
    if broker.management_url is None:
        pytest.fail("this needs the management plugin")
    return Management(broker.management_url)


@pytest.mark.core
def test_a_member_whose_connection_is_cut(stage: GroupStage, management: Management) -> None:
    """What it held comes again, in order, and nothing is lost."""
    vhost = ConnectionSettings.from_uri(stage.url).vhost

    def cut() -> int:
        """How many were cut: the list has connections that have ended meanwhile."""
        count = 0
        for connection in management.request("GET", "vhosts", vhost, "connections"):
            with suppress(NotFoundError):
                management.request("DELETE", "connections", connection["name"])
                count += 1
        return count

    async def story() -> None:
        stage.publish(100)
        async with stage.member("a", pause_s=0.002) as group:
            await eventually(lambda: len(group.held) == 2, "it has both queues")
            for _ in range(150):  # the list lags some seconds behind
                if await asyncio.to_thread(cut):
                    break
                await asyncio.sleep(0.1)
            await eventually(lambda: group.reconnects == 1, "it connects again")
            await asyncio.to_thread(stage.publish, 50)
            await eventually(stage.all_handled, "all is handled")

    asyncio.run(story())
    assert nothing_was_skipped(stage)


def test_a_group_whose_connections_are_closed_again_and_again(
    stage: GroupStage, proxy: Callable[[], Any]
) -> None:
    """Whatever is under way at that moment: a claim, a consume, a handler."""
    ways = [proxy() for _ in range(2)]

    async def story() -> None:
        async with (
            stage.member("a", 0.001, url=through(stage.url, ways[0].port)) as a,
            stage.member("b", 0.001, url=through(stage.url, ways[1].port)) as b,
        ):
            with stage.load():
                await eventually(lambda: len(stage.handled) > 50, "they handle messages")
                for _ in range(10):
                    for way in ways:
                        way.cut()
                    handled = len(stage.handled)
                    await eventually(
                        lambda handled=handled: len(stage.handled) > handled + 20,  # type: ignore[misc]
                        "somebody goes on at once",
                        bound_s=10.0,
                    )
            await eventually(stage.all_handled, "all is handled")
            assert a.reconnects + b.reconnects >= 10

    asyncio.run(story())
    assert nothing_was_skipped(stage)


def test_a_journal_that_is_deleted(stage: GroupStage) -> None:
    """The members make a new one, and go on."""

    async def story() -> None:
        async with stage.member("a") as a, stage.member("b") as b:
            await eventually(lambda: len(a.members) == len(b.members) == 2, "both know of each other")
            with pika.BlockingConnection(pika_parameters(stage.url)) as connection:
                connection.channel().queue_delete("rabbit-chx.groups")
            await eventually(lambda: a.reconnects and b.reconnects, "they connect again")
            await eventually(lambda: len(a.members) == len(b.members) == 2, "both know of each other again")
            with stage.load():
                await eventually(partial(has_queues, a, 1), "a has its share")
                await eventually(partial(has_queues, b, 1), "and so has b")
            await eventually(stage.all_handled, "all is handled")

    asyncio.run(story())
    assert nothing_was_skipped(stage)


def test_a_broker_that_does_not_come_back(stage: GroupStage, proxy: Callable[[], Any]) -> None:
    """The waits grow, and the group gives up in time, also where it had handled messages."""
    way = proxy()

    async def handle(message: GroupMessage) -> None:
        handled.append(message.body)

    async def story() -> None:
        url = through(stage.url, way.port)
        async with ConsumerGroup(
            url, stage.queues, member="a", pace=QUICK, reconnect_timeout_s=1.0, reconnect_backoff_s=0.1
        ) as group:
            running = asyncio.create_task(group.run(handle))
            await eventually(lambda: len(handled) == 6, "it handles messages")
            way.close()
            with pytest.raises(ConnectionLostError, match=r"gave up after \d attempts"):
                async with asyncio.timeout(30):
                    await running

    handled: list[bytes] = []
    stage.publish(3)
    asyncio.run(story())


def has_queues(group: ConsumerGroup, count: int) -> bool:
    return len(group.held) == count


def test_a_member_that_leaves_under_load_logs_no_error(
    stage: GroupStage, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        with stage.load(500):
            for _ in range(3):
                async with stage.member("a", prefetch=1000) as group:
                    await eventually(partial(has_queues, group, 2), "it has both queues")

    with caplog.at_level(logging.INFO):
        asyncio.run(story())
    assert [record.getMessage()[:200] for record in caplog.records if record.levelno >= logging.ERROR] == []
    assert all(in_order(handled) for handled in stage.by_queue().values())


def test_many_queues_change_hands_at_once_under_load(
    vhost_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The end of a channel gets lost in aiormq 7.2.4 where much is written at that moment."""
    stage = GroupStage(vhost_url, [f"q.{number}" for number in range(40)])
    stage.declare(**{"x-delivery-limit": -1})

    async def story() -> None:
        async with stage.member("a", prefetch=100, pace=PATIENT) as a:
            with stage.load(most_waiting=100):
                for name in ("b", "c", "d"):
                    async with stage.member(name, prefetch=100, pace=PATIENT) as guest:
                        await eventually(partial(has_queues, a, 20), "a has let go of half of the queues")
                        await eventually(partial(has_queues, guest, 20), "the guest has them")
                        assert guest.reconnects == 0
                    await eventually(partial(has_queues, a, 40), "a has all queues again")
            await eventually(stage.all_handled, "all is handled")
            assert a.reconnects == 0

    with caplog.at_level(logging.WARNING, "rabbit_chx"):
        asyncio.run(story())
    assert [record.getMessage() for record in caplog.records if record.name.startswith("rabbit_chx")] == []
    assert len(stage.handled) == stage.sent * 40, "nothing is repeated"
    assert all(in_order(handled) for handled in stage.by_queue().values())


def test_the_number_of_a_channel_that_ended_is_not_used_at_once(stage: GroupStage) -> None:
    """It would be opened before its end is confirmed, and the broker ends the connection with 541."""

    async def story() -> list[int]:
        connection = await GroupConnection.open(ConnectionSettings.from_uri(stage.url))
        numbers = []
        for _ in range(3):
            line = await connection.consume_behind("q.0", 0, 1, "tag", noted.append)
            numbers.append(line._channel.number)
            await line.abandon()
        await connection.close()
        return numbers

    noted: list[DeliveredMessage] = []
    numbers = asyncio.run(story())
    assert len(set(numbers)) == 3, numbers


@pytest.fixture
def restricted(stage: GroupStage, management: Management) -> Iterator[str]:
    """The URL of a user that may declare nothing, and use the queues and the default exchange."""
    settings = ConnectionSettings.from_uri(stage.url)
    name = f"reader-{settings.vhost}"
    management.request("PUT", "users", name, body={"password": "p", "tags": ""})
    may = {"configure": "", "write": "^(amq\\.default|)$", "read": "^(q\\..*|rabbit-chx\\.groups)$"}
    management.request("PUT", "permissions", settings.vhost, name, body=may)
    yield f"amqp://{name}:p@{settings.host}:{settings.port}/{settings.vhost}"
    management.request("DELETE", "users", name)


def test_a_user_who_may_not_declare_the_journal(stage: GroupStage, restricted: str) -> None:
    async def handle(message: GroupMessage) -> None:
        handled.append(message.body)

    async def run() -> None:
        async with ConsumerGroup(restricted, stage.queues, member="r", pace=QUICK) as group:
            running = asyncio.create_task(group.run(handle))
            waiting = asyncio.create_task(eventually(lambda: len(handled) == 2, "it handles messages"))
            await asyncio.wait([running, waiting], return_when=asyncio.FIRST_COMPLETED)
            group.stop()
            await running
            await waiting

    async def elsewhere() -> None:
        async with stage.member("a") as group:
            await eventually(lambda: len(group.members) == 1, "the journal is there")

    handled: list[bytes] = []
    with pytest.raises(
        AccessRefusedError,
        match=r"journal is the stream 'rabbit-chx\.groups': the user needs .* configure where",
    ):
        asyncio.run(run())
    asyncio.run(elsewhere())
    stage.publish(1)
    asyncio.run(run())
    assert handled == [b"0", b"0"]
