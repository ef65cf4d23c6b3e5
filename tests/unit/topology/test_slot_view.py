"""What is a slot of a live exchange, and which queue has it."""

from __future__ import annotations

import pytest

from rabbit_chx import ExchangeRef, HashRing
from rabbit_chx.errors import MismatchError
from rabbit_chx.routing import Destination
from rabbit_chx.topology import BindingDefinition, ExchangeDefinition
from rabbit_chx.topology.slots import SlotView, view_slots

PLACES = [ExchangeRef("e.slot.00"), ExchangeRef("e.slot.01"), ExchangeRef("audit")]
RING = HashRing.from_buckets([*PLACES, "plain"])
SLOTS = [ExchangeDefinition(f"e.slot.0{n}", "fanout", internal=True) for n in range(2)]
BOUND = [BindingDefinition("e.slot.00", "a"), BindingDefinition("e.slot.01", "b")]


def read(*exchanges: ExchangeDefinition, bindings: list[BindingDefinition] | None = None) -> SlotView:
    return view_slots("e", RING, exchanges, BOUND if bindings is None else bindings)


@pytest.mark.parametrize(
    ("type_", "is_internal", "bindings"),
    [
        ("topic", False, ()),
        ("topic", True, ()),
        ("fanout", False, ()),
        ("fanout", True, ("c", ExchangeRef("amq.topic"))),  # bound to another exchange
    ],
)
def test_only_internal_fanout_exchanges_of_queues_are_slots(
    type_: str, bindings: tuple[Destination, ...], *, is_internal: bool
) -> None:
    audit = ExchangeDefinition("audit", type_, internal=is_internal)
    bound = [BindingDefinition("audit", place) for place in bindings]
    table = read(*SLOTS, audit, bindings=[*BOUND, *bound]).table()
    assert table.slots == tuple(PLACES[:2])
    assert dict(table.owners) == {PLACES[0]: "a", PLACES[1]: "b"}
    assert table.other_exchanges == {ExchangeRef("audit")}
    assert table.destinations == ("a", "b", ExchangeRef("audit"), "plain")
    assert set(table.reassigned({"a": 1}).owners) == set(PLACES[:2])


def test_a_slot_without_a_queue_has_no_owner_and_one_that_is_bound_twice_has_one() -> None:
    found = read(*SLOTS, bindings=BOUND[:1])
    assert found.queues == {PLACES[0]: ("a",), PLACES[1]: ()}
    assert found.faults == {
        PLACES[1]: "slot e.slot.01 of exchange 'e' is bound to no queue: bind a queue to it"
    }
    assert set(found.table().owners) == {PLACES[0]}
    assert found.table().shares()[None] == RING.shares()[PLACES[1]]
    again = BindingDefinition("e.slot.01", "b", "other")
    assert read(*SLOTS, bindings=[*BOUND, again]).table().owners[PLACES[1]] == "b"


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
    with pytest.raises(MismatchError, match=fault) as raised:
        found.table(strict=True)
    assert (raised.value.exchange, raised.value.queue) == ("e.slot.01", "b")


def test_what_a_list_leaves_out_is_a_slot_by_its_name_or_its_bindings() -> None:
    """Definitions of 4.3 leave internal exchanges out."""
    assert set(read(bindings=[]).queues) == set(PLACES[:2])
    assert set(read(bindings=[BindingDefinition("audit", "c")]).queues) == set(PLACES[:3])
    assert set(read(bindings=[BindingDefinition("audit", "c", "#")]).queues) == set(PLACES[:2])


def test_a_ring_without_slots_stays_a_ring() -> None:
    plain = HashRing.from_buckets(["a", "b"])
    assert view_slots("e", plain, (), ()).key_map() is plain
    assert read(*SLOTS).key_map() == read(*SLOTS).table()
