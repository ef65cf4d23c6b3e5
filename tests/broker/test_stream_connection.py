"""A connection to the stream port of a real broker."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any, TypeVar
from urllib.parse import urlsplit

import pytest
from exchange_types import CHX, DIRECT
from pika.adapters.blocking_connection import BlockingChannel

from rabbit_chx import errors
from rabbit_chx.amqp import Secret
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.frames import (
    Code,
    Confirms,
    ConsumerUpdate,
    CreditRefused,
    DeliveredChunk,
    Event,
    Key,
    frame,
)
from rabbit_chx.streams.nodes import stream_settings
from rabbit_chx.testing import RunningBroker
from rabbit_chx.testing.containers import release_is_in

pytestmark = pytest.mark.broker

Kind = TypeVar("Kind", bound=Event)

ROW = b"\0\x53\x75\xa0\2hi"
"""An AMQP 1.0 message: a data section with two bytes."""


def begin_of(delivery: DeliveredChunk) -> int:
    return int.from_bytes(delivery.chunk[24:32])


def end_of(delivery: DeliveredChunk) -> int:
    return begin_of(delivery) + int.from_bytes(delivery.chunk[4:8])


def wait_for(stream: StreamConnection, kind: type[Kind], enough: Callable[[list[Kind]], bool]) -> list[Kind]:
    """The events of a kind, until there are enough of them."""
    found: list[Kind] = []
    deadline = time.monotonic() + 60
    while not enough(found):
        assert time.monotonic() < deadline, f"only {found}"
        found += [event for event in stream.events(1) if isinstance(event, kind)]
    return found


def stored(stream: StreamConnection, ids: range, publisher_id: int = 0, row: bytes = ROW) -> None:
    """Publish rows, and wait until they are confirmed."""
    rows = b"".join(number.to_bytes(8) + len(row).to_bytes(4) + row for number in ids)
    stream.send(frame(Key.PUBLISH, bytes([publisher_id]) + len(ids).to_bytes(4) + rows))
    confirms = wait_for(
        stream, Confirms, lambda confirms: sum(len(some.ids) for some in confirms) >= len(ids)
    )
    assert {some.publisher_id for some in confirms} == {publisher_id}
    assert sorted(number for some in confirms for number in some.ids.tolist()) == list(ids)


@pytest.fixture
def stream(vhost: RunningBroker) -> Iterator[StreamConnection]:
    """A connection, and an empty stream `s` with publisher 0."""
    with closing(StreamConnection(stream_settings(vhost.stream_url))) as opened:
        opened.create_stream("s")
        opened.declare_publisher(0, "s", None)
        yield opened


# -- opening


@pytest.mark.parametrize(
    ("given", "agreed"),
    [("", (60, 1 << 20)), ("?heartbeat=5&frame_max=8192", (5, 8192)), ("?heartbeat=0", (0, 1 << 20))],
)
def test_an_open_connection_knows_its_server_and_a_closed_one_is_refused(
    vhost: RunningBroker, given: str, agreed: tuple[int, int]
) -> None:
    with closing(StreamConnection(stream_settings(vhost.stream_url + given))) as opened:
        assert (opened.heartbeat_s, opened.frame_max) == agreed
        assert opened.server_version == vhost.version
        assert opened.node is not None
        assert bool(opened.commands) == release_is_in(vhost.version, ">=3.11")
        opened.close()
        with pytest.raises(errors.InputError, match="the connection is closed"):
            opened.events(0)


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"password": Secret("c4nary")}, errors.AccessRefusedError, "code 8, authentication failure"),
        ({"auth_mechanisms": ("EXTERNAL",)}, errors.AccessRefusedError, r"PLAIN.*, not EXTERNAL"),
        pytest.param(
            {"password": Secret("c4nary" * 1_500)},
            errors.AccessRefusedError,
            r"9,007 bytes.*stream\.initial_frame_max allows 8,192",
            marks=pytest.mark.chx_broker(">=4.3"),
        ),
        ({"vhost": "no such"}, errors.BrokerRefusedError, r"'no such' \(code 12, vhost access failure\)"),
        ({"port": "amqp"}, errors.InputError, r"speaks AMQP, .*5552"),
    ],
    ids=["password", "mechanism", "large login", "vhost", "port of AMQP"],
)
def test_a_login_that_cannot_be_is_refused_and_the_password_is_not_shown(
    vhost: RunningBroker, change: dict[str, Any], kind: type[errors.RabbitChxError], words: str
) -> None:
    if "port" in change:
        change = {"port": urlsplit(vhost.url).port or 5672, "connection_timeout_s": 30}
    with pytest.raises(kind, match=words) as caught:
        StreamConnection(replace(stream_settings(vhost.stream_url), **change))
    assert "c4nary" not in str(caught.value)


# -- requests


def test_a_refusal_names_the_command_and_the_code(stream: StreamConnection) -> None:
    missing, taken = errors.NotFoundError, errors.BrokerRefusedError
    stream.subscribe(1, "s", "first", 1)
    for call, kind, words in (
        (lambda: stream.metadata(["s", "no"]), missing, "find the nodes of stream 'no'"),
        (lambda: stream.declare_publisher(1, "no", None), missing, "declare publisher 1 of stream 'no'"),
        (lambda: stream.subscribe(2, "no", "first", 1), missing, "subscribe to stream 'no'"),
        (lambda: stream.publisher_sequence("r", "no"), missing, "last id of 'r' in stream 'no'"),
        (lambda: stream.query_offset("billing", "no"), missing, "'billing' in stream 'no'"),
        (lambda: stream.delete_stream("no"), missing, "delete stream 'no'"),
        (lambda: stream.partitions("no"), missing, "partitions of super stream 'no'"),
        (lambda: stream.create_stream("s"), errors.MismatchError, r"'s' \(code 5, stream exists\)"),
        (lambda: stream.declare_publisher(0, "s", None), taken, r"publisher 0 of stream 's' \(code 17"),
        (lambda: stream.subscribe(1, "s", "first", 1), taken, r"as 1 \(code 3"),
        (lambda: stream.unsubscribe(2), errors.ConnectionLostError, r"end subscription 2 \(code 4"),
        (lambda: stream.delete_publisher(2), taken, r"delete publisher 2 \(code 18"),
        (
            lambda: stream.stats("no"),
            missing if stream.commands else errors.InputError,
            "figures of stream 'no'" if stream.commands else r"RabbitMQ 3.*'stream stats' .* 3\.11",
        ),
    ):
        with pytest.raises(kind, match=words):
            call()
    stream.give_credit(2, 1)
    assert wait_for(stream, CreditRefused, bool) == [CreditRefused(2, Code.SUBSCRIPTION_DOES_NOT_EXIST)]


def test_partitions_declared_by_amqp_are_in_the_order_of_their_bindings(
    stream: StreamConnection, channel: BlockingChannel
) -> None:
    for name, type_ in (("plain", DIRECT), ("super", DIRECT), ("hashed", CHX)):
        arguments = {"x-super-stream": True} if name == "super" else {}
        channel.exchange_declare(name, type_, durable=True, arguments=arguments)
        for order in (2, 1):
            channel.queue_declare(f"x-{order}", durable=True, arguments={"x-queue-type": "stream"})
            channel.queue_bind(f"x-{order}", name, str(order), {"x-stream-partition-order": order})
    assert stream.partitions("plain") == stream.partitions("super") == ("x-1", "x-2")
    with pytest.raises(errors.InputError, match="'hashed' is not a super stream"):
        stream.partitions("hashed")


@pytest.mark.chx_broker(">=3.11")
def test_the_next_consumer_becomes_active_when_the_first_one_unsubscribes(
    stream: StreamConnection, vhost: RunningBroker
) -> None:
    stored(stream, range(1, 4))
    member = {"single-active-consumer": "true", "name": "billing"}
    stream.subscribe(5, "s", "first", 10, member)
    ((subscription_id, is_active, update),) = wait_for(stream, ConsumerUpdate, bool)
    assert (subscription_id, is_active) == (5, True)
    assert not stream.events(0.3), "nothing is delivered before the answer"
    stream.answer_consumer_update(update, 2)
    assert end_of(wait_for(stream, DeliveredChunk, bool)[-1]) == 3
    with closing(StreamConnection(stream_settings(vhost.stream_url))) as other:
        other.subscribe(6, "s", "next", 10, member)
        assert not other.events(0.3)
        stream.unsubscribe(5)
        ((subscription_id, is_active, update),) = wait_for(other, ConsumerUpdate, bool)
        assert (subscription_id, is_active) == (6, True)
        other.answer_consumer_update(update, None)  # the start of its subscription
        other.metadata(["s"])  # it is at the end before the next row is stored
        stored(stream, range(4, 5))
        assert begin_of(wait_for(other, DeliveredChunk, bool)[0]) == 3


# -- rows


def test_a_segment_begins_with_a_snapshot_and_no_offset_is_skipped(stream: StreamConnection) -> None:
    stream.create_stream("t", {"stream-max-segment-size-bytes": "3000"})
    stream.declare_publisher(1, "t", "me")
    row = b"\0\x53\x75\xb0" + (300).to_bytes(4) + bytes(300)
    for number in range(1, 41):
        stored(stream, range(number, number + 1), 1, row)
    trailer = b"\0\2me" + (40).to_bytes(8)
    stream.subscribe(1, "t", "first", 100, {"chunk_selector": "all"})
    deliveries = wait_for(
        stream, DeliveredChunk, lambda found: bool(found) and bytes(found[-1].chunk).endswith(trailer)
    )
    assert {delivery.chunk[1] for delivery in deliveries} == {0, 2}, "a segment begins with a snapshot"
    ends = [end_of(delivery) for delivery in deliveries]
    assert [begin_of(delivery) for delivery in deliveries] == [0, *ends[:-1]], "there are no holes"
    stream.subscribe(2, "t", "first", 100)
    deliveries = wait_for(stream, DeliveredChunk, lambda found: len(found) >= 40)
    assert {delivery.chunk[1] for delivery in deliveries} == {0}
    assert not any(bytes(delivery.chunk).endswith(trailer) for delivery in deliveries)


def test_a_chunk_larger_than_a_frame_is_delivered_whole(
    stream: StreamConnection, channel: BlockingChannel
) -> None:
    channel.confirm_delivery()
    # AMQP cuts a row into as many frames as it needs.
    channel.basic_publish("", "s", bytes(stream.frame_max))
    stream.subscribe(1, "s", "first", 50)
    (delivery,) = wait_for(stream, DeliveredChunk, bool)
    assert (begin_of(delivery), end_of(delivery)) == (0, 1)
    assert len(delivery.chunk) > stream.frame_max


def test_heartbeats_go_on_while_the_caller_does_other_work(vhost: RunningBroker) -> None:
    with closing(StreamConnection(stream_settings(f"{vhost.stream_url}?heartbeat=1"))) as opened:
        time.sleep(4)  # the broker gives up after less
        assert opened.metadata([]) == {}
