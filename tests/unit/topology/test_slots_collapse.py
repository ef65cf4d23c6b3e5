"""Plain objects, collapsed to slots where they are exactly that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sides import as_live
from slot_files import slotted

from rabbit_chx import ExchangeRef, HashRing, Topology
from rabbit_chx.topology import BindingDefinition, LiveTopology, QueueDefinition, RingMember
from rabbit_chx.topology.slots import collapse, expand, explain_not_collapsed


def _live(slots: int = 8, members: str = '[{ queue = "events.{1..4}" }]', more: str = "") -> LiveTopology:
    plain = expand(slotted(slots, members, more=more), LiveTopology())
    ring = [ExchangeRef(f"events.slot.{n:02d}") for n in range(slots)]
    return plain.with_rings({"events": HashRing.from_buckets(ring)})


@pytest.mark.parametrize(
    "members",
    [
        '[{ queue = "events.{1..4}" }]',
        '[{ queue = "events.{1..3}" }]',
        '[{ queue = "events.{1..2}" }, { queue = "events.3", weight = 2 }]',
        '[{ queue = "events.1" }]',
    ],
)
def test_what_was_laid_out_is_folded_again(members: str) -> None:
    live = _live(members=members)
    found = collapse(live)
    events = found.exchange("events")
    assert events is not None
    assert events.slots == 8
    assert expand(found, LiveTopology()) == live


def test_each_member_lists_the_slots_that_its_queue_has() -> None:
    lists = '[{ queue = "events.1", slots = [0, 2, 3, 4, 7] }, { queue = "events.2", slots = [1, 5, 6] }]'
    found = collapse(_live(members=lists))
    assert found.objects == slotted(8, lists)
    assert '{ queue = "events.1", slots = ["00", "02..04", "07"] }' in found.to_toml()


def test_another_kind_of_parking_queue_is_kept() -> None:
    more = '[[queues]]\nname = "events.park"\ntype = "quorum"\n'
    found = collapse(_live(more=more))
    assert expand(found, LiveTopology()) == _live(more=more)
    park = found.queue("events.park")
    assert park is not None
    assert park.type == "quorum"


def _with_binding(live: LiveTopology, *more: BindingDefinition) -> LiveTopology:
    return replace(live, bindings=(*live.bindings, *more))


def _without_binding(live: LiveTopology, source: str) -> LiveTopology:
    return replace(live, bindings=tuple(binding for binding in live.bindings if binding.source != source))


def _with_ring(live: LiveTopology, numbers: list[int]) -> LiveTopology:
    ring = [ExchangeRef(f"events.slot.{n:02d}") for n in numbers]
    events = live.exchange("events")
    assert events is not None
    others = [exchange for exchange in live.exchanges if exchange.name != "events"]
    changed = replace(live, exchanges=(*others, replace(events, ring=tuple(map(RingMember, ring)))))
    return changed.with_rings({"events": HashRing.from_buckets(ring)})


def _slot(number: int) -> ExchangeRef:
    return ExchangeRef(f"events.slot.{number:02d}")


def _refs(count: int) -> tuple[RingMember, ...]:
    return tuple(RingMember(_slot(number)) for number in range(count))


def _with_exchange(live: LiveTopology, name: str, **fields: object) -> LiveTopology:
    return replace(
        live,
        exchanges=tuple(
            replace(exchange, **fields) if exchange.name == name else exchange  # type: ignore[arg-type]
            for exchange in live.exchanges
        ),
    )


@pytest.mark.parametrize(
    ("deviate", "why"),
    [
        (
            lambda live: _with_binding(live, BindingDefinition("events.slot.03", "events.4")),
            "events.slot.03 is bound to events.2 and events.4",
        ),
        (
            lambda live: _with_binding(live, BindingDefinition("events.slot.03", ExchangeRef("events.park"))),
            "events.slot.03 is bound to events.2 and exchange events.park",
        ),
        (
            lambda live: _with_binding(live, BindingDefinition("events.park", "events.1")),
            "there is the binding events.park -> events.1",
        ),
        (
            lambda live: _without_binding(live, "events.slot.03"),
            "events.slot.03 is bound to no queue",
        ),
        (
            lambda live: _without_binding(live, "events.park"),
            "there is no binding events.park -> events.park",
        ),
        (
            lambda live: _with_ring(live, [1, 0, 2, 3, 4, 5, 6, 7]),
            "bucket 0 of its ring is exchange events.slot.01, not exchange events.slot.00",
        ),
        (
            lambda live: _with_ring(live, [0, 1, 2, 3, 4, 5, 5]),
            "bucket 6 of its ring is exchange events.slot.05, not exchange events.slot.06",
        ),
        (
            lambda live: live.with_rings({"events": HashRing.from_buckets([ExchangeRef("events.slot.00")])}),
            "its ring has no bucket 1, which is that of exchange events.slot.01",
        ),
        (
            lambda live: live.with_rings({"events": HashRing.from_buckets([])}),
            "its ring has no bucket 0, which is that of exchange events.slot.00",
        ),
        (
            lambda live: _with_exchange(live, "events", ring=_refs(7)),
            "bucket 7 of its ring is exchange events.slot.07, and the slots end before it",
        ),
        (
            lambda live: _with_exchange(
                replace(live, rings={}), "events", ring=(*_refs(7), RingMember("events.1"))
            ),
            "member 7 of its ring is events.1, not exchange events.slot.07",
        ),
        (
            lambda live: _with_exchange(live, "events", ring=(*_refs(7), RingMember(_slot(7), "01"))),
            "exchange events.slot.07 is not bound with the key 1 and no arguments",
        ),
        (
            lambda live: _with_exchange(live, "events.slot.05", arguments={}),
            "exchange events.slot.05 is not as a slot has it: arguments.alternate-exchange differs",
        ),
        (
            lambda live: _with_exchange(live, "events.slot.05", internal=False),
            "exchange events.slot.05 is not as a slot has it: internal differs",
        ),
        (
            lambda live: _with_exchange(live, "events.slot.05", type="topic"),
            "exchange events.slot.05 is not as a slot has it: type differs",
        ),
        (
            lambda live: _with_exchange(live, "events.park", durable=False),
            "exchange events.park is not as a slot has it: durable differs",
        ),
        (
            lambda live: replace(
                live,
                exchanges=tuple(exchange for exchange in live.exchanges if exchange.name != "events.park"),
            ),
            "exchange events.park does not exist",
        ),
        (
            lambda live: replace(
                live, queues=tuple(queue for queue in live.queues if queue.name != "events.park")
            ),
            "queue events.park does not exist",
        ),
    ],
)
def test_whatever_differs_stays_plain_and_is_named(
    deviate: Callable[[LiveTopology], LiveTopology], why: str
) -> None:
    live = deviate(_live())
    assert collapse(live) is live
    assert explain_not_collapsed(live) == {"events": why}


def test_what_has_no_slots_needs_no_reason() -> None:
    text = '[[exchanges]]\nname = "events"\ntype = "x-consistent-hash"\nring = [{ queue = "a" }, { exchange = "b" }]'
    assert explain_not_collapsed(as_live(Topology.from_toml(text))) == {}
    assert explain_not_collapsed(_live()) == {}


def test_a_slot_exchange_that_is_not_a_member_is_kept() -> None:
    """As after the number of slots became smaller."""
    live = _with_ring(_live(), [0, 1, 2, 3, 4, 5, 6])
    found = collapse(live)
    assert [exchange.name for exchange in found.exchanges] == ["events", "events.slot.07"]
    assert [binding.source for binding in found.bindings] == ["events.slot.07"]
    assert expand(found, live) == live


def test_one_that_differs_does_not_keep_another_from_being_folded() -> None:
    slotted_once = expand(slotted(4, '[{ queue = "events.1" }]'), LiveTopology())
    text = slotted(4, '[{ queue = "events.1" }]').to_toml().replace('"events"', '"orders"')
    both = replace(expand(Topology.from_toml(text), LiveTopology()), queues=())
    live = replace(
        as_live(slotted_once),
        exchanges=(*slotted_once.exchanges, *both.exchanges),
        bindings=(*slotted_once.bindings, *both.bindings),
        queues=(*slotted_once.queues, QueueDefinition("orders.park")),
    )
    found = collapse(_without_binding(live, "orders.slot.02"))
    assert [e.name for e in found.exchanges if e.slots is not None] == ["events"]
    assert list(explain_not_collapsed(_without_binding(live, "orders.slot.02"))) == ["orders"]
    assert [e.name for e in collapse(live).exchanges] == ["events", "orders"]


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
    found = collapse(live)
    assert found.exchange("events") != live.exchange("events")
    assert expand(found, live) == live
    assert Topology.from_toml(found.to_toml()) == found.objects
