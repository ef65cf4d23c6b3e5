"""What a repair, an arrangement and a release want, and that its plan makes it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from declared_topologies import declared_topologies
from edge_releases import edge_releases
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from model_broker import ModelBroker
from slot_files import NEWEST, live_of, slotted

from rabbit_chx import Topology
from rabbit_chx.errors import InputError, NotFoundError
from rabbit_chx.planning.plan import with_release
from rabbit_chx.routing import HashRing, Release
from rabbit_chx.topology import (
    BindingDefinition,
    ExchangeDefinition,
    LiveTopology,
    QueueDefinition,
    RingMember,
    arrange,
    check,
    healed,
    plan,
)
from rabbit_chx.topology.toml_file import members_of, rearrange

FILE = """
max_share_moved = 0.3
[[exchanges]]
name = "orders"
type = "x-consistent-hash"
ring = [{ queue = "q{1..4}" }, { queue = "q5", weight = 2 }]
[[queues]]
name = "q{1..5}"
"""
WANTED = Topology.from_toml(FILE)


def broker(version: str = "4.3.6") -> ModelBroker:
    return ModelBroker.holding(WANTED, Release(version))


def rebind(there: ModelBroker, *changes: str) -> None:
    """Bind queues as ``+q1=7``, and unbind them as ``-q1=7``."""
    for change in changes:
        queue, _, key = change[1:].partition("=")
        (there.bind if change[0] == "+" else there.unbind)(BindingDefinition("orders", queue, key))


def repaired(there: ModelBroker, wanted: Topology | None = None) -> list[str]:
    """Repair, and return the destinations in ring order."""
    live = there.topology()
    target = healed(live, "orders") if wanted is None else wanted
    there.apply(plan(target, live).changes)
    assert check(there.topology(), wanted).sound
    return [str(place) for place in there.rings["orders"].buckets]


@pytest.mark.parametrize(
    ("version", "changes", "order"),
    [
        ("4.3.6", ["-q1=1", "+q1=1"], "q2 q3 q4 q5 q5 q1"),  # it is sound by itself
        ("4.3.6", ["+q1=7", "-q1=7"], "q2 q3 q4 q5 q5 q1"),  # a silent binding gets its buckets at the end
        ("3.10.8", ["+q1=7", "-q1=7"], "q2 q3 q4 q5 q5 q1"),
        ("4.3.6", ["+q5=9"], "q1 q2 q3 q4 q5 q5"),  # of two bindings the one with the buckets stays
    ],
)
def test_a_repair_keeps_the_order_that_is_there_and_one_by_a_file_makes_that_of_the_file(
    version: str, changes: list[str], order: str
) -> None:
    there = broker(version)
    rebind(there, *changes)
    assert " ".join(repaired(there)) == order
    assert [binding.routing_key for binding in there.bindings if binding.destination == "q5"] == ["2"]
    assert repaired(there, WANTED) == ["q1", "q2", "q3", "q4", "q5", "q5"]
    assert plan(WANTED, there.topology()).changes == ()


@pytest.mark.parametrize("keys", [("1", "3"), ("3", "1")])
def test_of_two_bindings_whichever_is_listed_first_the_one_with_the_buckets_stays(
    keys: tuple[str, ...],
) -> None:
    """A broker lists bindings in no order."""
    there = broker()
    rebind(there, "-q1=1", "+q1=3")
    live = there.topology()
    (exchange,) = live.exchanges
    members = [member for member in exchange.ring or () if member.destination != "q1"]
    both = (*members, *(RingMember("q1", key) for key in keys))
    target = healed(replace(live, exchanges=(replace(exchange, ring=both),)), "orders")
    (kept,) = (member for member in target.exchanges[0].ring or () if member.destination == "q1")
    assert kept.key == "3"


def test_a_repair_has_no_limit_and_keeps_objects_outside_of_the_ring() -> None:
    there = broker()
    there.create(QueueDefinition("other"))
    rebind(there, "-q1=1", "+q1=1")
    live = there.topology()
    assert plan(WANTED, live).refusals
    target = healed(live, "orders")
    assert plan(target, live).refusals == ()
    assert target.queues == ()
    assert all(change.ring for change in plan(target, live).changes)


def test_slots_get_the_order_of_their_numbers() -> None:
    wanted = slotted(4, '[{ queue = "events.{1..2}" }]')
    there = live_of(wanted)
    first, second, *others = there.rings["events"].buckets
    turned = there.with_rings({"events": HashRing.from_buckets([second, first, *others])})
    (exchange,) = healed(turned, "events").exchanges
    assert [member.destination for member in exchange.ring or ()] == [first, second, *others]


def test_a_repair_needs_an_exchange() -> None:
    with pytest.raises(NotFoundError, match="no exchange 'other'"):
        healed(broker().topology(), "other")


@st.composite
def _with_slots(draw: st.DrawFn, wanted: Topology) -> Topology:
    """Return the topology with an exchange with slots, whose members may list them."""
    queues = [queue.name for queue in wanted.queues]
    shared = draw(st.lists(st.sampled_from(queues), unique=True, min_size=1))
    members = tuple(RingMember(queue, draw(st.sampled_from("112"))) for queue in shared)
    slotted_ = ExchangeDefinition("events", "x-consistent-hash", slots=12, members=members)
    topology = replace(wanted, exchanges=(*wanted.exchanges, slotted_))
    return arrange(topology, LiveTopology()) if draw(st.booleans()) else topology


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    declared_topologies().flatmap(_with_slots),
    declared_topologies().flatmap(_with_slots),
    st.sampled_from(edge_releases()),
)
def test_an_arranged_topology_moves_no_more_keys_and_the_command_writes_it(
    there: Topology, wanted: Topology, release: Release
) -> None:
    live = live_of(there, release)
    arranged = arrange(wanted, live)
    before, after = plan(wanted, live).rings, plan(arranged, live).rings

    assert before.keys() == after.keys()
    for name, ring in after.items():
        assert ring.moved <= before[name].moved + 1e-12, name
    assert arrange(arranged, live) == arranged
    members = {exchange.name: members_of(exchange) for exchange in arranged.exchanges}
    written = rearrange(wanted.to_toml(), members)
    if not written.unwritten:
        assert Topology.from_toml(written.text) == arranged


def test_a_release_keeps_the_buckets_of_a_weight_that_it_refuses() -> None:
    heavy = WANTED.exchanges[0].ring or ()
    topology = replace(
        WANTED, exchanges=(replace(WANTED.exchanges[0], ring=(RingMember("q1", "10001"), *heavy[1:])),)
    )
    before = with_release(topology, Release("3.12.14"))
    after = with_release(before, NEWEST)
    assert after.release == after.rings["orders"].release == NEWEST
    assert after.rings["orders"].buckets == before.rings["orders"].buckets
    with pytest.raises(InputError):
        with_release(topology, NEWEST)
