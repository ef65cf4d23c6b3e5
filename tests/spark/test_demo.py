"""The demo's job on part of its real data; and that its check sees what is wrong."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pyspark.sql import SparkSession

from rabbit_chx import Broker
from rabbit_chx.testing import RunningBroker

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.pyspark("4.0", "format('rabbitmq')")]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
ROWS = 20_000


@pytest.fixture(scope="module")
def demo() -> ModuleType:
    sys.path.insert(0, str(EXAMPLES))
    return import_module("flights")


@pytest.fixture
def job(demo: Any, spark: SparkSession, vhost: RunningBroker) -> tuple[Any, Any, Any]:
    """Declared and predicted, but not yet written: the flights, the ring, the prediction."""
    with Broker(vhost.url, ring_source=vhost.ring_via) as broker:
        broker.declare(demo.EXCHANGE, demo.QUEUES.items())
        ring = broker.ring(demo.EXCHANGE)
    flights = demo.read_flights(spark, demo.flights_csv(), limit=ROWS).cache()
    return flights, ring, demo.predict(flights, ring)


@pytest.mark.core
def test_every_flight_is_found_where_it_was_predicted(
    demo: Any,
    spark: SparkSession,
    vhost: RunningBroker,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert demo.run(vhost, spark, demo.flights_csv(), ROWS)
    said = capsys.readouterr().out
    assert "mismatches 0, missing 0, repeated 0" in said
    assert said.count("20,000") >= 5  # read, written, and the three totals


def test_flights_without_an_aircraft_are_not_a_hot_key(demo: Any, job: tuple[Any, Any, Any]) -> None:
    flights, _, prediction = job
    assert len(prediction.place) == ROWS
    assert prediction.without_aircraft == flights.where("NOT has_aircraft").count() > 50
    keys = flights.where("NOT has_aircraft").groupBy("key").count()
    assert keys.where("key LIKE 'flight %'").count() == keys.count() > 30
    assert demo.flights_csv().exists()


@pytest.mark.slow
def test_a_queue_bound_wrongly_is_counted(demo: Any, job: tuple[Any, Any, Any], vhost: RunningBroker) -> None:
    flights, ring, prediction = job
    with demo.connect(vhost.url) as connection:
        channel = connection.channel()
        channel.queue_unbind("flights.b", demo.EXCHANGE, "1")
        channel.queue_bind("flights.b", demo.EXCHANGE, "1")  # the same weight, but at the end of the ring
        report = demo.write(flights, vhost.url, ring)
        findings = demo.check(channel, prediction)
    assert report["confirmed"] == sum(report["predicted"].values()) == sum(findings.rows.values()) == ROWS
    assert findings.mismatches > ROWS / 10
    assert findings.missing == 0
    assert not findings.good
    assert "first mismatch: 2013-" in demo.show(prediction, report, findings)


def test_a_message_lost_or_doubled_is_counted(
    demo: Any,
    job: tuple[Any, Any, Any],
    vhost: RunningBroker,
) -> None:
    flights, ring, prediction = job
    with demo.connect(vhost.url) as connection:
        channel = connection.channel()
        demo.write(flights, vhost.url, ring)
        channel.basic_get("flights.a", auto_ack=True)
        method, _, body = channel.basic_get("flights.c", auto_ack=True)
        for _ in range(2):
            channel.basic_publish("", "flights.c", body)
        findings = demo.check(channel, prediction)
    assert findings.missing == 1
    assert findings.repeated == 1
    assert findings.mismatches == 2  # they came without the routing key, too
    assert method is not None
