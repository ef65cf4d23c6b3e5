"""The result of a repair: exit codes, lines and JSON."""

from __future__ import annotations

import io
from typing import Any

import pytest

from rabbit_chx.analysis import Finding
from rabbit_chx.cli.repair import RepairReport, RepairState
from rabbit_chx.rendering import ConsoleOutput
from rabbit_chx.routing import HashRing, Release
from rabbit_chx.topology import Topology, plan, repair_target
from rabbit_chx.topology.repair import MemberGaps

WANTED = Topology.from_toml(
    '[[exchanges]]\nname = "orders"\ntype = "x-consistent-hash"\nring = [{ queue = "q{1..3}" }]\n[[queues]]\nname = "q{0..3}"\n'
)
RING = HashRing.from_buckets(["q2", "q1", "q3"], Release("4.3.6"))
LIVE = WANTED.with_rings({"orders": RING})
PLAN = plan(repair_target(LIVE, "orders", WANTED), LIVE)
ABOUT = (("exchange", "orders"),)


def report(state: RepairState, **more: Any) -> RepairReport:
    return RepairReport(state, "orders", ABOUT, PLAN, MemberGaps(PLAN, "orders").longest, **more)


def text(one: RepairReport) -> str:
    stream = io.StringIO()
    ConsoleOutput(stream, 200).show(one)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("state", "code"), [("planned", 1), ("unchanged", 0), ("refused", 4), ("applied", 0), ("partly", 3)]
)
def test_the_exit_code(state: RepairState, code: int) -> None:
    assert report(state).code == code


def test_a_dry_run_shows_steps_movement_and_gap() -> None:
    shown = text(report("planned"))
    assert "unbind" in shown
    assert "of the keys in the end" in shown
    assert "have no bucket in between: q2 for the longest time, 1 operation." in shown
    assert shown.endswith("Nothing was changed: --apply does it.\n")
    assert "left as it is" not in shown  # the queue q0 is no matter of this repair


def test_what_was_done_is_told_with_the_time_without_a_bucket() -> None:
    shown = text(report("applied", changes=PLAN.changes, ring=RING, gap_s=0.0123))
    assert "gap       no member was without a bucket for more than 12.3 ms" in shown
    assert "check     sound" in shown
    left = Finding(
        "transient-destination", "q1 is exclusive", "", exchange="orders", destination="q1", share=0.3
    )
    assert "check     transient-destination: q1 is exclusive" in text(report("applied", left=[left]))
    assert "nothing to do" in text(report("unchanged"))
    assert "0 of " in text(report("partly"))


def test_programs_read_the_plan_and_the_gap() -> None:
    document = report("planned").as_json()
    assert (document["format"], document["state"], document["done"]) == ("rabbit-chx/repair", "planned", 0)
    assert document["plan"]["rings"][0]["exchange"] == "orders"
    assert document["longest_gap"] == {"operations": 1, "seconds": None}
