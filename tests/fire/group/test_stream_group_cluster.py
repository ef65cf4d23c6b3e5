"""What happens to the nodes of a cluster of three while a group of streams has a member at each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from canary import CANARY
from cluster import RunningCluster
from declared import with_login
from delivery_checker import Judge
from fire_group import GROUP_QUEUES, GroupFire, group_fire
from fire_streams import addresses_of
from three_nodes import LEADER_KILLED, LEADER_STAYS_DOWN, NodeFault, ThreeNodes

from rabbit_chx.testing import RunningBroker
from rabbit_chx.testing.running_broker import in_vhost

pytestmark = [pytest.mark.docker, pytest.mark.restarts, pytest.mark.timeout(900)]

#: A stream has another leader before the node is started again.
LEADERLESS_S = 5.0
#: The broker keeps the place of a lost reader for this time (stream_sac_disconnected_timeout).
DISCONNECTED_S = 60.0


@pytest.fixture
def group(cluster_vhost: RunningBroker, chx_cluster: RunningCluster, tmp_path: Path) -> Iterator[GroupFire]:
    """Exchange, streams and user; the publisher has the URLs of all nodes."""
    if not chx_cluster.version.startswith("4."):
        pytest.skip("streams have a single active consumer from 3.11 on")
    with group_fire(cluster_vhost, tmp_path, streams=True) as made:
        made.urls = [node.url for node in chx_cluster.in_vhost(made.site.vhost)]
        made.addresses = addresses_of(chx_cluster)
        yield made


@pytest.fixture
def lose(
    group: GroupFire, chx_cluster: RunningCluster, kept: Judge
) -> Callable[[NodeFault, float | None], None]:
    """Lets a fault happen to the nodes, each of which has a member; checks the run with this bound of the pauses, and records it."""
    nodes = ThreeNodes(chx_cluster, group.site.vhost, GROUP_QUEUES[0])
    members = [
        [
            with_login(in_vhost(node, group.site.vhost).stream_url, group.site.user, CANARY)
            for node in nodes.beginning_with(first)
        ]
        for first in range(3)
    ]

    def happen(fault: NodeFault, queue_pause_s: float | None) -> None:
        kept(
            group.run(lambda: fault.happen(nodes), [",".join(urls) for urls in members]),
            fault=f"{fault.words}; a member at each node",
            promise="No member ends. Every row is handled, each stream in order; a batch may be handled again.",
            queue_pause_s=queue_pause_s,
            unheard_s=LEADERLESS_S,
        )

    return happen


def test_a_lost_node_stops_no_member(lose: Callable[[NodeFault, float | None], None]) -> None:
    lose(LEADER_KILLED, None)


def test_members_go_on_while_a_node_stays_down(lose: Callable[[NodeFault, float | None], None]) -> None:
    lose(LEADER_STAYS_DOWN, DISCONNECTED_S)
