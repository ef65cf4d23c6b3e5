"""What is a slot of a live exchange, and which queue has it."""

from __future__ import annotations

import pytest

from rabbit_chx import ExchangeRef, HashRing
from rabbit_chx.errors import MismatchError
from rabbit_chx.topology import BindingDefinition, ExchangeDefinition
from rabbit_chx.topology.live_slots import LiveSlots, live_slots

PLACES = [ExchangeRef("e.slot.00"), ExchangeRef("e.slot.01"), ExchangeRef("audit")]
RING = HashRing.from_buckets([*PLACES, "plain"])
SLOTS = [ExchangeDefinition(f"e.slot.0{n}", "fanout", internal=True) for n in range(2)]
BOUND = [BindingDefinition("e.slot.00", "a"), BindingDefinition("e.slot.01", "b")]


def read(*exchanges: ExchangeDefinition, bindings: list[BindingDefinition] | None = None) -> LiveSlots:
    return live_slots("e", RING, exchanges, BOUND if bindings is None else bindings)


@pytest.mark.parametrize(
    "audit",
    [
        ExchangeDefinition("audit", "topic"),
        ExchangeDefinition("audit", "topic", internal=True),
        ExchangeDefinition("audit", "fanout"),
    ],
    ids=["topic", "internal topic", "public fanout"],
)
def test_only_internal_fanout_exchanges_are_slots(audit: ExchangeDefinition) -> None:
    table = read(*SLOTS, audit).table()
    assert table.slots == tuple(PLACES[:2])
    assert dict(table.owners) == {PLACES[0]: "a", PLACES[1]: "b"}
    assert table.other_exchanges == {ExchangeRef("audit")}
    assert table.destinations == ("a", "b", ExchangeRef("audit"), "plain")
    assert set(table.reassigned({"a": 1}).owners) == set(PLACES[:2])


def test_an_exchange_that_is_bound_to_another_is_not_a_slot() -> None:
    onwards = [BindingDefinition("audit", "c"), BindingDefinition("audit", ExchangeRef("amq.topic"))]
    audit = ExchangeDefinition("audit", "fanout", internal=True)
    assert read(*SLOTS, audit, bindings=[*BOUND, *onwards]).other_exchanges == {ExchangeRef("audit")}


def test_a_slot_without_a_queue_has_no_owner() -> None:
    found = read(*SLOTS, bindings=BOUND[:1])
    assert found.queues == {PLACES[0]: ("a",), PLACES[1]: ()}
    table = found.table()
    assert set(table.owners) == {PLACES[0]}
    assert table.shares()[None] == RING.shares()[PLACES[1]]


def test_a_slot_with_two_queues_concerns_its_own_keys_alone() -> None:
    found = read(*SLOTS, bindings=[*BOUND, BindingDefinition("e.slot.01", "a")])
    table = found.table()
    assert table.owners == {PLACES[0]: "a"}
    assert table.destinations == ("a", PLACES[1], PLACES[2], "plain")
    assert table.shares()[PLACES[1]] == RING.shares()[PLACES[1]]
    fault = (
        "slot e.slot.01 of exchange 'e' is bound to 2 queues, a and b, and each of its messages is copied to all of them: "
        "unbind all but one of them"
    )
    assert found.faults == {PLACES[1]: fault}
    with pytest.raises(
        MismatchError, match=r"slot e.slot.01 of exchange 'e' is bound to 2 queues, a and b"
    ) as raised:
        found.sound_table()
    assert (raised.value.exchange, raised.value.queue) == ("e.slot.01", "b")
    assert read(*SLOTS, bindings=BOUND[:1]).faults == {
        PLACES[1]: "slot e.slot.01 of exchange 'e' is bound to no queue: bind a queue to it"
    }


def test_a_queue_that_is_bound_twice_has_the_slot_once() -> None:
    again = BindingDefinition("e.slot.01", "b", "other")
    assert read(*SLOTS, bindings=[*BOUND, again]).table().owners[ExchangeRef("e.slot.01")] == "b"


def test_what_a_list_leaves_out_is_a_slot_by_its_name_or_its_bindings() -> None:
    """Definitions of 4.3 leave internal exchanges out."""
    assert set(read(bindings=[]).queues) == set(PLACES[:2])
    assert set(read(bindings=[BindingDefinition("audit", "c")]).queues) == set(PLACES[:3])
    assert set(read(bindings=[BindingDefinition("audit", "c", "#")]).queues) == set(PLACES[:2])


def test_a_ring_without_slots_stays_a_ring() -> None:
    plain = HashRing.from_buckets(["a", "b"])
    assert live_slots("e", plain, (), ()).key_map() is plain
    assert read(*SLOTS).key_map() == read(*SLOTS).table()
