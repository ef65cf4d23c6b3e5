"""An x-modulus-hash exchange as a layout on a real broker of 4.3: planned, applied, published to, and read without a ring source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from bounded import until
from pika import BasicProperties
from pika.adapters.blocking_connection import BlockingChannel

from rabbit_chx import Broker, Publisher, Topology
from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.routing import ModulusHashExchange
from rabbit_chx.testing import RunningBroker
from rabbit_chx.topology import check, plan
from spark_connector.writing.preflight import HASHING_TYPES, inspect_exchange

pytestmark = [pytest.mark.broker, pytest.mark.chx_broker(">=4.3", "x-modulus-hash without a plugin")]

KEYS = [f"customer {n}" for n in range(3_000)]


def bills(count: int) -> Topology:
    """Return a file with so many queues, of which 10 sorts before 2."""
    names = f'"bills.{{1..{count}}}"'
    exchange = f'[[exchanges]]\nname = "bills"\ntype = "x-modulus-hash"\nqueues = [{names}]\n'
    queues = (
        f'[[queues]]\nname = {names}\ntype = "quorum"\narguments = {{ x-single-active-consumer = true }}\n'
    )
    return Topology.from_toml(exchange + queues)


def counted(channel: BlockingChannel, queues: Iterable[object]) -> Counter[str]:
    """Count and remove the messages of queues."""
    counts: Counter[str] = Counter()
    for queue in dict.fromkeys(map(str, queues)):
        counts[queue] = channel.queue_declare(queue, passive=True).method.message_count or 0
        channel.queue_purge(queue)
    return +counts


def test_a_plan_is_applied_and_messages_are_where_the_bindings_say(
    managed: Broker, vhost: RunningBroker, channel: BlockingChannel
) -> None:
    managed.apply(plan(bills(10), managed.topology()))
    mirror = managed.exchange("bills")
    assert isinstance(mirror, ModulusHashExchange)
    assert mirror.provenance == "read"
    assert mirror.destinations[:3] == ("bills.1", "bills.10", "bills.2")
    predicted = Counter(str(mirror.destinations[index]) for index in mirror.indices(KEYS))

    with Publisher(vhost.url, "bills") as publisher:
        assert publisher.publish_many(KEYS, KEYS).complete
    assert counted(channel, mirror.destinations) == predicted
    with Publisher(vhost.url, "bills", routing="client", ring=lambda: managed.exchange("bills")) as publisher:
        assert publisher.publish_many(KEYS, KEYS).complete
    assert counted(channel, mirror.destinations) == predicted
    assert inspect_exchange(ConnectionSettings.from_uri(vhost.url), "bills")[0] in HASHING_TYPES
    assert check(managed.topology(), bills(10)).sound
    assert managed.topology().modulus("bills") == mirror


def test_a_check_finds_waiting_messages_of_several_priorities(
    managed: Broker, channel: BlockingChannel
) -> None:
    managed.apply(plan(bills(3), managed.topology()))
    for priority in (0, None, 9):
        channel.basic_publish("", "bills.3", b"", BasicProperties(priority=priority))

    def findings() -> dict[str, str]:
        found = check(managed.topology(), bills(3)).findings
        assert {finding.destination for finding in found} <= {"bills.3"}
        return {finding.kind: finding.message for finding in found}

    until(lambda: findings().keys() == {"order-breaking", "no-consumer"}, "they are counted", every_s=0.5)
    found = findings()
    assert "of the priorities 0, 4, 9" in found["order-breaking"]
    assert found["no-consumer"] == "bills.3 has no consumer, and 3 messages wait in it"
    channel.queue_purge("bills.3")  # the statistics have the priorities for some more seconds
    assert findings() == {}


def test_commands_need_no_ring_source(
    managed: Broker, vhost: RunningBroker, answer: Callable[..., Any], tmp_path: Path
) -> None:
    managed.apply(plan(bills(4), managed.topology()))
    file = tmp_path / "bills.toml"
    file.write_text(bills(4).to_toml())
    at = ("--url", vhost.url, "--management-url", str(vhost.management_url))

    verified = answer("verify", "bills", "--keys", "key-{1..500}", *at)
    assert (verified["compared"], verified["mismatches"], verified["ring"]) == (500, 0, None)
    assert verified["modulus"]["destinations"] == [f"bills.{n}" for n in range(1, 5)]
    for command in (("check", str(file)), ("check", "bills"), ("check",)):
        assert answer(*command, *at)["findings"] == []
    group = answer("show", "bills", "--consumers", *at)
    assert [queue["name"] for queue in group["queues"]] == [f"bills.{n}" for n in range(1, 5)]
