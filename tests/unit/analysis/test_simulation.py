"""Samples on a ring, and releases compared."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from rabbit_chx.amqp.fields import AmqpField
from rabbit_chx.analysis import (
    Hashing,
    Refused,
    chi_square_of_keys,
    compare_releases,
    compare_rings,
    count_movement,
    movement_matrix,
    simulate,
)
from rabbit_chx.errors import InputError
from rabbit_chx.routing import ConsistentHashExchange, HashRing, Release

RING = HashRing.from_bindings([("q1", 1), ("q2", 2), ("q3", 3)])
OLD, CRASHING, NEW = Release("3.12.14"), Release("3.13.7"), Release("4.3.6")
KEYS = [f"key-{n}" for n in range(1000)]
TENANT = Hashing(hash_header="tenant")
EMPTY = AmqpField("array", [])


def test_shares_are_exact_and_held_against_the_weights() -> None:
    places = simulate(RING).places
    assert {place.place: place.share for place in places} == RING.shares()
    assert [(place.buckets, place.ideal) for place in places] == [(1, 1 / 6), (2, 2 / 6), (3, 3 / 6)]
    assert places[0].skew == RING.shares()["q1"] * 6 - 1


def test_holes_are_nobodys_ideal() -> None:
    a, b, hole = simulate(HashRing.from_buckets(["a", None, "b", "b"])).places
    assert (hole.place, hole.buckets, hole.ideal, hole.skew) == (None, 1, 0, 0)
    assert hole.share > 0.3
    assert (a.ideal, b.ideal) == (1 / 3, 2 / 3)


def test_an_empty_ring_takes_nothing() -> None:
    simulation = simulate(HashRing.from_buckets([]), KEYS)
    assert simulation.places == ()
    assert simulation.sample is not None
    assert simulation.sample.messages_of == {None: 1000}
    assert simulation.sample.test is None


def test_messages_and_distinct_keys_are_counted_apart() -> None:
    sample = simulate(RING, [*KEYS, *["key-7"] * 500, *["key-8"] * 200], heaviest=2).sample
    assert sample is not None
    assert (sample.messages, sample.keys) == (1700, 1000)
    assert sample.keys_of == dict(Counter(dict.fromkeys(RING.destinations, 0) | _counted(KEYS)))
    assert sum(sample.messages_of.values()) == 1700
    assert [(heavy.value, heavy.messages, heavy.place) for heavy in sample.heaviest] == [
        ("key-7", 501, RING.destination_for("key-7")),
        ("key-8", 201, RING.destination_for("key-8")),
    ]
    assert sample.test == chi_square_of_keys(KEYS, RING)


def _counted(keys: list[str]) -> dict[object, int]:
    return dict(Counter(RING.destination_for(key) for key in keys))


def test_a_change_is_exact_and_counted_on_the_sample() -> None:
    changed = RING.unbind("q1")
    messages = [*KEYS, *["key-7"] * 10]
    change = simulate(RING, messages, changed=changed).change
    assert change is not None
    assert change.shares == movement_matrix(RING, changed)
    assert change.messages == count_movement(messages, RING, changed)


def test_a_change_without_a_sample_and_to_an_empty_ring() -> None:
    change = simulate(RING, changed=HashRing.from_buckets([])).change
    assert change is not None
    assert change.messages is None
    assert change.shares.moved == 1


@pytest.mark.parametrize("hashing", [TENANT, Hashing(hash_header="tenant", client="aio-pika")])
def test_values_that_python_takes_for_equal_are_counted_apart(hashing: Hashing) -> None:
    values = [0, False, 1, True, [1], [True], {"a": 1}, "a", AmqpField("longstr", "a")]
    sample = simulate(RING, values, hashing=hashing).sample
    exchange = ConsistentHashExchange("x", RING, {"hash-header": "tenant"})
    expected = Counter(exchange.route(headers={"tenant": v}, client=hashing.client) for v in values)
    assert sample is not None
    assert {place: count for place, count in sample.messages_of.items() if count} == expected
    assert sample.keys == len(values) - 1  # a str is a longstr


def test_a_routing_key_is_one_as_text_and_as_bytes() -> None:
    sample = simulate(RING, ["a", b"a", "b"]).sample
    assert sample is not None
    assert [(heavy.value, heavy.messages, heavy.position) for heavy in sample.heaviest] == [
        ("a", 2, 0),
        ("b", 1, 2),
    ]


@pytest.mark.parametrize("name", ["message_id", "timestamp"])
def test_properties_are_counted_as_they_are_sent(name: str) -> None:
    values: list[Any] = ["a", b"a", "b"] if name == "message_id" else [5, 6, 5]
    sample = simulate(RING, values, hashing=Hashing(hash_property=name)).sample
    assert sample is not None
    assert (sample.messages, sample.keys) == (3, 2)


def test_a_field_type_is_that_of_bare_header_values() -> None:
    ring = RING.with_release(OLD)
    hashing = Hashing(hash_header="tenant", field_type="long")
    fields = [AmqpField("long", n) for n in range(100)]
    assert hashing.route_all(range(100), ring) == TENANT.route_all(fields, ring)
    assert hashing.route_all(range(100), ring) != TENANT.route_all(range(100), ring)
    exchange = ConsistentHashExchange("x", ring, {"hash-header": "tenant"})
    assert exchange.route(**hashing.message(5)) == exchange.route(headers={"tenant": fields[5]})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"hash_header": "h", "field_type": "int"}, "no AMQP field type"),
        ({"field_type": "long"}, "give hash_header too"),
    ],
)
def test_a_field_type_that_says_nothing(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Hashing(**given)


def test_what_is_no_ring() -> None:
    nothing: Any = None
    for call in (
        lambda: simulate(nothing),
        lambda: compare_rings(["a"], RING, nothing),
        lambda: compare_releases(["a"], nothing, NEW),
        lambda: movement_matrix(RING, nothing),
        lambda: count_movement(["a"], nothing, RING),
        lambda: chi_square_of_keys(["a"], nothing),
        lambda: Hashing().route_all(["a"], nothing),
    ):
        with pytest.raises(InputError, match="None is no ring: give a HashRing"):
            call()


def test_moves_say_where_they_stand_in_the_sample() -> None:
    comparison = compare_releases([*KEYS, *KEYS], RING.with_release(OLD), NEW, TENANT)
    assert [move.value for move in comparison.moved] == [
        KEYS[move.position % 1000] for move in comparison.moved
    ]
    assert comparison.moved[-1].position >= 1000


def test_routing_keys_stay_through_an_upgrade() -> None:
    comparison = compare_releases(KEYS, RING.with_release(OLD), NEW)
    assert comparison.moved == ()
    assert comparison.matrix.moved == 0


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


def test_the_client_decides_what_a_bare_number_is_before_3_13() -> None:
    ring = RING.with_release(OLD)
    one, other = (
        Hashing(hash_header="tenant", client=client).route_all(range(200), ring)
        for client in ("pika", "aio-pika")
    )
    assert one != other
    assert Hashing(hash_header="tenant").route_all(range(200), ring.with_release(NEW)) == Hashing(
        hash_header="tenant", client="aio-pika"
    ).route_all(range(200), ring.with_release(NEW))


def test_what_one_release_refuses_is_no_movement_but_said() -> None:
    values = ["a", EMPTY, "b"]
    comparison = compare_releases(values, RING.with_release(CRASHING), NEW, TENANT)
    (move,) = comparison.moved
    assert move.value == EMPTY
    assert isinstance(move.before, Refused)
    assert "closes the connection" in move.before.reason
    assert (comparison.refused_before, comparison.refused_after) == (1, 0)
    assert sum(comparison.matrix.amounts.values()) == 2


def test_what_both_refuse_does_not_move() -> None:
    comparison = compare_releases([EMPTY], RING.with_release(CRASHING), Release("4.0.5"), TENANT)
    assert comparison.moved == ()
    assert comparison.matrix.amounts == {}


def test_refused_messages_of_a_simulation_are_counted_apart() -> None:
    sample = simulate(RING.with_release(CRASHING), ["a", EMPTY, EMPTY], hashing=TENANT).sample
    assert sample is not None
    assert (sample.messages, sample.refused, sum(sample.messages_of.values())) == (3, 2, 1)
    assert sample.refusal is not None
    assert "3.13.7 crashes" in sample.refusal


def test_properties_are_hashed_as_routing_keys_are() -> None:
    ids = Hashing(hash_property="message_id").route_all(KEYS, RING)
    assert ids == Hashing().route_all(KEYS, RING)
    seconds = Hashing(hash_property="timestamp").route_all(range(500), RING)
    assert seconds == Hashing().route_all(list(map(str, range(500))), RING)


def test_a_value_that_the_exchange_cannot_be_given() -> None:
    with pytest.raises(InputError):
        compare_rings([object()], RING, RING, TENANT)
    with pytest.raises(InputError, match="both given"):
        Hashing(hash_header="h", hash_property="message_id")
