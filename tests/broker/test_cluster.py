"""A cluster on a network of its own: together, one node away, together again, and nothing left of it."""

from __future__ import annotations

import ast
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pika
import pytest

from rabbit_chx.errors import InputError, UnreachableError
from rabbit_chx.testing import NoBrokerError, RunningBroker, RunningCluster, docker_cluster, need
from rabbit_chx.testing.readiness import amqp_version

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [
    pytest.mark.broker,
    pytest.mark.docker,
    pytest.mark.restarts,
    pytest.mark.timeout(400),
]

OWNER = """
import time
from rabbit_chx.testing import docker_cluster
with docker_cluster(nodes=2) as cluster:
    print(cluster.names, flush=True)
    time.sleep(1000)
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    need("docker")
    with docker_cluster() as running:
        yield running


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


def test_a_cluster_has_a_node() -> None:
    with pytest.raises(InputError, match="a cluster of 0 nodes"), docker_cluster(nodes=0):
        pass


def test_stop_removes_everything_and_may_be_called_again() -> None:
    need("docker")
    with docker_cluster(nodes=2) as cluster:
        assert len(remains(cluster.names)) == 3
        cluster.nodes[0].disconnect()
        cluster.nodes[1].pause()
        cluster.stop()
        assert remains(cluster.names) == []
        cluster.stop()


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
        assert len(remains(names)) == 3
        owner.kill()
    deadline = time.monotonic() + 60
    while left := remains(names):
        assert time.monotonic() < deadline, left
        time.sleep(0.2)
