"""The objects of a vhost: what an entry in JSON leaves out, and what a topology does not contain."""

from __future__ import annotations

from typing import Any

from rabbit_chx.routing import ExchangeRef
from rabbit_chx.topology import BindingDefinition, ExchangeDefinition, PolicyDefinition, QueueDefinition
from rabbit_chx.topology.schema import make_object, vhost_objects


def test_what_an_entry_leaves_out_or_has_as_null_is_the_default() -> None:
    """Older releases write an empty table as a list."""
    policy: dict[str, Any] = {"name": "p", "pattern": "^q", "apply-to": None, "definition": []}
    assert make_object(PolicyDefinition, policy) == PolicyDefinition("p", "^q")
    assert make_object(QueueDefinition, {"name": "q", "vhost": "/", "messages": 5}) == QueueDefinition("q")
    ends = {"source": "x", "destination": "y", "destination_type": "exchange", "routing_key": "k"}
    assert make_object(BindingDefinition, ends) == BindingDefinition("x", ExchangeRef("y"), "k")


def test_queues_with_a_generated_name_and_bindings_to_queues_that_are_not_listed_are_left_out() -> None:
    ring = ExchangeDefinition("ring", "x-consistent-hash")
    topic = ExchangeDefinition("topic", "topic", arguments={"alternate-exchange": "lost"})
    bindings = [
        BindingDefinition("", "jobs", "jobs"),  # of the default exchange
        BindingDefinition("ring", "jobs", "1"),
        BindingDefinition("ring", "exclusive", "1"),
        BindingDefinition("topic", "jobs", "#"),
        BindingDefinition("topic", "amq.gen-1", "#"),
    ]
    queues = [QueueDefinition("jobs"), QueueDefinition("amq.gen-1")]
    found = vhost_objects(
        [ring, topic, ExchangeDefinition("amq.topic", "topic"), ExchangeDefinition("", "direct")],
        queues,
        bindings,
        [],
        release=None,
    )
    assert found.left_out == (
        "queue amq.gen-1: the broker generated its name",
        "queue exclusive: a member of ring that is not among the queues",
        "binding of topic to amq.gen-1: that queue is exclusive or has no name",
        "exchange lost: bindings or arguments name it, but it does not exist",
    )
    assert found.sources_left_out == {"topic"}
    assert found.lists["queues"] == (QueueDefinition("jobs"),)
    assert found.lists["bindings"] == (BindingDefinition("topic", "jobs", "#"),)
    assert [exchange.name for exchange in found.lists["exchanges"]] == ["ring", "topic"]
    assert {name: ring.destinations for name, ring in found.rings.items()} == {"ring": ("exclusive", "jobs")}
    assert found.rings["ring"].provenance is None
