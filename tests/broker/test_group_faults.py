"""A group whose queues are deleted, or change hands while much is published."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from functools import partial
from unittest.mock import AsyncMock

import pika
import pytest
from group_stage import QUICK, GroupStage, eventually, in_order

from rabbit_chx import ConsumerGroup, Publisher
from rabbit_chx.broker import pika_parameters
from rabbit_chx.errors import NotFoundError

pytestmark = pytest.mark.broker

#: A group that takes nobody for gone and no queue for stuck, even where this process gets little of a core.
PATIENT = replace(QUICK, gone_s=30.0, watch_s=10.0, stop_s=60.0)


@pytest.fixture
def stage(vhost_url: str) -> GroupStage:
    made = GroupStage(vhost_url, ["q.0", "q.1"])
    made.declare()
    return made


def test_a_queue_is_deleted_and_declared_again(stage: GroupStage, caplog: pytest.LogCaptureFixture) -> None:
    """The member handles the others meanwhile, and that queue as soon as it exists. fire/ removes queues of a group with a journal."""
    stage.journal = None

    async def story() -> None:
        stage.publish(20)
        async with stage.member("a"):
            await eventually(stage.all_handled, "all is handled")
            await asyncio.to_thread(delete_queue, stage.url, "q.0")
            await eventually(
                lambda: "queue q.0 was deleted; it consumes 1 of 2 queues" in caplog.text,
                "it goes on without it",
            )
            with Publisher(stage.url, "numbers") as publisher:
                publisher.publish_many(["q.1"] * 10, ["0"] * 10)
            await eventually(lambda: len(stage.by_queue()["q.1"]) == 30, "all of the other queue is handled")
            await asyncio.to_thread(stage.declare)
            await asyncio.to_thread(stage.publish, 20)
            await eventually(lambda: len(stage.handled) == 40 + 50, "all is handled again")

    asyncio.run(story())


def test_all_queues_are_deleted(stage: GroupStage) -> None:
    async def story() -> None:
        async with ConsumerGroup(stage.url, stage.queues, journal=None, timing=QUICK) as group:
            running = asyncio.create_task(group.run(AsyncMock()))
            await eventually(group.healthy, "it consumes both queues")
            for queue in stage.queues:
                await asyncio.to_thread(delete_queue, stage.url, queue)
            with pytest.raises(NotFoundError, match=r"no queue 'q\.[01]'"):
                await running

    asyncio.run(story())


def delete_queue(url: str, queue: str) -> None:
    with pika.BlockingConnection(pika_parameters(url)) as connection:
        connection.channel().queue_delete(queue)


def has_queues(group: ConsumerGroup, count: int) -> bool:
    return len(group.held) == count


@pytest.mark.slow
@pytest.mark.timeout(600)  # a minute where it has a core
def test_many_queues_change_hands_at_once_under_load(
    vhost_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The end of a channel gets lost in aiormq 7.2.4 where much is written at that moment."""
    stage = GroupStage(vhost_url, [f"q.{number}" for number in range(40)])
    stage.declare(**{"x-delivery-limit": -1})

    async def story() -> None:
        async with stage.member("a", prefetch=100, timing=PATIENT) as a:
            with stage.load(most_waiting=100):
                for name in ("b", "c", "d"):
                    async with stage.member(name, prefetch=100, timing=PATIENT) as guest:
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
