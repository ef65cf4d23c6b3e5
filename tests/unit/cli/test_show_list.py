"""The list of hash exchanges: what each row says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from command_line import Stored
from slot_files import live_of

from rabbit_chx.cli.broker_options import why_nothing_hashes
from rabbit_chx.cli.show import _list_rings_of, list_report
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
    stored("rings", list_report(["/"], tuple(_list_rings_of("/", LIVE)), all_vhosts=False))


def test_a_ring_that_was_not_read_is_not_checked(stored: Stored) -> None:
    assumed = replace(LIVE, rings={})
    stored("rings-assumed", list_report(["/"], tuple(_list_rings_of("/", assumed)), all_vhosts=True))


TYPES = [{"name": "direct", "enabled": True}, {"name": "x-consistent-hash", "enabled": True}]
LISTED = [{"name": "amq.direct", "vhost": "/", "type": "direct"}]
ORDERS = {"name": "orders", "vhost": "it's", "type": "x-consistent-hash"}


NONE = "no exchange of type x-consistent-hash or x-modulus-hash:"


@pytest.mark.parametrize(
    ("vhosts", "types", "exchanges", "why"),
    [
        ([], TYPES, [], "the user 'ops' may access no vhost: grant it permissions with rabbitmqctl set_permissions"),
        (["/"], TYPES[:1], LISTED, (
            "the broker does not have the exchange type x-consistent-hash: enable its plugin with "
            "rabbitmq-plugins enable rabbitmq_consistent_hash_exchange"
        )),
        (["/"], TYPES, LISTED, f"vhost / has {NONE} declare one"),
        (["/", "b"], TYPES, LISTED, f"the 2 vhosts of the user have {NONE} declare one"),
        (["/"], TYPES, [*LISTED, ORDERS], f"""vhost / has {NONE} vhost it's has one, pass --vhost 'it'"'"'s'"""),
        (["/"], [], LISTED, f"vhost / has {NONE} declare one"),
    ],
    ids=["permission", "plugin", "vhost", "vhosts", "another-vhost", "types-not-listed"],
)  # fmt: skip
def test_without_an_exchange_that_hashes_the_reason_is_named(
    vhosts: list[str], types: list[dict[str, Any]], exchanges: list[dict[str, Any]], why: str
) -> None:
    assert why_nothing_hashes("ops", vhosts, types, exchanges) == why
