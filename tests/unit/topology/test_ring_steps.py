"""Binds and unbinds from one ring to another: what stays, and in which order the rest goes."""

from __future__ import annotations

import pytest

from rabbit_chx.errors import InputError, NotDeterminedError
from rabbit_chx.routing import HashRing, Release
from rabbit_chx.topology import RingMember
from rabbit_chx.topology.ring_steps import RingWalk, buckets_as_members, kept_members, ring_walks


def _members(text: str) -> list[RingMember]:
    """Return members written as ``a b:2``."""
    return [
        RingMember(name, weight or "1") for name, _, weight in (one.partition(":") for one in text.split())
    ]


def _ring(text: str, release: str = "4.3.6") -> HashRing:
    return HashRing.from_bindings([one.binding for one in _members(text)], Release(release))


def _texts(walks: list[RingWalk]) -> list[str]:
    return [
        " ".join(f"{'+' if step.action == 'bind' else '-'}{step.member.destination}" for step in walk.steps)
        for walk in walks
    ]


@pytest.mark.parametrize(
    ("there", "wanted", "kept"),
    [
        ("a b c", "a b c", 3),
        ("a b c", "a c", 2),
        ("a b c", "c a", 1),
        ("a b c", "b c a", 2),
        ("a b:2 c", "a b c", 1),
        ("a b c", "d a b c", 0),
        ("", "a", 0),
    ],
)
def test_what_begins_the_wanted_ring_stays(there: str, wanted: str, kept: int) -> None:
    assert kept_members(_ring(there), _members(there), _members(wanted)) == kept


def test_a_member_with_other_arguments_does_not_stay() -> None:
    assert kept_members(_ring("a b"), _members("a b"), [RingMember("a", "1", {"k": 1})]) == 0


def test_a_binding_key_written_otherwise_does_not_stay() -> None:
    assert kept_members(_ring("a"), _members("a"), [RingMember("a", "01")]) == 0


def test_adding_at_the_end_is_one_bind() -> None:
    assert _texts(ring_walks(_ring("a b"), _members("a b"), _members("a b c"))) == ["+c"]


def test_dropping_is_one_unbind() -> None:
    assert _texts(ring_walks(_ring("a b c"), _members("a b c"), _members("b c"))) == ["-a"]


def test_the_same_operations_in_three_orders() -> None:
    walks = ring_walks(_ring("a b c"), _members("a b c"), _members("d b"))

    assert _texts(walks) == ["-c -a +d -b +b", "-c -b -a +d +b", "+d -b +b -c -a"]
    assert all(walk.rings[-1].buckets == ("d", "b") for walk in walks)


def test_a_replaced_member_and_what_is_behind_it_is_unbound_first() -> None:
    for walk in ring_walks(_ring("a b c"), _members("a b c"), _members("a b c"), ["b"]):
        assert [step.member.destination for step in walk.steps[: walk.first]] == ["b"]
        assert walk.rings[-1].buckets == ("a", "b", "c")


def test_a_second_binding_is_unbound_too() -> None:
    bound = [*_members("a b"), RingMember("a", "2")]

    for walk in ring_walks(_ring("a b"), bound, _members("a b")):
        assert [step.member.key for step in walk.steps if step.member.destination == "a"] == ["1", "2", "1"]
        assert walk.rings[-1].bindings == (("a", "1"), ("b", "1"))


def test_buckets_without_a_binding_are_bound_and_unbound() -> None:
    assert _texts(ring_walks(_ring("a ghost b"), _members("a b"), _members("a b"))) == ["+ghost -ghost"]


def test_no_steps_take_holes_away() -> None:
    ring = HashRing.from_buckets(["a", None, "b"], Release("4.3.6"))

    assert ring_walks(ring, _members("a b"), _members("a b")) == []


def test_a_weight_that_the_release_refuses_is_an_error() -> None:
    with pytest.raises(InputError, match="at most 10000"):
        ring_walks(_ring("a"), _members("a"), _members("a b:10001"))


def test_what_no_rule_decides_is_an_error() -> None:
    with pytest.raises(NotDeterminedError):
        ring_walks(_ring("a:40 b", "3.7.9"), _members("a:40 b"), _members("b"))


def test_buckets_show_their_members() -> None:
    assert list(buckets_as_members(["a", "a", None, "b"])) == _members("a:2 b")
