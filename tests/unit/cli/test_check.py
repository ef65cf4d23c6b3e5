"""The result of a check: exit code, lines, JSON and metrics."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace

import pytest
from exposition import Family, parsed_exposition
from given_report import console_text
from sides import as_live

from rabbit_chx.analysis import Finding
from rabbit_chx.analysis.finding_kinds import CHECK_KINDS
from rabbit_chx.cli.check import CheckReport, check_ring
from rabbit_chx.rendering import PrometheusOutput
from rabbit_chx.routing import ExchangeRef, Ground, HashRing
from rabbit_chx.topology import Topology, TopologyCheck
from rabbit_chx.topology import check as check_topology
from rabbit_chx.words import percent

NAME = 'or"ders\\\n'
TIME_S = 1_700_000_000.1234
GHOST = Finding("ghost-bucket", "q9 has 1 bucket", "cure it", exchange="orders", destination="q9", share=0.25)
SHARE = Finding("unroutable-share", "25% of all keys", "cure it", exchange="orders", share=0.25)
QUEUE = Finding("missing", "queue q1 does not exist", "apply it", destination="q1")
AUDIT = Finding("unexpected", "a binding", "apply it", exchange="audit", destination=ExchangeRef("x"))


def report(findings: Sequence[Finding] = (), file: str | None = "f.toml") -> CheckReport:
    names = ("orders", NAME)
    rings = {name: HashRing.from_buckets(["q1"]) for name in names}
    check = TopologyCheck(
        tuple(findings), names, {"orders": 0.25, NAME: 0.0}, {"orders": 0.5, NAME: 0.0}, rings=rings
    )
    return CheckReport("rabbit:5672", {"/": check}, (), TIME_S, file)


def metrics(report: CheckReport) -> dict[str, Family]:
    stream = io.StringIO()
    PrometheusOutput(stream).show(report)
    return parsed_exposition(stream.getvalue())


def test_people_read_each_finding_with_its_cure() -> None:
    assert console_text(report([SHARE, GHOST, QUEUE])) == (
        "broker    rabbit:5672\nvhost     /\nchecked   2 rings (2 buckets, read) against f.toml\nfindings  3\n\n"
        "exchange          orders\nunroutable-share  25% of all keys\nghost-bucket      q9 has 1 bucket\n"
        "fix               cure it\n\n"
        "missing  queue q1 does not exist\nfix      apply it\n"
    )
    assert "none" in console_text(report(file=None))
    assert "against its own bindings and queues" in console_text(report(file=None))


def test_alike_findings_of_queues_that_count_up_share_a_line() -> None:
    expiring = [
        Finding(
            "expiring-destination",
            f"q.{n} expires after 60000 ms",
            f"set x-expires of q.{n}",
            destination=f"q.{n}",
            share=share,
        )
        for n, share in ((1, 0.1), (2, 0.1), (3, 0.1), (4, 0.2))
    ]
    checked = report(expiring)
    assert console_text(checked).partition("findings")[2] == (
        "  4\n\n"
        "expiring-destination  q.{1..3} expires after 60000 ms\nfix                   set x-expires of q.{1..3}\n\n"
        "expiring-destination  q.4 expires after 60000 ms\nfix                   set x-expires of q.4\n"
    )
    assert len(checked.as_json()["findings"]) == 4  # programs get each


def test_a_thousand_queues_with_the_same_faults_are_a_line_for_each_fault() -> None:
    """A ring gives each queue another share, names come in any order, and faults of two kinds alternate."""
    queues = "\n".join(
        f"""[[queues]]
        name = "orders.{n}"
        arguments = {{ x-message-ttl = 60000, x-max-length = {9 if n == 500 else 1000} }}"""
        for n in sorted(range(1, 1_001), key=str)
    )
    ring = HashRing.from_bindings([(f"orders.{n}", 1) for n in range(1, 1_001)])
    topology = Topology.from_toml(
        f"""{queues}
        [[exchanges]]
        name = "orders"
        type = "x-consistent-hash"
        ring = [{{ queue = "orders.{{1..1000}}", weight = 1 }}]"""
    )
    checked = check_topology(
        as_live(topology, rings={"orders": replace(ring, ground=Ground("read"))}), exchange="orders"
    )
    found = CheckReport("rabbit:5672", {"/": checked}, (), TIME_S)
    lines = [line for line in console_text(found).splitlines() if "destination  " in line]
    shares = [finding.share or 0.0 for _, finding in found.findings]
    span = f"{percent(min(shares))} to {percent(max(shares))} of all keys go there"
    assert len(lines) == 4
    assert lines[0].split("  ", 1)[1].strip() == (
        "orders.{1..1000} has a message TTL of 60,000 ms: a message that is not consumed in that time is lost; "
        + span
    )
    assert [line.split()[1] for line in lines[1:]] == ["orders.{1..499}", "orders.{501..1000}", "orders.500"]
    assert len(found.as_json()["findings"]) == 2_001  # queue 500 is an odd member, too
    counts = metrics(found)["rabbit_chx_check_findings"].matching(kind="expiring-destination")
    assert sum(counts.values()) == 1_000


def test_a_share_of_the_double_has_a_line_of_its_own() -> None:
    shares = {1: 0.1, 2: 0.11, 3: 0.25, 4: 0.1}
    found = [
        Finding(
            "hole",
            f"{percent(share)} of the keys of q{n} are lost",
            "cure it",
            exchange="orders",
            share=share,
        )
        for n, share in shares.items()
    ]
    assert console_text(report(found)).partition("exchange")[2].splitlines()[1:-1] == [
        "hole      10.000% to 11.000% of the keys of q{1..2} are lost",
        "hole      25.000% of the keys of q3 are lost",
        "hole      10.000% of the keys of q4 are lost",
    ]


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
    assert (
        "and 133 more (13 different, 120 missing)" in shown
        or "and 130 more (10 different, 120 missing)" in shown
    )


def test_no_findings_says_what_was_checked_and_what_was_not() -> None:
    ring = HashRing.from_buckets(["q1", "q2", "q2"])
    recorded = replace(ring, ground=Ground("recorded"))
    rings = {"orders": ring, "events": recorded}
    check = TopologyCheck(
        (), ("orders", "events"), rings=rings, unordered={"orders": "no file to compare it with"}
    )
    shown = console_text(CheckReport("rabbit:5672", {"/": check}, (), TIME_S))
    assert shown == (
        "broker    rabbit:5672\nvhost     /\n"
        "checked   2 rings (6 buckets, read, recorded) against its own bindings and queues\nfindings  none\n"
        "order     recorded, not read: events\norder     not checked, no file to compare it with: orders\n"
    )
    assert CheckReport("rabbit:5672", {"/": check}, (), TIME_S).as_json()["rings"] == [
        {
            "exchange": "orders",
            "provenance": "read",
            "buckets": 3,
            "order_not_checked": "no file to compare it with",
        },
        {"exchange": "events", "provenance": "recorded", "buckets": 3, "order_not_checked": None},
    ]


def test_a_kind_that_is_meant_counts_nowhere() -> None:
    meant = replace(report([SHARE, GHOST, QUEUE]), ignored=("missing", "unroutable-share"))
    assert [finding for _, finding in meant.findings] == [GHOST]
    assert "findings  1\nignored   2 (missing, unroutable-share)\n" in console_text(meant)
    assert [finding["kind"] for finding in meant.as_json()["findings"]] == ["ghost-bucket"]
    counts = metrics(meant)["rabbit_chx_check_findings"]
    assert counts.value(exchange="orders", kind="ghost-bucket") == 1
    assert not counts.matching(kind="missing"), "a series that is 0 would say that it was looked for"


def test_programs_read_the_document_of_the_design() -> None:
    assert report([GHOST, AUDIT]).as_json() == {
        "format": "rabbit-chx/check",
        "format_version": 2,
        "findings": [
            {
                "kind": "ghost-bucket", "exchange": "orders", "destination": "q9", "share": 0.25,
                "message": "q9 has 1 bucket", "fix": "cure it",
            },
            {
                "kind": "unexpected", "exchange": "audit", "destination": {"exchange": "x"}, "share": None,
                "message": "a binding", "fix": "apply it",
            },
        ],
        "rings": [
            {"exchange": "orders", "provenance": "read", "buckets": 1, "order_not_checked": None},
            {"exchange": 'or"ders\\\n', "provenance": "read", "buckets": 1, "order_not_checked": None},
        ],
    }  # fmt: skip


def test_there_is_a_metric_for_each_exchange_and_kind_of_zero_too() -> None:
    found = metrics(report([GHOST, SHARE, QUEUE, AUDIT]))
    counts = found["rabbit_chx_check_findings"]
    assert len(counts.values) == 4 * len(CHECK_KINDS)  # two exchanges that were checked, audit, and none
    assert sum(counts.values.values()) == 4
    assert counts.value(vhost="/", exchange="orders", kind="ghost-bucket") == 1
    assert counts.value(vhost="/", exchange=NAME, kind="ghost-bucket") == 0
    assert counts.value(vhost="/", exchange="", kind="missing") == 1
    assert found["rabbit_chx_unroutable_share_ratio"].value(exchange="orders") == 0.25
    assert found["rabbit_chx_misplaced_share_ratio"].value(exchange="orders") == 0.5
    assert found["rabbit_chx_check_success"].value(broker="rabbit:5672", vhost="/") == 1
    assert found["rabbit_chx_check_timestamp_seconds"].value() == 1_700_000_000.123
    assert {family.type for family in found.values()} == {"gauge"}
    assert "rabbit_chx_misplaced_share_ratio" not in metrics(report(file=None))


def test_a_failed_check_is_reported() -> None:
    found = metrics(CheckReport("rabbit:5672", {"/": None}, (), TIME_S))
    assert set(found) == {"rabbit_chx_check_success", "rabbit_chx_check_timestamp_seconds"}
    assert found["rabbit_chx_check_success"].value() == 0


def test_a_sound_check_has_every_kind_at_zero() -> None:
    counts = metrics(report())["rabbit_chx_check_findings"]
    assert set(counts.values.values()) == {0.0}
    assert {dict(labels)["kind"] for labels in counts.values} == set(CHECK_KINDS)


def test_the_options_that_look_for_a_kind_exist() -> None:
    declared = {text for parameter in check_ring.params for text in parameter.opts}
    assert {kind.argument for kind in CHECK_KINDS.values() if kind.argument} == {"all", "observed"} & {
        text.removeprefix("--") for text in declared
    }


def of_vhosts(*exchanges: str) -> CheckReport:
    """Return a check of two vhosts, and of one that could not be read."""
    checks = {
        vhost: TopologyCheck(findings, ("orders",), {"orders": 0.25})
        for vhost, findings in (("/", (GHOST,)), ("shop", (SHARE, AUDIT)))
    }
    return CheckReport("rabbit:5672", {**checks, "closed": None}, exchanges, TIME_S, all_vhosts=True)


def test_of_several_vhosts_each_finding_reports_its_own() -> None:
    findings = of_vhosts().as_json()["findings"]
    assert [(finding["vhost"], finding["exchange"]) for finding in findings] == [
        ("/", "orders"), ("shop", "orders"), ("shop", "audit"),
    ]  # fmt: skip
    assert list(findings[0]) == ["vhost", "kind", "exchange", "destination", "share", "message", "fix"]
    shown = console_text(of_vhosts())
    assert "vhosts    /, shop, closed\nchecked   2 rings against its own" in shown
    assert "vhost             shop\nexchange          orders\nunroutable-share  25% of all keys" in shown


def test_the_metrics_of_several_vhosts_have_their_names() -> None:
    found = metrics(of_vhosts())
    counts = found["rabbit_chx_check_findings"]
    assert counts.value(vhost="/", exchange="orders", kind="ghost-bucket") == 1
    assert counts.value(vhost="shop", exchange="orders", kind="ghost-bucket") == 0
    assert counts.value(vhost="shop", exchange="audit", kind="unexpected") == 1
    success = found["rabbit_chx_check_success"]
    assert [success.value(vhost=vhost) for vhost in ("/", "shop", "closed")] == [1, 1, 0]
    named = metrics(of_vhosts("orders", "audit"))["rabbit_chx_check_success"]
    assert [named.value(vhost="closed", exchange=exchange) for exchange in ("orders", "audit")] == [0, 0]
