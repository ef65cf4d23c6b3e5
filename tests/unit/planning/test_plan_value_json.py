"""The JSON of a plan: the format that other programs read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from plan_scenarios import SCENARIOS
from sides import as_live

from rabbit_chx.routing import HashRing, Release
from rabbit_chx.topology import ExchangeDefinition, LiveTopology, QueueDefinition, RingMember, Topology, plan

RELEASE = Release("4.3.6")


@pytest.mark.all_seeds
def test_the_document_is_the_stored_one() -> None:
    name = "19-a-limit-of-the-exchange"
    made = plan(*SCENARIOS[name])
    stored = json.loads((Path(__file__).parent / "plans" / f"{name}.json").read_text("utf-8"))
    document = json.loads(made.to_json())
    assert str(made).splitlines()[-1] == f"checksum    {made.checksum}"

    assert list(document) == list(stored)
    assert document == stored
    (ring,) = document["rings"]
    for side in ("before", "after"):
        assert HashRing.from_json(json.dumps(ring[side])) == getattr(made.rings["orders"], side)


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
    made = plan(bound(names).as_wanted(), bound(names[:-1]))
    (ring,) = json.loads(made.to_json())["rings"]
    matrix = made.rings["h"].matrix()
    assert matrix is not None
    every = len(matrix)
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
