"""Spans of OpenTelemetry, if the program has set a tracer provider (extra ``otel``).

A publisher has one span for each call; its messages carry the span in the header ``traceparent`` (W3C Trace Context). A group has one span
for each message, linked to the span of the publisher, and a group of streams one for each batch. The names follow the semantic conventions of OpenTelemetry for messaging.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

#: A program that has set a tracer provider has imported this module.
TRACED_BY = "opentelemetry.trace"
_NO_HEADERS: Mapping[str, str] = {}
#: Instead of `publisher_span`, where nothing is traced.
UNTRACED = nullcontext(_NO_HEADERS)


@cache
def _tracer() -> Tracer:
    from opentelemetry import trace

    return trace.get_tracer("rabbit_chx")


@contextmanager
def publisher_span(exchange: str) -> Iterator[Mapping[str, str]]:
    """Open a span for a call that publishes; yield the headers of its messages, none without a tracer provider."""
    from opentelemetry.propagate import inject
    from opentelemetry.trace import SpanKind

    attributes = _attributes("send", exchange)
    headers: dict[str, str] = {}
    with _tracer().start_as_current_span(
        f"send {exchange}", kind=SpanKind.PRODUCER, attributes=attributes
    ) as span:
        if span.get_span_context().is_valid:
            inject(headers)
        yield headers


@contextmanager
def handler_span(queue: str, headers: Mapping[str, Any]) -> Iterator[None]:
    """Open a span for the handler of a message, linked to the span in its headers."""
    if TRACED_BY not in sys.modules:
        yield
        return
    from opentelemetry.propagate import extract
    from opentelemetry.trace import Link, SpanKind, get_current_span

    carrier = {name: text for name, value in headers.items() if (text := _text(value))}
    published = get_current_span(extract(carrier)).get_span_context() if carrier else None
    links = [Link(published)] if published is not None and published.is_valid else []
    with _tracer().start_as_current_span(
        f"process {queue}", kind=SpanKind.CONSUMER, attributes=_attributes("process", queue), links=links
    ):
        yield


def _attributes(operation: str, destination: str) -> dict[str, str]:
    return {
        "messaging.system": "rabbitmq",
        "messaging.destination.name": destination,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
    }


def _text(value: object) -> str:
    """Return a header's text; "" for another type."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value if isinstance(value, str) else ""
