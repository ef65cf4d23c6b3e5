"""Spans of publishers and groups, with the SDK of OpenTelemetry, against a real broker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind
from pika.adapters.blocking_connection import BlockingChannel
from publishing_support import Consumed

from rabbit_chx import ConsumerGroup, Publisher, SharedPublisher, tracing
from rabbit_chx.consuming import GroupMessage

pytestmark = pytest.mark.broker


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """The spans that ended, with a tracer provider for this test."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing, "_tracer", lambda: provider.get_tracer("rabbit_chx"))
    yield exporter
    provider.shutdown()


def traceparent(span: Any) -> str:
    context = span.context
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def test_each_message_has_the_span_of_its_call(
    spans: InMemorySpanExporter, consumed: Consumed, vhost_url: str
) -> None:
    with Publisher(vhost_url, "x", properties={"headers": {"a": 1}}) as publisher:
        publisher.publish_many(["k1"] * 3, [b"1"] * 3)
        publisher.publish_many(["k2"], [b"2"], properties={"message_id": ["id"]})
        given = [{"b": 2}, None, {}, {"traceparent": "own"}, [("b", 3)]]
        publisher.publish_many(["k3"] * 5, [b"%d" % row for row in range(5)], properties={"headers": given})

    async def publish() -> None:
        async with SharedPublisher(vhost_url, "x") as publisher:
            await publisher.publish_many(["k4"], [b"4"])

    asyncio.run(publish())
    found = {(m.key, m.body): dict(m.properties.headers) for m in consumed()}
    first, second, third, fourth = spans.get_finished_spans()
    assert {span.kind for span in (first, second, third, fourth)} == {SpanKind.PRODUCER}
    assert first.name == "send x"
    assert first.attributes == {
        "messaging.system": "rabbitmq",
        "messaging.destination.name": "x",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
    }
    assert found["k1", b"1"] == {"traceparent": traceparent(first), "a": 1}
    assert found["k2", b"2"] == {"traceparent": traceparent(second), "a": 1}
    own = traceparent(third)
    assert [found["k3", b"%d" % row] for row in range(5)] == [
        {"traceparent": own, "a": 1, "b": 2},
        {"traceparent": own, "a": 1},
        {"traceparent": own, "a": 1},
        {"traceparent": "own", "a": 1},
        {"traceparent": own, "a": 1, "b": 3},
    ]
    assert found["k4", b"4"] == {"traceparent": traceparent(fourth)}


def test_each_handled_message_has_a_span_that_is_linked_to_its_publisher(
    spans: InMemorySpanExporter, channel: BlockingChannel, vhost_url: str
) -> None:
    arguments = {"x-queue-type": "quorum", "x-single-active-consumer": True}
    channel.queue_declare("traced", durable=True, arguments=arguments)
    with Publisher(vhost_url, "") as publisher:
        publisher.publish_many(["traced"] * 2, [b"1", b"2"])
    channel.basic_publish("", "traced", b"3")
    current = list[Any]()

    async def run() -> None:
        async with ConsumerGroup(vhost_url, ["traced"], member="one") as group:

            async def handle(message: GroupMessage) -> None:
                current.append(trace.get_current_span().get_span_context())
                if message.body == b"3":
                    group.stop()

            await asyncio.wait_for(group.run(handle), 60)

    asyncio.run(run())
    sent, *handled = spans.get_finished_spans()
    assert [span.name for span in handled] == ["process traced"] * 3
    assert {span.kind for span in handled} == {SpanKind.CONSUMER}
    assert [span.context for span in handled] == current
    links = [[link.context.span_id for link in span.links] for span in handled]
    assert links == [[sent.context.span_id], [sent.context.span_id], []]
