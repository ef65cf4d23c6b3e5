"""The members of a group and their claims, as the journal tells them. Whoever has read the same entries has the same roster."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rabbit_chx.consuming.sharing import queue_owners

if TYPE_CHECKING:
    from rabbit_chx.consuming.journal_entry import JournalEntry

__all__ = ["QueueClaim", "Roster", "RosterMember", "SilenceClock"]


@dataclass(frozen=True, slots=True)
class RosterMember:
    """A member that takes its share of the queues.

    Attributes:
        weight: its weight.
        queues: the queues that it consumes.
        since: the place in the journal of the entry that it was ready.
        token: tells this run of the member from others of the same name.
    """

    weight: float
    queues: frozenset[str]
    since: int
    token: str


@dataclass(frozen=True, slots=True)
class QueueClaim:
    """The last claim of a queue.

    Attributes:
        member: who claimed it: the member that is active, unless it has left since.
        generation: the place of the claim in the journal.
        at: when, in seconds since 1970 by the member's clock.
        token: the token of the claim.
        held: whether the member still had the queue at the end of what was read.
    """

    member: str
    generation: int
    at: float
    token: str
    held: bool = True


class Roster:
    """What the journal says up to an entry.

    Attributes:
        members: the members by name.
        claims: the last claim of each queue.
        term: the place in the journal of the last entry that changed the members; -1 before the first.
        seen: when each member was last seen alive, by the clock of the reader.
    """

    def __init__(self) -> None:
        self.members: dict[str, RosterMember] = {}
        self.claims: dict[str, QueueClaim] = {}
        self.term = -1
        self.seen: dict[str, float] = {}

    def take(self, offset: int, entry: JournalEntry, now: float = 0.0) -> bool:
        """Take the next entry and return whether it changed the members.

        Args:
            offset: its place in the journal.
            entry: the entry.
            now: the time, in seconds of a clock of the reader that only goes forward.
        """
        if entry.kind == "claim":
            self.claims[entry.queue] = QueueClaim(entry.member, offset, entry.at, entry.token)
            return False
        if entry.kind == "released":
            self._release(entry.member, (entry.queue,))
            return False
        before = self.members.get(entry.member)
        if entry.kind in ("left", "gone"):
            if before is None or (entry.token and before.token != entry.token):
                return False  # of an earlier run of a member that is back
            del self.members[entry.member]
            self.seen.pop(entry.member, None)
            self._release(entry.member, tuple(self.claims))
        elif entry.kind == "alive":
            if before is not None and before.token == entry.token:
                self.seen[entry.member] = now
            return False
        else:
            self.seen[entry.member] = now
            after = RosterMember(entry.weight, frozenset(entry.queues), offset, entry.token)
            if before is not None and replace(before, since=offset) == after:
                return False
            self.members[entry.member] = after
        self.term = offset
        return True

    def silent(self, now: float, longest_s: float) -> list[str]:
        """Return the members that were not seen alive for too long.

        Args:
            now: the time, by the clock of the reader.
            longest_s: how many seconds are too long.
        """
        return sorted(member for member, seen in self.seen.items() if now - seen > longest_s)

    def owners(self) -> dict[str, str]:
        """Return the member that is to have each queue.

        Members with the same queues share them by weight. A queue that only some consume is shared among these.
        """
        consumers: dict[frozenset[str], list[str]] = {}
        for queue in frozenset().union(*(member.queues for member in self.members.values())):
            who = frozenset(name for name, member in self.members.items() if queue in member.queues)
            consumers.setdefault(who, []).append(queue)
        return {
            queue: owner
            for who, queues in consumers.items()
            for queue, owner in queue_owners(
                queues, {name: self.members[name].weight for name in who}
            ).items()
        }

    def _release(self, member: str, queues: tuple[str, ...]) -> None:
        for queue in queues:
            claim = self.claims.get(queue)
            if claim is not None and claim.member == member:
                self.claims[queue] = QueueClaim(member, claim.generation, claim.at, claim.token, held=False)


class SilenceClock:
    """The time for which a member may miss others: it goes on only while the member can write and read.

    Each sign of life that the member wrote itself and has read moves it on, by some seconds at most. If the broker blocks all
    publishers for an hour, nobody has been silent for longer than that when it ends.

    Args:
        longest_s: the most seconds that it goes on without a sign of life of its own, less than members may be silent.
    """

    def __init__(self, longest_s: float) -> None:
        self._longest_s = longest_s
        self._at: float | None = None  # of the last sign of life
        self._shown = 0.0

    def read(self, now: float) -> float:
        """Return what it shows.

        Args:
            now: the time, in seconds of a clock that only goes forward.
        """
        return self._shown + (0.0 if self._at is None else min(now - self._at, self._longest_s))

    def ticked(self, now: float) -> float:
        """Note that a sign of life of this member was read, and return what it shows.

        Args:
            now: the time, by the same clock.
        """
        self._shown, self._at = self.read(now), now
        return self._shown
