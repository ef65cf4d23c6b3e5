"""Other ways to the same members, with their figures."""

from __future__ import annotations

import pickle
from dataclasses import replace

from slot_files import applied

from rabbit_chx.routing import ExchangeRef, HashRing
from rabbit_chx.topology import (
    ExchangeDefinition,
    QueueDefinition,
    RingMember,
    RingPlan,
    RingProposal,
    Topology,
    plan,
)


def _planned(there: str, wanted: str) -> RingPlan:
    queues = tuple(QueueDefinition(name) for name in "abcdefgh")
    ours, theirs = (
        Topology((ExchangeDefinition("x", "x-consistent-hash", ring=tuple(map(RingMember, ring))),), queues)
        for ring in (wanted, there)
    )
    live = replace(theirs, rings={"x": HashRing.from_buckets([*there])})
    return plan(ours, live).rings["x"]


def _proposals(there: str, wanted: str) -> dict[str, RingProposal]:
    return {one.strategy: one for one in _planned(there, wanted).proposals}


def test_the_plan_as_written_comes_first() -> None:
    found = _proposals("abc", "bca")

    assert next(iter(found)) == "as-written"
    assert [one.destination for one in found["as-written"].ring] == [*"bca"]


def test_an_order_that_is_the_written_one_is_not_said_twice() -> None:
    assert set(_proposals("abc", "abcd")) == {"as-written", "slots"}


def test_a_new_exchange_has_no_worse_moment_than_the_end() -> None:
    found = _proposals("abcd", "dbc")

    assert found["as-written"].moved < found["as-written"].moved_at_worst
    assert found["new-exchange"].moved == found["new-exchange"].moved_at_worst == found["as-written"].moved


def test_slots_move_what_their_plan_moves() -> None:
    """The figures of the proposal are those of the plans that it stands for: into slots, one queue more, each queue less."""
    found = _proposals("abcd", "abcde")["slots"]
    assert found.ring == tuple(map(RingMember, "abcde"))
    forecast = found.forecast
    assert forecast is not None
    assert (forecast.slots, forecast.next_weight) == (64, 1)

    live = Topology(
        (ExchangeDefinition("x", "x-consistent-hash", ring=tuple(map(RingMember, "abcd"))),),
        tuple(map(QueueDefinition, "abcdefgh")),
        rings={"x": HashRing.from_buckets([*"abcd"])},
    )

    def shared_by(queues: str) -> Topology:
        members = tuple(map(RingMember, queues))
        slotted = ExchangeDefinition("x", "x-consistent-hash", slots=64, members=members)
        return Topology((slotted,), live.queues)

    into = plan(shared_by("abcde"), live).rings["x"]
    assert (found.moved, found.moved_at_worst) == (into.moved, into.moved_at_worst)
    there = applied(shared_by("abcde"), live)
    assert forecast.moved_by_next == plan(shared_by("abcdef"), there).rings["x"].moved
    leaving = [plan(shared_by("abcde".replace(one, "")), there).rings["x"].moved for one in "abcde"]
    assert forecast.moved_by_leaving == max(leaving)
    assert "slots = 64 with the same queues as members" in found.says
    assert (
        f"{forecast.moved_by_next:.3%} of the keys, and a queue that goes at most {max(leaving):.3%}"
        in found.says
    )


def _weighted(*weights: int) -> RingPlan:
    queues = tuple(QueueDefinition(f"q{n}") for n in range(len(weights)))
    ring = tuple(RingMember(queue.name, str(weight)) for queue, weight in zip(queues, weights, strict=True))
    ours = Topology((ExchangeDefinition("x", "x-consistent-hash", ring=ring),), queues)
    live = HashRing.from_buckets(HashRing.from_bindings([one.binding for one in ring[::-1]]).buckets)
    theirs = replace(ours.exchanges[0], ring=ring[::-1])
    return plan(ours, replace(ours, exchanges=(theirs,), rings={"x": live})).rings["x"]


def test_so_many_slots_that_the_lightest_queue_has_ten_of_them() -> None:
    slots = next(one for one in _weighted(10, 1, 1).proposals if one.strategy == "slots")
    assert slots.forecast is not None
    assert slots.forecast.slots == 256
    assert [one.key for one in slots.ring] == ["10", "1", "1"]


def test_slots_are_not_proposed_where_they_are_no_way() -> None:
    """For queues of very different weight, and where an exchange is a member."""
    for weights in ((90, 1), (110, 1)):
        assert ("slots" in [one.strategy for one in _weighted(*weights).proposals]) == (weights == (90, 1))
    x = ExchangeRef("y")
    ours, theirs = (
        Topology(
            (ExchangeDefinition("x", "x-consistent-hash", ring=ring), ExchangeDefinition("y")),
            (QueueDefinition("a"),),
        )
        for ring in ((RingMember(x), RingMember("a")), (RingMember("a"), RingMember(x)))
    )
    made = plan(ours, replace(theirs, rings={"x": HashRing.from_buckets(["a", x])})).rings["x"]
    assert [one.strategy for one in made.proposals] == ["as-written", "least-moving-order"]


def test_a_sole_queue_has_no_other_that_its_slots_could_go_to() -> None:
    forecast = _proposals("ab", "b")["slots"].forecast
    assert forecast is not None
    assert forecast.moved_by_leaving is None


def test_nothing_is_proposed_where_nothing_moves() -> None:
    assert _proposals("abc", "abc") == {}
    assert _proposals("", "abc") == {}


def test_a_plan_whose_proposals_were_asked_for_is_the_same_value() -> None:
    fresh, asked = _planned("abcd", "dbc"), _planned("abcd", "dbc")

    found = asked.proposals

    assert found
    assert fresh == asked
    assert hash(fresh) == hash(asked)
    assert repr(fresh) == repr(asked)
    for ring in (fresh, asked):
        copied = pickle.loads(pickle.dumps(ring))  # noqa: S301 - our own bytes
        assert copied == ring
        assert copied.proposals == found
