"""The list of hash exchanges: what each row says."""

from __future__ import annotations

from dataclasses import replace

from command_line import Stored
from slot_files import live_of

from rabbit_chx import ExchangeRef, HashRing
from rabbit_chx.analysis.reports import compare_report
from rabbit_chx.analysis.simulation import simulate
from rabbit_chx.broker.exchange_report import (
    list_report,
    list_rings,
)
from rabbit_chx.checking.check import check
from rabbit_chx.routing import OrderKnowledge
from rabbit_chx.topology import ExchangeDefinition, QueueDefinition, RingMember, Topology

FILE = """
[[exchanges]]
name = "orders"
type = "x-consistent-hash"
ring = [{ queue = "q1", weight = 3 }, { queue = "q2" }, { exchange = "audit" }]
[[exchanges]]
name = "events"
type = "x-consistent-hash"
slots = 8
members = [{ queue = "q{1..2}" }]
[[exchanges]]
name = "audit"
type = "fanout"
[[queues]]
name = "q{1..2}"
"""


LIVE = live_of(Topology.from_toml(FILE))


def test_each_exchange_has_its_members_buckets_slots_and_findings(stored: Stored) -> None:
    stored("rings", list_report(["/"], tuple(list_rings("/", LIVE, check(LIVE))), all_vhosts=False))


def test_a_ring_that_was_not_read_is_not_checked(stored: Stored) -> None:
    unread = replace(LIVE, rings={})
    stored(
        "rings-without-order",
        list_report(["/"], tuple(list_rings("/", unread, check(unread))), all_vhosts=True),
    )


def test_shares_without_an_order_are_by_weight() -> None:
    ring = HashRing.unordered([("a", 1), ("b", 2)])
    rows = compare_report(simulate(ring), is_determined=False).as_json()["shares"]
    assert [(row["share"], row["ideal"], row["skew"]) for row in rows] == [
        (0.333, None, None),
        (0.667, None, None),
    ]


def test_an_exchange_before_one_whose_order_is_not_known_is_determined() -> None:
    members = (RingMember(ExchangeRef("behind"), "1"), RingMember("q", "1"))
    exchanges = (
        ExchangeDefinition("front", "x-consistent-hash", ring=members),
        ExchangeDefinition("behind", "x-consistent-hash", ring=(RingMember("a", "1"), RingMember("b", "1"))),
    )
    live = live_of(Topology(exchanges, tuple(map(QueueDefinition, "abq"))))
    guess = replace(live.rings["behind"], order=OrderKnowledge(None))
    unsure = live.with_rings({"behind": guess})
    rows = list_report(["/"], tuple(list_rings("/", unsure, check(unsure))))
    assert [(one["exchange"], one["buckets"], one["determined"]) for one in rows.as_json()["exchanges"]] == [
        ("behind", None, False),
        ("front", 2, True),
    ]
