"""Small worlds of a group, hand-overs and journals, explored to their ends. The programs of this folder explore larger ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import pytest
from group_exploration import explored
from group_model import Member, Queue
from hand_over_exploration import hand_overs_explored
from hand_over_mover import ReplayedBroker
from poison_exploration import poisons_explored
from roster_exploration import rosters_explored
from state_search import BrokenModelError

from rabbit_chx.consuming import journal, ownership
from rabbit_chx.consuming.message import Turns
from rabbit_chx.consuming.ownership import Abandon, Command, QueueOwnership, Subscription


@pytest.mark.parametrize(
    ("members", "messages", "crashes", "returns", "cuts"),
    [
        (1, 3, 1, 1, 0),
        (1, 2, 0, 1, 1),
        (2, 1, 1, 1, 0),
        pytest.param(2, 1, 0, 0, 1, marks=pytest.mark.extended),
        pytest.param(2, 2, 0, 1, 0, marks=pytest.mark.extended),
    ],
)
def test_all_invariants_hold(members: int, messages: int, crashes: int, returns: int, cuts: int) -> None:
    found = explored(members, messages, crashes=crashes, returns=returns, cuts=cuts)
    assert found.states > 300
    assert sum(found.ends.values()) > 5


def test_the_table_of_events_and_commands_is_what_the_exploration_finds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = [
        line.strip("|").split("|") for line in str(ownership.__doc__).splitlines() if line.startswith("|")
    ]
    (_, *states), _, *rows = [[cell.strip() for cell in line] for line in lines]
    table = {
        (event, state): set(cell.split())
        for event, *cells in rows
        for state, cell in zip(states, cells, strict=True)
        if cell
    }
    found: dict[tuple[str, str], set[str]] = {}

    def recorded(event: str, method: Callable[..., list[Command]]) -> Callable[..., list[Command]]:
        def call(self: QueueOwnership, *given: Any, **named: Any) -> list[Command]:
            state = "none" if self.subscription is None else self.subscription.state
            commands = method(self, *given, **named)
            if commands:
                found.setdefault((event, state), set()).update(type(each).__name__ for each in commands)
            return commands

        return call

    for event, *_ in rows:
        monkeypatch.setattr(QueueOwnership, event, recorded(event, getattr(QueueOwnership, event)))
    explored(1, 3)
    explored(1, 2, crashes=0, cuts=1)
    explored(2, 1, crashes=0)
    assert found == table


def test_a_consumer_that_ends_politely_breaks_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exploration can fail: with what RabbitMQ does to the messages of a consumer that is cancelled."""
    monkeypatch.setattr(Queue, "ends_politely", True)
    with pytest.raises(BrokenModelError, match="message 2 is started; the next one is 1"):
        explored(2, 2, crashes=0, returns=0)


def test_a_member_that_does_not_finish_what_is_in_hand_breaks_the_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def retire(_ownership: QueueOwnership, subscription: Subscription) -> list[Command]:
        subscription.state = "closing"
        return [Abandon(subscription.number)]

    monkeypatch.setattr(QueueOwnership, "_retire", retire)
    with pytest.raises(
        BrokenModelError, match=r"interrupted, but its subscription is not lost|two handlers run"
    ):
        explored(2, 2, crashes=0, returns=1)


def test_a_claim_that_is_read_over_another_connection_is_not_a_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member that the broker has given up would handle messages with a generation above that of its successor."""
    monkeypatch.setattr(Member, "reads_elsewhere", True)
    with pytest.raises(BrokenModelError, match="generation 1 follows 2"):
        explored(2, 1, crashes=0, returns=0, cuts=1)


@pytest.mark.parametrize(
    ("members", "cuts"), [(1, 0), (1, 1), pytest.param(2, 0, marks=pytest.mark.extended)]
)
def test_a_queue_that_is_declared_again_unfit_is_handled_by_nobody(members: int, cuts: int) -> None:
    found = explored(members, 1, crashes=0, returns=1, cuts=cuts, redeclares=1)
    assert found.ends["with a queue that is not fit"] > 3


def test_a_queue_that_is_not_checked_again_is_handled_by_several(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exploration can fail: here a member consumes what has the name."""
    monkeypatch.setattr(Queue, "is_checked", False)
    with pytest.raises(BrokenModelError, match="without a single active consumer is started"):
        explored(2, 1, crashes=0, returns=0, redeclares=1)


@pytest.mark.parametrize(
    ("limit", "members", "poisons", "messages"),
    [
        (2, 1, ["q0"], (1, 1)),
        (3, 1, ["q1"], (2, 2)),
        (20, 1, ["q0"], (1, 2)),
        (3, 2, ["q0"], (1, 1)),
        pytest.param(3, 1, ["q0"], (1, 2, 1), marks=pytest.mark.extended),
        pytest.param(3, 2, ["q0"], (1, 2), marks=pytest.mark.extended),
        pytest.param(20, 1, ["q0", "q2"], (1, 1, 1), marks=pytest.mark.slow),
    ],
)
def test_a_poison_message_costs_no_good_one(
    limit: int, members: int, poisons: list[str], messages: tuple[int, ...]
) -> None:
    found = poisons_explored(limit, members, [(queue, 1) for queue in poisons], *messages)
    assert found.states > 100
    assert found.ends["all handled"] > 1


@pytest.mark.parametrize(
    ("name", "broken", "what"),
    [
        ("may_start", lambda *_: True, "beside"),
        ("_rank", lambda _turns, key, _most: key, r"the good message \('q1', 1\) is dropped at return 4"),
    ],
    ids=["beside others", "always first"],
)
def test_poison_costs_a_good_message_without_turns(
    monkeypatch: pytest.MonkeyPatch, name: str, broken: Any, what: str
) -> None:
    """The exploration can fail."""
    monkeypatch.setattr(Turns, name, broken)
    with pytest.raises(BrokenModelError, match=what):
        poisons_explored(3, 1, [("q0", 1)], 1, 1)


@pytest.mark.parametrize(
    ("level", "slots", "beside"),
    [
        pytest.param("in-order", 1, {"member_deaths": 1}, marks=pytest.mark.extended),
        ("in-order", 1, {"leaves": 1}),
        pytest.param("in-order", 1, {"mover_deaths": 1}, marks=pytest.mark.extended),
        ("parked", 2, {"mover_deaths": 1}),
    ],
)
def test_all_invariants_of_a_hand_over_hold(
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
