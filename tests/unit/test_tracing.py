"""Spans of handlers and publishers, with the SDK of OpenTelemetry and without it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind
from stream_group_world import GroupWorld

from rabbit_chx import tracing


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """The spans that ended, with a tracer provider for this test."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing, "_tracer", lambda: provider.get_tracer("rabbit_chx"))
    yield exporter
    provider.shutdown()


@pytest.mark.parametrize("header", [str, str.encode])
def test_the_span_of_a_handler_is_linked_to_that_of_the_publisher(
    spans: InMemorySpanExporter, header: Any
) -> None:
    with tracing.publisher_span("x") as headers:
        assert list(headers) == ["traceparent"]
    with tracing.handler_span("q", {name: header(text) for name, text in headers.items()}):
        pass
    published, handled = spans.get_finished_spans()
    assert (published.kind, handled.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert [link.context.span_id for link in handled.links] == [published.context.span_id]


@pytest.mark.parametrize(
    ("exchanges", "name"),
    [
        (None, "shop"),
        ("events", "events"),
        (["events", "events"], "events"),
        (("events",), "events"),
        ([None, "shop"], "shop"),
        ([None, "events"], None),
        (iter(["events"]), None),
        ([], None),
    ],
)
def test_a_span_names_the_exchange_of_its_messages(
    spans: InMemorySpanExporter, exchanges: object, name: str | None
) -> None:
    with tracing.publisher_span("shop", exchanges):
        pass
    (span,) = spans.get_finished_spans()
    assert span.name == ("send" if name is None else f"send {name}")
    assert (span.attributes or {}).get("messaging.destination.name") == name


@pytest.mark.parametrize("headers", [{}, {"traceparent": "00-broken"}, {"traceparent": 7}, {"other": "text"}])
def test_a_span_without_a_publisher_has_no_link(
    headers: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tracer gets none: other SDKs than this one keep a link that is not valid."""
    given: list[Any] = []

    def start(*_: object, links: list[Any], **__: object) -> nullcontext[None]:
        given.append(links)
        return nullcontext()

    monkeypatch.setattr(tracing, "_tracer", lambda: SimpleNamespace(start_as_current_span=start))
    with tracing.handler_span("q", headers):
        pass
    assert given == [[]]


def test_handlers_do_not_need_opentelemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "opentelemetry"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with tracing.handler_span(
        "q", {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    ):
        pass


def test_a_batch_has_a_span_and_an_election_has_none(spans: InMemorySpanExporter) -> None:
    world = GroupWorld(streams=("s",))
    world.node.publish("s", 2)

    async def story() -> None:
        async with world.joined():
            await world.until(world.is_all_handled, "it is handled")

    world.run(story)
    assert [span.name for span in spans.get_finished_spans()] == ["process s"]
