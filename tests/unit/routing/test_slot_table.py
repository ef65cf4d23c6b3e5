"""Keys, slots and queues: the table against the ring and the owners."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rabbit_chx import ExchangeRef, HashRing, Release, SlotTable
from rabbit_chx.errors import EmptyRingError, InputError
from rabbit_chx.routing.key_map_json import key_map_from_json
from rabbit_chx.routing.slot_table import assign_slots, slot_counts

SLOTS = [ExchangeRef(f"orders.slot.{n:02}") for n in range(32)]
RING = HashRing.from_bindings([(slot, 1) for slot in SLOTS])
FOUR = SlotTable(RING, {}).reassigned({f"orders.{n}": 1 for n in range(1, 5)})
KEYS = [f"customer-{n}" for n in range(2000)]


def test_shares_are_those_of_the_slots() -> None:
    shares = RING.shares()
    for queue, share in FOUR.shares().items():
        assert share == sum(shares[slot] for slot in SLOTS if FOUR.owners[slot] == queue)
    assert sum(FOUR.shares().values()) == 1.0
    assert SlotTable(RING, {}).shares() == {None: 1.0}
    assert SlotTable(HashRing.from_bindings([]), {}).shares() == {}


def test_a_fifth_queue_takes_six_slots_and_nothing_else_moves() -> None:
    five = FOUR.reassigned({f"orders.{n}": 1 for n in range(1, 6)})
    moved = [slot for slot in SLOTS if five.owners[slot] != FOUR.owners[slot]]
    assert len(moved) == 6
    assert {five.owners[slot] for slot in moved} == {"orders.5"}
    assert FOUR.share_moved(five) == sum(RING.shares()[slot] for slot in moved)
    assert sum(FOUR.destination_for(key) != five.destination_for(key) for key in KEYS) == pytest.approx(
        len(KEYS) * FOUR.share_moved(five), rel=0.2
    )


def test_a_queue_bound_in_addition_to_slots_and_a_hole() -> None:
    ring = HashRing.from_buckets([SLOTS[0], "plain", SLOTS[1], None, SLOTS[0]])
    table = SlotTable(ring, {SLOTS[0]: "a"})
    assert table.destinations == ("a", "plain")
    assert table.slots == (SLOTS[0], SLOTS[1])
    found = [table.destinations[n] if n >= 0 else None for n in table.indices(KEYS)]
    assert found == [table.destination_for(key) for key in KEYS]
    assert None in table.shares()


def test_a_table_is_a_value() -> None:
    again = SlotTable(RING, dict(FOUR.owners))
    assert (again, hash(again)) == (FOUR, hash(FOUR))
    assert pickle.loads(pickle.dumps(FOUR)) == FOUR  # noqa: S301  # our own
    assert repr(FOUR) == "<SlotTable 32 slots, 4 queues, replayed>"
    owners: Any = FOUR.owners
    with pytest.raises(TypeError):
        owners[SLOTS[0]] = "other"


@pytest.mark.parametrize(
    ("ring", "owners", "says"),
    [
        ("x", {}, "'x' is not a ring"),
        (RING, {ExchangeRef("other"): "a"}, "exchange other is not a destination of the ring"),
        (RING, {"orders.slot.00": "a"}, "'orders.slot.00' is not a slot: pass an ExchangeRef"),
        (RING, {SLOTS[0]: 5}, "is assigned to 5: pass the name of a queue"),
        (RING, [SLOTS[0]], "is not a mapping of slots to queues"),
    ],
)
def test_what_makes_no_table(ring: Any, owners: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        SlotTable(ring, owners)


def test_another_exchange_of_the_ring_is_not_a_slot_and_keeps_its_keys() -> None:
    audit = ExchangeRef("audit")
    ring = HashRing.from_buckets([SLOTS[0], audit, SLOTS[1]])
    table = SlotTable(ring, {SLOTS[0]: "a"}, frozenset([audit]))
    assert (table.slots, table.destinations) == ((SLOTS[0], SLOTS[1]), ("a", audit))
    assert set(table.reassigned({"b": 1}).owners) == {SLOTS[0], SLOTS[1]}
    assert table.shares() == {
        "a": ring.shares()[SLOTS[0]],
        audit: ring.shares()[audit],
        None: ring.shares()[SLOTS[1]],
    }
    with pytest.raises(InputError, match=r"^audit has a queue and is in other_exchanges"):
        SlotTable(ring, {audit: "a"}, frozenset([audit]))


def test_a_table_as_json_is_its_ring_and_the_slots() -> None:
    audit = ExchangeRef("audit")
    ring = HashRing.from_buckets([SLOTS[0], audit, SLOTS[1], None, "plain"])
    table = SlotTable(ring, {SLOTS[0]: "a"}, frozenset([audit]))
    document = json.loads(table.to_json())
    assert document["slots"] == {"orders.slot.00": "a", "orders.slot.01": None}
    assert {name: value for name, value in document.items() if name != "slots"} == json.loads(ring.to_json())
    for text in (table.to_json(), table.to_json().encode()):
        assert SlotTable.from_json(text) == table
        assert key_map_from_json(text) == table
        assert HashRing.from_json(text) == ring  # who knows rings alone reads the ring
    assert SlotTable.from_json(FOUR.to_json()) == FOUR
    assert key_map_from_json(RING.to_json()) == RING
    assert SlotTable.from_json(table.to_json()).provenance == "read"


@pytest.mark.parametrize(
    ("slots", "says"),
    [
        (None, "this is a ring without slots: read it with HashRing.from_json"),
        (["a"], "the table's slots are not a mapping of slot to queue"),
        ({"orders.slot.00": 5}, "the table's slots are not a mapping of slot to queue"),
        ({"orders.slot.99": "a"}, "exchange orders.slot.99 is not a destination of its ring"),
        ({"": "a"}, "name"),
    ],
)
def test_json_that_is_not_a_table(slots: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        SlotTable.from_json(json.dumps({**json.loads(RING.to_json()), "slots": slots}))


def test_a_table_under_another_release_is_an_assumption() -> None:
    other = FOUR.with_release(Release("3.12.14"))
    assert (other.release, other.provenance) == (Release("3.12.14"), "replayed")
    assert other.owners == FOUR.owners
    assert (FOUR.release, FOUR.provenance) == (RING.release, "replayed")


def test_an_empty_ring_has_no_answer() -> None:
    table = SlotTable(HashRing.from_bindings([]), {})
    for ask in (lambda: table.destination_for("k"), lambda: table.indices(["k"])):
        with pytest.raises(EmptyRingError):
            ask()


QUEUES = ("a", "b", "c")


def moved(before: dict[int, str], after: dict[int, str]) -> int:
    return sum(before.get(slot) != queue for slot, queue in after.items())


def within_bounds(after: dict[int, str], weights: dict[str, int]) -> bool:
    held, total = Counter(after.values()), sum(weights.values())
    floors = {queue: len(after) * weight // total for queue, weight in weights.items()}
    ceilings = {queue: -(-len(after) * weight // total) for queue, weight in weights.items()}
    return set(held) <= set(weights) and all(
        floors[queue] <= held[queue] <= ceilings[queue] for queue in weights
    )


@pytest.mark.parametrize("slots", [3, 4, 5, 6])
def test_no_assignment_within_the_bounds_moves_fewer(slots: int) -> None:
    every = [dict(enumerate(queues)) for queues in product(QUEUES, repeat=slots)]
    befores = [*every[::7], {}, {0: "gone", 1: "a"}]
    for weights in ({"a": 1, "b": 1}, {"a": 1, "b": 1, "c": 1}, {"a": 2, "b": 1, "c": 1}, {"c": 1}):
        if slots < sum(weights.values()):
            continue  # a queue might get none, which is refused
        allowed = [after for after in every if within_bounds(after, weights)]
        for before in befores:
            after = assign_slots(range(slots), before, weights)
            assert within_bounds(after, weights)
            assert moved(before, after) == min(moved(before, other) for other in allowed)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from(range(16)), st.integers(1, 4), min_size=1, max_size=12), st.data())
def test_counts_are_within_the_bounds_and_as_many_as_possible_stay(
    queues: dict[int, int], data: st.DataObject
) -> None:
    """The fewest moves are counted from the numbers of slots alone, which takes no search."""
    weights = {f"q{number}": weight for number, weight in queues.items()}
    slots = data.draw(st.integers(4 * len(weights), 4 * len(weights) + 40))
    numbers = data.draw(st.lists(st.integers(0, 15), min_size=slots, max_size=slots))
    held = Counter(f"q{number}" for number in numbers)
    counts, total = slot_counts(slots, weights, held), sum(weights.values())
    assert sum(counts.values()) == slots
    floors = {queue: slots * weight // total for queue, weight in weights.items()}
    keepable = sum(min(held[queue], floor) for queue, floor in floors.items())
    hungry = sum(held[queue] > floors[queue] and slots * weights[queue] % total > 0 for queue in weights)
    stay = sum(min(held[queue], counts[queue]) for queue in weights)
    assert stay == keepable + min(slots - sum(floors.values()), hungry)
    assert all(abs(counts[queue] * total - slots * weight) < total for queue, weight in weights.items())


@given(st.permutations([("a", 3), ("b", 1), ("c", 2), ("d", 1)]), st.integers(8, 64))
def test_the_order_of_the_weights_does_not_matter(weights: list[tuple[str, int]], slots: int) -> None:
    before = {slot: "abcd"[slot % 4] for slot in range(slots)}
    assert assign_slots(range(slots), before, dict(weights)) == assign_slots(
        range(slots), before, dict(sorted(weights))
    )


@pytest.mark.parametrize(
    ("slots", "weights", "says"),
    [
        (4, {}, "no queue to share the slots"),
        (4, {"a": 0}, "the weight of 'a' is 0"),
        (4, {"a": True}, "the weight of 'a' is True"),
        (4, {"a": 1.5}, "the weight of 'a' is 1.5"),
        (4, {"a": 100, "b": 1}, "queue 'b' would get none of the 4 slots, with a weight of 1 of 101"),
        (1, {"a": 1, "b": 1}, "would get none of the 1 slots"),
    ],
)
def test_what_cannot_be_assigned(slots: int, weights: dict[str, int], says: str) -> None:
    with pytest.raises(InputError, match=says):
        assign_slots(range(slots), {}, weights)
