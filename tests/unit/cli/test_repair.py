"""The result of a repair: exit codes and lines; the command is in the transcripts."""

from __future__ import annotations

from typing import Any

import pytest
from command_line import Stored

from rabbit_chx.analysis import Finding
from rabbit_chx.broker.applying import Applied
from rabbit_chx.cli.plan import ApplyState
from rabbit_chx.cli.repair import RepairReport
from rabbit_chx.routing import HashRing, Release
from rabbit_chx.topology import Topology, plan

WANTED = Topology.from_toml(
    '[[exchanges]]\nname = "orders"\ntype = "x-consistent-hash"\nring = [{ queue = "q{1..3}" }]\n[[queues]]\nname = "q{0..3}"\n'
)
RING = HashRing.from_buckets(["q2", "q1", "q3"], Release("4.3.6"))
LIVE = WANTED.with_rings({"orders": RING})
PLAN = plan(WANTED, LIVE)
ABOUT = (("exchange", "orders"),)


def report(state: ApplyState, **more: Any) -> RepairReport:
    return RepairReport(state, PLAN, exchange="orders", about=ABOUT, **more)


@pytest.mark.parametrize(
    ("state", "code"), [("planned", 1), ("unchanged", 0), ("refused", 4), ("applied", 0), ("partly", 3)]
)
def test_the_exit_code_is_that_of_the_state(state: ApplyState, code: int) -> None:
    assert report(state).code == code


def test_a_dry_run_shows_steps_and_movement_of_the_members_alone(stored: Stored) -> None:
    """The queue q0 is no matter of this repair."""
    stored("repair-planned", report("planned").document())


def test_applied_changes_are_reported_as_those_of_an_apply_with_a_check(stored: Stored) -> None:
    left = Finding("transient-destination", "q1 is exclusive", exchange="orders", destination="q1")
    done = Applied(PLAN.changes, {"orders": RING}, "")
    stored("repair-applied", report("applied", applied=done).document())
    stored("repair-applied-with-finding", report("applied", applied=done, left=[left]).document())
    stored("repair-partly", report("partly", applied=Applied(PLAN.changes[:1], {}, "")).document())


def test_a_repair_that_cannot_help_does_not_call_the_ring_sound(stored: Stored) -> None:
    says = "100.000% of all keys end in no queue"
    one = report("unchanged", left=[Finding("unroutable-share", says, "bind a queue", exchange="orders")])
    assert one.code == 1
    stored("repair-without-help", one.document())
    stored("repair-unchanged", report("unchanged").document())
