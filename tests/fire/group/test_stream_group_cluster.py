"""What happens to the nodes of a cluster of three while a group of streams has a member at each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from canary import CANARY
from cluster import RunningCluster
from declared import with_login
from delivery_checker import Verdict
from fire_group import GROUP_QUEUES, GroupFire, group_fire, keep
from fire_streams import addresses_of
from three_nodes import LEADER_KILLED, LEADER_STAYS_DOWN, NodeFault, ThreeNodes

from rabbit_chx.testing.running_broker import in_vhost, temporary_vhost

pytestmark = [pytest.mark.docker, pytest.mark.restarts, pytest.mark.timeout(900)]

#: A stream has another leader before the node is started again.
LEADERLESS_S = 5.0
#: The broker keeps the place of a lost reader for this time (stream_sac_disconnected_timeout).
DISCONNECTED_S = 60.0


@pytest.fixture
def group(chx_cluster: RunningCluster, tmp_path: Path) -> Iterator[GroupFire]:
    """Exchange, streams and user; the publisher has the URLs of all nodes."""
    if not chx_cluster.version.startswith("4."):
        pytest.skip("streams have a single active consumer from 3.11 on")
    chx_cluster.wait_until_together()
    with temporary_vhost(chx_cluster.nodes[0]) as home:
        vhost = home.url.rpartition("/")[2]
        urls = [in_vhost(node, vhost).url for node in chx_cluster.nodes]
        addresses = addresses_of(chx_cluster)
        with group_fire(home, tmp_path, urls=urls, streams=True, addresses=addresses) as stage_:
            yield stage_


@pytest.fixture
def record(
    record_on: Callable[[str], Callable[..., Verdict]], chx_cluster: RunningCluster
) -> Callable[..., Verdict]:
    """Checks the run and records it."""
    return record_on(chx_cluster.version)


def lose(
    group: GroupFire,
    chx_cluster: RunningCluster,
    record: Callable[..., Verdict],
    fault: NodeFault,
    queue_pause_s: float | None,
) -> None:
    nodes = ThreeNodes(chx_cluster, group.site.vhost, GROUP_QUEUES[0])
    members = [
        [
            with_login(in_vhost(node, group.site.vhost).stream_url, group.site.user, CANARY)
            for node in nodes.beginning_with(first)
        ]
        for first in range(3)
    ]
    figures = group.run(lambda: fault.happen(nodes), [",".join(urls) for urls in members])
    keep(
        group,
        figures,
        record,
        path="StreamGroup, three nodes",
        fault=f"{fault.words}; a member at each node",
        promise="No member ends. Every row is handled, each stream in order; rows after the stored offset may be handled again.",
        queue_pause_s=queue_pause_s,
        unheard_s=LEADERLESS_S,
    )


def test_a_lost_node_stops_no_member(
    group: GroupFire, chx_cluster: RunningCluster, record: Callable[..., Verdict]
) -> None:
    lose(group, chx_cluster, record, LEADER_KILLED, None)


def test_members_go_on_while_a_node_stays_down(
    group: GroupFire, chx_cluster: RunningCluster, record: Callable[..., Verdict]
) -> None:
    lose(group, chx_cluster, record, LEADER_STAYS_DOWN, DISCONNECTED_S)
