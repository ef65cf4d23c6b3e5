"""A rule that changes in the mirror alone is noticed: by a check or a comparison, which know it too, or by what a broker did."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from edge_releases import edge_releases
from routes.amqp10_catalogue import OVER_AMQP_10
from routes.recorded import load
from routes.scenario import CHX, MODULUS, predict, replay, without_trailing_holes

import rabbit_chx
from rabbit_chx import ConsistentHashExchange, HashRing, ModulusHashExchange, Release, Topology, errors
from rabbit_chx.planning.upgrade import predict_upgrade
from rabbit_chx.routing import rules
from rabbit_chx.routing.release import NEWEST_COMPARED, Rule, Spans
from rabbit_chx.topology import BindingDefinition, ExchangeDefinition, LiveTopology, RingMember, check
from rabbit_chx.topology.modulus import number_bindings

_VECTORS = Path(__file__).resolve().parents[2] / "vectors"
#: The binding keys sort them in another order than the names do.
BOUND = (("a", "2"), ("b", "1"))
#: Of the recorded scenarios those with a few thousand messages at most.
_FEW = 2_200


def _said(before: Release, after: Release, *bindings: tuple[str, str], **arguments: str) -> dict[str, str]:
    """Return what `compare` says of an exchange on two releases, by the kind of the finding."""
    ring = tuple(RingMember(*binding) for binding in bindings)
    exchange = ExchangeDefinition("x", CHX, arguments=arguments, ring=ring)
    (upgrade,) = predict_upgrade(Topology((exchange,)), before, after)
    said: dict[str, str] = {}
    for finding in upgrade.findings:
        said[finding.kind] = f"{said.get(finding.kind, '')}{finding.message}; "
    return said


def compare_knows_what_a_restart_does(release: Release) -> None:
    said = _said(release, release, *BOUND).get("order", rules.RESTART_KEEPS.says)
    ring = HashRing.from_bindings(BOUND, release)
    try:
        restarted = ring.restarted().buckets
    except errors.NotDeterminedError:
        rule = rules.RESTART_SHUFFLES
    else:
        assert restarted == ring.buckets
        rule = rules.RESTART_KEEPS
    assert rule.says in said


def compare_knows_which_headers_close_the_connection(release: Release) -> None:
    arguments = {"hash-header": "h"}
    said = _said(Release("3.12.14"), release, *BOUND, **arguments).get("refused-message", "")
    exchange = ConsistentHashExchange("x", HashRing.from_bindings(BOUND, release), arguments=arguments)
    messages: dict[Rule, dict[str, Any]] = {
        rules.MISSING_HEADER_CRASHES: {},
        rules.EMPTY_LIST_CRASHES: {"h": []},
    }
    for rule, headers in messages.items():
        try:
            exchange.route("", headers=headers, client="pika")
        except errors.ChannelClosedError:
            assert rule.about in said
        else:
            assert rule.about not in said


def compare_knows_how_headers_are_hashed(release: Release) -> None:
    before = Release("3.12.14")
    routes = []
    for each in (before, release):
        ring = HashRing.from_bindings(BOUND, each)
        exchange = ConsistentHashExchange("x", ring, arguments={"hash-header": "h"})
        routes.append([exchange.route("", headers={"h": number}, client="pika") for number in range(50)])
    said = _said(before, release, *BOUND, **{"hash-header": "h"})
    assert ("hashed-differently" in said) == (routes[0] != routes[1])


def compare_knows_what_a_second_binding_adds(release: Release) -> None:
    twice, newest = [("a", "1"), ("b", "1"), ("a", "2")], NEWEST_COMPARED
    said = _said(release, newest, *twice)["second-binding"]
    rings = [HashRing.from_bindings(twice, each).buckets for each in (release, newest)]
    assert ("adds buckets for each binding" in said) == (rings[0] != rings[1])


def a_file_knows_which_weights_are_refused(release: Release) -> None:
    text = '[[exchanges]]\nname = "x"\ntype = "x-consistent-hash"\nring = [{ queue = "a", weight = 10001 }]\n'
    assert _raises(errors.TopologyError, Topology.from_toml, text, release=release) == _raises(
        errors.InputError, HashRing.from_bindings, [("a", 10_001)], release
    )


def a_check_knows_the_order_of_modulus_bindings(release: Release) -> None:
    bindings = [BindingDefinition("m", queue, key) for queue, key in BOUND]
    exchange = ModulusHashExchange("m", BOUND, release)
    live = LiveTopology((ExchangeDefinition("m", MODULUS),), (), tuple(bindings), release=release)
    is_unknown = any(finding.kind == "order" for finding in check(live).findings)
    assert is_unknown == _raises(errors.NotDeterminedError, exchange.route, "k")
    assert is_unknown or number_bindings(bindings, release) == exchange.destinations


def amqp_1_0_is_mirrored_where_brokers_have_it(release: Release) -> None:
    scenario, ring = OVER_AMQP_10[0], HashRing.from_bindings(BOUND, release)
    is_mirrored = not _raises(errors.NotDeterminedError, predict, scenario, ring, release)
    assert is_mirrored == (release.numbers >= scenario.since)


def brokers_route_as_predicted(release: Release) -> None:
    for answer in _recorded().get(release, ()):
        if answer.scenario.type == CHX:
            ring = replay(answer.scenario, release)
            assert ring is not None
            is_equal = without_trailing_holes(ring) == without_trailing_holes(answer.ring)
            assert is_equal
        is_as_predicted = predict(answer.scenario, answer.ring, release) == answer.found
        assert is_as_predicted  # pytest would compare thousands of routes line by line, for minutes


#: Each holds on each release.
LAWS: tuple[Callable[[Release], None], ...] = (
    compare_knows_what_a_restart_does,
    compare_knows_which_headers_close_the_connection,
    compare_knows_how_headers_are_hashed,
    compare_knows_what_a_second_binding_adds,
    a_file_knows_which_weights_are_refused,
    a_check_knows_the_order_of_modulus_bindings,
    amqp_1_0_is_mirrored_where_brokers_have_it,
    brokers_route_as_predicted,
)


def _raises(error: Any, call: Callable[..., object], *arguments: object, **named: object) -> bool:
    try:
        call(*arguments, **named)
    except error:
        return True
    return False


@cache
def _recorded() -> dict[Release, list[Any]]:
    """Return what a broker of each recorded release did."""
    files = [load(path) for path in sorted(_VECTORS.glob("routes-*.json.gz"))]
    return {release: [it for it in routed if len(it.found) <= _FEW] for _, release, routed in files}


def _rules_that_decide() -> list[str]:
    """Return the rules that the mirror asks for. The others are names of what it does otherwise."""
    folder = Path(rabbit_chx.__file__).parent / "routing"
    texts = (path.read_text(encoding="utf-8") for path in folder.rglob("*.py"))
    return sorted(
        {name for text in texts for name in re.findall(r"follows\((?:rules\.)?([A-Z0-9_]+)\)", text)}
    )


def _mirror() -> list[ModuleType]:
    return [
        module
        for name, module in sys.modules.items()
        if name.startswith("rabbit_chx.routing.") and module is not rules
    ]


def _releases() -> Iterator[Release]:
    yield from edge_releases()
    yield from _recorded()


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_the_law_holds(law: Callable[[Release], None]) -> None:
    for release in _releases():
        law(release)


_ALWAYS: Spans = (((0, 0, 0), None),)
#: Rules of which nothing shows that they apply to further releases.
_UNSEEN_ELSEWHERE = {
    "FIRST_HEADER_COUNTS": "no client whose messages were recorded sends a name twice",
    "LAST_HEADER_COUNTS": "the mirror asks for FIRST_HEADER_COUNTS before it",
    "MODULUS_BY_NAME": "the mirror asks for MODULUS_BY_BINDING_KEY before it, and routes nothing by MODULUS_UNORDERED",
}


@pytest.mark.parametrize(
    ("name", "versions"),
    [
        (name, versions)
        for name in _rules_that_decide()
        for versions in ((), _ALWAYS)
        if not (versions and name in _UNSEEN_ELSEWHERE)
    ],
)
def test_a_rule_that_changes_in_the_mirror_alone_is_noticed(
    name: str, versions: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule: Rule = getattr(rules, name)
    changed = replace(rule, versions=versions, store=None)
    for module in _mirror():
        if getattr(module, name, None) is rule:
            monkeypatch.setattr(module, name, changed)
        if getattr(module, "rules", None) is rules:
            monkeypatch.setattr(module, "rules", SimpleNamespace(**{**vars(rules), name: changed}))
    noticed = (
        _raises((AssertionError, errors.RabbitChxError), law, release)
        for law in LAWS
        for release in _releases()
    )
    assert any(noticed), "add a law in which another part knows the rule"
