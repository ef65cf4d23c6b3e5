"""The JSON of a plan: the format that other programs read."""

from __future__ import annotations

import json

import pytest

from rabbit_chx.routing import HashRing
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
