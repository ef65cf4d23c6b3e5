"""Refusals: the flag that lifts one, and one that no flag lifts."""

from __future__ import annotations

from rabbit_chx.analysis.findings import Finding
from rabbit_chx.planning.plan_value import Plan
from rabbit_chx.planning.refusals import movement_refusal
from rabbit_chx.planning.ring_plan import KeyMapPlan, Moment, Movement
from rabbit_chx.routing import HashRing
from rabbit_chx.topology import Topology


def plan_of(refusal: Finding) -> Plan:
    return Plan((), {}, (refusal,), (), "", Topology())


def test_the_share_of_the_flag_is_enough() -> None:
    ring = HashRing.from_buckets(["a"])
    for share in (0.1, 1 / 3, 2 / 3, 1 / 2**21, 1.0):
        refusal = movement_refusal(KeyMapPlan("x", ring, ring, Movement((Moment(share, 0.0),)), limit=0.0))
        assert refusal.allow_with is not None
        assert not plan_of(refusal).refused(allow_moved=float(refusal.allow_with.partition("=")[2]))
        assert plan_of(refusal).refused(allow_delete=True) == (refusal,)


def test_no_flag_lifts_what_has_none() -> None:
    assert plan_of(Finding("ring", "no")).refused(allow_moved=1.0, allow_delete=True)
