"""What plugins make and own: no file says it, no check calls it unexpected, and no plan cuts a federation link without permission."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from model_broker import ModelBroker
from model_client import ModelClient
from sides import as_live

from rabbit_chx.planning.slot_layout import collapse, expand
from rabbit_chx.routing import ExchangeRef, HashRing, Release
from rabbit_chx.topology import (
    BindingDefinition,
    ExchangeDefinition,
    LiveTopology,
    PolicyDefinition,
    QueueDefinition,
    RingMember,
    Topology,
    check,
    plan,
    plugin_objects,
)
from rabbit_chx.topology.plugin_objects import shard_names

UP = "federation: h -> rabbit@a:down:h"
LINK = ExchangeRef(f"{UP} A")
RELEASE = Release("4.3.6")
#: The objects of a link by their kind, as the sources of 4.3.6 declare them, in the vhost of the upstream.
OF_LINK = json.loads(Path(__file__).with_name("federation_link.json").read_text(encoding="utf-8"))
TEXT = """
[[exchanges]]
name = "h"
type = "x-consistent-hash"
ring = [{ queue = "u.{1..3}", weight = 10 }]
[[queues]]
name = "u.{1..4}"
"""
FILE = Topology.from_toml(TEXT)


class Federated(ModelClient):
    """A client whose management API also lists a link, as recorded: no model broker has the plugin."""

    def _listed(self, kind: str, *path: str) -> Any:
        listed = super()._listed(kind, *path)
        return [*listed, *OF_LINK[kind]] if kind in OF_LINK else listed


def linked(wanted: Topology) -> LiveTopology:
    """Return the live topology of a file with a link, whose ring was read."""
    live = Federated(ModelBroker.holding(expand(wanted, LiveTopology()), RELEASE)).live()
    exchange = live.exchange("h")
    assert exchange is not None
    ring = HashRing.from_bindings([member.binding for member in exchange.ring or ()], RELEASE)
    assert LINK in ring.destinations
    return live.with_rings({"h": HashRing.from_buckets(ring.buckets, RELEASE)})


def test_the_objects_of_a_link_are_left_out_of_a_file_and_named() -> None:
    live = linked(FILE)
    assert plugin_objects.plugin_objects(live) == {LINK, UP}
    written = plugin_objects.without_plugin_objects(live)
    assert "federation" not in written.to_toml()
    assert replace(written.as_wanted(), cluster=None) == FILE
    assert written.facts.left_out[-2:] == (
        f"exchanges of federation links: {LINK.name}: the plugin rabbitmq_federation makes them",
        f"queues of federation links: {UP}: the plugin rabbitmq_federation makes them",
    )
    assert plan(written.as_wanted(), live).changes == ()


def test_a_link_next_to_slots_stays_and_an_export_has_the_slots() -> None:
    wanted = Topology.from_toml(TEXT.replace("ring", "slots = 8\nmembers"))
    live = linked(wanted)
    assert plan(wanted, live).changes == ()
    found = check(live, wanted)
    assert found.sound
    assert found.misplaced == {"h": 0.0}
    (exported,) = collapse(plugin_objects.without_plugin_objects(live))[0].exchanges
    assert exported.slots == 8


@pytest.mark.parametrize(
    ("queue", "is_of_plugin"),
    [
        (QueueDefinition("mqtt-subscription-client-7qos1"), True),
        (QueueDefinition("mqtt-subscription-qos0", "rabbit_mqtt_qos0_queue"), True),
        (QueueDefinition("mqtt-will-client-7"), True),
        (QueueDefinition("stomp-subscription-Xk3_a-Q"), True),
        (QueueDefinition("aliveness-test", durable=False), True),
        (QueueDefinition("aliveness-test"), False),
        (QueueDefinition("mqtt-subscriptions"), False),
        (QueueDefinition("federation: h"), False),
        (QueueDefinition("federation: h", arguments={"x-internal-purpose": "other"}), False),
        (QueueDefinition("federation: h", arguments={"x-internal-purpose": "federation"}), True),
    ],
    ids=str,
)
def test_queues_of_plugins_are_recognised_and_kept(queue: QueueDefinition, *, is_of_plugin: bool) -> None:
    live = Topology(queues=(queue,), bindings=(BindingDefinition("amq.topic", queue.name, "a"),))
    deleted = {
        change.name
        for change in plan(Topology(owns=("*",)), as_live(live)).changes
        if change.action == "delete"
    }
    assert (queue.name not in deleted) is is_of_plugin
    assert (plugin_objects.without_plugin_objects(as_live(live)).queues == ()) is is_of_plugin


def test_the_link_of_a_definitions_file_of_4_3_counts_by_its_name() -> None:
    ring = (RingMember("u.1"), RingMember(LINK))
    read = Topology((ExchangeDefinition("h", "x-consistent-hash", ring=ring),))
    assert [
        member.destination
        for member in plugin_objects.without_plugin_objects(as_live(read)).exchanges[0].ring or ()
    ] == ["u.1"]


SHARDS = shard_names("images", ["rabbit@a", "rabbit@b"], 2)
IMAGES = ExchangeDefinition("images", "x-modulus-hash")
POLICY = PolicyDefinition("shards", "^images$", "exchanges", {"shards-per-node": 2})
LIVE = LiveTopology(
    (IMAGES,),
    tuple(map(QueueDefinition, SHARDS)),
    tuple(BindingDefinition("images", shard) for shard in SHARDS),
    (POLICY,),
)


def test_a_policy_of_a_larger_priority_ends_the_sharding() -> None:
    other = PolicyDefinition("other", "^im", definition={"alternate-exchange": "x"}, priority=1)
    assert plugin_objects.find_kept_shards(as_live(replace(LIVE, policies=(POLICY, other)))) == frozenset()
    assert plugin_objects.find_kept_shards(LIVE) == frozenset(SHARDS)


def test_a_file_reports_the_policy_and_not_the_shards() -> None:
    written = plugin_objects.without_shards(LIVE)
    assert written.as_wanted() == Topology((IMAGES,), policies=(POLICY,))
    assert written.facts.left_out == ("4 shards of images: the plugin rabbitmq_sharding makes them",)
    assert plan(written.as_wanted(), LIVE).changes == ()
    assert plugin_objects.without_shards(written) is written


def test_a_ring_of_shards_is_the_plugins() -> None:
    hashing = ExchangeDefinition("images", "x-consistent-hash")
    live = replace(
        LIVE,
        exchanges=(replace(hashing, ring=tuple(RingMember(shard, "3") for shard in SHARDS)),),
        bindings=(),
    ).with_rings({})
    written = plugin_objects.without_shards(live)
    assert written.exchanges == (hashing,)
    assert plan(written.as_wanted(), live).changes == ()


def test_the_queues_of_an_exchange_that_is_deleted_are_no_shards() -> None:
    assert plugin_objects.find_kept_shards(LIVE, Topology()) == set(SHARDS)
    assert plugin_objects.find_kept_shards(LIVE, Topology(owns=("images",))) == set()
