"""Fifty times a queue is removed from a ring and added again, under load."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from changed_site import changed_site
from delivery_checker import Attempt, History, Verdict
from few_seeds import few_seeds
from queue_removal import QUEUES, remove_under_load

from rabbit_chx.testing import RunningBroker

_ROUNDS = 50


@pytest.mark.parametrize(
    ("members", "type_"),
    [("ring = [{}]", "classic"), ("slots = 6\nmembers = [{}]", "quorum")],
    ids=["ring", "slots"],
)
@pytest.mark.timeout(3600)
def test_a_queue_is_removed_fifty_times(
    broker: RunningBroker, record: Callable[..., Verdict], members: str, type_: str
) -> None:
    with few_seeds(), changed_site(broker) as site:
        load, handled = remove_under_load(site, members, type_, rounds=_ROUNDS)
    assert load.returned == 0
    number = {
        body: n
        for n, body in enumerate(
            sorted(f"{key} {n}" for key, count in load.sent.items() for n in range(count))
        )
    }
    record(
        History(
            [Attempt(n, body.split()[0]) for body, n in number.items()],
            load.count,
            {", ".join(QUEUES): [number[body] for body, count in handled.items() for _ in range(count)]},
        ),
        path="topology apply",
        fault=f"a {type_} queue of a ring is removed and added again {_ROUNDS} times, while 1,000 messages come in each second and consumers run",
        promise="No message is lost: the queue is unbound, and deleted when its consumers have emptied it.",
    )
