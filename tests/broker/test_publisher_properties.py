"""Message properties and exchanges row by row, as pika reads them back."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from exchange_types import CHX
from pika.adapters.blocking_connection import BlockingChannel
from publishing_support import Consumed

from rabbit_chx.errors import InputError, PublishError
from rabbit_chx.publishing import Publisher

pytestmark = pytest.mark.broker

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


def test_every_property_is_read_back_by_pika(consumed: Consumed, vhost_url: str) -> None:
    columns: dict[str, list[Any]] = {
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
    with Publisher(
        vhost_url, "x", content_type="application/json", properties={"app_id": "app"}
    ) as publisher:
        assert publisher.publish_many(["0", "1", "2"], ["b"] * 3, properties=columns).confirmed == 3
    first, second, third = (m.properties for m in sorted(consumed(), key=lambda m: m.key))
    noon = int(NOON.timestamp())
    assert (first.message_id, first.correlation_id, first.content_type) == ("m0", "c0", "text/plain")
    assert (first.content_encoding, first.type, first.app_id, first.reply_to) == ("gzip", "t0", "app", "r0")
    assert (first.expiration, first.priority, first.timestamp, first.delivery_mode) == ("60000", 0, noon, 1)
    assert (first.user_id, first.headers) == ("guest", {"tenant": "a", "n": 5})
    assert (second.correlation_id, second.content_type, second.content_encoding) == (
        "c1",
        "application/json",
        "",
    )
    assert (second.app_id, second.priority, second.timestamp, second.delivery_mode) == ("other", 255, 7, 2)
    assert (second.user_id, second.headers) == (None, {"tenant": "b", "nested": {"x": [1, None]}})
    assert (third.content_type, third.app_id, third.delivery_mode) == ("application/json", "app", 2)
    assert {third.message_id, third.type, third.priority, third.timestamp, third.headers} == {None}


def test_columns_of_arrow_and_of_iterators_become_properties(consumed: Consumed, vhost_url: str) -> None:
    rows = 1_203
    ids = [f"id-{i}" for i in range(rows)]
    keys: Any = pa.array([f"k{i}" for i in range(rows)])
    headers = pa.array([[("n", str(i))] for i in range(rows)], pa.map_(pa.string(), pa.string()))
    times = pa.array([1_700_000_000_000 + i * 1_000 for i in range(rows)], pa.timestamp("ms"))
    with Publisher(vhost_url, "x") as publisher:
        columns: dict[str, Any] = {"message_id": iter(ids), "headers": headers, "timestamp": times}
        assert publisher.publish_many(keys, keys, properties=columns).complete
    found = {m.properties.message_id: m for m in consumed()}
    assert sorted(found) == sorted(ids)
    for i, id_ in enumerate(ids):
        message = found[id_]
        assert (message.key, message.properties.headers) == (f"k{i}", {"n": str(i)})
        assert message.properties.timestamp == 1_700_000_000 + i


def test_each_message_goes_to_its_own_exchange(
    channel: BlockingChannel, consumed: Consumed, vhost_url: str
) -> None:
    channel.exchange_declare("y", CHX)
    channel.queue_declare("only-y")
    channel.queue_bind("only-y", "y", "1")
    with Publisher(vhost_url, "x") as publisher:
        report = publisher.publish_many(["a", "b", "c"], ["1", "2", "3"], exchanges=["y", None, "y"])
    assert report.confirmed == 3
    assert channel.queue_declare("only-y", passive=True).method.message_count == 2
    assert [m.key for m in consumed()] == ["b"]


@pytest.mark.parametrize(
    ("constants", "message"),
    [
        ({"app": "x"}, "there is no message property 'app': did you mean 'app_id'?"),
        ({"app_id": "x" * 256}, "^app_id b'x+'... has 256 bytes: AMQP carries at most 255"),
        ({"priority": -1}, "^priority is -1; pass a whole number from 0 to 255"),
    ],
)
def test_constants_that_cannot_be(constants: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Publisher("amqp://nowhere.invalid", "x", properties=constants)


def test_a_body_that_the_broker_finds_too_large(
    channel: BlockingChannel, consumed: Consumed, vhost_url: str
) -> None:
    """The largest that any release takes by default is 128 MiB; the newer ones take 16 MiB."""
    too_large = pytest.raises(
        PublishError, match=r"message size .*send smaller bodies, or raise max_message_size"
    )
    with Publisher(vhost_url, "x") as publisher, too_large as caught:
        publisher.publish_many(["k"], [b"b" * ((128 << 20) + 1)])
    assert caught.value.report.nacked == 1
    assert not consumed()
    assert channel.is_open
