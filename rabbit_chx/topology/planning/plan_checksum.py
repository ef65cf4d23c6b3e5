"""The checksum of a plan: the same for the same two sides, whatever the order of their parts and whoever computes it."""

from __future__ import annotations

import hashlib
import json
from itertools import groupby
from typing import TYPE_CHECKING, Any

from rabbit_chx.routing import ExchangeRef
from rabbit_chx.topology.argument_table import plain
from rabbit_chx.topology.objects import BindingDefinition, ExchangeDefinition
from rabbit_chx.topology.planning.object_differences import by_name
from rabbit_chx.topology.planning.plan_json import change_entry, ring_entries
from rabbit_chx.topology.planning.planned_change import fields_between, kind_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rabbit_chx.routing import HashRing
    from rabbit_chx.topology.model import Topology
    from rabbit_chx.topology.planning.planned_change import PlannedChange, TopologyObject
    from rabbit_chx.topology.planning.ring_plan import RingPlan

__all__ = ["checksum_of"]


def checksum_of(
    wanted: Topology, live: Topology, changes: tuple[PlannedChange, ...], rings: Mapping[str, RingPlan]
) -> str:
    """Return the sha256 of what is wanted, of what is there of it, and of the changes, in hexadecimal digits.

    Args:
        wanted: what should be there.
        live: what is there. What is neither wanted nor changed does not count.
        changes: the operations, in order.
        rings: the plans of the rings, by exchange.
    """
    ours = {*by_name(wanted), *((one.kind, one.name) for one in changes if one.live is not None)}
    bindings = {*map(_identity, wanted.bindings)}
    bindings.update(_identity(one.live) for one in changes if isinstance(one.live, BindingDefinition))
    names = sorted({*rings, *(one.name for one in wanted.exchanges if one.name in live.rings)})
    document = {
        "wanted": {
            "cluster": wanted.cluster,
            "max_share_moved": _number(wanted.max_share_moved),
            "owns": sorted(set(wanted.owns)),
            "objects": _sorted([*by_name(wanted).values(), *wanted.bindings]),
        },
        "live": {
            "cluster": live.cluster,
            "release": None if live.release is None else [live.release.version, live.release.store],
            "objects": _sorted(
                [
                    *(one for key, one in by_name(live).items() if key in ours),
                    *(one for one in live.bindings if _identity(one) in bindings),
                ]
            ),
            "rings": {
                name: _ring(rings[name].before if name in rings else live.rings[name]) for name in names
            },
        },
        "changes": [change_entry(change) for change in changes],
    }
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _number(value: float | None) -> float | None:
    return None if value is None else float(value)


def _identity(one: BindingDefinition) -> tuple[Any, ...]:
    return one.source, one.destination, one.routing_key, one.arguments


def _sorted(objects: Iterable[TopologyObject]) -> list[str]:
    return sorted(json.dumps(_entry(one), sort_keys=True) for one in objects)


def _entry(one: TopologyObject) -> dict[str, Any]:
    entry: dict[str, Any] = {"kind": kind_of(one), "owner": one.owner}
    entry["fields"] = plain({field.field: field.new for field in fields_between(None, one)})
    if isinstance(one, BindingDefinition):
        entry["to_exchange"] = isinstance(one.destination, ExchangeRef)
        return entry
    entry["name"] = one.name
    if isinstance(one, ExchangeDefinition):
        entry["ring"] = None if one.ring is None else ring_entries(one.ring)
        entry["slots"] = one.slots
        entry["members"] = None if one.members is None else ring_entries(one.members)
        entry["max_share_moved"] = _number(one.max_share_moved)
    return entry


def _ring(ring: HashRing) -> dict[str, Any]:
    places = [{"exchange": place.name} if isinstance(place, ExchangeRef) else place for place in ring.buckets]
    return {
        "provenance": ring.provenance,
        "release": [ring.release.version, ring.release.store],
        "buckets": [[place, len(list(run))] for place, run in groupby(places)],
    }
