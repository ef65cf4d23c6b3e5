"""StreamPublisher on a real broker: what is in the streams afterwards, also where line or broker die meanwhile."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pika
import pytest
from broker_alarms import disk_alarm
from exchange_types import CHX
from super_streams import create_super_stream
from tcp_proxy import Proxy

from rabbit_chx.broker import Broker, pika_parameters
from rabbit_chx.errors import InputError, NotFoundError, PublishError, RabbitChxError
from rabbit_chx.routing import SuperStream
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.frames import Confirms, Key, frame
from rabbit_chx.streams.nodes import stream_settings
from rabbit_chx.streams.options import WriteLimits
from rabbit_chx.streams.publisher import StreamPublisher
from rabbit_chx.streams.reader import StreamReader
from rabbit_chx.streams.rows import encode_rows
from rabbit_chx.testing import RunningBroker, skip_unless_ci
from rabbit_chx.testing.broker_search import release_is_in

pytestmark = [pytest.mark.broker, pytest.mark.chx_broker(">=3.9", "streams")]

ROWS = 100_000
#: As the tests of rabbitmq-stream-go-client have it (super_stream_producer_test.go); the .NET client has the same.
INVOICES = {
    "hello1": "invoices-02", "hello2": "invoices-01", "hello3": "invoices-02", "hello4": "invoices-03",
    "hello5": "invoices-01", "hello6": "invoices-03", "hello7": "invoices-01", "hello8": "invoices-02",
    "hello9": "invoices-01", "hello10": "invoices-03", "hello88": "invoices-02",
}  # fmt: skip


@pytest.fixture
def connection(vhost: RunningBroker) -> Iterator[StreamConnection]:
    with closing(StreamConnection(stream_settings(vhost.stream_url))) as opened:
        opened.create_stream("s")
        yield opened


@pytest.fixture
def proxy(vhost: RunningBroker) -> Iterator[Proxy]:
    with closing(Proxy(vhost.stream_url)) as made:
        yield made


def through(url: str, proxy: Proxy) -> str:
    before, _, vhost = url.rpartition("/")
    return f"{before.rpartition(':')[0]}:{proxy.port}/{vhost}"


def texts(first: int = 1, rows: int = ROWS) -> tuple[list[str], list[str], range]:
    ids = range(first, first + rows)
    return [f"k{n}" for n in ids], [f"body {n}" for n in ids], ids


def stored(vhost: RunningBroker, stream: str = "s") -> dict[str, list[Any]]:
    """The columns of all rows."""
    columns: dict[str, list[Any]] = {"key": [], "value": [], "message_id": [], "exchange": []}
    with StreamReader(vhost.stream_url, stream, include=("message_id", "exchange")) as reader:
        for batch in reader:
            for name in columns:
                columns[name] += batch[name].to_pylist()
    return columns


def check_once(vhost: RunningBroker, rows: int, stream: str = "s") -> None:
    """Each row is there once, in order, with its own key and body."""
    found = stored(vhost, stream)
    keys, bodies, ids = texts(rows=rows)
    assert found["message_id"] == [f"load:{n}" for n in ids]
    assert found["key"] == list(map(str.encode, keys))
    assert found["value"] == list(map(str.encode, bodies))


def claim(connection: StreamConnection, row_id: int) -> None:
    """Let the broker believe that it has the rows up to an id, by a row without a message id."""
    connection.declare_publisher(0, "s", "load")
    row = b"\0Su\xa0\2hi"
    connection.send(frame(Key.PUBLISH, struct.pack(">BIQI", 0, 1, row_id, len(row)) + row))
    until = time.monotonic() + 60
    while not any(isinstance(event, Confirms) for event in connection.events(1)):
        assert time.monotonic() < until


@pytest.mark.usefixtures("connection")
def test_rows_are_stored_once_by_two_runs(vhost: RunningBroker) -> None:
    for known in (0, ROWS):
        with StreamPublisher(vhost.stream_url, stream="s", name="load") as publisher:
            keys, bodies, ids = texts()
            report = publisher.publish_many(keys, bodies, ids=ids)
        assert (report.rows, report.confirmed, report.known) == (ROWS, ROWS, known)
        assert (report.resent, report.repaired, report.reconnects) == (0, 0, 0)
    check_once(vhost, ROWS)


@pytest.mark.usefixtures("connection")
def test_an_amqp_consumer_has_key_exchange_body_and_id(vhost: RunningBroker) -> None:
    with StreamPublisher(vhost.stream_url, stream="s", name="load", exchange="orders") as publisher:
        publisher.publish_many(["kä"], [b"\0body"], ids=[7])
    with pika.BlockingConnection(pika_parameters(vhost.url)) as amqp:
        channel = amqp.channel()
        channel.basic_qos(prefetch_count=1)
        rows = channel.consume("s", arguments={"x-stream-offset": "first"}, inactivity_timeout=30)
        method, properties, body = next(rows)
        assert method is not None
        assert properties is not None
    assert (body, properties.message_id) == (b"\0body", "load:7")
    headers = properties.headers or {}
    assert "kä" in (method.routing_key, headers.get("x-routing-key"))
    assert "orders" in (method.exchange, headers.get("x-exchange"))


@pytest.mark.usefixtures("connection")
@pytest.mark.parametrize("name", ["load", None])
def test_a_line_that_is_cut(vhost: RunningBroker, proxy: Proxy, name: str | None) -> None:
    with StreamPublisher(through(vhost.stream_url, proxy), stream="s", name=name) as publisher:
        ended = threading.Event()

        def cut() -> None:
            for part in (1, 2, 3):
                while publisher._writers[0].counts.confirmed < part * ROWS // 4 and not ended.wait(0.001):
                    pass
                proxy.cut()

        cutter = threading.Thread(target=cut)
        cutter.start()
        try:
            keys, bodies, ids = texts()
            report = publisher.publish_many(keys, bodies, ids=ids if name else None)
        finally:
            ended.set()
            cutter.join()
    assert report.confirmed == ROWS
    assert 1 <= report.reconnects <= 3
    if name:
        check_once(vhost, ROWS)
    else:
        found = stored(vhost)["value"]
        assert set(found) == set(map(str.encode, bodies))
        assert 0 <= len(found) - ROWS <= report.resent


def test_a_missing_stream_is_created_with_the_defaults_of_the_broker(vhost: RunningBroker) -> None:
    with pytest.raises(NotFoundError):
        StreamPublisher(vhost.stream_url, stream="made")
    for rows in (1, 2):  # the second time it exists, and keeps its row
        with StreamPublisher(vhost.stream_url, stream="made", create=1) as publisher:
            publisher.publish_many(["k"], ["b"])
        assert len(stored(vhost, "made")["key"]) == rows
    with pika.BlockingConnection(pika_parameters(vhost.url)) as amqp:
        channel = amqp.channel()
        channel.queue_declare("made", durable=True, arguments={"x-queue-type": "stream"})
        channel.queue_declare("queue")
    with pytest.raises(RabbitChxError, match="'queue'"):
        StreamPublisher(vhost.stream_url, stream="queue", create=1)


def test_a_missing_super_stream_is_created_with_its_partitions(vhost: RunningBroker) -> None:
    if not release_is_in(vhost.version, ">=3.13"):
        with pytest.raises(InputError, match=r"needs 3\.13 or newer"):
            StreamPublisher(vhost.stream_url, super_stream="made", create=3)
        return
    for create in (3, 5):  # the second time it exists, and keeps its partitions
        with StreamPublisher(vhost.stream_url, super_stream="made", create=create) as publisher:
            assert publisher.streams == ("made-0", "made-1", "made-2")
    with closing(StreamConnection(stream_settings(vhost.stream_url))) as connection:
        assert connection.binding_keys("made", publisher.streams) == ("0", "1", "2")


def test_super_streams_are_placed_as_the_official_clients_do(vhost: RunningBroker) -> None:
    if not release_is_in(vhost.version, ">=3.13"):
        pytest.skip("before 3.13 no stream client makes super streams")
    names = [f"invoices-0{n}" for n in (1, 2, 3)]
    with closing(StreamConnection(stream_settings(vhost.stream_url))) as connection:
        create_super_stream(connection, "invoices", names, ["0", "1", "2"])
    with StreamPublisher(vhost.stream_url, super_stream="invoices", name="load") as publisher:
        report = publisher.publish_many(
            list(INVOICES), ["b"] * len(INVOICES), ids=range(1, len(INVOICES) + 1)
        )
    assert publisher.streams == tuple(names)
    found = {key.decode(): name for name in names for key in stored(vhost, name)["key"]}
    assert found == INVOICES
    assert set(stored(vhost, names[0])["exchange"]) == {"invoices"}
    assert report.streams == {name: list(INVOICES.values()).count(name) for name in names}
    assert SuperStream(names).partition_for("hello1") == found["hello1"]


def test_other_rows_under_used_ids_of_a_super_stream_are_an_error(vhost: RunningBroker) -> None:
    """Its highest id is given for another partition, so it is not the row that is compared."""
    if not release_is_in(vhost.version, ">=3.13"):
        pytest.skip("before 3.13 no stream client makes super streams")
    names = ["again-0", "again-1"]
    with closing(StreamConnection(stream_settings(vhost.stream_url))) as connection:
        create_super_stream(connection, "again", names, ["0", "1"])
    where = SuperStream(names).partition_for
    here, there = (next(f"k{n}" for n in range(99) if where(f"k{n}") == name) for name in names)
    with StreamPublisher(vhost.stream_url, super_stream="again", name="load") as publisher:
        publisher.publish_many([here] * 1_000, ["first"] * 1_000, ids=range(1, 1_001))
    keys = [here] * 500 + [there] * 500
    with (
        StreamPublisher(vhost.stream_url, super_stream="again", name="load") as publisher,
        pytest.raises(PublishError, match="'again-0' has id 900 of 'load' with the body"),
    ):
        publisher.publish_many(keys, ["second"] * 1_000, ids=range(401, 1_401))
    assert b"second" not in stored(vhost, names[0])["value"]
    with StreamPublisher(vhost.stream_url, super_stream="again", name="load") as publisher:
        report = publisher.publish_many([here] * 500, ["first"] * 500, ids=range(401, 901))
    assert (report.known, report.confirmed) == (500, 500)


def test_streams_behind_a_hash_exchange_get_what_the_exchange_would_give_them(vhost: RunningBroker) -> None:
    streams = ["s.1", "s.2", "s.3"]
    keys, bodies, _ = texts(rows=2_000)
    with pika.BlockingConnection(pika_parameters(vhost.url)) as amqp:
        channel = amqp.channel()
        channel.exchange_declare("orders", CHX, durable=True)
        for stream in streams:
            channel.queue_declare(stream, durable=True, arguments={"x-queue-type": "stream"})
            channel.queue_bind(stream, "orders", "2")
        with Broker(vhost.url, ring_source=vhost.ring_via) as live:
            ring = live.ring("orders")
        with StreamPublisher(vhost.stream_url, ring=ring, exchange="orders") as publisher:
            publisher.publish_many(keys, bodies)
        ours = {stream: stored(vhost, stream) for stream in streams}
        channel.confirm_delivery()
        for key, body in zip(keys, bodies, strict=True):
            channel.basic_publish("orders", key, body.encode())
    for stream in streams:
        both = stored(vhost, stream)
        assert both["key"] == ours[stream]["key"] * 2
        assert both["value"] == ours[stream]["value"] * 2
        assert set(both["exchange"]) == {"orders"}


def test_a_queue_that_is_not_a_stream_is_refused(vhost: RunningBroker) -> None:
    with pika.BlockingConnection(pika_parameters(vhost.url)) as amqp:
        channel = amqp.channel()
        channel.queue_declare("q", durable=True)
        channel.exchange_declare("orders", CHX, durable=True)
        channel.queue_bind("q", "orders", "1")
        with Broker(vhost.url, ring_source=vhost.ring_via) as live:
            ring = live.ring("orders")
    with pytest.raises(InputError, match=r"'q'.*must be a stream"):
        StreamPublisher(vhost.stream_url, ring=ring, exchange="orders")
    with pytest.raises(NotFoundError, match="'q'"):
        StreamPublisher(vhost.stream_url, stream="q")


def test_a_stream_that_is_deleted_meanwhile(vhost: RunningBroker, connection: StreamConnection) -> None:
    with StreamPublisher(vhost.stream_url, stream="s", name="load") as publisher:
        publisher.publish_many(["k"], ["b"], ids=[1])
        connection.delete_stream("s")
        with pytest.raises(PublishError, match="does not exist"):
            publisher.publish_many(["k"], ["b"], ids=[2])


def test_names_are_counted(
    vhost: RunningBroker,
    broker: RunningBroker,
    connection: StreamConnection,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if vhost.management_url is None or not release_is_in(vhost.version, ">=3.13"):
        pytest.skip("it asks the management API, from 3.13 on")
    if not broker.owned:
        skip_unless_ci("it enables a plugin, so it needs a broker that the tests started")
    broker.run("rabbitmq-plugins", "enable", "rabbitmq_stream_management")
    counted: dict[str, Any] = {"stream": "s", "management_url": vhost.management_url}

    def names(numbers: range) -> None:
        row = encode_rows(["k"], ["b"])
        for number in numbers:
            connection.declare_publisher(number, "s", f"name {number}")
            for each in row.frames(number, np.array([1], np.uint64), 0, 1, 1 << 20):
                connection.send(each)
        until, confirmed = time.monotonic() + 30, 0
        while confirmed < len(numbers):
            assert time.monotonic() < until
            confirmed += sum(isinstance(event, Confirms) for event in connection.events(1))

    names(range(198))
    StreamPublisher(vhost.stream_url, name="one more", **counted).close()
    assert "remembers" not in caplog.text
    names(range(198, 250))
    StreamPublisher(vhost.stream_url, name="name 7", **counted).close()
    assert "remembers 250 publishers with 'name 7', of at most 255" in caplog.text
    with pytest.raises(InputError, match="remembers 251 publishers with 'one more'"):
        StreamPublisher(vhost.stream_url, name="one more", **counted)
    StreamPublisher(vhost.stream_url, **counted).close()  # without a name it takes none


@pytest.mark.parametrize("calls", [1, 2, 4])
def test_rows_that_the_broker_claims_falsely_over_several_calls_are_stored(
    vhost: RunningBroker, connection: StreamConnection, calls: int
) -> None:
    with StreamPublisher(vhost.stream_url, stream="s", name="load") as publisher:
        keys, bodies, ids = texts(rows=1_000)
        publisher.publish_many(keys, bodies, ids=ids)
    claim(connection, 2_000)
    repaired, rows = 0, 4_000 // calls
    with StreamPublisher(vhost.stream_url, stream="s", name="load") as publisher:
        for call in range(calls):
            keys, bodies, ids = texts(1 + call * rows, rows)
            repaired += publisher.publish_many(keys, bodies, ids=ids).repaired
    found = stored(vhost)["message_id"]
    assert [each for each in found if each] == [f"load:{n}" for n in range(1, 4_001)]
    assert repaired == 1_000


# -- rows that an AMQP client has copied into the stream, with their message ids


@pytest.mark.restarts
@pytest.mark.chx_broker(restartable=True)
@pytest.mark.usefixtures("connection")
def test_a_publisher_that_opens_during_a_disk_alarm_waits(vhost: RunningBroker) -> None:
    def publish(timeout_s: float) -> None:
        with StreamPublisher(
            vhost.stream_url, stream="s", name="load", limits=WriteLimits(reconnect_timeout_s=timeout_s)
        ) as publisher:
            publisher.publish_many(*texts(rows=100)[:2], ids=texts(rows=100)[2])

    with disk_alarm(vhost):
        time.sleep(2)
        with pytest.raises(PublishError, match=r"disk or memory alarm.*gave up after"):
            publish(1.0)
        waiting = threading.Thread(target=publish, args=(60.0,))
        waiting.start()
        waiting.join(5)
        assert waiting.is_alive()
    waiting.join(60)
    assert not waiting.is_alive()
    check_once(vhost, 100)
