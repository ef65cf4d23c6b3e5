"""The publisher against a real broker: rows, properties and counts."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from publishing_support import Consumed

from rabbit_chx.publishing import Limits, MessageProperties, Publisher, PublishReport

pytestmark = pytest.mark.broker

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


def test_every_row_arrives_as_it_was_given(consumed: Consumed, vhost_url: str) -> None:
    rows = [(f"key-{i}", f"body {i} é".encode() * (i % 7)) for i in range(3_000)]
    with Publisher(vhost_url, "x", content_type="text/plain") as publisher:
        report = publisher.publish_many([key for key, _ in rows], [body for _, body in rows])
    assert report.complete
    assert (report.rows, report.confirmed) == (3_000, 3_000)
    found = consumed()
    assert sorted((m.key, m.body) for m in found) == sorted(rows)
    given = {(m.properties.delivery_mode, m.properties.content_type, m.properties.headers) for m in found}
    assert given == {(2, "text/plain", None)}  # no header of a trace without a tracer provider


def test_bodies_of_every_size_pass_a_narrow_window(consumed: Consumed, vhost_url: str) -> None:
    sizes = [0, 1, 131_063, 131_064, 131_065, 300_000, 5_000_000, 0, 2]
    bodies = [bytes([i]) * size for i, size in enumerate(sizes)]
    with Publisher(vhost_url, "x", limits=Limits(max_in_flight=2, max_in_flight_bytes=200_000)) as publisher:
        assert publisher.publish_many([str(i) for i in range(len(sizes))], bodies).complete
    assert sorted(m.body for m in consumed()) == sorted(bodies)


def test_every_property_is_read_back_by_pika(consumed: Consumed, vhost_url: str) -> None:
    columns: Any = {
        "message_id": ["m0", "m1", None],
        "correlation_id": ["c0", b"c1", None],
        "content_type": ["text/plain", None, None],
        "content_encoding": ["gzip", "", None],
        "type": ["t0", "t1", None],
        "app_id": [None, "other", None],
        "reply_to": ["r0", "r1", None],
        "expiration": ["60000", "70000", None],
        "priority": [0, 255, None],
        "timestamp": [NOON, 7, None],
        "delivery_mode": [1, 2, None],
        "user_id": ["guest", None, None],
        "headers": [{"tenant": "a", "n": 5}, [("tenant", "b"), ("nested", {"x": [1, None]})], None],
    }
    constants: MessageProperties = {"app_id": "app", "content_type": "application/json"}
    with Publisher(vhost_url, "x", properties=constants) as publisher:
        assert publisher.publish_many(["0", "1", "2"], ["b"] * 3, properties=columns).confirmed == 3
    found = [m.properties for m in sorted(consumed(), key=lambda m: m.key)]
    assert {name: [getattr(each, name) for each in found] for name in columns} == {
        **columns,
        "correlation_id": ["c0", "c1", None],
        "content_type": ["text/plain", "application/json", "application/json"],
        "app_id": ["app", "other", "app"],
        "timestamp": [int(NOON.timestamp()), 7, None],
        "delivery_mode": [1, 2, 2],
        "headers": [{"tenant": "a", "n": 5}, {"tenant": "b", "nested": {"x": [1, None]}}, None],
    }


def test_what_progress_raises_ends_the_call(consumed: Consumed, vhost_url: str) -> None:
    asked_to_stop = True

    def stop(report: PublishReport) -> None:
        if report.confirmed and asked_to_stop:
            raise ZeroDivisionError

    with Publisher(vhost_url, "x", progress=stop) as publisher:
        with pytest.raises(ZeroDivisionError):
            publisher.publish_many(["k"] * 1_000_000, ["b"] * 1_000_000)
        asked_to_stop = False
        report = publisher.flush()
    assert report.confirmed == report.rows == len(consumed()) < 1_000_000
