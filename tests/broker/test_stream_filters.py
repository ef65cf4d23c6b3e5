"""Filters and sub-entries on a real broker: what is read back, by us and by rstream."""

from __future__ import annotations

import asyncio
from typing import Any, get_args
from urllib.parse import unquote, urlsplit

import pytest
import rstream
from pika import BasicProperties
from pika.adapters.blocking_connection import BlockingChannel

from rabbit_chx import StreamPublisher, StreamReader
from rabbit_chx.errors import InputError, RowError
from rabbit_chx.streams.chunks import Codec
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.testing import RunningBroker

pytestmark = pytest.mark.broker

FILTERS = pytest.mark.chx_broker(">=3.13", "stream filters")
GROUPS, EACH = 40, 2_500
KEYS = [f"k{n // EACH}" for n in range(GROUPS * EACH)]
BODIES = [f"body {n}" for n in range(len(KEYS))]


def texts(batches: Any) -> list[str]:
    return [value.decode() for batch in batches for value in batch["value"].to_pylist()]


def values(vhost: RunningBroker, stream: str = "s", **how: Any) -> list[str]:
    with StreamReader(vhost.stream_url, stream, **how) as reader:
        return texts(reader)


def bodies_of(*keys: str) -> list[str]:
    return [body for key, body in zip(KEYS, BODIES, strict=True) if key in keys]


@pytest.fixture
def filtering(connection: StreamConnection, vhost: RunningBroker) -> RunningBroker:
    """A vhost with a stream of rows with filter values."""
    assert not connection.no_filters
    with StreamPublisher(vhost.stream_url, stream="s", name="load", filter_value="key") as publisher:
        assert publisher.publish_many(KEYS, BODIES, ids=range(1, len(KEYS) + 1)).complete
    return vhost


@FILTERS
def test_a_part_of_the_rows_is_read_by_a_part_of_the_chunks(filtering: RunningBroker) -> None:
    with StreamPublisher(filtering.stream_url, stream="s", name="load", filter_value="key") as publisher:
        report = publisher.publish_many(KEYS, BODIES, ids=range(1, len(KEYS) + 1))
    assert (report.known, report.repaired) == (len(KEYS), 0), "ids with filter values store each row once"
    for keys in (["k0"], ["k17"], [f"k{GROUPS - 1}"], ["k3", "k30"], ["none"]):
        with StreamReader(filtering.stream_url, "s", filters=keys) as reader:
            found = texts(reader)
            assert found == bodies_of(*keys)
            # The broker decides where chunks end, and a Bloom filter has false positives: seven of 25 chunks have been seen.
            assert reader.rows_returned == len(found) <= reader.rows_read < len(KEYS) / 2
            assert reader.next_offset == reader.end_offset
    assert values(filtering) == BODIES


@FILTERS
def test_rows_without_a_filter_value_are_read_only_on_demand(
    filtering: RunningBroker, bare_channel: BlockingChannel
) -> None:
    with StreamPublisher(filtering.stream_url, stream="s") as publisher:
        publisher.publish_many(["x"] * 10, ["later"] * 10)
        publisher.publish_many(["x"] * 2, ["k5 too", "none"], filter_values=["k5", ""])
    bare_channel.confirm_delivery()  # each row is confirmed before the next one, so each has its own chunk
    for value in ("k5", "us", None):
        properties = BasicProperties(headers={} if value is None else {"x-stream-filter-value": value})
        bare_channel.basic_publish("", "s", f"by AMQP {value}".encode(), properties)
    assert values(filtering, filters=["k5"]) == [*bodies_of("k5"), "k5 too", "by AMQP k5"]
    assert values(filtering, filters=["k5"], match_unfiltered=True) == [
        *bodies_of("k5"), *["later"] * 10, "k5 too", "none", "by AMQP k5", "by AMQP None",
    ]  # fmt: skip


# -- sub-entries


@pytest.mark.usefixtures("connection")
@pytest.mark.parametrize("codec", get_args(Codec))
def test_sub_entries_of_any_codec_are_stored_once(vhost: RunningBroker, codec: Codec) -> None:
    """A broker packs and unpacks nothing, so that each release takes all codecs."""
    for known in (0, 1_000):
        with StreamPublisher(
            vhost.stream_url, stream="s", name="load", sub_entry_rows=100, compression=codec
        ) as publisher:
            report = publisher.publish_many(KEYS[:1_000], BODIES[:1_000], ids=range(1, 1_001))
        assert (report.confirmed, report.known, report.repaired) == (1_000, known, 0)
    assert values(vhost) == BODIES[:1_000]


@pytest.mark.usefixtures("connection")
def test_what_cannot_be_in_a_sub_entry_or_would_be_dropped_is_refused_before_a_row_is_sent(
    vhost: RunningBroker,
) -> None:
    bodies = ["a", "b" * 600_000, "c"]  # the second row has a sub-entry of its own
    with StreamPublisher(vhost.stream_url, stream="s", name="load", sub_entry_rows=100) as publisher:
        assert publisher.publish_many(["k"] * 3, bodies, ids=[1, 2, 3]).complete
        with pytest.raises(
            RowError, match=r"row 1 has 1100001 bytes .* fit into a frame of this broker, which has 1048576"
        ):
            publisher.publish_many(["k"] * 2, ["d", "e" * 1_100_000], ids=[4, 5])
        for ids, words in (
            ([4, 4], "row 1 has id 4, and the row before it 4: ids rise"),
            ([3, 4], "the rows begin at id 3, and id 3 is published"),
        ):
            with pytest.raises(InputError, match=words):
                publisher.publish_many(["k"] * 2, ["d", "e"], ids=ids)
    assert values(vhost) == bodies


@pytest.mark.usefixtures("connection")
@pytest.mark.parametrize("codec", ["none", "gzip"])
@pytest.mark.parametrize("name", [None, "load"])
def test_sub_entries_are_read_by_rstream(vhost: RunningBroker, codec: Codec, name: str | None) -> None:
    """With a name and ids they are published twice, and stored once."""
    ids = None if name is None else range(1, 1_001)
    for known in (0,) if name is None else (0, 1_000):
        with StreamPublisher(
            vhost.stream_url, stream="s", name=name, sub_entry_rows=100, compression=codec
        ) as publisher:
            report = publisher.publish_many(KEYS[:1_000], BODIES[:1_000], ids=ids)
        assert (report.confirmed, report.known) == (1_000, known)
    found: list[str] = []

    async def consume() -> None:
        url = urlsplit(vhost.stream_url)
        consumer = rstream.Consumer(
            host=url.hostname or "", port=url.port or 5552, vhost=unquote(url.path[1:]),
            username=unquote(url.username or ""), password=unquote(url.password or ""),
            load_balancer_mode=True,
        )  # fmt: skip

        async def take(message: Any, _context: Any) -> None:
            found.append(bytes(message.body).decode())
            if len(found) == 1_000:
                consumer.stop()

        await consumer.start()
        first = rstream.ConsumerOffsetSpecification(rstream.OffsetType.FIRST, None)
        await consumer.subscribe("s", take, decoder=rstream.amqp_decoder, offset_specification=first)
        await consumer.run()
        await consumer.close()

    asyncio.run(asyncio.wait_for(consume(), 60))
    assert found == BODIES[:1_000]
