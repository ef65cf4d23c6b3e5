"""What is written is short, in the style of the documents, and says the same."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbit_chx import ExchangeRef, Topology
from rabbit_chx.errors import TopologyError
from rabbit_chx.topology import (
    BindingDefinition,
    ExchangeDefinition,
    PolicyDefinition,
    QueueDefinition,
    RingMember,
)
from rabbit_chx.topology.argument_table import ArgumentTable
from rabbit_chx.topology.toml_values import toml_value


def test_a_file_is_written_as_a_person_would() -> None:
    members = [
        *(RingMember(f"orders.{n}") for n in range(1, 41)),
        RingMember(ExchangeRef("audit"), "2"),
        RingMember("z", "007"),
    ]
    topology = Topology(
        (
            ExchangeDefinition("audit", "topic", arguments=ArgumentTable({"alternate-exchange": "lost"})),
            ExchangeDefinition("orders", "x-consistent-hash", durable=False, ring=tuple(members), max_share_moved=0.05),
        ),
        tuple(QueueDefinition(f"orders.{n:02d}", "quorum") for n in range(1, 1001)),
        tuple(BindingDefinition("audit", f"a.{n}", f"k.{n}", owner="external") for n in (1, 2, 3, 5)),
        (PolicyDefinition("p", "^a\\.", definition=ArgumentTable({"x y": [1, 2.5, {"b": True}]})),),
        "rabbit@prod",
    )  # fmt: skip
    assert (
        topology.to_toml()
        == """cluster = "rabbit@prod"

[[exchanges]]
name = "audit"
type = "topic"
arguments = { alternate-exchange = "lost" }

[[exchanges]]
name = "orders"
type = "x-consistent-hash"
durable = false
ring = [
    { queue = "orders.{1..40}", weight = 1 },
    { exchange = "audit", weight = 2 },
    { queue = "z", weight = "007" },
]
max_share_moved = 0.05

[[queues]]
name = "orders.{01..99}"
type = "quorum"

[[queues]]
name = "orders.{100..1000}"
type = "quorum"

[[bindings]]
source = "audit"
queue = "a.{1..3}"
routing_key = "k.{1..3}"
owner = "external"

[[bindings]]
source = "audit"
queue = "a.5"
routing_key = "k.5"
owner = "external"

[[policies]]
name = "p"
pattern = "^a\\\\."
definition = { "x y" = [1, 2.5, { b = true }] }
"""
    )


def test_slot_exchanges_become_one_entry() -> None:
    slots = Topology(tuple(ExchangeDefinition(f"e.slot.{n:02d}", "fanout", internal=True) for n in range(64)))
    assert 'name = "e.slot.{00..63}"' in slots.to_toml()
    assert slots.to_toml().count("[[exchanges]]") == 1


@given(
    st.recursive(
        st.text(st.characters(codec="utf-8")) | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1)
        | st.floats(allow_nan=False, allow_infinity=False),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=3),
    )
)  # fmt: skip
def test_any_value_is_read_back_by_tomllib(value: object) -> None:
    assert repr(tomllib.loads(f"a = {toml_value(value)}")["a"]) == repr(value)


def test_what_toml_cannot_write_is_refused_by_name() -> None:
    topology = Topology(
        queues=(QueueDefinition("q", arguments=ArgumentTable({"a": [{"b": None}], "c": 1})),),
        policies=(PolicyDefinition("p", "", definition=ArgumentTable({"d": None})),),
    )
    with pytest.raises(TopologyError, match="null, which TOML cannot express") as caught:
        topology.to_toml()
    assert [problem.subject for problem in caught.value.problems] == ["queues q: arguments.a"]
    with pytest.raises(TopologyError, match=r"policies p: definition\.d"):
        Topology(policies=topology.policies).to_toml()
