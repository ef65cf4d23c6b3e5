"""A stream forgets a name: more than 255 wrote to it, and it begins a new segment."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing

import numpy as np
import pika
import pytest
from bounded import until
from delivery_checker import Judge
from exchange_types import FANOUT
from fire_streams import StreamRun, bodies_of, make_stream
from publishing_support import through
from tcp_proxy import Proxy

from rabbit_chx import Publisher
from rabbit_chx.broker import pika_parameters
from rabbit_chx.errors import InputError, MismatchError, PublishError
from rabbit_chx.streams import StreamPublisher, WriteLimits
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.frames import Confirms
from rabbit_chx.streams.nodes import stream_settings
from rabbit_chx.streams.rows import encode_rows
from rabbit_chx.testing import RunningBroker
from rabbit_chx.testing.containers import release_is_in

pytestmark = [
    pytest.mark.broker,
    pytest.mark.restarts,
    pytest.mark.own_broker,
    pytest.mark.timeout(300),
]

PROMISE = (
    "At least once: the stream has forgotten the name, and stores its rows again. Rows that were sent again meanwhile, and not stored, did "
    "not refresh it. An open publisher tells it when it connects again. With management_url, from 3.13 on, a new one is refused before that."
)
ROWS = 5_000
NAMES = 260


def names_write(vhost: RunningBroker) -> None:
    """Write a row under each of many names."""
    row = encode_rows(["k"], bodies_of(0, 1))
    with closing(StreamConnection(stream_settings(vhost.stream_url))) as connection:
        for name in range(NAMES):
            connection.declare_publisher(0, "s", f"name {name}")
            for each in row.frames(0, np.array([1], np.uint64), 0, 1, 1 << 20):
                connection.send(each)
            until(lambda: any(isinstance(event, Confirms) for event in connection.events(1)), "a confirm")
            connection.delete_publisher(0)


def channels_write(vhost: RunningBroker) -> None:
    """Write a row over each of many channels, as the tasks of a Spark write do."""
    with pika.BlockingConnection(pika_parameters(vhost.url)) as amqp:
        channel = amqp.channel()
        channel.exchange_declare("rows", FANOUT, durable=True)
        channel.queue_bind("s", "rows")
    for _ in range(NAMES):
        with Publisher(vhost.url, "rows") as publisher:
            publisher.publish_many(["k"], bodies_of(0, 1))


WRITERS: dict[Callable[[RunningBroker], None], str] = {
    names_write: "names of publishers",
    channels_write: "channels of AMQP publishers",
}


def rows_of_nobody(vhost: RunningBroker) -> Iterator[int]:
    """Let the stream begin a new segment, by rows without a name; yield how many."""
    with StreamPublisher(vhost.stream_url, stream="s") as others:
        for _ in range(3):
            others.publish_many(["k"] * 2_000, bodies_of(0, 1) * 2_000)
            yield 2_000


@pytest.mark.parametrize("write", [names_write, channels_write], ids=["names", "channels"])
def test_a_forgotten_name_stores_rows_again_or_is_an_error(
    write: Callable[[RunningBroker], None],
    vhost: RunningBroker,
    broker: RunningBroker,
    line: Proxy,
    kept: Judge,
) -> None:
    make_stream(vhost, stream_max_segment_size_bytes="200000")
    run = StreamRun()
    with StreamPublisher(through(vhost.stream_url, line.port), stream="s", name="load") as publisher:
        run.give(publisher, ROWS)
        write(vhost)
        with StreamPublisher(vhost.stream_url, stream="s", name="load") as again:
            sent_again = again.publish_many(["k"] * ROWS, bodies_of(1, ROWS), ids=range(1, ROWS + 1))
        assert (sent_again.known, sent_again.confirmed) == (ROWS, ROWS)
        if release_is_in(vhost.version, ">=3.13"):
            refused(vhost, broker)
        others = sum(rows_of_nobody(vhost))
        line.cut()
        time.sleep(0.5)
        with pytest.raises(PublishError, match="has over 255 names") as raised:
            publisher.publish_many(["k"], ["body"], ids=[ROWS + 1])
        assert isinstance(raised.value.__cause__, MismatchError)
    with StreamPublisher(vhost.stream_url, stream="s", name="load") as anew:
        report = anew.publish_many(["k"] * ROWS, bodies_of(1, ROWS), ids=range(1, ROWS + 1))
    assert (report.known, report.confirmed) == (0, ROWS)
    kept(
        run,
        fault=f"{NAMES} further {WRITERS[write]} write to the stream, which then begins a new segment; the rows are published once more",
        promise=PROMISE,
        others=others,
        repeats=ROWS,
    )


def refused(vhost: RunningBroker, broker: RunningBroker) -> None:
    """A further publisher that counts the names is refused."""
    broker.run("rabbitmq-plugins", "enable", "rabbitmq_stream_management")
    with pytest.raises(InputError, match=rf"remembers {NAMES + 2} publishers"):
        StreamPublisher(
            vhost.stream_url,
            stream="s",
            name="one more",
            limits=WriteLimits(management_url=vhost.management_url),
        )
