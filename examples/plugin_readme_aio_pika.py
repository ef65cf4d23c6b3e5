"""The three examples of the plugin's README with aio-pika: predicted, published with confirms, and counted.

python examples/plugin_readme_aio_pika.py [by-key|by-header|by-property] [--messages COUNT]
"""

from __future__ import annotations

import asyncio
import sys
import time

import aio_pika
from plugin_readme import TOPOLOGY, compared, main

from rabbit_chx import Broker, ConsistentHashExchange
from rabbit_chx.testing import RunningBroker
from rabbit_chx.topology import plan

AT_ONCE = 500


def message(way: str, value: str) -> tuple[str, aio_pika.Message]:
    """Return the routing key and a message: what the exchange hashes is `value`."""
    match way:
        case "by-key":
            return value, aio_pika.Message(b"", delivery_mode=2)
        case "by-header":
            return "", aio_pika.Message(b"", delivery_mode=2, headers={"hash-on": value})
        case _:
            return "", aio_pika.Message(b"", delivery_mode=2, message_id=value)


def declared(broker: RunningBroker, way: str) -> ConsistentHashExchange:
    """Declare all three exchanges, and return the mirror of one. This blocks."""
    with Broker(broker.url, broker.management_url, ring_source=broker.ring_via) as live:
        live.apply(plan(TOPOLOGY, live.topology()))
        exchange = live.exchange(way)
    if not isinstance(exchange, ConsistentHashExchange):
        raise TypeError(f"{way} is not an x-consistent-hash exchange")
    return exchange


async def published(broker: RunningBroker, way: str, messages: int) -> bool:
    """Publish to the exchange `way`. Return whether each queue has as many messages as predicted."""
    exchange = await asyncio.to_thread(declared, broker, way)
    print(f"exchange {way}: {exchange.ring}")

    values = [f"value-{number}" for number in range(messages)]
    predicted = exchange.counts(values, client="aio-pika")

    async with await aio_pika.connect(broker.url) as connection:
        channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
        target = await channel.get_exchange(way)

        async def publish(value: str) -> None:
            content, routing_key = message(way, value)[::-1]
            await target.publish(
                content, routing_key, mandatory=True
            )  # raises if refused, or without a queue

        started = time.monotonic()
        # So many at a time, since each waits for its confirm. SharedPublisher.publish_many of
        # rabbit_chx gives the same guarantee with less work, as it needs no task and no future for each message.
        for first in range(0, messages, AT_ONCE):
            await asyncio.gather(*map(publish, values[first : first + AT_ONCE]))
        print(f"{messages:,} messages confirmed in {time.monotonic() - started:.1f} s")
        counted = {}
        for queue in map(str, exchange.ring.destinations):
            counted[queue] = (await channel.get_queue(queue)).declaration_result.message_count or 0
    return compared(exchange.ring, predicted, counted)


def run(broker: RunningBroker, way: str, messages: int) -> bool:
    """Do so, from code that is not asynchronous."""
    return asyncio.run(published(broker, way, messages))


if __name__ == "__main__":
    sys.exit(main(run, __doc__ or ""))
