"""Proposals: who gives a slot to whom, what moves, and why a target cannot be reached."""

from __future__ import annotations

from typing import Any

import pytest

from rabbit_chx import ExchangeRef, HashRing, SlotTable
from rabbit_chx.analysis import SlotLoad
from rabbit_chx.analysis.slot_load import KeyLoad
from rabbit_chx.errors import InputError
from rabbit_chx.topology import RingMember, balance
from rabbit_chx.topology.slots.balance import LoadTarget

SLOTS = [ExchangeRef(f"events.slot.{n:02}") for n in range(8)]
RING = HashRing.from_bindings([(slot, 1) for slot in SLOTS])
#: Slots 0, 2, 4, 6 and 1, 3, 5, 7.
TABLE = SlotTable(RING, {slot: f"events.{n % 2 + 1}" for n, slot in enumerate(SLOTS)})


def load_of(*amounts: float) -> dict[Any, float]:
    return dict(zip(SLOTS, amounts, strict=True))


def test_the_busiest_queue_gives_the_lightest_slot_that_is_enough() -> None:
    made = balance(TABLE, load_of(30, 10, 12, 10, 20, 10, 3, 5), target=1.2)
    assert made.state == "proposed"
    assert [(move.slot, move.old, move.new) for move in made.moves] == [(SLOTS[2], "events.1", "events.2")]
    assert max(queue.before for queue in made.queues) == 0.65
    assert max(queue.after for queue in made.queues) == 0.53
    assert made.load_moved == 0.12
    assert made.keys_moved == RING.shares()[SLOTS[2]]
    members = (RingMember("events.1", slots=(0, 4, 6)), RingMember("events.2", slots=(1, 2, 3, 5, 7)))
    assert made.members("events") == members
    assert made.members("other") is None
    assert made.before is TABLE
    assert {slot for slot in SLOTS if made.after.owners[slot] != TABLE.owners[slot]} == {SLOTS[2]}


def test_nothing_is_proposed_where_nothing_is_over_the_target() -> None:
    made = balance(TABLE, load_of(*[1] * 8), target=1.0)
    assert (made.state, made.moves, made.after) == ("balanced", (), TABLE)
    rounded = load_of(0.1, 0.1, 0.3, 0.2, 0.7, 0.3, 0.2, 0.7)
    assert balance(TABLE, rounded, target=1.0).state == "balanced", "but for the rounding of floats"
    assert balance(TABLE, load_of(*[0.1] * 8)).state == "balanced", "rates below one message in a second"


def test_weights_decide_what_is_due_to_a_queue() -> None:
    loads = load_of(20, 5, 20, 5, 20, 5, 20, 5)
    assert balance(TABLE, loads, {"events.1": 4, "events.2": 1}, target=1.0).state == "balanced"
    turned = balance(TABLE, loads, {"events.1": 1, "events.2": 4}, target=1.0)
    found = {queue.queue: (queue.weight, queue.after) for queue in turned.queues}
    assert found == {"events.1": (1, 0.2), "events.2": (4, 0.8)}
    assert len(turned.moves) == 3
    share = balance(TABLE, load_of(40, 5, 10, 5, 10, 5, 20, 5), target=LoadTarget(0.6, "share"))
    assert [move.slot for move in share.moves] == [SLOTS[6]], "a share is the same for each queue"


def test_a_new_queue_takes_slots_and_one_that_leaves_gives_all_away() -> None:
    made = balance(TABLE, load_of(*[1] * 8), {"events.2": 1, "events.3": 1}, target=1.0)
    assert {(move.old, move.new) for move in made.moves} == {("events.1", "events.3")}
    assert len(made.moves) == 4
    gone = next(queue for queue in made.queues if queue.queue == "events.1")
    assert gone.weight is gone.limit is None
    assert (gone.slots_before, gone.slots_after, gone.after) == (4, 0, 0.0)


def test_queues_are_in_the_natural_order_of_their_names() -> None:
    weights = {f"events.{n}": 1 for n in (10, 3, 2, 4)}
    made = balance(TABLE, load_of(*[1] * 8), weights, target=1.0)
    names = [f"events.{n}" for n in (1, 2, 3, 4, 10)]
    assert [queue.queue for queue in made.queues] == names
    assert [member.destination for member in made.members("events") or ()] == names[1:]


def test_a_slot_that_nobody_has_gets_a_queue() -> None:
    table = SlotTable(RING, dict.fromkeys(SLOTS[:4], "events.1") | dict.fromkeys(SLOTS[4:7], "events.2"))
    made = balance(table, load_of(*[1] * 8), target=1.0)
    assert [(move.slot, move.old, move.new) for move in made.moves] == [(SLOTS[7], None, "events.2")]
    assert [queue.queue for queue in made.queues] == ["events.1", "events.2", None]
    hopeless = balance(table, load_of(90, *[1] * 7), target=1.0)
    assert (hopeless.state, hopeless.members("events")) == ("impossible", None)


def test_a_queue_with_other_buckets_keeps_them() -> None:
    ring = HashRing.from_bindings([(SLOTS[0], 1), (SLOTS[1], 1), (SLOTS[2], 1), ("plain", 1)])
    table = SlotTable(ring, dict.fromkeys(SLOTS[:3], "plain") | {SLOTS[2]: "other"})
    loads: dict[Any, float] = {SLOTS[0]: 10, SLOTS[1]: 10, SLOTS[2]: 10, "plain": 20}
    made = balance(table, loads, target=1.2)
    assert {queue.queue: queue.after for queue in made.queues} == {"plain": 0.6, "other": 0.4}
    refused = balance(table, {**loads, "plain": 200}, target=1.2)
    assert refused.state == "impossible"
    assert refused.obstacle is not None
    assert (refused.obstacle.kind, refused.obstacle.destination) == ("own-keys", "plain")


def test_another_exchange_in_the_ring_has_no_part_in_it() -> None:
    audit = ExchangeRef("audit")
    ring = HashRing.from_bindings([*((slot, 1) for slot in SLOTS), (audit, 1)])
    table = SlotTable(ring, TABLE.owners, frozenset({audit}))
    made = balance(table, {**load_of(30, 10, 12, 10, 20, 10, 3, 5), audit: 1_000})
    assert [move.slot for move in made.moves] == [SLOTS[2]]
    assert made.after.other_exchanges == {audit}
    assert sum(queue.after for queue in made.queues) == pytest.approx(1)


def test_a_key_hotter_than_a_queue_is_named() -> None:
    loads = load_of(90, 2, 2, 2, 1, 1, 1, 1)
    made = balance(TABLE, SlotLoad(loads, keys=(KeyLoad("whale", SLOTS[0], 85, 85),)), target=1.2)
    assert (made.state, made.moves) == ("impossible", ())
    obstacle = made.obstacle
    assert obstacle is not None
    assert (obstacle.kind, obstacle.destination, obstacle.names) == ("hot-key", SLOTS[0], ("whale",))
    says = "key 'whale' alone has 85.000% of the load or more, and no queue may have more than 60.000%"
    assert says in obstacle.message
    assert balance(TABLE, loads, target=1.8).state == "proposed"


def test_a_slot_hotter_than_a_queue_is_named() -> None:
    key = KeyLoad("small", SLOTS[0], 2, 3)
    found = balance(TABLE, SlotLoad(load_of(70, 10, 5, 5, 2, 2, 2, 4), keys=(key,))).obstacle
    assert found is not None
    assert (found.kind, found.names, found.destination) == ("hot-slot", (), SLOTS[0])
    assert (
        "slot events.slot.00 has 70.000% of the load, and no queue may have more than 60.000%" in found.text
    )


def test_a_target_below_what_there_is_is_impossible() -> None:
    made = balance(TABLE, load_of(*[1] * 8), target=0.9)
    assert made.obstacle is not None
    assert (made.state, made.obstacle.kind) == ("impossible", "target")
    assert made.obstacle.message == "all queues together may have 90.000% of the load"


def test_where_no_way_was_found_none_is_ruled_out() -> None:
    table = SlotTable(RING, dict.fromkeys(SLOTS, "events.1"))
    made = balance(table, load_of(3, 3, 3, 0, 0, 0, 0, 0), {"events.1": 1, "events.2": 1}, target=1.1)
    assert made.obstacle is not None
    assert (made.state, made.obstacle.kind) == ("not-found", "not-found")


def test_a_target_is_read_from_text_and_written() -> None:
    for text, target in (
        ("1.2", LoadTarget(1.2)),
        ("2", LoadTarget(2.0)),
        ("30%", LoadTarget(0.3, "share")),
        (" 12.5% ", LoadTarget(0.125, "share")),
    ):
        assert LoadTarget.from_text(text) == target
        assert str(target) == text.strip()


@pytest.mark.parametrize("text", ["", "-1", "0", "0%", "101%", "much", "1,2", "1e9", "nan"])
def test_an_invalid_target_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="target"):
        LoadTarget.from_text(text)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("x", {}), "'x' is not a slot table"),
        ((TABLE, {}), "the slots have no load"),
        ((TABLE, load_of(-1, *[1] * 7)), "the load of exchange events.slot.00 is -1"),
        ((TABLE, {SLOTS[0]: float("nan")}), "is nan"),
        ((TABLE, load_of(*[1] * 8), {}), "pass at least one weight"),
        ((TABLE, load_of(*[1] * 8), {"events.1": 0}), "the weight of 'events.1' is 0"),
    ],
)
def test_what_cannot_be_balanced_is_refused(arguments: tuple[Any, ...], says: str) -> None:
    with pytest.raises(InputError, match=says):
        balance(*arguments)
