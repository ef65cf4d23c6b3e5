"""Shards on a cluster: a node joins, goes away, and is back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial

import pytest
from cluster import RunningCluster, docker_cluster
from found_broker import need
from sharded import LOOK_EVERY_S, Handled, applied, found, in_a_loop, published, running, sharded, until

from rabbit_chx import Broker, Topology
from rabbit_chx.consuming import ShardConsumer
from rabbit_chx.topology.plugin_objects import ShardName, shard_names

pytestmark = [
    pytest.mark.broker,
    pytest.mark.docker,
    pytest.mark.restarts,
    pytest.mark.timeout(400),
]


@pytest.fixture
def cluster() -> Iterator[RunningCluster]:
    need("docker")
    with docker_cluster() as running:
        yield running


@pytest.mark.slow
@in_a_loop
async def test_shards_follow_the_nodes_and_a_consumer_the_shards(cluster: RunningCluster) -> None:
    home, joining, node = cluster.nodes[0], cluster.nodes[2], cluster.names[2]
    control = partial(joining.run, "rabbitmqctl")
    handled = Handled()
    control("stop_app")
    control("reset")
    with Broker(home.url, home.management_url) as broker:
        assert len(await sharded(home, 2)) == 4
        consumer = ShardConsumer(home.url, "images", broker.sharding, look_every_s=LOOK_EVERY_S)
        async with running(consumer, handled):
            await published(cluster.nodes[1].url, 0, 300)
            await until(lambda: handled.count == 300)

            await asyncio.to_thread(control, "join_cluster", cluster.names[0])
            await asyncio.to_thread(control, "start_app")
            await asyncio.to_thread(cluster.wait_until_together)
            # 3.10.8 makes the shards of the new node by itself. 4.0.5 and 4.3.6 do not.
            images = await found(home)
            assert images.missing == shard_names("images", [node], 2)
            assert [finding.kind for finding in images.findings] == ["missing"]
            await sharded(home, 3)
            await until(lambda: len(consumer.queues) == 9)
            await published(joining.url, 300, 300)
            await until(lambda: handled.count == 600)
            assert {ShardName.parse(queue) for queue in handled.queues} >= {ShardName("images", node, 2)}

            await asyncio.to_thread(control, "stop_app")
            await until(lambda: len(consumer.queues) == 6)
            images = await found(home)
            assert {finding.kind: finding.names for finding in images.findings} == {
                "node-away": shard_names("images", [node], 3)
            }
            await asyncio.to_thread(control, "start_app")
            await asyncio.to_thread(cluster.wait_until_together)
            await until(lambda: len(consumer.queues) == 9)
            await published(home.url, 600, 300)
            await until(lambda: handled.count == 900)
        # What was handled and not yet acked when the consumer stopped is in its queue again.
        gone = Topology(owns=("images", "shards", "sharding: *"))
        await applied(home, gone, allow_delete=True, allow_loss=True)
    assert sorted(body for bodies in handled.bodies.values() for body in bodies) == list(range(900))
