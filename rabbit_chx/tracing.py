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
def publisher_span(exchange: str, exchanges: object = None) -> Iterator[Mapping[str, str]]:
    """Open a span for a call that publishes; yield the headers of its messages, none without a tracer provider.

    The span names the exchange of the messages: `exchange`, unless `exchanges`, one name or a name for each message, has another one. The
    span of messages of several exchanges names none.
    """
    from opentelemetry.propagate import inject
    from opentelemetry.trace import SpanKind

    destination = _destination(exchange, exchanges)
    name = "send" if destination is None else f"send {destination}"
    headers: dict[str, str] = {}
    with _tracer().start_as_current_span(
        name, kind=SpanKind.PRODUCER, attributes=_attributes("send", destination)
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


def _destination(own: str, exchanges: object) -> str | None:
    """Return the exchange that all messages have; None if they have several, or if it is not known before they are read."""
    if exchanges is None or isinstance(exchanges, str):
        return own if exchanges is None else exchanges
    if not isinstance(exchanges, (list, tuple)):
        return None
    names = {own if name is None else name for name in exchanges if name is None or isinstance(name, str)}
    return names.pop() if len(names) == 1 else None


def _attributes(operation: str, destination: str | None) -> dict[str, str]:
    return {
        "messaging.system": "rabbitmq",
        **({} if destination is None else {"messaging.destination.name": destination}),
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
    }


def _text(value: object) -> str:
    """Return a header's text; "" for another type."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value if isinstance(value, str) else ""
