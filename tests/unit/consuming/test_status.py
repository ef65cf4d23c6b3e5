"""A group as the management API tells it, and what is wrong with it: `status.txt`. The answers are those of RabbitMQ 3.10.8 and 4.3.6.

python tests/unit/consuming/test_status.py    # writes the findings of this version into the file
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stories import each_story, played, write_stories

from rabbit_chx import Release
from rabbit_chx.consuming.status import GroupStatus, group_findings

STORIES = Path(__file__).with_name("status.txt")


def consumer(queue: str, who: str, priority: int, *, active: bool) -> dict[str, Any]:
    tag = f"rabbit-chx.group.{who}.0f3a" if who[0].islower() else who
    return {
        "queue": {"name": queue, "vhost": "/"},
        "consumer_tag": tag,
        "active": active,
        "activity_status": "single_active" if active else "waiting",
        "arguments": {"x-priority": priority},
        "channel_details": {"connection_name": f"{who} -> broker"},
    }


class Group:
    """A group at a broker of a release, whose members have these weights."""

    def __init__(self, how: str) -> None:
        release, *weights = how.split()
        self.release = Release(release)
        self.weights = {name: float(weight) for name, weight in (each.split("=") for each in weights)}
        self.names: list[str] = []
        self.listed: list[dict[str, Any]] = []
        self.consumers: list[dict[str, Any]] = []

    def play(self, event: str) -> str:
        """Add a queue with its consumers, of which the first is active; or return what is told of the group."""
        word, *words = event.split()
        if word == "queue":
            self.add(*words)
            return ""
        if word == "share":
            for number, owner in enumerate(each for each in words for _ in range(int(each[1:]))):
                self.add(f"q{number}", owner[0], *(each[0] for each in words if each != owner))
            return ""
        began: list[dict[str, Any]] = [
            {"name": "a -> broker", "connected_at": 1_700_000_000_500},
            {"name": "b -> broker"},
        ]
        status = GroupStatus.of(tuple(self.names), self.listed, self.consumers, began)
        if word == "queues":
            active = [[consumer.name for consumer in queue.active] for queue in status.queues]
            return " ".join(
                f"{queue.name}: {queue.ready}, {queue.unacked}, {names}"
                for queue, names in zip(status.queues, active, strict=True)
            )
        if word == "members":
            return " ".join(
                f"{each.name}: {each.active}, {each.waiting}, {each.connected_at}" for each in status.members
            )
        found = group_findings(status, self.release, self.weights)
        return " | ".join(f"{finding.kind} {finding.names}: {finding.message}" for finding in found)

    def add(self, name: str, *words: str) -> None:
        """Add a queue with its consumers, and its values such as ``ready=5``."""
        consumers = [word for word in words if "=" not in word]
        how = dict(word.split("=") for word in words if "=" in word)
        self.names.append(name)
        if "unlisted" in how:
            return
        kind, active = how.pop("kind", "quorum"), int(how.pop("active", 1))
        arguments: Any = (
            []
            if how.pop("single", "yes") == "no"
            else {"x-queue-type": kind, "x-single-active-consumer": True}
        )
        counts = {count: int(value) for count, value in how.items()}
        self.listed.append({"name": name, "type": kind, "arguments": arguments, **counts})
        self.consumers += [
            consumer(name, who, len(consumers) - number, active=number < active)
            for number, who in enumerate(consumers)
        ]


@each_story(STORIES)
def test_what_is_told_of_a_group(how: str, lines: list[str]) -> None:
    assert played(Group(how).play, lines) == lines


if __name__ == "__main__":
    write_stories(STORIES, lambda how: Group(how).play)
