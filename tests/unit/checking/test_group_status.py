"""A group as the broker tells it, and what is wrong with it: `group_status.txt`.

python tests/unit/checking/test_group_status.py    # writes the findings of this version into the file
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sides import as_live
from stories import each_story, played, write_stories

from rabbit_chx import Release
from rabbit_chx.checking.group_status import GroupStatus, usage_findings
from rabbit_chx.topology import LiveTopology, QueueDefinition
from rabbit_chx.topology.model import Consumer, QueueUsage, Usage

STORIES = Path(__file__).with_name("group_status.txt")


class Group:
    """A group at a broker of a release."""

    def __init__(self, how: str) -> None:
        self.release = Release(how)
        self.queues: list[QueueDefinition] = []
        self.counted: dict[str, QueueUsage] = {}
        self.consumers: dict[str, list[Consumer]] = {}
        self.sees_all = True

    def play(self, event: str) -> str:
        """Add a queue with its consumers, of which the first is active; or return what is told of the group."""
        word, *words = event.split()
        if word == "queue":
            self.add(*words)
            return ""
        if word == "hide":  # others' consumers are counted, and not listed
            self.sees_all = False
            for name, counted in self.counted.items():
                self.counted[name] = replace(counted, consumers=len(self.consumers.pop(name)))
            return ""
        usage = Usage({}, self.counted, self.consumers, sees_all=self.sees_all)
        live = as_live(LiveTopology(queues=tuple(self.queues)), usage=usage)
        began = {"a -> broker": 1_700_000_000.5}
        names = [queue.name for queue in self.queues]
        status = GroupStatus.of(names, live, began)
        if word == "queues":
            return " ".join(
                f"{queue.name}: {queue.ready}, {queue.unacked}, {[consumer.name for consumer in queue.active]}"
                for queue in status.queues
            )
        if word == "members":
            return " ".join(
                f"{each.name}: {each.active}, {each.waiting}, {each.connected_at}" for each in status.members
            )
        shares = dict.fromkeys(names, 1 / len(names))
        found = usage_findings("orders", shares, live, self.release, is_known=True)
        return " | ".join(
            f"{finding.severity} {finding.kind} [{finding.destination}]: {finding.message}"
            for finding in found
        )

    def add(self, name: str, *words: str) -> None:
        """Add a queue with its consumers, and its values such as ``ready=5``."""
        who = [word for word in words if "=" not in word]
        how = dict(word.split("=") for word in words if "=" in word)
        kind, active = how.pop("kind", "quorum"), int(how.pop("active", 1))
        arguments = {} if how.pop("single", "yes") == "no" else {"x-single-active-consumer": True}
        self.queues.append(QueueDefinition(name, kind, arguments=arguments))
        self.counted[name] = QueueUsage(
            ready=int(how.pop("ready", 0)), unacked=int(how.pop("unacked", 0)), consumers=len(who)
        )
        assert not how
        self.consumers[name] = [
            Consumer(
                f"rabbit-chx.group.{each}.0f3a" if each[0].islower() else each,
                number < active,
                len(who) - number,
                f"{each} -> broker",
            )
            for number, each in enumerate(who)
        ]


@each_story(STORIES)
def test_what_is_told_of_a_group(how: str, lines: list[str]) -> None:
    assert played(Group(how).play, lines) == lines


if __name__ == "__main__":
    write_stories(STORIES, lambda how: Group(how).play)
