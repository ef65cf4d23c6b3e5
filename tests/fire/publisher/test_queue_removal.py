"""Queues are removed from rings and added again, many times and under load."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack

import pytest
from changed_site import changed_site
from delivery_checker import Judge
from federated import QUEUES as FEDERATED
from federated import TEXT, federated_vhosts, opened
from few_seeds import few_seeds
from numbered_load import numbered_load
from queue_removal import (
    QUEUES,
    group_members,
    handled_history,
    reader,
    remove_under_load,
    short_polls,
    wait_for,
)

from rabbit_chx import Release, Topology
from rabbit_chx.testing import RunningBroker
from rabbit_chx.topology import plan

pytestmark = [pytest.mark.broker, pytest.mark.own_broker, pytest.mark.timeout(1800)]

_ROUNDS = 50
_FEDERATED_ROUNDS = 10
_RING = "ring = [{}]"
_SLOTS = "slots = 6\nmembers = [{}]"
_EMPTIED = "No message is lost: the queue is unbound, and deleted when its consumers have emptied it."


@pytest.mark.parametrize(
    ("members", "type_"), [(_RING, "classic"), (_SLOTS, "quorum")], ids=["ring", "slots"]
)
def test_fifty_removals_of_a_queue_lose_nothing(
    broker: RunningBroker, record: Judge, members: str, type_: str
) -> None:
    with few_seeds(), short_polls(broker), changed_site(broker) as site:
        load, handled = remove_under_load(site, members, type_, rounds=_ROUNDS)
    assert load.returned == 0
    record(
        handled_history(load, {", ".join(QUEUES): handled}),
        path="apply",
        fault=f"a {type_} queue of {'slots' if members == _SLOTS else 'a ring'} is removed and added again {_ROUNDS} times, while 1,000 "
        "messages come in each second and consumers of pika run",
        promise=_EMPTIED,
    )


def test_fifty_removals_of_a_queue_of_a_group_lose_nothing(broker: RunningBroker, record: Judge) -> None:
    has_limit = Release(broker.version).numbers >= (4, 0, 0)
    arguments = "x-single-active-consumer = true" + (", x-delivery-limit = -1" if has_limit else "")
    with few_seeds(), short_polls(broker), changed_site(broker) as site:
        load, handled = remove_under_load(
            site, _RING, "quorum", rounds=_ROUNDS, arguments=arguments, consume=group_members, per_s=500
        )
    assert load.returned == 0
    record(
        handled_history(load, {", ".join(QUEUES): handled}),
        path="apply",
        fault=f"a queue of a ring is removed and added again {_ROUNDS} times, while 500 messages come in each second and two members of a "
        "ConsumerGroup run",
        promise=f"{_EMPTIED} The members consume the other queues, and the queue once it exists again.",
    )


def test_a_removal_keeps_a_federation_link(
    broker: RunningBroker, vhost: RunningBroker, record: Judge
) -> None:
    three = 'owns = ["x.*"]\n' + TEXT
    two = three.replace("{1..3}", "{1..2}")
    handled: dict[str, Counter[str]] = {"upstream": Counter(), "downstream": Counter()}
    with (
        few_seeds(),
        short_polls(broker),
        federated_vhosts(broker, vhost) as federated,
        ExitStack() as readers,
    ):
        sides = (federated.up, federated.down)
        for side, counter in zip(sides, handled.values(), strict=True):
            for queue in FEDERATED:
                readers.enter_context(reader(side.url, queue, counter))
        with numbered_load(federated.up.url, "h", per_s=500) as load:
            for _ in range(_FEDERATED_ROUNDS):
                came = len(handled["downstream"])
                for side in sides:
                    for text in (two, three):
                        with opened(side) as live:
                            made = plan(Topology.from_toml(text), live.topology())
                            assert "x.3" in {change.name for change in made.changes}
                            live.apply(made, allow_moved=1.0, allow_delete=True)
                with opened(federated.up) as live:
                    assert federated.link in live.ring("h").destinations
                assert len(handled["downstream"]) > came
        wait_for(load.count, *handled.values())
    assert load.returned == 0
    record(
        handled_history(load, handled),
        path="apply",
        fault=f"a queue of each of two federated exchanges is removed and added again {_FEDERATED_ROUNDS} times, while 500 messages come "
        "in each second and consumers of pika run",
        promise="No message is lost, upstream or downstream. The federation link is not cut.",
    )
