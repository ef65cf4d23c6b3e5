"""A group on a broker that refuses its journal, a stream: the group says what to do, and declares nothing."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from typing import Any
from unittest.mock import AsyncMock

import pytest
from found_broker import need
from group_stage import QUICK, GroupStage, eventually
from pika.adapters.blocking_connection import BlockingChannel

from rabbit_chx import ConsumerGroup
from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.broker.management import Management
from rabbit_chx.consuming.journal import JOURNAL
from rabbit_chx.errors import BrokerRefusedError, MismatchError
from rabbit_chx.testing import RunningBroker, temporary_vhost
from rabbit_chx.testing.containers import SERVE, ContainerServer, official_image

pytestmark = [pytest.mark.broker, pytest.mark.timeout(240)]

#: By release, how a broker is configured that refuses every stream.
WITHOUT_STREAMS = {
    "4.3": "echo 'queue_types.stream.enabled = false' >/etc/rabbitmq/conf.d/99-streams.conf",
    "3.10": "export RABBITMQ_FEATURE_FLAGS=quorum_queue,implicit_default_bindings,maintenance_mode_status",
}
REMEDY = r"The group's journal is the stream 'rabbit-chx\.groups'.* pass journal=None: messages then have no generation"


def request(vhost: RunningBroker, method: str, kind: str, *names: str, **body: object) -> Any:
    """Ask the management API for something of a vhost."""
    of_vhost = ConnectionSettings.from_uri(vhost.url).vhost
    return Management(str(vhost.management_url)).request(method, kind, of_vhost, *names, body=body or None)


def queues_of(vhost: RunningBroker) -> dict[str, str]:
    """The type of each queue of a vhost, by name."""
    found: list[dict[str, Any]] = request(vhost, "GET", "queues")
    return {queue["name"]: queue["arguments"].get("x-queue-type", "classic") for queue in found}


@pytest.fixture
def stage(vhost: RunningBroker) -> GroupStage:
    made = GroupStage(vhost.url, ["q.0", "q.1"])
    made.declare()
    return made


@pytest.fixture(scope="module", params=WITHOUT_STREAMS)
def without_streams(request: pytest.FixtureRequest) -> Iterator[RunningBroker]:
    """A broker that was configured to refuse streams."""
    need("docker")
    image, server = official_image(request.param), ContainerServer(f"rabbit-chx-{secrets.token_hex(6)}")
    try:
        server.create(image, f"{WITHOUT_STREAMS[request.param]}\n{SERVE}")
        yield server.broker(image)
    finally:
        server.remove()


def enter(stage: GroupStage) -> None:
    async def story() -> None:
        async with stage.member("a"):
            pass

    asyncio.run(story())


@pytest.mark.docker
def test_a_broker_that_refuses_streams(without_streams: RunningBroker) -> None:
    with temporary_vhost(without_streams) as vhost:
        stage = GroupStage(vhost.url, ["q.0", "q.1"])
        stage.declare()
        with pytest.raises(BrokerRefusedError, match=rf"541 .*feature flag is disabled.*{REMEDY}"):
            enter(stage)
        assert queues_of(vhost) == {"q.0": "quorum", "q.1": "quorum"}

        async def follow_the_remedy() -> None:
            stage.publish(10)
            async with stage.member("a") as a:
                await eventually(stage.all_handled, "all is handled")
                assert a.healthy()

        stage.journal = None
        asyncio.run(follow_the_remedy())
        assert queues_of(vhost) == {"q.0": "quorum", "q.1": "quorum"}


def test_a_group_that_cannot_run_declares_no_journal(
    stage: GroupStage, vhost: RunningBroker, bare_channel: BlockingChannel
) -> None:
    """The vhost has as many queues as it may, and then one that is not fit."""
    request(vhost, "PUT", "vhost-limits", "max-queues", value=2)
    with pytest.raises(BrokerRefusedError, match=rf"406 .*queue limit.*raise the limit.*{REMEDY}"):
        enter(stage)
    request(vhost, "PUT", "vhost-limits", "max-queues", value=9)
    bare_channel.queue_declare("classic", durable=True)
    stage.queues.append("classic")
    with pytest.raises(MismatchError, match="queue 'classic'"):
        enter(stage)
    assert set(queues_of(vhost)) == {"q.0", "q.1", "classic"}


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_journal_that_is_not_a_stream(stage: GroupStage, bare_channel: BlockingChannel, kind: str) -> None:
    """As one that was declared without a type, where quorum is the default queue type."""

    async def story() -> None:
        async with ConsumerGroup(stage.url, stage.queues, member="a", timing=QUICK) as group:
            await asyncio.wait_for(group.run(AsyncMock(side_effect=AssertionError)), 30)

    bare_channel.queue_declare(JOURNAL, durable=True, arguments={"x-queue-type": kind})
    with pytest.raises(MismatchError, match=rf"406 .*x-stream-offset.* of queue type.*{REMEDY}"):
        asyncio.run(story())


@pytest.mark.chx_broker(">=4")
def test_the_journal_is_a_stream_where_quorum_is_the_default(stage: GroupStage, vhost: RunningBroker) -> None:
    """As on Amazon MQ from 4.2 on, which has no streams: here the type that is named in the declaration counts."""
    request(vhost, "PUT", "vhosts", default_queue_type="quorum")
    enter(stage)
    assert queues_of(vhost)[JOURNAL] == "stream"
