"""The state that members derive from the journal: members, claims and assigned owners. Each test is a journal."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbit_chx.consuming.journal import (
    Assignments,
    EntryKind,
    JournalEntry,
    LivenessClock,
    Roster,
    entries_in,
    priority_without_journal,
    queue_owners,
    score,
)

QUEUES = ("q1", "q2", "q3", "q4")


def entry(kind: EntryKind, member: str, run: str = "t", queue: str = "") -> JournalEntry:
    return JournalEntry(kind, member, 1000.0, queues=QUEUES, queue=queue, token=run)


def test_members_come_and_go() -> None:
    roster = Roster()
    assert roster.take(0, entry("ready", "a"))
    assert not roster.take(1, entry("alive", "a"))
    assert roster.take(2, entry("ready", "b"))
    assert (sorted(roster.members), roster.term) == (["a", "b"], 2)
    assert sorted(roster.owners().values()) == ["a", "a", "b", "b"]
    assert roster.take(3, entry("left", "a"))
    assert set(roster.owners().values()) == {"b"}


def test_who_reads_from_later_on_has_the_same_members() -> None:
    late = Roster()
    told = [entry("alive", "b"), entry("ready", "a"), entry("ready", "b")]
    changes = [late.take(n, each) for n, each in enumerate(told, 7)]
    assert changes == [False, True, True]
    assert sorted(late.members) == ["a", "b"]


def test_words_of_an_earlier_run_change_nothing() -> None:
    """Two processes of one name do not make the others share anew each few seconds."""
    roster = Roster()
    roster.take(0, entry("ready", "a", "first"))
    assert roster.take(1, entry("ready", "a", "second"), now=10.0)
    assert not roster.take(2, entry("alive", "a", "first"), now=20.0)
    assert (roster.term, roster.members["a"].token) == (1, "second")
    assert (roster.silent(19.5, 10.0), roster.silent(20.5, 10.0)) == ([], ["a"])
    assert not roster.take(2, entry("alive", "a", "second"), now=21.0)
    assert roster.silent(30.5, 10.0) == []
    assert not roster.take(3, entry("gone", "a", "first"))
    assert list(roster.members) == ["a"]


def test_a_claim_is_held_until_it_is_released_or_its_member_has_left() -> None:
    roster = Roster()
    roster.take(0, entry("ready", "a"))
    roster.take(1, entry("claim", "a", queue="q2"))
    roster.take(2, entry("gone", "a"))
    assert not roster.claims["q2"].held
    roster.take(5, entry("claim", "a", "c1", "q1"))
    claim = roster.claims["q1"]
    assert (claim.member, claim.generation, claim.held) == ("a", 5, True)
    roster.take(6, entry("released", "b", queue="q1"))
    assert roster.claims["q1"].held, "another one cannot release it"
    roster.take(7, entry("released", "a", queue="q1"))
    assert not roster.claims["q1"].held


def test_members_with_other_queues_share_what_they_have_in_common() -> None:
    roster = Roster()
    roster.take(0, JournalEntry("ready", "a", 0.0, queues=("q1", "q2", "only.a")))
    roster.take(1, JournalEntry("ready", "b", 0.0, queues=("q1", "q2")))
    owners = roster.owners()
    assert owners["only.a"] == "a"
    assert sorted([owners["q1"], owners["q2"]]) == ["a", "b"]


def test_an_entry_is_read_from_its_json_by_its_group_alone() -> None:
    """By a `ConsumerGroup` if it has none. An earlier release has read any JSON with a kind and a member."""
    ready = JournalEntry("ready", "pod-ü", 12.5, 2.0, QUEUES, "", "t")
    claim = JournalEntry("claim", "a", 12.5, 1.0, (), "q1", "c")
    for entry in (ready, claim):
        assert (entries_in(entry.to_json()), entries_in(entry.to_json(), "audit")) == ([entry], [])
        body = entry.to_json("billing")
        assert [entries_in(body, group) for group in ("billing", "audit", "")] == [[entry], [], []]
        assert b'"entry"' in body
        assert b'{"kind"' not in body[:8], "an earlier release finds no kind"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff",
        b"[1]",
        b"{}",
        b'{"kind": "party", "member": "a", "at": 1}',
        b'{"kind": "ready", "member": "a", "at": "x"}',
        b'{"kind": "ready", "member": "a", "at": 1, "weight": 0}',
        b'{"kind": "ready", "member": "a", "at": 1, "queues": 5}',
        b'{"kind": "ready", "member": "a", "at": 1, "queues": "q1"}',
        b'{"kind": "ready", "member": "a", "at": 1, "queues": [1]}',
        b'{"kind": "ready", "member": "a", "at": NaN}',
        b'{"kind": "ready", "member": "a", "at": -1}',
        b'{"kind": "ready", "member": "a", "at": 1' + b"0" * 400 + b"}",
        b'{"kind": "ready", "member": "a", "at": 1' + b"0" * 9_000 + b"}",
        b'{"kind": "ready", "member": "a", "at": 1e18}',
        b'{"kind": "ready", "member": "a", "at": 1, "weight": 1' + b"0" * 400 + b"}",
        b'{"kind": "ready", "member": "a", "at": 1, "weight": Infinity}',
        b'{"kind": "ready", "member": 1, "at": 1}',
        b'{"kind": "ready", "member": "\\ud800", "at": 1}',
        b'{"kind": "claim", "member": "a", "at": 1, "queue": "\\ud800"}',
        b'{"kind": ["ready"], "member": "a", "at": 1}',
        b"[" * 100_000,
    ],
)
def test_an_invalid_entry_is_none(body: bytes) -> None:
    assert entries_in(body) == [None]
    assert entries_in(b'{"group": "g", "entry": ' + body + b"}", "g") == [None]


def test_what_is_no_entry_is_invalid_in_each_group() -> None:
    assert entries_in(None) == entries_in(b"[]", "g") == entries_in(b'{"group": "g"}', "g") == [None]
    assert entries_in(b'{"group": 1, "kind": "ready", "member": "a", "at": 1}') == [None]


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def _damaged(fields: Any, values: Any) -> Any:
    """Entries of which some fields have any value."""
    names = ("kind", "member", "at", "weight", "queues", "queue", "token", "group")
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
    {"kind": st.sampled_from(get_args(EntryKind)), "member": st.sampled_from(["a", "b"]), "at": st.just(1.0)},
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
        for found in entries_in(body):
            if found is not None:
                roster.take(offset, found)
                assert set(assignments.update(roster)) <= set(roster.owners())
                datetime.fromtimestamp(found.at, UTC)


def test_the_time_for_which_a_member_cannot_write_counts_for_nobodys_silence() -> None:
    """Else the first one that can write again would miss all others."""
    clock, roster = LivenessClock(6.5), Roster()
    roster.take(0, entry("ready", "a"), clock.tick(100.0))
    roster.take(1, entry("ready", "b"), clock.now(101.0))
    assert clock.tick(103.0) == 3.0
    assert clock.tick(3700.0) == 9.5, "an hour without a sign of life of its own"
    assert roster.silent(clock.now(3700.5), 10.0) == []
    assert clock.tick(3703.0) == 12.5
    assert roster.silent(clock.now(3703.0), 10.0) == ["a", "b"], "nothing was heard since"


class Reader:
    """One member that reads a journal."""

    def __init__(self, token: str) -> None:
        self.roster = Roster()
        self.assignments = Assignments(token)

    def read(self, offset: int, kind: EntryKind, member: str, token: str = "") -> list[str]:
        """Take an entry, and return the queues behind whose owner this member steps back."""
        token = token or member
        changed = self.roster.take(
            offset, JournalEntry(kind, member, 0.0, queues=QUEUES if kind == "ready" else (), token=token)
        )
        if kind in ("ready", "alive"):
            self.assignments.on_heartbeat(token, offset)
        return self.assignments.update(self.roster) if changed else []

    def mine(self) -> list[str]:
        """Return the queues that it is to have."""
        return [queue for queue in QUEUES if self.assignments.is_mine(queue)]


def test_a_member_steps_back_where_another_one_is_to_have_the_queue() -> None:
    a, b = Reader("a"), Reader("b")
    assert a.read(3, "ready", "a") == []
    assert sorted(b.read(3, "ready", "a")) == list(QUEUES)
    behind_b, behind_a = a.read(5, "ready", "b"), b.read(5, "ready", "b")
    assert behind_a == []
    assert len(behind_b) == 2
    assert sorted([*a.mine(), *b.mine()]) == list(QUEUES)
    assert not set(behind_b) & set(a.mine())


def test_an_owner_is_new_only_when_it_gains_a_queue() -> None:
    a = Reader("a")
    a.read(3, "ready", "a")
    assert a.assignments.is_new_owner(a.roster.term)
    a.read(5, "ready", "b")
    assert not a.assignments.is_new_owner(a.roster.term)
    a.read(9, "left", "b")
    assert a.assignments.is_new_owner(a.roster.term)


def test_nobody_steps_back_where_the_owner_stays() -> None:
    a = Reader("a")
    a.read(3, "ready", "a")
    behind_b = set(a.read(5, "ready", "b"))
    before = set(a.mine())
    assert a.read(7, "ready", "b") == [], "nothing has changed"
    behind_c = set(a.read(9, "ready", "c"))
    owners = a.roster.owners()
    assert behind_c == {queue for queue in QUEUES if owners[queue] == "c"} | {
        queue for queue in before if owners[queue] == "b"
    }
    assert behind_c - behind_b


def test_the_next_run_is_last_and_the_others_are_after_it() -> None:
    a = Reader("a")
    a.read(3, "ready", "a")
    before = a.read(5, "ready", "b")
    assert a.read(7, "ready", "b", "b2") == before


def test_a_queue_is_let_go_at_the_first_sign_of_life_of_its_new_owner() -> None:
    a = Reader("a")
    a.read(3, "ready", "a")
    queue = a.read(5, "ready", "b")[0]
    assert not a.assignments.is_overdue(queue, 4)
    a.read(6, "alive", "a")
    assert not a.assignments.is_overdue(queue, 4)
    a.read(7, "alive", "b")
    assert a.assignments.is_overdue(queue, 4)


def test_a_queue_that_was_claimed_later_is_let_go_at_the_second_sign() -> None:
    """Its owner is most often dead: the broker has elected this member, and the journal does not know yet."""
    a = Reader("a")
    a.read(3, "ready", "a")
    queue = a.read(5, "ready", "b")[0]
    a.read(7, "alive", "b")
    assert not a.assignments.is_overdue(queue, 8)
    a.read(9, "alive", "b")
    assert not a.assignments.is_overdue(queue, 8)
    a.read(11, "alive", "b")
    assert a.assignments.is_overdue(queue, 8)


def test_a_queue_without_an_owner_is_kept() -> None:
    a = Reader("a")
    a.read(5, "ready", "b")
    a.read(7, "left", "b")
    assert not a.assignments.is_overdue("q1", 4)
    assert a.mine() == []


def test_a_sign_of_life_of_an_earlier_run_does_not_count() -> None:
    a = Reader("a")
    a.read(3, "ready", "a")
    queue = a.read(5, "ready", "b", "b2")[0]
    a.read(7, "alive", "b", "b1")
    assert not a.assignments.is_overdue(queue, 4)


SHARED = [f"orders.{number}" for number in range(64)]


def counted(owners: dict[str, str]) -> dict[str, int]:
    return {member: list(owners.values()).count(member) for member in sorted(set(owners.values()))}


@pytest.mark.parametrize("members", range(1, 9))
def test_equal_members_differ_by_one_queue_at_most(members: int) -> None:
    counts = counted(queue_owners(SHARED, {f"pod-{n}": 1.0 for n in range(members)}))
    assert sum(counts.values()) == 64
    assert len(counts) == members
    assert max(counts.values()) - min(counts.values()) <= 1


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
        newcomer = counted(after)[f"pod-{members}"]
        assert moved >= newcomer
        beside.append(moved - newcomer)
    assert sum(beside) / len(beside) < 0.1 * len(SHARED)


def test_a_score_follows_the_weight() -> None:
    wins = sum(score("big", str(n), 3.0) > score("small", str(n), 1.0) for n in range(20_000))
    assert math.isclose(wins / 20_000, 0.75, abs_tol=0.02)


def test_without_a_journal_a_member_that_is_not_settled_is_after_all_others() -> None:
    late = [priority_without_journal(f"pod-{n}", "q", 0.01 + n, settled=False) for n in range(200)]
    settled = [priority_without_journal(f"pod-{n}", "q", 0.01 + n, settled=True) for n in range(200)]
    assert max(late) < min(settled)
    assert max(settled) < 0
