"""The rings and slots of a topology: of a file, of definitions, of a broker."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from slot_files import NEWEST, live_of, slotted

from rabbit_chx import ExchangeRef, HashRing, Release, Topology
from rabbit_chx.errors import InputError
from rabbit_chx.topology import RingMember

ORDERS = """
[[exchanges]]
name = "orders"
type = "x-consistent-hash"
ring = [{ queue = "q{2..3}", weight = 2 }, { queue = "q1" }, { exchange = "audit" }]
[[exchanges]]
name = "audit"
type = "fanout"
[[queues]]
name = "q{1..3}"
"""
FILE = Topology.from_toml(ORDERS)


def test_the_ring_of_a_file_is_that_of_its_members_in_their_order() -> None:
    members: list[Any] = [("q2", 2), ("q3", 2), ("q1", 1), (ExchangeRef("audit"), 1)]
    assert FILE.ring("orders") == FILE.key_map("orders") == HashRing.from_bindings(members)
    assert FILE.ring("orders").provenance == "replayed"
    twice = replace(FILE.exchanges[1], ring=(RingMember("q1"), RingMember("q1", "2")))
    for release in (Release("3.10.5"), NEWEST):
        ring = replace(FILE, exchanges=(twice,)).ring("orders", release)
        assert ring == HashRing.from_bindings([("q1", 1), ("q1", 2)], release)
        assert (ring.release, ring.provenance) == (release, "replayed")
    read = HashRing.from_buckets(["q1", "q2"], NEWEST)
    live = FILE.with_rings({"orders": read})
    assert live.ring("orders") is read
    assert live.ring("orders", Release("3.12")) == read.with_release(Release("3.12"))


@pytest.mark.parametrize(
    "members",
    ['[{ queue = "events.{1..3}" }]', '[{ queue = "events.1", weight = 3 }, { queue = "events.{2..4}" }]'],
)
def test_slots_by_weight_are_those_of_a_new_broker(members: str) -> None:
    file = slotted(8, members)
    table = file.slots("events")
    assert (table.provenance, table.owners_assumed) == ("replayed", True)
    assert table.owners == live_of(file).slots("events").owners
    assert table.ring == file.ring("events") == HashRing.from_bindings([(slot, 1) for slot in table.slots])
    assert file.ring("events").provenance == "replayed"
    assert file.slots("events", Release("3.12.14")).release == Release("3.12.14")


def test_slots_that_are_listed_are_no_guess_and_are_written_again_as_ranges() -> None:
    text = '[{ queue = "events.1", slots = ["00..02", "05"] }, { queue = "events.2", slots = [3, 4] }]'
    file = slotted(6, text)
    table = file.slots("events")
    assert (table.provenance, table.owners_assumed) == ("replayed", False)
    assert slotted(3, '[{ queue = "events.{1..2}" }]').slots("events").owners_assumed
    owners = [table.owners[ExchangeRef(f"events.slot.0{n}")] for n in range(6)]
    assert owners == [f"events.{n}" for n in (1, 1, 1, 2, 2, 1)]
    assert text.replace("[3, 4]", '["03", "04"]') in file.to_toml()
    assert Topology.from_toml(file.to_toml()) == file


@pytest.mark.parametrize(
    ("exchange", "says"),
    [
        ("ordres", "exchange 'ordres' does not exist: those of type x-consistent-hash are orders"),
        ("audit", "exchange 'audit' is of type fanout: those of type x-consistent-hash are orders"),
        ("orders", "exchange 'orders' does not have slots: Topology.key_map returns its mapping of keys"),
    ],
)
def test_an_exchange_without_slots_or_a_ring_is_named_with_those_that_are_there(
    exchange: str, says: str
) -> None:
    with pytest.raises(InputError, match=says) as error:
        FILE.slots(exchange)
    assert error.value.exchange == exchange
    with pytest.raises(InputError, match="those of type x-consistent-hash are none"):
        Topology().ring(exchange)
