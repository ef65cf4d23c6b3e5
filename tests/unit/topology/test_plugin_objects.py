"""What plugins make and own: no file says it, no check calls it unexpected, and no plan cuts a federation link without permission."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from model_broker import ModelBroker
from model_client import ModelClient
from sides import as_live

from rabbit_chx.routing import ExchangeRef, HashRing, Release
from rabbit_chx.topology import (
    BindingDefinition,
    ExchangeDefinition,
    LiveTopology,
    QueueDefinition,
    RingMember,
    Topology,
    check,
    plan,
)
from rabbit_chx.topology.plugin_objects import plugin_objects, without_plugin_objects
from rabbit_chx.topology.slots import collapse, expand

UP = "federation: h -> rabbit@a:down:h"
LINK = ExchangeRef(f"{UP} A")
RELEASE = Release("4.3.6")
#: The objects of a link, as the sources of 4.3.6 declare them, in the vhost of the upstream.
EXCHANGES = json.loads("""[{"arguments": {"x-downstream-name": "rabbit@a", "x-downstream-vhost": "down", "x-internal-purpose": "federation",
 "x-max-hops": 1}, "auto_delete": true, "durable": true, "internal": true, "name": "federation: h -> rabbit@a:down:h A",
 "type": "x-federation-upstream", "user_who_performed_action": "guest", "vhost": "up"}]""")
QUEUES = json.loads("""[{"arguments": {"x-internal-purpose": "federation", "x-queue-type": "classic"}, "auto_delete": false, "durable": true,
 "exclusive": false, "name": "federation: h -> rabbit@a:down:h", "type": "classic", "vhost": "up"}]""")
BINDINGS = json.loads("""[{"source": "h", "destination": "federation: h -> rabbit@a:down:h A", "destination_type": "exchange", "routing_key": "10",
 "arguments": {"x-bound-from": [{"cluster-name": "rabbit@a", "exchange": "down:h A", "hops": 1, "vhost": "down"}]}},
 {"source": "federation: h -> rabbit@a:down:h A", "destination": "federation: h -> rabbit@a:down:h", "destination_type": "queue",
 "routing_key": "", "arguments": {}}]""")
TEXT = """
[[exchanges]]
name = "h"
type = "x-consistent-hash"
ring = [{ queue = "u.{1..3}", weight = 10 }]
[[queues]]
name = "u.{1..4}"
"""
FILE = Topology.from_toml(TEXT)
LONGER = Topology.from_toml(TEXT.replace("u.{1..3}", "u.{1..4}"))
OWNING = replace(FILE, owns=("*",))


class Federated(ModelClient):
    """A client whose management API also lists a link, as recorded: no model broker has the plugin."""

    def _listed(self, kind: str, *path: str) -> Any:
        listed = super()._listed(kind, *path)
        of_link = {"exchanges": EXCHANGES, "queues": QUEUES, "bindings": BINDINGS}
        return [*listed, *of_link[kind]] if kind in of_link else listed


def linked(ring: HashRing | None = None) -> LiveTopology:
    """Return the live topology of FILE with a link, whose ring was read."""
    live = Federated(ModelBroker.holding(FILE, RELEASE)).live()
    made = HashRing.from_bindings([("u.1", 10), ("u.2", 10), ("u.3", 10), (LINK, 10)], RELEASE)
    read = HashRing.from_buckets((ring or made).buckets, RELEASE)
    return live.with_rings({"h": read})


def test_the_objects_of_a_link_are_left_out_of_a_file_and_named() -> None:
    live = linked()
    assert plugin_objects(live) == {LINK, UP}
    written = without_plugin_objects(live)
    assert "federation" not in written.to_toml()
    assert replace(written.objects, cluster=None) == FILE
    assert written.facts.left_out[-2:] == (
        f"exchanges of federation links: {LINK.name}: the plugin rabbitmq_federation makes them",
        f"queues of federation links: {UP}: the plugin rabbitmq_federation makes them",
    )
    assert plan(written.objects, live).changes == ()


@pytest.mark.parametrize("wanted", [FILE, OWNING], ids=["unowned", "owned"])
def test_a_plan_keeps_a_link(wanted: Topology) -> None:
    made = plan(wanted, linked())
    assert (made.changes, made.refusals, made.unmanaged) == ((), (), ())


def test_a_new_member_is_bound_behind_a_link() -> None:
    made = plan(LONGER, linked())
    assert [(change.action, change.binding.destination) for change in made.changes] == [("bind", "u.4")]
    assert made.refused(allow_moved=1.0) == ()
    assert made.rings["h"].after.destinations == ("u.1", "u.2", "u.3", LINK, "u.4")


def test_a_check_finds_the_link_once_with_its_share() -> None:
    live = linked()
    for wanted in (FILE, OWNING, None):
        (finding,) = check(live, wanted).findings
        assert (finding.kind, finding.exchange, finding.destination) == ("federation-link", "h", LINK)
        assert finding.share == live.rings["h"].shares()[LINK]
        assert "takes 25.018% of the keys" in finding.message
        assert "repair" not in finding.fix
    assert check(live, FILE).misplaced == {"h": 0.0}


def test_a_plan_that_cuts_a_link_is_refused_with_a_flag_of_its_own() -> None:
    ring = HashRing.from_bindings([("u.3", 10), (LINK, 10), ("u.1", 10), ("u.2", 10)], RELEASE)
    live = linked(ring)
    made = plan(FILE, live)
    assert ("unbind", LINK) in [(change.action, change.binding.destination) for change in made.changes]
    (refusal,) = made.refused(allow_moved=1.0, allow_delete=True, allow_vhost=True)
    assert (refusal.kind, str(refusal.override)) == ("unlink", "allow_unlink=True")
    assert LINK.name in refusal.message
    assert made.refused(allow_moved=1.0, allow_unlink=True) == ()
    assert made.changes[-1].action == "bind"
    assert LINK in made.rings["h"].after.destinations


@pytest.mark.parametrize("way", ["delete", "replace"])
def test_without_its_exchange_a_link_is_cut_too(way: str) -> None:
    h = FILE.exchanges[0]
    wanted = (
        Topology(owns=("h",)) if way == "delete" else replace(FILE, exchanges=(replace(h, durable=False),))
    )
    made = plan(wanted, linked())
    assert (way, "h") in [(change.action, change.name) for change in made.changes]
    kinds = {refusal.kind for refusal in made.refused(allow_moved=1.0, allow_delete=True)}
    assert kinds == {"unlink"}
    assert not any(change.action == "delete" and change.name in (LINK.name, UP) for change in made.changes)


def test_a_link_of_another_exchange_and_of_a_modulus_exchange_stays() -> None:
    text = '[[exchanges]]\nname = "m"\ntype = "x-modulus-hash"\nqueues = ["q{1..3}"]\n[[queues]]\nname = "q{1..3}"\n'
    wanted = replace(Topology.from_toml(text), owns=("*",))
    link = ExchangeDefinition(
        LINK.name, "fanout", internal=True, auto_delete=True, arguments={"x-internal-purpose": "federation"}
    )
    live = as_live(Topology.from_toml(text), release=RELEASE)
    live = replace(
        live,
        exchanges=(*(replace(exchange, queues=None) for exchange in live.exchanges), link),
        bindings=(*live.bindings, BindingDefinition("m", LINK), BindingDefinition("amq.topic", LINK, "a.#")),
    )
    assert plan(wanted, live).changes == ()
    found = check(live, wanted)
    assert [(finding.kind, finding.share) for finding in found.findings] == [("federation-link", 0.25)]
    assert found.misplaced == {"m": 0.0}


def test_a_link_next_to_slots_stays_and_an_export_has_the_slots() -> None:
    text = """
[[exchanges]]
name = "h"
type = "x-consistent-hash"
slots = 8
members = [{ queue = "u.{1..2}", weight = 1 }]
[[queues]]
name = "u.{1..2}"
"""
    wanted = Topology.from_toml(text)
    live = Federated(ModelBroker.holding(expand(wanted, LiveTopology()), RELEASE)).live()
    members = next(exchange.ring for exchange in live.exchanges if exchange.name == "h") or ()
    ring = HashRing.from_bindings([member.binding for member in members], RELEASE)
    live = live.with_rings({"h": HashRing.from_buckets(ring.buckets, RELEASE)})
    assert LINK in ring.destinations
    assert plan(wanted, live).changes == ()
    found = check(live, wanted)
    assert [finding.kind for finding in found.findings] == ["federation-link"]
    assert found.misplaced == {"h": 0.0}
    (exported,) = collapse(without_plugin_objects(live)).exchanges
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
    assert (without_plugin_objects(as_live(live)).queues == ()) is is_of_plugin


def test_the_link_of_a_definitions_file_of_4_3_counts_by_its_name() -> None:
    ring = (RingMember("u.1"), RingMember(LINK))
    read = Topology((ExchangeDefinition("h", "x-consistent-hash", ring=ring),))
    assert [
        member.destination for member in without_plugin_objects(as_live(read)).exchanges[0].ring or ()
    ] == ["u.1"]
