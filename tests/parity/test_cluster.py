"""Rings and routes of three nodes: from each of them, while one is away, and after it came back.

What was found, and is held here, of a node that is killed and comes back:

- All nodes show the same ring at any time, and route alike.
- A ring of quorum queues stays, on Khepri and on Mnesia.
- A ring of classic queues whose node is away stays from 4.0 on, and the messages are refused; on 3.10 it is empty, and
  they are unroutable. At the return 3.10.8 binds them in an order that cannot be known.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack

import pytest
from broker_faults import faults_of
from quick_rings import quick_broker
from routes.catalogue import bound
from routes.live import Stage, read_rings
from routes.scenario import Keys, Scenario, predict, replay

from rabbit_chx.errors import PublishError
from rabbit_chx.publishing import Publisher, Retries
from rabbit_chx.routing import HashRing
from rabbit_chx.testing import RunningBroker
from rabbit_chx.testing.running_broker import in_vhost
from tests.parity.conftest import Rabbits

pytestmark = [pytest.mark.docker, pytest.mark.restarts, pytest.mark.timeout(400)]

KEYS = Keys("decimal", 3_000)
# In no order into which a restart would bring them.
BINDINGS = bound(("q3", 2), ("q1", 1), ("q4", 2), ("q2", 1))
QUORUM = Scenario("quorum", BINDINGS, KEYS)
CLASSIC = Scenario("classic", BINDINGS, KEYS)
FIRST_THAT_KEEPS_CLASSIC_QUEUES = (4, 0, 0)  # 4.0.5 does, 3.10.8 does not; nothing between them was tried
NOTICING_TIMEOUT_S = 30.0


def test_nodes_route_alike_while_one_is_away_and_after_its_return(rabbits: Rabbits) -> None:
    home, *others = nodes = rabbits.cluster.nodes
    with ExitStack() as stack:
        quorum = stack.enter_context(Stage(home, QUORUM, "quorum"))
        classic = stack.enter_context(Stage(home, CLASSIC))
        before = agreed_rings(rabbits, nodes, [quorum, classic])
        bound_once = replay(QUORUM, rabbits.release)
        assert bound_once is not None
        assert before == {QUORUM.name: bound_once, CLASSIC.name: bound_once}
        route_over(rabbits, nodes, quorum, before)
        route_over(rabbits, nodes, classic, before)

        faults_of(home).kill()
        keeps = rabbits.release.numbers >= FIRST_THAT_KEEPS_CLASSIC_QUEUES
        if not keeps:
            await_empty_ring(rabbits, others, classic)
        away = agreed_rings(rabbits, others, [quorum, classic])
        assert away[QUORUM.name] == before[QUORUM.name]
        assert away[CLASSIC.name] == before[CLASSIC.name] or not keeps
        await_leaders(others[0], quorum, set(rabbits.cluster.names[1:]))
        route_over(rabbits, others, quorum, away)
        assert fate_of_all(others[0], classic) == ("nacked" if keeps else "returned")

        faults_of(home).start()
        rabbits.cluster.wait_until_together()
        after = agreed_rings(rabbits, nodes, [quorum, classic])
        assert after[QUORUM.name] == before[QUORUM.name]
        assert after[CLASSIC.name] == before[CLASSIC.name] or not keeps
        assert Counter(after[CLASSIC.name].buckets) == Counter(before[CLASSIC.name].buckets)
        route_over(rabbits, nodes, quorum, after)
        route_over(rabbits, nodes, classic, after)
    rabbits.note("one of three nodes away and back: a ring of quorum queues stays")


def agreed_rings(
    rabbits: Rabbits, nodes: Sequence[RunningBroker], stages: Sequence[Stage]
) -> dict[str, HashRing]:
    """The rings by name, which each of the nodes has alike."""
    rings, *others = [read_rings(quick_broker(node), stages, rabbits.release) for node in nodes]
    assert all(other == rings for other in others)
    return rings


def await_empty_ring(rabbits: Rabbits, nodes: Sequence[RunningBroker], stage: Stage) -> None:
    """Wait until the nodes have noticed that another one is away, and have emptied the ring."""
    deadline = time.monotonic() + NOTICING_TIMEOUT_S
    for node in nodes:
        while buckets := read_rings(quick_broker(node), [stage], rabbits.release)[
            stage.scenario.name
        ].buckets:
            assert time.monotonic() < deadline, buckets


def await_leaders(node: RunningBroker, stage: Stage, names: set[str]) -> None:
    """Wait until each queue has a leader among the nodes with these names.

    On 3.10.8 a channel whose first message to a quorum queue comes during the election confirms about ten messages a second,
    and after five minutes refuses those for that queue.
    """
    deadline = time.monotonic() + NOTICING_TIMEOUT_S
    list_leaders = (
        "rabbitmqctl",
        "-q",
        "--no-table-headers",
        "list_queues",
        "-p",
        stage.vhost,
        "name",
        "leader",
    )
    while (
        not (leaders := {line.split()[-1] for line in node.run(*list_leaders).splitlines()})
        or leaders - names
    ):
        assert time.monotonic() < deadline, leaders


def route_over(
    rabbits: Rabbits, nodes: Sequence[RunningBroker], stage: Stage, rings: dict[str, HashRing]
) -> None:
    """Publish all messages over each of the nodes, and find each where the mirror says."""
    predicted = predict(stage.scenario, rings[stage.scenario.name], rabbits.release)
    for node in nodes:
        stage.move(node)
        assert stage.route() == predicted
        rabbits.count(len(predicted))


def fate_of_all(node: RunningBroker, stage: Stage) -> str:
    """What becomes of messages whose queues are all away: ``nacked`` or ``returned``, without exception."""
    keys = KEYS.listed()
    url = in_vhost(node, stage.vhost).url
    with (
        Publisher(url, stage.scenario.name, persistent=False, retries=Retries(nack_retries=0)) as publisher,
        pytest.raises(PublishError) as refusal,
    ):
        publisher.publish_many(keys, keys)
    report = refusal.value.report
    assert report.unknown == 0
    (fate,) = [fate for fate in ("confirmed", "nacked", "returned") if getattr(report, fate)]
    return fate
