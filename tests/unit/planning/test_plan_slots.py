"""Plans of exchanges with slots: what they do in which order, and exactly which share of keys has another queue when."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_broker import ModelBroker
from sides import as_live
from slot_files import NEWEST, live_of, slotted

from rabbit_chx import ExchangeRef, HashRing, Topology
from rabbit_chx.planning.slot_layout import expand
from rabbit_chx.routing.bindings import Place
from rabbit_chx.topology import BindingDefinition, ExchangeDefinition, LiveTopology, Plan, RingMember, plan
from rabbit_chx.topology.schema import PlannedChange
from rabbit_chx.topology.slots import SlotNames, _find_kept_shares, view_slots

_FOUR = '[{ queue = "events.{1..4}" }]'
_FIVE = '[{ queue = "events.{1..5}" }]'
_PLAIN = (
    '[[exchanges]]\nname = "events"\ntype = "x-consistent-hash"\nring = [{ queue = "events.{1..4}" }]\n'
    '[[queues]]\nname = "events.{1..4}"\n'
)


def _queue_ring(model: ModelBroker) -> tuple[Place, ...]:
    """Return the queue that each bucket of events leads to; a slot without one leads to the park, or to itself."""
    queues: dict[str, list[str]] = {}
    for binding in model.bindings:
        if isinstance(binding.destination, str):
            queues.setdefault(binding.source, []).append(binding.destination)

    def place(bucket: Place) -> Place:
        if not isinstance(bucket, ExchangeRef):
            return bucket
        behind = queues.get(bucket.name, [])
        if len(behind) == 1:
            return behind[0]
        exchange = model.exchanges.get(bucket.name)
        has_park = exchange is not None and "events.park" in model.exchanges and exchange.arguments
        return ExchangeRef("events.park") if has_park and not behind else bucket

    ring = model.rings.get("events")
    return () if ring is None else tuple(map(place, ring.buckets))


def _moments(made: Plan, live: LiveTopology) -> list[HashRing]:
    """Return the ring of queues before the first change, and after each."""
    model = ModelBroker.holding(live, NEWEST)
    rings = [HashRing.from_buckets(_queue_ring(model))]
    for change in made.changes:
        model.apply([change])
        rings.append(HashRing.from_buckets(_queue_ring(model)))
    return rings


def _lost(ring: HashRing) -> float:
    return sum(
        share for place, share in ring.shares().items() if place is None or str(place).startswith("exchange events.slot")
    )  # fmt: skip


def _checked(wanted: Topology, live: LiveTopology) -> Plan:
    """Return a plan whose figures are those of the rings of queues, at every moment."""
    made = plan(wanted, live)
    first, *later = _moments(made, live)
    ring = made.rings["events"]
    if not later:
        assert (ring.moved, ring.moved_at_worst) == (0.0, 0.0)
        return made
    assert ring.moved == later[-1].share_moved(first)
    assert ring.moved_at_worst == max(ring.share_moved(first) for ring in later)
    assert ring.lost_at_worst == max(map(_lost, later))
    matrix = ring.matrix()
    assert matrix is not None
    assert matrix.moved == ring.moved
    return made


@pytest.mark.parametrize("owns", [(), ("events.*",)])
def test_moving_out_empties_the_park(owns: tuple[str, ...]) -> None:
    """It is not wanted any more, and messages may be in it."""
    live = as_live(live_of(slotted(8, _FOUR)), messages={"events.park": 3})
    made = plan(replace(Topology.from_toml(_PLAIN), owns=owns), live)
    assert ("delete queue events.park" in map(str, made.changes)) == bool(owns)
    assert (made.parking_queues, made.parked_messages) == ({"events": "events.park"}, {"events.park": 3})


def test_a_slot_with_two_queues_keeps_one() -> None:
    wanted = slotted(4, '[{ queue = "events.{1..2}" }]', "events.{1..2}")
    live = live_of(wanted)
    live = replace(live, bindings=(*live.bindings, BindingDefinition("events.slot.02", "events.1")))
    (change,) = map(str, _checked(wanted, live).changes)
    assert change.startswith("unbind events.slot.02 -> events.")


def _bare_slots() -> Topology:
    """Return three slots of three queues, written as plain exchanges, which have no alternate exchange."""
    return Topology.from_toml(
        '[[exchanges]]\nname = "events"\ntype = "x-consistent-hash"\nring = [{ exchange = "events.slot.0{0..2}" }]\n'
        '[[exchanges]]\nname = "events.slot.0{0..2}"\ntype = "fanout"\ninternal = true\n'
        '[[queues]]\nname = "events.{1..3}"\n'
        + "".join(f'[[bindings]]\nsource = "events.slot.0{n}"\nqueue = "events.{n + 1}"\n' for n in range(3))
    )


def _with_quorum(there: Topology, name: str) -> Topology:
    queues = (replace(queue, type="quorum") if queue.name == name else queue for queue in there.queues)
    return replace(there, queues=tuple(queues))


@pytest.mark.parametrize("parked", [True, False])
def test_a_slot_has_no_queue_while_its_queue_is_replaced(*, parked: bool) -> None:
    there = slotted(3, '[{ queue = "events.{1..3}" }]', "events.{1..3}") if parked else _bare_slots()
    live = live_of(there)
    ring: Any = _checked(_with_quorum(there, "events.2"), live).rings["events"]
    share = ring.before.shares()[ExchangeRef("events.slot.01")]
    assert (ring.moved, ring.moved_at_worst, ring.lost_at_worst) == (0.0, share, 0.0 if parked else share)
    if not parked:
        events, *slots = there.exchanges
        grown = replace(events, ring=(*(events.ring or ()), RingMember("events.3")))
        wanted = _with_quorum(replace(there, exchanges=(grown, *slots)), "events.2")
        ring = _checked(wanted, live).rings["events"]
        assert 0 < ring.moved < ring.moved_at_worst == ring.lost_at_worst == share


@pytest.mark.parametrize("queue", [1, 3])
def test_a_slot_that_has_left_the_ring_loses_nothing_with_its_queue(queue: int) -> None:
    """Where a slot exchange is replaced, the ring does without it before its queue is unbound."""
    there = _bare_slots()
    behind = BindingDefinition("events.slot.02", f"events.{queue}")
    there = replace(there, bindings=(*there.bindings[:2], behind))
    last = replace(there.exchanges[-1], durable=False)
    live = live_of(replace(there, exchanges=(*there.exchanges[:-1], last)))
    ring: Any = _checked(there, live).rings["events"]
    assert (ring.moved, ring.lost_at_worst) == (0.0, 0.0)
    slots = ring.slots[0]
    without = slots.map_of(ring.before.unbind(ExchangeRef("events.slot.02")))
    assert ring.moved_at_worst == slots.map_of(ring.before).share_moved(without)


@pytest.mark.parametrize(
    ("text", "reached"),
    [
        ('type = "x-consistent-hash"\nring = [{ queue = "q{1..3}" }]', True),
        ('type = "x-consistent-hash"\nring = [{ queue = "q2" }]', False),  # its keys have no other queue
        ('type = "x-modulus-hash"\nqueues = ["q{1..3}"]', True),
        ('type = "x-consistent-hash"\nslots = 6\nmembers = [{ queue = "q{1..3}" }]', True),
        ('type = "x-consistent-hash"\nring = [{ queue = "q1" }, { exchange = "audit" }]', False),
        ('type = "fanout"', False),
    ],
)
def test_others_are_reached_while_a_queue_is_replaced(text: str, *, reached: bool) -> None:
    """Otherwise its messages are unroutable: those by a fanout exchange in the ring, or by its name."""
    there = Topology.from_toml(
        f'[[exchanges]]\nname = "x"\n{text}\n[[exchanges]]\nname = "audit"\ntype = "fanout"\n'
        '[[queues]]\nname = "q{1..3}"\n'
        + ('[[bindings]]\nsource = "audit"\nqueue = "q2"\n' if "audit" in text else "")
    )
    made = plan(_with_quorum(there, "q2"), live_of(there))
    assert "replace queue q2" in map(str, made.changes)
    assert made.reaches_others("q2") is reached


_members = st.lists(st.integers(0, 3), min_size=1, max_size=4, unique=True).flatmap(
    lambda queues: st.lists(st.integers(1, 3), min_size=len(queues), max_size=len(queues)).map(
        lambda weights: dict(zip(queues, weights, strict=True))
    )
)


def _text(members: dict[int, int]) -> str:
    entries = (f'{{ queue = "events.{queue}", weight = {weight} }}' for queue, weight in members.items())
    return f"[{', '.join(entries)}]"


@settings(max_examples=6, deadline=None)
@given(
    st.integers(12, 16), _members, st.integers(12, 16), _members, st.sampled_from([(), ("events.slot.*",)])
)
def test_any_plan_ends_at_the_wanted_topology_and_reports_the_movement(
    before: int, old: dict[int, int], after: int, new: dict[int, int], owns: tuple[str, ...]
) -> None:
    live = live_of(slotted(before, _text(old), "events.{0..3}"))
    wanted = slotted(after, _text(new), "events.{0..3}")
    wanted = replace(wanted, owns=owns)
    made = _checked(wanted, live)
    model = ModelBroker.holding(live, NEWEST)
    model.apply(made.changes)
    assert plan(wanted, model.topology()).changes == ()
    assert expand(wanted, model.topology()).bindings == expand(wanted, live).bindings


def _in_lists(slots: list[int]) -> Topology:
    """Return events.1 with the first of these slots, events.2 with the second, and so on."""
    entries = (f'{{ queue = "events.{n}", slots = [{slot}] }}' for n, slot in enumerate(slots, 1))
    return slotted(len(slots), f"[{', '.join(entries)}]", f"events.{{1..{len(slots)}}}")


def test_queues_are_in_the_order_of_their_names() -> None:
    """Whoever has the first slots: the order of the ring says nothing about queues."""
    backwards = [*range(10, -1, -1)]
    live = live_of(_in_lists(backwards))
    queues = [f"events.{n}" for n in range(1, 12)]
    matrix = plan(_in_lists([0, *backwards[1:-1], 10]), live).rings["events"].matrix()
    assert matrix is not None
    assert matrix.before == matrix.after == tuple(queues)
    assert list(matrix) == [
        ("events.1", "events.11"),
        *((queue, queue) for queue in queues[1:-1]),
        ("events.11", "events.1"),
    ]
    bare = replace(
        live, bindings=tuple(binding for binding in live.bindings if binding.source != "events.slot.05")
    )
    parked = plan(_in_lists(backwards), bare).rings["events"].matrix()
    assert parked is not None
    assert parked.before[-2:] == ("events.11", ExchangeRef("events.park"))


@pytest.mark.slow
@pytest.mark.all_seeds
def test_the_shares_on_the_page_of_slots() -> None:
    page = " ".join(Path("docs/operate/slots.md").read_text().split())
    fifth = plan(slotted(32, _FIVE, "events.{1..5}"), live_of(slotted(32, _FOUR)))
    taken, over = sum(change.action == "bind" for change in fifth.changes), fifth.rings["events"]
    assert f"with 32 slots a fifth queue takes {taken}, and {over.moved:.1%} of the keys move" in page
    assert over.moved_at_worst == pytest.approx(over.moved)
    into = plan(slotted(64, _FOUR), live_of(Topology.from_toml(_PLAIN))).rings["events"]
    heavy = live_of(Topology.from_toml(_PLAIN.replace(" }]", ", weight = 10 }]")))
    many, same = (plan(slotted(number, _FOUR), heavy).rings["events"] for number in (64, 40))
    assert (
        f"64 slots move {many.moved:.1%} of the keys of these queues, and {into.moved:.1%} if their weight is 1"
        in page
    )
    assert same.moved == 0
    [peak] = {f"{each.moved_at_worst:.1%}" for each in (into, many, same)}
    assert f"The peak is {peak} each time" in page


def test_a_slot_without_a_queue_is_lost_once_its_park_is_deleted() -> None:
    live = live_of(slotted(2, '[{ queue = "events.{1..2}" }]', "events.{1..2}"))
    slot, park = ExchangeRef("events.slot.00"), live.exchange("events.park")
    bare = tuple(b for b in live.bindings if b.source != slot.name)
    before = view_slots("events", HashRing.from_buckets([slot]), live.exchanges, bare)
    assert (before.owners, before.dead_ends) == ({slot: ExchangeRef("events.park")}, set())
    after = before.at([PlannedChange("delete", park, None)])
    assert (after.owners, after.dead_ends) == ({slot: slot}, {slot})
    after = after.at([PlannedChange("create", None, park)])
    assert (after.owners, after.dead_ends) == ({slot: ExchangeRef("events.park")}, set())
    assert (before.owners, before.dead_ends) == ({slot: ExchangeRef("events.park")}, set())


def test_a_slot_with_several_queues_keeps_no_keys_in_one_of_them() -> None:
    """When slots are laid out again, only a slot with one queue tells which keys that queue has."""
    places = [ExchangeRef("one"), ExchangeRef("two"), ExchangeRef("none")]
    ring = HashRing.from_buckets([*places, "plain"])
    bound = [BindingDefinition(*ends) for ends in (("one", "a"), ("two", "b"), ("two", "c"))]
    exchanges = [ExchangeDefinition(place.name, "fanout", internal=True) for place in places]
    kept = _find_kept_shares(
        SlotNames("events", 8), view_slots("events", ring, exchanges, bound).map_of(ring)
    )
    assert {place for shares in kept.values() for place in shares} == {"a", "plain", *places[1:]}


def test_the_parked_messages_of_an_exchange_of_others_stay() -> None:
    live = live_of(slotted(4, _FOUR))
    assert plan(slotted(4, _FOUR), live).parking_queues == {"events": "events.park"}
    assert plan(Topology(), live).parking_queues == {}


def test_a_slot_without_a_queue_gets_one_before_others_are_handed_over() -> None:
    wanted = slotted(3, '[{ queue = "events.1", slots = [0] }, { queue = "events.2", slots = [1, 2] }]')
    live = live_of(
        slotted(3, '[{ queue = "events.1", slots = [1, 2] }, { queue = "events.2", slots = [0] }]')
    )
    bound = tuple(binding for binding in live.bindings if binding.source != "events.slot.02")
    binds = [change.binding.source for change in plan(wanted, replace(live, bindings=bound)).changes]
    assert binds[0] == "events.slot.02"
    assert set(binds[1:]) == {"events.slot.00", "events.slot.01"}
