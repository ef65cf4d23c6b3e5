"""A check and a repair of the same ring agree: what a repair changes is a finding, and what a repair is to fix, it changes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from rabbit_chx.routing import Destination, ExchangeRef, HashRing, Release
from rabbit_chx.topology import (
    BindingDefinition,
    ExchangeDefinition,
    LiveTopology,
    QueueDefinition,
    RingMember,
    check,
    healed,
    plan,
)

NAME, TYPE = "orders", "x-consistent-hash"
RELEASES = tuple(map(Release, ("3.10.5", "3.10.8", "4.0.5", "4.3.6")))
#: `exclusive` is an exclusive queue, `gone` does not exist.
PLACES: tuple[Destination, ...] = ("a", "b", "c", "exclusive", ExchangeRef("audit"))
GHOSTS: tuple[Destination, ...] = ("gone", ExchangeRef("gone"))
SLOTS = tuple(ExchangeRef(f"{NAME}.slot.{number}") for number in range(4))


@st.composite
def members(draw: st.DrawFn, places: tuple[Destination, ...] = PLACES) -> tuple[RingMember, ...]:
    """Members in an order; some destinations are bound twice."""
    pairs = draw(st.lists(st.tuples(st.sampled_from(places), st.integers(1, 3)), max_size=5, unique=True))
    return tuple(RingMember(place, str(weight)) for place, weight in pairs)


@st.composite
def rings(draw: st.DrawFn, release: Release) -> tuple[HashRing, tuple[RingMember, ...]]:
    """A ring as it is read, and its bindings: made by them, or by others, with ghosts, holes and lost buckets."""
    if draw(st.booleans()):
        bound = tuple(map(RingMember, draw(st.lists(st.sampled_from(SLOTS), unique=True))))
    else:
        bound = draw(members())
    made = HashRing.from_bindings([member.binding for member in bound], release)
    buckets = list(made.buckets)
    for change in draw(
        st.lists(st.sampled_from(("ghost", "hole", "lose", "add", "swap", "empty")), max_size=2)
    ):
        position = draw(st.integers(0, len(buckets)))
        if change == "ghost":
            buckets[position:position] = [draw(st.sampled_from(GHOSTS))] * draw(st.integers(1, 2))
        elif change == "hole":
            buckets[position:position] = [None]
        elif change == "lose":
            del buckets[position : position + 1]
        elif change == "add" and buckets:
            buckets.append(draw(st.sampled_from(buckets)))
        elif change == "swap":
            buckets = [*buckets[position:], *buckets[:position]]
        elif change == "empty":
            buckets = []
    return HashRing.from_buckets(buckets, release, next_bucket=len(buckets)), bound


def live_topology(ring: HashRing, bound: tuple[RingMember, ...]) -> LiveTopology:
    """The exchange with its ring, beside its queues, slots and exchanges."""
    slots = (ExchangeDefinition(slot.name, "fanout", internal=True) for slot in SLOTS)
    exchanges = (ExchangeDefinition(NAME, TYPE, ring=bound), ExchangeDefinition("audit", "fanout"), *slots)
    queues = (*map(QueueDefinition, "abc"), QueueDefinition("exclusive", exclusive=True, durable=False))
    bindings = tuple(BindingDefinition(name, "a") for name in ("audit", *(slot.name for slot in SLOTS)))
    return LiveTopology(exchanges, queues, bindings, release=ring.release, rings={NAME: ring})


@settings(deadline=None, max_examples=400)
@given(data=st.data(), release=st.sampled_from(RELEASES))
def test_a_repair_has_steps_exactly_if_it_is_the_fix_of_a_finding(
    data: st.DataObject, release: Release
) -> None:
    ring, bound = data.draw(rings(release))
    live = live_topology(ring, bound)
    found = check(live, exchange=NAME)
    made = plan(healed(live, NAME), live)
    is_fix = any(finding.fix.startswith("run: `rabbit-chx repair ") for finding in found.findings)
    assert is_fix == bool(made.changes or made.refusals), (found.findings, made.changes, made.refusals)
    if not ring.bucket_count:
        assert found.unroutable == {NAME: 1.0}
        assert not found.sound
