"""Releases and rings compared on a sample."""

from __future__ import annotations

from rabbit_chx.amqp.fields import AmqpField
from rabbit_chx.analysis import compare_releases
from rabbit_chx.analysis.key_routing import Hashing, Refused
from rabbit_chx.routing import ConsistentHashExchange, HashRing, Release

OLD, CRASHING, NEW = Release("3.12.14"), Release("3.13.7"), Release("4.3.6")
RING = HashRing.from_bindings([("q1", 1), ("q2", 2), ("q3", 3)])
KEYS = [f"key-{n}" for n in range(1000)]
TENANT = Hashing(hash_header="tenant")
EMPTY = AmqpField("array", [])


def test_routing_keys_stay_through_an_upgrade() -> None:
    comparison = compare_releases(KEYS, RING.with_release(OLD), NEW)
    assert (comparison.moved, comparison.matrix.moved) == ((), 0)


def test_header_values_move_with_the_upgrade_to_3_13() -> None:
    comparison = compare_releases(KEYS, RING.with_release(OLD), NEW, TENANT)
    before, after = (
        ConsistentHashExchange("x", RING.with_release(release), {"hash-header": "tenant"})
        for release in (OLD, NEW)
    )
    expected = [
        (key, before.route(headers={"tenant": key}), after.route(headers={"tenant": key})) for key in KEYS
    ]
    assert [(move.value, move.before, move.after) for move in comparison.moved] == [
        move for move in expected if move[1] != move[2]
    ]
    assert comparison.matrix.moved == len(comparison.moved) > 400
    assert comparison.values == 1000
    twice = compare_releases([*KEYS, *KEYS], RING.with_release(OLD), NEW, TENANT).moved
    assert [move.value for move in twice] == [KEYS[move.position % 1000] for move in twice]
    assert twice[-1].position >= 1000


def test_messages_that_one_release_refuses_are_reported_and_do_not_count_as_moved() -> None:
    values = ["a", EMPTY, "b"]
    comparison = compare_releases(values, RING.with_release(CRASHING), NEW, TENANT)
    (move,) = comparison.moved
    assert move.value == EMPTY
    assert isinstance(move.before, Refused)
    assert "closes the connection" in move.before.reason
    assert (comparison.refused_before, comparison.refused_after) == (1, 0)
    assert sum(comparison.matrix.amounts.values()) == 2
    both = compare_releases([EMPTY], RING.with_release(CRASHING), Release("4.0.5"), TENANT)
    assert (both.moved, both.matrix.amounts) == ((), {})
