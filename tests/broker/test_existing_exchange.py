"""Declaring on an exchange that exists: its ring, its bindings and its arguments are compared first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pika
import pytest
from declared import BINDINGS
from pika.adapters.blocking_connection import BlockingChannel
from pika.exchange_type import ExchangeType
from quick_rings import quick_prefix

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.broker import Broker, pika_parameters
from rabbit_chx.errors import InputError, MismatchError
from rabbit_chx.routing import Destination, HashRing
from rabbit_chx.testing import RunningBroker

pytestmark = pytest.mark.broker


@pytest.fixture
def channel(vhost_url: str) -> Iterator[BlockingChannel]:
    with pika.BlockingConnection(pika_parameters(vhost_url)) as connection:
        yield connection.channel()


OTHERS: dict[str, Any] = {
    "another order": [("q1", "10"), ("q3", 2), ("q2", 1)],
    "a subset": [("q3", 2), ("q1", "10")],
    "the end": [("q2", 1)],
    "another weight": [("q3", 2), ("q1", "10"), ("q2", 2)],
    "a new one in front": [("q0", 1), *BINDINGS],
    "nothing": [],
}


@pytest.mark.slow
def test_another_ring_is_refused_and_nothing_changed(live: Broker, channel: BlockingChannel) -> None:
    live.declare("x", BINDINGS)
    for name, bindings in OTHERS.items():
        with pytest.raises(
            MismatchError, match=r"'x' has the ring <HashRing read, .*>, not <HashRing replayed, .*>"
        ):
            live.declare("x", bindings)
        assert live.ring("x") == HashRing.from_bindings(BINDINGS, live.release), name
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="no queue 'q0'"):
        channel.queue_declare("q0", passive=True)


def test_with_both_a_listed_binding_without_buckets_is_refused_beforehand(
    vhost: RunningBroker, channel: BlockingChannel
) -> None:
    with Broker(vhost.url, vhost.management_url, quick_prefix(vhost)) as broker:
        broker.declare("x", [("a", 1), ("q", 1)])
        channel.queue_bind("q", "x", "2")
        channel.queue_unbind("q", "x", "1")
        before = broker.ring("x")
        with pytest.raises(MismatchError, match=r"has the ring|has bindings without buckets"):
            broker.declare("x", [("a", 1), ("q", 2)])
        assert broker.ring("x") == before


def test_a_deleted_queue_that_has_buckets(vhost: RunningBroker) -> None:
    class Ghost:
        """A ring source with a ghost, which no broker here can be made to have on every release."""

        def read(self, vhost: str, exchange: str) -> tuple[Destination | None, ...]:
            assert (vhost, exchange) == (ConnectionSettings.from_uri(url).vhost, "x")
            return "gone", "q"

    url = vhost.url
    with Broker(url) as broker:
        broker.declare("x", [("q", 1)])
    with (
        Broker(url, ring_source=Ghost()) as broker,
        pytest.raises(MismatchError, match="queue 'gone' does not exist, and has buckets of exchange 'x'"),
    ):
        broker.declare("x", [("gone", 1), ("q", 1)])


def test_without_anything_to_compare_an_exchange_that_exists_is_refused(vhost_url: str, live: Broker) -> None:
    with Broker(vhost_url) as broker:
        fresh = broker.declare("x", BINDINGS)
        assert (len(fresh.bound), fresh.ring.provenance) == (3, "replayed")
        with pytest.raises(
            InputError, match=r"'x' exists.* ring_source or a management_url .*allow_existing=True"
        ):
            broker.declare("x", [("q3", 5)])
        assert live.ring("x") == fresh.ring

        again = broker.declare("x", BINDINGS, allow_existing=True)
    assert (again.created, len(again.bound), again.ring.provenance) == ((), 3, "assumed")
    assert again.ring.buckets == live.ring("x").buckets == fresh.ring.buckets


@pytest.fixture
def managed(vhost: RunningBroker) -> Iterator[Broker]:
    assert vhost.management_url is not None
    with Broker(vhost.url, management_url=vhost.management_url) as broker:
        yield broker


def test_the_management_api_returns_the_bindings(managed: Broker, live: Broker) -> None:
    managed.declare("x", BINDINGS, records=False)
    again = managed.declare("x", BINDINGS)
    assert (again.created, again.bound, again.ring.provenance) == ((), (), "assumed")
    more = managed.declare("x", [*BINDINGS, ("q4", 1)])
    assert (more.created, more.bound) == (("q4",), (("q4", "1"),))
    assert more.ring.buckets == live.ring("x").buckets

    others: tuple[list[tuple[Destination, int | str]], ...] = (
        [("q3", 2)],
        [*BINDINGS, ("q4", 2)],
        [("q3", "02"), ("q1", "10"), ("q2", 1), ("q4", 1)],
    )
    for bindings in others:
        with pytest.raises(MismatchError, match=r"'x' has the bindings q1=10, q2=1, q3=2, q4=1, not "):
            managed.declare("x", bindings)
    assert live.ring("x").buckets == more.ring.buckets


def test_the_management_api_returns_the_hashed_field(managed: Broker) -> None:
    managed.declare("x", BINDINGS, arguments={"hash-header": "tenant"})
    managed.declare("x", BINDINGS, arguments={"hash-header": "tenant"})
    with pytest.raises(MismatchError, match=r"has the arguments \{'hash-header': 'tenant'\}, not \{\}"):
        managed.declare("x", BINDINGS)


def test_an_exchange_of_another_type_is_refused(live: Broker, channel: BlockingChannel) -> None:
    channel.exchange_declare("x", ExchangeType("direct"), durable=True)

    with pytest.raises(MismatchError, match=r"inequivalent arg 'type' for exchange 'x'") as caught:
        live.declare("x", BINDINGS)

    assert (caught.value.exchange, caught.value.reply_code) == ("x", 406)
    with pytest.raises(MismatchError, match="not of type x-consistent-hash"):
        live.ring("x")


def test_the_broker_does_not_compare_hash_header(live: Broker) -> None:
    live.declare("x", BINDINGS)
    live.declare("x", BINDINGS, arguments={"hash-header": "tenant"})  # a management URL would tell

    assert len(live.ring("x").buckets) == 13
