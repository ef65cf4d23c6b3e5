"""Members of a group come, go and die on a real broker, and the order stays."""

from __future__ import annotations

import asyncio
import logging
import time
from unittest.mock import AsyncMock

import pika
import pytest
from canary import CANARY, canary_user
from declared import with_login
from group_stage import QUICK, GroupStage, Handled, eventually, in_order, nothing_was_skipped
from pika.adapters.blocking_connection import BlockingChannel

from rabbit_chx import AmqpField, ConsumerGroup, HandlerError, Publisher
from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.broker import pika_parameters
from rabbit_chx.broker.management import Management
from rabbit_chx.consuming import FailurePolicy, GroupMessage
from rabbit_chx.errors import ConnectionLimitError
from rabbit_chx.publishing.encoder import Headers
from rabbit_chx.testing import RunningBroker
from rabbit_chx.topology.slots import HandOverMarker

pytestmark = pytest.mark.broker


@pytest.fixture
def stage(vhost_url: str) -> GroupStage:
    made = GroupStage(vhost_url, [f"q.{number}" for number in range(6)])
    made.declare()
    return made


def ready(stage: GroupStage, queue: str) -> int:
    with pika.BlockingConnection(pika_parameters(stage.url)) as connection:
        return int(connection.channel().queue_declare(queue, passive=True).method.message_count or 0)


def test_what_was_not_started_goes_back_to_its_place(stage: GroupStage) -> None:
    """A member that leaves holds messages that were delivered ahead. The one that waits must get them first.

    parity/test_group.py has members that handle one message at a time.
    """

    async def visit(name: str) -> None:
        stage.publish(60)
        async with stage.member(name, pause_s=0.002, concurrency=4) as guest:
            await eventually(lambda: len(guest.members) == 2, "both know of each other")
            with stage.load(20):
                await eventually(
                    lambda: sum(message.member == name for message in stage.handled) > 20, "it handles some"
                )
            await asyncio.to_thread(stage.publish, 60)

    async def story() -> None:
        async with stage.member("keeper", pause_s=0.002):
            for name in ("a", "b"):
                await visit(name)
            await eventually(stage.all_handled, "all is handled")

    asyncio.run(story())
    assert len(stage.handled) == stage.sent * 6, "nothing is repeated"


def test_stop_leaves_the_message_in_its_place(stage: GroupStage) -> None:
    async def handle(message: GroupMessage) -> None:
        if message.body == b"2":
            raise ValueError("I cannot")

    async def fail() -> None:
        failures = FailurePolicy(retries=1, backoff_s=0.01)
        async with ConsumerGroup(
            stage.url, stage.queues, member="a", timing=QUICK, failures=failures
        ) as group:
            await asyncio.wait_for(group.run(handle), 60)

    def rest() -> list[int]:
        return [message.number for message in stage.handled if message.queue == caught.value.queue]

    async def go_on() -> None:
        # The queue takes its messages back after the connection is closed.
        await eventually(lambda: ready(stage, str(caught.value.queue)) == 3, "the rest is in the queue")
        async with stage.member("b"):
            await eventually(lambda: len(rest()) >= 3, "the rest is handled")

    stage.publish(5)
    with pytest.raises(
        HandlerError, match=r"routing key 'q\.\d' .* at the last of 2 attempts \(I cannot\)"
    ) as caught:
        asyncio.run(fail())
    assert isinstance(caught.value.__cause__, ValueError)
    asyncio.run(go_on())
    assert rest() == [2, 3, 4]


def test_a_poison_message_is_dead_lettered_and_a_queue_without_an_exchange_for_it_is_named(
    stage: GroupStage, bare_channel: BlockingChannel, caplog: pytest.LogCaptureFixture
) -> None:
    bare_channel.queue_declare("dead", durable=True)
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    GroupStage(stage.url, ["with"]).declare(**arguments)
    stage.queues = ["q.0", "with"]
    stage.publish(4)

    async def handle(message: GroupMessage) -> None:
        if message.body == b"1":
            raise ValueError("I cannot")

    async def story() -> None:
        async with stage.member("a", on_failure="dead-letter", retries=0, handle=handle) as group:
            await eventually(
                lambda: ready(stage, "dead") == 1 and len(group.held) == 2, "it is dead-lettered"
            )

    with caplog.at_level(logging.WARNING, "rabbit_chx"):
        asyncio.run(story())
    assert "queue q.0 has no argument x-dead-letter-exchange" in caplog.text
    assert "queue with has no" not in caplog.text


def test_messages_that_no_client_decodes_and_a_marker_from_elsewhere_are_handled_and_cost_no_other(
    stage: GroupStage, caplog: pytest.LogCaptureFixture
) -> None:
    """Each would end the connection of every member that gets it, with the messages of all its queues, until the broker drops them."""
    with pika.BlockingConnection(pika_parameters(stage.url)) as connection:
        connection.channel().queue_bind("q.0", "amq.fanout")
    marker = {"kind": "begin", "slot": "s", "id": "1", "park": "nowhere"}
    headers: list[Headers | None] = [
        None, {b"\xff": "a name"}, {"at": AmqpField("timestamp", 1 << 60)}, {"x-delivery-count": "many"}, {HandOverMarker.HEADER: marker}, None,  # type: ignore[list-item]
    ]  # fmt: skip
    told: list[GroupMessage] = []

    async def handle(message: GroupMessage) -> None:
        told.append(message)

    async def story() -> None:
        async with stage.member("a", handle=handle) as group:
            await eventually(lambda: len(told) == 5 + 6, "all is handled")
            assert group.reconnects == 0

    with Publisher(stage.url, "amq.fanout") as publisher:
        publisher.publish_many(
            [b"\xff", *"aaaaa"],
            [str(number) for number in range(6)],
            properties={
                "headers": headers,
                "timestamp": [None] * 5 + [1_700_000_000_000_000],
                "correlation_id": [None, b"\xff", *[None] * 4],
            },
        )
    stage.publish(1)
    asyncio.run(story())
    first, *_, last = [message for message in told if message.queue == "q.0"][:5]
    assert first.routing_key.encode(errors="surrogateescape") == b"\xff"
    assert (last.body, last.properties["timestamp"]) == (b"5", 1_700_000_000_000_000)
    assert not any(message.redelivered for message in told)
    assert "its parking queue nowhere does not exist" in caplog.text


def test_a_restart_under_the_same_name_while_the_last_run_still_finishes(stage: GroupStage) -> None:
    async def story() -> None:
        stage.queues = stage.queues[:1]
        stage.publish(2)
        async with stage.member("a", pause_s=1.5) as old:
            await eventually(lambda: len(old.members) == 1, "it is ready")
            old.stop()
            async with stage.member("a") as new:
                stage.publish(10)
                await eventually(lambda: len(new.held) == 1, "the new one goes on")
                await eventually(stage.all_handled, "all is handled")

    asyncio.run(story())
    assert in_order(stage.handled)


@pytest.mark.chx_broker(
    ">=4.3", "a consumer timeout that leaves the channel open, and is checked within seconds"
)
@pytest.mark.slow
def test_a_consumer_timeout_ends_the_handler_and_the_message_returns(
    vhost: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """With the argument a member takes one message at a time, which keeps the order."""
    stage = GroupStage(vhost.url, ["q.0"])
    stage.declare(**{"x-consumer-timeout": 3000})
    cancelled: list[float] = []

    async def handle(message: GroupMessage) -> None:
        if message.body == b"50" and not cancelled:
            began = time.monotonic()
            try:
                await asyncio.sleep(60)
            finally:
                cancelled.append(time.monotonic() - began)
        generation = message.generation or 0
        stage.handled.append(Handled("q.0", int(message.body), generation, "a", message.redelivered))

    async def story() -> None:
        async with stage.member("a", prefetch=32, handle=handle):
            await asyncio.to_thread(stage.publish, 100)
            # RabbitMQ 4.3.6 may overlook a timeout until the next operation on the queue (see parity/test_returned_messages.py).
            while not stage.all_handled():
                await asyncio.sleep(2)
                await asyncio.to_thread(stage.publish, 1)
                assert stage.sent < 130, "a timeout is overlooked in spite of operations on the queue"

    asyncio.run(story())
    assert cancelled
    assert cancelled[0] < 30, "a handler ends with its consumer"
    assert nothing_was_skipped(stage)
    if caplog.text.count("the broker cancelled the consumer of 'q.0'") == 1:
        # Else this machine took as long for another message, which was handled again, too.
        assert in_order(stage.handled)


def test_acks_that_the_broker_has_not_passed_on_are_not_lost_with_the_channel(
    vhost_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A channel keeps acks back while 32 are on their way to a quorum queue, and forgets them at its end (rabbit_fifo_client, 4.3)."""
    stage = GroupStage(vhost_url, ["q.0"])
    stage.declare()
    stage.publish(4000)

    async def story() -> None:
        for enough in (1000, 2000, 3000):
            async with stage.member(f"until {enough}", prefetch=500):
                await eventually(lambda: len(stage.handled) > enough, "some are handled")  # noqa: B023
        async with stage.member("last", prefetch=500):
            await eventually(stage.all_handled, "all is handled")

    asyncio.run(story())
    assert [record.getMessage()[:200] for record in caplog.records if record.levelno >= logging.ERROR] == []
    assert len(stage.handled) == 4000
    assert in_order(stage.handled)


def test_the_reason_for_which_the_broker_closes_the_connection_is_told(
    stage: GroupStage, vhost: RunningBroker
) -> None:
    """At the second channel the broker closes the connection, and the client below knows only that it is closed."""
    management = Management(str(vhost.management_url))
    of_vhost = ConnectionSettings.from_uri(vhost.url).vhost

    async def story(url: str) -> None:
        with pytest.raises(
            ConnectionLimitError, match=r"maximum allowed user limit of \(?1\)?: open fewer channels"
        ):
            async with ConsumerGroup(url, stage.queues, member="m") as group:
                await asyncio.wait_for(group.run(AsyncMock()), 60)

    with canary_user(management, of_vhost, configure=".*", write=".*", read=".*") as user:
        management.put("user-limits", user, "max-channels", body={"value": 1})
        asyncio.run(story(with_login(vhost.url, user, CANARY)))
