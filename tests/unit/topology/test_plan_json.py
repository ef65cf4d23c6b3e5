"""The JSON of a plan: the format that other programs read."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from slot_files import live_of, slotted

from rabbit_chx.routing import ExchangeRef, HashRing, SlotTable
from rabbit_chx.topology import ExchangeDefinition, QueueDefinition, RingMember, Topology, plan


@pytest.mark.all_seeds
def test_the_format() -> None:
    queues = (QueueDefinition("a"), QueueDefinition("b"))
    wanted = Topology(
        (ExchangeDefinition("h", "x-consistent-hash", ring=(RingMember("b"), RingMember("a"))),),
        queues,
        max_share_moved=0.5,
    )
    live = Topology((ExchangeDefinition("h", "x-consistent-hash", ring=(RingMember("a"),)),), queues)
    planned = plan(wanted, live.with_rings({"h": HashRing.from_buckets(["a"])}))

    document = json.loads(planned.to_json())

    assert list(document) == [
        "format",
        "format_version",
        "changes",
        "rings",
        "refusals",
        "checksum",
        "unmanaged",
    ]
    assert (document["format"], document["format_version"]) == ("rabbit-chx/plan", 1)
    assert document["changes"][0] == {
        "action": "bind",
        "kind": "binding",
        "name": "h -> b (key 1)",
        "fields": [
            {"field": "source", "old": None, "new": "h"},
            {"field": "destination", "old": None, "new": "b"},
            {"field": "routing_key", "old": None, "new": "1"},
        ],
    }
    (ring,) = document["rings"]
    assert list(ring) == ["exchange", "moved", "moved_at_worst", "proposals", "before", "after", "matrix"]
    assert (ring["exchange"], ring["moved"]) == ("h", planned.rings["h"].moved)
    assert [proposal["strategy"] for proposal in ring["proposals"]][:2] == [
        "as-written",
        "least-moving-order",
    ]
    assert list(ring["proposals"][0]) == ["strategy", "moved", "moved_at_worst", "ring"]
    assert ring["proposals"][0]["ring"] == [{"queue": "b", "weight": "1"}, {"queue": "a", "weight": "1"}]
    assert HashRing.from_json(json.dumps(ring["before"])) == HashRing.from_buckets(["a"])
    assert HashRing.from_json(json.dumps(ring["after"])) == planned.rings["h"].after
    half = planned.rings["h"].moved
    assert ring["matrix"] == {
        "moved": half,
        "least": half,
        "cells": [
            {"from": "a", "to": "b", "amount": half},
            {"from": "a", "to": "a", "amount": 1 - half},
        ],
    }
    (refusal,) = document["refusals"]
    assert list(refusal) == ["says", "message", "fix", "allow_with"]
    assert refusal["allow_with"].startswith("--allow-moved ")
    assert document["checksum"] == planned.checksum


def test_the_proposal_of_slots_says_how_many() -> None:
    ring = tuple(RingMember(name, "10") for name in "ab")
    live = Topology(
        (ExchangeDefinition("h", "x-consistent-hash", ring=ring),), tuple(map(QueueDefinition, "ab"))
    )
    wanted = replace(live, exchanges=(replace(live.exchanges[0], ring=ring[::-1]),))

    document = plan(wanted, live.with_rings({"h": HashRing.from_buckets([*"a" * 10, *"b" * 10])})).to_json()

    *others, slots = json.loads(document)["rings"][0]["proposals"]
    assert not any("slots" in proposal for proposal in others)
    assert list(slots)[4:] == ["slots"]
    assert (slots["strategy"], slots["slots"]) == ("slots", 20)


def test_arguments_and_exchanges_as_a_file_writes_them() -> None:
    wanted = Topology(
        (
            ExchangeDefinition(
                "h", "x-consistent-hash", ring=(RingMember(ExchangeRef("x"), "2", {"k": [1, {"l": True}]}),)
            ),
            ExchangeDefinition("x", arguments={"list": ["a", 1.5]}),
        )
    )

    document = json.loads(plan(wanted, Topology()).to_json())

    fields = {field["field"]: field["new"] for change in document["changes"] for field in change["fields"]}
    assert fields["arguments.list"] == ["a", 1.5]
    assert fields["arguments.k"] == [1, {"l": True}]
    assert fields["destination"] == "exchange x"


def test_each_slot_that_changes_hands_has_its_old_and_its_new_queue() -> None:
    live = live_of(slotted(8, '[{ queue = "events.{1..2}" }]'))
    bare = replace(
        live, bindings=tuple(binding for binding in live.bindings if binding.source != "events.slot.01")
    )
    lists = '[{ queue = "events.1", slots = [0, 1, 2] }, { queue = "events.2", slots = [3, 4, 5, 6, 7] }]'

    (ring,) = json.loads(plan(slotted(8, lists), bare).to_json())["rings"]

    assert SlotTable.from_json(json.dumps(ring["before"])).queue_of(ExchangeRef("events.slot.01")) is None
    assert SlotTable.from_json(json.dumps(ring["after"])).shares().keys() == {"events.1", "events.2"}
    assert {"exchange": "events.park"} in [cell["from"] for cell in ring["matrix"]["cells"]]
    assert ring["handed_over"] == [
        {"slot": "events.slot.01", "old": None, "new": "events.1"},
        {"slot": "events.slot.03", "old": "events.1", "new": "events.2"},
    ]
    (same,) = json.loads(plan(slotted(8, lists), live_of(slotted(8, lists))).to_json())["rings"]
    assert same["handed_over"] == []


def test_what_is_left_as_it_is_and_a_ring_that_hashes_something_else() -> None:
    ring = (RingMember("a"), RingMember("b"))
    queues = tuple(map(QueueDefinition, "abc"))
    live = Topology((ExchangeDefinition("h", "x-consistent-hash", ring=ring),), queues)
    wanted = Topology((replace(live.exchanges[0], arguments={"hash-header": "tenant"}),), queues[:2])

    document = json.loads(plan(wanted, live.with_rings({"h": HashRing.from_buckets(["a", "b"])})).to_json())

    assert document["unmanaged"] == [{"kind": "queue", "name": "c"}]
    assert (document["rings"][0]["moved"], document["rings"][0]["matrix"]) == (1.0, None)
