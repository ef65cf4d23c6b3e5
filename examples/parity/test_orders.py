"""Is each of our orders in the queue that we predict? Run this with `pytest examples/parity --chx-broker 4.3`."""

import pika

from rabbit_chx import Broker, HashRing, Publisher
from rabbit_chx.testing import RunningBroker

BINDINGS = [("orders.1", 1), ("orders.2", 1), ("orders.3", 2)]
KEYS = [f"customer-{number}" for number in range(1_000)]


def test_each_order_is_where_we_predict(chx_vhost: RunningBroker) -> None:
    with Broker(chx_vhost.url) as broker:
        broker.declare("orders", BINDINGS)
        ring = HashRing.from_bindings(BINDINGS, release=broker.release)
    with Publisher(chx_vhost.url, exchange="orders") as publisher:
        publisher.publish_many(KEYS, [b"{}"] * len(KEYS))
    arrived = []
    with pika.BlockingConnection(pika.URLParameters(chx_vhost.url)) as connection:
        channel = connection.channel()
        for queue, _ in BINDINGS:
            while (message := channel.basic_get(queue, auto_ack=True))[0]:
                arrived.append((message[0].routing_key, queue))
    assert sorted(arrived) == sorted((key, ring.destination_for(key)) for key in KEYS)
