"""Shares of the queues: fair to one queue, the same for everybody, and few queues move."""

from __future__ import annotations

import math

import pytest

from rabbit_chx.consuming.journal import priority_without_journal, queue_owners, score

QUEUES = [f"orders.{number}" for number in range(64)]


def counted(owners: dict[str, str]) -> dict[str, int]:
    return {member: list(owners.values()).count(member) for member in sorted(set(owners.values()))}


@pytest.mark.parametrize("members", range(1, 9))
def test_equal_members_differ_by_one_queue_at_most(members: int) -> None:
    counts = counted(queue_owners(QUEUES, {f"pod-{n}": 1.0 for n in range(members)}))
    assert sum(counts.values()) == 64
    assert len(counts) == members
    assert max(counts.values()) - min(counts.values()) <= 1


def test_a_weight_counts() -> None:
    assert counted(queue_owners(QUEUES, {"big": 2.0, "small": 1.0, "tiny": 1.0})) == {
        "big": 32,
        "small": 16,
        "tiny": 16,
    }


def test_the_order_of_what_is_given_does_not_matter() -> None:
    members = {f"pod-{n}": 1.0 + n % 3 for n in range(7)}
    shuffled = sorted(members.items(), key=lambda item: item[0][::-1], reverse=True)
    assert queue_owners(QUEUES, members) == queue_owners(QUEUES[::-1], dict(shuffled))


def test_without_members_nobody_has_anything() -> None:
    assert queue_owners(QUEUES, {}) == {}


def test_few_queues_move_when_a_member_comes() -> None:
    """The newcomer's share must move. What moves beside it is the price of shares that are fair."""
    beside = []
    for members in range(1, 12):
        before = queue_owners(QUEUES, {f"pod-{n}": 1.0 for n in range(members)})
        after = queue_owners(QUEUES, {f"pod-{n}": 1.0 for n in range(members + 1)})
        moved = sum(before[queue] != after[queue] for queue in QUEUES)
        newcomer = counted(after)[f"pod-{members}"]
        assert moved >= newcomer
        beside.append(moved - newcomer)
    assert sum(beside) / len(beside) < 0.1 * len(QUEUES)


def test_a_score_follows_the_weight() -> None:
    wins = sum(score("big", str(n), 3.0) > score("small", str(n), 1.0) for n in range(20_000))
    assert math.isclose(wins / 20_000, 0.75, abs_tol=0.02)


def test_without_a_journal_a_member_that_is_not_settled_comes_behind_all_others() -> None:
    late = [priority_without_journal(f"pod-{n}", "q", 0.01 + n, settled=False) for n in range(200)]
    settled = [priority_without_journal(f"pod-{n}", "q", 0.01 + n, settled=True) for n in range(200)]
    assert max(late) < min(settled)
    assert max(settled) < 0
