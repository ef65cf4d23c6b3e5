"""What the tracer writes, read without a broker."""

from __future__ import annotations

from typing import Any

import pika
import pytest

from rabbit_chx.amqp.fields import AmqpField
from rabbit_chx.broker.firehose import Observer, TracedMessage
from rabbit_chx.errors import RingSourceError
from rabbit_chx.routing import Release, seed_of

TRACE: dict[str, Any] = {
    "exchange_name": "x",
    "routing_keys": ["k", "cc"],
    "properties": {"message_id": "m", "timestamp": 7, "headers": {"h": 5, "CC": ["cc"]}},
    "node": "rabbit@n",
    "vhost": "/",
    "connection": "c",
    "channel": 1,
    "user": "guest",
    "routed_queues": ["q1", "q2"],
}


def raw(**changed: Any) -> bytes:
    return b"".join(pika.BasicProperties(headers=TRACE | changed).encode())


def test_all_that_routing_needs_is_read() -> None:
    message = TracedMessage.from_trace(raw())
    assert (message.exchange, message.routing_key) == ("x", b"k")
    assert dict(message.headers)[b"h"] == AmqpField("signedint", 5)
    assert message.properties == {"message_id": b"m", "timestamp": 7}
    assert message.queues == {"q1", "q2"}


def test_a_message_with_nothing() -> None:
    message = TracedMessage.from_trace(raw(properties={}, routing_keys=[""], routed_queues=[]))
    assert (message.routing_key, message.headers, message.properties) == (b"", (), {})
    assert message.queues == frozenset()


@pytest.mark.parametrize(
    "changed",
    [{"routing_keys": []}, {"routing_keys": "k"}, {"properties": None}, {"exchange_name": b"\xff"}],
)
def test_what_the_tracer_would_not_write(changed: dict[str, Any]) -> None:
    with pytest.raises(RingSourceError, match=r"is amq\.rabbitmq\.trace written by others"):
        TracedMessage.from_trace(raw(**changed))


@pytest.mark.parametrize(
    ("arguments", "version", "term"),
    [
        ({}, "4.3.6", b"k"),
        ({"hash-header": "h"}, "4.3.6", 5),
        ({"hash-property": "message_id"}, "3.8.9", b"m"),
        ({"hash-property": "timestamp"}, "3.8.9", b"7"),
    ],
)
def test_the_seed_is_that_of_the_release(arguments: dict[str, str], version: str, term: Any) -> None:
    observation = Observer(Release(version), arguments).observe(TracedMessage.from_trace(raw()))
    assert (observation.key, observation.seed, observation.queues) == (
        "k",
        seed_of(term),
        frozenset({"q1", "q2"}),
    )


def test_a_header_is_hashed_with_its_type_where_the_release_does_so() -> None:
    message = TracedMessage.from_trace(raw())
    old, new = (
        Observer(Release(version), {"hash-header": "h"}).observe(message) for version in ("3.12.14", "4.3.6")
    )
    assert old.seed != new.seed


def test_a_message_that_the_release_cannot_route_has_no_seed() -> None:
    message = TracedMessage.from_trace(raw(properties={}))
    assert Observer(Release("3.13.2"), {"hash-header": "h"}).observe(message).seed is None
