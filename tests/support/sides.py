"""A topology as the live side of a plan or a check."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from rabbit_chx.records.live_rings import evidence_of
from rabbit_chx.topology import LiveTopology, Topology


def as_live(topology: Topology | LiveTopology, **changes: Any) -> LiveTopology:
    """Return what a broker with exactly these objects has; `changes` are other attributes of the topology, or of what is known about it."""
    live = LiveTopology.of_file(topology) if isinstance(topology, Topology) else topology
    parts: dict[str, Any] = {
        "queues": live.facts.queues,
        "limits": live.facts.limits,
        "evidence": evidence_of(live),
    }
    own = {field.name for field in fields(live)}
    of_facts: dict[str, Any] = {}
    for name, part in parts.items():
        known = {field.name for field in fields(part)} - own
        of_facts[name] = replace(part, **{key: changes.pop(key) for key in known & changes.keys()})
    of_facts |= {
        field.name: changes.pop(field.name)
        for field in fields(live.facts)
        if field.name in changes.keys() - own
    }
    return replace(live, facts=replace(live.facts, **of_facts), **changes)
