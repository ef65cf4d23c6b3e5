"""`--topology FILE`: the file answers wherever a ring is asked for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rabbit_chx import HashRing, SlotTable, Topology
from rabbit_chx.cli import main

FILE = """
[[exchanges]]
name = "orders"
type = "x-consistent-hash"
arguments = { hash-header = "tenant" }
ring = [{ queue = "q{1..3}" }, { exchange = "audit", weight = 2 }]
[[exchanges]]
name = "audit"
type = "fanout"
[[exchanges]]
name = "events"
type = "x-consistent-hash"
slots = 8
members = [{ queue = "q{1..3}" }]
[[exchanges]]
name = "images"
type = "x-modulus-hash"
[[exchanges]]
name = "flights"
arguments = { x-super-stream = true }
[[bindings]]
source = "images"
queue = "q{1..2}"
[[queues]]
name = "q{1..3}"
"""
ONE = """
[[exchanges]]
name = "orders"
type = "x-consistent-hash"
ring = [{ queue = "q2" }, { queue = "q1", weight = 3 }]
[[queues]]
name = "q{1..2}"
"""
KEYS = [f"key-{n}" for n in range(20)]
BY_WEIGHT = (
    "shares the slots of events by weight, and the slots of each queue are assumed as on a new broker: list them with "
    "rabbit-chx topology arrange "
)


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "topology.toml"
    path.write_text(FILE)
    return str(path)


@pytest.fixture
def one(tmp_path: Path) -> str:
    path = tmp_path / "one.toml"
    path.write_text(ONE)
    return str(path)


def test_a_file_with_one_hash_exchange_needs_no_name(answer: Callable[..., Any], one: str) -> None:
    bindings = ("--bind", "q2=1", "--bind", "q1=3")
    for command in (("route", *KEYS), ("simulate",), ("keys", "q1", "--count", "3")):
        assert answer(*command, "--topology", one) == answer(*command, *bindings)
    assert answer("route", "--topology", one, "--exchange", "orders", *KEYS) == answer(
        "route", *bindings, *KEYS
    )


@pytest.mark.parametrize("command", [("simulate",), ("compare", "--to-release", "4.0.5")])
def test_an_argument_is_the_exchange_of_a_command_without_other_arguments(
    answer: Callable[..., Any], capsys: pytest.CaptureFixture[str], one: str, command: tuple[str, ...]
) -> None:
    assert answer(*command, "orders", "--topology", one) == answer(
        *command, "--topology", one, "--exchange", "orders"
    )
    assert main([*command, "orders", "--exchange", "orders", "--topology", one]) == 2
    assert (
        "the exchange is given twice, as 'orders' and by --exchange: pass it once" in capsys.readouterr().err
    )


def test_the_release_reports_by_which_rules_the_bindings_are_replayed(
    answer: Callable[..., Any], one: str
) -> None:
    release = ("--release", "3.12.14")
    assert answer("simulate", "--topology", one, *release) == answer(
        "simulate", "--bind", "q2=1", "--bind", "q1=3", *release
    )
    assert answer("simulate", "--topology", one)["ring"]["provenance"] == "replayed"


def test_what_the_exchange_of_the_file_hashes_is_hashed(
    ran: Callable[..., tuple[int, str, str]], file: str
) -> None:
    given = ("--topology", file, "--exchange", "orders", "--hash-header", "tenant:long", "5")
    bound = (
        "--bind",
        "q1=1",
        "--bind",
        "q2=1",
        "--bind",
        "q3=1",
        "--bind",
        "exchange:audit=2",
    )
    code, out, errors = ran("route", *given)
    assert (code, out) == ran("route", *bound, "--hash-header", "tenant:long", "5")[:2]
    assert errors == ""
    errors = ran("route", "--topology", file, "--exchange", "orders", "5")[2]
    assert (
        errors
        == "rabbit-chx: the exchange of this ring hashes hash-header 'tenant', so the keys are its values, not routing keys\n"
    )


def test_slots_lead_to_the_queues_of_a_new_broker_with_a_note(
    ran: Callable[..., tuple[int, str, str]], file: str
) -> None:
    table = Topology.from_toml(FILE).slots("events")
    code, out, errors = ran("route", "--topology", file, "--exchange", "events", *KEYS, "-o", "json")
    document = json.loads(out)
    assert code == 0
    assert [found["destination"] for found in document["answers"]] == [
        table.destination_for(key) for key in KEYS
    ]
    assert document["ring"]["provenance"] == "assumed"
    assert document["ring"]["slots"] == {slot.name: table.owners[slot] for slot in table.slots}
    assert errors == f"rabbit-chx: {file} {BY_WEIGHT}{file} --write\n"


@pytest.mark.parametrize("command", [("route", *KEYS), ("simulate",)])
def test_slots_by_weight_are_called_assumed_in_the_result(
    ran: Callable[..., tuple[int, str, str]], file: str, command: tuple[str, ...]
) -> None:
    out = " ".join(ran(command[0], "--topology", file, "--exchange", "events", *command[1:])[1].split())
    assert "ring: assumed as on a new broker" in out.replace("ring assumed", "ring: assumed")
    assert "(those of the broker are written by rabbit-chx topology arrange FILE --write)" in out


def test_each_answer_of_a_file_of_keys_reports_that_slots_by_weight_are_assumed(
    ran: Callable[..., tuple[int, str, str]], file: str, tmp_path: Path
) -> None:
    keys = tmp_path / "keys.txt"
    keys.write_text("\n".join(KEYS))
    code, out, _ = ran(
        "route", "--topology", file, "--exchange", "events", "--keys", str(keys), "--output", "json"
    )
    assert code == 0
    assert [json.loads(line)["provenance"] for line in out.splitlines()] == ["assumed"] * len(KEYS)


def test_slots_by_weight_are_not_compared_with_those_of_a_broker(
    ran: Callable[..., tuple[int, str, str]], file: str, tmp_path: Path
) -> None:
    table = Topology.from_toml(FILE).slots("events")
    read = tmp_path / "ring.json"
    read.write_text(SlotTable(HashRing.from_buckets(table.ring.buckets), table.owners).to_json())
    unpinned = ("--topology", file, "--exchange", "events", "--to-ring", str(read))
    live = ("--ring", str(read), "--to-ring", file, "--to-exchange", "events")
    for arguments in (unpinned, live):
        code, out, errors = ran("compare", *arguments)
        assert (code, out) == (2, "")
        assert (
            f"{file} does not list the slots of each queue, so a comparison with a broker would be wrong: write the slots "
            f"with rabbit-chx topology arrange {file} --write"
        ) in " ".join(errors.split())
    assert ran("compare", "--topology", file, "--exchange", "events", "--to-release", "3.12")[0] == 0


def test_slots_that_the_file_lists_are_not_a_guess(answer: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "listed.toml"
    path.write_text(
        '[[exchanges]]\nname = "e"\ntype = "x-consistent-hash"\nslots = 3\n'
        'members = [{ queue = "q1", slots = [0, 2] }, { queue = "q2", slots = [1] }]\n[[queues]]\nname = "q{1..2}"\n'
    )
    ring = answer("simulate", "--topology", str(path))["ring"]
    assert (ring["provenance"], ring["slots"]["e.slot.02"]) == ("replayed", "q1")


def test_two_files_are_compared(answer: Callable[..., Any], tmp_path: Path, one: str) -> None:
    other = tmp_path / "other.toml"
    other.write_text(ONE.replace("weight = 3", "weight = 4"))
    document = answer("compare", "--topology", one, "--to-ring", str(other), code=1)
    bound = ("--bind", "q2=1", "--bind", "q1=3", "--to-bind", "q2=1", "--to-bind", "q1=4")
    assert document == answer("compare", *bound, code=1)
    assert answer("compare", "--topology", one, "--to-ring", one)["exact"]["moved"] == 0


def test_an_exchange_without_a_ring_routes_by_the_bindings_of_the_file(
    answer: Callable[..., Any], file: str
) -> None:
    document = answer("route", "--topology", file, "--exchange", "images", *KEYS)
    bound = ("--exchange-type", "x-modulus-hash", "--bind", "q1=", "--bind", "q2=")
    assert document["answers"] == answer("route", *bound, *KEYS)["answers"]
    assert document["modulus"]["exchange"] == "images"


def test_the_file_is_read_from_stdin(
    answer: Callable[..., Any], stdin: Callable[[str], None], one: str
) -> None:
    stdin(ONE)
    assert answer("route", "--topology", "-", *KEYS) == answer("route", "--topology", one, *KEYS)
