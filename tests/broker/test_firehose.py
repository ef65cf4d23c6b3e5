"""Real traffic, as the firehose tracer shows it."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pika
import pytest
from pika.compat import long
from shop import BUCKETS, Shop, declare, numbered, traffic

from rabbit_chx.analysis.traffic import compare_traffic
from rabbit_chx.broker import Broker, TracedRing
from rabbit_chx.broker.firehose import trace_exchange, tracing
from rabbit_chx.broker.live_exchange import read_exchange, read_reach, read_ring
from rabbit_chx.broker.ring_source import DiagnosticsRing
from rabbit_chx.errors import RingSourceError

pytestmark = pytest.mark.broker


def test_the_traced_ring_is_a_ring_source(shop: Shop) -> None:
    urls = (shop.broker.url, str(shop.broker.management_url))
    source = TracedRing(*urls, messages=500)
    with traffic(shop, numbered(600)), Broker(shop.broker.url, ring_source=source) as broker:
        ring = broker.ring("orders")
    assert (ring.buckets, ring.provenance) == (BUCKETS, "read")
    with (
        traffic(shop, numbered(3)),
        pytest.raises(RingSourceError, match=r"proves \d of 16 buckets"),
    ):
        TracedRing(*urls, seconds=30, messages=3).read(shop.settings.vhost, "orders")


def test_a_tracer_that_was_on_stays_on(shop: Shop) -> None:
    with tracing(shop.management, shop.settings.vhost) as was_on:
        assert not was_on
        with tracing(shop.management, shop.settings.vhost) as was_on_before:
            assert was_on_before
        assert shop.is_traced()
    assert not shop.is_traced()


HEADERS: list[Any] = [
    "a", "naïve", b"\xff\x00", 5, -1, 2**31, long(5), True, False, None, Decimal("3.14"),
    datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC), ["a", 1], [1], {"k": 1, "a": "b"},
]  # fmt: skip


def test_typed_headers_copies_and_unroutable_messages_are_understood(shop: Shop) -> None:
    declare(shop.channel, "typed", {"hash-header": "h", "alternate-exchange": "amq.fanout"})
    live = read_exchange(shop.management, shop.settings.vhost, "typed")
    ring = read_ring(live, DiagnosticsRing(shop.ring_via))
    reach = read_reach(shop.management, live)
    messages = [
        ("k", pika.BasicProperties(headers={"h": value, "CC": ["other"], "BCC": ["more"]}, message_id="m"))
        for value in HEADERS
    ]
    with traffic(shop, messages, "typed"):
        found = trace_exchange(shop.settings, shop.management, live, seconds=30, messages=len(HEADERS))
    assert len(found) == len(HEADERS)
    assert compare_traffic(found, ring, reach) == []
    assert len({message.seed for message in found}) > 10
