"""The load of slots, counted from keys."""

from __future__ import annotations

from collections import Counter

from rabbit_chx.analysis import SlotLoad
from rabbit_chx.analysis.key_routing import Hashing
from rabbit_chx.analysis.slot_load import KeyLoad
from rabbit_chx.routing import ConsistentHashExchange, ExchangeRef, HashRing, Release, SlotTable

SLOTS = [ExchangeRef(f"events.slot.{n:02}") for n in range(8)]
RING = HashRing.from_bindings([(slot, 1) for slot in SLOTS])
KEYS = [f"customer-{n % 97}" for n in range(1_000)]


def test_each_message_counts_where_its_key_goes() -> None:
    load = SlotLoad.of_keys(RING, [KEYS])
    assert load.messages == Counter(map(RING.destination_for, KEYS))
    assert load.nowhere == 0
    assert SlotLoad.of_keys(SlotTable(RING, dict.fromkeys(SLOTS, "q")), [KEYS]) == load


def test_batches_make_no_difference() -> None:
    whole = SlotLoad.of_keys(RING, [KEYS])
    parts = SlotLoad.of_keys(RING, (KEYS[at : at + 7] for at in range(0, len(KEYS), 7)))
    assert parts.messages == whole.messages
    assert {(load.key, load.place, load.least) for load in parts.keys} == {
        (load.key, RING.destination_for(load.key), KEYS.count(load.key)) for load in parts.keys
    }


def test_heavy_keys_come_first_with_their_slot() -> None:
    keys = [*KEYS, *["whale"] * 500, *["dolphin"] * 300]
    found = SlotLoad.of_keys(RING, [keys]).keys[:2]
    assert found == tuple(
        KeyLoad(key, RING.destination_for(key), count, count)
        for key, count in (("whale", 500), ("dolphin", 300))
    )


def test_keys_of_a_hole_are_counted_as_nowhere_and_those_of_a_plain_queue_as_its_own() -> None:
    ring = HashRing.from_buckets([SLOTS[0], "plain", None, SLOTS[1]])
    load = SlotLoad.of_keys(ring, [KEYS])
    counts = Counter(map(ring.destination_for, KEYS))
    assert load.nowhere == counts.pop(None) > 0
    assert load.messages == counts


def test_what_the_exchange_hashes_counts() -> None:
    ring = RING.with_release(Release("4.3.6"))
    exchange = ConsistentHashExchange("events", ring, {"hash-header": "tenant"})
    values = [n % 13 for n in range(200)]
    load = SlotLoad.of_keys(ring, [values], hashing=Hashing(hash_header="tenant"))
    assert load.messages == Counter(exchange.route(headers={"tenant": value}) for value in values)
    crashing = RING.with_release(Release("4.0.5"))
    load = SlotLoad.of_keys(crashing, [[[], 1, 2, 3]], hashing=Hashing(hash_header="tenant"))
    assert (load.nowhere, sum(load.messages.values())) == (1, 3), "what the broker refuses goes nowhere"
