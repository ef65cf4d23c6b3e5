"""The JSON of a plan: the format that other programs read."""

from __future__ import annotations

import json

import pytest
from sides import as_live

from rabbit_chx.routing import HashRing, Release
from rabbit_chx.topology import ExchangeDefinition, LiveTopology, QueueDefinition, RingMember, Topology, plan

RELEASE = Release("4.3.6")


@pytest.mark.all_seeds
def test_the_document_has_the_fields_of_the_format() -> None:
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
    assert (document["format"], document["format_version"]) == ("rabbit-chx/plan", 2)
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
    assert list(refusal) == ["message", "fix", "allow_with"]
    assert refusal["allow_with"].startswith("--allow-moved ")
    assert document["checksum"] == planned.checksum


@pytest.mark.parametrize("kind", ["x-modulus-hash", "x-consistent-hash"])
@pytest.mark.parametrize("count", [7, 60, 110, 400])
def test_a_matrix_lists_at_most_a_hundred_flows_and_the_number_of_the_others(kind: str, count: int) -> None:
    def bound(names: tuple[str, ...]) -> LiveTopology:
        if kind == "x-modulus-hash":
            exchange = ExchangeDefinition("h", kind, queues=names)
            return as_live(Topology((exchange,), tuple(map(QueueDefinition, names))), release=RELEASE)
        exchange = ExchangeDefinition("h", kind, ring=tuple(map(RingMember, names)))
        topology = Topology((exchange,), tuple(map(QueueDefinition, names)))
        return topology.with_rings({"h": HashRing.from_buckets(names, RELEASE)})

    names = tuple(f"q{number:03}" for number in range(count + 1))
    made = plan(bound(names).objects, bound(names[:-1]))
    (ring,) = json.loads(made.to_json())["rings"]
    matrix = made.rings["h"].matrix()
    assert matrix is not None
    every = len(matrix.amounts)
    cells = ring["matrix"].pop("cells")

    if every <= 100:
        assert ring["matrix"] == {"moved": matrix.moved, "least": matrix.least}
        assert cells == matrix.cells
        return
    assert ring["matrix"].pop("more_cells") == every - 100
    assert ring["matrix"] == {"moved": matrix.moved, "least": matrix.least}
    moves = [cell["amount"] for cell in cells if cell["from"] != cell["to"]]
    kept = [cell["amount"] for cell in cells if cell["from"] == cell["to"]]
    assert (len(cells), len(moves)) == (100, min(matrix.move_count, 100))
    assert (moves, kept) == (sorted(moves, reverse=True), sorted(kept, reverse=True))
    assert moves == [amount for *_, amount in matrix.moves()][: len(moves)]
    assert len({(cell["from"], cell["to"]) for cell in cells}) == 100
