"""Rings that are found without rabbitmqctl: from the queues that received real keys."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from bounded import until
from exchange_types import CHX
from group_members import ORDERED
from pika import BasicProperties
from shop import Shop

from rabbit_chx.broker.reading import TOTALS
from rabbit_chx.cli import main

pytestmark = pytest.mark.broker

WEIGHTS = {"o.c": 3, "o.a": 1, "o.d": 6, "o.b": 2}
KEYS = [f"key-{number}" for number in range(150)]
HEADER = "tenant"
#: The management API reads the uptime of a node every five seconds.
LATE_MS = 6_000


@pytest.fixture
def bound(shop: Shop) -> Shop:
    """A vhost with the exchange `o`, whose queues were bound by hand; one of them was unbound."""
    shop.channel.exchange_declare("o", CHX, durable=True)
    for queue in (*list(WEIGHTS)[:2], "gone", *list(WEIGHTS)[2:]):
        shop.channel.queue_declare(queue, durable=True, arguments=ORDERED)
        shop.channel.queue_bind(queue, "o", str(WEIGHTS.get(queue, 4)))
    shop.channel.queue_unbind("gone", "o", "4")
    shop.channel.confirm_delivery()
    return shop


def publish(shop: Shop, keys: Iterable[str], header: str | None = None) -> None:
    for key in keys:
        properties = None if header is None else BasicProperties(headers={header: key})
        shop.channel.basic_publish(
            "o", key if header is None else "", key.encode(), properties, mandatory=True
        )


def received(shop: Shop, path: Path, header: str | None = None) -> str:
    """Publish a message for each of KEYS, take them out of the queues, and write a file of where each was, and when.

    The management API is some seconds late. On Mnesia, pairs from before the start that it shows are left out, and a message that waits is a
    doubt: so the node has run for longer than that, and afterwards no message is counted.
    """

    def has_run() -> bool:
        nodes = shop.management.request("GET", "nodes", query={"columns": "name,uptime"})
        return all(node.get("uptime", 0) > LATE_MS for node in nodes)

    until(has_run, "the broker has run for some seconds", every_s=0.2)
    publish(shop, KEYS, header)
    pairs: list[tuple[str, str, str]] = []

    def note(_channel: object, method: Any, _properties: object, body: bytes) -> None:
        pairs.append((body.decode(), method.consumer_tag, datetime.now(UTC).isoformat()))

    def all_came() -> bool:
        shop.channel.connection.process_data_events(1)
        return len(pairs) == len(KEYS)

    for queue in WEIGHTS:
        shop.channel.basic_consume(queue, note, auto_ack=True, consumer_tag=queue)
    until(all_came, "all messages come")
    for queue in WEIGHTS:
        shop.channel.basic_cancel(queue)

    def none_waits() -> bool:
        queues = shop.management.request("GET", "queues", shop.settings.vhost, query=TOTALS)
        return not any(queue["messages"] for queue in queues if queue["name"] in WEIGHTS)

    until(none_waits, "the management API counts no message", every_s=0.2)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("key", "queue", "time"), *pairs])
    return str(path)


def test_observed_keys_become_the_record(
    bound: Shop, answer: Callable[..., Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Afterwards the ring is exact without rabbitmqctl and without the file; a record that real keys contradict is found, and replaced."""
    live, via = bound.live, bound.via
    file = received(bound, tmp_path / "seen.csv")
    (recorded,) = answer("record", "o", *live, "--observed", file)["recorded"]
    assert (recorded["exchange"], recorded["origin"], recorded["is_new"]) == ("o", "observed", True)
    shown = answer("show", "o", *live)
    assert shown["provenance"] == "recorded"
    assert shown["buckets"] == answer("show", "o", *live, *via)["buckets"]
    assert answer("verify", "o", *live, "--observed", file)["findings"] == []
    assert not answer("record", "o", *live, "--observed", file)["recorded"][0]["is_new"]

    # What the management API does not show: somebody unbinds a member and binds it again.
    bound.channel.queue_unbind("o.c", "o", "3")
    bound.channel.queue_bind("o.c", "o", "3")
    later = received(bound, tmp_path / "later.csv")
    document = answer("verify", "o", *live, "--observed", later, code=1)
    assert [finding["kind"] for finding in document["findings"]] == ["contradicted"]
    assert "contradict the ring, recorded" in document["findings"][0]["message"]
    assert main(["record", "o", *live, "--observed", later]) == 1
    assert "has another order than the ring" in capsys.readouterr().err
    answer("record", "o", *live, "--observed", later, "--yes")
    assert answer("verify", "o", *live, "--observed", later)["findings"] == []
    read = answer("show", "o", *live, *via)["buckets"]
    assert answer("show", "o", *live)["buckets"] == read

    assert main(["record", "--all", *live, "--observed", later]) == 2
    assert "--observed is about one exchange" in capsys.readouterr().err


def test_observed_values_of_a_header_determine_the_ring(
    bound: Shop, answer: Callable[..., Any], tmp_path: Path
) -> None:
    bound.channel.exchange_delete("o")
    bound.channel.exchange_declare("o", CHX, durable=True, arguments={"hash-header": HEADER})
    for queue, weight in WEIGHTS.items():
        bound.channel.queue_bind(queue, "o", str(weight))
    file = received(bound, tmp_path / "seen.csv", HEADER)
    (recorded,) = answer("record", "o", *bound.live, "--observed", file)["recorded"]
    assert recorded["origin"] == "observed"
    assert answer("verify", "o", *bound.live, "--observed", file)["findings"] == []
