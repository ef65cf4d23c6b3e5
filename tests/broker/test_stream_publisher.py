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
from copied_rows import copy_rows
from exchange_types import CHX
from tcp_proxy import Proxy

from rabbit_chx.broker import Broker, pika_parameters
from rabbit_chx.errors import InputError, MismatchError, NotFoundError, PublishError, UnreachableError
from rabbit_chx.routing import SuperStream
from rabbit_chx.streams.connection import StreamConnection, stream_settings
from rabbit_chx.streams.frames import Confirms, Key, frame
from rabbit_chx.streams.publisher import StreamPublisher
from rabbit_chx.streams.reader import StreamReader
from rabbit_chx.streams.rows import encode_rows
from rabbit_chx.testing import RunningBroker, skip_unless_ci
from rabbit_chx.testing.broker_search import release_is_in

pytestmark = pytest.mark.broker

ROWS = 100_000
COORDINATOR_S = 8
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
    until = time.monotonic() + 30
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
def test_the_rest_of_a_run_is_stored_by_the_next(vhost: RunningBroker) -> None:
    for rows in (1_000, 3_000):
        with StreamPublisher(vhost.stream_url, stream="s", name="load") as publisher:
            keys, bodies, ids = texts(rows=rows)
            report = publisher.publish_many(keys, bodies, ids=ids)
    assert (report.known, report.confirmed) == (1_000, 3_000)
    check_once(vhost, 3_000)


@pytest.mark.usefixtures("connection")
def test_other_rows_under_the_ids_of_stored_rows_are_an_error(vhost: RunningBroker) -> None:
    with StreamPublisher(vhost.stream_url, stream="s", name="load") as publisher:
        publisher.publish_many(["k"] * 10, ["b"] * 10, ids=range(1, 11))
    with (
        StreamPublisher(vhost.stream_url, stream="s", name="load") as publisher,
        pytest.raises(PublishError, match="not those of the earlier run") as raised,
    ):
        publisher.publish_many(["k"] * 20, ["c"] * 20, ids=range(1, 21))
    assert isinstance(raised.value.__cause__, MismatchError)
    assert len(stored(vhost)["key"]) == 10


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


@pytest.mark.usefixtures("connection")
def test_where_a_url_leads_nowhere_the_next_is_tried(vhost: RunningBroker, proxy: Proxy) -> None:
    nobody = vhost.stream_url.replace(f":{vhost.stream_port}/", ":1/")
    urls = [nobody, through(vhost.stream_url, proxy), vhost.stream_url]
    with StreamPublisher(urls, stream="s", name="load") as publisher:
        assert publisher.publish_many(["k1"], ["body 1"], ids=[1]).reconnects == 0
        proxy.close()
        assert publisher.publish_many(["k2"], ["body 2"], ids=[2]).reconnects == 1
    check_once(vhost, 2)
    with pytest.raises(UnreachableError):
        StreamPublisher([nobody, nobody], stream="s")


@pytest.mark.restarts
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("segment_bytes", "kills"), [("500000000", 1), ("600", 4)])
def test_a_broker_that_is_killed(
    vhost: RunningBroker, broker: RunningBroker, connection: StreamConnection, segment_bytes: str, kills: int
) -> None:
    """Tiny segments roll over with each batch, so that about one kill in eight meets the broker's flaw."""
    if not broker.owned:
        skip_unless_ci("it kills the broker, so it needs one that the tests started")
    connection.create_stream("t", {"stream-max-segment-size-bytes": segment_bytes})
    rows, resent, reconnects = 0, 0, 0
    with StreamPublisher(vhost.stream_url, stream="t", name="load") as publisher:
        ended, killed = threading.Event(), threading.Event()

        def kill() -> None:
            # The streams of a broker that dies in the first seconds of its first stream never come back ("Error locating
            # stream members: noproc"; 4.3.6).
            ended.wait(COORDINATOR_S)
            for _ in range(kills):
                seen = publisher._writers[0]._connection_count
                while publisher._writers[0].counts.confirmed < 20_000 and not ended.wait(0.0005):
                    pass
                broker.kill()
                broker.start()
                while publisher._writers[0]._connection_count == seen and not ended.wait(0.01):
                    pass
            killed.set()

        killer = threading.Thread(target=kill)
        killer.start()
        try:
            while not killed.is_set():
                keys, bodies, ids = texts(rows + 1)
                report = publisher.publish_many(keys, bodies, ids=ids)
                assert report.confirmed == ROWS
                rows += ROWS
                resent += report.resent
                reconnects += report.reconnects
        finally:
            ended.set()
            killer.join()
    assert (reconnects, resent > 0) == (kills, True)
    check_once(vhost, rows, stream="t")


def test_a_run_with_another_last_row_is_refused_also_where_a_later_call_gives_it(
    vhost: RunningBroker, connection: StreamConnection
) -> None:
    assert connection.server_version
    for last in ("b-2000", "another"):
        with StreamPublisher(vhost.stream_url, stream="s", name="load") as publisher:
            keys, bodies = ["k"] * 1_000, [f"b-{n}" for n in range(1, 1_001)]
            publisher.publish_many(keys, bodies, ids=range(1, 1_001))
            bodies = [*(f"b-{n}" for n in range(1_001, 2_000)), last]
            if last == "another":
                with pytest.raises(PublishError, match="the rows are not those of the earlier run"):
                    publisher.publish_many(keys, bodies, ids=range(1_001, 2_001))
            else:
                publisher.publish_many(keys, bodies, ids=range(1_001, 2_001))


def test_super_streams_are_placed_as_the_official_clients_do(vhost: RunningBroker) -> None:
    if not release_is_in(vhost.version, ">=3.13"):
        pytest.skip("before 3.13 no stream client makes super streams")
    names = [f"invoices-0{n}" for n in (1, 2, 3)]
    with closing(StreamConnection(stream_settings(vhost.stream_url))) as connection:
        connection.create_super_stream("invoices", names, ["0", "1", "2"])
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


def test_a_queue_that_is_no_stream_is_refused(vhost: RunningBroker) -> None:
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


def test_a_stream_that_is_made_again_meanwhile_is_an_error(
    vhost: RunningBroker, connection: StreamConnection
) -> None:
    with StreamPublisher(vhost.stream_url, stream="s", name="load") as publisher:
        keys, bodies, ids = texts(rows=1_000)
        publisher.publish_many(keys, bodies, ids=ids)
        connection.delete_stream("s")
        connection.create_stream("s")
        with pytest.raises(PublishError, match=r"has confirmed id 1000, and now its last id of 'load' is 0"):
            publisher.publish_many(["k"] * ROWS, ["b"] * ROWS, ids=range(1_001, 1_001 + ROWS))
    assert not stored(vhost)["key"]


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


def test_rows_of_another_client_under_the_name_stay_as_they_are(
    vhost: RunningBroker, connection: StreamConnection
) -> None:
    """They have no message id, so they prove nothing: the broker's word is not believed, and the rows are stored."""
    claim(connection, 3)
    with StreamPublisher(vhost.stream_url, stream="s", name="load") as publisher:
        keys, bodies, ids = texts(rows=5)
        report = publisher.publish_many(keys, bodies, ids=ids)
    assert report.repaired == 3
    assert stored(vhost)["message_id"] == [None, *(f"load:{n}" for n in range(1, 6))]


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


def test_rows_that_retention_has_removed_are_not_stored_again(
    vhost: RunningBroker, connection: StreamConnection
) -> None:
    limits = {"max-length-bytes": "200000", "stream-max-segment-size-bytes": "50000"}
    connection.create_stream("t", limits)
    for _ in range(2):
        with StreamPublisher(vhost.stream_url, stream="t", name="load") as publisher:
            keys, bodies, ids = texts(rows=100)
            report = publisher.publish_many(keys, bodies, ids=ids)
        with StreamPublisher(vhost.stream_url, stream="t") as others:
            for _ in range(60):
                others.publish_many(["k"] * 100, ["b" * 100] * 100)
        assert "load:100" not in stored(vhost, "t")["message_id"]
    assert (report.known, report.repaired) == (100, 0)


# -- rows that an AMQP client has copied into the stream, with their message ids


def first_copies(found: dict[str, list[Any]]) -> list[tuple[str, bytes, bytes]]:
    """The id, key and body of each row that is the first with its id."""
    rows = zip(found["message_id"], found["key"], found["value"], strict=True)
    seen: dict[str, tuple[str, bytes, bytes]] = {}
    for row in rows:
        seen.setdefault(row[0], row)
    return list(seen.values())


def originals(rows: int) -> list[tuple[str, bytes, bytes]]:
    keys, bodies, ids = texts(rows=rows)
    return [
        (f"load:{n}", key.encode(), body.encode()) for n, key, body in zip(ids, keys, bodies, strict=True)
    ]


@pytest.mark.usefixtures("connection")
@pytest.mark.parametrize("copied", [1, 200, 300])
@pytest.mark.parametrize("other", [{}, {"key": "another"}, {"body": b"another"}], ids=["same", "key", "body"])
def test_rows_that_were_copied_are_stored_once(
    vhost: RunningBroker, copied: int, other: dict[str, Any]
) -> None:
    known = copies = 0
    for rows in (300, 600, 600):
        with StreamPublisher(vhost.stream_url, stream="s", name="load") as publisher:
            for first in range(1, rows + 1, 300):  # copies are then between two calls, too
                keys, bodies, ids = texts(first, 300)
                report = publisher.publish_many(keys, bodies, ids=ids)
                assert (report.known, report.repaired) == (300 if first <= known else 0, 0)
                if first == 1:
                    copy_rows(vhost.url, "s", copied, **other)
                    copies += copied
        known = rows
    found = stored(vhost)
    assert first_copies(found) == originals(600)
    assert len(found["message_id"]) == 600 + copies


def test_copies_in_a_stream_whose_begin_is_removed(
    vhost: RunningBroker, connection: StreamConnection
) -> None:
    limits = {"max-length-bytes": "100000", "stream-max-segment-size-bytes": "20000"}
    connection.create_stream("t", limits)
    for is_known in (False, True):
        with StreamPublisher(vhost.stream_url, stream="t", name="load") as publisher:
            keys, bodies, ids = texts(rows=5_000)
            for first in range(0, 5_000, 250):
                some = slice(first, first + 250)
                report = publisher.publish_many(keys[some], bodies[some], ids=ids[some])
                assert (report.known, report.repaired) == (250 if is_known else 0, 0)
        if not is_known:
            before = stored(vhost, "t")["message_id"]
            assert 0 < len(before) < 4_000
            copy_rows(vhost.url, "t", 10, offset=5_000 - len(before) + 100)
    after = stored(vhost, "t")["message_id"]
    assert after[-10:] == [f"load:{n}" for n in range(int(after[-10][5:]), int(after[-10][5:]) + 10)]
    assert after[-11] == "load:5000"


def test_rows_that_the_broker_claims_falsely_are_stored_also_where_others_were_copied(
    vhost: RunningBroker, connection: StreamConnection
) -> None:
    with StreamPublisher(vhost.stream_url, stream="s", name="load") as publisher:
        keys, bodies, ids = texts(rows=1_000)
        publisher.publish_many(keys, bodies, ids=ids)
    claim(connection, 1_500)
    copy_rows(vhost.url, "s", 100)
    for known, repaired in ((1_000, 500), (1_500, 0)):
        with StreamPublisher(vhost.stream_url, stream="s", name="load") as publisher:
            keys, bodies, ids = texts(rows=2_000)
            report = publisher.publish_many(keys, bodies, ids=ids)
        assert (report.known, report.repaired) == (known if repaired else 2_000, repaired)
    found = stored(vhost)
    named = {
        column: [one for one, id_ in zip(values, found["message_id"], strict=True) if id_]
        for column, values in found.items()
    }
    assert first_copies(named) == originals(2_000)
    assert len(named["message_id"]) == 2_100
