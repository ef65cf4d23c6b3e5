"""What happens to the nodes of a cluster of three, each with a replica of the stream, while a publisher and a reader are at it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from cluster import RunningCluster
from delivery_checker import Verdict
from fire_streams import (
    COORDINATOR_S,
    StreamRun,
    addresses_of,
    keep,
    leader_of,
    make_stream,
    stored,
    until_confirmed,
)

from rabbit_chx.testing import RunningBroker
from rabbit_chx.testing.running_broker import in_vhost, temporary_vhost

pytestmark = [pytest.mark.docker, pytest.mark.restarts, pytest.mark.timeout(400)]

PATH = "StreamPublisher, three nodes"
ONCE = "Each row is stored once, in order, by the next leader. A reader is given each row once."
DOWN_S = 3.0
KILLS = 2


@pytest.fixture
def home(chx_cluster: RunningCluster) -> Iterator[RunningBroker]:
    """A vhost on all nodes, which are together."""
    chx_cluster.wait_until_together()
    with temporary_vhost(chx_cluster.nodes[0]) as made:
        yield made


@pytest.fixture
def record(
    record_on: Callable[[str], Callable[..., Verdict]], chx_cluster: RunningCluster
) -> Callable[..., Verdict]:
    """Checks the run and records it."""
    return record_on(chx_cluster.version)


@pytest.mark.parametrize("segment", ["500000000", "3000"], ids=["usual_segments", "tiny_segments"])
def test_leaders_are_killed(
    segment: str, home: RunningBroker, chx_cluster: RunningCluster, record: Callable[..., Verdict]
) -> None:
    vhost = home.url.rpartition("/")[2]
    urls = [in_vhost(node, vhost).stream_url for node in chx_cluster.nodes]
    addresses = addresses_of(chx_cluster)
    make_stream(home, stream_max_segment_size_bytes=segment, initial_cluster_size="3")

    def kill_leaders(run: StreamRun) -> None:
        time.sleep(COORDINATOR_S)
        for _ in range(KILLS):
            leader = leader_of(chx_cluster, urls)
            leader.kill()
            until_confirmed(run, time.monotonic() + 1)  # the next leader does
            time.sleep(DOWN_S)
            leader.start()
            chx_cluster.wait_until_together()

    run = StreamRun()
    run.publish(urls, kill_leaders, addresses=addresses, window=1_000)
    keep(
        run,
        stored(urls, addresses=addresses),
        record,
        path=PATH,
        fault="the node that leads the stream killed (SIGKILL) and started again, twice"
        + ("; each chunk begins a new segment" if segment == "3000" else ""),
        promise=ONCE,
    )
    assert run.reconnects >= KILLS
