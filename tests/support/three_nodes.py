"""A cluster of three nodes under fire: which node leads a queue, and what happens to the nodes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from broker_faults import disconnected, faults_of
from cluster import RunningCluster
from fire_queues import QUEUES

from rabbit_chx.broker.management import Management
from rabbit_chx.testing import RunningBroker

#: Queues with a copy on each node; their leaders are spread over the nodes.
QUORUM = {"x-queue-type": "quorum", "x-queue-leader-locator": "balanced"}
_DOWN_S = 5.0
_LONG_DOWN_S = 90.0  # in which a group must go on without the node
_CUT_OFF_S = 20.0


@dataclass(frozen=True, slots=True)
class ThreeNodes:
    """The cluster, and the vhost of a test on it.

    Attributes:
        cluster: its nodes.
        vhost: the vhost with the queues.
        queue: the queue whose leader is meant.
    """

    cluster: RunningCluster
    vhost: str
    queue: str = QUEUES[0]

    def leader(self) -> int:
        """Return the number of the node that leads the queue."""
        management = Management(str(self.cluster.nodes[0].management_url))
        return self.cluster.names.index(management.request("GET", "queues", self.vhost, self.queue)["leader"])

    def beginning_with(self, first: int) -> list[RunningBroker]:
        """Return the nodes, the one of this number first."""
        nodes, first = self.cluster.nodes, first % len(self.cluster.nodes)
        return [*nodes[first:], *nodes[:first]]

    def lose_leader(self, count: int = 1, down_s: float = _DOWN_S) -> None:
        """Kill the node that leads the queue, and with a `count` of 2 the next one too; start them again."""
        lost = self.beginning_with(self.leader())[:count]
        _at_once(lambda node: faults_of(node).kill(), lost)
        time.sleep(down_s)
        _at_once(lambda node: faults_of(node).start(), lost)
        self.cluster.wait_until_together()

    def restart_in_turn(self) -> None:
        """Restart each node in good order, the next one when all are together again."""
        for node in self.cluster.nodes:
            faults_of(node).restart()
            self.cluster.wait_until_together()

    def cut_leader_off(self) -> None:
        """Cut the node that leads the queue off the other nodes and its clients, and put it back."""
        with disconnected(self.cluster.nodes[self.leader()]):
            time.sleep(_CUT_OFF_S)
        self.cluster.wait_until_together()


def _at_once(do: Callable[[RunningBroker], None], nodes: Iterable[RunningBroker]) -> None:
    """Do something with several nodes at the same time: one that starts may wait for the others."""
    with ThreadPoolExecutor() as pool:
        list(pool.map(do, nodes))


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFault:
    """A fault of nodes.

    Attributes:
        name: for the test.
        words: what happens, for users.
        happen: does it; when it returns, it is over.
        heartbeat_s: the heartbeat of the publishers; None for the default.
        refuses: whether a queue may refuse rows: one of 3.10 does, now and then, while it has no leader.
    """

    name: str
    words: str
    happen: Callable[[ThreeNodes], None]
    heartbeat_s: int | None = None
    refuses: bool = False


LEADER_KILLED = NodeFault(
    name="leader_killed",
    words="the node that leads a queue killed (SIGKILL) and started again after 5 s",
    happen=ThreeNodes.lose_leader,
)
LEADER_STAYS_DOWN = NodeFault(
    name="leader_stays_down",
    words="the node that leads a queue killed (SIGKILL) and started again after 90 s",
    happen=lambda nodes: nodes.lose_leader(down_s=_LONG_DOWN_S),
)
TWO_OF_THREE_LOST = NodeFault(
    name="two_of_three_lost",
    words="two of three nodes killed (SIGKILL) and started again after 5 s",
    happen=lambda nodes: nodes.lose_leader(2),
    refuses=True,
)
ROLLING_RESTART = NodeFault(
    name="rolling_restart",
    words="every node restarted in good order, one after the other",
    happen=ThreeNodes.restart_in_turn,
)
LEADER_CUT_OFF = NodeFault(
    name="leader_cut_off",
    words="the node that leads a queue cut off the network for 20 s, heartbeat 3 s",
    happen=ThreeNodes.cut_leader_off,
    heartbeat_s=3,
)
