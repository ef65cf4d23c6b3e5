"""The three examples of the plugin's README with pika: predicted, published with confirms, and counted.

python examples/plugin_readme_pika.py [by-key|by-header|by-property] [--messages COUNT]
"""

from __future__ import annotations

import sys
import time

import pika
from plugin_readme import TOPOLOGY, compared, main

from rabbit_chx import Broker, ConsistentHashExchange
from rabbit_chx.testing import RunningBroker
from rabbit_chx.topology import plan


def message(way: str, value: str) -> tuple[str, pika.BasicProperties]:
    """Return the routing key and the properties of a message: what the exchange hashes is `value`."""
    match way:
        case "by-key":
            return value, pika.BasicProperties(delivery_mode=2)
        case "by-header":
            return "", pika.BasicProperties(delivery_mode=2, headers={"hash-on": value})
        case _:
            return "", pika.BasicProperties(delivery_mode=2, message_id=value)


def run(broker: RunningBroker, way: str, messages: int) -> bool:
    """Publish to the exchange `way`. Return whether each queue has as many messages as predicted."""
    with Broker(broker.url, broker.management_url, ring_source=broker.ring_via) as live:
        live.apply(plan(TOPOLOGY, live.topology()))
        exchange = live.exchange(way)
    if not isinstance(exchange, ConsistentHashExchange):
        raise TypeError(f"{way} is not an x-consistent-hash exchange")
    print(f"exchange {way}: {exchange.ring}")

    values = [f"value-{number}" for number in range(messages)]
    predicted = exchange.counts(values)

    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        started = time.monotonic()
        # With confirms, each call waits for the broker: it raises if the message is refused, or has no queue.
        # rabbit_chx.Publisher gives the same guarantee and is many times as fast, as it does not wait for each.
        for value in values:
            routing_key, properties = message(way, value)
            channel.basic_publish(way, routing_key, b"", properties, mandatory=True)
        print(f"{messages:,} messages confirmed in {time.monotonic() - started:.1f} s")
        counted = {
            queue: channel.queue_declare(queue, passive=True).method.message_count or 0
            for queue in map(str, exchange.ring.destinations)
        }
    return compared(exchange.ring, predicted, counted)


if __name__ == "__main__":
    sys.exit(main(run, __doc__ or ""))
