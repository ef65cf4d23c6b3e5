"""The exchanges of docs/choose.md, "Move from queues to streams", give each key a queue and a stream of the same number."""

from __future__ import annotations

import pytest
from exchange_types import FANOUT
from pika.adapters.blocking_connection import BlockingChannel
from row_reader import rows_waiting

from rabbit_chx import Broker, Publisher, StreamReader
from rabbit_chx.testing import RunningBroker

pytestmark = pytest.mark.broker


@pytest.mark.chx_broker(">=3.9", "streams")
def test_a_fanout_gives_each_key_a_queue_and_the_stream_of_the_same_number(
    vhost: RunningBroker, channel: BlockingChannel
) -> None:
    keys = [f"customer-{number}" for number in range(1_000)]
    channel.exchange_declare("orders.in", FANOUT, durable=True)
    with Broker(vhost.url, vhost.management_url, ring_source=vhost.ring_via) as broker:
        for name, kind in (("orders", "quorum"), ("orders.log", "stream")):
            queues = [(f"{name}.{number}", 1) for number in range(1, 5)]
            broker.declare(name, queues, queue_arguments={"x-queue-type": kind})
            channel.exchange_bind(name, "orders.in")
        rings = [broker.ring(name) for name in ("orders", "orders.log")]
    assert rings[0].indices(keys).tolist() == rings[1].indices(keys).tolist()
    with Publisher(vhost.url, exchange="orders.in") as publisher:
        publisher.publish_many(keys, keys)
    for number in range(4):
        expected = [key for key, place in zip(keys, rings[1].indices(keys), strict=True) if place == number]
        with StreamReader(vhost.stream_url or "", f"orders.log.{number + 1}") as reader:
            found = [str(key, "utf-8") for batch in reader for key in batch["key"].to_pylist() if key]
        assert found == expected
        assert rows_waiting(vhost.url, [f"orders.{number + 1}"]) == len(expected)
