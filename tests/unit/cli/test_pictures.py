"""Pages and pictures of commands: their numbers are those of the JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from command_line import BIND
from modelled_commands import ModelledCommands
from pages import Page, parsed_svg

from rabbit_chx import ExchangeRef, HashRing, SlotTable, Topology
from rabbit_chx.analysis import SlotLoad
from rabbit_chx.analysis.wording import percent
from rabbit_chx.cli.slots import BalanceReport, LiveTable, SlotSample, SlotsReport
from rabbit_chx.rendering.html import html_page
from rabbit_chx.topology import balance
from rabbit_chx.topology.reading import PublishRates

EVIL = '<script>"&'
TEN = '[[exchanges]]\nname = "orders"\ntype = "x-consistent-hash"\nmax_share_moved = 0.05\nring = [{ queue = "q{1..10}" }]\n'
NINE = TEN.replace("q{1..10}", "q{2..10}")
QUEUES = '[[queues]]\nname = "q{1..10}"\n'


def cells(page: Page) -> set[str]:
    return {cell for table in page.tables for row in table for cell in row}


def test_the_page_of_simulate_has_the_numbers_of_the_json(
    answer: Callable[..., Any], shown: Callable[..., str]
) -> None:
    sample = ("--pattern", "k{n}", "--count", "9")
    command = ("simulate", *BIND, "--bind", f"{EVIL}=2", "--unbind", "q1", *sample)
    document = answer(*command)
    page = Page(shown(*command, "--output", "html"))
    assert {percent(part["share"]) for part in document["shares"]} <= cells(page)
    moved = document["change"]["shares"]
    assert {percent(cell["amount"]) for cell in moved["cells"]} <= cells(page)
    assert percent(moved["moved"]) in cells(page)
    assert EVIL in cells(page)
    assert "rabbit-chx simulate" in page.text


def test_the_svg_of_simulate_has_its_figures(shown: Callable[..., str]) -> None:
    root = parsed_svg(shown("simulate", *BIND, "--add", "q9=1", "--output", "svg"))
    text = "".join(root.itertext())
    for title in ("Who has which bucket", "Share of each destination", "What moves from where to where"):
        assert title in text


def test_the_page_of_a_plan_has_every_way_and_what_may_move(
    modelled: ModelledCommands, ran: Callable[..., tuple[int, str, str]]
) -> None:
    modelled.holds(Topology.from_toml(TEN + QUEUES))
    command = modelled.arguments("plan", NINE + QUEUES)
    code, out, _ = ran(*command, "--output", "html")
    assert code == 4
    page = Page(out)
    (ring,) = json.loads(ran(*command, "--output", "json")[1])["rings"]
    ways = {f"{way['strategy']}: {percent(way['moved'])}" for way in ring["proposals"]}
    assert len(ways) == len(page.named("input")) > 1
    assert all(way in page.text for way in ways)
    assert {percent(way["moved_at_worst"]) for way in ring["proposals"]} <= cells(page)
    assert "max_share_moved 0.05" in page.text
    assert "--allow-moved" in page.text
    assert "in the end" in "".join(parsed_svg(ran(*command, "--output", "svg")[1]).itertext())


def test_a_check_and_a_comparison_have_pages(
    modelled: ModelledCommands, ran: Callable[..., tuple[int, str, str]]
) -> None:
    modelled.holds(Topology.from_toml(TEN + QUEUES))
    live = modelled.arguments("check", TEN + QUEUES)
    for command, title in (
        (live, "The rings"),
        (("ring", "check", "orders", *live[3:]), "10 buckets; sound"),
        (("compare", "--bind", "q1=1", "--bind", "q2=1", "--to-bind", "q2=1"), "What moves from where"),
    ):
        code, out, errors = ran(*command, "--output", "html")
        assert code in (0, 1), errors
        assert title in Page(out).text


@pytest.fixture
def table() -> LiveTable:
    """Eight slots of two queues, and one of nobody."""
    slots = [ExchangeRef(f"events.slot.{n:02}") for n in range(9)]
    owners = {slot: f"events.{n % 2 + 1}" for n, slot in enumerate(slots[:8])}
    made = SlotTable(HashRing.from_buckets(slots), owners)
    return LiveTable("events", "/", {}, made, PublishRates(None, {}))


def test_the_pages_of_slots_have_their_numbers(table: LiveTable) -> None:
    page = Page(html_page("slots", SlotsReport(table, None).blocks()))
    assert "Who has which slot" in page.text
    assert {percent(share) for share in table.slots.shares().values()} <= cells(page)
    keys = [f"u{n}" for n in range(60)] + ["whale"] * 30
    load = SlotLoad.of_keys(table.slots, [keys])
    sample = SlotSample.counted(load, "keys")
    made = balance(table.slots, load, {"events.1": 1, "events.2": 1, "events.3": 1}, target=1.5)
    page = Page(html_page("balance", BalanceReport(table, sample, made).blocks()))
    assert {percent(queue.after) for queue in made.queues} <= cells(page)
    assert "Which slots change hands" in page.text
