"""A sharded exchange, messages for it, and a consumer that runs in a task."""

from __future__ import annotations

import asyncio
import functools
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from rabbit_chx import Broker, SharedPublisher, Topology
from rabbit_chx.consuming import PseudoQueueConsumer, ShardConsumer
from rabbit_chx.consuming.message import ShardMessage
from rabbit_chx.testing import RunningBroker
from rabbit_chx.topology import ExchangeDefinition, PolicyDefinition, plan
from rabbit_chx.topology.plugin_objects import ShardedExchange

LONGEST_S = 60
LOOK_EVERY_S = 0.2


def topology(shards: int) -> Topology:
    policy = PolicyDefinition("shards", "^images$", "exchanges", {"shards-per-node": shards})
    return Topology((ExchangeDefinition("images", "x-modulus-hash"),), policies=(policy,))


class Handled:
    """Takes messages, and remembers the bodies of each key in the order in which they came."""

    def __init__(self) -> None:
        self.bodies: dict[str, list[int]] = defaultdict(list)
        self.queues: set[str] = set()
        self.count = 0

    async def __call__(self, message: ShardMessage) -> None:
        """Take a message."""
        self.bodies[message.routing_key].append(int(message.body))
        self.queues.add(message.queue)
        self.count += 1


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test as the main task of an event loop."""

    @functools.wraps(test)
    def run(*arguments: Any, **fixtures: Any) -> None:
        asyncio.run(test(*arguments, **fixtures))

    return run


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LONGEST_S):
        while not condition():  # noqa: ASYNC110  # it is about what a broker does
            await asyncio.sleep(0.02)


async def applied(inside: RunningBroker, wanted: Topology, **allowed: Any) -> None:
    """Apply a topology over a connection of its own."""

    def apply() -> None:
        with Broker(inside.url, inside.management_url) as broker:
            broker.apply(plan(wanted, broker.topology()), **allowed)

    await asyncio.to_thread(apply)


async def found(inside: RunningBroker) -> ShardedExchange:
    """Read the exchange over a connection of its own."""

    def read() -> ShardedExchange:
        with Broker(inside.url, inside.management_url) as broker:
            return broker.sharding("images")

    return await asyncio.to_thread(read)


async def sharded(inside: RunningBroker, shards: int) -> tuple[str, ...]:
    """Declare the exchange and the policy, and return the names of the shards."""
    await applied(inside, topology(shards))
    return tuple(shard.name for shard in (await found(inside)).shards)


async def published(url: str, first: int, count: int) -> None:
    async with SharedPublisher(url, "images") as publisher:
        bodies = range(first, first + count)
        await publisher.publish_many([f"k{n % 50}" for n in bodies], [b"%d" % n for n in bodies])


@asynccontextmanager
async def running(consumer: ShardConsumer | PseudoQueueConsumer, handle: Any) -> AsyncIterator[None]:
    task = asyncio.create_task(consumer.run(handle))
    try:
        yield
        consumer.stop()
        await asyncio.wait_for(task, LONGEST_S)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
