"""The load of slots, counted from keys."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbit_chx.analysis import KeySketch, SlotLoad
from rabbit_chx.analysis.key_routing import Hashing, KeyCount
from rabbit_chx.errors import InputError
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


# ---- the sketch of heavy keys: its bounds, against an exact count of each key


STREAMS = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 9)), max_size=200)


def exact(stream: list[tuple[int, int]]) -> Counter[int]:
    counts: Counter[int] = Counter()
    for key, messages in stream:
        counts[key] += messages
    return counts


@given(STREAMS, st.integers(1, 12))
def test_the_bounds_hold_for_each_key(stream: list[tuple[int, int]], counters: int) -> None:
    sketch, counts = KeySketch(counters), exact(stream)
    for key, messages in stream:
        sketch.add(key, messages)
    heaviest_held = sketch.heaviest(counters)
    assert [*heaviest_held] == sorted(heaviest_held, key=lambda count: (-count.least, -count.most))
    held = {count.key: count for count in heaviest_held}
    assert sketch.messages == sum(counts.values())
    assert len(held) == min(counters, len(counts))
    unseen_at_most = min(count.most for count in held.values()) if len(held) == counters else 0
    for key, messages in counts.items():
        if key in held:
            assert held[key].least <= messages <= held[key].most
            assert held[key].most - held[key].least <= unseen_at_most
        else:
            assert messages <= unseen_at_most
    heaviest = [0, *(messages for _, messages in counts.most_common())]
    for j in range(min(counters, len(heaviest))):
        assert unseen_at_most * (counters - j) <= sketch.messages - sum(heaviest[: j + 1])
    assert {key for key, messages in counts.items() if messages * counters > sketch.messages} <= set(held)


def test_no_counter_is_taken_over_while_there_is_a_free_one() -> None:
    sketch = KeySketch(3)
    for key in "abcaab":
        sketch.add(key)
    assert sketch.heaviest(2) == (KeyCount("a", 3, 3), KeyCount("b", 2, 2))


@pytest.mark.parametrize("counters", [0, -1, 1.5, True])
def test_a_sketch_needs_counters(counters: int) -> None:
    with pytest.raises(InputError, match="pass a whole number from 1"):
        KeySketch(counters)
