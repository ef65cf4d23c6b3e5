"""Slots in files: each command follows them to the queue."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rabbit_chx import ExchangeRef, HashRing, SlotTable, Topology
from rabbit_chx.routing.key_map import KeyMap

if TYPE_CHECKING:
    Ran = Callable[..., tuple[int, str, str]]

SLOTS = [ExchangeRef(f"e.slot.{n:02}") for n in range(8)]
AUDIT = ExchangeRef("audit")
RING = HashRing.from_bindings([(slot, 1) for slot in [*SLOTS, AUDIT]])
TABLE = SlotTable(RING, {slot: f"e.{n % 3 + 1}" for n, slot in enumerate(SLOTS)}, frozenset([AUDIT]))
KEYS = [f"key-{n}" for n in range(30)]
FILE = """
[[exchanges]]
name = "events"
type = "x-consistent-hash"
slots = 8
members = [{ queue = "events.{1..3}" }]
[[queues]]
name = "events.{1..3}"
"""


def written_ring(key_map: KeyMap) -> str:
    """A ring file that says what is hashed, as `ring show` writes it."""
    return json.dumps({**json.loads(key_map.to_json()), "arguments": {}})


@pytest.fixture
def ring(tmp_path: Path) -> str:
    path = tmp_path / "ring.json"
    path.write_text(written_ring(TABLE))
    return str(path)


def written(destination: object) -> object:
    return {"exchange": "audit"} if destination == AUDIT else destination


def test_a_route_has_the_slot_and_the_queue(answer: Callable[..., Any], ran: Ran, ring: str) -> None:
    document = answer("route", "--ring", ring, *KEYS)
    places = [RING.destination_for(key) for key in KEYS]
    assert document["answers"] == [
        {
            "key": key,
            "destination": written(TABLE.destination_for(key)),
            "slot": place.name if isinstance(place, ExchangeRef) and place != AUDIT else None,
        }
        for key, place in zip(KEYS, places, strict=True)
    ]
    assert document["ring"]["slots"] == {slot.name: TABLE.owners[slot] for slot in SLOTS}
    assert document["ring"]["destinations"] == ["e.1", "e.2", "e.3", {"exchange": "audit"}]
    table = ran("route", "--ring", ring, "key-0")[1]
    assert "key     slot" in table
    assert "9 buckets, 4 destinations, 8 slots" in " ".join(table.split())
    explained = answer("route", "--ring", ring, "--explain", "key-0")["answers"][0]
    assert (explained["slot"], explained["bucket"]) == (
        document["answers"][0]["slot"],
        RING.buckets.index(places[0]),
    )
    assert "slot         e.slot." in ran("route", "--ring", ring, "--explain", "key-0")[1]


@pytest.mark.parametrize("more", [[], ["--explain"]])
def test_the_lines_of_stdin_have_the_slot_as_their_third_field(
    ran: Ran, stdin: Callable[[str], None], ring: str, more: list[str]
) -> None:
    stdin("\n".join(KEYS))
    fields = [line.split("\t") for line in ran("route", "--ring", ring, "-", *more)[1].splitlines()]
    assert [field[:3] for field in fields] == [
        [key, str(TABLE.destination_for(key)), "" if place == AUDIT else place.name]
        for key in KEYS
        for place in [RING.destination_for(key)]
        if isinstance(place, ExchangeRef)
    ]


def test_a_ring_file_without_slots_has_no_such_field(answer: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "plain.json"
    path.write_text(written_ring(RING))
    document = answer("route", "--ring", str(path), "key-0")
    assert "slots" not in document["ring"]
    assert "slot" not in document["answers"][0]


def test_a_simulation_counts_by_queue_and_changes_no_slots(
    answer: Callable[..., Any], ran: Ran, ring: str
) -> None:
    document = answer("simulate", "--ring", ring, "--pattern", "key-{n}", "--count", "30")
    shares = {str(written(place)): share for place, share in TABLE.shares().items()}
    assert {str(share["destination"]): share["share"] for share in document["shares"]} == shares
    assert sum(destination["messages"] for destination in document["sample"]["destinations"]) == 30
    for change in (["--unbind", "e.1"], ["--add", "e.4=1"]):
        code, _, errors = ran("simulate", "--ring", ring, *change)
        assert code == 2
        assert "does not determine which slots move: change `members`" in errors
        assert "run rabbit-chx topology plan" in errors


def test_two_tables_are_compared_by_queue(answer: Callable[..., Any], ring: str, tmp_path: Path) -> None:
    other = SlotTable(RING, {**TABLE.owners, SLOTS[0]: "e.4"}, frozenset([AUDIT]))
    path = tmp_path / "other.json"
    path.write_text(written_ring(other))
    document = answer("compare", "--ring", ring, "--to-ring", str(path), code=1)
    assert document["exact"]["moved"] == RING.shares()[SLOTS[0]]
    assert [
        (cell["from"], cell["to"]) for cell in document["exact"]["cells"] if cell["from"] != cell["to"]
    ] == [("e.1", "e.4")]
    assert answer("compare", "--ring", ring, "--to-release", "3.12.14")["exact"]["moved"] == 0


def test_keys_are_found_for_a_queue_and_for_a_slot(answer: Callable[..., Any], ran: Ran, ring: str) -> None:
    found = answer("keys", "--ring", ring, "e.2", "--count", "5")["keys"]
    assert {TABLE.destination_for(key) for key in found} == {"e.2"}
    found = answer("keys", "--ring", ring, "exchange:e.slot.05", "--count", "5")["keys"]
    assert {RING.destination_for(key) for key in found} == {SLOTS[5]}
    assert (
        "e.9 does not have a bucket: pass one of e.1, e.2, e.3, exchange:audit"
        in ran("keys", "--ring", ring, "e.9")[2]
    )


def test_a_file_with_slots_is_converted_and_compared(ran: Ran, tmp_path: Path) -> None:
    path = tmp_path / "topology.toml"
    path.write_text(FILE)
    assert Topology.from_toml(ran("topology", "export", "--from", str(path))[1]) == Topology.from_toml(FILE)
    releases = ("--release", "3.12.14", "--to-release", "4.3.6")
    code, out, errors = ran("compare", "--topology", str(path), *releases)
    assert code == 1
    assert "shares the slots of events by weight" in errors
    assert f"ring repair events --file {path}" in out
