"""Variables of a topology file: a file with variables is the file with their values written in it."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft7Validator
from topology_schema import topology_schema

from rabbit_chx import InputError, Topology, TopologyError
from rabbit_chx.topology import QueueDefinition
from rabbit_chx.topology.toml_file import rearrange

FILE = """
[[exchanges]]
name = "x"
type = "x-consistent-hash"
ring = [{ queue = "${prefix}.{1..${count}}", weight = 10 }]
[[queues]]
name = "q"
"""
VALUES = {"prefix": "q", "count": "2"}
QUEUE = '[[queues]]\nname = "${a}"\n'


def test_a_name_that_is_not_set_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python takes nothing from the environment: a topology is a value."""
    monkeypatch.setenv("a", "x")
    with pytest.raises(
        TopologyError, match=r"line 2, .*the variable a is not set; set it by .*values=\{'a': VALUE\}"
    ):
        Topology.from_toml(QUEUE)
    assert Topology.from_toml(QUEUE, values={"a": "x"}).queues == (QueueDefinition("x", "classic"),)


@pytest.mark.parametrize("values", [{1: "2"}, {"a": 1}, [("a", "1")], "a=1", 5])
def test_values_are_texts_by_their_names(values: Any) -> None:
    with pytest.raises(InputError, match=r"values is .*: pass a dict of names and texts"):
        Topology.from_toml(QUEUE, values=values)


def test_the_schema_refuses_an_escaped_reference() -> None:
    schema = Draft7Validator(json.loads(topology_schema()))
    assert not schema.is_valid(tomllib.loads('[[queues]]\nname = "q"\ntype = "$${c}"'))


_names = st.lists(
    st.sampled_from(["$", "{", "}", "a", "1", "..", "-", " ", ":", "$${", "${a}", "${ a }", "${1..2}"]),
    min_size=1,
    max_size=8,
)


@given(_names.map("".join))
def test_a_text_that_looks_like_a_reference_survives_a_file(name: str) -> None:
    topology = Topology(
        queues=(
            QueueDefinition(f"q{name}", "classic", arguments={"x-dead-letter-exchange": name, name: name}),
        )
    )
    assert Topology.from_toml(topology.to_toml()) == topology


def test_the_entries_of_a_ring_keep_their_variables_unless_the_order_divides_them() -> None:
    ring = Topology.from_toml(FILE, values=VALUES).exchanges[0].ring or ()
    done = rearrange(FILE, {"x": ring[::-1]}, VALUES)
    assert (done.text, done.unwritten) == (FILE, ("x",))
    entry = '{ queue = "${prefix}.{1..${count}}", weight = 10 }'
    more = FILE.replace(entry, f'{entry}, {{ queue = "last" }}')
    ring = Topology.from_toml(more, values=VALUES).exchanges[0].ring or ()
    done = rearrange(more, {"x": [ring[-1], *ring[:-1]]}, VALUES)
    assert done.text == more.replace(f'{entry}, {{ queue = "last" }}', f'{{ queue = "last" }}, {entry}')
    assert done.unwritten == ()
