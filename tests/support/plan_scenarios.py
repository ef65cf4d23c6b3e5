"""Scenarios of plans, of tests/unit/planning/plans.toml: both sides of each."""

from __future__ import annotations

from pathlib import Path

from sides import as_live
from stored_scenarios import read_scenarios

from rabbit_chx import topology
from rabbit_chx.routing import HashRing, Release

_FILE = Path(__file__).parents[1] / "unit" / "planning" / "plans.toml"

#: No topology file may contain these names.
_ODD_NAMES = ["q{1..3}", "*new*\n# b", "@ops", "#12", "a\\b", "<br>", "\x1b[31m"]


def _odd_ring(names: list[str]) -> topology.ExchangeDefinition:
    return topology.ExchangeDefinition(
        "orders | `all`", "x-consistent-hash", ring=tuple(map(topology.RingMember, names))
    )


def _odd_names() -> tuple[topology.Topology, topology.LiveTopology]:
    limits = {"max-length": 5, "alternate-exchange": "a|b`c`"}
    wanted = topology.Topology(
        (_odd_ring(_ODD_NAMES),), policies=(topology.PolicyDefinition("p_1_", "^q|b$", definition=limits),)
    )
    there = [name for name in _ODD_NAMES if name != "*new*\n# b"]
    queues = (topology.QueueDefinition("*new*\n# b"), topology.QueueDefinition("left|over"))
    held = topology.Topology((_odd_ring(there),), queues, cluster="rabbit@prod")
    release = Release("4.3.6")
    ring = HashRing.from_buckets(there, release, next_bucket=len(there))
    return wanted, as_live(held, release=release).with_rings({"orders | `all`": ring})


SCENARIOS: dict[str, tuple[topology.Topology, topology.LiveTopology]] = {
    name: (scenario.wanted, scenario.live)
    for name, scenario in read_scenarios(_FILE).items()
    if scenario.wanted
} | {"37-names-that-a-page-or-a-terminal-takes-for-something-else": _odd_names()}
