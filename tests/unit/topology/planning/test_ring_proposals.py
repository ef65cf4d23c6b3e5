"""Other ways to the same members, with their figures."""

from __future__ import annotations

import pickle
from dataclasses import replace

from rabbit_chx.routing import HashRing
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
    assert set(_proposals("abc", "abcd")) == {"as-written", "fixed-partitions"}


def test_a_new_exchange_has_no_worse_moment_than_the_end() -> None:
    found = _proposals("abcd", "dbc")

    assert found["as-written"].moved < found["as-written"].moved_at_worst
    assert found["new-exchange"].moved == found["new-exchange"].moved_at_worst == found["as-written"].moved


def test_fixed_partitions_move_every_key_once() -> None:
    found = _proposals("abc", "ab")["fixed-partitions"]

    assert (found.moved, found.moved_at_worst) == (1.0, 1.0)
    assert len({one.destination for one in found.ring}) == len(found.ring) == 16
    assert not {one.destination for one in found.ring} & {*"abc"}


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
