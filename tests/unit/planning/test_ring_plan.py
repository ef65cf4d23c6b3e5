"""Binds and unbinds from one ring to another: what stays, and in which order the rest goes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rabbit_chx.planning.ring_plan import (
    Moment,
    MovementCounter,
    RingSteps,
    count_kept_members,
    find_best_steps,
)
from rabbit_chx.records.live_rings import LiveRing
from rabbit_chx.routing import HashRing, Release
from rabbit_chx.topology import RingMember
from rabbit_chx.topology.schema import PlannedChange


def _members(text: str) -> list[RingMember]:
    """Return members written as ``a b:2``."""
    return [
        RingMember(name, weight or "1")
        for name, _, weight in (member.partition(":") for member in text.split())
    ]


def _there(text: str, release: str = "4.3.6", bound: Sequence[RingMember] | None = None) -> LiveRing:
    members = _members(text)
    ring = HashRing.from_bindings([member.binding for member in members], Release(release))
    return LiveRing("x", ring, tuple(members if bound is None else bound))


def _steps(there: LiveRing, wanted: str, replaced: Sequence[str] = ()) -> RingSteps | None:
    return find_best_steps(there, _members(wanted), replaced, MovementCounter(there.ring.buckets))


def _text(steps: Sequence[PlannedChange]) -> str:
    return " ".join(f"{'+' if step.action == 'bind' else '-'}{step.binding.destination}" for step in steps)


def test_fewer_keys_without_a_destination_count_before_fewer_that_move() -> None:
    class ScriptedFigures(MovementCounter):
        """Say that the first order moves less than the others, and leaves keys without a destination."""

        rated = 0

        def count(self, *_: object, **__: object) -> Moment:
            self.rated += 1
            return Moment(0.5, 0.2) if self.rated <= 4 else Moment(0.6, 0.0)

    there = _there("a b")
    steps = find_best_steps(there, _members("c d"), (), ScriptedFigures(there.ring.buckets))

    assert steps is not None
    assert len(steps.steps) == 4
    assert steps.movement.peak == Moment(0.6, 0.0)


def test_a_member_with_other_arguments_or_a_binding_key_written_otherwise_does_not_stay() -> None:
    for other in (RingMember("a", "1", {"k": 1}), RingMember("a", "01")):
        assert count_kept_members(_there("a b"), [other]) == 0


@pytest.mark.parametrize(
    ("there", "wanted", "steps"),
    [
        ("a b", "a b c", "+c"),  # adding at the end is one bind
        ("a b c", "b c", "-a"),  # dropping is one unbind
        ("a b c d e f g h i j", "a b c d e f g h i k", "-j +k"),  # in pairs
        ("a", "b", "+b -a"),  # bound first, so that the ring is never empty
        ("a b c d", "d b a c", "-c -b -a +b +a +c"),
        ("a b c", "a b c", ""),
    ],
)
def test_the_best_steps_keep_what_stays(there: str, wanted: str, steps: str) -> None:
    best = _steps(_there(there), wanted)

    assert best is not None
    assert _text(best.steps) == steps


def test_a_destination_that_is_wanted_twice_is_unbound_once() -> None:
    best = _steps(_there("a b", "3.10.0"), "b a b:2")

    assert best is not None
    assert sorted(_text(best.steps).split()) == ["+a", "+b", "+b", "-a", "-b"]
