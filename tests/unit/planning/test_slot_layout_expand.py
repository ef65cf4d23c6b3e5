"""Exchanges with slots, laid out as plain objects."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import permutations

import pytest
from slot_files import slotted

from rabbit_chx import ExchangeRef, HashRing, InputError, Topology
from rabbit_chx.planning.slot_layout import expand
from rabbit_chx.topology import ExchangeDefinition, LiveTopology, QueueDefinition, RingMember

_TYPE = "x-consistent-hash"


def _owners(topology: Topology) -> dict[str, str]:
    of_slots = (binding for binding in topology.bindings if ".slot." in binding.source)
    return {binding.source: str(binding.destination) for binding in of_slots}


@pytest.mark.parametrize(("count", "last"), [(1, "00"), (100, "99"), (101, "100"), (1024, "1023")])
def test_numbers_are_as_wide_as_the_largest(count: int, last: str) -> None:
    plain = expand(slotted(count, '[{ queue = "events.1" }]'), LiveTopology())
    ring = next(exchange.ring for exchange in plain.exchanges if exchange.name == "events")
    assert ring is not None
    assert len(ring) == count
    assert ring[-1].destination == ExchangeRef(f"events.slot.{last}")
    assert ring[0].destination == ExchangeRef(f"events.slot.{'0' * len(last)}")


def test_what_is_of_others_is_laid_out_as_theirs() -> None:
    theirs = slotted(4, '[{ queue = "events.1" }]\nowner = "external"')
    plain = expand(theirs, LiveTopology())
    assert {exchange.owner for exchange in plain.exchanges} == {"external"}
    assert {binding.owner for binding in plain.bindings} == {"external"}
    assert plain.queue("events.park") == QueueDefinition("events.park", owner="external")


def test_new_slots_go_where_most_of_their_keys_are() -> None:
    """Moving in from a plain ring: no other even share of the slots keeps a thousandth of the keys more."""
    queues = ["events.1", "events.2"]
    ring = HashRing.from_buckets(queues)
    exchange = ExchangeDefinition("events", _TYPE, ring=tuple(map(RingMember, queues)))
    live = LiveTopology((exchange,), rings={"events": ring})
    wanted = slotted(8, '[{ queue = "events.{1..2}" }]', "events.{1..2}")
    owners = _owners(expand(wanted, live))
    assert sorted(owners.values()) == sorted(queues * 4)

    def staying(chosen: Iterable[str]) -> float:
        return 1 - ring.share_moved(HashRing.from_buckets(chosen))

    best = max(map(staying, {*permutations(queues * 4)}))
    assert staying(owners.values()) > best - 0.001
    assert best > 0.6


def test_more_slots_with_other_names_keep_what_they_can() -> None:
    """64 slots become 128: all names are new, and half of the keys are in a bucket of the same number."""
    before = expand(slotted(64, '[{ queue = "events.{1..4}" }]'), LiveTopology())
    slots = [ExchangeRef(f"events.slot.{n:02d}") for n in range(64)]
    live = before.with_rings({"events": HashRing.from_buckets(slots)})
    after = _owners(expand(slotted(128, '[{ queue = "events.{1..4}" }]'), live))
    old = _owners(before)
    same = [n for n in range(64) if old[f"events.slot.{n:02d}"] == after[f"events.slot.{n:03d}"]]
    assert len(same) > 60


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ((), "there is no queue to share the slots"),
        ((RingMember("a", "1"), RingMember("b", "99")), "queue 'a' would get none of the 4 slots"),
        ((RingMember("a", slots=(0, 1, 2)),), "slot 3 of events is not listed"),
        (
            (RingMember("a", slots=(0, 1, 2)), RingMember("b", slots=(2, 3))),
            "slot 2 of events is listed twice",
        ),
        ((RingMember("a", slots=(0, 1, 2, 3, 4)),), "slot 4 of events is listed twice, or there is none"),
    ],
)
def test_a_topology_from_python_may_be_impossible(members: tuple[RingMember, ...], says: str) -> None:
    wanted = Topology((ExchangeDefinition("events", _TYPE, slots=4, members=members),))
    with pytest.raises(InputError, match=says):
        expand(wanted, LiveTopology())
