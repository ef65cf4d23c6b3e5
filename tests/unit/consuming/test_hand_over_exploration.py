"""Small hand-overs and journals, explored to their ends. The tools explore larger ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import pytest
from hand_over_exploration import hand_overs_explored
from hand_over_mover import ReplayedBroker
from roster_exploration import rosters_explored
from state_search import BrokenModelError

from rabbit_chx.consuming import journal


@pytest.mark.parametrize(
    ("level", "slots", "beside"),
    [
        ("in-order", 1, {"member_deaths": 1}),
        ("in-order", 1, {"leaves": 1}),
        ("in-order", 1, {"mover_deaths": 1}),
        ("parked", 2, {"mover_deaths": 1}),
    ],
)
def test_all_invariants_hold(
    level: Literal["parked", "in-order"], slots: int, beside: dict[str, int]
) -> None:
    found = hand_overs_explored(level, slots, 1, **beside)
    assert found.states > 300
    assert found.ends


def test_a_mover_that_awaits_no_reply_breaks_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exploration can fail: here the old queue is not read up to the marker."""

    def wait_blindly(self: ReplayedBroker, *_: object, **_limits: object) -> bool:
        self.sleep(1.0)
        return False

    monkeypatch.setattr(ReplayedBroker, "wait_for_reply", wait_blindly)
    with pytest.raises(BrokenModelError, match="message 2 is started after"):
        hand_overs_explored("in-order", 1, 2)


def test_members_agree_about_the_owner_of_each_queue() -> None:
    assert rosters_explored(2, 4, alarms=1).states > 100


def test_an_owner_of_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exploration can fail: here a queue is nobody's."""

    def owners(queues: list[str], weights: Mapping[str, Any]) -> dict[str, str]:
        return {queue: min(weights) for queue in queues[1:]}

    monkeypatch.setattr(journal, "queue_owners", owners)
    with pytest.raises(BrokenModelError, match="the queues with an owner are"):
        rosters_explored(2, 4)
