"""Holes at the end of a ring, which old releases leave: what is bound next comes after them."""

from __future__ import annotations

from collections import Counter

import pika
import pytest
from exchange_types import CHX

from rabbit_chx.broker import Broker, DiagnosticsRing, pika_parameters
from rabbit_chx.publishing import Publisher
from rabbit_chx.routing import HashRing
from rabbit_chx.routing.rules import DUPLICATES_APPEND
from rabbit_chx.testing import temporary_vhost
from tests.parity.conftest import Rabbit

pytestmark = pytest.mark.docker

KEYS = [f"k{n}" for n in range(1_000)]


def test_a_bind_to_a_ring_that_was_read_does_what_the_broker_does(rabbit: Rabbit) -> None:
    release = rabbit.release
    source = DiagnosticsRing(rabbit.broker.ring_via or ())
    with (
        temporary_vhost(rabbit.broker) as inside,
        Broker(inside.url, ring_source=source) as live,
        pika.BlockingConnection(pika_parameters(inside.url)) as connection,
    ):
        channel = connection.channel()
        channel.exchange_declare("x", CHX, durable=True)
        for queue in "abc":
            channel.queue_declare(queue, durable=True)
        for queue, key in (("a", "1"), ("b", "1"), ("b", "5")):
            channel.queue_bind(queue, "x", key)
        channel.queue_unbind("b", "x", "1")

        read = live.ring("x")
        replayed = HashRing.from_bindings([("a", 1), ("b", 1), ("b", 5)], release).unbind("b", 1)
        assert read == replayed

        predicted = read.bind("c", 2)
        assert predicted.provenance == "replayed"
        channel.queue_bind("c", "x", "2")
        assert live.ring("x") == predicted

        with Publisher(inside.url, "x", on_unroutable="report") as publisher:
            report = publisher.publish_many(KEYS, [b""] * len(KEYS))
        counts = predicted.counts(KEYS)
        assert report.returned == counts.pop(None, 0)
        found = {queue: channel.queue_declare(queue, passive=True).method.message_count for queue in "abc"}
        assert Counter(found) == Counter(counts)
    rabbit.count(len(KEYS))
    if release.follows(DUPLICATES_APPEND):
        in_part = HashRing.from_buckets(["a"], release).bind("c", 2)
        assert in_part.provenance is None
        rabbit.note(f"a bind after holes at the end: {report.returned} of {len(KEYS):,} messages unroutable")
