"""A file becomes objects, and objects become a file."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
from jsonschema import Draft7Validator
from stored_files import EQUAL_FILES, topology_of
from topology_schema import topology_schema

from rabbit_chx import ExchangeRef, Release, Topology
from rabbit_chx.errors import InputError, TopologyError
from rabbit_chx.topology import (
    BindingDefinition,
    ExchangeDefinition,
    PolicyDefinition,
    QueueDefinition,
    RingMember,
)
from rabbit_chx.topology.toml_file import rearrange

#: As a person would write it.
WHOLE = Path(__file__).with_name("whole.toml").read_text(encoding="utf-8")
RING = (
    *(RingMember(f"orders.{n}") for n in range(1, 41)), RingMember(ExchangeRef("audit"), "2"), RingMember("z", "007", {"a": 1}),
)  # fmt: skip
TOPOLOGY = Topology(
    (
        ExchangeDefinition("audit", "topic", arguments={"alternate-exchange": "lost"}),
        ExchangeDefinition("events", "x-consistent-hash", slots=64, members=(RingMember("events.1", "2"), RingMember("events.2", "2"))),
        ExchangeDefinition("orders", "x-consistent-hash", False, True, True, {"hash-header": "tenant"}, RING, max_share_moved=0.05),
    ),
    (
        QueueDefinition("mine", durable=False, exclusive=True, auto_delete=True),
        *(
            QueueDefinition(f"orders.{n:02d}", "quorum", arguments={"x-delivery-limit": 5, "x-dead-letter-exchange": f"dead.{n:02d}"}, owner="external")
            for n in range(1, 100)
        ),
        *(QueueDefinition(f"orders.{n}", "quorum") for n in range(100, 1001)),
    ),
    (
        *(BindingDefinition("audit", f"a.{n}", f"k.{n}", {"x y": [1, {"b": True}]}, "external") for n in (1, 2, 3)),
        BindingDefinition("audit", "a.5", "k.5"),
        BindingDefinition("audit", ExchangeRef("other")),
    ),
    (PolicyDefinition("shards", "^images{1..2}\\.$", "exchanges", {"shards-per-node": 4}, -1, "external"),),
    "rabbit@prod", 0.2, ("orders.*",), "shop",
)  # fmt: skip


def test_each_field_is_read_and_written() -> None:
    assert Topology.from_toml(WHOLE) == TOPOLOGY
    assert TOPOLOGY.to_toml() == WHOLE


@pytest.mark.parametrize("as_given", [str, Path])
def test_a_file_says_what_its_text_says(tmp_path: Path, as_given: type[str | Path]) -> None:
    path, text = tmp_path / "shop.toml", '\ufeff[[queues]]\nname = "${q}"\n'
    path.write_text(text, encoding="utf-8")
    for values, release in (({"q": "é"}, None), ({"q": "b"}, Release("3.10.8"))):
        read = Topology.from_file(as_given(path), release=release, values=values)
        assert read == Topology.from_toml(text, release=release, values=values)
    with pytest.raises(TopologyError, match=f"^{named(path)} has a mistake:.*"):
        Topology.from_file(path, values={"q": "x", "other": "1"})


def named(path: object) -> str:
    return re.escape(str(path))


def test_the_errors_of_a_file_name_it(tmp_path: Path) -> None:
    missing, latin = tmp_path / "missing.toml", tmp_path / "latin.toml"
    latin.write_bytes("# one\n[[queues]]\nname = 'caf\u00e9'\n".encode("latin-1"))
    wrong, definitions = tmp_path / "wrong.toml", tmp_path / "definitions.json"
    wrong.write_text("[[queues]]\nname = 5\n")
    definitions.write_text('{"queues": []}')
    says = {
        missing: f"the topology file {named(missing)} cannot be read: No such file or directory",
        tmp_path: f"the topology file {named(tmp_path)} cannot be read: Is a directory",
        latin: f"the topology file {named(latin)} cannot be read: 'utf-8' codec can't decode byte 0xe9 in position 28",
        wrong: rf"{named(wrong)} has a mistake:\n  line 2, ",
        definitions: f"{named(definitions)} has a mistake:.*; this is JSON: read a definitions file with Topology.from_definitions",
        5: "the topology file 5 cannot be read: .* not .*int",
    }
    for path, words in says.items():
        with pytest.raises(InputError, match=f"(?s)^{words}"):
            Topology.from_file(path)  # type: ignore[arg-type]


@pytest.mark.parametrize("title", EQUAL_FILES)
def test_a_short_file_says_the_same_as_the_file_in_full(title: str) -> None:
    """Variables, lists, ranges and super streams are only ways to write it. The schema permits them."""
    short, full = EQUAL_FILES[title]
    topology, meant = topology_of(short), topology_of(full)
    assert topology == meant
    assert topology.file.untyped_queues == meant.file.untyped_queues
    assert Topology.from_toml(topology.to_toml()) == topology
    assert rearrange(short, {}).text == short
    assert Draft7Validator(json.loads(topology_schema())).is_valid(tomllib.loads(short))
