"""A cluster on a network of its own: together, one node away, together again, and nothing left of it."""

from __future__ import annotations

import ast
import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cluster as cluster_file
import pika
import pytest
from cluster import RunningCluster, docker_cluster
from fire_streams import StreamRun, addresses_of, leader_of, make_stream, stored, until_confirmed
from found_broker import need
from sharded import LOOK_EVERY_S, Handled, applied, found, in_a_loop, published, running, sharded, until
from streamed import Streamed

from rabbit_chx import Broker, StreamReader, Topology
from rabbit_chx.consuming import ShardConsumer
from rabbit_chx.errors import InputError, UnreachableError
from rabbit_chx.routing.sharding import ShardName, shard_names
from rabbit_chx.testing import NoBrokerError, RunningBroker
from rabbit_chx.testing.readiness import amqp_version

pytestmark = [
    pytest.mark.broker,
    pytest.mark.docker,
    pytest.mark.restarts,
    pytest.mark.timeout(400),
]

OWNER = f"""
import sys, time
sys.path.insert(0, {str(Path(cluster_file.__file__).parent)!r})
from cluster import docker_cluster
with docker_cluster(nodes=1) as cluster:
    print(cluster.names, flush=True)
    time.sleep(1000)
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    """Stop removes everything of it, however its nodes are, and may be called again."""
    need("docker")
    with docker_cluster() as running:
        yield running
        assert len(remains(running.names)) == 4
        running.nodes[0].disconnect()
        running.nodes[1].pause()
        running.stop()
        assert remains(running.names) == []
        running.stop()


@pytest.fixture
def quorum_queue(cluster: RunningCluster) -> Iterator[str]:
    with connect(cluster.nodes[0]) as connection:
        channel = connection.channel()
        channel.queue_declare("kept", durable=True, arguments={"x-queue-type": "quorum"})
        yield "kept"
        channel.queue_delete("kept")


def connect(broker: RunningBroker) -> pika.BlockingConnection:
    return pika.BlockingConnection(pika.URLParameters(broker.url))


def put(broker: RunningBroker, queue: str, body: bytes) -> None:
    with connect(broker) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("", queue, body, mandatory=True)


def get(broker: RunningBroker, queue: str) -> Any:
    with connect(broker) as connection:
        return connection.channel().basic_get(queue, auto_ack=True)[2]


def remains(names: tuple[str, ...]) -> list[str]:
    """What is still there of a cluster: its containers and its network."""
    network = names[0].partition("@")[2].rpartition("-")[0]
    lists = (["ps", "--all", "--quiet"], ["network", "ls", "--quiet"])
    return [
        line
        for command in lists
        for line in subprocess.run(
            ["docker", *command, "--filter", f"name={network}"], capture_output=True, text=True, check=True
        ).stdout.split()
    ]


def test_each_node_is_a_broker_of_one_cluster(cluster: RunningCluster) -> None:
    assert len(set(cluster.urls)) == len(set(cluster.names)) == 3
    assert f"RabbitMQ {cluster.version}" in cluster.origin
    for node, name in zip(cluster.nodes, cluster.names, strict=True):
        assert amqp_version(node.url) == cluster.version
        assert node.run("rabbitmqctl", "-q", "eval", "node().").strip() == f"'{name}'"
        seen = node.run("rabbitmqctl", "-q", "eval", "length(rabbit_nodes:list_running()).")
        assert seen.strip() == "3"
    assert "guest:guest" not in repr(cluster)


@pytest.mark.parametrize("end", [RunningBroker.kill, RunningBroker.shut_down])
def test_the_others_go_on_while_a_node_is_down(
    cluster: RunningCluster, quorum_queue: str, end: Callable[[RunningBroker], None]
) -> None:
    end(cluster.nodes[2])
    with pytest.raises(NoBrokerError):
        amqp_version(cluster.urls[2])
    put(cluster.nodes[0], quorum_queue, b"meanwhile")
    cluster.nodes[2].start()
    cluster.wait_until_together()
    assert get(cluster.nodes[2], quorum_queue) == b"meanwhile"


def test_the_others_go_on_while_a_node_is_cut_off(cluster: RunningCluster, quorum_queue: str) -> None:
    with cluster.nodes[1].disconnected():
        with pytest.raises(NoBrokerError):
            amqp_version(cluster.urls[1])
        put(cluster.nodes[0], quorum_queue, b"meanwhile")
    cluster.wait_until_together()
    assert get(cluster.nodes[1], quorum_queue) == b"meanwhile"


def test_a_node_that_is_missing_is_named(cluster: RunningCluster) -> None:
    cluster.nodes[1].pause()
    try:
        with pytest.raises(NoBrokerError, match=rf"{cluster.names[1]} sees none"):
            cluster.wait_until_together(timeout_s=0.1)
    finally:
        cluster.nodes[1].resume()
    cluster.wait_until_together()


@in_a_loop
async def test_shards_follow_the_nodes_and_a_consumer_the_shards(cluster: RunningCluster) -> None:
    home, joining, node = cluster.nodes[0], cluster.nodes[2], cluster.names[2]
    handled = Handled()
    control(joining, "stop_app")
    control(joining, "reset")
    with Broker(home.url, home.management_url) as broker:
        assert len(await sharded(home, 2)) == 4
        consumer = ShardConsumer(home.url, "images", broker.sharding, look_every_s=LOOK_EVERY_S)
        async with running(consumer, handled):
            await published(cluster.urls[1], 0, 300)
            await until(lambda: handled.count == 300)

            await asyncio.to_thread(control, joining, "join_cluster", cluster.names[0])
            await asyncio.to_thread(control, joining, "start_app")
            await asyncio.to_thread(cluster.wait_until_together)
            # 3.10.8 makes the shards of the new node by itself. 4.0.5 and 4.3.6 do not.
            images = await found(home)
            assert images.missing == shard_names("images", [node], 2)
            assert [finding.kind for finding in images.findings] == ["missing"]
            await sharded(home, 3)
            await until(lambda: len(consumer.queues) == 9)
            await published(joining.url, 300, 300)
            await until(lambda: handled.count == 600)
            assert {ShardName.parsed(queue) for queue in handled.queues} >= {ShardName("images", node, 2)}

            await asyncio.to_thread(control, joining, "stop_app")
            await until(lambda: len(consumer.queues) == 6)
            images = await found(home)
            assert {finding.kind: finding.names for finding in images.findings} == {
                "node-away": shard_names("images", [node], 3)
            }
            await asyncio.to_thread(control, joining, "start_app")
            await asyncio.to_thread(cluster.wait_until_together)
            await until(lambda: len(consumer.queues) == 9)
            await published(home.url, 600, 300)
            await until(lambda: handled.count == 900)
        # What was handled and not yet acked when the consumer stopped is in its queue again.
        gone = Topology(owns=("images", "shards", "sharding: *"))
        await applied(home, gone, allow_delete=True, allow_loss=True)
    assert sorted(body for bodies in handled.bodies.values() for body in bodies) == list(range(900))


def control(node: RunningBroker, *command: str) -> None:
    node.run("rabbitmqctl", *command)


def test_a_cluster_has_a_node() -> None:
    with pytest.raises(InputError, match="a cluster of 0 nodes"), docker_cluster(nodes=0):
        pass


def test_nothing_remains_of_a_cluster_that_does_not_come_together(monkeypatch: pytest.MonkeyPatch) -> None:
    need("docker")
    names: list[tuple[str, ...]] = []

    def never(cluster: RunningCluster) -> None:
        names.append(cluster.names)
        raise UnreachableError("never together")

    monkeypatch.setattr(RunningCluster, "wait_until_together", never)
    with pytest.raises(UnreachableError, match="never together"), docker_cluster(nodes=1):
        pass
    assert remains(names[0]) == []


def test_nothing_remains_of_a_cluster_whose_owner_was_killed() -> None:
    need("docker")
    with subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        names = ast.literal_eval(owner.stdout.readline())
        assert len(remains(names)) == 2
        owner.kill()
    deadline = time.monotonic() + 60
    while left := remains(names):
        assert time.monotonic() < deadline, left
        time.sleep(0.2)


def test_a_stream_is_read_on_when_the_node_that_gives_it_dies(cluster: RunningCluster) -> None:
    stream = Streamed(cluster.nodes[0], "read", {})
    bodies = [f"{number}{'x' * 1000}".encode() for number in range(30_000)]
    stream.publish(bodies)
    hosts = {name.partition("@")[2]: node for name, node in zip(cluster.names, cluster.nodes, strict=True)}
    addresses = {f"{host}:5552": f"127.0.0.1:{node.stream_port}" for host, node in hosts.items()}
    urls = [node.stream_url for node in cluster.nodes]
    found = []
    with StreamReader(urls, "read", addresses=addresses, batch_rows=500) as reader:
        for killed in range(3):
            found += next(reader)["value"].to_pylist()
            connection: Any = reader._connection
            node = hosts[connection.node.host]
            node.kill()
            while len(found) < (killed + 1) * 8_000:  # more than is ahead of the caller
                found += next(reader)["value"].to_pylist()
            node.start()
            cluster.wait_until_together()
        found += [value for batch in reader for value in batch["value"].to_pylist()]
    assert found == bodies


def test_rows_are_stored_once_in_order_when_the_leader_of_their_stream_dies(cluster: RunningCluster) -> None:
    make_stream(cluster.nodes[0], "written", initial_cluster_size="3")
    urls, addresses = [node.stream_url for node in cluster.nodes], addresses_of(cluster)
    run = StreamRun()

    def kill(_: StreamRun) -> None:
        leader = leader_of(cluster, urls, "written")
        leader.kill()
        until_confirmed(run, time.monotonic() + 1)
        leader.start()
        cluster.wait_until_together()

    run.publish(urls, kill, stream="written", addresses=addresses)
    assert run.error is None
    assert run.reconnects >= 1
    rows = list(range(1, run.handed + 1))
    assert stored(urls, "written", addresses=addresses) == rows
    assert run.read == rows
