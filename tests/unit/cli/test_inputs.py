"""Files of rings and of keys."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from command_line import RING

from rabbit_chx.amqp.fields import FIELD_TYPES, FieldType
from rabbit_chx.cli.inputs import parse_header_type
from rabbit_chx.routing import HashRing, Release


def test_a_ring_file_keeps_its_provenance_and_its_holes(answer: Callable[..., Any], tmp_path: Path) -> None:
    ring = HashRing.from_buckets(["q1", None, "q2"], Release("3.8.9"))
    path = shown_ring(tmp_path / "ring.json", {}, ring)
    document = answer("route", "--ring", path, "k1", "k2", "k3", "k4", code=1)
    assert document["ring"]["provenance"] == "read"
    assert [row["destination"] for row in document["answers"]] == [
        ring.destination_for(key) for key in ("k1", "k2", "k3", "k4")
    ]
    assert answer("route", "--ring", path, "--release", "4.3.6", "k")["ring"]["provenance"] == "assumed"


def shown_ring(path: Path, arguments: Mapping[str, Any] | None, ring: HashRing = RING) -> str:
    """A file as `ring show --output json` writes it."""
    path.write_text(json.dumps(json.loads(ring.to_json()) | {"arguments": arguments}))
    return str(path)


@pytest.mark.parametrize("name", ["t", "a:b", "t:integer", ":", "", "t:long:"])
@pytest.mark.parametrize("type_", FIELD_TYPES)
def test_a_header_with_a_type_may_have_any_name(name: str, type_: FieldType) -> None:
    assert parse_header_type(f"{name}:{type_}") == (name, None if type_ == "longstr" else type_)


@pytest.mark.parametrize("type_", ["integer", "Long", "", "string", "int", " long"])
@pytest.mark.parametrize("option", ["--hash-header={}", "--header={}=5"])
def test_an_unknown_type_is_not_taken_for_a_part_of_the_name(
    ran: Callable[..., tuple[int, str, str]], type_: str, option: str
) -> None:
    for command in ("route", "compare") if option.startswith("--hash") else ("route",):
        others = () if command == "route" else ("--to-release", "3.12")
        code, out, errors = ran(
            command, "--bind", "q1=1", *others, option.format(f"t:{type_}"), "--keys", "-"
        )
        assert (code, out) == (2, "")
        assert f"{type_!r} is not the type of a header: pass one of {', '.join(FIELD_TYPES)}" in errors
        assert f"t:{type_}:longstr" in errors


@pytest.mark.parametrize("text", ["exchnage:x", "Exchange:x", "queue:x"])
def test_a_queue_whose_name_resembles_another_destination_is_noted(
    ran: Callable[..., tuple[int, str, str]], text: str
) -> None:
    code, _, errors = ran("route", "--bind", f"{text}=1", "k")
    assert (code, errors.count("is taken for the name of a queue")) == (0, 1)
    assert ran("route", "--bind", "orders:1=1", "--bind", "exchange:x=1", "k")[2] == ""


def test_a_range_of_a_binding_expands_as_in_a_file(
    answer: Callable[..., Any], ran: Callable[..., Any]
) -> None:
    queues = [f"q{n}" for n in range(1, 5)]
    document = answer("route", "--bind", "q{1..4}=2", "--bind", "w{1..2}={1..2}", "--bind", "{{1..2}}=1", "k")
    assert document["ring"]["destinations"] == [*queues, "w1", "w2", "{1..2}"]
    assert document["ring"]["buckets"] == 2 * 4 + 1 + 2 + 1
    ring = ("--bind", "q1=1", "--bind", "q2=1", "--bind", "q5=1")
    for command, ranged, single in (
        (("simulate", *ring, "--add"), "q{3..4}=1", ("q3=1", "--add", "q4=1")),
        (("simulate", *ring, "--unbind"), "q{1..2}", ("q1", "--unbind", "q2")),
        (("compare", *ring, "--to-bind"), "q{1..3}=1", ("q1=1", "--to-bind", "q2=1", "--to-bind", "q3=1")),
    ):
        assert ran(*command, ranged) == ran(*command, *single)
    code, _, errors = ran("route", "--bind", "q{4..1}=1", "k")
    assert code == 2
    assert "q{4..1}=1" in errors
