"""Plain objects, collapsed to slots where they are exactly that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sides import as_live
from slot_files import slotted

from rabbit_chx import ExchangeRef, HashRing, Topology
from rabbit_chx.planning.slot_layout import collapse, expand, queues_behind_slots
from rabbit_chx.routing import Destination
from rabbit_chx.topology import (
    BindingDefinition,
    ExchangeDefinition,
    LiveTopology,
    QueueDefinition,
    RingMember,
)


def _live(more: str = "") -> LiveTopology:
    plain = expand(slotted(8, '[{ queue = "events.{1..4}" }]', more=more), LiveTopology())
    ring = [ExchangeRef(f"events.slot.{n:02d}") for n in range(8)]
    return plain.with_rings({"events": HashRing.from_buckets(ring)})


def test_another_kind_of_parking_queue_is_kept() -> None:
    more = '[[queues]]\nname = "events.park"\ntype = "quorum"\n'
    live = _live(more)
    found = collapse(live)[0]
    assert expand(found, LiveTopology()) == live
    for side in (live, found):
        assert [queue.type for queue in side.queues if queue.name == "events.park"] == ["quorum"]


Change = Callable[[LiveTopology], LiveTopology]


def _bound(source: str, destination: Destination) -> Change:
    return lambda live: replace(live, bindings=(*live.bindings, BindingDefinition(source, destination)))


def _without(kind: str, name: str) -> Change:
    """Return a function that removes the objects of this name, or the bindings of this source."""
    attribute = "source" if kind == "bindings" else "name"

    def change(live: LiveTopology) -> LiveTopology:
        fields: Any = {kind: tuple(it for it in getattr(live, kind) if getattr(it, attribute) != name)}
        return replace(live, **fields)

    return change


def _with(name: str, **fields: Any) -> Change:
    """Return a function that changes fields of an exchange."""
    return lambda live: replace(
        live,
        exchanges=tuple(replace(it, **fields) if it.name == name else it for it in live.exchanges),
    )


def _slots(*numbers: int) -> list[ExchangeRef]:
    return [ExchangeRef(f"events.slot.{number:02d}") for number in numbers]


def _read(*numbers: int) -> Change:
    """Return a function after which a ring of these slots was read; its objects are as before."""
    return lambda live: live.with_rings({"events": HashRing.from_buckets(_slots(*numbers))})


def _ring(*numbers: int) -> Change:
    """Return a function after which the ring has these slots."""
    members = tuple(map(RingMember, _slots(*numbers)))
    return lambda live: _read(*numbers)(_with("events", ring=members)(live))


_SEVEN = tuple(map(RingMember, _slots(*range(7))))
_LAST = _slots(7)[0]
_PARK = ExchangeRef("events.park")


@pytest.mark.parametrize(
    ("deviate", "why"),
    [
        (_bound("events.slot.03", "events.4"), "events.slot.03 is bound to events.2 and events.4"),
        (_bound("events.slot.03", _PARK), "events.slot.03 is bound to events.2 and exchange events.park"),
        (_bound("events.park", "events.1"), "there is the binding events.park -> events.1"),
        (_without("bindings", "events.slot.03"), "events.slot.03 is bound to no queue"),
        (_without("bindings", "events.park"), "there is no binding events.park -> events.park"),
        (_ring(1, 0, 2, 3, 4, 5, 6, 7), "bucket 0 of its ring is exchange events.slot.01, not exchange events.slot.00"),
        (_ring(0, 1, 2, 3, 4, 5, 5), "bucket 6 of its ring is exchange events.slot.05, not exchange events.slot.06"),
        (_read(0), "its ring has no bucket 1, which is that of exchange events.slot.01"),
        (_read(), "its ring has no bucket 0, which is that of exchange events.slot.00"),
        (_with("events", ring=_SEVEN), "bucket 7 of its ring is exchange events.slot.07, and the slots end before it"),
        (lambda live: _with("events", ring=(*_SEVEN, RingMember("events.1")))(replace(live, rings={})), "member 7 of its ring is events.1, not exchange events.slot.07"),
        (_with("events", ring=(*_SEVEN, RingMember(_LAST, "01"))), "exchange events.slot.07 is not bound with the key 1 and no arguments"),
        (_with("events.slot.05", arguments={}), "exchange events.slot.05 is not as a slot has it: arguments.alternate-exchange differs"),
        (_with("events.slot.05", internal=False), "exchange events.slot.05 is not as a slot has it: internal differs"),
        (_with("events.slot.05", type="topic"), "exchange events.slot.05 is not as a slot has it: type differs"),
        (_with("events.park", durable=False), "exchange events.park is not as a slot has it: durable differs"),
        (_without("exchanges", "events.park"), "exchange events.park does not exist"),
        (_without("queues", "events.park"), "queue events.park does not exist"),
    ],
)  # fmt: skip
def test_whatever_differs_stays_plain_and_is_named(deviate: Change, why: str) -> None:
    live = deviate(_live())
    assert collapse(live)[0] is live
    assert collapse(live)[1] == {"events": why}


def test_what_has_no_slots_needs_no_reason() -> None:
    text = '[[exchanges]]\nname = "events"\ntype = "x-consistent-hash"\nring = [{ queue = "a" }, { exchange = "b" }]'
    assert collapse(as_live(Topology.from_toml(text)))[1] == {}
    assert collapse(_live())[1] == {}


def test_a_slot_exchange_that_is_not_a_member_is_kept() -> None:
    """As after the number of slots became smaller."""
    live = _ring(*range(7))(_live())
    found = collapse(live)[0]
    assert [exchange.name for exchange in found.exchanges] == ["events", "events.slot.07"]
    assert [binding.source for binding in found.bindings] == ["events.slot.07"]
    assert expand(found, live) == live


def test_one_that_differs_does_not_keep_another_from_being_folded() -> None:
    entry = (
        '[[exchanges]]\nname = "{}"\ntype = "x-consistent-hash"\nslots = 4\nmembers = [{{ queue = "q" }}]\n'
    )
    text = f'{entry.format("events")}{entry.format("orders")}[[queues]]\nname = "q"\n'
    live = as_live(expand(Topology.from_toml(text), LiveTopology()))
    assert [exchange.name for exchange in collapse(live)[0].exchanges] == ["events", "orders"]
    lost = _without("bindings", "orders.slot.02")(live)
    folded = [exchange.name for exchange in collapse(lost)[0].exchanges if exchange.slots is not None]
    assert folded == ["events"]
    assert list(collapse(lost)[1]) == ["orders"]


@pytest.mark.extended
@given(
    st.integers(1, 130),
    st.lists(st.integers(1, 9), min_size=1, max_size=9),
    st.randoms(use_true_random=False),
)
def test_a_round_trip_keeps_the_value(slots: int, counts: list[int], random: object) -> None:
    """Any owners of any number of slots: laid out again on what is there, they are the same."""
    owners = [f"q{n}" for n, count in enumerate(counts) for _ in range(count)]
    owners = (owners * slots)[:slots]
    random.shuffle(owners)  # type: ignore[attr-defined]
    lists = {
        queue: [n for n, owner in enumerate(owners) if owner == queue] for queue in dict.fromkeys(owners)
    }
    members = ", ".join(f'{{ queue = "{queue}", slots = {some} }}' for queue, some in lists.items())
    live = as_live(expand(slotted(slots, f"[{members}]", "q{0..8}"), LiveTopology()))
    found = collapse(live)[0]
    assert found.exchange("events") != live.exchange("events")
    assert expand(found, live) == live
    assert Topology.from_toml(found.to_toml()) == found.as_wanted()


def test_the_alternate_exchange_of_another_exchange_than_a_slot_parks_nothing() -> None:
    plain, alternate = (
        ExchangeDefinition("x", arguments={"alternate-exchange": "lost"}),
        ExchangeDefinition("lost"),
    )
    live = as_live(Topology((plain, alternate), (QueueDefinition("q"),), (BindingDefinition("lost", "q"),)))
    assert queues_behind_slots(live) == []
