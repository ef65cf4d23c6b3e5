"""Topologies made by hypothesis, and a short way to the problems of a file."""

from __future__ import annotations

import re
from operator import attrgetter
from typing import Any

from hypothesis import strategies as st

from rabbit_chx import topology
from rabbit_chx.errors import TopologyError
from rabbit_chx.routing import ExchangeRef, Release
from rabbit_chx.topology.objects import Owner

_CHX = "x-consistent-hash"


def problems_in(text: str, release: Release | None = None) -> list[str]:
    """Return the problems of a file, each as ``path: rule; remedy`` and without its value; a good file has none."""
    try:
        topology.Topology.from_toml(text, release=release)
    except TopologyError as error:
        return [f"{problem.subject.partition(' = ')[0]}: {problem.text}" for problem in error.problems]
    return []


def _is_name(text: str) -> bool:
    return len(text.encode()) <= 255 and not text.startswith("amq.") and not set(text) & {"\r", "\n"}


#: Names with what is hard to fold, escape and quote.
names = st.one_of(
    st.builds("{}{}".format, st.sampled_from(["q", "q.", "a-", "é", ""]), st.integers(0, 30)),
    st.builds("q.{:02d}".format, st.integers(0, 30)),
    st.lists(st.sampled_from(["{1..2}", "{1-2}", "{", "}", "..", "1", "9", "a"]), min_size=1, max_size=5).map("".join),
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=20),
).filter(_is_name)  # fmt: skip
_scalars = st.one_of(
    st.text(st.characters(codec="utf-8"), max_size=10),
    st.booleans(),
    st.integers(-(1 << 63), (1 << 63) - 1),
)
#: Arguments of names that no rule is about.
arguments = st.dictionaries(
    names.map("k-{}".format),
    st.recursive(_scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=2)),
    max_size=2,
)  # fmt: skip
_owners: st.SearchStrategy[Owner] = st.sampled_from(["ours", "external"])
_destinations = names | names.map(ExchangeRef)
_weights = st.integers(1, 20) | st.sampled_from(["007", "+5", "12"])
_shares = st.none() | st.floats(0, 1)


def _rings() -> st.SearchStrategy[list[topology.RingMember]]:
    members = st.builds(topology.RingMember, _destinations, _weights, arguments)
    return st.lists(members, max_size=6, unique_by=lambda member: member.destination)


def _slotted(draw: st.DrawFn) -> dict[str, Any]:
    queues = draw(st.lists(names, min_size=1, max_size=4, unique=True))
    if draw(st.booleans()):
        numbers = draw(st.permutations(range(draw(st.integers(len(queues), 12)))))
        lists = [numbers[n :: len(queues)] for n in range(len(queues))]
        members = [
            topology.RingMember(queue, slots=tuple(some)) for queue, some in zip(queues, lists, strict=True)
        ]
        return {"slots": len(numbers), "members": members}
    weights = draw(st.lists(_weights, min_size=len(queues), max_size=len(queues)))
    numbers = [int(weight) for weight in weights]
    least = -(-sum(numbers) // min(numbers))
    members = [topology.RingMember(queue, str(weight)) for queue, weight in zip(queues, weights, strict=True)]
    return {"slots": draw(st.integers(least, least + 60)), "members": members}


@st.composite
def _exchanges(draw: st.DrawFn) -> topology.ExchangeDefinition:
    about: dict[str, Any] = {}
    type_ = draw(st.sampled_from(["direct", "topic", "x-modulus-hash", _CHX, _CHX]))
    if type_ == _CHX:
        about = _slotted(draw) if draw(st.booleans()) else {"ring": draw(_rings())}
        about["max_share_moved"] = draw(_shares)
    for flag in ("durable", "auto_delete", "internal"):
        about[flag] = draw(st.booleans())
    return topology.ExchangeDefinition(
        draw(names), type_, arguments=draw(arguments), owner=draw(_owners), **about
    )


@st.composite
def _queues(draw: st.DrawFn) -> topology.QueueDefinition:
    type_ = draw(st.sampled_from(["classic", "quorum", "stream"]))
    flags = [draw(st.booleans()) for _ in range(3)] if type_ == "classic" else [True, False, False]
    durable, exclusive, auto_delete = flags
    return topology.QueueDefinition(
        draw(names), type_, durable, exclusive, auto_delete, draw(arguments), draw(_owners)
    )


def bindings(sources: st.SearchStrategy[str]) -> st.SearchStrategy[topology.BindingDefinition]:
    """Return bindings of some exchanges."""
    keys = names | st.just("")
    return st.builds(topology.BindingDefinition, sources, _destinations, keys, arguments, _owners)


_policies = st.builds(
    topology.PolicyDefinition,
    names,
    st.text(st.characters(codec="utf-8"), max_size=9).map(re.escape),
    st.sampled_from(["all", "queues", "streams"]),
    st.dictionaries(
        st.sampled_from(["message-ttl", "max-length", "shards-per-node"]), st.integers(0, 1 << 40), min_size=1
    ),
    st.integers(-9, 9),
    _owners,
)


@st.composite
def topologies(draw: st.DrawFn) -> topology.Topology:
    """Return a topology that a file can say."""
    of_name, of_ends = attrgetter("name"), attrgetter("source", "destination", "routing_key", "arguments")
    # Slots have longer names than their exchange.
    fitting = _exchanges().filter(lambda made: made.slots is None or len(made.name.encode()) < 200)
    exchanges = draw(st.lists(fitting, max_size=4, unique_by=of_name))
    hashed = {exchange.name for exchange in exchanges if exchange.type == _CHX}
    bound = bindings(names.filter(lambda name: name not in hashed))
    return topology.Topology(
        tuple(exchanges),
        tuple(draw(st.lists(_queues(), max_size=6, unique_by=of_name))),
        tuple(draw(st.lists(bound, max_size=6, unique_by=of_ends))),
        tuple(draw(st.lists(_policies, max_size=2, unique_by=of_name))),
        draw(st.none() | names),
        draw(_shares),
        tuple(draw(st.lists(names, max_size=2))),
    )
