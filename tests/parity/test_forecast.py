"""What a plan forecasts is what happens to messages: the same keys before and after, each found in its queue."""

from __future__ import annotations

import math
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest
from changed_site import ChangedSite, changed_site
from exchange_types import CHX

from rabbit_chx import ConsistentHashExchange, Topology
from rabbit_chx.publishing import Publisher
from rabbit_chx.topology import ExchangeDefinition, QueueDefinition, RingMember

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rabbit_chx import HashRing
    from tests.parity.conftest import Rabbit

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]

KEYS = [f"customer-{n}" for n in range(20_000)]
QUEUES = tuple(QueueDefinition(f"q{n}") for n in range(6))
# The first goes; a weight changes in the middle; two change places and one comes.
WAYS = ("q0 q1 q2 q3 q4", "q1 q2 q3 q4", "q1 q2:3 q3 q4", "q3 q2:3 q1 q4 q5")
SIGMAS = 5


@pytest.fixture
def site(rabbit: Rabbit) -> Iterator[ChangedSite]:
    with changed_site(rabbit.broker) as made:
        yield made


def wanted(members: str, arguments: dict[str, str]) -> Topology:
    parts = [part.partition(":") for part in members.split()]
    ring = tuple(RingMember(name, weight or "1") for name, _, weight in parts)
    return Topology((ExchangeDefinition("h", CHX, arguments=arguments, ring=ring),), QUEUES)


def routed(site: ChangedSite, properties: dict[str, Any] | None) -> list[str]:
    """Publish every key, and return the queue of each."""
    with Publisher(site.broker.url, "h") as publisher:
        routing_keys = KEYS if properties is None else [""] * len(KEYS)
        publisher.publish_many(routing_keys, [str(n) for n in range(len(KEYS))], properties=properties)
    found = [""] * len(KEYS)
    for queue in QUEUES:
        count = site.channel.queue_declare(queue.name, passive=True).method.message_count or 0
        coming: Any = site.channel.consume(queue.name, auto_ack=True, inactivity_timeout=30)
        for method, _, body in islice(coming, count):
            assert method is not None, f"{queue.name} does not give what it holds"
            found[int(body)] = queue.name
        site.channel.cancel()
    assert "" not in found
    return found


def predicted(ring: HashRing, arguments: dict[str, str]) -> list[Any]:
    """The queue of each key by the mirror."""
    if not arguments:
        return [ring.destinations[index] for index in ring.indices(KEYS)]
    exchange = ConsistentHashExchange("h", ring, arguments=arguments)
    return [exchange.route(routing_key="", headers={"tenant": key}, client="pika") for key in KEYS]


@pytest.mark.parametrize("by", ["routing key", "header"])
def test_the_keys_that_move_are_those_that_the_plan_says(rabbit: Rabbit, site: ChangedSite, by: str) -> None:
    arguments = {} if by == "routing key" else {"hash-header": "tenant"}
    properties = None if by == "routing key" else {"headers": [{"tenant": key} for key in KEYS]}
    ways = WAYS if by == "routing key" else WAYS[:2]
    site.apply(wanted(ways[0], arguments))
    before = routed(site, properties)
    told = []
    for way in ways[1:]:
        planned = site.planned(wanted(way, arguments))
        site.apply(planned)
        after = routed(site, properties)
        ring = planned.rings["h"]
        assert before == predicted(ring.before, arguments)
        assert after == predicted(ring.after, arguments)
        moved = sum(one != other for one, other in zip(before, after, strict=True)) / len(KEYS)
        sampling = math.sqrt(ring.moved * (1 - ring.moved) / len(KEYS))
        assert abs(moved - ring.moved) <= SIGMAS * sampling
        told.append(f"{ring.moved:.1%} forecast, {moved:.1%} measured")
        before = after
        rabbit.count(len(KEYS))
    rabbit.note(f"keys moved, by {by}: {'; '.join(told)}")
