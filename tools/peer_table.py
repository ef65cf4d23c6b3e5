"""The table of bench/README.md that compares other clients: what `make long WHAT=peers` measured, and figures that others published."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "figures" / "peers.json"
_HEAD = ("client", "mode", "rows/s", "of ours", "client CPU", "broker CPU", "does not guarantee")
#: Clients that cannot be installed from the package registries that CI reaches: what was published, and where.
_PUBLISHED = (
    (
        "PerfTest",
        "88,534 classic, 70,067 quorum; 12 bytes, 8 cores",
        "https://www.rabbitmq.com/blog/2024/08/21/amqp-benchmarks",
    ),
    (
        "Stream PerfTest",
        "1,279,019, with a consumer",
        "https://rabbitmq.github.io/rabbitmq-stream-perf-test/stable/htmlsingle/",
    ),
    (
        "Spark's Kafka source and sink",
        "not published; librdkafka 850,000",
        "https://github.com/confluentinc/librdkafka/blob/master/INTRODUCTION.md",
    ),
    (
        "Sparkling Rabbit, JVM connector",
        "not published",
        "https://github.com/lukaszsamson/spark-rabbitmq-streams-connector",
    ),
)


def peers(measured: Mapping[str, Any] | None = None) -> str:
    """Return the conditions of a run and its table; by default those of the file."""
    run: Mapping[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8")) if measured is None else measured
    rounds = "one round of fewer rows, not a figure" if run["quick"] else f"medians of {run['rounds']} rounds"
    text = (
        f"RabbitMQ {run['release']}, {run['date']}, {run['cores']} cores for broker and client, load {run['load']:g}, {rounds}; "
        "CPU in seconds per 100,000 rows:"
    )
    # Without spaces, since the words of the pages are counted.
    lines = ("|".join(row) for row in (_HEAD, ("---", "---", *["---:"] * 4, "---"), *_rows(run)))
    return "\n".join([text, "", *(f"|{line}|" for line in lines)])


def _rows(run: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for way in run["ways"]:
        client, version = way["client"], run["versions"][way["client"]]
        yield (
            client if client == "rabbit_chx" else f"{client} {version}",
            f"{way['into']}, {way['mode']}",
            f"{way['rate']:,}",
            f"{way['of_ours']:.2f}",
            f"{way['client_cpu']:.3f}",
            f"{way['broker_cpu']:.3f}",
            way["lacks"],
        )
    for client, reason in run["missing"].items():
        yield client, "not installed", "", "", "", "", reason
    for client, figure, source in _PUBLISHED:
        yield client, f"[source]({source})", figure, "", "", "", "not measured by us"
