"""The exchanges of docs/choose.md, "Move from queues to streams", give each key a queue and a stream of the same number."""

from __future__ import annotations

import pytest
from row_reader import rows_waiting

from rabbit_chx import Broker, Publisher, StreamReader, Topology
from rabbit_chx.testing import RunningBroker
from rabbit_chx.topology import plan

pytestmark = pytest.mark.broker


FILE = """
[[exchanges]]
name = "orders.in"
type = "fanout"

[[exchanges]]
name = "orders"
type = "x-consistent-hash"
ring = [{ queue = "orders.{1..4}", weight = 1 }]

[[exchanges]]
name = "orders.log"
type = "x-consistent-hash"
ring = [{ queue = "orders.log.{1..4}", weight = 1 }]

[[queues]]
name = "orders.{1..4}"
type = "quorum"

[[queues]]
name = "orders.log.{1..4}"
type = "stream"

[[bindings]]
source = "orders.in"
exchange = "orders"

[[bindings]]
source = "orders.in"
exchange = "orders.log"
"""


@pytest.mark.chx_broker(">=3.9", "streams")
def test_a_fanout_gives_each_key_a_queue_and_the_stream_of_the_same_number(vhost: RunningBroker) -> None:
    keys = [f"customer-{number}" for number in range(1_000)]
    with Broker(vhost.url, vhost.management_url, ring_source=vhost.ring_via) as broker:
        broker.apply(plan(Topology.from_toml(FILE), broker.topology()))
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
