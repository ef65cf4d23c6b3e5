"""Where micro-batches begin and end, asked of a real broker; Spark itself is left out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from streamed import Streamed
from super_streams import create_super_stream
from tcp_proxy import Proxy

from rabbit_chx.errors import MissingRowsError
from rabbit_chx.streams import ends
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.testing import RunningBroker
from spark_connector.options.read_options import ReadOptions
from spark_connector.reading.micro_batches import MicroBatches, Place

pytestmark = [pytest.mark.broker, pytest.mark.chx_broker(">=3.9", "streams")]

Plan = Callable[..., MicroBatches]


@pytest.fixture
def stream(vhost: RunningBroker) -> Streamed:
    """A stream with ten rows."""
    stream = Streamed(vhost, "s", {})
    stream.publish([str(number) for number in range(10)])
    return stream


@pytest.fixture
def plan(vhost: RunningBroker) -> Iterator[Plan]:
    """Makes what plans a query."""
    made: list[MicroBatches] = []

    def make(**options: str) -> MicroBatches:
        texts = {"url": vhost.stream_url, "stream": "s", "startingOffsets": "earliest", **options}
        made.append(MicroBatches(ReadOptions.parse(texts, streaming=True)))
        return made[-1]

    yield make
    for batches in made:
        batches.close()


def test_an_end_moves_with_rows_and_with_nothing_else(stream: Streamed, plan: Plan) -> None:
    batches = plan()
    begin = batches.begin()
    assert begin == {"s": Place(0, None)}
    first = batches.after(begin, None, None)
    assert first["s"].next == 10
    assert first["s"].before is not None
    assert batches.after(first, None, None) == first
    stream.store_offsets()  # they take offsets, and are no rows
    assert batches.after(first, None, None) == first
    stream.publish_singly(["later"])
    second = batches.after(first, None, None)
    assert second["s"].next > 11
    assert batches.after(second, None, None) == second


def test_where_a_query_begins(stream: Streamed, plan: Plan) -> None:
    latest = plan(startingOffsets="latest").begin()
    assert latest == plan().after({"s": Place(0)}, None, None)
    assert plan(startingOffsets='{"s": 4}').begin()["s"].next == 4
    stream.publish_singly(["a chunk of its own"])
    places = plan(startingOffsets='{"s": 10}').begin()
    assert places == latest  # with the fingerprint of the chunk before it
    with pytest.raises(
        MissingRowsError, match="'startingOffsets' is 999 for stream 's', which ends at offset 11"
    ):
        plan(startingOffsets='{"s": 999}').begin()
    assert plan(startingOffsets='{"s": 999}', failOnDataLoss="false").begin()["s"].next == 11


def test_a_micro_batch_keeps_to_rows_and_bytes(stream: Streamed, plan: Plan) -> None:
    for number in range(5):
        stream.publish_singly([str(number) * 1_000])
    batches = plan()
    places, ends = batches.begin(), []
    while (after := batches.after(places, 4, None)) != places:
        places = after
        ends.append(places["s"].next)
    assert ends == [4, 8, 12, 15]
    assert batches.after({"s": Place(10)}, None, 2_500)["s"].next == 12  # rows of some 1,050 bytes
    assert batches.after({"s": Place(10)}, None, 1)["s"].next == 11


def test_a_held_end_stays(stream: Streamed, plan: Plan) -> None:
    batches = plan()
    batches.hold()
    stream.publish_singly(["later"])
    places = batches.after(batches.begin(), None, None)
    assert places["s"].next == 10
    assert batches.after(places, None, None) == places


def test_a_look_takes_milliseconds_and_no_new_connection(
    stream: Streamed, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = plan()
    places = batches.begin()
    opened: list[object] = []

    def no_more(*_arguments: object) -> StreamConnection:
        opened.append(1)
        raise AssertionError

    monkeypatch.setattr(ends, "StreamConnection", no_more)
    monkeypatch.setattr(ends, "open_any", no_more)
    for number in range(10):
        stream.publish([str(number)])
        places = batches.after(places, None, None)
    looked = time.monotonic()
    for _ in range(100):
        assert batches.after(places, None, None) == places
    assert (opened, places["s"].next) == ([], 20)
    assert time.monotonic() - looked < 10


@pytest.mark.extended
@pytest.mark.parametrize("rows", [0, 3, 10, 30])
def test_a_stream_that_was_made_again(stream: Streamed, plan: Plan, rows: int) -> None:
    batches = plan()
    places = batches.after(batches.begin(), None, None)
    stream.make_again()
    stream.publish_singly(["another"] * rows)
    time.sleep(ends._CACHE_S)  # it may have the same figures
    if rows == 30:  # its reader finds that, by the fingerprint
        assert batches.after(places, None, None)["s"].next == 30
        return
    with pytest.raises(MissingRowsError, match="stream 's' was read up to offset 10, and it") as caught:
        batches.after(places, None, None)
    assert "failOnDataLoss=false" in str(caught.value)
    after = plan(failOnDataLoss="false").after(places, None, None)
    assert after["s"].next == rows
    assert plan(failOnDataLoss="false").after(after, None, None) == after


@pytest.mark.usefixtures("stream")
def test_streams_that_go_and_come(plan: Plan, vhost: RunningBroker) -> None:
    places = {"s": Place(0), "t": Place(5)}
    with pytest.raises(MissingRowsError, match="stream 't' was read up to offset 5, and it is deleted"):
        plan(stream="s,t").after(places, None, None)
    batches = plan(stream="s,t", failOnDataLoss="false")
    places = batches.after(places, None, None)
    assert (places["s"].next, places["t"]) == (10, Place(5))
    other = Streamed(vhost, "t", {})
    other.publish_singly(["1", "2"])  # to both, as both are bound to one exchange
    places = batches.after(places, None, None)
    # It is another one: the reading goes on at its end.
    assert (places["s"].next, places["t"].next) == (12, 2)
    other.publish_singly(["3"])
    assert batches.after(places, None, None)["t"].next == 3


@pytest.mark.chx_broker(">=3.13", "super streams by protocol")
def test_a_super_stream_that_grows(stream: Streamed, plan: Plan) -> None:
    with stream.connection(None) as connection:
        create_super_stream(connection, "orders", ["orders-0"], ["0"])
        connection.create_stream("orders-1", {})
    batches = plan(stream="", superStream="orders")
    places = batches.after(batches.begin(), None, None)
    assert list(places) == ["orders-0"]
    stream.bind("orders-1", "orders", "1", {"x-stream-partition-order": 1})
    assert sorted(batches.after(places, None, None)) == ["orders-0", "orders-1"]


def test_a_lost_connection_is_opened_again(stream: Streamed, plan: Plan) -> None:
    line = Proxy(stream.broker.stream_url)
    try:
        batches = plan(
            url=stream.broker.stream_url.replace(f":{stream.broker.stream_port}/", f":{line.port}/")
        )
        places = batches.begin()
        line.cut()
        assert batches.after(places, None, None)["s"].next == 10
    finally:
        line.close()
