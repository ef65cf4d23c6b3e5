"""Documents of a comparison with a copy, by what was found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from command_line import Stored

from rabbit_chx.analysis import Finding
from rabbit_chx.analysis.key_routing import Hashing
from rabbit_chx.broker.scratch import ScratchReport
from rabbit_chx.errors import NotDeterminedError
from rabbit_chx.routing import ExchangeRef, HashRing, Release
from rabbit_chx.routing.bindings import Place
from rabbit_chx.routing.observations import Observation

RELEASE = Release("4.3.6")
READ = HashRing.from_buckets(["q1", "q2"], RELEASE)
UNORDERED = HashRing.unordered([("q1", 1), ("q2", 1)], RELEASE)
GHOST = Finding("ghost-bucket", "q9 has 1 bucket and no binding", destination="q9", share=0.25)


def scratch(
    ring: HashRing,
    findings: Sequence[Finding] = (),
) -> ScratchReport:
    counts: Mapping[Place, int] = {"q1": 5}
    return ScratchReport("orders", "/", {}, ring, findings, counts, counts)


def test_each_finding_has_a_line_and_a_place_in_the_document(stored: Stored) -> None:
    fix = "run: `rabbit-chx check orders` (`check(live, wanted)`)"
    stored("verify", scratch(READ, [GHOST, replace(GHOST, fix=fix)]).document())


def test_an_unknown_order_is_reported_with_its_remedy_where_the_result_is(stored: Stored) -> None:
    stored("verify-without-order", scratch(UNORDERED).document())
    assert "pass `--ring-via 'kubectl exec POD --'`" in str(scratch(UNORDERED).doubt)
    assert scratch(READ).doubt is None


RING = HashRing.from_buckets(["q1", "q1", "q2", "q3"], RELEASE)


def with_evidence(*pairs: tuple[str, str, int]) -> ScratchReport:
    seen = [Observation(key, queue, messages=messages) for key, queue, messages in pairs]
    return scratch(RING).with_evidence(seen, Hashing(), "look again")


def test_evidence_of_the_ring_has_no_findings() -> None:
    found = with_evidence(("a", "q1", 1), ("b", "q1", 2))
    assert (found.findings, found.found, found.predicted) == ([], {"q1": 3}, {"q1": 3})
    assert (found.mismatches, found.differences, found.heaviest) == (0, [], ("b", 2 / 3))


def test_keys_in_other_queues_contradict_the_ring() -> None:
    found = with_evidence(("a", "q1", 5), ("b", "q2", 2), ("c", "q9", 1))
    (finding,) = found.findings
    assert (finding.kind, finding.exchange, finding.fix) == ("contradicted", "orders", "look again")
    assert finding.message == (
        "the key 'b' reached q2, and the ring sends it to q1; 2 of 3 keys contradict the ring, read from a broker: which queue a key reaches "
        "is not determined"
    )
    assert (found.mismatches, found.found["q1"]) == (3, 5)
    assert [(key, place) for key, _, place in found.differences] == [("b", "q2"), ("c", "q9")]


@pytest.mark.parametrize(
    ("pairs", "kind", "says"),
    [
        ([("", "q1", 700), ("a", "q1", 300)], "one-key", "the key '' has 70.000% of 1,000 observed messages"),
        ([("a", "q1", 500), ("b", "q1", 500)], "few-keys", "2 keys have 100.000% of 1,000 observed messages"),
        (
            [("a", "q1", 200), ("b", "q1", 200), ("c", "q1", 200), ("d", "q3", 200), ("e", "q2", 200)],
            None,
            "",
        ),
        ([("a", "q1", 99)], None, ""),
    ],
)
def test_the_keys_with_most_messages_are_named(
    pairs: list[tuple[str, str, int]], kind: str | None, says: str
) -> None:
    named = {
        found.kind: found.message for found in with_evidence(*pairs).findings if found.kind != "contradicted"
    }
    assert [*named] == [kind] * (kind is not None)
    assert says in "".join(named.values())


def test_keys_that_cannot_be_compared_show_nothing() -> None:
    behind = scratch(HashRing.from_buckets([ExchangeRef("behind")], RELEASE))
    with pytest.raises(NotDeterminedError, match="no key of the exchange 'orders' was compared"):
        behind.with_evidence([Observation("key-1", "other")], Hashing(), "")
