"""What is said of a ring whose order is not known holds in every order of its bindings, and what is refused does not."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from itertools import permutations

import pytest
from sides import as_live

from rabbit_chx.analysis import simulate
from rabbit_chx.analysis.reports import compare_report
from rabbit_chx.broker.exchange_report import exchange_facts
from rabbit_chx.errors import EmptyRingError, UnknownOrderError
from rabbit_chx.records.live_rings import WaysToLearn
from rabbit_chx.rendering.document import Facts
from rabbit_chx.routing import ConsistentHashExchange, HashRing, Release
from rabbit_chx.routing.bindings import LISTED_CONDITION
from rabbit_chx.topology import (
    ExchangeDefinition,
    LiveTopology,
    QueueDefinition,
    RingMember,
    Topology,
    check,
    plan,
)

RELEASE = Release("4.3.6")
KEYS = [f"key-{number}" for number in range(60)]
Members = tuple[tuple[str, int], ...]


def random_members(size: int, seed: int) -> Members:
    chance = random.Random(f"{size} {seed}")  # noqa: S311
    return tuple((f"q{number}", chance.randint(1, 4)) for number in range(size))


def orders(members: Members) -> Iterator[HashRing]:
    """Yield the ring of each order."""
    for order in permutations(members):
        yield HashRing.from_bindings(order, RELEASE)


BINDINGS = [
    random_members(size, seed)
    for size, seeds in ((1, 2), (2, 4), (3, 4), (4, 2), (5, 1))
    for seed in range(seeds)
]
SEVERAL = [members for members in BINDINGS if len(members) > 1]


def differ(answers: Iterator[object]) -> bool:
    first = next(answers)
    return any(answer != first for answer in answers)


@pytest.mark.all_seeds
@pytest.mark.parametrize("members", BINDINGS, ids=str)
def test_shares_by_weight_hold_in_every_order(members: Members) -> None:
    said = HashRing.unordered(members, RELEASE).shares()
    for ring in orders(members):
        assert ring.shares() == pytest.approx(said, abs=0.001)


@pytest.mark.parametrize("members", BINDINGS, ids=str)
def test_what_is_bound_last_moves_one_share_in_every_order(members: Members) -> None:
    unknown = HashRing.unordered(members, RELEASE)
    change = simulate(unknown, changed=unknown.bind("new", 2).bind("newer", 1), is_appended=True).change
    assert change is not None
    assert change.appended is not None
    for ring in orders(members):
        flows = ring.flows(ring.bind("new", 2).bind("newer", 1))
        assert float(flows.moved) == pytest.approx(change.moved, abs=1e-12)
        assert {
            place: share for place, share in flows.after_totals().items() if place in change.appended
        } == (pytest.approx(change.appended, abs=1e-12))


@pytest.mark.parametrize("members", SEVERAL, ids=str)
def test_what_is_refused_differs_between_two_orders(members: Members) -> None:
    unknown = HashRing.unordered(members, RELEASE)
    exchange = ConsistentHashExchange("x", unknown)
    removed = members[0][0]
    without = unknown.unbind(removed)
    for question in (
        lambda: unknown.destination_for(KEYS[0]),
        lambda: unknown.destination_for_term(b"k"),
        lambda: unknown.indices(KEYS),
        lambda: unknown.counts(KEYS),
        lambda: unknown.share_moved(without),
        lambda: unknown.share_moved(HashRing.from_bindings(members, RELEASE)),
        lambda: exchange.route(routing_key=KEYS[0]),
        lambda: exchange.explain(routing_key=KEYS[0]),
        lambda: exchange.indices(KEYS),
    ):
        with pytest.raises(UnknownOrderError) as caught:
            question()
        assert {*caught.value.members} == {(queue, str(weight)) for queue, weight in members}
    written = HashRing.from_bindings(members, RELEASE)
    assert differ([ring.destination_for(key) for key in KEYS] for ring in orders(members))
    assert differ(ring.counts(KEYS) for ring in orders(members))
    assert differ(ring.share_moved(ring.unbind(removed)) for ring in orders(members))
    assert differ(ring.share_moved(written) for ring in orders(members))


@pytest.mark.parametrize("members", [(), *BINDINGS], ids=str)
def test_what_is_said_of_an_unknown_order_stands_on_the_condition_that_lists_show_all_buckets(
    members: Members,
) -> None:
    """RabbitMQ 4.3 may keep buckets of a queue that ended, and no list shows them."""
    unknown = HashRing.unordered(members, RELEASE)
    change = simulate(unknown, changed=unknown.bind("new", 2), is_appended=True)
    assert change.change is not None
    listed = HashRing.from_bindings(members, RELEASE)
    left = HashRing.from_buckets((*listed.buckets, "gone"), RELEASE)
    assert change.change.moved != pytest.approx(left.share_moved(left.bind("new", 2)), abs=0.001)
    facts = [
        value
        for part in compare_report(change, is_determined=True).parts
        if isinstance(part, Facts)
        for name, value in part.pairs
        if name == "moved"
    ]
    assert [LISTED_CONDITION in str(value) for value in facts] == [True]
    if not members:
        return
    assert left.shares()["q0"] != pytest.approx(unknown.shares()["q0"], abs=0.001)
    assert unknown.condition == json.loads(unknown.to_json())["condition"] == LISTED_CONDITION
    assert ("shares", LISTED_CONDITION) in exchange_facts("x", "/", {}, unknown, WaysToLearn())
    assert listed.condition is None


def test_one_member_gets_each_key_and_no_member_none() -> None:
    sole, empty = (HashRing.unordered(members, RELEASE) for members in ([("q", 3)], []))
    assert {sole.destination_for(key) for key in KEYS} == {"q"}
    assert sole.shares() == {"q": 1.0}
    assert ConsistentHashExchange("x", sole).route(routing_key="k") == "q"
    assert empty.shares() == {}
    assert ConsistentHashExchange("x", empty).route(routing_key="k") is None
    with pytest.raises(EmptyRingError):
        empty.destination_for("k")


def test_which_of_two_bindings_of_a_queue_counts_depends_on_the_order() -> None:
    members = (("a", 1), ("b", 1), ("a", 3))
    unknown = HashRing.unordered(members, RELEASE)
    assert differ(ring.shares() for ring in orders(members))
    assert not unknown.has_shares
    with pytest.raises(UnknownOrderError):
        unknown.shares()
    change = simulate(unknown, changed=unknown.bind("c", 1), is_appended=True).change
    assert change is not None
    assert change.moved is None
    assert differ(ring.share_moved(ring.bind("c", 1)) for ring in orders(members))


def test_a_queue_that_is_bound_twice_and_alone_has_all_keys_but_no_certain_number_of_buckets() -> None:
    members = (("a", 1), ("a", 3))
    unknown = HashRing.unordered(members, RELEASE)
    assert differ(ring.buckets for ring in orders(members))
    assert unknown.shares() == {"a": 1.0}
    assert "bucket" not in " ".join(unknown.facts())
    assert unknown.summary()["buckets"] is None
    change = simulate(unknown, changed=unknown.bind("b", 1), is_appended=True).change
    assert change is not None
    assert change.moved is None
    assert differ(ring.share_moved(ring.bind("b", 1)) for ring in orders(members))


def live_with(ring: HashRing, members: Members) -> LiveTopology:
    """Return a broker with this ring, and a fault of each queue."""
    exchange = ExchangeDefinition(
        "x", "x-consistent-hash", ring=tuple(RingMember(queue, str(weight)) for queue, weight in members)
    )
    faults: Sequence[dict[str, object]] = (
        {"x-expires": 60_000},
        {"x-max-length": 5, "x-overflow": "drop-head"},
    )
    queues = tuple(
        QueueDefinition(queue, arguments=faults[number % 2], durable=number != 2)
        for number, (queue, _) in enumerate(members)
    )
    return as_live(Topology((exchange,), queues)).with_rings({"x": ring})


@pytest.mark.parametrize("members", BINDINGS, ids=str)
@pytest.mark.parametrize("has_file", [False, True])
def test_each_finding_of_an_unknown_order_is_one_in_every_order(members: Members, *, has_file: bool) -> None:
    wanted = None
    if has_file:
        ring = tuple(RingMember(queue) for queue, _ in (*members[1:], ("more", 1)))
        wanted = Topology((ExchangeDefinition("x", "x-consistent-hash", ring=ring),))
    found = check(live_with(HashRing.unordered(members, RELEASE), members), wanted)
    assert found.not_determined == ("x",)
    assert found.unroutable == {}
    for order in orders(members):
        read = HashRing.from_buckets(order.buckets, RELEASE, next_bucket=len(order.buckets))
        known = check(live_with(read, members), wanted)
        shares = {(one.kind, one.destination): one.share for one in known.findings}
        for one in found.findings:
            assert (one.kind, one.destination) in shares
            if one.share is not None:
                # Of few seeds, buckets differ more than of all.
                assert shares[one.kind, one.destination] == pytest.approx(one.share, abs=0.006)


@pytest.mark.parametrize("members", SEVERAL, ids=str)
def test_a_plan_of_an_unknown_order_says_only_what_an_append_moves(members: Members) -> None:
    """The wanted side is a definitions file, which has no order: new members are bound last."""

    def planned(ring: HashRing, bound: Members) -> tuple[float, float, str]:
        live = live_with(ring, members)
        queues = (*live.queues, QueueDefinition("new"))
        there = live_with(HashRing.unordered(bound, RELEASE), bound)
        wanted = as_live(Topology(there.exchanges, queues), rings=there.rings).as_wanted()
        made = plan(wanted, live).rings["x"]
        return made.moved, made.moved_at_worst, made.movement.unknown

    appended = (*members, ("new", 2))
    said = planned(HashRing.unordered(members, RELEASE), appended)
    removed = planned(HashRing.unordered(members, RELEASE), members[1:])
    assert said[2] == ""
    assert removed == (1.0, 1.0, "the order of its ring is not known")
    of_orders = []
    for order in orders(members):
        read = HashRing.from_buckets(order.buckets, RELEASE, next_bucket=len(order.buckets))
        assert planned(read, appended)[:2] == pytest.approx(said[:2], abs=1e-12)
        of_orders.append(planned(read, members[1:]))
    assert differ(iter(of_orders))
