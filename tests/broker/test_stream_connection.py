"""A connection to the stream port of a real broker."""

from __future__ import annotations

import struct
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any, TypeVar
from urllib.parse import urlsplit

import pytest
from cluster import RunningCluster
from declared import with_login
from exchange_types import CHX, DIRECT
from pika.adapters.blocking_connection import BlockingChannel
from super_streams import create_super_stream, delete_super_stream
from tcp_proxy import Proxy

from rabbit_chx.amqp import Secret
from rabbit_chx.broker.management import Management
from rabbit_chx.errors import (
    AccessRefusedError,
    BrokerRefusedError,
    ConnectionLostError,
    InputError,
    MismatchError,
    NotFoundError,
)
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.frames import (
    Code,
    Confirms,
    ConsumerUpdate,
    CreditRefused,
    DeliveredChunk,
    Event,
    Key,
    OffsetSpec,
    PublishErrors,
    frame,
)
from rabbit_chx.streams.nodes import open_at, settings_of, stream_settings
from rabbit_chx.testing import RunningBroker
from rabbit_chx.testing.broker_search import release_is_in

pytestmark = [pytest.mark.broker, pytest.mark.chx_broker(">=3.9", "streams")]

Kind = TypeVar("Kind", bound=Event)

CHUNK = struct.Struct(">BBHIqQQIIIB3x")
ROW = b"\0\x53\x75\xa0\2hi"
"""An AMQP 1.0 message: a data section with two bytes."""


def chunk_of(delivery: DeliveredChunk) -> tuple[int, int, int, bytes]:
    """The id of the first row, the number of rows, the time in milliseconds, and all entries, whose CRC is right."""
    magic, _, _, rows, time_ms, _, first, crc, size, _, _ = CHUNK.unpack_from(delivery.chunk)
    entries = delivery.chunk[CHUNK.size : CHUNK.size + size]
    assert magic == 0x50
    assert zlib.crc32(entries) == crc
    # The trailer is not sent, though the header has its length.
    assert len(delivery.chunk) == CHUNK.size + size
    return first, rows, time_ms, bytes(entries)


def begin_of(delivery: DeliveredChunk) -> int:
    return int.from_bytes(delivery.chunk[24:32])


def end_of(delivery: DeliveredChunk) -> int:
    return begin_of(delivery) + int.from_bytes(delivery.chunk[4:8])


def publish(ids: range, publisher_id: int = 0, row: bytes = ROW) -> bytes:
    rows = b"".join(number.to_bytes(8) + len(row).to_bytes(4) + row for number in ids)
    return frame(Key.PUBLISH, bytes([publisher_id]) + len(ids).to_bytes(4) + rows)


def wait_for(stream: StreamConnection, kind: type[Kind], enough: Callable[[list[Kind]], bool]) -> list[Kind]:
    """The events of a kind, until there are enough of them."""
    found: list[Kind] = []
    deadline = time.monotonic() + 60
    while not enough(found):
        assert time.monotonic() < deadline, f"only {found}"
        found += [event for event in stream.events(1) if isinstance(event, kind)]
    return found


def large_row(size: int) -> bytes:
    return b"\0\x53\x75\xb0" + size.to_bytes(4) + bytes(size)


def stored(stream: StreamConnection, ids: range, publisher_id: int = 0, row: bytes = ROW) -> None:
    """Publish rows, and wait until they are confirmed."""
    stream.send(publish(ids, publisher_id, row))
    confirms = wait_for(
        stream, Confirms, lambda confirms: sum(len(some.ids) for some in confirms) >= len(ids)
    )
    assert {some.publisher_id for some in confirms} == {publisher_id}
    assert sorted(number for some in confirms for number in some.ids.tolist()) == list(ids)


def chunks_from(
    stream: StreamConnection, start: OffsetSpec, until: int, credit: int = 50
) -> list[tuple[int, int, int, bytes]]:
    """The chunks of the stream `s` from a start, until the row before this offset is among them."""
    stream.subscribe(9, "s", start, credit)
    deliveries = wait_for(
        stream, DeliveredChunk, lambda found: bool(found) and sum(chunk_of(found[-1])[:2]) >= until
    )
    stream.unsubscribe(9)
    return [chunk_of(delivery) for delivery in deliveries]


@pytest.fixture
def url(vhost: RunningBroker) -> str:
    return vhost.stream_url


@pytest.fixture
def stream(url: str) -> Iterator[StreamConnection]:
    """A connection, and an empty stream `s` with publisher 0."""
    with closing(StreamConnection(stream_settings(url))) as opened:
        opened.create_stream("s")
        opened.declare_publisher(0, "s", None)
        yield opened


@pytest.fixture
def proxy(url: str) -> Iterator[Callable[..., Proxy]]:
    """Makes proxies to the stream port."""
    made: list[Proxy] = []

    def make() -> Proxy:
        made.append(Proxy(url))
        return made[-1]

    yield make
    for proxy_ in made:
        proxy_.close()


def through(url: str, proxy: Proxy, parameters: str = "") -> StreamConnection:
    parts = urlsplit(url)
    login = parts.netloc.rpartition("@")[0]
    return StreamConnection(
        stream_settings(f"rabbitmq-stream://{login}@127.0.0.1:{proxy.port}{parts.path}?{parameters}")
    )


# -- opening


def test_an_open_connection_knows_its_server_and_a_closed_one_is_refused(
    vhost: RunningBroker, stream: StreamConnection
) -> None:
    assert stream.server_version == vhost.version
    assert stream.frame_max == 1 << 20
    assert stream.heartbeat_s == 60
    assert stream.node is not None
    assert bool(stream.commands) == release_is_in(vhost.version, ">=3.11")
    stream.close()
    stream.close()
    with pytest.raises(InputError, match="the connection is closed"):
        stream.events(0)


@pytest.mark.parametrize(
    ("given", "agreed"), [("heartbeat=5&frame_max=8192", (5, 8192)), ("heartbeat=0", (0, 1 << 20))]
)
def test_what_is_agreed_on(url: str, given: str, agreed: tuple[int, int]) -> None:
    with closing(StreamConnection(stream_settings(f"{url}?{given}"))) as opened:
        assert (opened.heartbeat_s, opened.frame_max) == agreed


def test_a_wrong_password_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(AccessRefusedError, match="code 8, authentication failure") as caught:
        StreamConnection(stream_settings(with_login(url, "guest", "c4nary")))
    assert "c4nary" not in str(caught.value)


def test_a_mechanism_that_the_broker_lacks_is_refused(url: str) -> None:
    with pytest.raises(AccessRefusedError, match=r"PLAIN.*, not EXTERNAL"):
        StreamConnection(stream_settings(f"{url}?auth_mechanism=external"))


@pytest.mark.chx_broker(">=4.3")
def test_a_login_that_is_too_large(url: str) -> None:
    settings = replace(stream_settings(url), password=Secret("p" * 9_000))
    with pytest.raises(AccessRefusedError, match=r"9,007 bytes.*stream\.initial_frame_max allows 8,192"):
        StreamConnection(settings)


def test_a_missing_vhost_is_named(url: str) -> None:
    with pytest.raises(BrokerRefusedError, match=r"'no such' \(code 12, vhost access failure\)"):
        StreamConnection(replace(stream_settings(url), vhost="no such"))


def test_a_port_of_amqp_is_refused_with_the_port_of_streams(vhost_url: str) -> None:
    settings = replace(
        stream_settings(vhost_url), port=urlsplit(vhost_url).port or 5672, connection_timeout_s=30
    )
    with pytest.raises(InputError, match=r"speaks AMQP, .*5552"):
        StreamConnection(settings)


# -- requests


def test_where_a_stream_is(stream: StreamConnection) -> None:
    assert stream.metadata(["s"])["s"] == (stream.node, (), Code.OK)
    with pytest.raises(NotFoundError, match="stream 'no'") as caught:
        stream.metadata(["s", "no"])
    assert (caught.value.queue, caught.value.reply_code) == ("no", Code.STREAM_DOES_NOT_EXIST)
    assert stream.metadata(["s", "no"], missing_ok=True)["no"] == (None, (), Code.STREAM_DOES_NOT_EXIST)
    assert stream.metadata([]) == {}


def test_a_missing_stream_is_named_by_each_command(stream: StreamConnection) -> None:
    for call, doing in (
        (lambda: stream.declare_publisher(1, "no", None), "declare publisher 1 of"),
        (lambda: stream.subscribe(1, "no", "first", 1), "subscribe to"),
        (lambda: stream.publisher_sequence("r", "no"), "return the last id of 'r' in"),
        (lambda: stream.delete_stream("no"), "delete"),
    ):
        with pytest.raises(NotFoundError, match=f"the broker refuses to {doing} stream 'no'"):
            call()
    with pytest.raises(NotFoundError, match="partitions of super stream 'no'"):
        stream.partitions("no")


def test_what_is_taken(stream: StreamConnection) -> None:
    stream.subscribe(1, "s", "first", 1)
    with pytest.raises(MismatchError, match=r"'s' \(code 5, stream exists\)"):
        stream.create_stream("s")
    with pytest.raises(BrokerRefusedError, match=r"publisher 0 of stream 's' \(code 17"):
        stream.declare_publisher(0, "s", None)
    with pytest.raises(BrokerRefusedError, match=r"as 1 \(code 3"):
        stream.subscribe(1, "s", "first", 1)
    with pytest.raises(BrokerRefusedError, match=r"end subscription 2 \(code 4"):
        stream.unsubscribe(2)
    with pytest.raises(BrokerRefusedError, match=r"delete publisher 2 \(code 18"):
        stream.delete_publisher(2)
    stream.give_credit(2, 1)
    assert wait_for(stream, CreditRefused, bool) == [CreditRefused(2, Code.SUBSCRIPTION_DOES_NOT_EXIST)]


@pytest.mark.chx_broker(">=3.13")
def test_a_super_stream_is_created_in_order_and_deleted(stream: StreamConnection) -> None:
    create_super_stream(stream, "x", ["x-1", "x-0"], ["0", "1"], {"max-length-bytes": "1000000"})
    assert stream.partitions("x") == ("x-1", "x-0")
    delete_super_stream(stream, "x")
    with pytest.raises(NotFoundError):
        stream.metadata(["x-0"])


@pytest.mark.parametrize("arguments", [{}, {"x-super-stream": True}])
def test_a_super_stream_declared_by_amqp_has_the_order_of_its_bindings(
    stream: StreamConnection, channel: BlockingChannel, arguments: dict[str, Any]
) -> None:
    channel.exchange_declare("super", DIRECT, durable=True, arguments=arguments)
    for order in (1, 0):
        channel.queue_declare(f"x-{order}", durable=True, arguments={"x-queue-type": "stream"})
        channel.queue_bind(f"x-{order}", "super", str(order), {"x-stream-partition-order": order})
    assert stream.partitions("super") == ("x-0", "x-1")


def test_a_hash_exchange_is_not_a_super_stream(stream: StreamConnection, channel: BlockingChannel) -> None:
    channel.exchange_declare("hashed", CHX, durable=True)
    for name in ("a", "b"):
        channel.queue_declare(name, durable=True, arguments={"x-queue-type": "stream"})
        channel.queue_bind(name, "hashed", "1")
    with pytest.raises(InputError, match="'hashed' is not a super stream"):
        stream.partitions("hashed")


@pytest.mark.chx_broker(">=3.11")
def test_the_figures_of_a_stream_count_its_chunks(stream: StreamConnection) -> None:
    assert stream.stats("s")["first_chunk_id"] == -1
    stored(stream, range(1, 6))
    stored(stream, range(6, 11))
    figures = stream.stats("s")
    assert figures["first_chunk_id"] == 0
    assert 5 <= figures["committed_chunk_id"] <= 9
    with pytest.raises(NotFoundError, match="figures of stream 'no'"):
        stream.stats("no")


def test_a_stored_offset_is_read_by_another_connection(stream: StreamConnection, url: str) -> None:
    assert stream.query_offset("billing", "s") is None
    stream.store_offset("billing", "s", 0)
    assert stream.query_offset("billing", "s") == 0
    stream.store_offset("billing", "s", 1 << 40)
    stream.store_offset("audit", "s", 7)
    with closing(StreamConnection(stream_settings(url))) as other:
        assert [other.query_offset(name, "s") for name in ("billing", "audit")] == [1 << 40, 7]
        with pytest.raises(NotFoundError, match="'billing' in stream 'no'"):
            other.query_offset("billing", "no")


@pytest.mark.chx_broker(">=3.11")
def test_the_next_consumer_becomes_active_when_the_first_one_unsubscribes(
    stream: StreamConnection, url: str
) -> None:
    stored(stream, range(1, 4))
    member = {"single-active-consumer": "true", "name": "billing"}
    stream.subscribe(5, "s", "first", 10, member)
    ((subscription_id, is_active, update),) = wait_for(stream, ConsumerUpdate, bool)
    assert (subscription_id, is_active) == (5, True)
    assert not stream.events(0.3), "nothing is delivered before the answer"
    stream.answer_consumer_update(update, 2)
    assert end_of(wait_for(stream, DeliveredChunk, bool)[-1]) == 3
    with closing(StreamConnection(stream_settings(url))) as other:
        other.subscribe(6, "s", "next", 10, member)
        assert not other.events(0.3)
        stream.unsubscribe(5)
        ((subscription_id, is_active, update),) = wait_for(other, ConsumerUpdate, bool)
        assert (subscription_id, is_active) == (6, True)
        other.answer_consumer_update(update, None)  # the start of its subscription
        other.metadata(["s"])  # it is at the end before the next row is stored
        stored(stream, range(4, 5))
        assert begin_of(wait_for(other, DeliveredChunk, bool)[0]) == 3


@pytest.mark.chx_broker("<3.11")
def test_commands_that_an_old_broker_does_not_have(stream: StreamConnection) -> None:
    with pytest.raises(InputError, match=r"RabbitMQ 3.*'stream stats' .* 3\.11"):
        stream.stats("s")


@pytest.mark.usefixtures("stream")
def test_a_user_without_permissions_is_refused_by_each_command(vhost: RunningBroker) -> None:
    management = Management(str(vhost.management_url))
    name, vhost_name = "stream-guest", stream_settings(vhost.stream_url).vhost
    management.request("PUT", "users", name, body={"password": "p", "tags": ""})
    try:
        with pytest.raises(BrokerRefusedError, match="user's permissions on it"):
            StreamConnection(stream_settings(with_login(vhost.stream_url, name, "p")))
        nothing = {"configure": "^$", "write": "^$", "read": "^$"}
        management.request("PUT", "permissions", vhost_name, name, body=nothing)
        with closing(StreamConnection(stream_settings(with_login(vhost.stream_url, name, "p")))) as guest:
            for call in (
                lambda: guest.declare_publisher(0, "s", None),
                lambda: guest.subscribe(0, "s", "first", 1),
                lambda: guest.create_stream("t"),
                lambda: guest.delete_stream("s"),
            ):
                with pytest.raises(AccessRefusedError, match="code 16, access refused"):
                    call()
    finally:
        management.request("DELETE", "users", name)


# -- rows


def test_a_segment_begins_with_a_snapshot_and_no_offset_is_skipped(stream: StreamConnection) -> None:
    stream.create_stream("t", {"stream-max-segment-size-bytes": "3000"})
    stream.declare_publisher(1, "t", "me")
    for number in range(1, 41):
        stored(stream, range(number, number + 1), 1, row=large_row(300))
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


def test_credit_is_what_may_come(stream: StreamConnection) -> None:
    for number in range(1, 11):
        stored(stream, range(number, number + 1))
    stream.subscribe(1, "s", "first", 4)
    deliveries = wait_for(stream, DeliveredChunk, lambda found: len(found) >= 4)
    assert len(deliveries) + len(stream.events(0.3)) == 4
    for _ in range(3):  # more than half of what it began with
        stream.give_credit(1, 1)
    deliveries += wait_for(stream, DeliveredChunk, lambda found: len(found) >= 3)
    assert [chunk_of(delivery)[0] for delivery in deliveries] == list(range(7))


def test_a_chunk_larger_than_a_frame_is_delivered_whole(
    stream: StreamConnection, channel: BlockingChannel
) -> None:
    channel.confirm_delivery()
    # AMQP cuts a row into as many frames as it needs.
    channel.basic_publish("", "s", bytes(stream.frame_max))
    ((first, rows, _, entries),) = chunks_from(stream, "first", 1)
    assert (first, rows) == (0, 1)
    assert len(entries) > stream.frame_max


def test_rows_of_an_undeclared_publisher_are_answered_by_errors(stream: StreamConnection) -> None:
    stream.send(publish(range(1, 3), publisher_id=7))
    errors = wait_for(stream, PublishErrors, bool)
    assert [(error.publisher_id, error.ids.tolist(), error.codes.tolist()) for error in errors] == [
        (7, [1, 2], [Code.PUBLISHER_DOES_NOT_EXIST] * 2)
    ]


@pytest.mark.chx_broker(">=4.3")
def test_a_frame_that_is_too_large(stream: StreamConnection) -> None:
    with pytest.raises(ConnectionLostError, match="code 14, frame too large"):  # noqa: PT012
        stream.send(publish(range(1), row=bytes(stream.frame_max)))
        stream.events(30)


# -- faults


def test_heartbeats_go_on_while_the_caller_is_elsewhere(url: str, proxy: Callable[..., Proxy]) -> None:
    with closing(through(url, proxy(), "heartbeat=1")) as opened:
        heard = opened._last_received
        time.sleep(4)  # the broker gives up after less
        assert opened._last_received > heard
        assert opened.metadata([]) == {}


# -- nodes


def test_the_node_that_has_the_stream(stream: StreamConnection, url: str) -> None:
    for leader in (True, False):
        with closing(open_at(settings_of(url), "s", leader=leader, timeout_s=30)) as opened:
            assert opened.node == stream.node
    with pytest.raises(NotFoundError, match="the nodes of stream 'no'"):
        open_at(settings_of(url), "no", leader=True, timeout_s=30)


@pytest.mark.slow
@pytest.mark.docker
def test_a_connection_reaches_the_leader_or_a_replica_of_a_cluster(chx_cluster: RunningCluster) -> None:
    settings = [stream_settings(node.stream_url) for node in chx_cluster.nodes]
    addresses, at = {}, {}
    for its in settings:
        with closing(StreamConnection(its)) as opened:
            assert opened.node is not None
            at[opened.node] = its.port
            addresses[str(opened.node)] = f"127.0.0.1:{its.port}"
    with closing(StreamConnection(settings[0])) as first:
        first.create_stream("s", {"initial-cluster-size": "3"})
        try:
            deadline = time.monotonic() + 60
            while len((places := first.metadata(["s"])["s"]).replicas) < 2:  # they start behind the leader
                assert time.monotonic() < deadline, places
                time.sleep(0.1)
            assert places.leader is not None
            assert {places.leader, *places.replicas} == set(at)
            for its in settings:
                with closing(
                    open_at(deque([its]), "s", leader=True, addresses=addresses, timeout_s=60)
                ) as leader:
                    assert leader.node == places.leader
                with closing(
                    open_at(deque([its]), "s", leader=False, addresses=addresses, timeout_s=60)
                ) as replica:
                    assert replica.node in places.replicas
        finally:
            first.delete_stream("s")
