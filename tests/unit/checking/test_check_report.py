"""The report of a check: lines, JSON and metrics."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
from command_line import Stored
from exposition import Family, parsed_exposition
from given_report import console_text

from rabbit_chx.analysis import Finding
from rabbit_chx.analysis.findings import CHECK_KINDS, USAGE_KINDS
from rabbit_chx.checking.check_report import CheckReport
from rabbit_chx.rendering.document import Document
from rabbit_chx.rendering.output import metrics_text
from rabbit_chx.routing import ExchangeRef, HashRing, OrderKnowledge
from rabbit_chx.topology import TopologyCheck

NAME = 'or"ders\\\n'
TIME_S = 1_700_000_000.1234
GHOST = Finding("ghost-bucket", "q9 has 1 bucket", "cure it", exchange="orders", destination="q9", share=0.25)
SHARE = Finding("unroutable-share", "25% of all keys", "cure it", exchange="orders", share=0.25)
QUEUE = Finding("missing", "queue q1 does not exist", "apply it", destination="q1")
AUDIT = Finding("unexpected", "a binding", "apply it", exchange="audit", destination=ExchangeRef("x"))


def report(findings: Sequence[Finding] = (), file: str | None = "f.toml") -> Document:
    names = ("orders", NAME)
    rings = {name: HashRing.from_buckets(["q1"]) for name in names}
    check = TopologyCheck(
        tuple(findings), names, {"orders": 0.25, NAME: 0.0}, {"orders": 0.5, NAME: 0.0}, rings=rings
    )
    return CheckReport("rabbit:5672", {"/": check}, (), TIME_S, file).document()


def metrics(report: Document) -> dict[str, Family]:
    return parsed_exposition(metrics_text(report.gauges))


def test_people_programs_and_metrics_have_each_finding(stored: Stored) -> None:
    """Metrics have each exchange and kind, with 0 too."""
    stored("check", report([SHARE, GHOST, QUEUE, AUDIT]))
    stored("check-without-file", report(file=None))


def test_alike_findings_of_queues_that_count_up_share_a_line_unless_a_share_is_the_double() -> None:
    """Names come in any order, and findings of two kinds alternate."""
    shares = {10: "10.200%", 1: "10.000%", 3: "25.000%", 2: "11.000%", 4: "10.000%"}
    found = [
        finding
        for n, share in shares.items()
        for finding in (
            Finding("hole", f"{share} of the keys of q{n} are lost", "cure it", exchange="orders", share=0.1),
            Finding("expiring-destination", f"q.{n} expires after 60000 ms", f"set x-expires of q.{n}"),
        )
    ]
    assert [" ".join(line.split()) for line in console_text(report(found)).splitlines()[3:] if line] == [
        "findings 10",
        "exchange orders",
        "error: hole 10.000% to 11.000% of the keys of q{1..2} are lost",
        "error: hole 25.000% of the keys of q3 are lost",
        "error: hole 10.000% of the keys of q4 are lost",
        "error: hole 10.200% of the keys of q10 are lost",
        "fix cure it",
        "warning: expiring-destination q.{1..4} expires after 60000 ms",
        "fix set x-expires of q.{1..4}",
        "warning: expiring-destination q.10 expires after 60000 ms",
        "fix set x-expires of q.10",
    ]
    assert len(report(found).as_json()["findings"]) == 10  # programs get each


@pytest.mark.parametrize("name", ["q{1..3}", "q\0", "q1.000%", "1" * 255])
def test_a_name_that_resembles_a_range_is_shown_as_it_is(name: str) -> None:
    message = f"queue {name} expires; 1.000% of all keys go there"
    shown = console_text(report([Finding("expiring-destination", message, f"cure {name}")])).replace("\n", "")
    assert shown.replace(" ", "").endswith(f"{message}fixcure {name}".replace(" ", "").replace("\0", "\\x00"))


def test_more_findings_than_are_shown_are_counted_one_by_one() -> None:
    many = [
        Finding("missing", f"queue {letter}.{n} does not exist", "apply it")
        for letter in "abc"
        for n in range(40)
    ]
    odd = [Finding("different", f"x{'y' * n}", "apply it") for n in range(60)]
    shown = console_text(report([*odd, *many]))
    assert "findings  180" in shown
    assert re.search(r"and 13[03] more \(1[03] different, 120 missing\)", shown)


def test_no_findings_says_what_was_checked_and_what_was_not(stored: Stored) -> None:
    ring = HashRing.from_buckets(["q1", "q2", "q2"])
    rings = {"orders": ring, "events": replace(ring, order=OrderKnowledge("recorded"))}
    check = TopologyCheck(
        (), ("orders", "events"), rings=rings, unordered={"orders": "no file to compare it with"}
    )
    stored("check-sound", CheckReport("rabbit:5672", {"/": check}, (), TIME_S).document())


def test_a_kind_that_is_meant_counts_nowhere() -> None:
    checks = {"/": TopologyCheck((SHARE, GHOST, QUEUE), ("orders",))}
    ignoring = CheckReport("rabbit:5672", checks, (), TIME_S, ignored=("missing", "unroutable-share"))
    assert [finding for _, finding in ignoring.findings] == [GHOST]
    meant = ignoring.document()
    assert "findings  1\nignored   2 (missing, unroutable-share)\n" in console_text(meant)
    assert [finding["kind"] for finding in meant.as_json()["findings"]] == ["ghost-bucket"]
    counts = metrics(meant)["rabbit_chx_check_findings"]
    assert counts.value(exchange="orders", kind="ghost-bucket") == 1
    assert not counts.matching(kind="missing"), "a series that is 0 would say that it was looked for"


def test_consumers_that_are_not_checked_are_named_and_have_no_series() -> None:
    check = TopologyCheck((GHOST,), ("orders",), consumers_not_checked="left out")
    left_out = CheckReport("rabbit:5672", {"/": check}, (), TIME_S)
    assert "findings  1, without consumers and traffic (left out)\n" in console_text(left_out.document())
    assert left_out.summary == "1 finding, consumers not checked"
    assert left_out.document().as_json()["consumers_not_checked"] == "left out"
    counts = metrics(left_out.document())["rabbit_chx_check_findings"]
    assert {dict(labels)["kind"] for labels in counts.values} == set(CHECK_KINDS) - USAGE_KINDS


def test_notes_alone_are_no_fault_and_come_last() -> None:
    note = Finding("odd-member", "q1 differs", exchange="orders")

    def report_of(*findings: Finding) -> CheckReport:
        return CheckReport("rabbit:5672", {"/": TopologyCheck(findings, ("orders",))}, (), TIME_S)

    assert not report_of(note).has_faults
    assert report_of(note, AUDIT, GHOST).has_faults
    assert [each.severity for _, each in report_of(note, AUDIT, GHOST).findings] == [
        "error",
        "warning",
        "note",
    ]


def test_a_failed_check_is_reported_and_a_sound_one_has_every_kind_at_zero() -> None:
    found = metrics(CheckReport("rabbit:5672", {"/": None}, (), TIME_S).document())
    assert set(found) == {"rabbit_chx_check_success", "rabbit_chx_check_timestamp_seconds"}
    assert found["rabbit_chx_check_success"].value() == 0
    counts = metrics(report())["rabbit_chx_check_findings"]
    assert set(counts.values.values()) == {0.0}
    assert {dict(labels)["kind"] for labels in counts.values} == set(CHECK_KINDS)


def test_of_several_vhosts_each_finding_and_metric_reports_its_own(stored: Stored) -> None:
    """The vhost `closed` could not be read."""
    checks = {
        "/": TopologyCheck((GHOST,), ("orders",), {"orders": 0.25}),
        "shop": TopologyCheck((SHARE, AUDIT), ("orders",), {"orders": 0.25}),
        "closed": None,
    }
    of_vhosts = CheckReport("rabbit:5672", checks, (), TIME_S, all_vhosts=True)
    stored("check-of-vhosts", of_vhosts.document())
    named = metrics(replace(of_vhosts, exchanges=("orders", "audit")).document())["rabbit_chx_check_success"]
    assert [named.value(vhost="closed", exchange=exchange) for exchange in ("orders", "audit")] == [0, 0]


def test_checks_of_one_vhost_that_ask_something_else_write_other_series() -> None:
    """Prometheus' node exporter takes no series twice from the files of a folder."""
    check = TopologyCheck((GHOST,), ("orders",), {"orders": 0.25}, {"orders": 0.5})
    asked = [
        CheckReport("b", {"/": check}, exchanges, TIME_S, file, all_vhosts)
        for exchanges, file, all_vhosts in (
            ((), None, False),
            ((), None, True),
            (("orders",), None, False),
            (("orders", "audit"), None, False),
            ((), "a.toml", False),
            ((), "b.toml", False),
            (("orders",), "a.toml", False),
        )
    ]
    series = [
        (name, labels)
        for report in asked
        for name, family in metrics(report.document()).items()
        for labels in family.values
    ]
    assert len(series) == len({*series})
