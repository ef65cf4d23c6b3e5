"""Rows that the client routes. The broker is scripted: it says what reached it, under which exchange and routing key."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest
from scripted_peer import Peer

from rabbit_chx.errors import EmptyRingError, InputError, PublishError, RingSourceError, RowError
from rabbit_chx.publishing.batches import ClientRouting
from rabbit_chx.routing import (
    ConsistentHashExchange,
    ExchangeRef,
    HashRing,
    ModulusHashExchange,
    OrderKnowledge,
    SlotTable,
)

RING = HashRing.from_buckets(["q1", "q2", "q2", "q3"])
GROWN = HashRing.from_buckets(["q1", "q2", "q2", "q3", "q4"])
KEYS = [f"key {i}" for i in range(700)]


MODULUS = ModulusHashExchange("orders", [("q2", "1"), ("q1", "1"), ("q1", "2")], None, "read")


@pytest.fixture
def in_client(opened: Any) -> Any:
    """How to open a publisher that routes by a ring."""
    return lambda ring, **options: opened(routing="client", ring=ring, **options)


# -- where rows go


@pytest.mark.parametrize(
    ("ring", "route"),
    [
        (RING, RING.destination_for),
        (ConsistentHashExchange("orders", RING), RING.destination_for),
        (MODULUS, MODULUS.route),
    ],
    ids=["ring", "exchange that hashes the routing key", "modulus exchange that was read"],
)
def test_each_row_goes_to_the_queue_of_its_key_through_the_default_exchange(
    peer: Peer, in_client: Any, ring: object, route: Callable[[str], object]
) -> None:
    with in_client(ring) as publisher:
        report = publisher.publish_many(KEYS, KEYS)
    assert report.confirmed == len(KEYS)
    sent = [(message.exchange, message.routing_key, message.body.decode()) for message in peer.messages]
    assert sent == [("", route(key), key) for key in KEYS]
    assert all(message.mandatory for message in peer.messages)


# -- rings by which nothing can be routed


E = ExchangeRef("e")
OF_TENANT = ConsistentHashExchange("orders", RING, arguments={"hash-header": "tenant"})


@pytest.mark.parametrize(
    ("ring", "says"),
    [
        (None, "exchange 'orders': routing='client' got ring=None, expected a HashRing that was read"),
        ("q1", "got ring='q1', expected a HashRing"),
        (HashRing.from_bindings([("q1", 1)]), "needs a ring that was read .* this one is replayed: pass Broker a ring_source"),
        (RING.with_release(RING.release), "this one is replayed"),
        (HashRing.from_buckets(["q1", None]), "bucket 1 of the ring has no destination: publish to the exchange"),
        (HashRing.from_buckets([E]), "bucket 0 of the ring belongs to exchange e, not to a queue"),
        (SlotTable(HashRing.from_buckets([E]), {E: "q1"}), "not for slots"),
        (OF_TENANT, "hashes the routing key, and this exchange hashes .*tenant.*: publish to the exchange"),
        (ModulusHashExchange("orders", [("q1", "1")]), "this one is replayed"),
        (ModulusHashExchange("orders", [(E, "1")], None, "read"), "belongs to exchange e, not to a queue"),
    ],
    ids=["none", "text", "replayed", "other release", "hole", "exchange", "slots", "header", "modulus replayed", "modulus exchange"],
)  # fmt: skip
def test_a_ring_by_which_nothing_can_be_routed_is_refused_as_an_empty_one_is(ring: object, says: str) -> None:
    with pytest.raises(InputError, match=says):
        ClientRouting("orders", ring)
    with pytest.raises(EmptyRingError, match=r"exchange 'orders': .* no buckets: bind queues first"):
        ClientRouting("orders", HashRing.from_buckets([]))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"ring": RING}, "a ring is given, and routing is 'exchange'"),
        ({"routing": "client"}, "got ring=None, expected a HashRing"),
        ({"routing": "client", "ring": RING, "properties": {"headers": {"CC": ["a"]}}}, "the header 'CC' names further routing keys"),
    ],
    ids=["ring alone", "no ring", "copies"],
)  # fmt: skip
def test_arguments_that_contradict_each_other_are_refused(
    opened: Any, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(InputError, match=says):
        opened(**options)


# -- rows that cannot be routed so


@pytest.mark.parametrize(
    ("columns", "cause", "says"),
    [
        ({"exchanges": [None, None, "other"]}, InputError, "bypasses all of them"),
        ({"properties": {"headers": [None, {"a": 1}, {"BCC": ["q1"]}]}}, RowError, "row 2: the header 'BCC'"),
        ({"properties": {"headers": [None, None, [("a", 1), ("CC", ["q1"])]]}}, RowError, "row 2: the header 'CC'"),
        ({"properties": {"headers": [None, {"a": 1}, 5]}}, RowError, "row 2: the headers is of type int"),
    ],
    ids=["exchange", "mapping", "pairs", "no headers"],
)  # fmt: skip
def test_rows_name_no_exchange_and_ask_for_no_copies(
    peer: Peer, in_client: Any, columns: dict[str, Any], cause: type[Exception], says: str
) -> None:
    with in_client(RING) as publisher, pytest.raises(PublishError, match=says) as caught:
        publisher.publish_many(["k"] * 3, ["b"] * 3, **columns)
    assert isinstance(caught.value.__cause__, cause)
    assert peer.messages == []


# -- a ring that changes


def test_a_ring_that_stays_is_read_before_the_rows_and_after_each_flush(in_client: Any) -> None:
    read = Mock(return_value=RING)
    with in_client(read) as publisher:
        publisher.publish_many(KEYS, KEYS)
        publisher.publish_many(KEYS, KEYS)
        publisher.flush()  # nothing to compare
    assert read.call_count == 3


def test_a_ring_that_has_changed_fails_the_write_and_every_later_one(peer: Peer, in_client: Any) -> None:
    with in_client(Mock(side_effect=[RING, GROWN])) as publisher:
        with pytest.raises(PublishError) as caught:
            publisher.publish_many(KEYS, KEYS)
        assert caught.value.report.confirmed == len(KEYS)
        to_q2 = sum(RING.destination_for(key) == "q2" for key in KEYS)
        says = str(caught.value)
        assert f"{RING.share_moved(GROWN):.1%} of all keys have another queue now" in says
        assert f"of the keys of q2 belong to q4 now, and {to_q2} messages went to q2" in says
        arrived = len(peer.messages)
        with pytest.raises(PublishError, match="the ring has changed"):
            publisher.publish_many(KEYS, KEYS)
    assert len(peer.messages) == arrived


@pytest.mark.parametrize(
    ("before", "now", "says"),
    [
        (["q1", "q2"], ["q1", "q2", "q2", "q2"], "of the keys of q1 belong to q2 now"),
        (["q1", "q1", "q2"], ["q1", "q2", "q1"], "of the keys of q1 belong to q2 now"),
        (["q1", "q2"], ["q1", None], "bucket 1 of the ring has no destination"),
    ],
    ids=["other weights", "a run in two pieces", "a hole"],
)
def test_another_ring_of_the_same_queues_fails_the_write(
    in_client: Any, before: list[str], now: list[str | None], says: str
) -> None:
    read = Mock(side_effect=[HashRing.from_buckets(before), HashRing.from_buckets(now)])
    with in_client(read) as publisher, pytest.raises(PublishError, match=says):
        publisher.publish_many(KEYS, KEYS)


def test_each_write_counts_its_own_rows_and_fails_if_the_ring_cannot_be_read_again(in_client: Any) -> None:
    ring, gone = HashRing.from_buckets(["q1"]), RingSourceError("the ring was not read: no such container")
    with in_client(Mock(side_effect=[ring, ring, HashRing.from_buckets(["q2"])])) as publisher:
        publisher.publish_many(KEYS, KEYS)
        with pytest.raises(
            PublishError, match=r"100.0% of the keys of q1 belong to q2 now, and 5 messages went to q1"
        ):
            publisher.publish_many(KEYS[:5], KEYS[:5])
    with in_client(Mock(side_effect=[ring, gone])) as publisher:
        with pytest.raises(PublishError, match=r"no such container.*3 of 3 messages confirmed") as caught:
            publisher.publish_many(KEYS[:3], KEYS[:3])
        assert caught.value.__cause__ is gone


def test_rows_of_several_threads_are_counted() -> None:
    """A `SharedPublisher` routes in the threads that submit."""
    routing = ClientRouting("orders", RING)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(lambda _: [routing.queues([b"k"]) for _ in range(2_000)], range(4)))
    finally:
        sys.setswitchinterval(before)
    problem = routing.compare(HashRing.from_buckets(["q4"]))
    assert problem is not None
    assert f"and 8,000 messages went to {RING.destination_for('k')}" in problem


def test_a_change_of_a_modulus_exchange_is_described() -> None:
    routing = ClientRouting("orders", MODULUS)
    routing.queues([key.encode() for key in KEYS])
    grown = ModulusHashExchange("orders", [("q1", "1"), ("q2", "1"), ("q3", "1")], None, "read")

    change = str(routing.compare(grown))
    assert "66.7% of all keys have another queue now" in change
    rows = sum(MODULUS.route(key) == "q1" for key in KEYS)
    assert f"50.0% of the keys of q1 belong to q2 now, and {rows:,} messages went to q1" in change
    assert routing.compare(MODULUS) is None
    assert "another type now" in str(routing.compare(RING))


def test_the_condition_of_a_recorded_ring_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    recorded = replace(RING, order=OrderKnowledge("recorded"))
    routing = ClientRouting("orders", recorded)
    routing.compare(recorded)
    ClientRouting("orders", RING)
    (logged,) = caplog.messages
    assert logged.endswith(
        "as of the record, if only rabbit_chx has changed the bindings of this exchange since"
    )
