"""The differences as values; test_plan_laws.py has the law that there are some exactly if a plan has changes or refusals."""

from __future__ import annotations

from dataclasses import replace

import pytest
from one_hash_exchange import hashing, with_buckets
from sides import as_live
from slot_files import live_of, slotted

from rabbit_chx.routing import ExchangeRef, HashRing, Release
from rabbit_chx.topology import (
    BindingDefinition,
    Difference,
    ExchangeDefinition,
    LiveTopology,
    QueueDefinition,
    RingMember,
    Topology,
    check,
    diff,
    plan,
)
from rabbit_chx.topology.schema import FieldChange


def test_objects_that_are_missing_different_or_unexpected() -> None:
    queue, changed = QueueDefinition("a"), QueueDefinition("b", arguments={"x-max-length": 5})
    wanted = Topology((), (queue, changed), owns=("*",))
    live = as_live(Topology((), (QueueDefinition("b"), QueueDefinition("c"))))

    assert diff(wanted, live) == (
        Difference("missing", queue, None, queue),
        Difference(
            "different", changed, live.queues[0], changed, (FieldChange("arguments.x-max-length", None, 5),)
        ),
        Difference("unexpected", live.queues[1], live.queues[1]),
    )


def test_the_order_of_a_ring_has_the_share_of_its_plan() -> None:
    wanted, live = hashing("a", "b"), with_buckets(hashing("a", "b"), "b", "a")

    (order,) = diff(wanted, live)
    assert (order.kind, order.subject) == ("order", wanted.exchange("orders"))
    assert (order.before, order.after) == (live.rings["orders"], HashRing.from_bindings([("a", 1), ("b", 1)]))
    assert order.share == plan(wanted, live).rings["orders"].moved == check(live, wanted).misplaced["orders"]


def test_a_member_is_a_binding_with_the_share_that_it_has_or_would_have() -> None:
    wanted, live = hashing(RingMember("a", "2"), "b"), with_buckets(hashing("a", "c"), "a", "c")

    ring, *members = diff(wanted, live)
    assert (ring.kind, ring.subject.kind) == ("different", "exchange")
    assert [(one.kind, one.subject.name, one.fields) for one in members] == [
        ("different", "orders -> a (key 2)", (FieldChange("routing_key", "1", "2"),)),
        ("missing", "orders -> b (key 1)", ()),
        ("unexpected", "orders -> c (key 1)", ()),
    ]
    shares = live.rings["orders"].shares()
    wanted_shares = HashRing.from_bindings([("a", 2), ("b", 1)]).shares()
    assert [one.share for one in members] == [shares["a"], wanted_shares["b"], shares["c"]]


def test_a_slot_that_moves_is_a_binding_with_the_keys_of_the_slot() -> None:
    wanted = slotted(2, '[{ queue = "events.1", slots = [0] }, { queue = "events.2", slots = [1] }]')
    live, slot = live_of(wanted), "events.slot.00"
    moved = BindingDefinition(slot, "events.2", "")
    bindings = [binding for binding in live.bindings if binding.source != slot]
    live = replace(live, bindings=(*bindings, moved))

    differences = diff(wanted, live)
    share = live.rings["events"].shares()[ExchangeRef(slot)]
    assert [(one.kind, one.subject.name, one.share) for one in differences] == [
        ("missing", f"{slot} -> events.1", share),
        ("unexpected", f"{slot} -> events.2", share),
    ]
    assert plan(wanted, live).rings["events"].moved == share


def test_a_ring_that_no_broker_makes_has_no_key_map() -> None:
    wanted = hashing(RingMember("a", "0"))
    (ring,) = diff(wanted, with_buckets(hashing("a"), "a"))
    assert (ring.kind, ring.after, ring.share) == ("different", None, None)
    (refusal,) = plan(wanted, with_buckets(hashing("a"), "a")).refusals
    assert refusal.kind == "ring"


def test_what_nobody_owns_is_no_difference() -> None:
    there = ExchangeDefinition("theirs", "fanout")
    assert diff(Topology(), as_live(Topology((there,)))) == ()


def test_a_check_and_a_plan_agree_what_is_to_be_no_slot() -> None:
    """An exchange that no list shows, bound like a slot, is to be a plain exchange."""
    place = ExchangeDefinition("x", "fanout")
    bound = (BindingDefinition("x", "b"),)
    ring = hashing("a", RingMember(place.ref, "3"), RingMember("b", "2"))
    wanted = replace(ring, exchanges=(*ring.exchanges, place), bindings=bound)
    live = replace(with_buckets(ring, *[place.ref] * 3, *"bba"), bindings=bound)

    assert check(live, wanted).misplaced["orders"] == plan(wanted, live).rings["orders"].moved


@pytest.mark.parametrize(("owns", "queues"), [(("*",), ["q1"]), ((), ["q1"]), ((), ["q0", "q1"])])
def test_a_slot_of_plain_objects_moves_with_the_share_of_its_plan(
    owns: tuple[str, ...], queues: list[str]
) -> None:
    slots = [ExchangeRef("h.a"), ExchangeRef("h.b")]

    def bound(*to: str, owned: tuple[str, ...] = ()) -> Topology:
        exchange = ExchangeDefinition("h", "x-consistent-hash", ring=tuple(map(RingMember, slots)))
        internal = [ExchangeDefinition(slot.name, "fanout", internal=True) for slot in slots]
        bindings = [BindingDefinition("h.a", queue) for queue in to] + [BindingDefinition("h.b", "q2")]
        names = ("q0", "q1", "q2")
        return Topology(
            (exchange, *internal), tuple(map(QueueDefinition, names)), tuple(bindings), owns=owned
        )

    live = LiveTopology.of_file(bound("q0")).with_rings({"h": HashRing.from_buckets(slots)})
    wanted = bound(*queues, owned=owns)
    moved = plan(wanted, live).rings["h"].moved
    assert moved == pytest.approx(0.5, abs=0.001)
    assert check(live, wanted).misplaced == {"h": moved}
    assert {one.share for one in diff(wanted, live)} == {HashRing.from_buckets(slots).shares()[slots[0]]}


def test_the_arguments_of_a_ring_move_no_key_of_a_modulus_exchange() -> None:
    def of(**arguments: str) -> Topology:
        exchange = ExchangeDefinition("m", "x-modulus-hash", arguments=arguments, queues=("a", "b"))
        return Topology((exchange,), (QueueDefinition("a"), QueueDefinition("b")))

    live = LiveTopology.of_file(of(), Release("4.3.6"))
    (different,) = diff(of(**{"hash-header": "k"}), live)
    assert (different.kind, different.share) == ("different", 0.0)


def test_a_plan_that_only_replaces_a_queue_of_a_modulus_exchange_moves_no_key_in_the_end() -> None:
    exchange = ExchangeDefinition("m", "x-modulus-hash")
    live = LiveTopology.of_file(
        Topology((exchange,), (QueueDefinition("a"),), (BindingDefinition("m", "a"),)), Release("4.3.6")
    )
    planned = plan(Topology((), (QueueDefinition("a", "quorum"),)), live).rings["m"]
    matrix = planned.matrix()
    assert matrix is not None
    assert (planned.moved, matrix.moved, planned.moved_at_worst) == (0.0, 0.0, 1.0)


def test_a_ring_with_a_member_that_no_client_can_name_differs_only_where_the_order_counts() -> None:
    def of(*members: str) -> Topology:
        ring = None if not members else tuple(map(RingMember, members))
        exchange = ExchangeDefinition("x", "x-consistent-hash", ring=ring)
        return Topology((exchange,), (QueueDefinition("q1"), QueueDefinition("q2")))

    live = as_live(of(), sources_left_out=frozenset({"x"}))
    wanted = of("q1", "q2")
    unordered = replace(wanted, file=replace(wanted.file, unordered=frozenset({"x"})))
    for side, kind in ((wanted, "different"), (unordered, "odd-object")):
        is_different = kind == "different"
        made = plan(side, live)
        assert bool(made.changes or made.refusals) == is_different
        assert [one.kind for one in diff(side, live)] == ["different"] * is_different
        assert [finding.kind for finding in check(live, side).findings] == [kind]


def test_a_file_without_the_ring_of_an_exchange_has_no_difference_and_no_order_to_compare() -> None:
    live = with_buckets(hashing("a", "b"), "a", "b")
    wanted = hashing("a", "b")
    wanted = replace(wanted, exchanges=(replace(wanted.exchanges[0], ring=None),))
    found = check(live, wanted)
    assert (diff(wanted, live), plan(wanted, live).changes, found.findings) == ((), (), ())
    assert found.unordered == {"orders": "the file has no ring"}


def test_a_ring_whose_bindings_are_not_all_read_differs_also_if_the_read_ones_are_those_of_the_file() -> None:
    wanted = hashing("a", "b")
    live = as_live(LiveTopology.of_file(wanted), sources_left_out=frozenset({"orders"}))
    assert [one.kind for one in diff(wanted, live)] == ["different"]
    assert [one.kind for one in check(live, wanted).findings] == ["different"]
    assert [one.kind for one in plan(wanted, live).refusals] == ["order"]
