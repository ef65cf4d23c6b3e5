"""What a plan orders and what a check words are the differences of `diff`, each of them, and no others: for key maps of all kinds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import pytest
from edge_releases import edge_releases
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from two_states import TwoStates, two_states

from rabbit_chx.analysis import Finding
from rabbit_chx.checking import check as check_module
from rabbit_chx.planning import plan as plan_module
from rabbit_chx.planning.diff import Comparison
from rabbit_chx.routing import Destination
from rabbit_chx.topology import (
    BindingDefinition,
    Difference,
    LiveTopology,
    Plan,
    Topology,
    check,
    diff,
    plan,
)
from rabbit_chx.topology.schema import PlannedChange

_Side = TypeVar("_Side", Topology, LiveTopology)

_slow = settings(
    max_examples=100,
    deadline=None,
    phases=[Phase.generate],
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
#: The kinds of findings that are differences, unless they are faults of the live side alone.
_OF_DIFFERENCES = ("missing", "unexpected", "different", "order")
_PARTITIONS = st.lists(st.sampled_from("abcd"), min_size=1, max_size=4, unique=True)


@st.composite
def states_of_all_kinds(draw: st.DrawFn) -> TwoStates:
    """Return a file and a broker with rings, slots, moduli and a super stream; rings may be unread, unordered, or not in the file."""
    states = draw(two_states(st.sampled_from(edge_releases())))
    wanted, live = states
    if draw(st.booleans()):
        stream = Topology.from_toml(
            f'[[super_streams]]\nname = "y"\nbinding_keys = {[*draw(_PARTITIONS)]!r}\n'
        )
        there = Topology.from_toml(
            f'[[super_streams]]\nname = "y"\nbinding_keys = {[*draw(_PARTITIONS)]!r}\n'
        )
        wanted = _with(wanted, stream)
        live = _with(live, there)
        if draw(st.booleans()):
            bindings = [replace(one, arguments={}) if one.source == "y" else one for one in live.bindings]
            live = replace(live, bindings=tuple(bindings))
    match draw(st.sampled_from(["read"] * 4 + ["unread", "unnamed", "unordered", "no ring"])):
        case "unread":
            live = replace(live, rings={})
        case "unnamed":
            rings = {name: ring for name, ring in live.rings.items() if name != "h"}
            live = replace(live, rings=rings, facts=replace(live.facts, sources_left_out=frozenset({"h"})))
        case "unordered":
            wanted = replace(wanted, file=replace(wanted.file, unordered=frozenset({"h"})))
        case "no ring":
            exchanges = [replace(one, ring=None) if one.name == "h" else one for one in wanted.exchanges]
            wanted = replace(wanted, exchanges=tuple(exchanges))
    return TwoStates(wanted, live)


def _with(side: _Side, other: Topology) -> _Side:
    return replace(
        side,
        exchanges=(*side.exchanges, *other.exchanges),
        queues=(*side.queues, *other.queues),
        bindings=(*side.bindings, *other.bindings),
    )


def _names(difference: Difference) -> set[str]:
    """Return the objects that a difference is about: for a binding both of its ends."""
    subject = difference.subject
    if isinstance(subject, BindingDefinition):
        return {subject.source, _name_of(subject.destination)}
    return {subject.name}


def _is_ordered(difference: Difference, made: Plan) -> bool:
    """Return True if a plan has a change for a difference, or refuses to have one."""
    subject, names = difference.subject, _names(difference)
    ring = made.rings.get(subject.source if isinstance(subject, BindingDefinition) else subject.name)
    if any(name in refusal.message for refusal in made.refusals for name in names):
        return True
    if ring is not None and ring.steps:
        return True
    for change in made.changes:
        if change.kind == subject.kind and change.name == subject.name:
            return True
        if subject.kind == "binding" and change.action in ("replace", "delete") and change.name in names:
            return True
        if change.kind == "binding" and change.binding.source == subject.name:
            return True
    return False


def _is_of_a_difference(change: PlannedChange, states: TwoStates, differences: Sequence[Difference]) -> bool:
    """Return True if a change of a plan is there because of a difference.

    An object that is replaced or deleted loses its bindings; a ring is made again with all its members, and bind and unbind a stand-in for
    a bucket of a queue that does not exist.
    """
    subject = change.subject
    names = {name for one in differences for name in _names(one)}
    ends = {subject.name}
    if isinstance(subject, BindingDefinition):
        ends = {subject.source, _name_of(subject.destination)}
    for side in states:
        for exchange in side.exchanges:
            if exchange.name in ends:
                ends |= {_name_of(member.destination) for member in exchange.ring or ()}
    return bool(names & ends) or (bool(names) and subject.name == "gone")


def _name_of(place: Destination) -> str:
    return place if isinstance(place, str) else place.name


def _says(finding: Finding, difference: Difference) -> bool:
    """Return True if a finding words a difference: it names one of its objects, or is about the exchange whose slots these are."""
    places = {finding.exchange, finding.destination if isinstance(finding.destination, str) else None}
    text = finding.message
    return any(
        name in text
        or name in places
        or name.partition(".slot.")[0] in places
        or name.partition(".park")[0] in places
        for name in _names(difference)
    )


@_slow
@given(states_of_all_kinds())
def test_a_plan_orders_and_a_check_words_exactly_the_same_differences(states: TwoStates) -> None:
    wanted, live = states
    seen: list[Comparison] = []
    with pytest.MonkeyPatch.context() as patched:
        for module in (plan_module, check_module):
            patched.setattr(module, "compare", _recorded(module.compare, seen))
        made, checked = plan(wanted, live), check(live, wanted)
    differences = diff(wanted, live)
    assert [compared.differences for compared in seen] == [differences, differences]
    for difference in differences:
        assert _is_ordered(difference, made), difference
    for change in made.changes:
        assert _is_of_a_difference(change, states, differences), change
    for difference in differences:
        if not (difference.kind == "order" and difference.subject.name in checked.unordered):
            assert any(_says(finding, difference) for finding in checked.findings), difference
    own = {finding.message for finding in check(live).findings}
    for finding in checked.findings:
        if finding.kind in _OF_DIFFERENCES and finding.message not in own:
            assert any(_says(finding, difference) for difference in differences), finding


def _recorded(compare: Callable[[Topology, LiveTopology], Comparison], seen: list[Comparison]) -> object:
    def recorded(wanted: Topology, live: LiveTopology) -> Comparison:
        seen.append(compare(wanted, live))
        return seen[-1]

    return recorded
