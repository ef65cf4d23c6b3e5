"""Small worlds of a group, explored to their ends. `tools/group_exploration.py` explores larger ones."""

from __future__ import annotations

import pytest
from group_exploration import BrokenInvariantError, explored
from group_model import Member, Queue

from rabbit_chx.consuming.ownership import Abandon, Command, QueueOwnership, Subscription


@pytest.mark.parametrize(
    ("members", "messages", "crashes", "returns", "cuts"),
    [(1, 3, 1, 1, 0), (1, 2, 0, 1, 1), (2, 1, 1, 1, 0), (2, 1, 0, 0, 1), (2, 2, 0, 1, 0)],
)
def test_all_invariants_hold(members: int, messages: int, crashes: int, returns: int, cuts: int) -> None:
    found = explored(members, messages, crashes=crashes, returns=returns, cuts=cuts)
    assert found.states > 300
    assert found.ends > 5


def test_a_consumer_that_ends_politely_breaks_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exploration can fail: with what RabbitMQ does to the messages of a consumer that is cancelled."""
    monkeypatch.setattr(Queue, "ends_politely", True)
    with pytest.raises(BrokenInvariantError, match="message 2 is started; the next one is 1"):
        explored(2, 2, crashes=0, returns=0)


def test_a_member_that_does_not_finish_what_is_in_hand_breaks_the_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def retire(_ownership: QueueOwnership, subscription: Subscription) -> list[Command]:
        subscription.state = "ended"
        return [Abandon(subscription.number)]

    monkeypatch.setattr(QueueOwnership, "_retire", retire)
    with pytest.raises(
        BrokenInvariantError, match=r"interrupted although no subscription is lost|two handlers run"
    ):
        explored(2, 2, crashes=0, returns=1)


def test_a_claim_that_is_read_over_another_connection_is_no_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member that the broker has given up would handle messages with a generation above that of its successor."""
    monkeypatch.setattr(Member, "reads_elsewhere", True)
    with pytest.raises(BrokenInvariantError, match="the generation 1 comes after 2"):
        explored(2, 1, crashes=0, returns=0, cuts=1)
