"""The list of hash exchanges: what each row says."""

from __future__ import annotations

from dataclasses import replace

from command_line import Stored
from slot_files import live_of

from rabbit_chx.broker.exchange_report import list_report, list_rings
from rabbit_chx.topology import Topology

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
    stored("rings", list_report(["/"], tuple(list_rings("/", LIVE)), all_vhosts=False))


def test_a_ring_that_was_not_read_is_not_checked(stored: Stored) -> None:
    assumed = replace(LIVE, rings={})
    stored("rings-assumed", list_report(["/"], tuple(list_rings("/", assumed)), all_vhosts=True))
