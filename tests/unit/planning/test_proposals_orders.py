"""Orders that move least: held against all orders on small rings, and against the best assignment on larger ones."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rabbit_chx.planning import proposals
from rabbit_chx.planning.proposals import find_least_moving_order
from rabbit_chx.planning.ring_plan import MovementCounter
from rabbit_chx.records.live_rings import LiveRing
from rabbit_chx.routing import HashRing
from rabbit_chx.topology import RingMember


def _ring(members: Sequence[RingMember]) -> HashRing:
    return HashRing.from_buckets([member.destination for member in members for _ in range(int(member.key))])


def _moved(figures: MovementCounter, order: Sequence[RingMember]) -> float:
    places = [member.destination for member in order for _ in range(int(member.key))]
    return figures.count(figures.number_destinations(places)).moved


def _live(members: Sequence[RingMember]) -> LiveRing:
    return LiveRing("x", _ring(members), tuple(members))


def _order(there: Sequence[RingMember], wanted: Sequence[RingMember]) -> tuple[RingMember, ...]:
    live = _live(there)
    return find_least_moving_order(live, wanted, MovementCounter(live.ring.buckets))


def _least(figures: MovementCounter, wanted: Sequence[RingMember]) -> float:
    return min(_moved(figures, order) for order in permutations(wanted))


def _members(*names: str, key: str = "1") -> list[RingMember]:
    return [RingMember(name, key) for name in names]


def _names(order: tuple[RingMember, ...]) -> str:
    return "".join(str(member.destination) for member in order)


def _rings(places: str) -> st.SearchStrategy[list[RingMember]]:
    weights = st.sampled_from(["1", "1", "2", "3"])
    member = st.builds(RingMember, st.sampled_from(places), weights)
    return st.lists(member, min_size=1, max_size=6, unique_by=lambda member: member.destination)


@pytest.mark.parametrize(
    ("there", "wanted", "order"),
    [
        ("abcdefg", "bcdefg", "gbcdef"),  # the last member takes the place of one that goes
        ("abcd", "nacd", "ancd"),  # and so does a new one
        ("abc", "nabc", "abcn"),  # which is last if none is removed
        ("abc", "zyx", "zyx"),  # orders that move as much stay as written
    ],
)
def test_the_order_that_moves_least_is_the_nearest_one(there: str, wanted: str, order: str) -> None:
    assert _names(_order(_members(*there), _members(*wanted))) == order


def test_all_orders_of_six_members_are_tried() -> None:
    wanted = [RingMember(name, key) for name, key in zip("fhegbd", "212213", strict=True)]
    assert _names(_order([RingMember("e", "2")], wanted)) == "fhbdeg"


@settings(max_examples=30, deadline=None)
@given(_rings("abcdefgh"), _rings("abcdefgh"))
def test_no_order_of_up_to_six_members_moves_less(there: list[RingMember], wanted: list[RingMember]) -> None:
    live = _live(there)
    figures = MovementCounter(live.ring.buckets)

    order = find_least_moving_order(live, wanted, figures)

    assert _moved(figures, order) == _least(figures, wanted)


def test_of_more_than_six_members_the_order_as_written_and_that_of_the_ring_are_compared() -> None:
    there = _members(*"abcdefgh")
    assert _names(_order(there, _members(*"abcdefghn"))) == "abcdefghn"
    assert _names(_order(there, _members(*"nhgfedcba"))) == "abcdefghn"
    assert _names(_order(there, _members(*"nbcdefgh"))) == "nbcdefgh", (
        "the new member has the place of one that went"
    )


def test_the_fewest_steps_keep_the_order_of_the_live_ring() -> None:
    there = [*_members(*"abcd"), RingMember("e", "2")]

    order = proposals.fewest_steps_order(_ring(there), [*_members("e", "n"), *_members(*"dba")])

    assert _names(order) == "abden"
