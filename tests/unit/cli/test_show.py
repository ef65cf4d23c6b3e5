"""The command that shows exchanges: what it reads of each address, and its findings."""

from __future__ import annotations

import json

import pytest
from command_line import Ran
from model_client import ModelClient
from modelled_commands import ModelledCommands
from slot_files import live_of

from rabbit_chx.routing import HashRing, SlotTable
from rabbit_chx.routing.key_map_json import key_map_from_json
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


def shown(ran: Ran, modelled: ModelledCommands, *exchanges: str) -> tuple[dict[str, object], str]:
    code, out, err = ran(*modelled.of_broker("show", *exchanges, "-o", "json"))
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
    code, _, err = ran(*modelled.of_broker("show", exchange))
    assert code != 0
    assert said in err


MODULUS = """
[[exchanges]]
name = "bills"
type = "x-modulus-hash"
queues = ["q{1..2}"]
[[queues]]
name = "q{1..2}"
"""


def test_the_document_of_an_exchange_is_a_ring_for_other_commands(
    ran: Ran, modelled: ModelledCommands
) -> None:
    for text, name, destinations in ((RING, "orders", ("q2", "q1")), (MODULUS, "bills", ("q1", "q2"))):
        modelled.holds(Topology.from_toml(text))
        _, out, _ = ran(*modelled.of_broker("show", name, "-o", "json"))
        assert key_map_from_json(out).destinations == destinations
    modelled.holds(live_of(Topology.from_toml(SLOTS)))
    _, out, _ = ran(*modelled.of_broker("show", "events", "-o", "json"))
    assert SlotTable.from_json(out).destinations == ("q1", "q2")


def test_several_exchanges_are_shown_by_name(ran: Ran, modelled: ModelledCommands) -> None:
    modelled.holds(Topology.from_toml(RING + MODULUS.partition("[[queues]]")[0]))
    report, _ = shown(ran, modelled, "orders", "bills")
    exchanges = report["exchanges"]
    assert isinstance(exchanges, dict)
    assert [*exchanges] == ["orders", "bills"]
    assert [member["weights"] for member in exchanges["orders"]["members"]] == [["3"], ["1"]]
    assert [member["share"] for member in exchanges["bills"]["members"]] == [0.5, 0.5]


def test_a_ring_without_a_record_is_shown_with_the_command_that_stores_one(
    ran: Ran, modelled: ModelledCommands
) -> None:
    modelled.holds(Topology.from_toml(RING))
    exchanges = {*modelled.model.exchanges}
    one, every = (
        " ".join(ran(*modelled.of_broker(*words))[1].split()) for words in (("show", "orders"), ("show",))
    )
    assert "record none: store it with rabbit-chx record orders --url" in one
    assert (
        "the order of orders: if this order is right, store it with rabbit-chx record orders --url" in every
    )
    assert {*modelled.model.exchanges} == exchanges, "a command that reads never writes"
    assert ran(*modelled.of_broker("record", "orders"))[0] == 0
    assert "none" not in ran(*modelled.of_broker("show", "orders"))[1]
    assert "no record" not in ran(*modelled.of_broker("show"))[1]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("q1=1,q2=2", "rabbit-chx compare q1=1,q2=2"),
        ("modulus:q1", "rabbit-chx compare modulus:q1"),
        ("topology.toml#orders", "rabbit-chx check topology.toml --offline"),
    ],
)
def test_what_is_no_exchange_of_a_broker_names_the_command_that_takes_it(
    ran: Ran, name: str, says: str
) -> None:
    code, _, err = ran("show", name)
    assert code == 2
    assert says in err


def test_what_needs_no_order_is_shown_without_it(ran: Ran, modelled: ModelledCommands) -> None:
    modelled.holds(Topology.from_toml(RING))
    at = modelled.of_broker("show", "orders")
    modelled.has_source = False
    code, out, _ = ran(*at, "-o", "json")
    report = json.loads(out)
    assert (code, report["provenance"], report["determined"]) == (3, None, False)
    assert report["buckets"] is None
    assert report["learn"].startswith("rabbit-chx record orders --trace 10")
    assert "likely" not in report
    members = {member["destination"]: member for member in report["members"]}
    assert [*members] == ["q1", "q2"]
    assert [members[name]["weights"] for name in ("q1", "q2")] == [["1"], ["3"]]
    true = HashRing.from_buckets(["q2", "q2", "q2", "q1"]).shares()
    for name, member in members.items():
        assert member["buckets"] is None
        assert member["share"] == pytest.approx(true[name], abs=0.001)
    _, out, _ = ran(*at)
    assert (
        "not determined the queue of a key: learn it in one of three ways: (1) pass `--ring-via 'kubectl exec"
        in " ".join(out.split())
    )
    assert "25.0%" in out
    assert "buckets   count" not in out


def test_a_sole_member_has_all_keys_in_any_order(ran: Ran, modelled: ModelledCommands) -> None:
    modelled.holds(Topology.from_toml(RING.replace('{ queue = "q2", weight = 3 }, ', "")))
    code, out, _ = ran(*modelled.of_broker("show", "orders")[:-2])
    assert (code, "100.000%\n" in out) == (0, True)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("orders", "--all-vhosts"), "--all-vhosts and "),
        (("--consumers", "--all-vhosts"), "--all-vhosts and "),
        (("--keys", "k{1..9}"), "--keys is about one exchange"),
        (("a", "b", "--keys", "k{1..9}"), "--keys is about one exchange"),
        (("a", "--consumers", "--keys", "k{1..9}"), "--keys and --consumers exclude each other"),
        (("a", "-o", "prometheus"), "pass --consumers"),
        (("a", "--journal", "j"), "--journal has no effect without --consumers: pass --consumers too"),
        (("a", "--stream-group", "g"), "--stream-group has no effect without --consumers"),
        (("a", "--consumers", "--address", "a:1=b:2"), "pass --stream-group too"),
        (("--consumers",), "pass one EXCHANGE"),
    ],
)
def test_options_that_have_no_effect_together_are_refused(
    ran: Ran, words: tuple[str, ...], says: str
) -> None:
    code, out, err = ran("show", *words, "--url", "amqp://127.0.0.1:1")
    assert (code, out, says in err) == (2, "", True), err


def test_that_addresses_were_not_compared_is_said_beside_an_answer_and_an_error(
    modelled: ModelledCommands, ran: Ran, monkeypatch: pytest.MonkeyPatch
) -> None:
    modelled.holds(Topology.from_toml(RING))
    monkeypatch.setattr(ModelClient, "not_compared", "two addresses were not compared")
    for name, expected in {"orders": 0, "missing": 2}.items():
        code, _, errors = ran(*modelled.of_broker("show", name))
        assert (code, "two addresses were not compared" in errors) == (expected, True), errors
