"""The state that members derive from the journal: members, claims and assigned owners. Each story of `journal_stories.txt` is a journal.

python tests/unit/consuming/test_journal.py    # writes the consequences in this version into the file
"""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stories import each_story, played, write_stories

from rabbit_chx.consuming import journal
from rabbit_chx.consuming.journal import Assignments, JournalEntry, Roster, entry_in, queue_owners

STORIES = Path(__file__).with_name("journal_stories.txt")
QUEUES = ("q1", "q2", "q3", "q4")


def entry(kind: Any, member: str, run: str = "t", queue: str = "") -> JournalEntry:
    return JournalEntry(kind, member, 1000.0, queues=QUEUES, queue=queue, token=run)


def test_members_with_other_queues_share_what_they_have_in_common() -> None:
    roster = Roster()
    roster.take(0, JournalEntry("ready", "a", 0.0, queues=("q1", "q2", "only.a")))
    roster.take(1, JournalEntry("ready", "b", 0.0, queues=("q1", "q2")))
    owners = roster.owners()
    assert owners["only.a"] == "a"
    assert sorted([owners["q1"], owners["q2"]]) == ["a", "b"]


def test_an_entry_is_read_from_its_json() -> None:
    ready = JournalEntry("ready", "pod-ü", 12.5, 2.0, QUEUES, "", "t")
    claim = JournalEntry("claim", "a", 12.5, 1.0, (), "q1", "c")
    for entry in (ready, claim):
        assert entry_in(entry.to_json()) == entry


INVALID = Path(__file__).with_name("invalid_entries.txt").read_bytes().splitlines()
TOO_MUCH = b'{"kind": "ready", "member": "a", "at": 1' + b"0" * 9_000 + b"}"


@pytest.mark.parametrize("body", [*INVALID, b"", b"\xff", b"[" * 100_000, TOO_MUCH])
def test_an_invalid_entry_is_none(body: bytes) -> None:
    assert entry_in(body) is None


def test_what_is_no_entry_is_invalid() -> None:
    assert entry_in(None) is None
    assert entry_in(b"[]") is None


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def _damaged(fields: Any, values: Any) -> Any:
    """Entries of which some fields have any value."""
    names = ("kind", "member", "at", "weight", "queues", "queue", "token")
    odd = st.dictionaries(st.sampled_from(names), values, max_size=2)
    return st.builds(lambda good, bad: {**good, **bad}, fields, odd)


_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["a", "q1", "\ud800"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
_FIELDS = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(get_args(journal.EntryKind)),
        "member": st.sampled_from(["a", "b"]),
        "at": st.just(1.0),
    },
    optional={
        "queues": st.lists(st.sampled_from(QUEUES), max_size=3),
        "weight": st.floats(0, exclude_min=True, allow_infinity=False) | st.integers(1, 1 << 1100),
    },
)


@given(st.lists(st.binary() | _VALUES.map(_json) | _damaged(_FIELDS, _VALUES).map(_json), max_size=6))
def test_no_entry_raises(bodies: list[bytes]) -> None:
    """Neither when it is read, nor in the roster, the assignment of its owners and the table of a command."""
    roster, assignments = Roster(), Assignments("t")
    for offset, body in enumerate(bodies):
        found = entry_in(body)
        if found is not None:
            roster.take(offset, found)
            assert set(assignments.update(roster)) <= set(roster.owners())
            datetime.fromtimestamp(found.at, UTC)


def test_the_time_for_which_a_member_cannot_write_counts_for_nobodys_silence() -> None:
    """Else the first one that can write again would miss all others."""
    clock, roster = journal.LivenessClock(6.5), Roster()
    roster.take(0, entry("ready", "a"), clock.tick(100.0))
    roster.take(1, entry("ready", "b"), clock.now(101.0))
    assert clock.tick(103.0) == 3.0
    assert clock.tick(3700.0) == 9.5, "an hour without a sign of life of its own"
    assert roster.silent(clock.now(3700.5), 10.0) == []
    assert clock.tick(3703.0) == 12.5
    assert roster.silent(clock.now(3703.0), 10.0) == ["a", "b"], "nothing was heard since"


class Reader:
    """A member with this token, which reads a journal."""

    def __init__(self, token: str) -> None:
        self.roster = Roster()
        self.assignments = Assignments(token)

    def play(self, event: str) -> str:
        """Take an entry: `offset kind member`, with its token, queue and time if the story has them; or answer a question."""
        roster, assignments = self.roster, self.assignments
        match event.split():
            case ["overdue", queue, claimed]:
                return str(assignments.is_overdue(queue, int(claimed)))
            case ["silent", now]:
                return " ".join(roster.silent(float(now), 10.0))
            case ["claimed", queue]:
                claim = roster.claims[queue]
                return f"{claim.member} {claim.generation} {'held' if claim.held else 'free'}"
        at = float(event.partition("@")[2] or 0)
        offset, kind, member, *more = event.partition("@")[0].split()
        token, queue = (*more, *(member, "")[len(more) :])
        if kind in ("ready", "alive"):
            assignments.on_heartbeat(token, int(offset))
        if not roster.take(int(offset), entry(kind, member, token, queue), at):
            return ""
        behind = assignments.update(roster)
        shares = [
            f"{name}: {' '.join(queue for queue in QUEUES if roster.owners().get(queue) == name)}"
            for name in sorted(roster.members)
        ]
        mine = [queue for queue in QUEUES if assignments.is_mine(queue)]
        is_new = "gains some" if assignments.is_new_owner(roster.term) else "gains none"
        return "; ".join(
            [*shares, f"has {' '.join(mine)}", is_new, f"steps back from {' '.join(sorted(behind))}"]
        )


@each_story(STORIES)
def test_each_entry_of_a_story_has_its_consequences(how: str, lines: list[str]) -> None:
    assert played(Reader(how).play, lines) == lines


SHARED = [f"orders.{number}" for number in range(64)]


def counted(owners: dict[str, str]) -> dict[str, int]:
    return {member: list(owners.values()).count(member) for member in sorted(set(owners.values()))}


@pytest.mark.parametrize(
    ("queues", "weights", "expected"),
    [
        (64, {"big": 2.0, "small": 1.0, "tiny": 1.0}, {"big": 32, "small": 16, "tiny": 16}),
        (10, {"a": 1.0, "b": 2.4, "c": 0.3}, {"a": 3, "b": 6, "c": 1}),  # 2.7, 6.49 and 0.81: the largest remainders
        (64, {}, {}),
    ],
)  # fmt: skip
def test_a_weight_counts(queues: int, weights: dict[str, float], expected: dict[str, int]) -> None:
    assert counted(queue_owners([f"q{number}" for number in range(queues)], weights)) == expected


def test_the_order_of_what_is_given_does_not_matter() -> None:
    members = {f"pod-{n}": 1.0 + n % 3 for n in range(7)}
    shuffled = sorted(members.items(), key=lambda item: item[0][::-1], reverse=True)
    assert queue_owners(SHARED, members) == queue_owners(SHARED[::-1], dict(shuffled))


def test_few_queues_move_when_a_member_joins() -> None:
    """The newcomer's share must move. What moves beside it is the price of shares that are fair."""
    beside = []
    for members in range(1, 12):
        before = queue_owners(SHARED, {f"pod-{n}": 1.0 for n in range(members)})
        after = queue_owners(SHARED, {f"pod-{n}": 1.0 for n in range(members + 1)})
        moved = sum(before[queue] != after[queue] for queue in SHARED)
        counts = counted(after)
        assert max(counts.values()) - min(counts.values()) <= 1, "equal members have equal shares"
        newcomer = counts[f"pod-{members}"]
        assert moved >= newcomer
        beside.append(moved - newcomer)
    assert sum(beside) / len(beside) < 0.1 * len(SHARED)


def test_a_score_follows_the_weight() -> None:
    wins = sum(journal.score("big", str(n), 3.0) > journal.score("small", str(n), 1.0) for n in range(20_000))
    assert math.isclose(wins / 20_000, 0.75, abs_tol=0.02)


def test_without_a_journal_a_member_that_has_not_warmed_up_is_after_all_others() -> None:
    late = [
        journal.priority_without_journal(f"pod-{n}", "q", 0.01 + n, has_warmed_up=False) for n in range(200)
    ]
    warm = [
        journal.priority_without_journal(f"pod-{n}", "q", 0.01 + n, has_warmed_up=True) for n in range(200)
    ]
    assert max(late) < min(warm)
    assert max(warm) < 0


if __name__ == "__main__":
    write_stories(STORIES, lambda token: Reader(token).play)
