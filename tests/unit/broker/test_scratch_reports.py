"""Documents of a comparison with a copy, by what was found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from command_line import Stored

from rabbit_chx.analysis import Finding
from rabbit_chx.broker.scratch import ScratchReport
from rabbit_chx.cli.printed import in_words
from rabbit_chx.fixes import CommandLine, Fix
from rabbit_chx.routing import HashRing, Release
from rabbit_chx.routing.bindings import Place

RELEASE = Release("4.3.6")
READ = HashRing.from_buckets(["q1", "q2"], RELEASE)
ASSUMED = HashRing.from_bindings([("q1", 1), ("q2", 1)], RELEASE, "assumed")
GHOST = Finding("ghost-bucket", "q9 has 1 bucket and no binding", destination="q9", share=0.25)


def scratch(
    ring: HashRing,
    findings: Sequence[Finding] = (),
) -> ScratchReport:
    counts: Mapping[Place, int] = {"q1": 5}
    return ScratchReport("orders", "/", {}, ring, findings, counts, counts)


def test_each_finding_has_a_line_and_a_place_in_the_document_in_the_words_of_the_command_line(
    stored: Stored,
) -> None:
    fix = Fix("run: ", CommandLine("check", "check(live, wanted)", ("t.toml",)))
    stored("verify", scratch(READ, [GHOST, replace(GHOST, fix=fix)]).document(), in_words)


def test_a_guess_is_reported_with_its_remedy_where_the_result_is(stored: Stored) -> None:
    stored("verify-assumed", scratch(ASSUMED).document(), in_words)
    assert "pass --ring-via PREFIX" in in_words(scratch(ASSUMED).doubt or "")
    assert scratch(READ).doubt is None
