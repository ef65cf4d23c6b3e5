"""Slots on a real broker by the commands: exported, checked with the messages that wait, repaired."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from shop import Shop
from slotted import declare_slots
from topology_commands import Topologies

pytestmark = pytest.mark.broker

FILE = """
[[exchanges]]
name = "events"
type = "x-consistent-hash"
slots = 8
members = [{ queue = "events.{1..3}", weight = 1 }]

[[queues]]
name = "events.{1..3}"
"""


@pytest.fixture
def slots(topologies: Topologies) -> Shop:
    """The shop, with the exchange of FILE."""
    declare_slots(topologies.shop.channel, "events", 8, ["events.1", "events.2", "events.3"])
    return topologies.shop


@pytest.mark.usefixtures("slots")
def test_an_export_has_slots_and_an_empty_plan(topologies: Topologies) -> None:
    text, _ = topologies.run("export", "--exchange", "events")
    assert text.endswith(FILE)
    assert topologies.document("plan", topologies.file(text))["changes"] == []
    assert topologies.document("check", topologies.file(text))["findings"] == []
    whole, _ = topologies.run("export")
    assert topologies.document("plan", topologies.file(whole))["changes"] == []
    _, said = topologies.run("export", "--exchange", "event", code=77)
    assert "there is no exchange event: did you mean events?" in said


def test_what_waits_in_the_park_is_counted(
    slots: Shop, topologies: Topologies, answer: Callable[..., Any]
) -> None:
    slots.channel.queue_unbind("events.3", "events.slot.05", "")
    slots.channel.confirm_delivery()
    for n in range(80):
        slots.channel.basic_publish("events", f"key-{n}", b"", mandatory=True)
    waiting = slots.channel.queue_declare("events.park", passive=True).method.message_count
    path = topologies.file(FILE)
    document = topologies.document("check", path, code=1)
    bare, parked = document["findings"]
    assert (bare["kind"], bare["destination"]) == ("missing", {"exchange": "events.slot.05"})
    assert "is bound to no queue: 12.510% of all keys wait in events.park" in bare["says"]
    assert (parked["kind"], parked["destination"]) == ("unexpected", "events.park")
    assert parked["says"].startswith(f"{waiting} message")
    assert {finding["cure"] for finding in document["findings"]} == {
        f"run: rabbit-chx topology plan {path}, and then: rabbit-chx topology apply {path}"
    }
    shown = answer("ring", "show", "events", *slots.live, *slots.via)["slots"]
    assert shown["events.slot.05"] is None
    topologies.run("apply", path, "--yes")
    assert topologies.document("check", path)["findings"] == []


def test_a_repair_brings_the_order_of_the_slots_back(
    slots: Shop, topologies: Topologies, answer: Callable[..., Any]
) -> None:
    for slot in ("events.slot.02", "events.slot.00"):
        slots.channel.exchange_unbind(slot, "events", "1")
        slots.channel.exchange_bind(slot, "events", "1")
    live = (*slots.live, *slots.via)
    (order,) = answer("ring", "check", "events", *live, code=1)["findings"]
    assert order["kind"] == "order"
    assert order["cure"] == (
        "run: rabbit-chx ring repair events; it shows the steps, and does them with --apply"
    )
    planned = answer("ring", "repair", "events", *live, code=1)
    assert planned["plan"]["rings"][0]["moved"] == order["share"]
    path = topologies.file(FILE)
    done = answer("ring", "repair", "events", "--file", path, "--apply", *live)
    assert (done["state"], done["left"]) == ("applied", [])
    assert answer("ring", "check", "events", *live)["findings"] == []
