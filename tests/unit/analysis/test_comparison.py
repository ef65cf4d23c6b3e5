"""Releases and rings compared on a sample."""

from __future__ import annotations

from rabbit_chx.amqp.fields import AmqpField
from rabbit_chx.analysis import compare_rings
from rabbit_chx.analysis.key_routing import Hashing, Refused
from rabbit_chx.routing import HashRing, Release

OLD, CRASHING, NEW = Release("3.12.14"), Release("3.13.7"), Release("4.3.6")
RING = HashRing.from_bindings([("q1", 1), ("q2", 2), ("q3", 3)])
KEYS = [f"key-{n}" for n in range(1000)]
TENANT = Hashing(hash_header="tenant")
EMPTY = AmqpField("array", [])


def test_a_move_has_the_position_of_its_value_in_the_sample() -> None:
    once, twice = (
        compare_rings(keys, RING.with_release(OLD), RING.with_release(NEW), TENANT).moved
        for keys in (KEYS, KEYS * 2)
    )
    assert len(once) > 400
    assert [move.value for move in twice] == [KEYS[move.position % 1000] for move in twice]
    assert [move.position for move in twice[len(once) :]] == [move.position + 1000 for move in once]


def test_messages_that_one_release_refuses_are_reported_and_do_not_count_as_moved() -> None:
    values = ["a", EMPTY, "b"]
    comparison = compare_rings(values, RING.with_release(CRASHING), RING.with_release(NEW), TENANT)
    (move,) = comparison.moved
    assert move.value == EMPTY
    assert isinstance(move.before, Refused)
    assert "closes the connection" in move.before.reason
    assert (comparison.refused_before, comparison.refused_after) == (1, 0)
    assert sum(comparison.matrix.amounts.values()) == 2
    both = compare_rings([EMPTY], RING.with_release(CRASHING), RING.with_release(Release("4.0.5")), TENANT)
    assert (both.moved, both.matrix.amounts) == ((), {})
