"""``rabbit-chx topology export`` of a real broker."""

from __future__ import annotations

from typing import Any

import pytest
from exchange_types import CHX
from pika.exchange_type import ExchangeType
from topology_commands import Topologies

from rabbit_chx import Topology
from rabbit_chx.cli import main

pytestmark = pytest.mark.broker


def test_the_export_of_names_that_are_hard_to_write_has_an_empty_plan(topologies: Topologies) -> None:
    shop = topologies.shop
    channel, vhost = shop.channel, shop.settings.vhost
    quorum: dict[str, Any] = {"x-queue-type": "quorum", "x-delivery-limit": 5}
    for name, arguments in (
        ('q{1..3} "quoted" \\ é', {}),
        ("jobs.1", quorum),
        ("jobs.2", quorum),
        ("jobs.10", quorum),
        ("odd", {"site": "a\n|b", "n": 5, "list": [1, "x", True], "table": {"k": [2]}}),
    ):
        channel.queue_declare(name, durable=True, arguments=arguments)
    for type_ in ("fanout", "headers"):
        channel.exchange_declare(
            type_[0], ExchangeType(type_), durable=True, arguments={"alternate-exchange": "slot"}
        )
    channel.exchange_declare("gone", ExchangeType("topic"), durable=False, auto_delete=True)
    channel.queue_bind("odd", "gone", "#")
    channel.queue_bind("odd", "h", arguments={"x-match": "all", "size": 5, "region": "eu"})
    channel.queue_bind("odd", "amq.topic", "é")
    channel.exchange_bind("h", "f")
    for name, arguments in (
        ("by header", {"hash-header": "tenant"}),
        ("by.property", {"hash-property": "message_id"}),
    ):
        channel.exchange_declare(name, CHX, durable=True, arguments=arguments)
        channel.queue_bind("jobs.10", name, "3")
        channel.exchange_bind("f", name, "007")
        channel.queue_bind("jobs.1", name, "1")
        channel.queue_bind("jobs.2", name, "1")
    channel.exchange_declare("empty", CHX, durable=True)
    policy = {"pattern": '^q\\d|"', "definition": {"max-length": 5000}, "priority": 3, "apply-to": "queues"}
    shop.management.request("PUT", "policies", vhost, "limit {1..2}", body=policy)
    mine = channel.queue_declare("", exclusive=True).method.queue
    channel.queue_declare("private", exclusive=True)
    text, errors = topologies.run("export")
    assert errors.count("left out") == 2
    assert f"left out: queue {mine}" in errors
    assert "left out: queue private: it is exclusive" in errors
    document = topologies.document("plan", topologies.file(text))
    assert (document["changes"], document["refusals"]) == ([], [])
    exported = Topology.from_toml(text)
    ring = exported.exchange("by header")
    assert ring is not None
    assert ring.ring is not None
    assert [str(member.destination) for member in ring.ring] == ["jobs.10", "exchange f", "jobs.1", "jobs.2"]
    assert exported.queue('q{1..3} "quoted" \\ é') is not None


def test_an_exchange_of_the_broker_is_exported_once_it_has_bindings(
    topologies: Topologies, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["topology", "export", "--exchange", "amq.direct", *topologies.options]
    assert main(command) == 2
    assert "is a direct exchange that each broker has" in capsys.readouterr().err
    topologies.shop.channel.queue_bind("q1", "amq.direct", "first")
    assert main(command) == 0
    assert 'source = "amq.direct"' in capsys.readouterr().out


@pytest.mark.chx_broker(">=4.3", "queues whose type is 'undefined' or empty")
def test_the_type_of_a_queue_is_the_one_that_the_api_reports(topologies: Topologies) -> None:
    channel = topologies.shop.channel
    for name, type_ in (("odd.0", "undefined"), ("odd.1", "")):
        channel.queue_declare(name, durable=True, arguments={"x-queue-type": type_})
        channel.queue_bind(name, "orders", "1")
    text, _ = topologies.run("export")
    for name in ("odd.0", "odd.1"):
        queue = Topology.from_toml(text).queue(name)
        assert queue is not None
        assert (queue.type, dict(queue.arguments)) == ("classic", {})
    assert topologies.document("check", topologies.file(text))["findings"] == []
    assert topologies.document("plan", topologies.file(text))["changes"] == []
