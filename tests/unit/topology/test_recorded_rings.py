"""The ring by the file that was applied last: the true one, or none, whenever an apply ends."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from model_broker import ModelBroker
from model_client import ClientKilledError, ModelClient

from rabbit_chx import Broker, ExchangeRef, HashRing, Release, Topology
from rabbit_chx.broker import RecordedRings
from rabbit_chx.errors import InputError
from rabbit_chx.routing import Destination
from rabbit_chx.topology import ExchangeDefinition, QueueDefinition, RingMember, check, plan
from rabbit_chx.topology.live.applying import Permission
from rabbit_chx.topology.live.recorded_rings import APPLY_MARK

NEWEST, MNESIA = Release("4.3.6"), Release("4.1.0", store="mnesia")
ALL = Permission(1.0, delete=True, loss=True)
NAMES = ("a", "b", "c", "d", "e")


def ring_file(*members: str, slots: str = "") -> Topology:
    """Return a topology whose exchange x has these members, such as ``a=2``."""
    pairs = [member.partition("=") for member in members]
    ring = ", ".join(f'{{ queue = "{name}", weight = {weight or 1} }}' for name, _, weight in pairs)
    queues = "".join(f'[[queues]]\nname = "{name}"\n' for name in NAMES)
    return Topology.from_toml(
        f'[[exchanges]]\nname = "x"\ntype = "x-consistent-hash"\nring = [{ring}]\n{queues}{slots}'
    )


def recorded(
    record: RecordedRings, *bound: str, release: Release = NEWEST, mark: str | None = None
) -> HashRing:
    """Return the ring of x by a record, if the broker has these bindings."""
    bindings = [(name, weight or "1") for name, _, weight in (member.partition("=") for member in bound)]
    assumed = HashRing.from_bindings(bindings, release, "assumed")
    return record.ring("x", bindings, assumed, mark=mark)


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    """Return one or two exchanges with rings of few queues and an exchange; queues and exchanges may differ in more than the ring."""
    places: list[Destination] = [*NAMES, ExchangeRef("f")]
    exchanges = [ExchangeDefinition("f", "fanout")]
    for name in ("x", "y")[: draw(st.integers(0, 2))]:
        chosen: list[Destination] = draw(st.lists(st.sampled_from(places), unique=True, max_size=6))
        ring = tuple(RingMember(place, draw(st.sampled_from(["1", "1", "2"]))) for place in chosen)
        alternate = {"alternate-exchange": "f"} if draw(st.integers(0, 5)) == 0 else {}
        exchanges.append(ExchangeDefinition(name, "x-consistent-hash", arguments=alternate, ring=ring))
    used = {member.destination for exchange in exchanges for member in exchange.ring or ()}
    queues = [
        QueueDefinition(name, "quorum" if draw(st.integers(0, 7)) == 0 else "classic")
        for name in NAMES
        if name in used
    ]
    return Topology(tuple(exchanges), tuple(queues), owns=("*",) if draw(st.booleans()) else ())


@given(topologies(), topologies(), st.lists(st.integers(0, 30), max_size=3))
def test_after_any_number_of_deaths_a_recorded_ring_is_the_true_one(
    old: Topology, new: Topology, deaths: list[int]
) -> None:
    """Each apply dies before an operation. The last one ends, and makes the wanted rings, unless the order is not certain."""
    model = ModelBroker.holding(old, NEWEST)
    record = RecordedRings(old, new)
    for before in [*deaths, None]:
        client = ModelClient(model, before, record)
        live = client.live()
        for name, ring in live.rings.items():
            assert ring.provenance in ("recorded", "assumed")
            if ring.provenance == "recorded":
                assert ring.buckets == model.rings[name].buckets
            else:
                assert ring.ground.doubt
        made = plan(new, live, propose=False)
        if made.refused(allow_moved=1.0, allow_delete=True):
            assert any(refusal.kind == "order" for refusal in made.refusals)
            assert deaths
            return
        try:
            client.applied(made, ALL)
        except ClientKilledError:
            continue
        break
    if mark := model.exchanges.get(APPLY_MARK):  # a ring that no file has any more
        assert not {exchange.name for exchange in new.exchanges} & {*mark.arguments["rings"]}
    for exchange in new.exchanges:
        if exchange.ring is not None:
            wanted = [member.binding for member in exchange.ring]
            assert model.rings[exchange.name].buckets == HashRing.from_bindings(wanted, NEWEST).buckets
    assert not plan(new, client.live(), propose=False).changes


@given(topologies(), topologies(), st.integers(0, 30))
def test_the_bindings_that_are_named_decide(old: Topology, new: Topology, before: int) -> None:
    model = ModelBroker.holding(old, NEWEST)
    record = RecordedRings(old, new)
    client = ModelClient(model, before, record)
    try:
        client.applied(plan(new, client.live(), propose=False), ALL)
    except ClientKilledError:
        pass
    else:
        return
    for name, ring in ModelClient(model, None, record).live().rings.items():
        if "unbind" in ring.ground.doubt:
            named = ring.ground.doubt.partition("unbind ")[2].partition(" from ")[0].split(", ")
            for binding in [binding for binding in model.bindings if binding.source == name]:
                if f"{binding.destination!s}={binding.routing_key}" in named:
                    model.unbind(binding)
            decided = ModelClient(model, None, record).live().rings[name]
            assert (decided.provenance, decided.buckets) == ("recorded", model.rings[name].buckets)


def test_the_ring_of_the_file_counts_if_its_bindings_are_those_of_the_broker() -> None:
    record = RecordedRings(ring_file("b", "a=2", "c"), name="applied.toml")
    ring = recorded(record, "a=2", "b", "c")
    assert (ring.provenance, ring.buckets, ring.release) == ("recorded", ("b", "a", "a", "c"), NEWEST)
    assert HashRing.from_json(ring.to_json()).provenance == "recorded"
    ring = recorded(record, "a=1", "b", "c", "e")
    assert (ring.provenance, ring.buckets) == ("assumed", ("a", "b", "c", "e"))
    assert ring.ground.doubt == (
        "the bindings are not those of applied.toml: only applied.toml has a=2, and only the broker has a=1, e=1"
    )
    ring = recorded(record, "a=2", "b", "c", mark="changed 0")
    assert ring.provenance == "assumed"
    assert APPLY_MARK in ring.ground.doubt


def test_mnesia_is_refused() -> None:
    record = RecordedRings(ring_file("a"))
    with pytest.raises(
        InputError, match=r"4\.1\.0 \(mnesia\): its store Mnesia does not keep the order of a ring when"
    ):
        recorded(record, "a", release=MNESIA)
    with pytest.raises(
        InputError, match="its store is not known, because the user may not list feature flags"
    ):
        recorded(record, "a", release=Release("4.2.0"))


def test_a_definitions_file_and_an_assumed_ring_are_no_record() -> None:
    definitions = '{"rabbitmq_version": "4.3.6", "vhosts": [{"name": "/"}], "exchanges": [], "queues": [], "bindings": []}'
    with pytest.raises(
        InputError, match="is a definitions file, whose order of bindings is not that of a ring"
    ):
        RecordedRings(Topology.from_definitions(definitions))
    with pytest.raises(InputError, match="is assumed, so it is not a record"):
        RecordedRings.of_ring("x", HashRing.from_bindings([("a", 1)], NEWEST, "assumed"))
    with pytest.raises(InputError, match="is not a record"):
        RecordedRings("applied.toml")  # type: ignore[arg-type]


def test_a_ring_that_was_read_is_a_record() -> None:
    record = RecordedRings.of_ring("x", HashRing.from_buckets(["b", "a", "a"], NEWEST))
    ring = recorded(record, "a=2", "b")
    assert (ring.provenance, ring.buckets) == ("recorded", ("b", "a", "a"))
    other = record.ring("y", [], HashRing.from_bindings([], NEWEST, "assumed"), mark=None)
    assert (other.provenance, other.ground.doubt) == (
        "assumed",
        "the recorded ring does not contain its ring",
    )


def test_an_exchange_that_the_file_does_not_make_is_not_recorded() -> None:
    topology = ring_file("a", "b")
    external = replace(topology, exchanges=(replace(topology.exchanges[0], owner="external"),))
    assert "it is external in" in recorded(RecordedRings(external), "a", "b").ground.doubt


def test_bindings_that_no_moment_of_the_apply_has_are_named() -> None:
    record = RecordedRings(ring_file("a", "b"), ring_file("a", "b", "c"))
    assert recorded(record, "a", "b", "c").buckets == ("a", "b", "c")
    assert recorded(record, "a", "c").ground.doubt.endswith(
        "only the recorded topology has b=1, and only the broker has c=1"
    )


def test_the_record_is_that_of_the_plan_after_an_apply() -> None:
    model = ModelBroker.holding(ring_file("a", "b", "c"), NEWEST)
    client = ModelClient(model, None, RecordedRings(ring_file("a", "b", "c")))
    applied = client.applied(plan(ring_file("b", "c", "a"), client.live()), ALL)
    assert applied.rings["x"].provenance == "recorded"
    ring = client.live().rings["x"]
    assert (ring.provenance, ring.buckets) == ("recorded", ("b", "c", "a"))
    assert check(client.live(), ring_file("b", "c", "a")).of_provenance("recorded") == ("x",)
    assert [finding.kind for finding in check(client.live(), ring_file("c", "b", "a")).findings] == ["order"]


def test_a_topology_is_a_ring_source() -> None:
    broker = Broker("amqp://host", "http://host:15672", ring_source=ring_file("a"))
    assert isinstance(broker._ring_source, RecordedRings)


def test_slots_are_recorded() -> None:
    slotted = Topology.from_toml(
        '[[exchanges]]\nname = "x"\ntype = "x-consistent-hash"\nslots = 3\nmembers = [{ queue = "a" }, { queue = "b" }]\n'
        '[[queues]]\nname = "a"\n[[queues]]\nname = "b"\n'
    )
    model = ModelBroker(NEWEST)
    model.apply(plan(slotted, model.topology()).changes)
    ring = ModelClient(model, None, RecordedRings(slotted, slotted)).live().rings["x"]
    assert (ring.provenance, ring.buckets) == ("recorded", model.rings["x"].buckets)
    assert Counter(ring.buckets).keys() == {ExchangeRef(f"x.slot.0{n}") for n in range(3)}
