"""The rings between the steps of a way are those that the rules of `HashRing` give."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rabbit_chx.routing import HashRing, Release
from rabbit_chx.routing.ring_state import RingState
from rabbit_chx.topology import RingMember
from rabbit_chx.topology.ring_figures import RingFigures
from rabbit_chx.topology.ring_steps import PlainMoments, RingStep, plain_moments, ring_walks

_members = st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=8).flatmap(
    lambda names: st.tuples(
        *(st.builds(RingMember, st.just(name), st.sampled_from("1239")) for name in names)
    )
)
_releases = st.sampled_from([Release("4.3.6"), Release("3.10.8")])


def _read(members: Sequence[RingMember], release: Release) -> HashRing:
    return HashRing.from_buckets(
        [member.destination for member in members for _ in range(int(member.key))], release
    )


@settings(max_examples=200, deadline=None)
@given(_members, _members, _releases)
def test_every_moment_is_that_of_bind_and_unbind(
    there: tuple[RingMember, ...], wanted: tuple[RingMember, ...], release: Release
) -> None:
    live = _read(there, release)

    for walk in ring_walks(live, there, wanted):
        ring = HashRing(live.buckets, release, "read", tuple(one.binding for one in there), end_known=False)
        moments = walk.rings
        assert isinstance(moments, PlainMoments)
        assert len(moments) == len(walk.steps)
        for step, moment in zip(walk.steps, moments, strict=True):
            change = ring.bind if step.action == "bind" else ring.unbind
            ring = change(*step.member.binding)
            assert moment == (ring.buckets, release, ring.provenance, ring.bindings, ring.end_known)


def test_the_figures_of_a_large_ring_are_those_of_share_moved_at_every_moment() -> None:
    numbers = range(120)
    there = [RingMember(f"q{n}", str(1 + n % 2)) for n in numbers]
    wanted = [there[(119 - 7 * n) % 120] for n in numbers]
    wanted[60] = RingMember("new", wanted[60].key)
    live = _read(there, Release("4.3.6"))

    (walk,) = ring_walks(live, there, wanted)
    figures = RingFigures(live).of_walk(walk)

    moments = {ring.buckets: HashRing(*ring) for ring in walk.rings}
    assert len(moments) > 200
    assert len({ring.bucket_count for ring in moments.values()}) < 10  # so that their tables are kept
    worst = max(map(live.share_moved, moments.values()))
    assert figures == (live.share_moved(HashRing(*walk.rings[-1])), worst, 0.0)


def _state(buckets: str, bound: str, release: str = "4.3.6") -> RingState:
    places = tuple(None if place == "-" else place for place in buckets)
    return RingState(
        places, Release(release), "read", tuple((place, "1") for place in bound), end_known=False
    )


@pytest.mark.parametrize(
    "there",
    [
        _state("a-b", "ab"),
        _state("aba", "ab"),
        _state("ab", "a"),
        _state("a", "ab"),
        _state("ab", "aab"),
        _state("ab", "ab", "3.8.20"),
        _state("ab", "ab", "3.10.0"),
    ],
)
def test_other_rings_are_not_plain(there: RingState) -> None:
    assert plain_moments(there, [RingStep("unbind", RingMember("a"))]) is None


@pytest.mark.parametrize(
    "steps",
    [
        [RingStep("bind", RingMember("a", "2"))],
        [RingStep("unbind", RingMember("a", "2"))],
        [RingStep("unbind", RingMember("c"))],
        [RingStep("bind", RingMember("c")), RingStep("unbind", RingMember("c"))],
    ],
)
def test_other_steps_are_not_plain(steps: list[RingStep]) -> None:
    assert plain_moments(_state("ab", "ab"), steps) is None


def test_moments_are_a_sequence() -> None:
    moments = plain_moments(
        _state("ab", "ab"), [RingStep("unbind", RingMember("a")), RingStep("bind", RingMember("c"))]
    )

    assert moments is not None
    assert moments[-1].buckets == ("b", "c")
    assert [one.buckets for one in moments[:1]] == [("b",)]
    with pytest.raises(IndexError):
        moments[2]
