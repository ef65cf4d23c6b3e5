"""What is written is short, in the style of the documents, and says the same."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbit_chx import Topology
from rabbit_chx.errors import TopologyError
from rabbit_chx.topology import PolicyDefinition, QueueDefinition
from rabbit_chx.topology.argument_table import ArgumentTable, toml_value


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
