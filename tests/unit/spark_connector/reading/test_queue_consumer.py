"""Messages of queues as columns: each type of header as text."""

from __future__ import annotations

import itertools
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pika
import pyarrow as pa
import pytest

from rabbit_chx.amqp import AmqpField
from rabbit_chx.amqp.fields import encode_table
from spark_connector.draining import QueueConsumer, UnsettledMessage, batch_of

EVERYTHING = ("exchange", "message_id", "properties", "headers")


def with_headers(*headers: tuple[bytes, AmqpField]) -> UnsettledMessage:
    return UnsettledMessage(1, False, "", "k", (1 << 13).to_bytes(2) + encode_table(headers), b"v")


@pytest.mark.parametrize(
    ("field", "text"),
    [
        (AmqpField("longstr", b"text"), "text"),
        (AmqpField("longstr", b"\xff\x00"), "ff00"),
        (AmqpField("binary", b"text"), "text"),
        (AmqpField("long", -(2**63)), str(-(2**63))),
        (AmqpField("bool", False), "false"),
        (AmqpField("double", 1.5), "1.5"),
        (AmqpField("decimal", (2, 314)), "3.14"),
        (AmqpField("timestamp", 0), "1970-01-01T00:00:00.000Z"),
        (AmqpField("timestamp", 2**62), str(1000 * 2**62)),
        (AmqpField("void", None), None),
        (AmqpField("array", [AmqpField("void"), AmqpField("decimal", (1, 5))]), '[null, "0.5"]'),
        (AmqpField("table", {"a": AmqpField("binary", b"\xff")}), '{"a": "ff"}'),
    ],
)
def test_a_header_of_any_type_becomes_text(field: AmqpField, text: str | None) -> None:
    batch = batch_of("q", [with_headers((b"h", field))], ["headers"])
    assert batch["headers"].to_pylist() == [[("h", text)]]


def test_of_two_headers_with_one_name_the_last_counts() -> None:
    headers = (b"h", AmqpField("long", 1)), (b"other", AmqpField("void")), (b"h", AmqpField("long", 2))
    batch = batch_of("q", [with_headers(*headers)], ["headers"])
    assert batch["headers"].to_pylist() == [[("h", "2"), ("other", None)]]


def test_properties_are_texts_and_times_are_in_seconds() -> None:
    properties = pika.BasicProperties(priority=5, message_id="m", timestamp=1_700_000_000)
    messages = [
        UnsettledMessage(1, False, "", "k", b"".join(encoded.encode()), b"v")
        for encoded in (properties, pika.BasicProperties())
    ]
    batch = batch_of("q", messages, ["message_id", "properties"])
    texts = [("priority", "5"), ("message_id", "m"), ("timestamp", "2023-11-14T22:13:20.000Z")]
    assert batch["properties"].to_pylist() == [texts, None]
    assert batch["message_id"].to_pylist() == ["m", None]


def test_names_that_are_not_utf_8() -> None:
    names: list[tuple[Any, Any]] = [("é", "ü"), (b"\xff", b"\xff")]
    messages = [UnsettledMessage(1, False, *name, b"\0\0", b"") for name in names]
    batch = batch_of("q", messages, ["exchange"])
    assert batch["key"].to_pylist() == ["ü".encode(), b"\xff"]
    assert batch["exchange"].to_pylist() == ["é", "\ufffd"]


def test_no_messages_are_a_batch_too() -> None:
    batch = batch_of("q", [], EVERYTHING)
    assert batch.num_rows == 0
    assert batch.schema.names == ["key", "value", "queue", "redelivered", *EVERYTHING]
    assert batch.schema.field("headers").type == pa.map_(pa.string(), pa.string())


def consumer_of(channel: Any, connection: Any, held: dict[str, int]) -> QueueConsumer:
    """A consumer without a broker."""
    consumer = object.__new__(QueueConsumer)
    consumer._connection, consumer._channel = connection, channel
    consumer._held, consumer._sizes, consumer._where = held, {}, "here"
    return consumer


@pytest.mark.parametrize("delivered_at", [1, 2])
def test_messages_on_their_way_are_awaited(monkeypatch: pytest.MonkeyPatch, delivered_at: int) -> None:
    """A queue without ready messages may have sent some that have not arrived: it is looked at twice."""
    looks = itertools.count(1)
    channel = Mock(basic_consume=Mock(return_value="c"))

    def process(_seconds: float) -> None:
        if next(looks) == delivered_at:
            names = {"exchange": "", "routing_key": "k", "consumer_tag": "c"}
            method = SimpleNamespace(delivery_tag=1, redelivered=False, **names)
            _, receive = channel.basic_consume.call_args.args
            receive(None, method, SimpleNamespace(raw=b""), b"v")

    scripted: Any = SimpleNamespace(own_errors=nullcontext, process=process)
    monkeypatch.setattr(QueueConsumer, "ready", lambda *_: 0)
    assert [message.body for message in consumer_of(channel, scripted, {}).take("q", 10, 1)] == [b"v"]


def test_each_step_asks_for_what_the_bytes_have_room_for_and_one_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A step of 0 would be a prefetch without a bound, and would never end."""
    steps: list[int] = []

    def consume(_self: object, _queue: str, most: int, _room: int) -> tuple[list[UnsettledMessage], int]:
        assert most > 0
        steps.append(most)
        return [UnsettledMessage(1, False, "", "k", b"", b"." * 10)] * most, most

    monkeypatch.setattr(QueueConsumer, "_consume", consume)
    assert len(consumer_of(None, None, {}).take("q", 100, 45)) == 5
    assert steps == [1, 4]


def test_it_ends_when_fewer_messages_come_than_a_step_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    message = UnsettledMessage(1, False, "", "k", b"", b".")
    steps = iter([([message], 1), ([message], 1)])  # the second one asks for more
    monkeypatch.setattr(QueueConsumer, "_consume", lambda *_: next(steps))
    assert consumer_of(None, None, {}).take("q", 10, 100) == [message, message]


@pytest.mark.parametrize(("last", "requeued"), [(2, [3, 7]), (3, [7]), (5, [7]), (7, [])])
def test_messages_behind_an_acknowledged_one_are_requeued_at_once(last: int, requeued: list[int]) -> None:
    """Else no other consumer gets them until the connection ends. The last messages of two consumers have the tags 3 and 7."""
    calls: list[tuple[str, int]] = []
    channel: Any = SimpleNamespace(
        _closing_reason=None,
        basic_ack=lambda tag, **_: calls.append(("ack", tag)),
        basic_nack=lambda tag, **_: calls.append(("nack", tag)),
        basic_qos=lambda **_: calls.append(("qos", 0)),
    )
    consumer = consumer_of(channel, SimpleNamespace(own_errors=nullcontext), {"c1": 3, "c2": 7})
    consumer.acknowledge(UnsettledMessage(last, False, "", "k", b"", b"v"))
    assert calls == [("ack", last), *(("nack", tag) for tag in requeued), ("qos", 0)]
    assert consumer._held == {}
