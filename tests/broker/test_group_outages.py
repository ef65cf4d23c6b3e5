"""A group whose broker goes away and comes back, and a queue that stands until it does."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import time

import group_members
import pytest
from group_members import consuming
from group_stage import GroupStage, eventually

from rabbit_chx.testing import RunningBroker

pytestmark = [
    pytest.mark.broker,
    pytest.mark.restarts,
    pytest.mark.chx_broker(restartable=True),
    pytest.mark.timeout(300),
]


def connections(broker: RunningBroker) -> set[str]:
    return set(broker.run("rabbitmqctl", "-q", "list_connections", "pid").splitlines())


@pytest.mark.slow
def test_a_queue_that_exists_until_the_node_restarts(
    broker: RunningBroker, vhost_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """RabbitMQ 4.3.6 keeps a consumer that was outranked and killed while it held messages."""
    stage = GroupStage(vhost_url, ["q.0"])
    stage.declare()
    stage.publish(20)
    with subprocess.Popen(
        [sys.executable, group_members.__file__, vhost_url, "dead", "q.0", "1"], stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"holds\n"
        with consuming(vhost_url, "above", {"q.0": 5}):
            before = connections(broker)
            holder.kill()
            holder.wait()
            deadline = time.monotonic() + 60
            while connections(broker) == before:
                assert time.monotonic() < deadline, "the broker does not notice that the process is dead"
            time.sleep(1)  # it takes its messages back, if it does

    async def story() -> None:
        async with stage.member("a") as group:
            await eventually(
                lambda: "restart the node that leads the queue" in caplog.text, "the cure is named"
            )
            assert not group.held
            await asyncio.to_thread(broker.restart)
            await eventually(stage.all_handled, "all is handled")

    with caplog.at_level(logging.WARNING, "rabbit_chx"):
        asyncio.run(story())
    assert "q.0: 19 messages wait and none is delivered: consuming it again" in caplog.text
