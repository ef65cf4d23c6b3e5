"""The load of slots, evened out: as text and as JSON, and samples."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from command_line import Stored

from rabbit_chx import ExchangeRef, HashRing, SlotTable, Topology
from rabbit_chx.amqp import AmqpField
from rabbit_chx.analysis import SlotLoad
from rabbit_chx.analysis.key_routing import Hashing
from rabbit_chx.cli.arrange import Balanced, balance_parts
from rabbit_chx.cli.samples import parse_keys, read_load
from rabbit_chx.errors import InputError
from rabbit_chx.rendering.document import Data, Document, Section
from rabbit_chx.topology import balance
from rabbit_chx.topology.file.toml_file import members_text
from rabbit_chx.topology.slots.balance import LoadTarget, SlotBalance

SLOTS = [ExchangeRef(f"events.slot.{n:02}") for n in range(8)]
TABLE = SlotTable(HashRing.from_buckets(SLOTS), {slot: f"events.{n % 2 + 1}" for n, slot in enumerate(SLOTS)})
HEAVY = "whale", "user-2"


@pytest.fixture
def sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlotLoad:
    """Half of the messages have one of two keys, which are in one slot each."""
    monkeypatch.chdir(tmp_path)
    path = Path("keys")
    keys = [*(f"user-{n}" for n in range(100)), *["whale"] * 60, *["user-2"] * 40]
    path.write_text("".join(f"{key}\n" for key in keys))
    return counted(path)


def counted(keys: str | Path, **arguments: str) -> SlotLoad:
    return read_load(parse_keys(str(keys)), arguments, TABLE)


def report(sample: SlotLoad, made: SlotBalance) -> Document:
    loads = Section("", list(balance_parts(Balanced("events", sample, made))), key="balance")
    return Document("arrange", [Data({"rings": [], "determined": True, "pinned": [], "text": None}), loads])


def test_the_members_that_are_proposed_are_those_of_a_topology_file(sample: SlotLoad, stored: Stored) -> None:
    made = balance(TABLE, sample, {"events.1": 1, "events.2": 1, "events.3": 1}, target=1.8)
    stored("balance", report(sample, made))
    members = members_text(made.members("events") or ())
    text = f'[[exchanges]]\nname = "events"\ntype = "x-consistent-hash"\nslots = 8\nmembers = {members}\n'
    assert Topology.from_toml(text).exchanges[0].members == made.members("events")


def test_what_is_impossible_names_the_key(sample: SlotLoad, stored: Stored) -> None:
    weights = {f"events.{n}": 1 for n in range(1, 6)}
    made = balance(TABLE, sample, weights, target=LoadTarget(0.25, "share"))
    stored("balance-impossible", report(sample, made))


def test_the_keys_are_of_the_type_that_the_exchange_hashes(tmp_path: Path) -> None:
    path = tmp_path / "tenants"
    path.write_text("7\n7\n8\n")
    sample = counted(f"{path}#:long", **{"hash-header": "tenant"})
    place = Hashing("tenant", field_type="long").route_all([AmqpField("long", 7)], TABLE.ring)[0]
    assert (sample.keys[0].place, sample.keys[0].least) == (place, 2)
    with pytest.raises(InputError, match="does not hash a header: leave :long out"):
        counted(f"{path}#:long")


def test_a_range_makes_the_sample_that_a_file_of_its_keys_is(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("".join(f"user-{n}\n" for n in range(50)))
    made, read = counted("user-{0..49}"), counted(path)
    assert replace(made, source=read.source) == read
    assert made.source == "user-{0..49}"
    path.write_text("")
    with pytest.raises(InputError, match="has no keys, or all counts are 0"):
        counted(path)
