"""Exit codes and documents of `verify`, by what was found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from rabbit_chx.analysis import Finding, Place
from rabbit_chx.analysis.traffic import InferredRing, Misrouted, Observation
from rabbit_chx.cli.verify import Difference, PassiveReport, ScratchReport
from rabbit_chx.rendering import Facts
from rabbit_chx.routing import HashRing, Release
from rabbit_chx.topology.reading import LiveExchange

RELEASE = Release("4.3.6")
EXCHANGE = LiveExchange("/", "orders", {}, (("q1", "1"), ("q2", "1")), None, RELEASE)
READ = HashRing.from_buckets(["q1", "q2"], RELEASE)
ASSUMED = HashRing.from_bindings([("q1", 1), ("q2", 1)], RELEASE, "assumed")
GHOST = Finding("ghost-bucket", "q9 has 1 bucket and no binding", destination="q9", share=0.25)
ELSEWHERE = Difference("k", "q1", "q2")


def scratch(
    ring: HashRing,
    findings: Sequence[Finding] = (),
    differences: Sequence[Difference] = (),
    found: int = 5,
) -> ScratchReport:
    counts: Mapping[Place, int] = {"q1": found} if found else {}
    return ScratchReport(EXCHANGE, ring, findings, counts, counts, differences)


def passive(
    ring: HashRing,
    findings: Sequence[Finding] = (),
    misrouted: Sequence[Misrouted] = (),
    compared: int = 5,
    buckets: Sequence[str | None] = ("q1", "q2"),
) -> PassiveReport:
    candidates = tuple(None if place is None else frozenset({place}) for place in buckets)
    inferred = InferredRing(candidates, len(buckets), (len(buckets),))
    return PassiveReport(EXCHANGE, ring, findings, compared, misrouted, inferred)


@pytest.mark.parametrize(
    ("report", "code"),
    [
        (scratch(READ), 0),
        (scratch(READ, differences=[ELSEWHERE]), 1),
        (scratch(READ, findings=[GHOST]), 1),
        (scratch(READ, found=0), 3),
        (scratch(ASSUMED), 3),
        (scratch(ASSUMED, differences=[ELSEWHERE]), 1),
        (passive(READ), 0),
        (passive(READ, misrouted=[Misrouted(Observation("k", 1, frozenset({"q2"})), "q1")]), 1),
        (passive(READ, findings=[GHOST]), 1),
        (passive(READ, buckets=("q1", "q9")), 1),
        (passive(READ, compared=0, buckets=(None, None)), 3),
        (passive(READ, buckets=("q1", None)), 0),
        (passive(ASSUMED), 0),
        (passive(ASSUMED, buckets=("q1", None)), 3),
        (passive(ASSUMED, misrouted=[Misrouted(Observation("k", 1, frozenset({"q2"})), "q1")]), 1),
    ],
)
def test_the_exit_code_says_what_was_found(report: ScratchReport | PassiveReport, code: int) -> None:
    assert report.code == code


def test_a_guess_says_what_it_leaves_open() -> None:
    assert scratch(READ).guess is passive(READ).guess is passive(ASSUMED).guess is None
    assert "give --ring-via PREFIX" in str(scratch(ASSUMED).guess)
    assert "give --ring-via PREFIX" in str(passive(ASSUMED, buckets=("q1", None)).guess)


@pytest.mark.parametrize("report", [scratch(READ, [GHOST]), passive(READ, [GHOST])])
def test_each_finding_has_a_line_and_a_place_in_the_document(report: ScratchReport | PassiveReport) -> None:
    facts = next(iter(report.blocks()))
    assert isinstance(facts, Facts)
    assert ("finding", "ghost-bucket: q9 has 1 bucket and no binding") in facts.pairs
    assert report.as_json()["findings"] == [
        {"kind": "ghost-bucket", "destination": "q9", "share": 0.25, "says": "q9 has 1 bucket and no binding"}
    ]


@pytest.mark.parametrize(
    ("guessed", "read", "says"),
    [
        (scratch(ASSUMED), scratch(READ), "nothing about the ring, which is a guess"),
        (passive(ASSUMED, buckets=("q1", None)), passive(READ), "not all of the ring, which is a guess"),
    ],
)
def test_a_guess_is_told_where_the_result_is(
    guessed: ScratchReport | PassiveReport, read: ScratchReport | PassiveReport, says: str
) -> None:
    for report, doubt in ((guessed, says), (read, None)):
        first = next(iter(report.blocks()))
        assert isinstance(first, Facts)
        told = dict(first.pairs).get("proven")
        assert (told is None) if doubt is None else str(told).startswith(doubt)
