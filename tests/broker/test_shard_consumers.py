"""Consumers of a sharded exchange on a real broker: of each shard by its name, and of the exchange's own name."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from publishing_support import through
from sharded import LOOK_EVERY_S, Handled, applied, found, in_a_loop, published, running, sharded, until

from rabbit_chx import Broker, Topology
from rabbit_chx.consuming import PseudoQueueConsumer, ShardConsumer
from rabbit_chx.consuming.message import ShardMessage
from rabbit_chx.errors import MismatchError, NotFoundError
from rabbit_chx.testing import RunningBroker
from rabbit_chx.topology import ExchangeDefinition, QueueDefinition

pytestmark = pytest.mark.broker


@pytest.fixture
def images(vhost: RunningBroker) -> Iterator[Callable[..., ShardConsumer]]:
    """Makes a consumer of the shards of `images`."""
    with Broker(vhost.url, vhost.management_url) as broker:
        how: Any = {"look_every_s": LOOK_EVERY_S}
        yield lambda url=vhost.url, **more: ShardConsumer(url, "images", broker.sharding, **how, **more)


@in_a_loop
async def test_all_shards_are_consumed_and_followed(
    vhost: RunningBroker, images: Callable[..., ShardConsumer]
) -> None:
    handled = Handled()
    names = await sharded(vhost, 2)
    await published(vhost.url, 0, 500)
    consumer = images(prefetch=20)
    async with running(consumer, handled):
        await until(lambda: handled.count == 500)
        assert handled.queues == set(names) == set(consumer.queues)
        assert all(bodies == sorted(bodies) for bodies in handled.bodies.values())
        names = await sharded(vhost, 4)
        await until(lambda: set(consumer.queues) == set(names))
        await published(vhost.url, 500, 500)
        await until(lambda: handled.count == 1_000)
    async with asyncio.timeout(60):  # a queue notices later that its consumer is gone
        while {(each.messages, each.consumers) for each in (await found(vhost)).shards} != {(0, 0)}:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    assert len((await found(vhost)).shards) == 4
    assert sorted(body for bodies in handled.bodies.values() for body in bodies) == list(range(1_000))
    assert handled.queues == set(names)
    assert consumer.queues == ()


@in_a_loop
async def test_a_shard_that_is_deleted_and_made_again_is_consumed_again(
    vhost: RunningBroker, images: Callable[..., ShardConsumer]
) -> None:
    first, second = await sharded(vhost, 2)
    consumer = images()
    async with running(consumer, Handled()):
        await until(lambda: consumer.queues == (first, second))
        without = Topology((), owns=("sharding: *", "shards"))
        await applied(vhost, without, allow_delete=True, allow_loss=True)
        await until(lambda: consumer.queues == ())
        await sharded(vhost, 2)
        await until(lambda: set(consumer.queues) == {first, second})


@in_a_loop
async def test_a_lost_connection_is_replaced(
    vhost: RunningBroker, images: Callable[..., ShardConsumer], proxy: Callable[[], Any]
) -> None:
    line, handled = proxy(), Handled()
    await sharded(vhost, 2)
    consumer = images(through(vhost.url, line.port))
    async with running(consumer, handled):
        await until(lambda: len(consumer.queues) == 2)
        line.cut()
        await published(vhost.url, 0, 100)
        await until(lambda: handled.count >= 100)
    assert {body for bodies in handled.bodies.values() for body in bodies} == set(range(100))


@in_a_loop
async def test_an_error_of_the_handler_ends_it_and_the_message_is_delivered_again(
    vhost: RunningBroker, images: Callable[..., ShardConsumer]
) -> None:
    seen: list[bool] = []

    async def fail(message: ShardMessage) -> None:
        seen.append(message.redelivered)
        raise LookupError(message.routing_key)

    await sharded(vhost, 1)
    await published(vhost.url, 0, 1)
    for _ in range(2):
        with pytest.raises(LookupError, match="k0"):
            await asyncio.wait_for(images().run(fail), 60)
    assert seen == [False, True]


@in_a_loop
async def test_a_shard_without_a_consumer_is_named(
    vhost: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    handled = Handled()
    names = await sharded(vhost, 3)
    consumer = PseudoQueueConsumer(vhost.url, "images", 2, look_every_s=LOOK_EVERY_S)
    with caplog.at_level(logging.WARNING, "rabbit_chx.consuming"):
        async with running(consumer, handled):
            await until(lambda: consumer.unconsumed == names[2:])
            await published(vhost.url, 0, 100)
            shards = (await found(vhost)).shards
            await until(lambda: handled.count == 100 - (shards[2].messages or 0))
    assert [shard.consumers for shard in shards] == [1, 1, 0]
    assert shards[2].messages
    (line,) = caplog.messages
    assert "1 of 3 shards of exchange 'images' on this node have no consumer (" + names[2] in line


@in_a_loop
async def test_a_consumer_is_added_for_each_new_shard(vhost: RunningBroker) -> None:
    handled = Handled()
    await sharded(vhost, 2)
    consumer = PseudoQueueConsumer(vhost.url, "images", look_every_s=LOOK_EVERY_S)
    async with running(consumer, handled):
        await until(lambda: len(consumer.queues) == 2)
        names = await sharded(vhost, 3)
        await until(lambda: len(consumer.queues) == 3)
        await published(vhost.url, 0, 100)
        await until(lambda: handled.count == 100)
        shards = (await found(vhost)).shards
    assert {shard.name: shard.consumers for shard in shards} == dict.fromkeys(names, 1)
    assert handled.queues == {"images"}


@in_a_loop
async def test_what_is_not_sharded_is_refused(vhost: RunningBroker) -> None:
    with Broker(vhost.url, vhost.management_url) as broker:
        there = Topology((ExchangeDefinition("plain"),), (QueueDefinition("queue"),))
        await applied(vhost, there)
        with pytest.raises(MismatchError, match="no policy with shards-per-node applies"):
            await ShardConsumer(vhost.url, "plain", broker.sharding).run(Handled())
    with pytest.raises(NotFoundError, match="exchange 'plain' has no shard on this node"):
        await PseudoQueueConsumer(vhost.url, "plain").run(Handled())
    with pytest.raises(MismatchError, match="'queue' is a queue and not a sharded exchange"):
        await PseudoQueueConsumer(vhost.url, "queue").run(Handled())
