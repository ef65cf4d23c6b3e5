"""The JSON Schema, the parser and the model speak of the same fields."""

from __future__ import annotations

import json
import tomllib
from dataclasses import fields
from typing import Any

import pytest
from blocks import ROOT
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft7Validator
from jsonschema.validators import extend
from tables import meaning
from topologies import topologies
from topology_schema import topology_schema

from rabbit_chx import Topology, TopologyError
from rabbit_chx.analysis.findings import Finding
from rabbit_chx.topology.file.fields import (
    BINDING,
    EXCHANGE,
    FILE,
    MEMBER,
    POLICY,
    QUEUE,
    SUPER_STREAM,
    EntryType,
    read_document,
)
from rabbit_chx.topology.kinds import Kind
from rabbit_chx.topology.toml_values import toml_value

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
    assert json.loads((ROOT / "docs/topology.schema.json").read_text()) == json.loads(topology_schema())


@given(_entry(FILE))
def test_schema_and_parser_agree_on_any_document(document: dict[str, Any]) -> None:
    agreed(document)


@given(_entry(FILE))
def test_any_document_is_a_topology_or_has_problems_with_places(document: dict[str, Any]) -> None:
    text = "\n".join(f"{toml_value(name)} = {toml_value(value)}" for name, value in document.items())
    problems: tuple[Finding, ...] = ()
    topology = None
    try:
        topology = Topology.from_toml(text)
    except TopologyError as error:
        problems = error.problems
    assert (topology is None) == bool(problems)
    assert all(problem.subject and problem.message and problem.fix for problem in problems)
    if topology is not None:
        assert Topology.from_toml(topology.to_toml()) == topology
        assert agreed(document)


@given(topologies())
def test_schema_and_parser_take_what_is_written(topology: Topology) -> None:
    assert agreed(tomllib.loads(topology.to_toml()))


_HASH = {"name": "x", "type": "x-consistent-hash"}
_MEMBER = {"queue": "q"}


@pytest.mark.parametrize(
    ("entry", "good"),
    [
        ({**_HASH, "ring": []}, True),
        ({**_HASH, "ring": [{"queue": "q"}, {"exchange": "e", "weight": 3}]}, True),
        ({**_HASH, "ring": [{"queue": "q", "exchange": "e"}]}, False),
        ({**_HASH, "ring": [{"weight": 1}]}, False),
        ({**_HASH, "ring": [{"queue": "q", "weight": "+07"}]}, True),
        ({**_HASH, "ring": [{"queue": "q", "weight": "٣"}]}, False),
        ({**_HASH, "ring": [{"queue": "q", "weight": "1" * 256}]}, False),
        ({**_HASH, "ring": [{"queue": "q", "weight": 1.0}]}, False),
        ({**_HASH, "slots": 4, "members": [_MEMBER]}, True),
        ({**_HASH, "slots": 4, "members": [{"queue": "q", "slots": [0, 3]}]}, True),
        ({**_HASH, "slots": 4, "members": [{"queue": "q", "slots": [0], "weight": 1}]}, False),
        ({**_HASH, "slots": 4, "members": [{"queue": "q", "slots": [0, 0]}]}, False),
        ({**_HASH, "slots": 4, "members": [{"queue": "q", "slots": []}]}, False),
        ({**_HASH, "slots": 4, "members": [{"queue": "q", "slots": [-1]}]}, False),
        ({**_HASH, "slots": 4, "members": [{"queue": "q", "slots": ["1", "02..03"]}]}, True),
        ({**_HASH, "slots": 4, "members": [{"queue": "q", "slots": ["1-3"]}]}, False),
        ({**_HASH, "slots": 4, "members": [{"queue": "q", "slots": ["\u0663"]}]}, False),
        ({**_HASH, "slots": 4, "members": [{"queue": "q", "slots": 2}]}, False),
        ({**_HASH, "slots": 4}, False),
        ({**_HASH, "members": [_MEMBER]}, False),
        ({**_HASH, "slots": 4, "members": [_MEMBER], "ring": []}, False),
        ({**_HASH, "members": [_MEMBER], "ring": []}, False),
        ({**_HASH, "owner": "external"}, True),
        ({**_HASH, "owner": "external", "slots": 4}, False),
        ({**_HASH, "owner": "external", "ring": [], "max_share_moved": 0}, True),
        (_HASH, True),  # a policy of the file may shard it, which an entry does not tell
        ({"name": "x", "ring": []}, False),
        ({"name": "x", "type": "topic", "slots": 4, "members": [_MEMBER]}, False),
        ({"name": "x", "max_share_moved": 0.5}, False),
        ({"name": "x", "type": "x-delayed-message", "arguments": {"x-delayed-type": "direct"}}, True),
        ({"name": "x", "arguments": {"a": [1, 2.5, {"b": True}]}}, False),
        ({"name": "x", "arguments": {"a": [1, 2, {"b": True}]}}, True),
        ({"name": "x", "owner": "me"}, False),
        ({"type": "topic"}, False),
        ({"name": ""}, False),
        ({"name": "x", "rnig": []}, False),
    ],
)
def test_schema_and_parser_agree_on_exchanges(entry: dict[str, Any], *, good: bool) -> None:
    assert agreed({"exchanges": [entry]}) is good


@pytest.mark.parametrize(
    ("entry", "good"),
    [
        ({"name": "x", "partitions": 3}, True),
        ({"name": "x", "binding_keys": ["a", "b"], "arguments": {"x-max-age": "7D"}}, True),
        ({"name": "x"}, False),
        ({"partitions": 3}, False),
        ({"name": "x", "partitions": 3, "binding_keys": ["a"]}, False),
        ({"name": "x", "partitions": 0}, False),
        ({"name": "x", "partitions": 10_001}, False),
        ({"name": "x", "binding_keys": []}, False),
        ({"name": "x", "binding_keys": ["a", "a"]}, False),
        ({"name": "x", "partitions": 3, "durable": True}, False),
    ],
)
def test_schema_and_parser_agree_on_super_streams(entry: dict[str, Any], *, good: bool) -> None:
    assert agreed({"super_streams": [entry]}) is good


@pytest.mark.parametrize(
    "document",
    [{"exchanges": {"x": {}}}, {"queues": "q"}, {"queues": ["q"]}, {"owns": "a"}, {"max_share_moved": 2}],
)
def test_schema_and_parser_refuse_the_same(document: dict[str, Any]) -> None:
    assert not agreed(document)


@pytest.mark.parametrize(
    "type_", [EXCHANGE, MEMBER, QUEUE, BINDING, SUPER_STREAM, POLICY, FILE], ids=lambda type_: type_.noun
)
def test_each_attribute_is_a_documented_field(type_: EntryType) -> None:
    names = {"destination": "queue", "key": "weight"}
    for attribute in fields(type_.model):
        if (type_, attribute.name) != (MEMBER, "slots"):
            assert meaning(type_, names.get(attribute.name, attribute.name))
