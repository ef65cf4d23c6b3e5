"""Exit codes of `verify`, by what was found."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from rabbit_chx.analysis import Finding
from rabbit_chx.broker.scratch import ScratchReport
from rabbit_chx.cli.verify import code_of_report
from rabbit_chx.routing import HashRing, Release
from rabbit_chx.routing.bindings import Place

RELEASE = Release("4.3.6")
READ = HashRing.from_buckets(["q1", "q2"], RELEASE)
UNORDERED = HashRing.unordered([("q1", 1), ("q2", 1)], RELEASE)
GHOST = Finding("ghost-bucket", "q9 has 1 bucket and no binding", destination="q9", share=0.25)
ELSEWHERE = ("k", "q1", "q2")
FOUND: Mapping[Place, int] = {"q1": 5}


@pytest.mark.parametrize(
    ("report", "code"),
    [
        (ScratchReport("x", "/", {}, READ, (), FOUND), 0),
        (ScratchReport("x", "/", {}, READ, (), FOUND, differences=[ELSEWHERE], mismatches=1), 1),
        (ScratchReport("x", "/", {}, READ, [GHOST], FOUND), 1),
        (ScratchReport("x", "/", {}, READ, ()), 3),
        (ScratchReport("x", "/", {}, UNORDERED, (), FOUND), 3),
        (ScratchReport("x", "/", {}, UNORDERED, (), FOUND, differences=[ELSEWHERE], mismatches=1), 1),
    ],
)
def test_the_exit_code_is_the_result(report: ScratchReport, code: int) -> None:
    assert code_of_report(report) == code
