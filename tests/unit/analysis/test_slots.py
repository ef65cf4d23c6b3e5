"""An exchange of slots routes to queues. Transcripts show simulations and searches of keys on slots."""

from __future__ import annotations

from collections import Counter

import pytest

from rabbit_chx import ConsistentHashExchange, ExchangeRef, HashRing, SlotTable
from rabbit_chx.analysis.key_routing import Hashing

SLOTS = [ExchangeRef(f"e.slot.{n:02}") for n in range(16)]
RING = HashRing.from_bindings([(slot, 1) for slot in SLOTS])
THREE = SlotTable(RING, {}).reassigned({"e.1": 1, "e.2": 1, "e.3": 2})
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
