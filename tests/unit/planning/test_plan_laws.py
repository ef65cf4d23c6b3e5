"""What holds for every plan: it ends at what is wanted, a second one is empty, and its figures are exact."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random  # hypothesis reads annotations
from typing import TypeVar

import pytest
from declared_topologies import declared_topologies, rings_of
from edge_releases import edge_releases
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from model_broker import ModelBroker
from sides import as_live
from slot_files import live_of, slotted
from topologies import topologies
from two_states import TwoStates, two_states

from rabbit_chx.analysis import Finding
from rabbit_chx.routing import ExchangeRef, HashRing, Release
from rabbit_chx.routing.release import NEWEST_COMPARED
from rabbit_chx.topology import (
    ExchangeDefinition,
    LiveTopology,
    QueueDefinition,
    RingMember,
    Topology,
    TopologyCheck,
    check,
    diff,
    plan,
)

_Side = TypeVar("_Side", Topology, LiveTopology)

releases = st.sampled_from(edge_releases())
_slow = settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@_slow
@given(topologies())
def test_a_topology_compared_with_itself_has_no_changes(topology: Topology) -> None:
    planned = plan(topology, as_live(topology))

    assert (planned.changes, planned.refusals) == ((), ())
    assert all(ring.moved == ring.moved_at_worst == 0 for ring in planned.rings.values())


@_slow
@given(declared_topologies(), declared_topologies(owns=("*",)), releases)
def test_a_plan_ends_at_what_is_wanted(there: Topology, wanted: Topology, release: Release) -> None:
    broker = ModelBroker.holding(there, release)

    planned = plan(wanted, broker.topology())
    broker.apply(planned.changes)

    live = broker.topology()
    assert plan(wanted, live).changes == ()
    assert plan(wanted, live).refusals == ()
    assert (live.exchanges, live.queues, live.bindings, live.policies) == (
        wanted.exchanges,
        wanted.queues,
        wanted.bindings,
        wanted.policies,
    )
    for name, ring in planned.rings.items():
        if name in broker.rings:
            assert broker.rings[name].buckets == ring.after.buckets


@_slow
@given(declared_topologies(), declared_topologies(owns=("*",)), releases)
def test_declarations_come_before_the_first_step_of_a_ring(
    there: Topology, wanted: Topology, release: Release
) -> None:
    """Only an object that is replaced is declared later: in the place of what was deleted."""
    live = ModelBroker.holding(there, release).topology()
    ghosts = {
        name: HashRing.from_buckets([*ring.buckets, "ghost"], release) for name, ring in live.rings.items()
    }
    for side in (live, live.with_rings(ghosts)):
        actions = [change.action for change in plan(wanted, side).changes]
        first = next(
            (place for place, action in enumerate(actions) if action not in {"create", "update"}),
            len(actions),
        )
        assert "create" not in actions[first:]


@_slow
@given(declared_topologies(), declared_topologies(owns=("*",)), releases)
def test_an_exchange_is_unbound_before_it_is_deleted(
    there: Topology, wanted: Topology, release: Release
) -> None:
    deleted_exchanges(wanted, ModelBroker.holding(there, release).topology())


@pytest.mark.parametrize(
    "wanted", [Topology(owns=("*",)), replace(slotted(4, '[{ queue = "events.{1..4}" }]'), owns=("*",))]
)
def test_slots_are_unbound_before_they_are_deleted(wanted: Topology) -> None:
    live = live_of(slotted(8, '[{ queue = "events.{1..4}" }]'))

    assert {f"events.slot.0{number}" for number in range(4, 8)} <= deleted_exchanges(wanted, live)


def deleted_exchanges(wanted: Topology, live: LiveTopology) -> set[str]:
    """Return the exchanges that a plan deletes or replaces, none of which is bound at that moment.

    RabbitMQ 4.3 before 4.3.6 leaves the buckets of a destination exchange that is deleted (rabbitmq-server #17255).
    """
    bound = Counter(
        member.destination for exchange in live.exchanges for member in exchange.ring or ()
    ) + Counter(binding.destination for binding in live.bindings)
    deleted = set()
    for change in plan(wanted, live).changes:
        if change.action in ("bind", "unbind"):
            bound[change.binding.destination] += 1 if change.action == "bind" else -1
        elif change.kind == "exchange" and change.action in ("delete", "replace"):
            assert not bound[ExchangeRef(change.name)], change
            deleted.add(change.name)
    return deleted


@_slow
@given(declared_topologies(), declared_topologies(), releases)
def test_what_is_not_owned_stays(there: Topology, wanted: Topology, release: Release) -> None:
    broker = ModelBroker.holding(there, release)
    before = broker.topology()

    planned = plan(wanted, before)
    broker.apply(planned.changes)

    live = broker.topology()
    assert plan(wanted, live).changes == ()
    assert not any(change.action == "delete" for change in planned.changes)
    queues, exchanges = ({subject.name for subject in side} for side in (wanted.queues, wanted.exchanges))
    foreign = [queue for queue in before.queues if queue.name not in queues]
    assert [queue for queue in live.queues if queue.name not in queues] == foreign
    others = [exchange for exchange in before.exchanges if exchange.name not in exchanges]
    assert [exchange for exchange in live.exchanges if exchange.name not in exchanges] == others
    assert {
        subject for subject in planned.unmanaged if isinstance(subject, (QueueDefinition, ExchangeDefinition))
    } == {
        *foreign,
        *others,
    }


#: Patterns that own half of the names of `declared_topologies`.
_HALF = ("q0", "q2", "q4", "x0", "hash0")


@_slow
@given(declared_topologies(), declared_topologies(owns=_HALF), releases)
def test_what_has_an_end_that_is_not_owned_stays(there: Topology, wanted: Topology, release: Release) -> None:
    """An object whose name is not owned stays, and so does a binding unless both of its ends are owned, or one of them is deleted."""
    broker = ModelBroker.holding(there, release)
    before = broker.topology()

    broker.apply(plan(wanted, before).changes)

    live = broker.topology()
    for kind in ("exchanges", "queues", "policies"):
        listed = {subject.name for subject in getattr(wanted, kind)}
        stays = [
            subject
            for subject in getattr(before, kind)
            if subject.name not in listed and not (kind != "policies" and subject.name in _HALF)
        ]
        names = {subject.name for subject in stays}
        left = [subject for subject in getattr(live, kind) if subject.name in names]
        if kind == "exchanges":  # their members are bindings, below
            stays, left = ([replace(subject, ring=None) for subject in side] for side in (stays, left))
        assert left == stays
    deleted = {place for place in _HALF if not (live.queue(place) or live.exchange(place))}
    hashing = {exchange.name for exchange in wanted.exchanges if exchange.ring is not None}
    for source, name, key in _bindings_of(before.as_wanted()):
        is_owned = source in _HALF and name in _HALF
        if not is_owned and source not in hashing and not {source, name} & deleted:
            was, now = before.exchange(source), live.exchange(source)
            assert was is not None
            assert now is not None
            if (
                was.type == now.type
            ):  # an exchange of another type is a new one, and has the bindings of the file
                assert (source, name, key) in _bindings_of(live.as_wanted())


def _bindings_of(topology: Topology) -> list[tuple[str, str, str]]:
    """Return source, name of the destination and key of all bindings, also those of rings."""
    members = [
        (exchange.name, member.destination, member.key)
        for exchange in topology.exchanges
        for member in exchange.ring or ()
    ]
    bindings = [(binding.source, binding.destination, binding.routing_key) for binding in topology.bindings]
    return [
        (source, place.name if isinstance(place, ExchangeRef) else place, key)
        for source, place, key in (*members, *bindings)
    ]


@_slow
@given(rings_of(list("abcdef"), heavy=True), rings_of(list("abcdefgh"), heavy=True), releases)
def test_the_figures_are_those_of_share_moved_at_every_moment(
    there: tuple[RingMember, ...], wanted: tuple[RingMember, ...], release: Release
) -> None:
    queues = tuple(QueueDefinition(name) for name in "abcdefgh")
    live = Topology((ExchangeDefinition("h", "x-consistent-hash", ring=there),), queues)
    ours = Topology((ExchangeDefinition("h", "x-consistent-hash", ring=wanted),), queues)
    broker = ModelBroker.holding(live, release)
    before = broker.rings["h"]

    planned = plan(ours, broker.topology())

    moments = [before]
    for change in planned.changes:
        broker.apply([change])
        moments.append(broker.rings["h"])
    ring = planned.rings["h"]
    assert ring.moved == before.share_moved(moments[-1])
    assert ring.moved_at_worst == max(before.share_moved(moment) for moment in moments)
    assert ring.moved_at_worst >= ring.moved
    lost = [1.0 if not moment.bucket_count else moment.shares().get(None, 0.0) for moment in moments]
    assert ring.lost_at_worst == max(lost[1:], default=0.0)
    assert [*ring.moments] == [
        (before.share_moved(moment), lost_then)
        for change, moment, lost_then in zip(planned.changes, moments[1:], lost[1:], strict=True)
        if change.ring
    ]
    matrix = ring.matrix()
    assert matrix is not None
    assert matrix.moved == ring.moved
    for proposal in ring.proposals:
        if proposal.strategy == "least-moving-order":
            target = HashRing.from_bindings([member.binding for member in proposal.ring], release)
            assert proposal.moved == before.share_moved(target)
            assert proposal.moved <= ring.moved


@_slow
@given(two_states(releases))
def test_a_plan_and_a_check_find_the_same_differences(states: TwoStates) -> None:
    planned, checked = plan(states.wanted, states.live), check(states.live, states.wanted)
    differences = diff(states.wanted, states.live)

    found = find_differences(checked, states.wanted)
    assert bool(differences) == bool(planned.changes or planned.refusals) == bool(found)
    unclear = find_unclear_shares(states)
    replaced = {change.name for change in planned.changes if change.action == "replace"}
    for name, share in checked.misplaced.items():
        if name not in unclear | replaced and not planned.rings[name].movement.unknown:
            assert planned.rings[name].moved == pytest.approx(share, abs=1e-12)


def find_differences(checked: TopologyCheck, wanted: Topology) -> list[str]:
    """Return the findings that are differences from the file.

    The order of `m` is a fault of a release. A slot with several queues, or one that the file binds to no queue either, is a fault by itself.
    """
    bound_by_file = {binding.source for binding in wanted.bindings}

    def is_difference(finding: Finding) -> bool:
        if finding.kind not in ("missing", "unexpected", "different", "order"):
            return False
        if (finding.kind, finding.exchange) == ("order", "m"):
            return False
        is_bare_slot = "bound to no queue" in finding.message
        return not is_bare_slot or not bound_by_file.isdisjoint(finding.names)

    return [finding.message for finding in checked.findings if is_difference(finding)]


def find_unclear_shares(states: TwoStates) -> set[str]:
    """Return the exchanges whose keys no plan moves, since they are external, or that are at two queues now."""
    sources = Counter(binding.source for binding in states.live.bindings)
    copying = {
        name.partition(".slot.")[0] for name, count in sources.items() if count > 1 and ".slot." in name
    }
    return copying | {exchange.name for exchange in states.wanted.exchanges if exchange.owner == "external"}


@_slow
@given(declared_topologies(), declared_topologies(owns=("*",)), releases, st.randoms(use_true_random=False))
def test_the_order_of_the_input_has_no_effect(
    there: Topology, wanted: Topology, release: Release, order: Random
) -> None:
    live = ModelBroker.holding(there, release).topology()

    def shuffled(topology: _Side) -> _Side:
        return replace(
            topology,
            exchanges=tuple(order.sample(topology.exchanges, len(topology.exchanges))),
            queues=tuple(order.sample(topology.queues, len(topology.queues))),
            bindings=tuple(order.sample(topology.bindings, len(topology.bindings))),
            policies=tuple(order.sample(topology.policies, len(topology.policies))),
        )

    assert plan(shuffled(wanted), shuffled(live)).to_json() == plan(wanted, live).to_json()


@_slow
@given(declared_topologies(), declared_topologies(), declared_topologies())
def test_two_wanted_topologies_have_different_checksums(
    there: Topology, first: Topology, other: Topology
) -> None:
    live = ModelBroker.holding(there, NEWEST_COMPARED).topology()
    same = (first.exchanges, first.queues, first.bindings, first.policies) == (
        other.exchanges,
        other.queues,
        other.bindings,
        other.policies,
    )

    assert (plan(first, live).checksum == plan(other, live).checksum) == same


@pytest.mark.parametrize("release", [Release("4.3.6"), Release("4.0.5")], ids=lambda release: release.version)
@_slow
@given(there=rings_of(list("abcd")), wanted=rings_of(list("abcde")), lost=st.sampled_from("abcd"))
def test_ghost_buckets_are_cleared(
    release: Release, there: tuple[RingMember, ...], wanted: tuple[RingMember, ...], lost: str
) -> None:
    wanted = tuple(member for member in wanted if member.destination != lost)
    queues = tuple(QueueDefinition(name) for name in "abcde")
    broker = ModelBroker.holding(
        Topology((ExchangeDefinition("h", "x-consistent-hash", ring=there),), queues), release
    )
    broker.lose(lost)
    kept = tuple(queue for queue in queues if queue.name != lost)
    ours = Topology((ExchangeDefinition("h", "x-consistent-hash", ring=wanted),), kept)

    planned = plan(ours, broker.topology())
    broker.apply(planned.changes)

    assert broker.topology().queues == kept
    assert broker.rings["h"].buckets == HashRing.from_bindings([member.binding for member in wanted]).buckets
    assert plan(ours, broker.topology()).changes == ()
