"""Orders that move least: held against all orders on small rings, and against the best assignment on larger ones."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import permutations

import numpy as np
import pytest
import scipy  # type: ignore[import-untyped]
from hypothesis import given, settings
from hypothesis import strategies as st

from rabbit_chx.routing import HashRing
from rabbit_chx.routing.arrays.seeds import all_buckets
from rabbit_chx.topology import RingMember
from rabbit_chx.topology.live_rings import LiveRing
from rabbit_chx.topology.planning import proposals
from rabbit_chx.topology.planning.movement import MovementCounter
from rabbit_chx.topology.planning.proposals import find_least_moving_order, search_order


def _ring(members: Sequence[RingMember]) -> HashRing:
    return HashRing.from_buckets([member.destination for member in members for _ in range(int(member.key))])


def _moved(figures: MovementCounter, order: Sequence[RingMember]) -> float:
    return figures.count_moved([member.destination for member in order for _ in range(int(member.key))])


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
    """The search for larger rings finds another one, which moves more."""
    wanted = [RingMember(name, key) for name, key in zip("fhegbd", "212213", strict=True)]
    assert _names(_order([RingMember("e", "2")], wanted)) == "fhbdeg"


@settings(max_examples=30, deadline=None)
@given(_rings("abcdefgh"), _rings("abcdefgh"))
def test_no_order_of_up_to_six_members_moves_less(there: list[RingMember], wanted: list[RingMember]) -> None:
    live = _live(there)
    figures = MovementCounter(live.ring.buckets)

    order = find_least_moving_order(live, wanted, figures)

    assert _moved(figures, order) == _least(figures, wanted)


@settings(max_examples=30, deadline=None)
@given(st.permutations("abcdefgh"), st.permutations("abcdefgh"), st.integers(1, 6), st.integers(1, 6))
def test_the_search_for_larger_rings_finds_the_least_of_one_weight(
    there: list[str], wanted: list[str], before: int, after: int
) -> None:
    members, left = _members(*wanted[:after]), _members(*there[:before])
    live = _live(left)
    figures = MovementCounter(live.ring.buckets)

    assert _moved(figures, search_order(live, members, figures)) == _least(figures, members)


def test_the_search_for_larger_rings_is_close_with_different_weights() -> None:
    chance = random.Random(7)  # noqa: S311  # the same rings each time

    def some_members() -> list[RingMember]:
        names = chance.sample("abcdefgh", chance.randint(2, 6))
        return [RingMember(name, str(chance.choice([1, 1, 2, 3, 5]))) for name in names]

    gaps = []
    for live, wanted in [(_live(some_members()), some_members()) for _ in range(60)]:
        figures = MovementCounter(live.ring.buckets)
        gaps.append(_moved(figures, search_order(live, wanted, figures)) - _least(figures, wanted))

    assert min(gaps) == 0.0
    assert sum(gaps) / len(gaps) < 0.002


@pytest.mark.parametrize("seed", range(6))
def test_large_rings_of_one_weight_reach_the_best_assignment_of_places(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311  # the same rings each time
    names = [f"q{n}" for n in range(120)]
    there = _members(*chance.sample(names, chance.randint(60, 110)))
    wanted = _members(*chance.sample(names, chance.randint(60, 110)))
    live = _live(there)
    figures = MovementCounter(live.ring.buckets)

    found = _moved(figures, find_least_moving_order(live, wanted, figures))

    stays = np.zeros((len(wanted), len(wanted)))
    before, after = (all_buckets(len(side)).astype(int) for side in (there, wanted))
    pairs, counts = np.unique(before * len(wanted) + after, return_counts=True)
    number = {member.destination: n for n, member in enumerate(wanted)}
    for pair, count in zip(pairs.tolist(), counts.tolist(), strict=True):
        source, place = divmod(pair, len(wanted))
        if there[source].destination in number:
            stays[number[there[source].destination], place] += count
    rows, columns = scipy.optimize.linear_sum_assignment(-stays)
    least = 1 - stays[rows, columns].sum() / len(before)
    assert least <= found <= least + 0.002


def test_the_fewest_steps_keep_the_order_of_the_live_ring() -> None:
    there = [*_members(*"abcd"), RingMember("e", "2")]

    order = proposals.fewest_steps_order(_ring(there), [*_members("e", "n"), *_members(*"dba")])

    assert _names(order) == "abden"


def test_each_member_gains_at_its_old_position() -> None:
    live, members = _live(_members(*"ab")), _members(*"ba")
    gains = proposals._Score(live, members, MovementCounter(live.ring.buckets))._gains(members, [0, 1])
    best = {number: place for _, number, place in sorted(gains)}
    assert best == {0: 1, 1: 0}
