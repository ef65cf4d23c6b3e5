"""What a plan forecasts is what happens to messages: the same keys before and after, each found in its queue."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import pytest
from changed_site import ChangedSite, changed_site
from exchange_types import CHX

from rabbit_chx import ConsistentHashExchange, HashRing, Topology
from rabbit_chx.publishing import PropertyColumns, Publisher
from rabbit_chx.topology import ExchangeDefinition, QueueDefinition, RingMember
from tests.parity.conftest import Rabbit

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]

KEYS = [f"customer-{n}" for n in range(20_000)]
QUEUES = tuple(QueueDefinition(f"q{n}") for n in range(6))
# The first goes; a weight changes in the middle; two change places and one comes.
WAYS = ("q0 q1 q2 q3 q4", "q1 q2 q3 q4", "q1 q2:3 q3 q4", "q3 q2:3 q1 q4 q5")
SIGMAS = 5
SLOTS = 32


@pytest.fixture
def site(rabbit: Rabbit) -> Iterator[ChangedSite]:
    with changed_site(rabbit.broker) as made:
        yield made


def wanted(members: str, arguments: dict[str, str]) -> Topology:
    parts = [part.partition(":") for part in members.split()]
    ring = tuple(RingMember(name, weight or "1") for name, _, weight in parts)
    return Topology((ExchangeDefinition("h", CHX, arguments=arguments, ring=ring),), QUEUES)


def routed(
    site: ChangedSite, properties: PropertyColumns | None = None, keys: Sequence[str] = KEYS
) -> list[str]:
    """Publish every key, and return the queue of each."""
    with Publisher(site.broker.url, "h", persistent=False) as publisher:
        routing_keys = keys if properties is None else [""] * len(keys)
        publisher.publish_many(routing_keys, [str(n) for n in range(len(keys))], properties=properties)
    found = [""] * len(keys)
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
def test_the_keys_that_move_are_those_of_the_plan(rabbit: Rabbit, site: ChangedSite, by: str) -> None:
    arguments = {} if by == "routing key" else {"hash-header": "tenant"}
    properties: PropertyColumns | None = (
        None if by == "routing key" else {"headers": [{"tenant": key} for key in KEYS]}
    )
    ways = WAYS if by == "routing key" else WAYS[:2]
    site.apply(wanted(ways[0], arguments))
    before = routed(site, properties)
    told = []
    for way in ways[1:]:
        planned = site.planned(wanted(way, arguments))
        site.apply(planned)
        after = routed(site, properties)
        ring = planned.rings["h"]
        assert isinstance(ring.before, HashRing)
        assert isinstance(ring.after, HashRing)
        assert before == predicted(ring.before, arguments)
        assert after == predicted(ring.after, arguments)
        moved = sum(old != new for old, new in zip(before, after, strict=True)) / len(KEYS)
        sampling = math.sqrt(ring.moved * (1 - ring.moved) / len(KEYS))
        assert abs(moved - ring.moved) <= SIGMAS * sampling
        told.append(f"{ring.moved:.1%} forecast, {moved:.1%} measured")
        before = after
        rabbit.count(len(KEYS))
    rabbit.note(f"keys moved, by {by}: {'; '.join(told)}")


def with_slots(weights: dict[str, int]) -> Topology:
    members = tuple(RingMember(queue, str(weight)) for queue, weight in weights.items())
    return Topology((ExchangeDefinition("h", CHX, slots=SLOTS, members=members),), QUEUES)


def test_with_slots_the_ideal_share_moves_up_to_the_grain_of_a_slot(
    rabbit: Rabbit, site: ChangedSite
) -> None:
    """A fifth queue comes, one gets twice the weight, and one goes."""
    keys, queues = KEYS[:3_000], [queue.name for queue in QUEUES[:5]]
    even = dict.fromkeys(queues, 1)
    # What the queues that gain are to have more of all keys than before.
    changes = (
        (even, 1 / 5),
        (even | {queues[1]: 2}, 1 / 3 - 1 / 5),
        (dict.fromkeys(queues[1:], 1), 1 / 6 + 1 / 12),
    )
    site.apply(with_slots(dict.fromkeys(queues[:4], 1)))
    before, told = routed(site, keys=keys), []
    for weights, ideal in changes:
        planned = site.planned(with_slots(weights))
        hands = planned.rings["h"].handed_over
        site.apply(planned)
        after = routed(site, keys=keys)
        with site.connected() as live:
            slots = live.slots("h")
        assert after == [slots.destination_for(key) for key in keys]
        moved = sum(old != new for old, new in zip(before, after, strict=True)) / len(keys)
        share = planned.rings["h"].moved
        assert abs(moved - share) <= SIGMAS * math.sqrt(share * (1 - share) / len(keys))
        assert abs(len(hands) / SLOTS - ideal) <= len(weights) / SLOTS / 2
        told.append(f"{len(hands)} of {SLOTS} slots, {moved:.1%} of {len(keys):,} keys")
        before = after
        rabbit.count(len(keys))
    assert told[0].startswith("6 of 32 slots")
    rabbit.note(f"slots that change hands: {'; '.join(told)}")
