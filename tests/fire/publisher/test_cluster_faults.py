"""What happens to the nodes of a cluster of three, whose queues are quorum queues, while a publisher has their URLs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from cluster import RunningCluster
from delivery_checker import Verdict
from fire_load import Load, Run
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
STEP = 60


@dataclass(frozen=True, slots=True)
class Case:
    """A fault, and where the publisher is connected when it begins.

    Attributes:
        fault: what happens.
        place: the node that it is connected to, in words.
        after_leader: the same as a number, counted from the node that leads the first queue.
        reconnects: whether the connection is lost.
    """

    fault: NodeFault
    place: str
    after_leader: int
    reconnects: bool

    @property
    def name(self) -> str:
        """The name of the test."""
        return f"{self.fault.name}-{'with' if self.reconnects else 'without'}_the_connection"


CASES = (
    Case(LEADER_KILLED, "to that node", 0, reconnects=True),
    Case(LEADER_KILLED, "to another node", 1, reconnects=False),
    Case(TWO_OF_THREE_LOST, "to one of the two", 0, reconnects=True),
    Case(TWO_OF_THREE_LOST, "to the third", 2, reconnects=False),
    Case(ROLLING_RESTART, "to one of them", 0, reconnects=True),
    Case(LEADER_CUT_OFF, "to that node", 0, reconnects=True),
)


@dataclass(frozen=True, slots=True)
class LastingLoad(Load):
    """Rows that come slowly until the fault is over, and then as fast as the publisher takes them.

    Attributes:
        over: is set when the fault is over.
    """

    rows: int = 60_000
    per_s: float = 300
    fault_at: int = 1_500
    over: threading.Event = field(default_factory=threading.Event)

    def steps(self) -> Iterator[tuple[float, range]]:
        """Yield the seconds to wait and the rows to give then."""
        for first in range(0, self.rows, STEP):
            wait_s = 0.0 if self.over.is_set() else STEP / self.per_s
            yield wait_s, range(first, min(first + STEP, self.rows))


@pytest.fixture
def stage(cluster_vhost: RunningBroker, tmp_path: Path) -> Iterator[Stage]:
    """Exchange, quorum queues and user; at the end nothing that was written holds the password."""
    with fire_stage(cluster_vhost, tmp_path, QUORUM) as made:
        yield made


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_nodes_that_go_and_come_lose_no_row(
    case: Case, stage: Stage, chx_cluster: RunningCluster, kept: Callable[..., Verdict]
) -> None:
    fault, load = case.fault, LastingLoad()
    nodes = ThreeNodes(chx_cluster, stage.site.vhost)
    settings = {} if fault.heartbeat_s is None else {"heartbeat_s": fault.heartbeat_s}
    targets = [
        stage.target(ConnectionSettings.from_uri(node.url).port, **settings)
        for node in nodes.beginning_with(nodes.leader() + case.after_leader)
    ]

    def happen(_: Run) -> None:
        try:
            fault.happen(nodes)
        finally:
            load.over.set()

    run = stage.publish(happen, *targets, load=load)
    assert run.report.confirmed == run.report.rows == load.rows
    assert run.recover_s is not None, (
        "the rows ended before the fault, so this shows nothing of the time after it"
    )
    kept(
        run,
        path="Publisher, three nodes",
        fault=f"{fault.words}; connected {case.place}",
        promise=ON_ANOTHER_NODE if case.reconnects else ON_THE_SAME,
        ordered=not run.report.retried,
    )
    assert bool(run.report.reconnects) == case.reconnects
