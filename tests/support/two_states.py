"""Pairs of a topology file and a broker that have most in common, made by hypothesis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

from hypothesis import strategies as st
from sides import as_live

from rabbit_chx.planning.slot_layout import expand
from rabbit_chx.routing import Destination, ExchangeRef, HashRing, Release
from rabbit_chx.topology import (
    BindingDefinition,
    ExchangeDefinition,
    LiveTopology,
    PolicyDefinition,
    QueueDefinition,
    RingMember,
    Topology,
)

_Draw: TypeAlias = st.DrawFn
_Edit: TypeAlias = Callable[[_Draw, Topology], Topology]
_QUEUES = tuple(f"q{n}" for n in range(5))
_PLACES: Sequence[Destination] = (*_QUEUES, ExchangeRef("x"), ExchangeRef("i"))
_CHX, _MODULUS = "x-consistent-hash", "x-modulus-hash"
_ARGUMENTS: Sequence[dict[str, Any]] = ({}, {"x-max-length": 5}, {"x-max-length": 6}, {"x-message-ttl": 5})


class TwoStates(NamedTuple):
    """A file and a broker."""

    wanted: Topology
    live: LiveTopology


def _members(places: Sequence[Destination]) -> st.SearchStrategy[tuple[RingMember, ...]]:
    members = st.builds(RingMember, st.sampled_from(places), st.sampled_from(["1", "1", "2", "3"]))
    return st.lists(members, unique_by=lambda member: member.destination, max_size=4).map(tuple)


def _slots(draw: _Draw) -> dict[str, Any]:
    queues = draw(st.lists(st.sampled_from(_QUEUES), min_size=1, max_size=3, unique=True))
    return {"slots": draw(st.integers(3, 6)), "members": tuple(map(RingMember, queues))}


def _base(draw: _Draw) -> Topology:
    """Return objects of each kind, whose ends exist."""
    exchanges = [ExchangeDefinition("x", "fanout"), ExchangeDefinition("t", "topic")]
    exchanges.append(ExchangeDefinition("i", "fanout", internal=True))  # a slot that is not of a layout
    bindings = [BindingDefinition("x", "q0"), BindingDefinition("t", ExchangeRef("x"), "a")]
    bindings.append(BindingDefinition("i", "q1"))
    exchanges.append(ExchangeDefinition("h", _CHX, ring=draw(_members(_PLACES))))
    if draw(st.booleans()):
        exchanges.append(ExchangeDefinition("s", _CHX, **_slots(draw)))
    if draw(st.booleans()):
        listed = draw(st.lists(st.sampled_from(_QUEUES), max_size=3, unique=True))
        exchanges.append(ExchangeDefinition("m", _MODULUS, queues=tuple(listed)))
        bindings += (BindingDefinition("m", queue, "m") for queue in listed)
    policies = (PolicyDefinition("p", "^(t$|s[.])", "exchanges", {"alternate-exchange": "x"}),)
    return Topology(tuple(exchanges), tuple(map(QueueDefinition, _QUEUES)), tuple(bindings), policies)


def _one(kind: str, *fields: str) -> _Edit:
    """Return an edit that changes a field of an object of a kind, or leaves the object out."""

    def edit(draw: _Draw, topology: Topology) -> Topology:
        objects = getattr(topology, kind)
        if not objects:
            return topology
        position = draw(st.integers(0, len(objects) - 1))
        changed: dict[str, Any] = {kind: _edited(draw, objects, position, draw(st.sampled_from(fields)))}
        return replace(topology, **changed)

    return edit


def _edited(draw: _Draw, objects: tuple[Any, ...], position: int, field: str) -> tuple[Any, ...]:
    one, is_exchange = objects[position], isinstance(objects[position], ExchangeDefinition)
    others = objects[:position], objects[position + 1 :]
    if field == "gone":
        return (*others[0], *others[1])
    if field in ("ring", "slots") and getattr(one, field) is None:
        return objects
    if field == "type" and one.type in (_CHX, _MODULUS):
        return objects
    exchanges = [{"hash-header": "k"}, {"k": 1}, {"alternate-exchange": "x"}]
    tables = st.sampled_from(exchanges if is_exchange else _ARGUMENTS)
    values: dict[str, st.SearchStrategy[Any]] = {
        "owner": st.just("external"),
        "arguments": tables,
        "type": st.sampled_from(["fanout", "topic"] if is_exchange else ["quorum"]),
        "priority": st.just(3),
        "durable": st.just(value=False),
    }
    if field == "ring":
        values["ring"] = st.one_of(_members(_PLACES), st.permutations(one.ring).map(tuple))
    new = _slots(draw) if field == "slots" else {field: draw(values[field])}
    return (*others[0], replace(one, **new), *others[1])


_ROUTES = ("x", "t", "m", "i")


def _bind(draw: _Draw, topology: Topology) -> Topology:
    """Add a binding of an exchange without a ring."""
    sources = [one.name for one in topology.exchanges if one.name in _ROUTES or one.name.startswith("s.")]
    if not sources:
        return topology
    source, queue = draw(st.sampled_from(sources)), draw(st.sampled_from(_QUEUES))
    binding = BindingDefinition(source, queue, draw(st.sampled_from(["", "a", "m"])))
    return replace(topology, bindings=tuple(dict.fromkeys((*topology.bindings, binding))))


def _own(draw: _Draw, topology: Topology) -> Topology:
    return replace(
        topology, owns=draw(st.sampled_from([("*",), ("q*",), ("q*", "s*", "x", "i"), ("h", "q*", "m")]))
    )


def _limit(draw: _Draw, topology: Topology) -> Topology:
    return replace(topology, max_share_moved=draw(st.sampled_from([0.0, 0.1, 0.5])))


_COMMON: tuple[_Edit, ...] = (
    _one("exchanges", "gone", "durable", "type", "arguments", "ring", "ring", "slots"),
    _one("queues", "gone", "durable", "type", "arguments"),
    _one("bindings", "gone"),
    _one("policies", "gone", "priority"),
    _bind,
)
_OF_FILE: tuple[_Edit, ...] = (*_COMMON, _one("exchanges", "owner"), _one("queues", "owner"), _own, _limit)


def _edit(draw: _Draw, topology: Topology, edits: Sequence[_Edit]) -> Topology:
    for edit in draw(st.lists(st.sampled_from(edits), max_size=3)):
        topology = edit(draw, topology)
    return topology


def _rings(draw: _Draw, topology: Topology, release: Release) -> dict[str, HashRing]:
    """Return the rings of the members, some of them changed by a restart, with buckets of what is gone, or with holes."""
    rings = {}
    for exchange in topology.exchanges:
        if exchange.ring is None:
            continue
        bindings = [member.binding for member in exchange.ring]
        buckets: list[Any] = [*HashRing.from_bindings(bindings, release).buckets]
        match draw(st.sampled_from(["as bound"] * 4 + ["turned", "ghost", "hole"])):
            case "turned":
                buckets = buckets[1:] + buckets[:1]
            case "ghost":
                buckets.append("gone")
            case "hole":
                buckets.insert(0, None)
        rings[exchange.name] = HashRing.from_buckets(buckets, release, next_bucket=len(buckets))
    return rings


@st.composite
def two_states(draw: _Draw, releases: st.SearchStrategy[Release]) -> TwoStates:
    """Return a file and a broker. Their common objects were changed by up to three edits on each side."""
    base, release = _base(draw), draw(releases)
    wanted = _edit(draw, base, _OF_FILE)
    there = _edit(draw, _plain(_edit(draw, base, _COMMON)), _COMMON)
    return TwoStates(wanted, as_live(there, release=release).with_rings(_rings(draw, there, release)))


def _plain(topology: Topology) -> Topology:
    plain = expand(topology, LiveTopology())
    return replace(plain, exchanges=tuple(replace(one, queues=None) for one in plain.exchanges))
