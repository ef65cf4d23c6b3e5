"""The JSON Schema and the parser speak of the same fields."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest
from blocks import ROOT
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft7Validator
from jsonschema.validators import extend
from stored_files import SECTIONS
from topologies import topologies
from topology_schema import topology_schema

from rabbit_chx import Topology, TopologyError
from rabbit_chx.topology.argument_table import toml_value
from rabbit_chx.topology.file_rules import read_document
from rabbit_chx.topology.kinds import Kind
from rabbit_chx.topology.schema import FILE, EntryType

# To JSON Schema 1.0 is an integer. To TOML, to AMQP and to the parser it is a float.
_TYPES = Draft7Validator.TYPE_CHECKER.redefine("integer", lambda _, value: type(value) is int)
VALIDATOR: Any = extend(Draft7Validator, type_checker=_TYPES)(json.loads(topology_schema()))


def agreed(document: dict[str, Any]) -> bool:
    """Return whether a document is good; the schema and the parser have to say the same."""
    by_schema: bool = VALIDATOR.is_valid(document)
    by_parser = not read_document(document).problems
    assert by_schema == by_parser, (
        document,
        by_parser or [str(problem) for problem in read_document(document).problems],
    )
    return by_schema


_words = st.sampled_from(
    [
        "",
        "a",
        "direct",
        "x-consistent-hash",
        "quorum",
        "external",
        "ours",
        "queues",
        "all",
        "5",
        "007",
        "0",
        "-1",
        "x{1..2}",
    ]
)
_values: st.SearchStrategy[Any] = st.recursive(
    _words | st.booleans() | st.integers(-2, 20_000_000) | st.floats(-1, 2),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_words, inner, max_size=2),
    max_leaves=4,
)  # fmt: skip


def _good_value(kind: Kind | EntryType) -> st.SearchStrategy[Any]:
    if isinstance(kind, EntryType):
        return st.lists(_entry(kind), max_size=3)
    return _words | st.booleans() | st.integers(0, 5) | st.just({"a": 1}) | st.just(["a"])


@st.composite
def _entry(draw: st.DrawFn, type_: EntryType) -> dict[str, Any]:
    """Return an entry with some of its fields, mostly of a likely kind, and rarely an unknown one."""
    entry = {}
    for name, kind in type_.fields.items():
        if name in type_.required or draw(st.booleans()):
            rare = draw(st.integers(0, 15)) == 0
            entry[name] = draw(_values if rare else _good_value(kind))
    if draw(st.integers(0, 15)) == 0:
        entry[draw(_words)] = draw(_values)
    return entry


def test_the_schema_is_a_schema() -> None:
    Draft7Validator.check_schema(json.loads(topology_schema()))
    assert json.loads((ROOT / "docs/reference/topology.schema.json").read_text()) == json.loads(
        topology_schema()
    )


@given(_entry(FILE))
def test_schema_and_parser_agree_on_any_document(document: dict[str, Any]) -> None:
    agreed(document)


@given(_entry(FILE))
def test_any_document_is_a_topology_or_has_problems_with_places(document: dict[str, Any]) -> None:
    text = "\n".join(f"{toml_value(name)} = {toml_value(value)}" for name, value in document.items())
    try:
        topology = Topology.from_toml(text)
    except TopologyError as error:
        problems = error.problems
    else:
        assert Topology.from_toml(topology.to_toml()) == topology
        assert agreed(document)
        return
    assert problems
    assert all(problem.subject and problem.message and problem.fix for problem in problems)


@given(topologies())
def test_schema_and_parser_take_what_is_written(topology: Topology) -> None:
    assert agreed(tomllib.loads(topology.to_toml()))


@pytest.mark.parametrize("text", SECTIONS["files of which the JSON Schema says the same"])
def test_schema_and_parser_agree_on_stored_files(text: str) -> None:
    agreed(tomllib.loads(text))
