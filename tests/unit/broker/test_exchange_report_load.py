"""The shares and the load of slots and their queues."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import Stored
from given_report import console_text

from rabbit_chx import ExchangeRef, HashRing, SlotTable
from rabbit_chx.broker.exchange_report import ShownExchange, show_report
from rabbit_chx.cli.samples import parse_keys, read_load
from rabbit_chx.rendering.document import Document
from rabbit_chx.topology.model import PublishRates

pytestmark = pytest.mark.all_seeds
SLOTS = [ExchangeRef(f"events.slot.{n:02}") for n in range(8)]
TABLE = SlotTable(HashRing.from_buckets(SLOTS), {slot: f"events.{n % 2 + 1}" for n, slot in enumerate(SLOTS)})
HEAVY = "whale", "user-2"
RATES = PublishRates(100.0, {"events.1": 60.0, "events.2": 40.0}, {"events.2": "down"})
LIVE = ShownExchange("events", "shop", TABLE, {}, rates=RATES)


def reported(shown: ShownExchange) -> Document:
    return show_report({shown.name: shown})


def test_without_a_sample_the_rate_is_shown_and_no_load_and_a_slot_that_nobody_has(stored: Stored) -> None:
    stored("slots", reported(LIVE))
    table = SlotTable(TABLE.ring, dict.fromkeys(SLOTS[1:], "events.1"))
    stored("slots-without-rate", reported(ShownExchange("events", "shop", table, {})))


def test_the_load_of_slots_adds_up(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    keys = [*(f"user-{n}" for n in range(100)), *["whale"] * 60, *["user-2"] * 40]
    path.write_text("".join(f"{key}\n" for key in keys))
    shown = replace(LIVE, sample=read_load(parse_keys(str(path)), {}, TABLE))
    document = json.loads(json.dumps(reported(shown).as_json()))
    assert document["sample"]["messages"] == 200
    assert sum(slot["load"] for slot in document["members"]) == pytest.approx(1)
    assert [queue["load"] for queue in document["queues"]] == pytest.approx(
        [sum(slot["load"] for slot in document["members"] if slot["queue"] == f"events.{n}") for n in (1, 2)]
    )
    assert [key["key"] for key in document["heaviest"]][:2] == list(HEAVY)
    whale = TABLE.ring.destination_for("whale")
    assert isinstance(whale, ExchangeRef)
    row = next(
        line for line in console_text(reported(shown)).splitlines() if line.startswith(f" {whale.name}")
    )
    load = next(slot["load"] for slot in document["members"] if slot["destination"]["exchange"] == whale.name)
    assert row.endswith(f"{load * 100:.1f}")  # of 100 messages/s
