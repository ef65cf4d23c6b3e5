"""Exchanges that hash behind one another in a topology: how keys are followed, and which queues certainly get none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rabbit_chx.checking.check_report import file_findings
from rabbit_chx.planning.refusals import know_rings
from rabbit_chx.records.evidence import Means
from rabbit_chx.routing import ExchangeRef, HashRing, Release
from rabbit_chx.routing.nested_map import NestedMap
from rabbit_chx.topology import (
    BindingDefinition,
    ExchangeDefinition,
    LiveTopology,
    PolicyDefinition,
    QueueDefinition,
    RingMember,
    Topology,
    check,
    plan,
)
from rabbit_chx.topology.objects.objects import HASH_EXCHANGE, MODULUS_EXCHANGE

CHX, MODULUS = HASH_EXCHANGE, MODULUS_EXCHANGE


def ring(name: str, *places: str | ExchangeRef, **arguments: str) -> ExchangeDefinition:
    """Return an exchange with members of weight 1."""
    members = tuple(RingMember(place, "1") for place in places)
    named = {name.replace("_", "-"): value for name, value in arguments.items()}
    return ExchangeDefinition(name, CHX, ring=members, arguments=named)


#: A front exchange of two, each with two queues.
FRONT = ring("front", ExchangeRef("mid.0"), ExchangeRef("mid.1"))
MIDS = (ring("mid.0", "w.0.0", "w.0.1"), ring("mid.1", "w.1.0", "w.1.1"))
QUEUES = tuple(QueueDefinition(f"w.{n}.{k}") for n in range(2) for k in range(2))
NESTED = Topology((FRONT, *MIDS), QUEUES)


def live_of(topology: Topology) -> LiveTopology:
    """Return a broker with these objects, whose rings were read."""
    live = LiveTopology.of_file(topology, Release("4.3.6"))
    rings = {
        each.name: HashRing.from_buckets([member.destination for member in each.ring])
        for each in live.exchanges
        if each.ring is not None
    }
    return live.with_rings(rings)


def starved(topology: Topology, *exchanges: str) -> set[tuple[str | None, object]]:
    """Return the exchange and the queue of each finding."""
    found = check(live_of(topology), exchange=exchanges or None).findings
    return {(one.exchange, one.destination) for one in found if one.kind == "starved-destination"}


BOTH = {("mid.0", "w.0.1"), ("mid.1", "w.1.0")}


def test_a_queue_that_certainly_gets_no_key_is_found_from_both_sides() -> None:
    assert starved(NESTED) == starved(NESTED, "front") == BOTH
    assert starved(NESTED, "mid.0") == {("mid.0", "w.0.1")}
    of_file = file_findings(NESTED, Release("4.3.6"))
    assert {(one.exchange, one.destination) for one in of_file if one.kind == "starved-destination"} == BOTH
    (found, _) = check(live_of(NESTED)).findings
    assert found.share == 0
    assert found.message.startswith("w.0.1 gets no key of mid.0: front and mid.0 hash the same value")
    assert found.fix.startswith(
        "let mid.0 hash another value, by hash-header or hash-property, or bind its queues to front itself"
    )


def test_a_plan_warns_of_it() -> None:
    made = plan(NESTED, LiveTopology(release=Release("4.3.6")))
    assert [text.partition(":")[0] for text in made.warnings] == [
        "w.0.1 gets no key of mid.0",
        "w.1.0 gets no key of mid.1",
    ]
    one = replace(NESTED, exchanges=(FRONT, MIDS[0], ring("mid.1", "w.1.0", "w.1.1", hash_header="h")))
    assert [text.partition(":")[0] for text in plan(one, LiveTopology()).warnings] == [
        "w.0.1 gets no key of mid.0"
    ]
    assert not plan(Topology(MIDS, QUEUES), LiveTopology()).warnings


@pytest.mark.parametrize(
    "more",
    [
        Topology(
            (ExchangeDefinition("all", "fanout"),), bindings=(BindingDefinition("all", ExchangeRef("mid.0")),)
        ),
        Topology((ExchangeDefinition("x", arguments={"alternate-exchange": "mid.0"}),)),
        Topology(queues=(QueueDefinition("x", arguments={"x-dead-letter-exchange": "mid.0"}),)),
        Topology(policies=(PolicyDefinition("p", "^x$", "all", {"dead-letter-exchange": "mid.0"}),)),
        Topology(
            policies=(PolicyDefinition("p", r"^mid\.0$", "exchanges", {"federation-upstream-set": "all"}),)
        ),
        Topology((ring("other", "w.0.1"),)),
    ],
)
def test_keys_that_come_another_way_leave_nothing_certain(more: Topology) -> None:
    both = Topology(
        (*NESTED.exchanges, *more.exchanges), (*QUEUES, *more.queues), more.bindings, more.policies
    )
    assert starved(both) == {("mid.1", "w.1.0")}


def test_another_value_starves_nobody_and_an_order_that_is_not_known_shows_nothing() -> None:
    assert not starved(replace(NESTED, exchanges=(replace(FRONT, arguments={"hash-header": "h"}), *MIDS)))
    alike = [replace(each, arguments={"hash-header": "h"}) for each in (FRONT, *MIDS)]
    assert starved(replace(NESTED, exchanges=tuple(alike))) == BOTH
    live = live_of(NESTED)
    for unknown in ("front", "mid.0"):
        guess = HashRing.unordered([(each, 1) for each in live.rings[unknown].destinations])
        found = check(live.with_rings({unknown: guess})).findings
        expected = set() if unknown == "front" else {"w.1.0"}
        assert {one.destination for one in found if one.kind == "starved-destination"} == expected
        (doubt,) = {live.with_rings({unknown: guess}).key_map("front").ground.doubt}
        assert doubt == (guess.ground.doubt if unknown == "front" else "the order of mid.0 is not known")
    # Behind an order that is not known, the keys that come are not.
    guess = HashRing.unordered([(each, 1) for each in live.rings["front"].destinations])
    assert (
        live.with_rings({"front": guess}).key_map("mid.0").ground.doubt == "the order of front is not known"
    )


def test_modulus_exchanges_are_followed_and_mixed_types_are_independent() -> None:
    names = [f"mid.{n}" for n in range(2)]
    bound = tuple(BindingDefinition("front", ExchangeRef(name)) for name in names)
    mids = tuple(
        ExchangeDefinition(name, MODULUS, queues=(f"w.{n}.0", f"w.{n}.1")) for n, name in enumerate(names)
    )
    residues = Topology((ExchangeDefinition("front", MODULUS), *mids), QUEUES, bound)
    assert starved(residues) == BOTH
    assert residues.key_map("front").shares() == {"w.0.0": 0.5, "w.0.1": 0, "w.1.0": 0, "w.1.1": 0.5}
    mixed = Topology((FRONT, *mids), QUEUES)
    assert not starved(mixed)
    assert all(share == pytest.approx(0.25, abs=0.001) for share in mixed.key_map("front").shares().values())
    assert mixed.key_map("front").destination_for("k") in {queue.name for queue in QUEUES}


def test_slots_and_three_levels_are_followed() -> None:
    slotted = ExchangeDefinition(
        "mid.0", CHX, slots=2, members=(RingMember("a", "1", slots=(0,)), RingMember("b", "1", slots=(1,)))
    )
    topology = Topology((FRONT, slotted, MIDS[1]), QUEUES)
    assert {place for place, share in topology.key_map("front").shares().items() if share} == {"a", "w.1.1"}
    top = ring("top", ExchangeRef("front"), ExchangeRef("side"))
    three = Topology((top, FRONT, *MIDS, ring("side", "s")), QUEUES)
    assert {place for place, share in three.key_map("top").shares().items() if share} == {"w.0.0", "s"}
    # Of front and mid.1 nothing is left: all keys of front have the first bucket.
    assert starved(three) == BOTH | {("mid.1", "w.1.1")}
    assert three.key_map("mid.0").shares() == {"w.0.0": 1.0, "w.0.1": 0.0}


def test_a_plain_topology_has_its_own_maps() -> None:
    plain = Topology((MIDS[0], ExchangeDefinition("x"), ring("y", ExchangeRef("x"))))
    for name in ("mid.0", "y"):
        assert not isinstance(plain.key_map(name), NestedMap)
    back = Topology((ring("a", ExchangeRef("b"), "q"), ring("b", ExchangeRef("a"), "r")))
    assert back.key_map("a").shares()[None]  # a broker visits no exchange twice
    assert not starved(back)


def test_behind_an_order_that_is_not_known_routes_are_certain_and_shares_are_not() -> None:
    live = live_of(NESTED)
    places = live.rings["front"].destinations
    guess = HashRing.unordered([(place, 1) for place in places])
    unread = live.with_rings({"front": guess})
    behind = unread.key_map("mid.0")
    assert behind.guesses.keys() == {"front"}
    assert not behind.ground.is_known
    assert behind.direct.ground.is_known
    assert behind.direct.destination_for("k") == unread.rings["mid.0"].destination_for("k")
    # The order on which the shares depend is asked for, and no share of a finding is certain.
    lossy = replace(QUEUES[1], arguments={"x-expires": 1000})
    found = check(replace(unread, queues=(QUEUES[0], lossy)), exchange="mid.0")
    assert found.not_determined == ("front",)
    assert found.unordered["front"] == guess.ground.doubt
    assert not found.unroutable
    assert found.findings
    assert all(one.share is None for one in found.findings)


def test_a_trace_is_named_only_for_an_exchange_to_which_messages_are_published() -> None:
    live = live_of(NESTED)
    guess = HashRing.unordered([("w.0.0", 1), ("w.0.1", 1)])
    behind = live.with_rings({"mid.0": guess})
    alone = HashRing.unordered([("a", 1)])
    for key_map, is_traced in (
        (alone, True),
        (behind.key_map("front"), False),
        (behind.key_map("mid.0"), False),
    ):
        fix = know_rings({"x": key_map}, Means(can_trace=True))
        assert ("Broker.trace" in fix, "from_observations" in fix) == (is_traced, True)


def test_exchanges_behind_others_that_do_not_hash_are_said_not_to_be_followed() -> None:
    """Such as one that is bound to a slot beside its queue, which then is no slot."""
    outer, copies = ring("outer", ExchangeRef("slot"), "q"), BindingDefinition("slot", ExchangeRef("copies"))
    exchanges = (outer, ExchangeDefinition("slot"), ExchangeDefinition("copies"))
    topology = Topology(exchanges, (QueueDefinition("q"),), (BindingDefinition("slot", "q"), copies))
    assert topology.nesting().unfollowed(["outer"]) == ["copies"]
    assert not replace(topology, bindings=topology.bindings[:1]).nesting().unfollowed(["outer"])
