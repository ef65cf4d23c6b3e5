"""Stored checks: what a check finds in each scenario of `checks.toml`, as text in `checks.txt`. Any change of it is a difference to review.

``PYTHONPATH=tests/support python tests/unit/checking/test_stored_checks.py`` writes `checks.txt` again.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from sides import as_live
from stored_scenarios import Scenario, read_scenarios, stored_sections, write_sections

from rabbit_chx.analysis.findings import CHECK_KINDS
from rabbit_chx.errors import MismatchError, NotFoundError
from rabbit_chx.routing import HashRing, OrderKnowledge
from rabbit_chx.routing.arrays import seeds
from rabbit_chx.topology import ExchangeDefinition, LiveTopology, RingMember, Topology, check

pytestmark = pytest.mark.all_seeds

STORED = Path(__file__).with_name("checks.txt")
SCENARIOS = read_scenarios(STORED.with_suffix(".toml"))
#: No file may contain the default exchange.
OF_BROKER = Topology(tuple(ExchangeDefinition(name, "topic", owner="external") for name in ("amq.topic", "")))
SCENARIOS["exchanges of the broker"] = Scenario(LiveTopology(), OF_BROKER, {})
ORDERS, WANTED, _ = SCENARIOS["sound"]
_TO_STORE = "run `PYTHONPATH=tests/support python tests/unit/checking/test_stored_checks.py`, and review the difference of checks.txt"


def stored_text(scenario: Scenario) -> str:
    """Return what is found, and the shares that metrics have."""
    live, wanted, options = scenario
    exchange = options.get("exchange")
    file = options.get("path", "t.toml") if wanted else None
    found = check(live, wanted, exchange=exchange, file=file)
    lines = []
    for finding in found.findings:
        share = "" if finding.share is None else f" {finding.share!r}"
        lines += [
            f"{finding.severity} {finding.kind} [{finding.exchange}] [{finding.destination}]{share}",
            f"  {finding.message}",
        ]
        lines += [f"  -> {finding.fix}"] if finding.fix else []
    for name in ("unroutable", "misplaced", "parked"):
        figures = {place: figure for place, figure in getattr(found, name).items() if figure}
        lines += [f"{name}: {figures}"] if figures else []
    return "\n".join(lines or ["sound"])


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_findings_are_as_stored(name: str) -> None:
    assert stored_text(SCENARIOS[name]) == stored_sections(STORED).get(name), _TO_STORE


def test_each_stored_check_has_a_scenario() -> None:
    assert list(stored_sections(STORED)) == list(SCENARIOS), _TO_STORE
    options = {key for scenario in SCENARIOS.values() for key in scenario.options}
    assert options == {"exchange", "path"}


def test_each_kind_of_finding_is_stored() -> None:
    found = set(re.findall(r"^[a-z]+ ([a-z-]+) \[", STORED.read_text(encoding="utf-8"), re.MULTILINE))
    assert set(CHECK_KINDS) - found == set(), "add a scenario with the kind to checks.toml"
    assert found - set(CHECK_KINDS) == set(), "add the kind to CHECK_KINDS in rabbit_chx/analysis/findings.py"


def test_of_a_sound_ring_only_the_shares_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """To count more takes a second a ring, and `show` checks all rings of a broker."""

    def count(*_: object) -> None:
        pytest.fail("more is counted")

    monkeypatch.setattr(HashRing, "indices_of_all_seeds", count)
    monkeypatch.setattr(seeds, "stays_of_seeds", count)
    found = check(ORDERS)
    assert found.sound
    assert found.unroutable == {"orders": 0.0}


@pytest.mark.parametrize("order", [OrderKnowledge(None), OrderKnowledge("replayed"), None])
def test_of_a_ring_that_was_not_read_is_checked_what_needs_no_order(order: OrderKnowledge | None) -> None:
    rings = {} if order is None else {"orders": replace(ORDERS.rings["orders"], order=order)}
    unread = as_live(ORDERS, rings=rings)
    for wanted in (WANTED, None):
        found = check(unread, wanted)
        assert found.sound
        assert found.not_determined == tuple(found.unordered) == ("orders",)
        assert found.unroutable == found.misplaced == {}
    expiring = tuple(replace(queue, arguments={"x-expires": 60_000}) for queue in unread.queues)
    findings = check(replace(unread, queues=expiring)).findings
    assert {(finding.kind, finding.share) for finding in findings} == {
        ("expiring-destination", 0.25),
        ("expiring-destination", 0.5),
    }


def bound_only_to(*queues: str) -> LiveTopology:
    """Return the exchange with these bindings, whose order is not known."""
    declared = replace(ORDERS.exchanges[0], ring=tuple(RingMember(queue) for queue in queues))
    ring = replace(HashRing.from_bindings([(queue, 1) for queue in queues]), order=OrderKnowledge(None))
    return as_live(ORDERS, exchanges=(declared,), rings={"orders": ring})


def test_one_binding_does_not_determine_a_ring() -> None:
    """Others may have left buckets in it."""
    found = check(bound_only_to("q1"))
    assert found.not_determined == ("orders",)
    assert not {finding.kind for finding in found.findings} & {"hole", "unroutable-share"}


@pytest.mark.parametrize("wanted", [None, WANTED])
def test_without_bindings_every_message_is_unroutable_whatever_the_order_was(wanted: Topology | None) -> None:
    found = check(bound_only_to(), wanted)
    assert found.not_determined == ()
    assert found.unroutable == {"orders": 1.0}
    shares = {finding.kind: finding.share for finding in found.findings if finding.kind != "missing"}
    assert {shares["hole"], shares["unroutable-share"]} == {1.0}
    assert "order" not in shares
    if wanted is not None:
        assert found.misplaced == {"orders": 1.0}
        missing = [finding for finding in found.findings if finding.kind == "missing"]
        assert sum(finding.share or 0.0 for finding in missing) == pytest.approx(1.0)
        assert all("nothing else is" in finding.message for finding in missing)


@pytest.mark.parametrize(
    ("exchange", "error", "words"),
    [
        ("order", NotFoundError, "there is no exchange 'order': did you mean orders"),
        ("unknown", NotFoundError, "there is no exchange 'unknown': check its name"),
        ("amq.other", NotFoundError, r"there is no exchange 'amq\.other'"),
        ("x", MismatchError, "exchange 'x' is of type direct, not x-consistent-hash"),
        ("amq.direct", MismatchError, "exchange 'amq.direct' is of type direct, not x-consistent-hash"),
        ("amq.topic", MismatchError, "exchange 'amq.topic' is of type topic, not x-consistent-hash"),
        ("", MismatchError, "exchange '' is of type direct, not x-consistent-hash"),
    ],
)
def test_an_exchange_that_does_not_hash_is_refused_by_its_name(
    exchange: str, error: type[Exception], words: str
) -> None:
    there = replace(ORDERS, exchanges=(*ORDERS.exchanges, ExchangeDefinition("x")))
    with pytest.raises(error, match=words):
        check(there, exchange=exchange)


def test_exchanges_are_checked_by_name() -> None:
    (orders,) = ORDERS.exchanges
    both = replace(ORDERS, exchanges=(orders, replace(orders, name="other")))
    there = both.with_rings({"other": ORDERS.rings["orders"]})
    assert check(there, exchange=["other", "orders", "other"]).exchanges == ("other", "orders")
    assert check(there).exchanges == ("orders", "other")
    assert check(there, exchange="orders").sound
    wanted = replace(both.as_wanted(), exchanges=(*both.exchanges, ExchangeDefinition("x")))
    assert check(ORDERS, wanted).present == {"orders": True, "other": False}


def test_a_ring_whose_bindings_are_not_read_is_named_and_the_others_are_checked() -> None:
    (orders,) = ORDERS.exchanges
    both = replace(ORDERS, exchanges=(orders, replace(orders, name="other")))
    found = check(as_live(both, sources_left_out=frozenset({"other"})))
    assert [(finding.kind, finding.exchange) for finding in found.findings] == [("different", "other")]
    assert list(found.unroutable) == ["orders"]


if __name__ == "__main__":
    write_sections(STORED, {name: stored_text(scenario) for name, scenario in SCENARIOS.items()})
