"""The ring of a write: predicted, and watched for changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest
from spark_messages import options_of

from rabbit_chx import routing
from rabbit_chx.errors import InputError, RingSourceError
from rabbit_chx.routing import ExchangeRef, HashRing, ModulusHashExchange, Release, SlotTable
from rabbit_chx.routing.key_map import KeyMap
from spark_connector.placing.placement import Placement, partition_numbers, queue_names
from spark_connector.placing.rings import NO_QUEUE, WatchedRing, as_ring, count_by_queue

KEYS = [f"key {n}" for n in range(500)]
SLOTS = [ExchangeRef(f"e.slot.{n:02}") for n in range(8)]
RING = HashRing.from_bindings([(slot, 1) for slot in SLOTS])
TABLE = SlotTable(RING, {}).reassigned({"a": 1, "b": 3})
MODULUS = ModulusHashExchange("bills", [("q1", "1"), ("q2", "1"), ("q1", "2")], Release("4.3.6"), "read")
FEWER = ModulusHashExchange("bills", [("q1", ""), ("q2", "")], Release("4.3.6"), "read")
BEFORE = HashRing.from_bindings([("q1", 1), ("q2", 1)])
AFTER = HashRing.from_bindings([("q2", 1), ("q1", 1)])


@pytest.mark.parametrize(
    "key_map",
    [BEFORE, HashRing.from_buckets(["q1", None, "q2"]), TABLE, SlotTable(RING, {SLOTS[0]: "a"}), MODULUS],
)
def test_rows_have_the_queue_of_their_key_if_there_is_one(key_map: KeyMap) -> None:
    keys = [*KEYS, None, None]
    expected = [None if key is None else key_map.destination_for(key) for key in keys]
    names = Counter(NO_QUEUE if name is None else name for name in expected)
    assert count_by_queue(key_map, pa.array(keys)) == names
    assert count_by_queue(key_map, [key.encode() for key in KEYS]) == names - Counter({NO_QUEUE: 2})
    assert queue_names(key_map.to_json(), pa.array(keys)).to_pylist() == expected


def readings(*maps: KeyMap) -> Callable[[], KeyMap]:
    """A function that reads one of them after the other, and then fails."""
    left = iter(maps)

    def read() -> KeyMap:
        for key_map in left:
            return key_map
        raise RingSourceError("no docker")

    return read


def test_a_ring_that_is_not_read_adds_nothing() -> None:
    assert WatchedRing(None).ring is None
    assert WatchedRing(None).check_again() is None
    assert WatchedRing(BEFORE.to_json()).ring == BEFORE
    assert WatchedRing(MODULUS.to_json()).ring == MODULUS
    assert WatchedRing(BEFORE).check_again() is None
    with pytest.raises(InputError, match="no buckets"):
        WatchedRing(lambda: HashRing.from_bindings([]))


def test_a_ring_in_another_order_is_noticed_and_is_the_ring_from_then_on() -> None:
    watched = WatchedRing(readings(BEFORE, BEFORE, AFTER, AFTER))
    assert watched.check_again() == "the ring is the same as before"
    assert "the ring has changed, and 100.0% of all keys" in str(watched.check_again())
    assert watched.ring == AFTER
    assert watched.check_again() == "the ring is the same as before"
    assert watched.check_again() == "the ring could not be read again, so it may have changed: no docker"


class UnprintableError(Exception):
    """An error without a text."""

    def __str__(self) -> str:
        raise ValueError("no text")


def test_an_error_without_a_text_does_not_fail_a_write_that_is_done() -> None:
    watched = WatchedRing(Mock(side_effect=[BEFORE, UnprintableError(), UnprintableError()]))
    assert str(watched.check_again()).endswith("it may have changed: UnprintableError")
    assert str(watched.change({})).endswith("no longer has their keys: UnprintableError")


def test_a_ring_that_becomes_slots_or_of_another_type_is_compared_by_queue() -> None:
    plain = HashRing.from_bindings([("a", 1), ("b", 3)])
    watched = WatchedRing(readings(plain, TABLE))
    assert f"{TABLE.share_moved(plain):.1%} of all keys" in str(watched.check_again())
    watched = WatchedRing(readings(MODULUS, FEWER, BEFORE))
    assert "50.0% of all keys changed queue" in str(watched.check_again())
    assert "100.0% of all keys changed queue" in str(watched.check_again())


def test_a_change_reports_which_rows_may_be_in_the_wrong_queue() -> None:
    heavier = HashRing.from_bindings([("q1", 1), ("q2", 3)])
    watched = WatchedRing(BEFORE, readings(AFTER, AFTER, heavier))
    queue = BEFORE.destinations[0]
    change = str(watched.change({str(queue): 12}))
    assert "the ring has changed during the write: 100.0% of all keys have another queue now" in change
    assert f"and 12 messages went to {queue}" in change
    assert watched.change({}) is None
    assert "the ring has changed during the write" in str(watched.change({}))
    assert watched.change({}) == (
        "the ring could not be read again, so rows may have gone to a queue that no longer has their keys: no docker"
    )
    watched = WatchedRing(MODULUS, readings(MODULUS, FEWER, BEFORE))
    assert watched.change({}) is None
    assert "50.0% of all keys have another queue now" in str(watched.change({"q1": 7}))
    assert "has another type or slots now" in str(watched.change({}))


def test_an_exchange_serves_as_its_ring_if_it_hashes_the_routing_key() -> None:
    assert WatchedRing(lambda: routing.ConsistentHashExchange("x", BEFORE)).ring == BEFORE
    by_header = routing.ConsistentHashExchange("x", BEFORE, arguments={"hash-header": "tenant"})
    with pytest.raises(InputError, match=r"'x' hashes .*tenant"):
        WatchedRing(lambda: by_header)


def test_a_modulus_exchange_places_each_key_at_its_queue() -> None:
    placement = Placement.of(as_ring(MODULUS.to_json()), spare=True)
    found = partition_numbers(MODULUS.to_json(), placement, None, pa.array([*KEYS, None]))
    numbers: list[Any] = found.to_pylist()
    assert [(*MODULUS.destinations, None)[number] for number in numbers] == [*map(MODULUS.route, KEYS), None]
    assert numbers[-1] == placement.partitions - 1


@pytest.mark.parametrize(
    ("key_map", "words"),
    [
        (ModulusHashExchange("bills", []), "has no buckets or bindings"),
        (ModulusHashExchange("x", [("a", ""), ("b", "")], Release("4.1", "khepri")), "cannot be computed"),
        (SlotTable(RING, {}), "no buckets or bindings, or its slots no queue"),
    ],
)
def test_an_exchange_that_predicts_nothing_is_refused(key_map: KeyMap, words: str) -> None:
    with pytest.raises(InputError, match=words):
        as_ring(key_map)


@pytest.mark.parametrize("key_map", [TABLE, MODULUS])
def test_the_option_takes_the_json_of_slots_and_of_a_modulus_exchange(key_map: Any) -> None:
    assert options_of(ring=key_map.to_json()).ring == key_map
    with pytest.raises(InputError, match="no buckets or bindings, or its slots no queue"):
        options_of(ring=SlotTable(RING, {}).to_json())
