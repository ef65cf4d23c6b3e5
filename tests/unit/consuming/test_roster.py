"""The members and claims that a journal tells of."""

from __future__ import annotations

import pytest

from rabbit_chx.consuming.journal import EntryKind, JournalEntry, LivenessClock, Roster

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
    assert not late.take(7, entry("alive", "b"))
    assert late.take(8, entry("ready", "a"))
    assert late.take(9, entry("ready", "b"))
    assert sorted(late.members) == ["a", "b"]


def test_a_sign_of_life_of_another_run_changes_nothing() -> None:
    """Two processes of one name do not make the others share anew each few seconds."""
    roster = Roster()
    roster.take(0, entry("ready", "a", "first"))
    roster.take(1, entry("ready", "a", "second"), now=10.0)
    assert not roster.take(2, entry("alive", "a", "first"), now=20.0)
    assert (roster.term, roster.members["a"].token) == (1, "second")
    assert roster.silent(20.5, 10.0) == ["a"]


def test_the_last_word_about_an_earlier_run_does_not_count() -> None:
    roster = Roster()
    roster.take(0, entry("ready", "a", "first"))
    assert roster.take(1, entry("ready", "a", "second"))
    assert not roster.take(2, entry("gone", "a", "first"))
    assert list(roster.members) == ["a"]


def test_a_claim_is_held_until_it_is_released() -> None:
    roster = Roster()
    roster.take(5, entry("claim", "a", "c1", "q1"))
    claim = roster.claims["q1"]
    assert (claim.member, claim.generation, claim.held) == ("a", 5, True)
    roster.take(6, entry("released", "b", queue="q1"))
    assert roster.claims["q1"].held, "another one cannot release it"
    roster.take(7, entry("released", "a", queue="q1"))
    assert not roster.claims["q1"].held


def test_a_member_that_is_gone_holds_nothing() -> None:
    roster = Roster()
    roster.take(0, entry("ready", "a"))
    roster.take(1, entry("claim", "a", queue="q1"))
    roster.take(2, entry("gone", "a"))
    assert not roster.claims["q1"].held


def test_silence_is_told_by_the_readers_clock() -> None:
    roster = Roster()
    roster.take(0, entry("ready", "a"), now=10.0)
    roster.take(1, entry("ready", "b"), now=10.0)
    roster.take(2, entry("alive", "b"), now=18.0)
    assert roster.silent(19.0, 10.0) == []
    assert roster.silent(20.5, 10.0) == ["a"]


def test_members_with_other_queues_share_what_they_have_in_common() -> None:
    roster = Roster()
    roster.take(0, JournalEntry("ready", "a", 0.0, queues=("q1", "q2", "only.a")))
    roster.take(1, JournalEntry("ready", "b", 0.0, queues=("q1", "q2")))
    owners = roster.owners()
    assert owners["only.a"] == "a"
    assert sorted([owners["q1"], owners["q2"]]) == ["a", "b"]


def test_an_entry_comes_back_from_its_json() -> None:
    ready = JournalEntry("ready", "pod-ü", 12.5, 2.0, QUEUES, "", "t")
    assert JournalEntry.from_json(ready.to_json()) == ready
    claim = JournalEntry("claim", "a", 12.5, 1.0, (), "q1", "c")
    assert JournalEntry.from_json(claim.to_json()) == claim


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
        b"[" * 100_000,
    ],
)
def test_what_is_no_entry(body: bytes) -> None:
    assert JournalEntry.from_json(body) is None


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
