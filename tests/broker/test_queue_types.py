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

_TYPES = ("undefined", "")


@pytest.fixture
def members(topologies: Topologies) -> tuple[str, ...]:
    """Declares a member of `orders` with each of the arguments; their names."""
    channel, declared = topologies.shop.channel, []
    for number, type_ in enumerate(_TYPES):
        name = f"odd.{number}"
        channel.queue_declare(name, durable=True, arguments={"x-queue-type": type_})
        channel.queue_bind(name, "orders", "1")
        declared.append(name)
    return tuple(declared)


def test_the_type_of_a_queue_is_the_one_that_the_api_reports(
    topologies: Topologies, members: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    options = topologies.options
    assert main(["ring", "check", "orders", *options]) == 0
    assert main(["ring", "list", *options]) == 0
    capsys.readouterr()
    text, _ = topologies.run("export")
    written = Topology.from_toml(text)
    assert {queue.name: (queue.type, dict(queue.arguments)) for queue in written.queues if queue.name in members} == {
        name: ("classic", {}) for name in members
    }  # fmt: skip
    assert topologies.document("check", topologies.file(text))["findings"] == []
    assert topologies.document("plan", topologies.file(text))["changes"] == []
