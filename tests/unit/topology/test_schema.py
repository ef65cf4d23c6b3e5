"""Each field has one row, which pages, files and comparisons follow."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from stored_files import EQUAL_FILES
from tables import meaning

from rabbit_chx import Topology
from rabbit_chx.topology.schema import (
    BINDING,
    EXCHANGE,
    FILE,
    MEMBER,
    POLICY,
    QUEUE,
    SCHEMA,
    SLOT_MEMBER,
    SUPER_STREAM,
    EntryType,
)

TYPES = [EXCHANGE, MEMBER, SLOT_MEMBER, QUEUE, BINDING, SUPER_STREAM, POLICY, FILE]
WHOLE = Path(__file__).with_name("whole.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize("type_", TYPES, ids=lambda type_: type_.noun)
def test_each_field_is_an_attribute_or_says_what_it_means(type_: EntryType) -> None:
    for name in type_.fields:
        assert meaning(type_, name)
    names = {row.name for row in type_.rows} | ({"destination", "key"} if type_ is MEMBER else set())
    if type_ is not SLOT_MEMBER:  # members with slots and without are one class
        assert {attribute.name for attribute in dataclasses.fields(type_.model)} - names <= {"slots"}
    assert type_.compared == () or {*type_.compared} <= {
        each.name for each in dataclasses.fields(type_.model)
    }


def used(entry: Mapping[str, Any], type_: EntryType) -> Iterator[tuple[EntryType, str]]:
    """Yield each field in an entry of a file, also of the entries in its lists."""
    for name, value in entry.items():
        kind = type_.fields.get(name)
        if kind is not None:
            yield type_, name
        if isinstance(kind, EntryType) and isinstance(value, list):
            for inner in value:
                yield from used(inner, kind)


def test_stored_files_have_each_field_and_no_rule_of_arguments_lacks_one() -> None:
    """A test holds the export against the whole file. An argument that no rule names would be reported as ignored."""
    short = [text for texts in EQUAL_FILES.values() for text in texts]
    seen = {field for text in (WHOLE, *short) for field in used(tomllib.loads(text), FILE)}
    assert {(type_, name) for type_ in TYPES for name in type_.fields} == seen
    assert Topology.from_toml(WHOLE).ignored_arguments() == ()


def test_each_object_of_a_broker_is_compared_field_by_field() -> None:
    """Nobody can forget a field: those that RabbitMQ lists are compared, but for the name."""
    of_type = {"destination_type"}  # a part of the destination
    for kind, type_ in SCHEMA.items():
        listed = {name.replace("-", "_") for name in type_.json} - {"name"} - of_type
        assert listed | ({"type"} if kind == "queue" else set()) == {*type_.compared}
