"""The exchange `orders` of three queues, and the share of its messages that a broker returns."""

from __future__ import annotations

import pika
from exchange_types import CHX
from pika.adapters.blocking_connection import BlockingChannel
from shop import Shop

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.broker import Broker, pika_parameters
from rabbit_chx.broker.management import Management
from rabbit_chx.routing import HashRing
from rabbit_chx.testing import RunningBroker

_KEYS = 2000
_RING = [("orders.1", "1"), ("orders.2", "2"), ("orders.3", "1")]
ORDERS_FILE = """
owns = ["orders.*"]
[[exchanges]]
name = "orders"
type = "x-consistent-hash"
ring = [{ queue = "orders.1" }, { queue = "orders.2", weight = 2 }, { queue = "orders.3" }]
[[queues]]
name = "orders.{1..3}"
"""


def shop_of(broker: RunningBroker, channel: BlockingChannel) -> Shop:
    """Return a broker with what the tests of commands need."""
    management = Management(str(broker.management_url))
    return Shop(broker, management, ConnectionSettings.from_uri(broker.url), channel)


def declare_orders(channel: BlockingChannel) -> None:
    """Declare what ORDERS_FILE says."""
    channel.exchange_declare("orders", CHX, durable=True)
    for queue, weight in _RING:
        channel.queue_declare(queue, durable=True)
        channel.queue_bind(queue, "orders", weight)


def share_lost(shop: Shop, exchange: str) -> float:
    """Publish keys, and return the share that the broker returns as unroutable."""
    returned: list[object] = []
    with pika.BlockingConnection(pika_parameters(shop.broker.url)) as connection:
        channel = connection.channel()
        channel.add_on_return_callback(lambda *given: returned.append(given))
        for n in range(_KEYS):
            channel.basic_publish(exchange, f"key-{n}", b"", mandatory=True)
        channel.queue_declare("", exclusive=True)  # the returns come before its answer
        connection.process_data_events(0)
    return len(returned) / _KEYS


def live_ring(shop: Shop, exchange: str = "orders") -> HashRing:
    """Return the true ring."""
    with Broker(shop.broker.url, ring_source=shop.ring_via) as live:
        return live.ring(exchange)
