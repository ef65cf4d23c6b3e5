"""What real brokers did, release by release, without a broker: the files that tests/parity writes."""

from __future__ import annotations

from pathlib import Path

import pytest
from routes.catalogue import scenarios_of
from routes.recorded import MAX_BYTES, load
from routes.scenario import CHX, predict, replay, without_trailing_holes

from rabbit_chx.routing.release import NEWEST_COMPARED

FILES = sorted((Path(__file__).parents[2] / "vectors").glob("routes-*.json.gz"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_mirror_does_what_the_broker_did(path: Path) -> None:
    assert path.stat().st_size <= MAX_BYTES
    _, release, routed = load(path)
    for answer in routed:
        replayed = replay(answer.scenario, release) if answer.scenario.type == CHX else None
        if replayed is not None:
            assert answer.ring is not None
            assert without_trailing_holes(replayed) == without_trailing_holes(answer.ring), (
                answer.scenario.name
            )
        assert predict(answer.scenario, answer.ring, release) == answer.found, answer.scenario.name


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_file_is_whole(path: Path) -> None:
    _, release, routed = load(path)
    assert {answer.scenario.name for answer in routed} == {
        scenario.name for scenario in scenarios_of(release)
    }


def test_the_rules_of_another_release_would_be_noticed() -> None:
    (path,) = (path for path in FILES if path.name.startswith("routes-3.10."))
    routed = {answer.scenario.name: answer for answer in load(path)[2]}["hash-header"]
    assert routed.ring is not None
    newest = routed.ring.with_release(NEWEST_COMPARED)
    wrong = sum(
        a != b for a, b in zip(predict(routed.scenario, newest, NEWEST_COMPARED), routed.found, strict=True)
    )
    assert wrong > len(routed.found) / 2
