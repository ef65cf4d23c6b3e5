"""What a check says about slots: who has them, where messages wait, and in which order they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from rabbit_chx.analysis import Finding
from rabbit_chx.routing import ExchangeRef, HashRing, Release, SlotTable
from rabbit_chx.topology import BindingDefinition, ExchangeDefinition, Topology, check, repair_target
from rabbit_chx.topology.objects import SlotNames
from rabbit_chx.topology.slots import expanded

RELEASE = Release("4.3.6")
FILE = """
[[exchanges]]
name = "events"
type = "x-consistent-hash"
slots = 8
members = [{ queue = "events.{1..2}", weight = 1 }]
[[queues]]
name = "events.{1..2}"
"""
WANTED = Topology.from_toml(FILE)
REFS = SlotNames("events", 8).refs
APPLY = "run: rabbit-chx topology plan t.toml, and then: rabbit-chx topology apply t.toml"
PLAIN = expanded(WANTED, Topology())


def live(topology: Topology = PLAIN, buckets: Sequence[ExchangeRef] = REFS, **others: Any) -> Topology:
    ring = HashRing.from_buckets(buckets, RELEASE, next_bucket=len(buckets))
    return replace(topology, release=RELEASE, **others).with_rings({"events": ring})


def rebound(change: Callable[[BindingDefinition], Sequence[BindingDefinition]]) -> Topology:
    """What is there, with other bindings."""
    return live(replace(PLAIN, bindings=tuple(new for binding in PLAIN.bindings for new in change(binding))))


def other_exchanges(change: Callable[[ExchangeDefinition], Sequence[ExchangeDefinition]]) -> Topology:
    return live(
        replace(PLAIN, exchanges=tuple(new for exchange in PLAIN.exchanges for new in change(exchange)))
    )


def found(there: Topology, wanted: Topology | None = WANTED) -> tuple[Finding, ...]:
    return check(there, wanted, file=None if wanted is None else "t.toml").findings


def owners() -> dict[str, str]:
    return {
        binding.source: str(binding.destination)
        for binding in PLAIN.bindings
        if binding.source != "events.park"
    }


def share(*slots: ExchangeRef) -> float:
    shares = HashRing.from_buckets(REFS, RELEASE).shares()
    return sum(shares[slot] for slot in slots)


def test_slots_as_a_file_says_them_are_sound() -> None:
    checked = check(live(), WANTED)
    assert checked.sound
    assert checked.misplaced == {"events": 0.0}
    assert check(live()).sound
    assert check(live(), exchange="events").sound


@pytest.mark.all_seeds
def test_a_slot_without_a_queue_parks_its_messages() -> None:
    there = rebound(lambda binding: [] if binding.source == "events.slot.03" else [binding])
    (finding,) = found(there)
    assert (finding.kind, finding.exchange, finding.destination, finding.share) == (
        "missing",
        "events",
        REFS[3],
        share(REFS[3]),
    )
    assert (
        finding.message == "slot events.slot.03 is bound to no queue: 12.476% of all keys wait in events.park"
    )
    assert finding.fix == APPLY
    assert check(there).findings[0].fix == "bind a queue to events.slot.03"
    assert check(there).unroutable == {"events": 0.0}
    assert check(there, WANTED).misplaced == {"events": share(REFS[3])}
    many = rebound(
        lambda binding: [] if binding.source in ("events.slot.03", "events.slot.05") else [binding]
    )
    (finding,) = found(many)
    assert finding.message.startswith("2 slots (events.slot.03, events.slot.05) are bound to no queue: ")
    assert (finding.destination, finding.share) == (None, share(REFS[3], REFS[5]))


@pytest.mark.all_seeds
def test_a_slot_with_two_queues_doubles_its_messages() -> None:
    second = BindingDefinition("events.slot.00", "events.2")
    there = rebound(lambda binding: [binding, second] if binding.source == "events.slot.00" else [binding])
    (finding,) = found(there)
    assert (finding.kind, finding.destination, finding.share, finding.fix) == (
        "second-binding",
        REFS[0],
        share(REFS[0]),
        APPLY,
    )
    assert finding.message == (
        "slot events.slot.00 is bound to 2 queues, events.1 and events.2: each message of 12.533% of all keys is in all of them"
    )
    assert check(there).findings[0].fix == "unbind all but one of them from events.slot.00"


def test_a_queue_with_another_number_of_slots_than_its_weight_says() -> None:
    there = rebound(
        lambda binding: (
            [replace(binding, destination="events.1")]
            if binding.source.startswith("events.slot.")
            else [binding]
        )
    )
    (finding,) = found(there)
    assert (finding.kind, finding.destination, finding.fix) == ("different", None, APPLY)
    assert finding.share == pytest.approx(0.5, abs=0.01)
    assert finding.message.startswith(
        "4 slots have other queues than the topology says (events.1 has 8 slots, not 4; events.2 has 0 slots, not 4): "
    )
    assert check(there).sound


def test_queues_with_other_slots_are_told_in_the_order_of_their_names() -> None:
    wanted = Topology.from_toml(FILE.replace("{1..2}", "{1..4}"))
    (finding,) = (finding for finding in found(live(), wanted) if finding.kind == "different")
    assert finding.message.startswith(
        "4 slots have other queues than the topology says (events.1 has 4 slots, not 2; events.2 has 4 slots, not 2; "
        "events.3 has 0 slots, not 2; and 1 more): "
    )


def test_listed_slots_that_are_elsewhere_are_named() -> None:
    listed = Topology.from_toml(
        FILE.replace(
            'members = [{ queue = "events.{1..2}", weight = 1 }]',
            'members = [{ queue = "events.1", slots = [0, 1, 2, 3] }, { queue = "events.2", slots = [4, 5, 6, 7] }]',
        )
    )
    there = live(expanded(listed, Topology()))
    assert check(there, listed).sound
    swap = {"events.slot.03": "events.2", "events.slot.04": "events.1"}
    (finding,) = found(
        replace(
            there,
            bindings=tuple(replace(b, destination=swap.get(b.source, b.destination)) for b in there.bindings),
        ),
        listed,
    )
    assert finding.message.startswith(
        "2 slots have other queues than the topology says (events.slot.03 is at events.2, not events.1; "
        "events.slot.04 is at events.1, not events.2): "
    )


def test_slots_without_an_alternate_exchange_lose_messages_while_they_change_hands() -> None:
    there = other_exchanges(
        lambda exchange: (
            [replace(exchange, arguments={})] if exchange.name == "events.slot.02" else [exchange]
        )
    )
    (finding,) = found(there)
    assert (finding.kind, finding.destination, finding.share) == ("different", REFS[2], share(REFS[2]))
    assert finding.message.startswith(
        "slot events.slot.02 is without an alternate exchange: while one has no queue"
    )
    assert finding.fix == f"{APPLY} --allow-delete"
    assert "rabbitmqctl set_policy events-slots '^events\\.slot\\.'" in check(there).findings[0].fix


def test_a_park_without_a_queue_and_a_park_with_messages() -> None:
    (finding,) = found(rebound(lambda binding: [] if binding.source == "events.park" else [binding]))
    assert (finding.kind, finding.destination) == ("missing", ExchangeRef("events.park"))
    assert finding.message.startswith("events.park, the alternate exchange of 8 slots, leads to no queue: ")
    for count, wait in ((1, "1 message waits"), (1200, "1,200 messages wait")):
        (finding,) = found(live(messages={"events.park": count, "events.1": 5}))
        assert (finding.kind, finding.destination, finding.share, finding.fix) == (
            "unexpected",
            "events.park",
            None,
            APPLY,
        )
        assert finding.message == f"{wait} in events.park: they came while their slot had no queue"
    assert check(live(messages={"events.park": 7}), WANTED).parked == {"events": 7}
    assert check(live(), WANTED).parked == {"events": 0}
    assert "write the exchange with `slots`" in check(live(messages={"events.park": 1})).findings[0].fix


def test_no_cure_contradicts_another() -> None:
    """A slot without a queue and without an alternate exchange is three findings, and one thing to do."""
    there = live(
        replace(
            PLAIN,
            exchanges=tuple(
                replace(exchange, arguments={}) if exchange.name == "events.slot.02" else exchange
                for exchange in PLAIN.exchanges
            ),
            bindings=tuple(binding for binding in PLAIN.bindings if binding.source != "events.slot.02"),
        )
    )
    said = found(there)
    assert [finding.kind for finding in said] == ["unroutable-share", "missing", "different"]
    assert {finding.fix.removesuffix(" --allow-delete") for finding in said} == {APPLY}
    assert said[1].message.endswith("of all keys end in no queue")
    assert check(there).unroutable["events"] == share(REFS[2])


def test_slot_exchanges_that_are_missing_or_different() -> None:
    gone = {"events.slot.06", "events.slot.07"}
    there = live(
        replace(
            PLAIN,
            exchanges=tuple(
                replace(exchange, ring=exchange.ring[:6]) if exchange.ring else exchange
                for exchange in PLAIN.exchanges
                if exchange.name not in gone
            ),
            bindings=tuple(binding for binding in PLAIN.bindings if binding.source not in gone),
        ),
        REFS[:6],
    )
    said = found(there)
    assert [finding.kind for finding in said] == ["missing", "different", "missing", "missing"]
    assert said[0].message == "2 exchanges (events.slot.06, events.slot.07) are not there"
    assert {finding.fix for finding in said} == {APPLY}
    said = found(
        other_exchanges(
            lambda exchange: (
                [replace(exchange, durable=False)] if exchange.name == "events.slot.02" else [exchange]
            )
        )
    )
    assert "exchange events.slot.02 differs: durable is false, not true" in [
        finding.message for finding in said
    ]


def test_a_ring_that_has_no_slots_yet_is_one_finding() -> None:
    plain = Topology.from_toml(FILE.replace("slots = 8\n", "").replace("members", "ring"))
    ring = HashRing.from_buckets(["events.1", "events.2"], RELEASE, next_bucket=2)
    there = replace(plain, release=RELEASE).with_rings({"events": ring})
    said = [finding for finding in found(there) if finding.destination != "events.park"]
    assert [finding.kind for finding in said] == ["missing", "different"]
    assert said[0].message.startswith(
        "9 exchanges (events.slot.00, events.slot.01, events.slot.02 and 6 more) are not there"
    )
    table = SlotTable(HashRing.from_buckets(REFS, RELEASE), {})
    laid = SlotTable(table.ring, {ref: laid_owner(there)[ref.name] for ref in REFS})
    assert said[1].share == laid.share_moved(ring)
    assert said[1].message.startswith(
        "the ring has none of the 8 slots that the topology says, but 2 other destinations: "
    )


def laid_owner(there: Topology) -> dict[str, str]:
    return {binding.source: str(binding.destination) for binding in expanded(WANTED, there).bindings}


def test_another_order_of_the_slots_is_counted_by_queue_with_a_file_and_without() -> None:
    buckets = (REFS[1], REFS[0], *REFS[2:])
    there = live(buckets=buckets)
    by_queue = {ref: owners()[ref.name] for ref in REFS}
    expected = SlotTable(HashRing.from_buckets(buckets), by_queue).share_moved(
        SlotTable(HashRing.from_buckets(REFS), by_queue)
    )
    for wanted, than in ((WANTED, "the topology"), (None, "the numbers of its slots")):
        (finding,) = found(there, wanted)
        assert (finding.kind, finding.share) == ("order", expected)
        assert finding.message.startswith(
            f"the ring has another order than {than}: exchange events.slot.01 is where "
        )
        assert "rabbit-chx ring repair events" in finding.fix
    same_queue = live(buckets=(REFS[2], REFS[1], REFS[0], *REFS[3:]))
    (finding,) = found(same_queue)
    assert (finding.share, owners()["events.slot.00"]) == (0.0, owners()["events.slot.02"])


def test_a_repair_puts_slots_in_the_order_of_their_numbers() -> None:
    there = live(buckets=(REFS[1], REFS[0], *REFS[2:]))
    for wanted in (WANTED, None):
        (exchange,) = repair_target(there, "events", wanted).exchanges
        assert tuple(member.destination for member in exchange.ring or ()) == REFS


@pytest.mark.all_seeds
def test_a_queue_of_slots_that_goes_by_itself() -> None:
    there = live(
        replace(
            PLAIN,
            queues=tuple(
                replace(queue, auto_delete=True) if queue.name == "events.2" else queue
                for queue in PLAIN.queues
            ),
        )
    )
    (finding,) = check(there).findings
    assert (finding.kind, finding.destination) == ("transient-destination", "events.2")
    assert finding.message.startswith(
        "events.2 is auto-delete: it goes with its last consumer; its 4 slots with 50.0"
    )


def test_the_cure_of_what_is_external_is_its_owner() -> None:
    external = Topology.from_toml(FILE.replace("slots = 8", 'slots = 8\nowner = "external"'))
    there = rebound(lambda binding: [] if binding.source == "events.slot.03" else [binding])
    assert found(there, external)[0].fix == "it is external: ask its owner, or correct the topology"


def test_an_exchange_in_the_ring_that_is_no_slot_is_no_finding_of_slots() -> None:
    text = FILE.replace("slots = 8\nmembers", "ring").replace(
        "weight = 1 }]", 'weight = 1 }, { exchange = "audit" }]'
    )
    text += '[[exchanges]]\nname = "audit"\ntype = "topic"\n[[bindings]]\nsource = "audit"\nqueue = "events.1"\nrouting_key = "#"\n'
    wanted = Topology.from_toml(text)
    ring = HashRing.from_buckets(["events.1", "events.2", ExchangeRef("audit")], RELEASE, next_bucket=3)
    there = replace(wanted, release=RELEASE).with_rings({"events": ring})
    assert check(there, wanted).sound


def test_slots_that_the_topology_does_not_have_are_in_nobodys_hands_there() -> None:
    fewer = Topology.from_toml(FILE.replace("slots = 8", "slots = 4"))

    other, *_ = found(live(), fewer)
    assert other.message.startswith(
        "2 slots have other queues than the topology says (events.1 has 4 slots, not 2; events.2 has 4 slots, not 2)"
    )


@pytest.mark.all_seeds
def test_keys_of_a_slot_that_is_not_bound_count_where_they_come_to_another_queue() -> None:
    """The ring lost its last slot, whose exchange still leads to its queue. Some of its keys reach that queue by other slots."""
    *rest, last = REFS
    there = live(buckets=rest)
    events = there.exchange("events")
    assert events is not None
    ring = tuple(member for member in events.ring or () if member.destination != last)
    exchanges = tuple(replace(e, ring=ring) if e is events else e for e in there.exchanges)
    there = replace(there, exchanges=exchanges)
    table = SlotTable(HashRing.from_buckets(REFS, RELEASE), {ref: owners()[ref.name] for ref in REFS})
    left = SlotTable(
        HashRing.from_buckets(rest, RELEASE),
        {ref: queue for ref, queue in table.owners.items() if ref != last},
    )
    elsewhere = left.share_moved(table)
    checked = check(there, WANTED)
    assert 0 < elsewhere < share(last)
    assert checked.misplaced == {"events": elsewhere}
    assert {finding.kind: finding.share for finding in checked.findings} == {
        "different": elsewhere,
        "missing": elsewhere,
    }


def test_keys_of_a_slot_with_another_queue_beside_its_own_are_not_elsewhere() -> None:
    second = BindingDefinition("events.slot.00", "events.2")
    there = rebound(lambda binding: [binding, second] if binding.source == "events.slot.00" else [binding])
    assert owners()["events.slot.00"] == "events.1"
    assert check(there, WANTED).misplaced == {"events": 0.0}
