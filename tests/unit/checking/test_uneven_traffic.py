"""Traffic that is more than a share of the keys: what chance explains is no finding."""

from __future__ import annotations

from random import Random

import pytest
from sides import as_live

from rabbit_chx.checking.group_status import uneven_traffic
from rabbit_chx.routing import HashRing, Release
from rabbit_chx.topology import (
    ExchangeDefinition,
    LiveTopology,
    QueueDefinition,
    RingMember,
    Topology,
    check,
)
from rabbit_chx.topology.model import Consumer, PublishRates, QueueUsage, Usage

QUEUES = [f"q{number}" for number in range(8)]
RING = HashRing.from_bindings([(queue, 1) for queue in QUEUES])


def found(ring: HashRing, keys: list[float], per_second: float = 1_000.0) -> list[object]:
    """Return the queues of the findings, if key 0, key 1 and so on have these parts of the messages."""
    rates = dict.fromkeys(map(str, ring.destinations), 0.0)
    for number, part in enumerate(keys):
        rates[str(ring.destination_for(f"tenant-{number}"))] += part / sum(keys) * per_second
    shares = {str(place): share for place, share in ring.shares().items()}
    findings = uneven_traffic("orders", shares, PublishRates(per_second, rates))
    return [finding.destination for finding in findings]


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
    assert found(RING, keys) == [RING.destination_for("tenant-7")]


def test_two_queues_show_no_number_of_keys_so_only_the_number_of_messages_counts() -> None:
    two = HashRing.from_bindings([("q1", 1), ("q2", 1)])
    assert found(two, [9.0, *[1.0] * 1]) != []
    assert found(two, [9.0, *[1.0] * 1], per_second=0.01) == []


@pytest.mark.parametrize(
    ("per_second", "expected"),
    [((9.0, 1.0), "q1"), ((1.0, 9.0), "q2"), ((6.0, 4.0), None), ((0.05, 0.0), None), ((0.0, 0.0), None)],
)
def test_a_queue_with_far_more_than_its_share_has_a_finding_that_names_the_way_to_the_cause(
    per_second: tuple[float, float], expected: str | None
) -> None:
    """Of some messages a minute chance gives one queue more."""
    rates = PublishRates(10.0, dict(zip(("q1", "q2"), per_second, strict=True)))
    findings = list(uneven_traffic("x", {"q1": 0.5, "q2": 0.5}, rates))
    assert [finding.destination for finding in findings] == ([expected] if expected else [])
    for finding in findings:
        assert finding.message == (
            f"{expected} got 90.0% of the messages of the last minute, and has 50.0% of the keys"
        )
        assert "`rabbit-chx verify x --trace 60`" in finding.fix
        assert finding.severity == "warning"


@pytest.mark.parametrize(
    ("counts", "consumers", "expected"),
    [
        (None, None, "the broker collects no statistics"),
        (None, {}, ""),
        (0, None, ""),
    ],
)
def test_only_a_broker_that_neither_counts_nor_lists_consumers_collects_no_statistics(
    counts: int | None, consumers: dict[str, list[Consumer]] | None, expected: str
) -> None:
    """A queue that was declared some seconds ago has no counts yet."""
    usage = Usage(queues={"a": QueueUsage(consumers=counts)}, consumers=consumers)
    assert (
        check(as_live(LiveTopology(queues=(QueueDefinition("a"),)), usage=usage)).consumers_not_checked
        == expected
    )


def test_no_traffic_is_compared_with_shares_that_depend_on_an_unknown_order() -> None:
    bound = [("a", 1), ("b", 1), ("a", 3)]
    exchange = ExchangeDefinition(
        "x", "x-consistent-hash", ring=tuple(RingMember(queue, str(weight)) for queue, weight in bound)
    )
    live = as_live(
        Topology((exchange,), (QueueDefinition("a"), QueueDefinition("b"))),
        usage=Usage({"x": 100.0}, {"a": QueueUsage(rate=75.0), "b": QueueUsage(rate=25.0)}),
        rings={"x": HashRing.unordered(bound, Release("4.3.6"))},
    )
    assert "uneven-traffic" not in {finding.kind for finding in check(live).findings}


@pytest.mark.parametrize(
    ("bound", "other", "expected"),
    [
        (["orders.1", "orders.2"], "orders.3", True),
        (["orders.10", "orders.11"], "orders.2", True),
        (["orders.1"], "orders.2", True),
        (["v2.orders.1", "v2.orders.2"], "v1.orders.3", False),
        (["v2.orders.1"], "v1.orders.1", False),
        (["v2.orders.1", "v2.orders.2"], "v2.orders.3", True),
        (["n2.a", "n2.b"], "n1.b", False),
        (["q1-v2", "q2-v2"], "q1-v1", False),
        (["q1-v2", "q2-v2"], "q3-v2", True),
        (["eu.1", "us.1"], "eu.2", True),
        (["s1.1", "s2.2"], "s2.1", True),
        (["a", "b"], "c", False),
        (["orders.1", "audit"], "orders.2", True),
        (["q.1", "q.1.retry"], "q.2", True),
    ],
)
def test_only_the_number_that_counts_the_queues_of_a_ring_is_another_one_in_a_forgotten_queue(
    bound: list[str], other: str, *, expected: bool
) -> None:
    exchange = ExchangeDefinition("x", "x-consistent-hash", ring=tuple(map(RingMember, bound)))
    live: LiveTopology = as_live(
        Topology((exchange,), tuple(map(QueueDefinition, [*bound, other]))),
        rings={"x": HashRing.unordered([(queue, 1) for queue in bound], Release("4.3.6"))},
    )
    found = [finding.destination for finding in check(live).findings if finding.kind == "unbound-queue"]
    assert found == ([other] if expected else [])
