"""A plan counts the keys that an ``x-modulus-hash`` exchange sends elsewhere, and is refused above ``max_share_moved``."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from model_broker import ModelBroker
from sides import as_live

from rabbit_chx import Release
from rabbit_chx.broker.exchange_report import list_moduli, list_report
from rabbit_chx.checking.check_report import CheckReport
from rabbit_chx.errors import InputError
from rabbit_chx.rendering.document import Facts
from rabbit_chx.topology import (
    BindingDefinition,
    ExchangeDefinition,
    LiveTopology,
    RingMember,
    Topology,
    check,
    plan,
)
from rabbit_chx.topology.modulus import is_super_stream, number_bindings, share_moved

NEWEST, KHEPRI = Release("4.3.6"), Release("4.0.5", store="khepri")
HEAD = '[[exchanges]]\nname = "bills"\ntype = "x-modulus-hash"\n'


def bills(*numbers: int, release: Release = NEWEST) -> LiveTopology:
    """Return a topology whose exchange has the queues ``b.0`` to ``b.20`` of these numbers."""
    queues = ", ".join(f'"b.{number}"' for number in numbers)
    text = f'{HEAD}queues = [{queues}]\n[[queues]]\nname = "b.{{0..20}}"\n'
    return as_live(Topology.from_toml(text), release=release)


def test_bindings_with_one_key_are_numbered_by_their_destinations() -> None:
    old = Release("3.10.8")
    for bindings in (bills(0, 1, 2).bindings, bills(2, 1, 0).bindings):
        assert number_bindings(bindings, old) == ("b.0", "b.1", "b.2")


def test_a_plan_of_two_files_has_read_no_bindings() -> None:
    made = plan(bills(*range(9)).as_wanted(), as_live(bills(*range(8)), release=None)).rings["bills"]
    assert (made.before.provenance, made.after.provenance) == ("replayed", "replayed")


def test_a_check_names_exchanges_without_a_ring_and_those_that_are_missing() -> None:
    checked = check(bills(0, 1))
    assert checked.without_ring == ("bills",)
    (shown,) = (
        dict(block.pairs)["without ring"]
        for block in CheckReport("b:5672", {"/": checked}, (), 1.0).document().blocks()
        if isinstance(block, Facts) and "without ring" in dict(block.pairs)
    )
    assert shown == "bills (x-modulus-hash): bindings are compared with each other"

    listed = bills(0, 1).as_wanted()
    listed = replace(listed, exchanges=(*listed.exchanges, ExchangeDefinition("other", "topic")))
    deleted = check(replace(bills(0, 1), exchanges=(), bindings=()), listed)
    written = CheckReport("b:5672", {"/": deleted}, (), 1.0, "file").document().gauges
    (gauge,) = (gauge for gauge in written if gauge.name == "rabbit_chx_exchange_present")
    assert gauge.samples == [({"broker": "b:5672", "vhost": "/", "exchange": "bills", "file": "file"}, 0)]


def bound_twice(**about: Any) -> LiveTopology:
    """Return a topology whose exchange has two queues and a second binding of the first, which is different."""
    live = bills(0, 1)
    exchange = replace(live.exchanges[0], queues=None)
    return replace(live, exchanges=(exchange,), bindings=(*live.bindings, replace(live.bindings[0], **about)))


def test_one_exchange_is_checked_by_its_name_without_rings() -> None:
    hashing = ExchangeDefinition("o", "x-consistent-hash", ring=())
    live = bound_twice(routing_key="again")
    live = replace(live, exchanges=(*live.exchanges, hashing), queues=live.queues[:2])

    checked = check(live, exchange="bills")
    assert ([finding.kind for finding in checked.findings], checked.without_ring) == (
        ["second-binding"],
        ("bills",),
    )
    written = CheckReport("b:5672", {"/": check(bills(0, 1))}, (), 1.0).document().gauges
    (gauge,) = (gauge for gauge in written if gauge.name == "rabbit_chx_check_findings")
    labels = {"broker": "b:5672", "vhost": "/", "exchange": "bills", "kind": "second-binding"}
    assert [count for found, count in gauge.samples if labels.items() <= found.items()] == [0]


def test_a_list_reports_that_a_modulus_exchange_has_no_ring() -> None:
    live = bills(0, 1, 2)
    live = replace(live, queues=live.queues[:3])
    listed = list_report(["/"], (), tuple(list_moduli("/", live, check(live))))

    shown = {"vhost": "/", "exchange": "bills", "members": 3, "bindings": 3, "findings": []}
    assert listed.as_json()["modulus"] == [shown]
    *_, line = listed.blocks()
    assert "without a ring: 3 members, 3 bindings, each with 1/3 of the keys; findings none" in str(line)


@pytest.mark.parametrize("name", ["bills", "bills.{1..2}"])
def test_a_list_of_queues_is_read_as_bindings_and_written_again(name: str) -> None:
    text = f'[[exchanges]]\nname = "{name}"\ntype = "x-modulus-hash"\nqueues = ["b.{{1..8}}", "x"]\n'
    read = Topology.from_toml(text)

    assert read.to_toml() == text
    assert Topology.from_toml(read.to_toml()) == read
    exchange = read.exchanges[0]
    assert exchange.queues == ("b.1", "b.2", "b.3", "b.4", "b.5", "b.6", "b.7", "b.8", "x")
    bound = {BindingDefinition(exchange.name, queue) for queue in exchange.queues}
    assert {binding for binding in read.bindings if binding.source == exchange.name} == bound


@pytest.mark.parametrize(
    ("now", "then", "at_worst"), [(8, 9, 8 / 9), (9, 8, 8 / 9), (8, 10, 8 / 9), (2, 5, 4 / 5)]
)
def test_slots_are_proposed_instead_of_more_or_fewer_queues(now: int, then: int, at_worst: float) -> None:
    wanted, live = (bills(*range(count)) for count in (then, now))
    modulus = plan(wanted.as_wanted(), live).rings["bills"]

    order = [sorted(f"b.{n}" for n in range(count)) for count in (now, then)]
    period = math.lcm(now, then)
    counted = sum(order[0][n % now] != order[1][n % then] for n in range(period)) / period
    assert (modulus.moved, modulus.moved_at_worst) == pytest.approx((counted, at_worst), abs=1e-6)
    proposals = {proposal.strategy: proposal for proposal in modulus.proposals}
    assert list(proposals) == ["as-written", "slots"]
    # Of the keys, those that have a queue that stays. Their slot is an independent one.
    kept = min(now, then) / now
    assert proposals["slots"].moved == pytest.approx(1 - kept / then)
    assert proposals["slots"].slots == max(64, 10 * then)
    written = json.loads(plan(wanted.as_wanted(), live).to_json())["rings"][0]["proposals"]
    assert [proposal["strategy"] for proposal in written] == ["as-written", "slots"]
    assert written[0]["ring"][0] == {"queue": "b.0", "weight": "1"}


def test_a_new_exchange_over_queues_that_exist_moves_keys_until_it_has_all_of_them() -> None:
    wanted = bills(0, 1, 2).as_wanted()
    live = as_live(Topology(queues=wanted.queues), release=NEWEST)
    assert plan(wanted, live).rings["bills"].movement.transient_share == share_moved(
        ["b.0"], ["b.0", "b.1", "b.2"], NEWEST
    )


def test_the_exchange_of_a_topology_is_read_on_a_broker_and_replayed_from_a_file() -> None:
    live = bills(*range(1, 11))
    of_file = as_live(live, release=None)

    assert live.modulus("bills").destinations == tuple(sorted(live.exchanges[0].queues or ()))
    assert live.modulus("bills").destinations[1] == "b.10"
    assert (live.modulus("bills").provenance, of_file.modulus("bills").provenance) == ("read", "replayed")
    assert of_file.modulus("bills") == live.modulus("bills", NEWEST)
    assert live.modulus("bills", Release("4.0.5", "mnesia")).provenance is None
    hidden = as_live(live, sources_left_out=frozenset({"bills"}))
    assert hidden.modulus("bills").provenance is None
    assert bills(0, 1, release=KHEPRI).modulus("bills").provenance is None
    assert live.key_map("bills") == live.modulus("bills")
    for call, name, says in (
        (live.modulus, "other", "those of type x-modulus-hash are bills"),
        (live.ring, "bills", r"'bills' is of type x-modulus-hash, which Topology\.modulus returns"),
        (live.slots, "bills", "'bills' does not have slots"),
    ):
        with pytest.raises(InputError, match=says):
            call(name)
    assert bound_twice(arguments={"a": 1}).modulus("bills").destinations == ("b.0", "b.0", "b.1")


def test_only_a_direct_exchange_is_a_super_stream() -> None:
    both = (
        ExchangeDefinition("s", type_, arguments={"x-super-stream": True}) for type_ in ("direct", "fanout")
    )
    assert list(map(is_super_stream, both)) == [True, False]


def test_an_unchanged_exchange_whose_order_nobody_knows_has_no_flows() -> None:
    live = bills(0, 1, release=KHEPRI)
    made = plan(live.as_wanted(), live)
    assert (made.rings["bills"].moved, made.rings["bills"].matrix()) == (0.0, None)
    assert json.loads(made.to_json())["rings"][0]["matrix"] is None


@pytest.mark.parametrize("members", [(), ("b.0", "b.1", "b.2")])
@pytest.mark.parametrize("becomes_ring", [True, False])
def test_the_plan_of_another_type_has_the_map_of_each_type_and_the_steps_of_the_ring(
    members: tuple[str, ...], *, becomes_ring: bool
) -> None:
    modulus = bills(0, 1).as_wanted()
    hashing = ExchangeDefinition("bills", "x-consistent-hash", ring=tuple(map(RingMember, members)))
    ring = replace(modulus, exchanges=(hashing,), bindings=())
    old, new = (modulus, ring) if becomes_ring else (ring, modulus)
    live = ModelBroker.holding(old, NEWEST).topology()

    change = plan(new, live).rings["bills"]

    sides = live.key_map("bills"), new.key_map("bills", NEWEST)
    for side, expected in zip((change.before, change.after), sides, strict=True):
        assert (side.kind, side.buckets) == (expected.kind, expected.buckets)
    assert change.matrix() is None
    assert [step.binding.destination for step in change.steps] == [*members][:: 1 if becomes_ring else -1]
    assert (change.moved, change.is_ring) == (1.0, True)
