"""``rabbit-chx export`` of a real broker."""

from __future__ import annotations

import pytest
from exchange_types import CHX
from pika.exchange_type import ExchangeType
from topology_commands import Topologies

from rabbit_chx import Topology
from rabbit_chx.routing import ExchangeRef

pytestmark = pytest.mark.broker


def test_the_export_of_names_that_are_hard_to_write_has_an_empty_plan(topologies: Topologies) -> None:
    """The order of the ring is that of the buckets. parity/test_definitions.py exports hundreds of other vhosts."""
    channel, hard = topologies.shop.channel, 'q{1..3} "quoted" \\ é'
    odd = {"site": "a\n|b", "list": [1, "x", True], "table": {"k": [2]}}
    channel.queue_declare(hard, durable=True, arguments=odd)
    channel.exchange_declare("gone", ExchangeType("topic"), durable=False, auto_delete=True)
    channel.queue_bind(hard, "gone", "#", arguments={"x-match": "all", "size": 5})
    channel.exchange_declare("by header", CHX, durable=True, arguments={"hash-header": "tenant"})
    channel.queue_bind(hard, "by header", "3")
    channel.exchange_bind("slot", "by header", "007")
    channel.queue_bind("q1", "by header", "1")
    channel.queue_declare("private", exclusive=True)
    text, errors = topologies.run("export")
    assert "left out: queue private: it is exclusive" in errors
    document = topologies.document("plan", topologies.file(text))
    assert (document["changes"], document["refusals"]) == ([], [])
    ring = Topology.from_toml(text).ring("by header")
    assert ring.destinations == (hard, ExchangeRef("slot"), "q1")


def test_an_exchange_of_the_broker_is_exported_once_it_has_bindings(
    topologies: Topologies,
) -> None:
    command = ("export", "amq.direct")
    assert "is a direct exchange that each broker has" in topologies.run(*command, code=2)[1]
    topologies.shop.channel.queue_bind("q1", "amq.direct", "first")
    assert 'source = "amq.direct"' in topologies.run(*command)[0]
