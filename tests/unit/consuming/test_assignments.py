"""Who is to have which queue, and when another member lets go: each test is a journal."""

from __future__ import annotations

from rabbit_chx.consuming.journal import Assignments, EntryKind, JournalEntry, Roster

QUEUES = ("q1", "q2", "q3", "q4")


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


def test_a_run_that_follows_comes_last_and_so_the_others_step_back_behind_it() -> None:
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
