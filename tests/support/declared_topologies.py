"""Topologies of few names, made by hypothesis, so that two of them have much in common. A broker can hold each of them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from rabbit_chx.routing import ExchangeRef
from rabbit_chx.routing.bindings import MAX_BINDING_WEIGHT
from rabbit_chx.topology import (
    BindingDefinition,
    ExchangeDefinition,
    PolicyDefinition,
    QueueDefinition,
    RingMember,
    Topology,
)

_CHX = "x-consistent-hash"
_QUEUES = tuple(f"q{n}" for n in range(6))
_EXCHANGES = ("x0", "x1", "hash0", "hash1")
_ARGUMENTS: list[dict[str, Any]] = [
    {},
    {},
    {},
    {"x-max-length": 5},
    {"x-max-length": 6},
    {"x-single-active-consumer": False},
    {"x-single-active-consumer": True},
]


def rings_of(places: list[Any], *, heavy: bool = False) -> st.SearchStrategy[tuple[RingMember, ...]]:
    """Return rings of some of these destinations; `heavy`: now and then with the largest weight of the newest releases."""
    weights = st.sampled_from(["1"] * 6 + ["2", "3"] * 2 + ([str(MAX_BINDING_WEIGHT)] if heavy else []))
    return st.lists(
        st.builds(RingMember, st.sampled_from(places), weights, st.sampled_from([{}, {}, {"k": 1}])),
        unique_by=lambda member: member.destination,
        max_size=len(places),
    ).map(tuple)


@st.composite
def declared_topologies(draw: st.DrawFn, *, owns: tuple[str, ...] = ()) -> Topology:
    """Return a topology whose bindings have both ends in it.

    Args:
        draw: given by hypothesis.
        owns: its patterns of owned names.
    """
    queues = [
        QueueDefinition(
            name, draw(st.sampled_from(["classic", "quorum"])), arguments=draw(st.sampled_from(_ARGUMENTS))
        )
        for name in draw(st.lists(st.sampled_from(_QUEUES), unique=True, min_size=1))
    ]
    names = draw(st.lists(st.sampled_from(_EXCHANGES), unique=True))
    places = [
        *(queue.name for queue in queues),
        *(ExchangeRef(name) for name in names if name.startswith("x")),
    ]
    exchanges = []
    bindings = []
    for name in names:
        hashing = name.startswith("hash") or draw(st.integers(0, 5)) == 0
        if hashing:
            others = [place for place in places if place != ExchangeRef(name)]
            about: dict[str, Any] = {"type": _CHX, "ring": draw(rings_of(others))}
        else:
            about = {"type": draw(st.sampled_from(["topic", "topic", "fanout"]))}
            made = st.builds(
                BindingDefinition, st.just(name), st.sampled_from(places), st.sampled_from(["a", "b"])
            )
            bindings += draw(st.lists(made, unique=True, max_size=3))
        exchanges.append(ExchangeDefinition(name, durable=draw(st.integers(0, 5)) > 0, **about))
    policies = [
        PolicyDefinition(name, ".*", definition={"max-length": draw(st.integers(1, 2))})
        for name in draw(st.lists(st.sampled_from(["p0", "p1"]), unique=True))
    ]
    return Topology(tuple(exchanges), tuple(queues), tuple(bindings), tuple(policies), owns=owns)
