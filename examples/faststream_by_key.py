"""A FastStream application that handles messages in the order of their keys, as a member of a ConsumerGroup.

python examples/faststream_by_key.py handles messages, in any number of processes.
python examples/faststream_by_key.py publish publishes 200 messages and prints the queue of each.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from faststream import FastStream
from faststream.rabbit import ExchangeType, RabbitBroker, RabbitExchange

from rabbit_chx import ConsumerGroup, Topology
from rabbit_chx.consuming import GroupMessage

URL = os.environ.get("AMQP_URL", "amqp://localhost")
RING = Topology.from_file(Path(__file__).with_name("frameworks.toml")).ring("orders")
ORDERS = RabbitExchange("orders", type=ExchangeType.X_CONSISTENT_HASH, declare=False)

broker = RabbitBroker(URL)


async def handle(message: GroupMessage) -> None:
    """Handle an order: print the queue, the key and the number. `broker` publishes what follows from it."""
    print(message.queue, message.routing_key, message.body.decode(), flush=True)


@asynccontextmanager
async def group_of_queues() -> AsyncIterator[None]:
    """Handle messages while the application runs. End the application if the group fails."""
    async with ConsumerGroup(URL, RING) as group:
        running = asyncio.create_task(group.run(handle))
        running.add_done_callback(lambda _: app.exit())
        yield
        group.stop()
        await running


app = FastStream(broker, lifespan=group_of_queues)


async def publish_orders() -> None:
    """Publish 200 orders, each with its customer as the key."""
    async with broker:
        for order in range(200):
            customer = f"customer-{order % 20}"
            await broker.publish(order, exchange=ORDERS, routing_key=customer, mandatory=True, persist=True)
            print(RING.destination_for(customer), customer, order)


if __name__ == "__main__":
    asyncio.run(publish_orders() if sys.argv[1:] == ["publish"] else app.run())
