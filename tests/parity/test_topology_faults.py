"""An application that is killed, or whose broker is, is done by the next one; of two at once, one wins."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Any

import pika
import pytest
from broker_faults import faults_of
from changed_site import ChangedSite, changed_site
from dying_applier import dying_applier
from exchange_types import CHX
from few_seeds import few_seeds

from rabbit_chx import Topology
from rabbit_chx.broker import pika_parameters
from rabbit_chx.broker.applying import Applied
from rabbit_chx.errors import ApplyError, PlanOutdatedError
from rabbit_chx.routing.rules import RESTART_KEEPS
from rabbit_chx.testing import RunningBroker
from rabbit_chx.topology import ExchangeDefinition, Plan, QueueDefinition, RingMember, plan
from tests.parity.conftest import Rabbit

pytestmark = [pytest.mark.docker, pytest.mark.timeout(400)]

LOCK_GOES_S = 10.0
MOST_OPERATIONS = 40
EVERYWHERE = "4.3"  # the release on which every point is tried, which takes a while

SIDES = [
    """
    [[exchanges]]
    name = "h"
    type = "x-consistent-hash"
    ring = [{ queue = "q0" }, { queue = "q1", weight = 2 }, { queue = "kind" }, { exchange = "fan" }, { queue = "q3" }]
    [[exchanges]]
    name = "fan"
    type = "fanout"
    [[exchanges]]
    name = "t"
    type = "topic"
    [[exchanges]]
    name = "old"
    [[queues]]
    name = "q{0..3}"
    [[queues]]
    name = "kind"
    [[bindings]]
    source = "t"
    queue = "kind"
    routing_key = "stays"
    [[bindings]]
    source = "t"
    queue = "q0"
    routing_key = "old"
    [[bindings]]
    source = "fan"
    queue = "q1"
    [[policies]]
    name = "p"
    pattern = "^none$"
    definition = { max-length = 5 }
    """,
    """
    [[exchanges]]
    name = "h"
    type = "x-consistent-hash"
    ring = [{ queue = "q0" }, { queue = "kind" }, { queue = "q1" }, { exchange = "fan" }, { queue = "q4" }]
    [[exchanges]]
    name = "fan"
    type = "fanout"
    [[exchanges]]
    name = "t"
    type = "topic"
    [[exchanges]]
    name = "new"
    [[queues]]
    name = "q{0..2}"
    [[queues]]
    name = "q4"
    [[queues]]
    name = "kind"
    type = "quorum"
    [[bindings]]
    source = "t"
    queue = "kind"
    routing_key = "stays"
    [[bindings]]
    source = "t"
    queue = "q0"
    routing_key = "new"
    [[bindings]]
    source = "fan"
    queue = "q1"
    [[bindings]]
    source = "new"
    queue = "q4"
    [[policies]]
    name = "p"
    pattern = "^none$"
    definition = { max-length = 6 }
    """,
]
OWNED = ("h", "t", "fan", "old", "new", "q*", "kind", "p")
WANTED = [replace(Topology.from_toml(text), owns=OWNED) for text in SIDES]


@pytest.fixture
def site(rabbit: Rabbit) -> Iterator[ChangedSite]:
    with few_seeds(), changed_site(rabbit.broker) as made:
        yield made


def applied_after_a_kill(site: ChangedSite, wanted: Topology) -> Plan:
    """Plan and apply, and wait no longer than a moment for the lock of the process that was killed."""
    deadline = time.monotonic() + LOCK_GOES_S
    while True:
        made = site.planned(wanted)
        try:
            site.apply(made)
        except PlanOutdatedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return made


def check_moment(before: Plan, site: ChangedSite) -> None:
    """No more keys have moved than the plan says for the worst moment."""
    ring = before.rings["h"]
    now = site.live().rings["h"]
    assert ring.before.share_moved(now) <= ring.moved_at_worst


def test_an_application_that_is_killed_before_any_operation_is_done_by_the_next(
    rabbit: Rabbit, site: ChangedSite
) -> None:
    everywhere = rabbit.release.version.startswith(EVERYWHERE)
    site.apply(WANTED[0])
    changes = kills = 0
    with dying_applier(site) as applier:
        for number in range(0, MOST_OPERATIONS, 1 if everywhere else 5):
            there, wanted = (WANTED[(number + side) % 2] for side in (0, 1)) if everywhere else WANTED
            if not everywhere:
                site.apply(there)
            before = site.planned(wanted)
            changes = max(changes, len(before.changes))
            if not applier.killed(wanted, number):
                break
            kills += 1
            check_moment(before, site)
            applied_after_a_kill(site, wanted)
            site.check_theirs()
            again = site.planned(wanted)
            assert (again.changes, again.refusals) == ((), ())
            assert again.rings["h"].before.buckets == before.rings["h"].after.buckets
    assert 12 <= changes <= 20
    assert kills >= (changes if everywhere else 3)
    site.check_done(wanted)
    rabbit.note(
        f"an application of {changes} changes was killed at {kills} points, and done each time by the next"
    )


def kill(broker: RunningBroker) -> None:
    faults_of(broker).kill()
    faults_of(broker).start()


def restart(broker: RunningBroker) -> None:
    faults_of(broker).restart()


@pytest.mark.restarts
@pytest.mark.parametrize("how", [restart, kill], ids=lambda how: how.__name__)
def test_a_broker_that_goes_in_the_middle_loses_nothing_that_the_next_plan_does_not_mend(
    rabbit: Rabbit, site: ChangedSite, how: Any
) -> None:
    there, wanted = WANTED
    site.apply(there)
    mine = pika.BlockingConnection(pika_parameters(site.broker.url))
    channel = mine.channel()
    channel.queue_declare("mine", exclusive=True)
    channel.queue_bind("mine", "h", "2")
    made = site.planned(wanted)
    at = 4 if how is kill else 9

    def go(done: int, _: int) -> None:
        if done == at:
            how(rabbit.broker)

    with site.connected() as broker, pytest.raises(ApplyError) as stopped:
        broker.apply(made, allow_moved=1.0, allow_delete=True, progress=go)
    with suppress(pika.exceptions.AMQPError):
        mine.close()
    done = stopped.value.applied.changes
    assert at <= len(done) < len(made.changes)
    assert done == made.changes[: len(done)]

    site.mend_theirs()
    live = site.live()
    ghost = "mine" in live.rings["h"].destinations
    if how is kill:
        assert ghost == rabbit.release.follows(RESTART_KEEPS)
    site.apply(wanted)
    site.check_done(wanted)
    assert site.live().rings["h"].buckets == site.planned(wanted).rings["h"].after.buckets
    rabbit.note(f"{how.__name__} between two changes: {'a ghost, ' * ghost}mended by the next plan")


def ring_of(members: str) -> Topology:
    ring = tuple(RingMember(name) for name in members.split())
    return Topology(
        (ExchangeDefinition("h", CHX, ring=ring),), tuple(QueueDefinition(f"q{n}") for n in range(6))
    )


class Appliers:
    """Applies several plans at once, each over its own connection, after a random delay."""

    def __init__(self, site: ChangedSite, random: Random) -> None:
        self._site, self._random = site, random

    def results(self, plans: list[Plan]) -> list[Applied | Exception]:
        """What each of them came to."""
        results: list[Applied | Exception] = []
        threads = [
            threading.Thread(target=self._one, args=(made, self._random.uniform(0, 0.05), results))
            for made in plans
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert len(results) == len(plans)
        return results

    def _one(self, made: Plan, delay_s: float, results: list[Applied | Exception]) -> None:
        time.sleep(delay_s)
        try:
            results.append(self._site.apply(made))
        except Exception as error:  # noqa: BLE001  # the test looks at it
            results.append(error)


WAYS = ("q0 q1 q2 q3", "q3 q1 q0", "q1 q2 q3 q0 q5", "q0 q2 q4", "q5 q4 q3 q2 q1")


def test_of_two_applications_at_once_one_wins(rabbit: Rabbit, site: ChangedSite) -> None:
    random = Random(rabbit.release.version)  # noqa: S311
    rounds = 20 if rabbit.release.version.startswith(EVERYWHERE) else 6
    site.apply(ring_of(WAYS[0]))
    appliers, at = Appliers(site, random), 0
    for n in range(rounds):
        live = site.live()
        # Every other round the two want different rings.
        to = [(at + 1) % len(WAYS), (at + 1 + n % 2) % len(WAYS)]
        plans = [plan(ring_of(WAYS[way]), live) for way in to]
        results = appliers.results(plans)
        won = [result for result in results if isinstance(result, Applied)]
        lost = [result for result in results if not isinstance(result, Applied)]
        assert len(won) == 1, results
        assert all(isinstance(error, PlanOutdatedError) for error in lost), results
        at = next(way for way, made in zip(to, plans, strict=True) if made.checksum == won[0].checksum)
        again = site.planned(ring_of(WAYS[at]))
        assert (again.changes, again.refusals) == ((), ())
    rabbit.note(f"two applications at once, {rounds} times: one won each time")
