"""A topology as the live side of a plan or a check."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from rabbit_chx.topology import BrokerFacts, LiveTopology, Topology

_FACTS = {field.name for field in fields(BrokerFacts)}


def as_live(topology: Topology | LiveTopology, **changes: Any) -> LiveTopology:
    """Return what a broker with exactly these objects has; `changes` are other attributes of the topology or of its facts."""
    live = LiveTopology.of_file(topology) if isinstance(topology, Topology) else topology
    facts = {name: value for name, value in changes.items() if name in _FACTS}
    others = {name: value for name, value in changes.items() if name not in _FACTS}
    return replace(live, facts=replace(live.facts, **facts), **others)
