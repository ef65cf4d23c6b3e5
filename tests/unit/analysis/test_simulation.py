"""Samples on a ring: empty rings, equal values, refusals. Transcripts show shares, counts and changes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from rabbit_chx.amqp.fields import AmqpField
from rabbit_chx.analysis import movement, simulate
from rabbit_chx.analysis.key_routing import Hashing, Refused
from rabbit_chx.analysis.simulation import Change, SampleCounts
from rabbit_chx.errors import InputError
from rabbit_chx.routing import ConsistentHashExchange, HashRing, Release

RING = HashRing.from_bindings([("q1", 1), ("q2", 2), ("q3", 3)])
OLD, CRASHING, NEW = Release("3.12.14"), Release("3.13.7"), Release("4.3.6")
KEYS = [f"key-{n}" for n in range(1000)]
TENANT = Hashing(hash_header="tenant")
EMPTY = AmqpField("array", [])


def sampled(ring: HashRing, values: list[Any], **options: Any) -> SampleCounts:
    sample = simulate(ring, values, **options).sample
    assert sample is not None
    return sample


def changed(values: list[Any], before: HashRing, after: HashRing) -> Change:
    change = simulate(before, values, changed=after, hashing=TENANT).change
    assert change is not None
    assert change.keys is not None
    return change


def test_a_key_that_moves_is_listed_once_in_the_order_of_the_sample() -> None:
    once, twice = (changed(keys, RING.with_release(OLD), RING.with_release(NEW)) for keys in (KEYS, KEYS * 2))
    assert once.shares is None  # the releases hash a header differently
    assert once.keys is not None
    assert len(once.keys) > 400
    assert [key.key for key in once.keys] == [key for key in KEYS if key in {move.key for move in once.keys}]
    assert twice.keys == once.keys
    assert once.messages is not None
    assert twice.messages is not None
    assert twice.messages.moved == 2 * once.messages.moved == 2 * len(once.keys)


def test_messages_that_one_release_refuses_are_listed_and_counted_apart() -> None:
    change = changed(["a", EMPTY, EMPTY, "b"], RING.with_release(CRASHING), RING.with_release(NEW))
    (move,) = change.keys or ()
    assert move.key == EMPTY
    assert isinstance(move.before, Refused)
    assert "closes the connection" in move.before.reason
    assert (change.refused_before, change.refused_after) == (2, 0)
    assert change.messages is not None
    assert sum(change.messages.values()) == 2
    both = changed([EMPTY], RING.with_release(CRASHING), RING.with_release(Release("4.0.5")))
    assert both.messages is not None
    assert (both.keys, len(both.messages), both.refused_before, both.refused_after) == ((), 0, 0, 0)


def test_an_empty_ring_takes_nothing_and_a_change_to_it_moves_all() -> None:
    assert simulate(HashRing.from_buckets([]), KEYS).places == ()
    assert sampled(HashRing.from_buckets([]), KEYS).messages_of == {None: 1000}
    change = simulate(RING, changed=HashRing.from_buckets([])).change
    assert change is not None
    assert change.shares is not None
    assert (change.messages, change.shares.moved) == (None, 1)


@pytest.mark.parametrize("hashing", [TENANT, Hashing(hash_header="tenant", client="aio-pika")])
def test_values_that_python_takes_for_equal_are_counted_apart(hashing: Hashing) -> None:
    values = [0, False, 1, True, [1], [True], {"a": 1}, "a", AmqpField("longstr", "a")]
    sample = sampled(RING, values, hashing=hashing)
    exchange = ConsistentHashExchange("x", RING, {"hash-header": "tenant"})
    expected = Counter(exchange.route(headers={"tenant": v}, client=hashing.client) for v in values)
    assert {place: count for place, count in sample.messages_of.items() if count} == expected
    assert sample.keys == len(values) - 1  # a str is a longstr


def test_keys_are_counted_as_they_are_sent() -> None:
    sample = sampled(RING, ["a", b"a", "b"])
    assert [(heavy.value, heavy.messages) for heavy in sample.heaviest] == [("a", 2), ("b", 1)]
    properties: dict[str, list[Any]] = {"message_id": ["a", b"a", "b"], "timestamp": [5, 6, 5]}
    for name, values in properties.items():
        sample = sampled(RING, values, hashing=Hashing(hash_property=name))
        assert (sample.messages, sample.keys) == (3, 2)


def test_what_is_no_ring_is_refused() -> None:
    nothing: Any = None
    for call in (
        lambda: simulate(nothing),
        lambda: movement(RING, nothing),
        lambda: Hashing().route_all(["a"], nothing),
    ):
        with pytest.raises(InputError, match="None is not a ring: pass a HashRing"):
            call()


def test_refused_messages_of_a_simulation_are_counted_apart() -> None:
    sample = sampled(RING.with_release(CRASHING), ["a", EMPTY, EMPTY], hashing=TENANT)
    assert (sample.messages, sample.refused, sum(sample.messages_of.values())) == (3, 2, 1)
    assert sample.refusal is not None
    assert "3.13.7 crashes" in sample.refusal


def test_a_value_that_the_exchange_cannot_be_given() -> None:
    with pytest.raises(InputError):
        simulate(RING, [object()], hashing=TENANT)
    with pytest.raises(InputError, match="both given"):
        Hashing(hash_header="h", hash_property="message_id")
