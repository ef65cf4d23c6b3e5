"""What happens to the nodes of a cluster of three, each with a replica of the stream, while a publisher and a reader are at it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from broker_faults import faults_of
from cluster import RunningCluster
from delivery_checker import Judge
from fire_followers import Follower, follow
from fire_streams import (
    COORDINATOR_S,
    StreamRun,
    addresses_of,
    keep,
    leader_of,
    make_stream,
    published,
    stored,
    until_confirmed,
)

from rabbit_chx.testing import RunningBroker

pytestmark = [pytest.mark.docker, pytest.mark.restarts, pytest.mark.timeout(400)]

PATH = "StreamPublisher, three nodes"
ONCE = "Each row is stored once, in order, by the next leader. A reader is given each row once."
DOWN_S = 3.0
KILLS = 2
KILLED = "the node that leads the stream killed (SIGKILL) and started again, twice"


@pytest.fixture
def urls(cluster_vhost: RunningBroker, chx_cluster: RunningCluster) -> list[str]:
    """The stream URLs of all nodes."""
    return [node.stream_url for node in chx_cluster.in_vhost(cluster_vhost.url.rpartition("/")[2])]


def leaders_killed(cluster: RunningCluster, urls: list[str]) -> Callable[[StreamRun], None]:
    """Return a fault: the leader is killed, and comes back when rows are confirmed by the next one."""

    def kill_leaders(run: StreamRun) -> None:
        time.sleep(COORDINATOR_S)
        for _ in range(KILLS):
            leader = leader_of(cluster, urls)
            faults_of(leader).kill()
            until_confirmed(run, time.monotonic() + 1)  # the next leader does
            time.sleep(DOWN_S)
            faults_of(leader).start()
            cluster.wait_until_together()

    return kill_leaders


@pytest.mark.parametrize("segment", ["500000000", "3000"], ids=["usual_segments", "tiny_segments"])
def test_killed_leaders_lose_no_row(
    segment: str,
    cluster_vhost: RunningBroker,
    chx_cluster: RunningCluster,
    urls: list[str],
    record: Judge,
) -> None:
    addresses = addresses_of(chx_cluster)
    make_stream(cluster_vhost, stream_max_segment_size_bytes=segment, initial_cluster_size="3")
    run = published(urls, leaders_killed(chx_cluster, urls), addresses=addresses)
    keep(
        run,
        stored(urls, addresses=addresses),
        record,
        path=PATH,
        fault=KILLED + ("; each chunk begins a new segment" if segment == "3000" else ""),
        promise=ONCE,
    )
    assert run.reconnects >= KILLS


def test_a_reader_follows_over_killed_leaders(
    cluster_vhost: RunningBroker,
    chx_cluster: RunningCluster,
    urls: list[str],
    record: Judge,
    tmp_path: Path,
) -> None:
    make_stream(cluster_vhost, initial_cluster_size="3")
    follower = Follower(urls, tmp_path, addresses_of(chx_cluster))
    follow(
        follower,
        urls,
        leaders_killed(chx_cluster, urls),
        record,
        path="StreamReader, three nodes",
        fault=f"{KILLED}; a named reader follows",
        promise="The reader continues. It is given each row once, in order; its offset is stored when it is closed.",
    )
    assert follower.interruptions
