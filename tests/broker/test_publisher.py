"""The publisher against a real broker: rows, counts, refusals."""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from exchange_types import CHX
from pika.adapters.blocking_connection import BlockingChannel
from publishing_support import Consumed

from rabbit_chx.errors import NotFoundError, PublishError, RowError
from rabbit_chx.publishing import Publisher

pytestmark = pytest.mark.broker


def test_every_row_arrives_as_it_was_given(consumed: Consumed, vhost_url: str) -> None:
    rows = [(f"key-{i}", f"body {i} é".encode() * (i % 7)) for i in range(3_000)]
    with Publisher(vhost_url, "x", content_type="text/plain") as publisher:
        report = publisher.publish_many([key for key, _ in rows], [body for _, body in rows])
    assert report.complete
    assert (report.rows, report.confirmed) == (3_000, 3_000)
    found = consumed()
    assert sorted((m.key, m.body) for m in found) == sorted(rows)
    assert {(m.properties.delivery_mode, m.properties.content_type) for m in found} == {(2, "text/plain")}


@pytest.mark.parametrize(
    "form",
    [
        list,
        tuple,
        deque,
        iter,
        pd.Series,
        pa.array,
        lambda values: pa.chunked_array([values[:7], values[7:]]),
    ],
    ids=["list", "tuple", "deque", "iterator", "pandas", "Arrow array", "Arrow chunks"],
)
def test_any_form_of_rows(consumed: Consumed, vhost_url: str, form: Callable[[list[str]], Any]) -> None:
    keys, bodies = [f"k{i}" for i in range(1_203)], [f"b{i}" for i in range(1_203)]
    with Publisher(vhost_url, "x", max_in_flight=100, persistent=False) as publisher:
        assert publisher.publish_many(form(keys), form(bodies)).confirmed == 1_203
    found = consumed()
    assert sorted((m.key, m.body.decode()) for m in found) == sorted(zip(keys, bodies, strict=True))
    assert {m.properties.delivery_mode for m in found} == {1}


def test_bodies_of_every_size_in_a_narrow_window(consumed: Consumed, vhost_url: str) -> None:
    sizes = [0, 1, 131_063, 131_064, 131_065, 300_000, 5_000_000, 0, 2]
    bodies = [bytes([i]) * size for i, size in enumerate(sizes)]
    with Publisher(vhost_url, "x", max_in_flight=2, max_in_flight_bytes=200_000) as publisher:
        assert publisher.publish_many([str(i) for i in range(len(sizes))], bodies).complete
    assert sorted(m.body for m in consumed()) == sorted(bodies)


def test_each_flush_reports_its_own_rows(consumed: Consumed, vhost_url: str) -> None:
    with Publisher(vhost_url, "x") as publisher:
        assert publisher.flush().rows == 0
        publisher.send(["a"], ["1"])
        publisher.send(["b"], ["2"])
        assert publisher.flush().confirmed == 2
        assert publisher.publish_many(["c"], ["3"]).confirmed == 1
    assert len(consumed()) == 3


def test_iterators_of_unequal_length(consumed: Consumed, vhost_url: str) -> None:
    with (
        Publisher(vhost_url, "x") as publisher,
        pytest.raises(PublishError, match="more keys than bodies") as caught,
    ):
        publisher.publish_many(iter(["k"] * 3), iter(["b"] * 2))
    assert caught.value.report.confirmed == len(consumed()) == 2


@pytest.mark.parametrize(
    ("keys", "bodies", "message"),
    [
        ("key", "abc", "keys is a single str: give a list of them"),
        (["k"], b"abc", "bodies is a single bytes"),
        (["k"] * 3, [1, 2, 3], "row 0: the body is of type int"),
        (["k"] * 2, np.ones((2, 8), "f4"), "row 0: the body is of type ndarray"),
        (["k", "k"], [b"b", float("nan")], "row 1: the body is of type float"),
    ],
)
def test_what_is_no_column_of_text(
    consumed: Consumed,
    vhost_url: str,
    keys: Any,
    bodies: Any,
    message: str,
) -> None:
    with Publisher(vhost_url, "x") as publisher, pytest.raises(PublishError, match=message):
        publisher.publish_many(keys, bodies)
    assert not consumed()


def test_an_error_does_not_spoil_the_next_batch(
    channel: BlockingChannel, consumed: Consumed, vhost_url: str
) -> None:
    channel.exchange_declare("late", CHX)
    with Publisher(vhost_url, "late") as publisher:
        with pytest.raises(PublishError, match="'old'"):
            publisher.publish_many(["old"] * 3, ["b"] * 3)
        channel.queue_bind("q1", "late", "1")
        with pytest.raises(PublishError, match="row 1: the routing key") as caught:
            publisher.publish_many(["k", None], ["b", "b"])  # type: ignore[list-item]
        assert caught.value.report.rows == 0
        report = publisher.publish_many(["new"] * 5, ["b"] * 5)
        assert (report.rows, report.confirmed, report.returned, report.samples) == (5, 5, 0, ())
        channel.queue_unbind("q1", "late", "1")
        with pytest.raises(PublishError, match="'newest'"):
            publisher.publish_many(["newest"], ["b"])
    assert len(consumed()) == 5


def test_leaving_the_block_waits_for_what_was_sent(channel: BlockingChannel, vhost_url: str) -> None:
    channel.exchange_declare("unbound", CHX)
    with (
        pytest.raises(PublishError, match="no queue took 1,000"),
        Publisher(vhost_url, "unbound") as publisher,
    ):
        publisher.send(["k"] * 1_000, ["b"] * 1_000)


def test_a_closed_publisher(vhost_url: str) -> None:
    with Publisher(vhost_url, "x") as publisher:
        pass
    with pytest.raises(PublishError, match="the connection is closed: open a new one"):
        publisher.publish_many(["k"], ["b"])


def test_time_is_counted_from_the_first_row(consumed: Consumed, vhost_url: str) -> None:
    with Publisher(vhost_url, "x") as publisher:
        time.sleep(0.5)
        started = time.monotonic()
        counted = publisher.publish_many(["k"], ["b"]).seconds
        assert counted < time.monotonic() - started + 0.25  # however long that takes on a busy machine
    assert len(consumed()) == 1


def test_a_slow_iterator_does_not_hold_back_what_it_gave(consumed: Consumed, vhost_url: str) -> None:
    def bodies() -> Iterator[str]:
        yield "first"
        time.sleep(0.5)
        yield "second"
        yield "third"
        assert publisher.report.rows >= 2

    with Publisher(vhost_url, "x") as publisher:
        publisher.publish_many(itertools.repeat("k", 3), bodies())
    assert len(consumed()) == 3


def test_large_bodies_of_an_iterator_are_not_gathered(consumed: Consumed, vhost_url: str) -> None:
    given = 0

    def bodies() -> Iterator[bytes]:
        nonlocal given
        for _ in range(60):
            given += 1
            assert given - publisher.report.rows <= 2, "bodies are gathered before they are sent"
            yield b"b" * (1 << 20)

    with Publisher(vhost_url, "x", max_in_flight_bytes=4 << 20) as publisher:
        report = publisher.publish_many(itertools.repeat("k", 60), bodies())
    assert report.confirmed == len(consumed()) == 60


def test_an_unbound_exchange_loses_nothing_in_silence(channel: BlockingChannel, vhost_url: str) -> None:
    channel.exchange_declare("unbound", CHX)
    with Publisher(vhost_url, "unbound") as publisher:
        with pytest.raises(
            PublishError, match=r"'unbound': no queue took 700 .*NO_ROUTE.*'k0'.*bind"
        ) as caught:
            publisher.publish_many([f"k{i}" for i in range(700)], [b"b" * 200_000] + [b"b"] * 699)
        report = caught.value.report
        assert (report.rows, report.confirmed, report.returned, report.unknown) == (700, 0, 700, 0)
    with Publisher(vhost_url, "unbound", on_unroutable="report") as publisher:
        assert publisher.publish_many(["k"], ["b"]).returned == 1


def test_refused_messages_are_counted(channel: BlockingChannel, vhost_url: str) -> None:
    full = {"x-max-length": 10, "x-overflow": "reject-publish"}
    channel.exchange_declare("narrow", CHX)
    channel.queue_declare("full", arguments=full)
    channel.queue_bind("full", "narrow", "1")
    refused = pytest.raises(PublishError, match=r"refused messages \(basic.nack\): a queue is full")
    with Publisher(vhost_url, "narrow", backoff_s=0.1) as publisher, refused as caught:
        publisher.publish_many(["k"] * 2_000, ["b"] * 2_000)
    report = caught.value.report
    assert report.confirmed == channel.queue_declare("full", passive=True).method.message_count
    assert report.confirmed + report.nacked == report.rows < 2_000, "it stops where nothing is taken any more"
    assert report.nacked > 0


def test_an_unknown_exchange(vhost_url: str) -> None:
    with (
        Publisher(vhost_url, "nope") as publisher,
        pytest.raises(PublishError, match="no exchange 'nope'") as caught,
    ):
        publisher.publish_many(["k"] * 5_000, ["b"] * 5_000)
    assert isinstance(caught.value.__cause__, NotFoundError)
    assert caught.value.report.confirmed == 0


def test_a_bad_row_in_the_middle(consumed: Consumed, vhost_url: str) -> None:
    keys = ["k"] * 1_200 + ["x" * 256] + ["k"] * 10
    with (
        Publisher(vhost_url, "x") as publisher,
        pytest.raises(PublishError, match="row 1200: the routing key") as caught,
    ):
        publisher.publish_many(keys, ["b"] * len(keys))
    assert isinstance(caught.value.__cause__, RowError)
    assert caught.value.report.confirmed == len(consumed()) > 0


def test_more_keys_than_bodies(consumed: Consumed, vhost_url: str) -> None:
    with (
        Publisher(vhost_url, "x") as publisher,
        pytest.raises(PublishError, match="3 keys and 2 bodies: give one body for each key"),
    ):
        publisher.publish_many(["k"] * 3, ["b"] * 2)
    assert not consumed()
