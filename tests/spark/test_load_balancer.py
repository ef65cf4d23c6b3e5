"""Three nodes behind haproxy, whose address is the only one that the clients have; the node that leads a stream is killed.

The addresses that the nodes advertise are the names of containers, which this machine cannot resolve.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import chain, product
from pathlib import Path

import pyarrow as pa
import pytest
from bounded import Beside, until
from broker_faults import faults_of
from cluster import RunningCluster
from fire_streams import COORDINATOR_S, addresses_of, leader_of, stored
from load_balancer import haproxy
from pyspark.sql import DataFrame, SparkSession
from super_streams import create_super_stream

from rabbit_chx.routing import SuperStream
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.nodes import open_at, settings_of, stream_settings
from rabbit_chx.testing.running_broker import in_vhost, temporary_vhost
from spark_connector import place_for_streams

pytestmark = [
    pytest.mark.spark,
    pytest.mark.docker,
    pytest.mark.restarts,
    pytest.mark.slow,
    pytest.mark.chx_broker(">=3.13", "super streams are created by the stream protocol"),
    pytest.mark.timeout(600),
]

STREAMS = ("orders-0", "orders-1", "orders-2")
COPIES = ("copies-0", "copies-1", "copies-2")
SPARK_ROWS = 60_000
#: Longer than a node is down, so that batches begin while it is.
PAUSE_S = 3.0
DOWN_S = 5.0
LIMIT_S = 180.0


@dataclass
class Site:
    """A vhost with the super streams `orders` and `copies` on three nodes, behind a load balancer.

    Attributes:
        url: the only address that the clients have.
        direct: the address of each node, for the test itself.
    """

    cluster: RunningCluster
    url: str
    direct: list[str]

    def kill_leader(self, stream: str) -> None:
        """Kill the node that leads a stream, and start it again."""
        leader = leader_of(self.cluster, self.direct, stream)
        faults_of(leader).kill()
        time.sleep(DOWN_S)
        faults_of(leader).start()
        self.cluster.wait_until_together()

    def stored(self, streams: Sequence[str]) -> list[int]:
        """The sorted numbers of all rows of streams, read through the load balancer."""
        return sorted(chain.from_iterable(stored(self.url, stream) for stream in streams))


@pytest.fixture
def site(chx_cluster: RunningCluster, tmp_path: Path) -> Iterator[Site]:
    chx_cluster.wait_until_together()
    ports = [node.stream_port for node in chx_cluster.nodes]
    with temporary_vhost(chx_cluster.nodes[0]) as home, haproxy(ports, tmp_path) as port:
        direct = [in_vhost(node, home.url.rpartition("/")[2]).stream_url for node in chx_cluster.nodes]
        with closing(StreamConnection(stream_settings(direct[0]))) as connection:
            for name, streams in (("orders", STREAMS), ("copies", COPIES)):
                create_super_stream(connection, name, streams, ["0", "1", "2"], {"initial-cluster-size": "3"})
        yield Site(chx_cluster, direct[0].replace(f":{ports[0]}", f":{port}"), direct)


def test_the_leader_is_found(site: Site) -> None:
    """Also if `addresses` leads each node to the load balancer, as where packets to the advertised addresses are dropped."""
    balancer = site.url.rpartition("@")[2].partition("/")[0]
    mapped = dict.fromkeys(addresses_of(site.cluster), balancer)
    for stream, addresses in product(STREAMS, (None, mapped)):
        leader = leader_of(site.cluster, site.direct, stream)
        for _ in range(5):
            settings = settings_of(site.url)
            with closing(
                open_at(settings, stream, leader=True, addresses=addresses, timeout_s=LIMIT_S)
            ) as found:
                assert found.node is not None
                assert addresses_of(site.cluster)[str(found.node)] == f"127.0.0.1:{leader.stream_port}"


def slow(frame: DataFrame) -> DataFrame:
    """Let each task wait before each batch, so that the node is killed meanwhile."""
    pause_s = PAUSE_S

    def wait(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:  # pickled by value
        for batch in batches:
            time.sleep(pause_s)
            yield batch

    return frame.mapInArrow(wait, frame.schema)


@contextmanager
def killed_under_load(site: Site, streams: Sequence[str]) -> Iterator[None]:
    """Kill the node that leads the first stream as soon as rows are stored; it is up again at the end of the block."""

    def count() -> int:  # the nodes themselves answer sooner
        return sum(len(stored(site.direct, each, addresses=addresses)) for each in streams)

    def kill() -> None:
        assert until(count, "rows are stored", LIMIT_S) < SPARK_ROWS, "all are stored before a node is killed"
        site.kill_leader(streams[0])

    addresses = addresses_of(site.cluster)
    killing = Beside(kill)
    killing.start()
    yield
    killing.finish()


def test_spark_writes_and_reads_each_row_once_while_a_node_is_killed(
    site: Site, spark: SparkSession, tmp_path: Path
) -> None:
    numbers = spark.range(0, SPARK_ROWS, 1, 2)
    orders = numbers.selectExpr("concat('key ', id % 977) AS key", "lpad(string(id), 12, '0') AS value")
    once = {"url": site.url, "delivery": "exactly-once", "appId": "load"}
    time.sleep(COORDINATOR_S)
    placed = place_for_streams(orders, SuperStream(STREAMS))
    with killed_under_load(site, STREAMS):
        written = slow(placed).write.format("rabbitmq")
        written.options(**once, superStream="orders", version="1").mode("append").save()
    assert site.stored(STREAMS) == list(range(SPARK_ROWS))

    source = spark.readStream.format("rabbitmq").options(url=site.url, superStream="orders")
    source = source.options(startingOffsets="earliest", maxOffsetsPerTrigger=str(SPARK_ROWS // 4))
    copies = place_for_streams(source.load().select("key", "value"), SuperStream(COPIES))
    with killed_under_load(site, COPIES):
        writer = slow(copies).writeStream.format("rabbitmq")
        writer = writer.options(**once, superStream="copies").trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
    assert site.stored(COPIES) == list(range(SPARK_ROWS))
    read = spark.read.format("rabbitmq").options(url=site.url, superStream="copies")
    assert read.load().count() == SPARK_ROWS
