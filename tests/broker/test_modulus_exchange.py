"""An x-modulus-hash exchange as a layout on a real broker of 4.3: planned, applied, published to, and read without a ring source."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pika import BasicProperties
from pika.adapters.blocking_connection import BlockingChannel

from rabbit_chx import Broker, Publisher, Topology
from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.cli import main
from rabbit_chx.errors import PublishError
from rabbit_chx.routing import ModulusHashExchange
from rabbit_chx.testing import RunningBroker
from rabbit_chx.topology import PolicyDefinition, check, plan
from spark_connector.writing.exchange_check import inspect_exchange

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


@pytest.fixture
def broker(vhost: RunningBroker) -> Iterator[Broker]:
    """A broker without a ring source, on which the order is that of names."""
    with Broker(vhost.url, vhost.management_url) as opened:
        yield opened


def counted(channel: BlockingChannel, queues: Iterable[object]) -> Counter[str]:
    """Count and remove the messages of queues."""
    counts: Counter[str] = Counter()
    for queue in dict.fromkeys(map(str, queues)):
        counts[queue] = channel.queue_declare(queue, passive=True).method.message_count or 0
        channel.queue_purge(queue)
    return +counts


def test_a_plan_is_applied_and_messages_are_where_the_bindings_say(
    broker: Broker, vhost: RunningBroker, channel: BlockingChannel
) -> None:
    broker.apply(plan(bills(10), broker.topology()))
    mirror = broker.exchange("bills")
    assert isinstance(mirror, ModulusHashExchange)
    assert mirror.provenance == "read"
    assert mirror.destinations[:3] == ("bills.1", "bills.10", "bills.2")
    predicted = Counter(str(mirror.destinations[index]) for index in mirror.indices(KEYS))

    with Publisher(vhost.url, "bills") as publisher:
        assert publisher.publish_many(KEYS, KEYS).complete
    assert counted(channel, mirror.destinations) == predicted
    with Publisher(vhost.url, "bills", routing="client", ring=lambda: broker.exchange("bills")) as publisher:
        assert publisher.publish_many(KEYS, KEYS).complete
    assert counted(channel, mirror.destinations) == predicted
    assert inspect_exchange(ConnectionSettings.from_uri(vhost.url), "bills").is_hashing
    assert check(broker.topology(), bills(10)).sound
    assert broker.topology().modulus("bills") == mirror


def test_a_binding_that_is_added_during_the_write_fails_it(
    broker: Broker, vhost: RunningBroker, channel: BlockingChannel
) -> None:
    broker.apply(plan(bills(2), broker.topology()))
    with Publisher(vhost.url, "bills", routing="client", ring=lambda: broker.exchange("bills")) as publisher:
        publisher.send(KEYS, KEYS)
        channel.queue_bind("bills.1", "bills", "again")
        with pytest.raises(PublishError, match="the ring has changed during the write"):
            publisher.flush()
    kinds = [finding.kind for finding in check(broker.topology(), bills(2)).findings]
    assert kinds == ["unexpected", "second-binding"]
    broker.apply(plan(bills(2), broker.topology()), allow_moved=1.0)
    assert check(broker.topology(), bills(2)).sound


def test_a_check_finds_policies_and_priorities_that_break_the_order(
    broker: Broker, channel: BlockingChannel
) -> None:
    retried = {"delayed-retry-type": "all", "delayed-retry-min": 1000}
    policies = (
        PolicyDefinition("p1", "^bills\\.1$", "queues", retried),
        PolicyDefinition("p2", "^bills\\.2$", "queues", {"consumer-timeout": 60_000}),
    )
    wanted = replace(bills(3), policies=policies)
    broker.apply(plan(wanted, broker.topology()))
    for priority in (0, None, 9):
        channel.basic_publish("", "bills.3", b"", BasicProperties(priority=priority))
    deadline = time.monotonic() + 60  # the broker counts priorities every few seconds
    while (counted := broker.topology().facts.priorities) != {"bills.3": (0, 4, 9)}:
        assert time.monotonic() < deadline, counted
        time.sleep(0.5)

    found = check(broker.topology(), wanted).findings
    breaking = [("order-breaking", f"bills.{n}") for n in (1, 2, 3)]
    assert [(finding.kind, finding.destination) for finding in found] == breaking
    assert "by the policy p2" in found[1].message
    assert "of the priorities 0, 4, 9" in found[2].message


def test_commands_need_no_ring_source(
    broker: Broker,
    vhost: RunningBroker,
    answer: Callable[..., Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    broker.apply(plan(bills(4), broker.topology()))
    file = tmp_path / "bills.toml"
    file.write_text(bills(4).to_toml())
    at = ("--url", vhost.url, "--management-url", str(vhost.management_url))

    for more in ((), ("--topology", str(file))):
        verified = answer("verify", "bills", "--count", "500", *at, *more)
        assert (verified["compared"], verified["mismatches"], verified["ring"]) == (500, 0, None)
        assert verified["modulus"]["destinations"] == [f"bills.{n}" for n in range(1, 5)]
    assert answer("topology", "check", str(file), *at)["findings"] == []
    for what in ("bills", "--all"):
        assert answer("ring", "check", what, *at)["findings"] == []
    group = answer("group", "show", "bills", *at)
    assert [queue["name"] for queue in group["queues"]] == [f"bills.{n}" for n in range(1, 5)]
    assert answer("topology", "plan", str(file), *at)["changes"] == []
    assert main(["topology", "export", *at]) == 0
    exported = Topology.from_toml(capsys.readouterr().out)
    assert exported.exchange("bills") == bills(4).exchange("bills")
    file.write_text(bills(3).to_toml())
    (finding,) = answer("verify", "bills", "--topology", str(file), *at, code=1)["findings"]
    assert finding["kind"] == "different"
