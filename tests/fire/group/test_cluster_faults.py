"""What happens to the nodes of a cluster of three while a group has a member at each of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from bounded import until
from broker_faults import faults_of
from canary import CANARY
from cluster import RunningCluster
from declared import with_login
from delivery_checker import Judge
from fire_group import GROUP_QUEUES, GroupFire, group_fire
from three_nodes import LEADER_KILLED, ThreeNodes

from rabbit_chx.consuming.journal import JOURNAL
from rabbit_chx.testing import RunningBroker

pytestmark = [pytest.mark.docker, pytest.mark.restarts, pytest.mark.timeout(900)]

DOWN_S = 40.0


@pytest.fixture
def group(cluster_vhost: RunningBroker, chx_cluster: RunningCluster, tmp_path: Path) -> Iterator[GroupFire]:
    """Exchange, quorum queues and user; the publisher has the URLs of all nodes."""
    with group_fire(cluster_vhost, tmp_path) as made:
        made.urls = [node.url for node in chx_cluster.in_vhost(made.site.vhost)]
        yield made


def at_nodes(group: GroupFire, *numbers: int) -> list[str]:
    """Return the URLs of the members' user at these nodes."""
    return [with_login(group.urls[number], group.site.user, CANARY) for number in numbers]


def replica_elsewhere(group: GroupFire, home: str) -> str:
    """Return the other node with a replica of the journal. The management API of 3.10 tells it some seconds later."""

    def others() -> set[str]:
        told = group.site.management.request("GET", "queues", group.site.vhost, JOURNAL)
        return set(told.get("members", ())) - {home}

    (other,) = until(others, "the management API tells the replicas of the journal", every_s=0.2)
    return other


def test_a_lost_node_loses_and_reorders_nothing(
    group: GroupFire, chx_cluster: RunningCluster, kept: Judge
) -> None:
    nodes = ThreeNodes(chx_cluster, group.site.vhost, GROUP_QUEUES[0])
    figures = group.run(nodes.lose_leader, at_nodes(group, 0, 1, 2))
    kept(
        figures,
        fault=f"{LEADER_KILLED.words}; a member at each node",
        promise="The other members take the queues of the member at that node. It does not end, and takes its share again. Every message "
        "is handled, each queue in order; what members held may be handled again.",
    )


def test_members_keep_their_queues_without_a_majority_of_the_journal(
    group: GroupFire, chx_cluster: RunningCluster, kept: Judge
) -> None:
    """The journal has two replicas: one at the node of the members, which reads it, and one at the node that is lost."""
    two = {"x-queue-type": "stream", "x-initial-cluster-size": 2, "x-queue-leader-locator": "client-local"}
    with group.site.channel() as channel:
        channel.queue_declare(JOURNAL, durable=True, arguments=two)
    lost = chx_cluster.names.index(replica_elsewhere(group, chx_cluster.names[0]))
    group.urls = [group.urls[0]]

    def lose_journal() -> None:
        faults_of(chx_cluster.nodes[lost]).kill()
        time.sleep(DOWN_S)
        faults_of(chx_cluster.nodes[lost]).start()
        chx_cluster.wait_until_together()

    figures = group.run(lose_journal, at_nodes(group, 0, 0, 0), burst=9_000, per_s=50, pause_s=0.03)
    kept(
        figures,
        fault="the journal without a majority for 40 s, while the queues have one; no member at the node that is lost",
        promise="The members go on with the queues that they have. No member ends. Every message is handled, each queue in order; what "
        "members held may be handled again.",
        pause_s=10.0,
    )
