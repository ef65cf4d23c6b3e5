"""``rabbit-chx group show --watch``: what a look shows, and which looks are told where there is no terminal."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest
from rich.console import Console

from rabbit_chx.cli import group
from rabbit_chx.cli.group import GroupLook, GroupReport
from rabbit_chx.consuming import GroupStatus, group_findings
from rabbit_chx.errors import UnreachableError
from rabbit_chx.routing import NEWEST

QUEUES = [f"events.{number}" for number in range(1, 13)]


def report(owners: dict[str, str], *, ready: int = 5) -> GroupReport:
    """A group as the management API tells it: who is active on which queue."""
    listed = [
        {
            "name": name,
            "type": "quorum",
            "arguments": {"x-single-active-consumer": True},
            "messages_ready": ready,
            "messages_unacknowledged": 1,
        }
        for name in QUEUES
    ]
    consumers = [
        {"queue": {"name": queue}, "consumer_tag": f"rabbit-chx.group.{member}.a5e", "active": True}
        for queue, member in owners.items()
    ]
    status = GroupStatus.of(QUEUES, listed, consumers)
    return GroupReport("events", "/", NEWEST, status, group_findings(status, NEWEST), {})


def shown(look: GroupLook, height: int) -> str:
    console = Console(
        file=io.StringIO(), force_terminal=True, width=100, height=height, color_system="truecolor"
    )
    console.print(group._picture(look, {}, console))
    text = console.file.getvalue()  # type: ignore[attr-defined]  # it is the StringIO
    assert len(text.splitlines()) < height, "a higher picture cannot be shown in its place again"
    return text


BOTH = {queue: f"pod-{1 + number % 2}" for number, queue in enumerate(QUEUES)}


def test_a_member_has_one_colour_and_its_name() -> None:
    text = shown(GroupLook(report(BOTH), 1e9), 40)
    blue, orange = "\x1b[38;2;86;180;233m■", "\x1b[38;2;230;159;0m■"
    assert text.count(f"{blue}\x1b[0m pod-1") == text.count(f"{orange}\x1b[0m pod-2") == 7, text
    assert "12 queues, 2 members, 60 ready, 12 unacked, 0 warnings" in text


def test_queues_that_do_not_fit_are_counted() -> None:
    text = shown(GroupLook(report(BOTH), 1e9), 16)
    assert "events.7" in text
    assert "events.8 " not in text
    assert "5 more" in text


def test_a_switch_is_seen_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    first = GroupLook(report(BOTH), 1e9)
    monkeypatch.setattr("time.time", lambda: 1e9 + 2)
    second = first.next(report({**BOTH, "events.1": "pod-2"}))
    assert second.changes == ("events.1: pod-1 -> pod-2",)
    assert second.as_line() == (
        "2001-09-09 01:46:42Z  12 queues, 2 members, 60 ready, 12 unacked, 0 warnings  events.1: pod-1 -> pod-2"
    )
    assert second.as_json()["queues"][0]["last_switch"] == "2001-09-09T01:46:42.000+00:00"
    monkeypatch.setattr("time.time", lambda: 1e9 + 200)
    last = second.next(report({queue: owner for queue, owner in BOTH.items() if queue != "events.2"}))
    assert last.changes == ("events.1: pod-2 -> pod-1", "events.2: pod-2 -> -", "warnings: no-consumer")
    text = shown(last, 40)
    assert "nobody" in text
    assert "no-consumer: events.2 has no consumer, and 5 messages wait" in text


def test_a_broker_that_does_not_answer_is_asked_again_and_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: Iterator[GroupReport | BaseException] = iter(
        [report(BOTH), UnreachableError("it is away"), UnreachableError("it is away"), report(BOTH)]
    )
    now = iter(range(1_000_000, 2_000_000))
    monkeypatch.setattr("time.time", lambda: next(now))

    def look() -> GroupReport:
        answer: GroupReport | BaseException = next(answers, KeyboardInterrupt())
        if isinstance(answer, BaseException):
            raise answer
        return answer

    first = look()
    told = [
        look for batch in group._worth_a_line(group._looks(GroupLook(first, 1e6), look, 0)) for look in batch
    ]
    assert [(look.problem, look.changes) for look in told] == [
        ("", ()),
        ("it is away", ("the broker does not answer",)),
        ("", ("the broker answers again",)),
    ]
    assert told[1].as_line().endswith("Z  it is away")
    assert "it is away" in shown(told[1], 40)


def test_without_changes_a_line_a_minute_is_told() -> None:
    quiet = [GroupLook(report(BOTH), at) for at in range(0, 300, 2)]
    assert [look.at for (look,) in group._worth_a_line(quiet)] == [0, 60, 120, 180, 240]
