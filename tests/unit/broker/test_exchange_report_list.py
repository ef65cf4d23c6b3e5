"""The list of hash exchanges: what each row says."""

from __future__ import annotations

from dataclasses import replace

from command_line import Stored
from slot_files import live_of

from rabbit_chx import ExchangeRef, HashRing
from rabbit_chx.analysis.compare_report import compare_report
from rabbit_chx.analysis.simulation import simulate
from rabbit_chx.broker.exchange_report import (
    ShownExchange,
    list_moduli,
    list_report,
    list_rings,
    show_report,
)
from rabbit_chx.checking.check import check
from rabbit_chx.routing import Destination, Ground
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


def test_behind_an_exchange_whose_order_is_not_known_shares_are_not_known() -> None:
    rings: dict[str, list[Destination]] = {
        "front": [ExchangeRef("m1"), ExchangeRef("m2")],
        "m1": ["a", "b"],
        "m2": ["c", "d"],
    }
    live = live_of(
        Topology(
            tuple(
                ExchangeDefinition(name, "x-consistent-hash", ring=tuple(map(RingMember, ring)))
                for name, ring in rings.items()
            ),
            tuple(map(QueueDefinition, "abcd")),
        )
    )
    guess = replace(live.rings["front"], ground=Ground(None))
    for known, shares in ((live, [1.0, 0.0]), (live.with_rings({"front": guess}), [None, None])):
        shown = ShownExchange.of_topology(known, "m1")
        document = show_report({"m1": shown}).as_json(str)
        assert document["determined"] == shown.is_determined == (None not in shares)
        assert [member["share"] for member in document["members"]] == shares


def test_the_list_has_no_share_of_a_modulus_behind_an_order_that_is_not_known() -> None:
    ring = tuple(map(RingMember, (ExchangeRef("m1"), ExchangeRef("m2"))))
    exchanges = (
        ExchangeDefinition("front", "x-consistent-hash", ring=ring),
        *(
            ExchangeDefinition(name, "x-modulus-hash", queues=queues)
            for name, queues in (("m1", ("a", "b")), ("m2", ("c",)))
        ),
    )
    live = live_of(Topology(exchanges, tuple(map(QueueDefinition, "abc"))))
    guess = replace(live.rings["front"], ground=Ground(None))
    told, untold = (
        [share for *_, share in list_moduli("/", each, check(each))]
        for each in (live, live.with_rings({"front": guess}))
    )
    assert all("of the keys that front sends to it" in share for share in told)
    assert untold == ["", ""]


def test_shares_without_an_order_are_by_weight() -> None:
    ring = HashRing.unordered([("a", 1), ("b", 2)])
    rows = compare_report(simulate(ring), is_determined=False).as_json(str)["shares"]
    assert [(row["share"], row["ideal"], row["skew"]) for row in rows] == [
        (0.333, None, None),
        (0.667, None, None),
    ]


def test_an_exchange_before_one_whose_order_is_not_known_is_listed_as_not_determined() -> None:
    members = (RingMember(ExchangeRef("behind"), "1"), RingMember("q", "1"))
    exchanges = (
        ExchangeDefinition("front", "x-consistent-hash", ring=members),
        ExchangeDefinition("behind", "x-consistent-hash", ring=(RingMember("a", "1"), RingMember("b", "1"))),
    )
    live = live_of(Topology(exchanges, tuple(map(QueueDefinition, "abq"))))
    guess = replace(live.rings["behind"], ground=Ground(None))
    unsure = live.with_rings({"behind": guess})
    rows = list_report(["/"], tuple(list_rings("/", unsure, check(unsure))))
    assert [
        (one["exchange"], one["buckets"], one["determined"]) for one in rows.as_json(str)["exchanges"]
    ] == [
        ("behind", None, False),
        ("front", 2, False),
    ]
