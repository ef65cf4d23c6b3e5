"""Slots on a real broker by the commands: exported, checked with the messages that wait, repaired."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from shop import Shop
from slotted import declare_slots
from topology_commands import Topologies

from rabbit_chx.cli import main

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


@pytest.mark.extended
def test_a_file_answers_as_the_broker_does_once_it_lists_the_slots(
    slots: Shop, topologies: Topologies, answer: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """Two slots are not where a new broker would have them."""
    for slot, old, new in (("00", "events.1", "events.2"), ("01", "events.2", "events.1")):
        slots.channel.queue_unbind(old, f"events.slot.{slot}", "")
        slots.channel.queue_bind(new, f"events.slot.{slot}", "")
    path, keys = topologies.file(FILE), [f"key-{n}" for n in range(60)]
    live = answer("route", "--exchange", "events", *slots.live, *slots.via, *keys)["answers"]
    guessed = answer("route", "--topology", path, *keys, code=3)
    assert guessed["ring"]["provenance"] == "assumed"
    assert guessed["answers"] != live
    compared = ("compare", "--exchange", "events", *slots.live, *slots.via, "--to-ring", path)
    assert main(compared) == 2
    assert f"rabbit-chx topology arrange {path} --write" in " ".join(capsys.readouterr().err.split())
    assert "events: each member lists its slots" in topologies.run("arrange", path, "--write")[1]
    pinned = answer("route", "--topology", path, *keys)
    assert (pinned["ring"]["provenance"], pinned["answers"]) == ("replayed", live)
    answer(*compared)
    assert topologies.document("plan", path)["changes"] == []
    slots.channel.queue_unbind("events.2", "events.slot.00", "")
    slots.channel.queue_bind("events.1", "events.slot.00", "")
    (finding,) = topologies.document("check", path, code=1)["findings"]
    assert (finding["kind"], finding["destination"]) == ("different", {"exchange": "events.slot.00"})
    assert "events.slot.00 is at events.1, not events.2" in finding["message"]
    planned = topologies.document("plan", path, code=1)
    assert planned["rings"][0]["moved"] == finding["share"]


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
    assert "is bound to no queue: 12.510% of all keys wait in events.park" in bare["message"]
    assert (parked["kind"], parked["destination"]) == ("unexpected", "events.park")
    assert parked["message"].startswith(f"{waiting} message")
    (fix,) = {finding["fix"] for finding in document["findings"]}
    plan, _, apply = fix.partition(", and then: ")
    assert plan.startswith(f"run: rabbit-chx topology plan {path} --url amqp://")
    assert apply.startswith(f"rabbit-chx topology apply {path} --url amqp://")
    shown = answer("ring", "show", "events", *slots.live, *slots.via)["slots"]
    assert shown["events.slot.05"] is None
    topologies.run("apply", path, "--yes")
    assert topologies.document("check", path)["findings"] == []
