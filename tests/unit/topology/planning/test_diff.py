"""The differences as values; test_plan_laws.py has the law that there are some exactly if a plan has changes or refusals."""

from __future__ import annotations

from dataclasses import replace

from one_hash_exchange import hashing, with_buckets
from sides import as_live
from slot_files import live_of, slotted

from rabbit_chx.routing import ExchangeRef, HashRing
from rabbit_chx.topology import (
    BindingDefinition,
    Difference,
    ExchangeDefinition,
    QueueDefinition,
    RingMember,
    Topology,
    check,
    diff,
    plan,
)
from rabbit_chx.topology.objects.changes import FieldChange


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
