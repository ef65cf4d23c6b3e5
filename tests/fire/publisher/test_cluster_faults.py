"""What happens to the nodes of a cluster of three, whose queues are quorum queues, while a publisher has their URLs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import RunningCluster
from delivery_checker import Judge
from fire_load import Load
from fire_stage import Stage, fire_stage
from three_nodes import (
    LEADER_CUT_OFF,
    LEADER_KILLED,
    QUORUM,
    ROLLING_RESTART,
    TWO_OF_THREE_LOST,
    NodeFault,
    ThreeNodes,
)

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.testing import RunningBroker

pytestmark = [pytest.mark.docker, pytest.mark.restarts, pytest.mark.timeout(600)]

ON_ANOTHER_NODE = "Every row is confirmed, over a connection to a node that is there."
ON_THE_SAME = "Every row is confirmed, over the same connection. The publisher waits for as long as a queue has no majority."
LOAD = Load(rows=60_000, per_s=300, fault_at=1_500, is_fast_after=True)
#: A fault, the node that the publisher is connected to, the same as a number after the node that leads the first queue, and whether the
#: connection is lost.
CASES = (
    (LEADER_KILLED, "to that node", 0, True),
    (LEADER_KILLED, "to another node", 1, False),
    (TWO_OF_THREE_LOST, "to one of the two", 0, True),
    (TWO_OF_THREE_LOST, "to the third", 2, False),
    (ROLLING_RESTART, "to one of them", 0, True),
    (LEADER_CUT_OFF, "to that node", 0, True),
)


@pytest.fixture
def stage(cluster_vhost: RunningBroker, tmp_path: Path) -> Iterator[Stage]:
    """Exchange, quorum queues and user; at the end nothing that was written holds the password."""
    with fire_stage(cluster_vhost, tmp_path, QUORUM) as made:
        yield made


@pytest.mark.parametrize(
    ("fault", "place", "after_leader", "reconnects"),
    CASES,
    ids=[f"{case[0].name}-{'with' if case[-1] else 'without'}_the_connection" for case in CASES],
)
def test_nodes_that_go_and_come_lose_no_row(
    stage: Stage,
    chx_cluster: RunningCluster,
    kept: Judge,
    *,
    fault: NodeFault,
    place: str,
    after_leader: int,
    reconnects: bool,
) -> None:
    nodes = ThreeNodes(chx_cluster, stage.site.vhost)
    settings = {} if fault.heartbeat_s is None else {"heartbeat_s": fault.heartbeat_s}
    targets = [
        stage.target(ConnectionSettings.from_uri(node.url).port, **settings)
        for node in nodes.beginning_with(nodes.leader() + after_leader)
    ]
    run = stage.publish(lambda _: fault.happen(nodes), *targets, load=LOAD)
    assert run.report.confirmed == run.report.rows == LOAD.rows
    assert run.recover_s is not None, (
        "the rows ended before the fault, so this shows nothing of the time after it"
    )
    kept(
        run,
        path="Publisher, three nodes",
        fault=f"{fault.words}; connected {place}",
        promise=ON_ANOTHER_NODE if reconnects else ON_THE_SAME,
        ordered=not run.report.retried,
    )
    assert bool(run.report.reconnects) == reconnects
