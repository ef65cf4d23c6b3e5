"""What is asked of a ring may be asked of its slots: the answers are about queues."""

from __future__ import annotations

from collections import Counter
from itertools import islice

import pytest

from rabbit_chx import ConsistentHashExchange, ExchangeRef, HashRing, SlotTable
from rabbit_chx.analysis import (
    keys_for,
    simulate,
)
from rabbit_chx.analysis.key_routing import Hashing
from rabbit_chx.errors import InputError

SLOTS = [ExchangeRef(f"e.slot.{n:02}") for n in range(16)]
RING = HashRing.from_bindings([(slot, 1) for slot in SLOTS])
THREE = SlotTable(RING, {}).reassigned({"e.1": 1, "e.2": 1, "e.3": 2})
FOUR = THREE.reassigned({"e.1": 1, "e.2": 1, "e.3": 2, "e.4": 1})
KEYS = [f"user-{n}" for n in range(500)]


@pytest.mark.parametrize("hashing", [Hashing(), Hashing("tenant"), Hashing(None, "message_id")])
def test_each_kind_of_key_is_routed_to_its_queue(hashing: Hashing) -> None:
    slots = hashing.route_all(KEYS, RING)
    assert hashing.route_all(KEYS, THREE) == [THREE.owners[slot] for slot in slots]  # type: ignore[index]


def test_an_exchange_of_slots_routes_to_queues() -> None:
    exchange = ConsistentHashExchange("e", THREE, {"hash-header": "tenant"})
    by_slot = ConsistentHashExchange("e", RING, {"hash-header": "tenant"})
    assert (exchange.ring, exchange.slots, exchange.destinations) == (RING, THREE, THREE.destinations)
    for key in KEYS[:50]:
        slot = by_slot.route(headers={"tenant": key})
        assert exchange.route(headers={"tenant": key}) == THREE.queue_of(slot)
        assert exchange.explain(headers={"tenant": key}).destination == THREE.queue_of(slot)
    found = exchange.destinations_for(KEYS).tolist()
    assert found == [THREE.queue_of(slot) for slot in by_slot.destinations_for(KEYS)]
    assert exchange.counts(KEYS) == Counter(found)
    assert (by_slot.slots, by_slot.destinations) == (None, RING.destinations)


def test_an_exchange_reports_that_a_slot_has_no_queue() -> None:
    exchange = ConsistentHashExchange("e", SlotTable(RING, {}))
    explained = exchange.explain("user-1")
    assert explained.destination is exchange.route("user-1") is None
    assert explained.reason == f"{RING.destination_for('user-1')!s} has no queue"
    assert exchange.indices(["user-1"]).tolist() == [-1]
    assert set(Hashing().route_all(KEYS, SlotTable(RING, {SLOTS[0]: "a"}))) == {"a", None}
    empty = SlotTable(HashRing.from_bindings([]), {})
    assert ConsistentHashExchange("e", empty).route("user-1") is None


def test_a_simulation_counts_by_queue() -> None:
    done = simulate(THREE, KEYS, changed=FOUR)
    assert {place.place: (place.buckets, place.share) for place in done.places} == {
        queue: (Counter[object](THREE.owners.values())[queue], share)
        for queue, share in THREE.shares().items()
    }
    assert done.sample is not None
    assert done.sample.messages_of == Counter(map(THREE.destination_for, KEYS))
    assert done.change is not None
    assert done.change.shares.moved == THREE.share_moved(FOUR)
    assert {target for _, target, _ in done.change.shares.moves()} == {"e.4"}


def test_keys_are_found_for_a_queue_and_for_a_slot() -> None:
    assert {THREE.destination_for(key) for key in islice(keys_for(THREE, "e.2"), 20)} == {"e.2"}
    assert {RING.destination_for(key) for key in islice(keys_for(THREE, SLOTS[5]), 5)} == {SLOTS[5]}
    with pytest.raises(InputError, match=r"^e.9 has no bucket in the ring; the ring has e.1, e.2, e.3$"):
        keys_for(THREE, "e.9")
