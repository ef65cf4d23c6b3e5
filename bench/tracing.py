"""Compare publishing with and without spans of OpenTelemetry: confirmed rows per second through a hash exchange, in turns.

A third form has a constant header of the same length and no spans: the part of the cost that is the broker's.
"""

from __future__ import annotations

import os
import statistics
import time
from typing import Any
from unittest.mock import patch

import pika
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from rabbit_chx import Publisher
from rabbit_chx.broker import pika_parameters
from rabbit_chx.publishing import MessageProperties
from rabbit_chx.publishing import publisher as publishing
from rabbit_chx.testing import find_broker, temporary_vhost
from rabbit_chx.tracing import TRACED_BY

ROWS, ROUNDS = 100_000, 7


def main() -> None:
    """Measure and print."""
    trace.set_tracer_provider(TracerProvider())
    keys = [f"order-{row:08}" for row in range(ROWS)]
    bodies = [os.urandom(50).hex() for _ in range(ROWS)]
    rates: dict[str, list[float]] = {"without": [], "header": [], "with": []}
    processor: dict[str, list[float]] = {"without": [], "header": [], "with": []}
    with find_broker() as broker, temporary_vhost(broker) as place:
        with pika.BlockingConnection(pika_parameters(place.url)) as connection:
            channel = connection.channel()
            kind: Any = "x-consistent-hash"  # the stubs of pika have the four types of AMQP
            channel.exchange_declare("x", kind)
            for queue in ("q1", "q2", "q3", "q4"):
                channel.queue_declare(queue, durable=True, arguments={"x-max-length": 1_000})
                channel.queue_bind(queue, "x", "1")
        for _ in range(ROUNDS):
            for form, measured in rates.items():
                module = TRACED_BY if form == "with" else "not imported"
                # The same bytes for the broker, without a span.
                constant: MessageProperties = (
                    {"headers": {"traceparent": "0" * 55}} if form == "header" else {}
                )
                with (
                    patch.object(publishing, "TRACED_BY", module),
                    Publisher(place.url, "x", properties=constant) as publisher,
                ):
                    started, used = time.perf_counter(), time.process_time()
                    confirmed = publisher.publish_many(keys, bodies).confirmed
                    measured.append(ROWS / (time.perf_counter() - started))
                    processor[form].append(time.process_time() - used)
                if confirmed != ROWS:
                    raise SystemExit(f"{form}: {confirmed} of {ROWS} rows confirmed")
    for form, measured in rates.items():
        print(
            f"{form}: {statistics.median(measured):,.0f} rows/s, "
            f"{statistics.median(processor[form]):.3f} s of CPU per 100,000 rows"
        )
    for base in ("without", "header"):
        ratio = statistics.median(a / b for a, b in zip(rates["with"], rates[base], strict=True))
        print(f"with / {base}, median of {ROUNDS} pairs: {ratio:.3f}")


if __name__ == "__main__":
    main()
