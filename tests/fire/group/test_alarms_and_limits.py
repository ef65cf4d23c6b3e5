"""A group that begins during an alarm, and one that meets a limit of its user, of connections or channels."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeAlias

import pytest
from broker_alarms import disk_alarm, memory_alarm
from canary import CANARY, canary_user
from declared import with_login
from delivery_checker import Attempt, History, Judge
from group_stage import GroupStage, eventually, in_order

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.broker.management import Management
from rabbit_chx.consuming import FailurePolicy
from rabbit_chx.testing import RunningBroker

pytestmark = [
    pytest.mark.broker,
    pytest.mark.restarts,
    pytest.mark.own_broker,
    pytest.mark.timeout(300),
]

#: An alarm of a broker during a block.
Alarm: TypeAlias = Callable[[RunningBroker], AbstractContextManager[None]]
QUEUES = ["q.0", "q.1"]


def history_of(stage: GroupStage) -> History:
    """Return what was published and handled."""
    rows = [
        Attempt(number * len(QUEUES) + place, queue)
        for number in range(stage.sent)
        for place, queue in enumerate(QUEUES)
    ]
    found = {
        queue: [row.number * len(QUEUES) + QUEUES.index(queue) for row in handled]
        for queue, handled in stage.by_queue().items()
    }
    return History(rows, len(rows), found, ordered=True)


@pytest.mark.parametrize("had_members", [False, True], ids=["first start", "later start"])
@pytest.mark.parametrize("alarm", [memory_alarm, disk_alarm])
def test_a_group_that_starts_during_an_alarm_drains_its_queues(
    *,
    vhost: RunningBroker,
    broker: RunningBroker,
    alarm: Alarm,
    had_members: bool,
    caplog: pytest.LogCaptureFixture,
    record: Judge,
) -> None:
    """The alarm may end only when they are drained."""
    stage = GroupStage(vhost.url, QUEUES)
    stage.declare()

    async def story() -> None:
        if had_members:
            stage.publish(5)
            async with stage.member("a"):
                await eventually(stage.all_handled, "all is handled before")
        stage.publish(50)
        with alarm(broker):
            async with stage.member("a") as a, stage.member("b"):
                await eventually(stage.all_handled, "all is handled in the alarm")
                assert "the broker blocks publishers" in caplog.text
                assert a.healthy()
        async with stage.member("c"):
            await asyncio.to_thread(stage.publish, 10)
            await eventually(stage.all_handled, "all is handled after it")

    asyncio.run(story())
    assert len(stage.handled) == stage.sent * len(QUEUES), "nothing is repeated"
    assert all(in_order(handled) for handled in stage.by_queue().values())
    when = "began later than others" if had_members else "was the first"
    record(
        history_of(stage),
        path="ConsumerGroup",
        fault=f"{alarm.__name__.replace('_', ' ')} while a group begins, which {when}",
        promise="What waits is handled in the alarm, without claims. Nothing is lost, repeated or out of order.",
    )


@pytest.mark.parametrize("limit", ["connections", "channels"])
def test_a_limit_that_passes_stops_no_member(
    vhost: RunningBroker, limit: str, caplog: pytest.LogCaptureFixture, record: Judge
) -> None:
    """tests/broker has one that lasts, which ends the run."""
    stage = GroupStage(vhost.url, QUEUES)
    stage.declare()
    management = Management(str(vhost.management_url))
    of_vhost = ConnectionSettings.from_uri(vhost.url).vhost

    async def story(user: str) -> None:
        url, failures = with_login(vhost.url, user, CANARY), FailurePolicy(reconnect_timeout_s=60.0)
        stage.publish(20)
        async with stage.member("a", url=url, failures=failures) as member:
            await eventually(stage.all_handled, "all is handled before")
            most = {"connections": 1, "channels": 2}[limit]
            management.put("user-limits", user, f"max-{limit}", body={"value": most})
            vhost.run("rabbitmqctl", "close_all_user_connections", user, "fire")
            stage.publish(20)
            await eventually(lambda: "raise the limit" in caplog.text, "it meets the limit")
            management.delete("user-limits", user, f"max-{limit}")
            await eventually(stage.all_handled, "all is handled after it", 90.0)
            await eventually(member.healthy, "it is well")

    with canary_user(management, of_vhost, configure=".*", write=".*", read=".*") as user:
        asyncio.run(story(user))
    record(
        history_of(stage),
        path="ConsumerGroup",
        fault=f"connections closed, and a limit of {limit} of the user until the group has met it",
        promise="Warnings with the reason of the broker; every message is handled, each queue in order.",
    )
