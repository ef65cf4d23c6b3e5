"""The publisher against a real broker: rows, counts, refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from exchange_types import CHX
from pika.adapters.blocking_connection import BlockingChannel
from publishing_support import Consumed

from rabbit_chx.errors import NotFoundError, PublishError
from rabbit_chx.publishing import Limits, Publisher

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
    [list, iter, lambda values: pa.chunked_array([values[:7], values[7:]])],
    ids=["list", "iterator", "Arrow chunks"],
)
def test_rows_of_any_form_are_published(
    consumed: Consumed, vhost_url: str, form: Callable[[list[str]], Any]
) -> None:
    keys, bodies = [f"k{i}" for i in range(1_203)], [f"b{i}" for i in range(1_203)]
    with Publisher(vhost_url, "x", limits=Limits(max_in_flight=100), persistent=False) as publisher:
        assert publisher.publish_many(form(keys), form(bodies)).confirmed == 1_203
    found = consumed()
    assert sorted((m.key, m.body.decode()) for m in found) == sorted(zip(keys, bodies, strict=True))
    assert {m.properties.delivery_mode for m in found} == {1}


def test_bodies_of_every_size_pass_a_narrow_window(consumed: Consumed, vhost_url: str) -> None:
    sizes = [0, 1, 131_063, 131_064, 131_065, 300_000, 5_000_000, 0, 2]
    bodies = [bytes([i]) * size for i, size in enumerate(sizes)]
    with Publisher(vhost_url, "x", limits=Limits(max_in_flight=2, max_in_flight_bytes=200_000)) as publisher:
        assert publisher.publish_many([str(i) for i in range(len(sizes))], bodies).complete
    assert sorted(m.body for m in consumed()) == sorted(bodies)


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


def test_an_unknown_exchange_is_an_error_and_nothing_is_confirmed(vhost_url: str) -> None:
    with (
        Publisher(vhost_url, "nope") as publisher,
        pytest.raises(PublishError, match="no exchange 'nope'") as caught,
    ):
        publisher.publish_many(["k"] * 5_000, ["b"] * 5_000)
    assert isinstance(caught.value.__cause__, NotFoundError)
    assert caught.value.report.confirmed == 0
