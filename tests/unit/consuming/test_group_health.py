"""The health of a member: it is connected, and no other member holds what is assigned to it."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from rabbit_chx import ConsumerGroup
from rabbit_chx.consuming.group import GroupHealth
from rabbit_chx.consuming.journal import EntryKind, JournalEntry, Roster, queue_owners

QUEUES = tuple(f"q{number}" for number in range(4))
#: Of the members a and b.
OWNERS = queue_owners(QUEUES, {"a": 1.0, "b": 1.0})
MINE, OTHERS = (next(queue for queue in QUEUES if OWNERS[queue] == name) for name in "ab")


def health(*entries: tuple[EntryKind, str, str], is_up: bool = True, is_lost: bool = False) -> GroupHealth:
    """The health of the member a after these entries: their kinds, members and queues."""
    roster = Roster()
    ready = [("ready", name, "") for name in "ab"]
    for offset, (kind, member, queue) in enumerate([*ready, *entries]):
        queues = QUEUES if kind == "ready" else ()
        roster.take(offset, JournalEntry(kind, member, 1.0, 1.0, queues, queue, member))  # type: ignore[arg-type]
    group: Any = ConsumerGroup("amqp://host", QUEUES, member="a")
    group._session = SimpleNamespace(is_up=is_up, is_lost=is_lost, roster=roster, ignored_entries=0)
    group._runners = [
        SimpleNamespace(handled_at=None if day is None else datetime(2026, 1, day, tzinfo=UTC))
        for day in (2, None, 3, 1)
    ]
    found: GroupHealth = group.healthy()
    return found


def test_a_member_is_healthy_unless_another_one_holds_what_is_its_own() -> None:
    assert health()
    assert health(("claim", "a", MINE))
    assert health(("claim", "b", OTHERS)), "others own their queues"
    assert health(("claim", "a", OTHERS)), "that is the trouble of the other one"
    assert health(("claim", "b", MINE), ("released", "b", MINE))
    held = health(("claim", "b", MINE))
    assert (bool(held), held.connected, held.not_owned) == (False, True, (MINE,))


@pytest.mark.parametrize("how", [{"is_up": False}, {"is_lost": True}])
def test_a_member_without_a_connection_is_not_healthy(how: Any) -> None:
    assert not health(**how)
    assert not health(**how).connected


def test_handled_at_is_that_of_the_last_call() -> None:
    assert health().handled_at == datetime(2026, 1, 3, tzinfo=UTC)
