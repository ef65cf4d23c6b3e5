"""A group as the management API tells it, and what is wrong with it. The answers are those of RabbitMQ 3.10.8 and 4.3.6."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from rabbit_chx import Release
from rabbit_chx.consuming.status import GroupStatus, group_findings

NEW, OLD = Release("4.3.6"), Release("3.10.8")
BALANCED = {"q1": ("a", "b"), "q2": ("b", "a")}


def queue(name: str, kind: str = "quorum", *, single: bool = True, **counts: int) -> dict[str, Any]:
    arguments = {"x-queue-type": kind, "x-single-active-consumer": True} if single else []
    return {"name": name, "type": kind, "arguments": arguments, **counts}


def consumer(queue: str, who: str, *, active: bool, priority: int | None = None) -> dict[str, Any]:
    tag = f"rabbit-chx.group.{who}.0f3a" if who[0].islower() else who
    return {
        "queue": {"name": queue, "vhost": "/"},
        "consumer_tag": tag,
        "active": active,
        "activity_status": "single_active" if active else "waiting",
        "arguments": [] if priority is None else {"x-priority": priority},
        "channel_details": {"connection_name": f"{who} -> broker"},
    }


def status_of(held: Mapping[str, tuple[str, ...]], *queues: dict[str, Any], first: int = 1) -> GroupStatus:
    """A group whose queues have these consumers; the first one is active, or none if `first` is 0."""
    listed = {entry["name"]: entry for entry in (*map(queue, held), *queues)}
    consumers = [
        consumer(name, who, active=number < first, priority=len(who_all) - number)
        for name, who_all in held.items()
        for number, who in enumerate(who_all)
    ]
    began = [{"name": "a -> broker", "connected_at": 1_700_000_000_500}]
    return GroupStatus.of(tuple(held), listed.values(), consumers, began)


def kinds(status: GroupStatus, release: Release = NEW, **weights: float) -> list[str]:
    return [finding.kind for finding in group_findings(status, release, weights)]


def test_members_have_the_queues_where_they_are_active_and_wait() -> None:
    status = status_of(BALANCED, queue("q2", messages_ready=5, messages_unacknowledged=2))
    first, second = status.queues
    assert (first.ready, first.unacked, second.ready, second.unacked) == (None, None, 5, 2)
    assert [consumer.name for consumer in second.active] == ["b"]
    a, b = status.members
    assert (a.name, a.active, a.waiting, a.connected_at) == ("a", ("q1",), ("q2",), 1_700_000_000.5)
    assert (b.name, b.active, b.waiting, b.connected_at) == ("b", ("q2",), ("q1",), None)
    assert kinds(status) == []


def test_a_queue_that_nobody_serves_is_found() -> None:
    (finding,) = group_findings(status_of({"q1": ("a",), "q2": ()}, queue("q2", messages_ready=1_200)), NEW)
    assert (finding.kind, finding.names) == ("no-consumer", ("q2",))
    assert finding.message == "q2 has no consumer, and 1,200 messages wait"


def test_consumers_of_which_none_is_active_are_found() -> None:
    dead, held = group_findings(
        status_of({"q1": ("a", "b"), "q2": ("b", "a")}, queue("q2", messages_unacknowledged=3), first=0), NEW
    )[:2]
    assert dead.message == "q1 has consumers and none of them active, so nothing is handled"
    assert held.message.startswith("q2 has consumers and none of them active: the broker waits until")
    assert "(3 messages)" in held.message


def test_a_queue_without_a_single_active_consumer_is_found() -> None:
    status = status_of({"q1": ("a", "b")}, queue("q1", "classic", single=False), first=2)
    assert kinds(status) == ["no-single-active-consumer"]


def test_a_consumer_of_something_else_is_found() -> None:
    (finding,) = group_findings(status_of({"q1": ("a", "Other")}), NEW)
    assert (finding.kind, finding.names) == ("other-consumer", ("q1",))
    assert "(Other)" in finding.message


@pytest.mark.parametrize(
    ("kind", "release", "ignored"), [("quorum", NEW, False), ("quorum", OLD, True), ("classic", NEW, True)]
)
def test_priorities_that_are_ignored(kind: str, release: Release, *, ignored: bool) -> None:
    status = status_of(BALANCED, queue("q1", kind), queue("q2", kind))
    found = group_findings(status, release)
    assert [finding.kind for finding in found] == ["priority-ignored"] * ignored
    assert all(f"RabbitMQ {release.version} ignores" in finding.message for finding in found)


def test_a_queue_that_is_bound_and_not_listed() -> None:
    status = GroupStatus.of(("q1",), [], [])
    assert kinds(status) == ["missing-queue"]


@pytest.mark.parametrize(
    ("counts", "weights", "uneven"),
    [
        ((6, 6, 4), {}, False),  # what rendezvous hashing may give
        ((5, 5, 6), {}, False),
        ((16, 0), {}, True),
        ((12, 4), {}, True),
        ((12, 4), {"a": 3.0}, False),
        ((8, 8), {"a": 3.0}, True),
        ((1, 0), {}, False),
        ((2, 0), {}, True),
    ],
)
def test_a_group_is_unbalanced_by_its_weights(
    counts: tuple[int, ...], weights: dict[str, float], *, uneven: bool
) -> None:
    names = "abc"[: len(counts)]
    owners = [name for name, count in zip(names, counts, strict=True) for _ in range(count)]
    held = {f"q{n}": (who, *(other for other in names if other != who)) for n, who in enumerate(owners)}
    found = group_findings(status_of(held), NEW, weights)
    assert [finding.kind for finding in found] == ["unbalanced"] * uneven


def test_many_queues_are_not_all_named() -> None:
    (finding,) = group_findings(status_of({f"q{n}": () for n in range(9)}), NEW)
    assert finding.message == "q0, q1, q2, q3, q4 and 4 more have no consumer, and 0 messages wait"
    assert len(finding.names) == 9
