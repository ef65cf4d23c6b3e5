"""Queues whose argument ``x-queue-type`` does not name their type, as clients declare them."""

from __future__ import annotations

import pytest
from topology_commands import Topologies

from rabbit_chx import Topology
from rabbit_chx.cli import main

pytestmark = [
    pytest.mark.broker,
    pytest.mark.chx_broker(">=4.3", "queues whose type is 'undefined' or empty"),
]


def test_the_type_of_a_queue_is_the_one_that_the_api_reports(
    topologies: Topologies, capsys: pytest.CaptureFixture[str]
) -> None:
    channel = topologies.shop.channel
    for name, type_ in (("odd.0", "undefined"), ("odd.1", "")):
        channel.queue_declare(name, durable=True, arguments={"x-queue-type": type_})
        channel.queue_bind(name, "orders", "1")
    for command in (["ring", "check", "orders"], ["ring", "list"]):
        assert main([*command, *topologies.options]) == 0
    capsys.readouterr()
    text, _ = topologies.run("export")
    for name in ("odd.0", "odd.1"):
        queue = Topology.from_toml(text).queue(name)
        assert queue is not None
        assert (queue.type, dict(queue.arguments)) == ("classic", {})
    assert topologies.document("check", topologies.file(text))["findings"] == []
    assert topologies.document("plan", topologies.file(text))["changes"] == []
