"""Traffic that is more than a share of the keys: what chance explains is no finding."""

from __future__ import annotations

from random import Random

import pytest

from rabbit_chx.broker.exchange_report import uneven_traffic
from rabbit_chx.broker.publish_rates import PublishRates
from rabbit_chx.routing import HashRing

QUEUES = [f"q{number}" for number in range(8)]
RING = HashRing.from_bindings([(queue, 1) for queue in QUEUES])


def found(ring: HashRing, keys: list[float], per_second: float = 1_000.0) -> list[tuple[str, ...]]:
    """Return the queues of the findings, if key 0, key 1 and so on have these parts of the messages."""
    rates = dict.fromkeys(map(str, ring.destinations), 0.0)
    for number, part in enumerate(keys):
        rates[str(ring.destination_for(f"tenant-{number}"))] += part / sum(keys) * per_second
    return [finding.names for finding in uneven_traffic("orders", ring, PublishRates(per_second, rates))]


def test_few_keys_of_equal_rate_spread_by_chance() -> None:
    """30 tenants on 8 queues leave some of them with twice their share."""
    for first in range(50):
        keys = [0.0] * (30 * first) + [1.0] * 30
        assert found(RING, keys) == []


@pytest.mark.parametrize("heavy", [300.0, 1_000.0])
def test_one_heavy_key_among_many_is_found(heavy: float) -> None:
    random = Random(4)  # noqa: S311
    keys = [random.uniform(0.5, 1.5) for _ in range(2_000)]
    keys[7] = heavy
    assert found(RING, keys) == [(str(RING.destination_for("tenant-7")),)]


def test_two_queues_show_no_number_of_keys_so_only_the_number_of_messages_counts() -> None:
    two = HashRing.from_bindings([("q1", 1), ("q2", 1)])
    assert found(two, [9.0, *[1.0] * 1]) != []
    assert found(two, [9.0, *[1.0] * 1], per_second=0.01) == []
