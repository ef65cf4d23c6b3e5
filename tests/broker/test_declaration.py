"""Declaring rings on a real broker, and what it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pika
import pytest
from declared import BINDINGS
from pika.adapters.blocking_connection import BlockingChannel

from rabbit_chx.broker import Broker, pika_parameters
from rabbit_chx.errors import AccessRefusedError, InputError, MismatchError, NotFoundError
from rabbit_chx.routing import ExchangeRef, HashRing

pytestmark = pytest.mark.broker


@pytest.fixture
def channel(vhost_url: str) -> Iterator[BlockingChannel]:
    with pika.BlockingConnection(pika_parameters(vhost_url)) as connection:
        yield connection.channel()


def test_the_ring_has_the_order_of_the_bindings_and_declaring_again_changes_nothing(live: Broker) -> None:
    live.declare("x", BINDINGS)
    first = live.ring("x")
    live.declare("x", BINDINGS)

    assert first.buckets == ("q3",) * 2 + ("q1",) * 10 + ("q2",)
    assert first.provenance == "read"
    assert first == HashRing.from_bindings(BINDINGS, release=live.release)
    assert live.ring("x") == first


def test_applied_changes_are_reported(live: Broker) -> None:
    done = live.declare("x", dict(BINDINGS))
    assert done.created == (ExchangeRef("x"), "q3", "q1", "q2")
    assert done.bound == (("q3", "2"), ("q1", "10"), ("q2", "1"))
    assert (done.ring, done.ring.provenance) == (live.ring("x"), "replayed")

    again = live.declare("x", BINDINGS)
    assert (again.created, again.bound) == ((), ())
    assert (again.ring, again.ring.provenance) == (done.ring, "read")

    more = live.declare("x", [*BINDINGS, ("q4", 1)])
    assert (more.created, more.bound) == (("q4",), (("q4", "1"),))
    assert more.ring == live.ring("x") == HashRing.from_bindings([*BINDINGS, ("q4", 1)], live.release)
    assert more.ring.provenance == "read"


def test_invalid_bindings_are_refused_and_nothing_is_declared(live: Broker) -> None:
    wrong: tuple[Any, ...] = (["a1", "b2"], ["orders.1"], "a1", [("q", 1, 2)], {("q", 1)}, [5], None)
    for bindings in wrong:
        with pytest.raises(InputError, match=r"pass (a list of )?\(destination, weight\) pairs"):
            live.declare("x", bindings)
    with pytest.raises(NotFoundError):
        live.ring("x")


def test_arguments_reach_the_broker(live: Broker, channel: BlockingChannel) -> None:
    live.declare("x", [("q", 1)], arguments={"hash-header": "tenant"}, queue_arguments={"x-max-length": 1})

    channel.confirm_delivery()
    for body in (b"old", b"new"):
        channel.basic_publish("x", "k", body, pika.BasicProperties(headers={"tenant": "t"}), mandatory=True)
    assert channel.queue_declare("q", passive=True).method.message_count == 1


def test_a_queue_with_other_arguments_stops_all_before_anything_is_made(
    live: Broker, channel: BlockingChannel
) -> None:
    channel.queue_declare("q2", durable=True, arguments={"x-max-length": 5})

    with pytest.raises(MismatchError, match=r"inequivalent arg 'x-max-length' for queue 'q2'") as caught:
        live.declare("x", BINDINGS)

    assert caught.value.queue == "q2"
    with pytest.raises(NotFoundError):
        live.ring("x")


def test_bad_input_is_refused_here_and_the_connection_goes_on(live: Broker) -> None:
    wrong: tuple[tuple[dict[str, Any], str], ...] = (
        ({"exchange": ""}, "exchange"),
        ({"exchange": "a\nb"}, "line break"),
        ({"bindings": [("a\nb", 1)]}, "line break"),
        ({"bindings": [("q", 0)]}, "at least 1"),
        ({"bindings": [("q", "heavy")]}, "whole number"),
        ({"arguments": {"x": object()}}, "use a string, a number"),
        ({"arguments": {"hash_header": "tenant"}}, "did you mean 'hash-header'"),
        ({"arguments": {"n" * 256: 1}}, "cannot be sent"),
    )
    for values, words in wrong:
        with pytest.raises(InputError, match=words):
            live.declare(**{"exchange": "x", "bindings": BINDINGS, **values})
    live.declare("fine", BINDINGS)


def test_a_float_is_what_pika_cannot_send(vhost_url: str) -> None:
    with Broker(vhost_url) as broker, pytest.raises(InputError, match="cannot be sent"):
        broker.declare("x", BINDINGS, queue_arguments={"x": 1.5})


def test_a_reserved_name(live: Broker) -> None:
    with pytest.raises(AccessRefusedError, match=r"amq\.mine"):
        live.declare("amq.mine", BINDINGS)
