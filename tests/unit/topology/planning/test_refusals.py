"""Refusals: each names the thing, its value and what to do, and the flag that lifts it."""

from __future__ import annotations

import json
import re
from pathlib import Path

from rabbit_chx.analysis.findings import Finding
from rabbit_chx.routing import HashRing
from rabbit_chx.topology.planning.refusals import is_allowed, movement_refusal
from rabbit_chx.topology.planning.ring_plan import Moment, RingPlan

_REMEDY = re.compile(" (add|allow|ask|connect|correct|declare|divide|keep|leave|pass|take|write) ")


def test_each_refusal_of_a_stored_plan_reports_what_to_do() -> None:
    stored = [
        json.loads(path.read_text("utf-8")) for path in (Path(__file__).parent / "plans").glob("*.json")
    ]
    refusals = [refusal for plan in stored for refusal in plan["refusals"]]
    assert len(refusals) > 20
    for refusal in refusals:
        text = f"{refusal['message']}; {refusal['fix']}"
        assert _REMEDY.search(text), text
        assert refusal["allow_with"] is None or refusal["allow_with"] in text


def test_the_share_of_the_flag_is_enough() -> None:
    ring = HashRing.from_buckets(["a"])
    for share in (0.1, 1 / 3, 2 / 3, 1 / 2**21, 1.0):
        refusal = movement_refusal(RingPlan("x", ring, ring, moments=(Moment(share, 0.0),), limit=0.0))
        assert refusal.allow_with is not None
        assert is_allowed(refusal, float(refusal.allow_with.split()[1]), allow_delete=False)
        assert not is_allowed(refusal, None, allow_delete=True)


def test_no_flag_lifts_what_has_none() -> None:
    assert not is_allowed(Finding("ring", "no"), 1.0, allow_delete=True)
