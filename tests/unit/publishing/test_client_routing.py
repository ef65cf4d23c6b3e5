"""Rows that the client routes. The broker is scripted: it says what reached it, under which exchange and routing key."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from amqp_broker import ack
from scripted_peer import Peer

from rabbit_chx.errors import EmptyRingError, InputError, PublishError, RingSourceError, RowError
from rabbit_chx.publishing import Publisher, Retries
from rabbit_chx.publishing.client_routing import ClientRouting
from rabbit_chx.routing import ConsistentHashExchange, ExchangeRef, HashRing, ModulusHashExchange, SlotTable

RING = HashRing.from_buckets(["q1", "q2", "q2", "q3"])
GROWN = HashRing.from_buckets(["q1", "q2", "q2", "q3", "q4"])
KEYS = [f"key {i}" for i in range(700)]


def in_client(peer: Peer, ring: Any, **options: Any) -> Any:
    """A publisher that routes by this ring."""
    return Publisher(peer.settings, "orders", routing="client", ring=ring, **options)


def readings(*rings: object) -> Any:
    """A function that reads one of these after the other."""
    left = list(rings)

    def read() -> object:
        reading = left.pop(0)
        if isinstance(reading, Exception):
            raise reading
        return reading

    return read


# -- where rows go


def test_each_row_goes_to_the_queue_of_its_key_through_the_default_exchange(peer: Peer) -> None:
    with in_client(peer, RING) as publisher:
        report = publisher.publish_many(KEYS, KEYS)
    assert report.confirmed == len(KEYS)
    sent = [(message.exchange, message.routing_key, message.body.decode()) for message in peer.messages]
    assert sent == [("", RING.destination_for(key), key) for key in KEYS]
    assert all(message.mandatory for message in peer.messages)


def test_rows_of_a_lost_connection_go_to_the_same_queues(peer: Peer) -> None:
    def hang_up_once(message: Any) -> bytes:
        if message.connection == 1:
            raise ConnectionResetError
        return ack(message)

    peer.answer = hang_up_once
    with in_client(peer, RING, retries=Retries(backoff_s=0)) as publisher:
        report = publisher.publish_many(KEYS[:50], KEYS[:50])
    assert (report.confirmed, report.republished) == (50, 50)
    second = [message for message in peer.messages if message.connection == 2]
    assert [message.routing_key for message in second] == [RING.destination_for(key) for key in KEYS[:50]]


def test_an_exchange_that_hashes_the_routing_key_serves_as_its_ring(peer: Peer) -> None:
    with in_client(peer, ConsistentHashExchange("orders", RING)) as publisher:
        publisher.publish_many(KEYS[:9], KEYS[:9])
    assert [message.routing_key for message in peer.messages] == [
        RING.destination_for(key) for key in KEYS[:9]
    ]


# -- rings by which nothing can be routed


@pytest.mark.parametrize(
    ("ring", "says"),
    [
        (None, r"exchange 'orders': routing='client' needs ring=, a HashRing that was read"),
        ("q1", r"'q1' is none"),
        (
            HashRing.from_bindings([("q1", 1)]),
            r"needs a ring that was read .* this one is replayed: pass Broker a ring_source",
        ),
        (RING.with_release(RING.release), r"this one is assumed"),
        (
            HashRing.from_buckets(["q1", None]),
            r"bucket 1 of the ring has no destination: publish to the exchange",
        ),
        (
            HashRing.from_buckets([ExchangeRef("audit")]),
            r"bucket 0 of the ring belongs to exchange audit, not to a queue",
        ),
        (SlotTable(HashRing.from_buckets([ExchangeRef("s0")]), {ExchangeRef("s0"): "q1"}), r"not for slots"),
        (
            ConsistentHashExchange("orders", RING, arguments={"hash-header": "tenant"}),
            r"hashes the routing key, and this exchange hashes .*tenant.*: publish to the exchange",
        ),
    ],
    ids=["none", "text", "replayed", "assumed", "hole", "exchange", "slots", "header"],
)
def test_a_ring_by_which_nothing_can_be_routed_is_refused(ring: object, says: str) -> None:
    with pytest.raises(InputError, match=says):
        ClientRouting("orders", ring)


def test_an_empty_ring_is_refused() -> None:
    with pytest.raises(EmptyRingError, match=r"exchange 'orders': .* no buckets: bind queues first"):
        ClientRouting("orders", HashRing.from_buckets([]))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"routing": "queue"}, r"routing is 'queue': pass 'exchange' or 'client'"),
        ({"ring": RING}, r"a ring is given, and routing is 'exchange'"),
        ({"routing": "client"}, r"needs ring=.*None is none"),
        (
            {"routing": "client", "ring": RING, "properties": {"headers": {"CC": ["a"]}}},
            r"the header 'CC' names further routing keys",
        ),
    ],
    ids=["unknown", "ring alone", "no ring", "copies"],
)
def test_arguments_that_contradict_each_other_are_refused(
    peer: Peer, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(InputError, match=says):
        Publisher(peer.settings, "orders", **options)


# -- rows that cannot be routed so


def test_rows_name_no_exchange(peer: Peer) -> None:
    with (
        in_client(peer, RING) as publisher,
        pytest.raises(PublishError, match=r"bypasses all of them") as caught,
    ):
        publisher.publish_many(["k"], ["b"], exchanges=["other"])
    assert isinstance(caught.value.__cause__, InputError)
    assert peer.messages == []


@pytest.mark.parametrize("headers", [{"BCC": ["q1"]}, [("a", 1), ("CC", ["q1"])]], ids=["mapping", "pairs"])
def test_rows_ask_for_no_copies(peer: Peer, headers: Any) -> None:
    with (
        in_client(peer, RING) as publisher,
        pytest.raises(PublishError, match=r"row 2: the header '(B?)CC'") as caught,
    ):
        publisher.publish_many(["k"] * 3, ["b"] * 3, properties={"headers": [None, {"a": 1}, headers]})
    assert isinstance(caught.value.__cause__, RowError)
    assert peer.messages == []


# -- a ring that changes


def test_a_ring_that_stays_is_read_before_the_rows_and_after_each_flush(peer: Peer) -> None:
    read = readings(RING, RING, RING)
    with in_client(peer, read) as publisher:
        publisher.publish_many(KEYS, KEYS)
        publisher.publish_many(KEYS, KEYS)
        publisher.flush()  # nothing to compare
    with pytest.raises(IndexError):
        read()


def test_a_ring_that_has_changed_fails_the_write_and_every_later_one(peer: Peer) -> None:
    with in_client(peer, readings(RING, GROWN)) as publisher:
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
    ("before", "now"),
    [(["q1", "q2"], ["q1", "q2", "q2", "q2"]), (["q1", "q1", "q2"], ["q1", "q2", "q1"])],
    ids=["other weights", "a run in two pieces"],
)
def test_a_ring_of_the_same_queues_may_have_changed(peer: Peer, before: list[str], now: list[str]) -> None:
    read = readings(HashRing.from_buckets(before), HashRing.from_buckets(now))
    with (
        in_client(peer, read) as publisher,
        pytest.raises(PublishError, match=r"of the keys of q1 belong to q2 now"),
    ):
        publisher.publish_many(KEYS, KEYS)


def test_each_write_counts_its_own_rows(peer: Peer) -> None:
    ring = HashRing.from_buckets(["q1"])
    with in_client(peer, readings(ring, ring, HashRing.from_buckets(["q2"]))) as publisher:
        publisher.publish_many(KEYS, KEYS)
        with pytest.raises(
            PublishError, match=r"100.0% of the keys of q1 belong to q2 now, and 5 messages went to q1"
        ):
            publisher.publish_many(KEYS[:5], KEYS[:5])


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


def test_a_ring_that_cannot_be_read_again_fails_the_write(peer: Peer) -> None:
    gone = RingSourceError("the ring was not read: no such container")
    with in_client(peer, readings(RING, gone)) as publisher:
        with pytest.raises(PublishError, match=r"no such container.*3 of 3 messages confirmed") as caught:
            publisher.publish_many(KEYS[:3], KEYS[:3])
        assert caught.value.__cause__ is gone


def test_a_ring_that_has_a_hole_now_fails_the_write(peer: Peer) -> None:
    holed = HashRing.from_buckets(["q1", None, "q2", "q3"])
    with (
        in_client(peer, readings(RING, holed)) as publisher,
        pytest.raises(PublishError, match=r"bucket 1 of the ring has no destination"),
    ):
        publisher.publish_many(KEYS, KEYS)


MODULUS = ModulusHashExchange("orders", [("q2", "1"), ("q1", "1"), ("q1", "2")], None, "read")


def test_a_modulus_exchange_that_was_read_routes_rows(peer: Peer) -> None:
    with in_client(peer, MODULUS) as publisher:
        publisher.publish_many(KEYS, KEYS)

    assert [message.routing_key for message in peer.messages] == [MODULUS.route(key) for key in KEYS]


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


@pytest.mark.parametrize(
    ("ring", "says"),
    [
        (ModulusHashExchange("orders", [("q1", "1")]), "this one is replayed"),
        (
            ModulusHashExchange("orders", [(ExchangeRef("e"), "1")], None, "read"),
            "belongs to exchange e, not to a queue",
        ),
    ],
)
def test_a_modulus_exchange_by_which_nothing_can_be_routed_is_refused(ring: object, says: str) -> None:
    with pytest.raises(InputError, match=says):
        ClientRouting("orders", ring)
