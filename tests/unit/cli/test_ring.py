"""The command that shows one ring: what it reads of each address, and its findings; the texts are in the transcripts."""

from __future__ import annotations

import json

import pytest
from command_line import Ran
from modelled_commands import ModelledCommands
from slot_files import live_of

from rabbit_chx.topology import Topology

RING = """
[[exchanges]]
name = "orders"
type = "x-consistent-hash"
arguments = { hash-header = "tenant" }
ring = [{ queue = "q2", weight = 3 }, { queue = "q1" }]
[[queues]]
name = "q{1..2}"
"""
SLOTS = """
[[exchanges]]
name = "events"
type = "x-consistent-hash"
slots = 4
members = [{ queue = "q1", slots = [0, 1, 2] }, { queue = "q2", slots = [3] }]
[[queues]]
name = "q{1..2}"
"""


def shown(ran: Ran, modelled: ModelledCommands, exchange: str) -> tuple[dict[str, object], str]:
    code, out, err = ran(*modelled.of_broker("ring", "show", exchange, "--no-record", "-o", "json"))
    assert code == 0, err
    return json.loads(out), err


def test_a_ring_is_shown_with_its_order_arguments_and_record(ran: Ran, modelled: ModelledCommands) -> None:
    modelled.holds(Topology.from_toml(RING))
    report, err = shown(ran, modelled, "orders")
    assert report["buckets"] == ["q2", "q2", "q2", "q1"]
    assert report["provenance"] == "read"
    assert report["arguments"] == {"hash-header": "tenant"}
    assert report["record"] is not None
    assert err == ""


def test_a_ring_of_slots_is_shown_with_the_queue_of_each_slot(ran: Ran, modelled: ModelledCommands) -> None:
    modelled.holds(live_of(Topology.from_toml(SLOTS)))
    report, _ = shown(ran, modelled, "events")
    assert report["slots"] == {
        "events.slot.00": "q1",
        "events.slot.01": "q1",
        "events.slot.02": "q1",
        "events.slot.03": "q2",
    }


def test_a_destination_with_buckets_and_no_binding_is_named(ran: Ran, modelled: ModelledCommands) -> None:
    modelled.holds(Topology.from_toml(RING))
    modelled.model.bindings = {bound: None for bound in modelled.model.bindings if bound.destination != "q1"}
    _, err = shown(ran, modelled, "orders")
    assert "exchange 'orders': q1 has 1 bucket and no binding" in err


@pytest.mark.parametrize(
    ("exchange", "said"),
    [("ordres", "there is no exchange 'ordres'"), ("amq.none", "there is no exchange 'amq.none'")],
)
def test_an_exchange_that_is_not_there_is_named(
    ran: Ran, modelled: ModelledCommands, exchange: str, said: str
) -> None:
    modelled.holds(Topology.from_toml(RING))
    code, _, err = ran(*modelled.of_broker("ring", "show", exchange))
    assert code != 0
    assert said in err
