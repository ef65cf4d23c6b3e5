"""The manifests are YAML that says the objects, in the fields of the operator."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from topologies import topologies

from rabbit_chx import ExchangeRef, Topology
from rabbit_chx.errors import TopologyError
from rabbit_chx.topology import (
    ArgumentTable,
    BindingDefinition,
    ExchangeDefinition,
    PolicyDefinition,
    QueueDefinition,
    RingMember,
)

TYPE = "x-consistent-hash"
RESOURCE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
#: The fields of each spec in api/v1beta1 of rabbitmq/messaging-topology-operator that are written.
FIELDS = {
    "Exchange": {"name", "type", "durable", "autoDelete", "arguments"},
    "Queue": {"name", "type", "durable", "autoDelete", "arguments"},
    "Binding": {"source", "destination", "destinationType", "routingKey", "arguments"},
    "Policy": {"name", "pattern", "applyTo", "priority", "definition"},
}
WHOLE = Topology(
    (ExchangeDefinition("orders", TYPE, arguments=ArgumentTable({"hash-header": "tenant"}), ring=(RingMember("Q 1", "2"),)),),
    (QueueDefinition("Q 1", "quorum", arguments=ArgumentTable({"x-delivery-limit": 5})), QueueDefinition("theirs", owner="external")),
    (BindingDefinition("audit", ExchangeRef("orders"), "#"),),
    (PolicyDefinition("p", "^a\\.", "queues", ArgumentTable({"max-length": 5}), 3),),
)  # fmt: skip


def documents(text: str) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(text) if document is not None]


def test_each_object_is_a_document() -> None:
    exchange, queue, audit, member, policy = documents(WHOLE.to_kubernetes("prod", namespace="mq", vhost="v"))
    assert exchange == {
        "apiVersion": "rabbitmq.com/v1beta1",
        "kind": "Exchange",
        "metadata": {"name": "orders", "namespace": "mq"},
        "spec": {
            "name": "orders", "type": TYPE, "durable": True, "autoDelete": False, "arguments": {"hash-header": "tenant"},
            "vhost": "v", "rabbitmqClusterReference": {"name": "prod"},
        },
    }  # fmt: skip
    assert (queue["kind"], queue["spec"]["name"], queue["spec"]["type"]) == ("Queue", "Q 1", "quorum")
    assert queue["metadata"]["name"].startswith("q-1-")
    assert queue["spec"]["arguments"] == {"x-delivery-limit": 5}
    said = ("source", "destination", "destinationType", "routingKey")
    assert [audit["spec"][name] for name in said] == ["audit", "orders", "exchange", "#"]
    assert [member["spec"][name] for name in said] == ["orders", "Q 1", "queue", "2"]
    assert policy["spec"]["applyTo"] == "queues"
    assert (policy["spec"]["priority"], policy["spec"]["definition"]) == (3, {"max-length": 5})


def test_the_comment_says_that_the_ring_order_is_lost() -> None:
    text = WHOLE.to_kubernetes("prod")
    assert text.startswith("# Written by rabbit_chx. The operator creates bindings in no particular order")
    assert "# orders is lost." in text
    without = WHOLE.to_kubernetes("prod", rings=False)
    assert "without the bindings of orders: bind their members in ring order" in without.splitlines()[0]
    assert [
        document["spec"]["source"] for document in documents(without) if document["kind"] == "Binding"
    ] == ["audit"]
    assert Topology().to_kubernetes("prod") == "# Written by rabbit_chx.\n"


@given(topologies(), st.text(st.characters(codec="utf-8"), min_size=1))
def test_any_topology_is_yaml_that_says_it(topology: Topology, vhost: str) -> None:
    some = Topology(
        tuple(
            replace(exchange, internal=False, slots=None, members=None, ring=exchange.ring or ())
            for exchange in topology.exchanges
        ),
        tuple(replace(queue, exclusive=False) for queue in topology.queues),
        topology.bindings,
        tuple(replace(policy, apply_to="all") for policy in topology.policies),
    )
    found = documents(some.to_kubernetes("prod", vhost=vhost))
    names = [(manifest["kind"], manifest["metadata"]["name"]) for manifest in found]
    assert len(set(names)) == len(names)
    for manifest in found:
        assert RESOURCE_NAME.fullmatch(manifest["metadata"]["name"])
        assert len(manifest["metadata"]["name"]) <= 253
        assert manifest["spec"].keys() - {"vhost", "rabbitmqClusterReference"} <= FIELDS[manifest["kind"]]
        assert manifest["spec"]["vhost"] == vhost
    queues = {manifest["spec"]["name"]: manifest["spec"] for manifest in found if manifest["kind"] == "Queue"}
    assert queues.keys() == {queue.name for queue in some.queues if queue.owner == "ours"}
    for queue in some.queues:
        if queue.owner == "ours":
            assert ArgumentTable(queues[queue.name].get("arguments", {})) == queue.arguments


def test_any_number_is_read_back_as_the_number() -> None:
    numbers = {"a": 1e-05, "b": 1e16, "c": [-0.0, 2.5, 7, True], "d": {"e": 1e300}}
    topology = Topology(queues=(QueueDefinition("q", arguments=ArgumentTable(numbers)),))
    assert documents(topology.to_kubernetes("prod"))[0]["spec"]["arguments"] == numbers


def test_what_the_operator_has_no_field_for_is_refused_all_at_once() -> None:
    topology = Topology(
        (
            ExchangeDefinition("inner", internal=True),
            ExchangeDefinition("theirs", internal=True, owner="external"),
        ),
        (QueueDefinition("mine", exclusive=True),),
        policies=(PolicyDefinition("p", "", "streams"),),
    )
    with pytest.raises(TopologyError, match="the operator has no internal exchanges") as caught:
        topology.to_kubernetes("prod")
    assert [problem.path for problem in caught.value.problems] == ["queue mine", "exchange inner", "policy p"]
