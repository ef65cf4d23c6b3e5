"""Scenarios of plans and checks: what is on a broker, and the topology file, as tables of a TOML file.

A section of the file has one table for each scenario, and a table `all` with what its scenarios have in common.

Keys of a scenario:

- `there`: the objects on the broker. `file`: the topology file; without this key there is none. `both`: what both of them have. A key of
  `there` or `file` is taken instead of that of `both`.
- `release`, empty if it is not known, and `cluster`, the broker's own name.
- `buckets`: the buckets of rings, by exchange, with ``-`` for a hole. Default: those of the members. `members`: other bindings of rings than
  those of the buckets. `unread`: true if no ring was read.
- `changed`: other fields of exchanges and queues, by name. `gone`: exchanges that are missing, with their bindings. `unbound`: exchanges
  without bindings. `bound`: more bindings, as ``exchange queue key``.
- `policies` of the broker, and `facts`: the fields of `BrokerFacts`.
- All other keys are for the test.

Keys of `there`, `file` and `both` are those of a topology file, and some for a hash exchange `orders`:

- `ring`: its members, as ``q1 q2:3 (exchange) q{4..6}``. `exchange`: further fields of it.
- `declared`: the names of queues. Default: the queues of the ring. `each`: further fields of all of them. `queue`: further fields of some,
  by name.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from sides import as_live

from rabbit_chx.analysis import Finding
from rabbit_chx.errors import InputError
from rabbit_chx.planning.slot_layout import expand
from rabbit_chx.routing import ExchangeRef, HashRing, Release
from rabbit_chx.topology import BindingDefinition, LiveTopology, PolicyDefinition, RingMember, Topology
from rabbit_chx.topology.argument_table import toml_key, toml_value
from rabbit_chx.topology.model import Consumer, QueueUsage, Usage
from rabbit_chx.topology.ranges import expand as expand_ranges
from rabbit_chx.topology.schema import unordered_ring

Table = dict[str, Any]
_SIDES = ("both", "there", "file")


class Scenario(NamedTuple):
    """What is on a broker, the topology file, if any, and what else the scenario has."""

    live: LiveTopology
    wanted: Topology | None
    options: Table


def read_scenarios(path: Path) -> dict[str, Scenario]:
    """Return the scenarios of a file, by their names."""
    scenarios = {}
    for section in tomllib.loads(path.read_text("utf-8")).values():
        common = section.pop("all", {})
        for name, table in section.items():
            has_file = "file" in {**common, **table}
            both, there, file = ({**common.get(side, {}), **table.pop(side, {})} for side in _SIDES)
            others = {key: value for key, value in {**common, **table}.items() if key not in _SIDES}
            live = _live(_topology({**both, **there}), others)
            scenarios[name] = Scenario(live, _topology({**both, **file}) if has_file else None, others)
    return scenarios


def stored_sections(path: Path) -> dict[str, str]:
    """Return the stored text of each scenario."""
    parts = re.split(r"^## (.*)\n", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], (text.rstrip("\n") for text in parts[2::2]), strict=True))


def write_sections(path: Path, texts: Mapping[str, str]) -> None:
    """Write what `stored_sections` returns."""
    sections = (f"## {name}\n{text}\n" for name, text in texts.items())
    path.write_text("\n".join(sections), encoding="utf-8")


def _topology(side: Table) -> Topology:
    content = dict(side)
    ring, exchange, each, fields = (content.pop(key, None) for key in ("ring", "exchange", "each", "queue"))
    members = [_member(part) for part in (ring or "").split()]
    declared = content.pop("declared", " ".join(member.get("queue", "") for member in members))
    hashing = {"name": "orders", "type": "x-consistent-hash", "ring": members, **(exchange or {})}
    lists = {
        "exchanges": [] if ring is None else [hashing],
        "queues": [
            {"name": name, **(each or {}), **(fields or {}).get(name, {})} for name in declared.split()
        ],
    }
    content |= {key: [*entries, *content.get(key, [])] for key, entries in lists.items()}
    return Topology.from_toml(
        "\n".join(f"{toml_key(key)} = {toml_value(value)}" for key, value in content.items())
    )


def _member(part: str) -> Table:
    place, _, weight = part.partition(":")
    named = {"exchange": place[1:-1]} if place.startswith("(") else {"queue": place}
    return {**named, "weight": int(weight or 1)}


def _members(text: str) -> Iterator[tuple[Any, str]]:
    for part in text.split():
        for entry in expand_ranges({"name": part}, ["name"]):
            name, _, key = entry["name"].partition(":")
            place = None if name == "-" else ExchangeRef(name[1:-1]) if name.startswith("(") else name
            yield place, key or "1"


def _live(topology: Topology, table: Table) -> LiveTopology:
    """Return the live topology, and take what is about it out of the table."""
    taken = {key: table.pop(key, {}) for key in ("buckets", "members", "facts", "unread")}
    release = table.pop("release", "4.3.6")
    facts = {"release": Release(*release.split()) if release else None, **_typed(taken["facts"])}
    if "policies" in table:
        facts["policies"] = _policies(table.pop("policies"))
    live = as_live(_edited(topology, table), cluster=table.pop("cluster", "") or None, **facts)
    if taken["unread"]:
        return live.with_rings(dict(_unordered_rings(live)))
    rings = {}
    for exchange in live.exchanges:
        if exchange.ring is not None:
            if exchange.name in taken["buckets"]:
                pairs = _members(taken["buckets"][exchange.name])
                buckets = tuple(place for place, count in pairs for _ in range(int(count)))
            else:
                bindings = [member.binding for member in exchange.ring]
                buckets = HashRing.from_bindings(bindings, live.release).buckets
            rings[exchange.name] = HashRing.from_buckets(buckets, live.release, next_bucket=len(buckets))
    live = live.with_rings(rings)
    others = {
        name: tuple(RingMember(*pair) for pair in _members(text)) for name, text in taken["members"].items()
    }
    return replace(live, exchanges=tuple(replace(e, ring=others.get(e.name, e.ring)) for e in live.exchanges))


def _unordered_rings(live: LiveTopology) -> Iterator[tuple[str, HashRing]]:
    for exchange in live.exchanges:
        with suppress(InputError):  # the release refuses a weight
            yield exchange.name, unordered_ring(exchange.ring or (), live.release)


def _edited(topology: Topology, table: Table) -> Topology:
    """Return the plain objects as somebody else left them."""
    plain = expand(topology, LiveTopology())
    changed, gone = table.pop("changed", {}), table.pop("gone", [])
    unbound = {*gone, *table.pop("unbound", [])}
    bound = [BindingDefinition(*pair.split()) for pair in table.pop("bound", [])]
    objects: dict[str, Any] = {
        kind: tuple(
            replace(one, **changed.get(one.name, {})) for one in getattr(plain, kind) if one.name not in gone
        )
        for kind in ("exchanges", "queues")
    }
    bindings = (*(binding for binding in plain.bindings if binding.source not in unbound), *bound)
    return replace(plain, bindings=bindings, **objects)


def _policies(entries: Iterable[Table]) -> tuple[PolicyDefinition, ...]:
    return tuple(PolicyDefinition(**{"apply_to": "queues", **entry}) for entry in entries)


def _usage(table: Table) -> Usage:
    queues = {
        name: QueueUsage(**{**counted, "priorities": tuple(counted.get("priorities", ()))})
        for name, counted in table.get("queues", {}).items()
    }
    consumers = {
        name: [Consumer(**consumer) for consumer in listed]
        for name, listed in table.get("consumers", {}).items()
    }
    return Usage(table.get("published", {}), queues, consumers)


def _typed(facts: Table) -> Table:
    """Return facts with the types of `BrokerFacts`."""
    types: dict[str, Callable[[Any], Any]] = {
        "operator_policies": _policies,
        "oddities": lambda found: tuple(Finding(*finding) for finding in found),
        "applied_policies": lambda names: {queue: name or None for queue, name in names.items()},
        "usage": _usage,
    }
    sets = {
        key: frozenset(value) for key, value in facts.items() if isinstance(value, list) and key not in types
    }
    return {**facts, **sets, **{key: types[key](facts[key]) for key in types if key in facts}}
