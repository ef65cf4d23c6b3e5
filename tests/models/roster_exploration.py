"""Every order in which members can join, leave, die and be missed: explored, with what each of them computes from the journal.

The `Roster` and the shares are those that run in production. What a member writes is done as `GroupSession` does it: that it is ready,
that it leaves (it is ready for no queue) and has left, that another one is gone, and that it is ready again where another one believed that it is gone.

    python tests/models/roster_exploration.py              # three members, four queues
    python tests/models/roster_exploration.py 3 4 1 1      # members, queues, runs that follow a leave or a death, false alarms
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any

from state_search import BrokenModelError, Found, searched

from rabbit_chx.consuming.journal import JournalEntry, Roster


@dataclass
class Reader:
    """A member: whether it lives, and how much of the journal it has read."""

    run: int = 0
    lives: bool = False
    leaves: bool = False
    read: int = 0


@dataclass
class RosterWorld:
    """One state of everything."""

    queues: tuple[str, ...]
    readers: list[Reader]
    again: int
    alarms: int
    journal: list[JournalEntry] = field(default_factory=list)

    def key(self) -> Hashable:
        """Return the key that identifies this state."""
        past = min((reader.read for reader in self.readers if reader.lives), default=len(self.journal))
        known = sorted((name, member.token) for name, member in self._roster(past).members.items())
        readers = tuple(
            (reader.run, reader.lives, reader.leaves, reader.lives and reader.read - past)
            for reader in self.readers
        )
        return tuple(known), tuple(self.journal[past:]), readers, self.again, self.alarms

    def choices(self) -> Iterator[tuple[Any, ...]]:
        """Return what can happen now."""
        for number, reader in enumerate(self.readers):
            if not reader.lives:
                if reader.run == 0 or self.again:
                    yield "join", number
                continue
            if reader.read < len(self.journal):
                yield "read", number
            yield "has left" if reader.leaves else "leave", number
            yield "die", number
            known = self._roster(reader.read).members
            for other, peer in enumerate(self.readers):
                member = known.get(_name(other))
                is_dead = member is not None and not (peer.lives and member.token == str(peer.run))
                if other != number and member and (is_dead or self.alarms):
                    told = JournalEntry("gone", _name(other), 0.0, token=member.token)
                    if told not in self.journal[reader.read :]:
                        yield "gone", number, other, member.token, not is_dead

    def do(self, choice: tuple[Any, ...]) -> None:
        """Let something happen.

        Args:
            choice: one of the choices.
        """
        what, number, *rest = choice
        reader, name = self.readers[number], _name(number)
        match what:
            case "join":
                self.again -= reader.run > 0
                self.readers[number] = Reader(reader.run + 1, lives=True, read=len(self.journal))
                self._write("ready", number)
            case "leave":
                reader.leaves = True
                self._write("ready", number)
            case "has left":
                self._write("left", number)
                self.readers[number] = Reader(reader.run)
            case "die":
                self.readers[number] = Reader(reader.run)
            case "gone":
                other, token, is_false = rest
                self.alarms -= is_false
                self.journal.append(JournalEntry("gone", _name(other), 0.0, token=token))
            case "read":
                entry = self.journal[reader.read]
                reader.read += 1
                missed = (entry.kind, entry.member, entry.token) == ("gone", name, str(reader.run))
                if missed and not reader.leaves:
                    self._write("ready", number)
        self._check()

    def _write(self, kind: Any, number: int) -> None:
        queues = self.queues if kind == "ready" and not self.readers[number].leaves else ()
        token = str(self.readers[number].run)
        self.journal.append(JournalEntry(kind, _name(number), 0.0, queues=queues, token=token))

    def _roster(self, read: int, now: float = 0.0) -> Roster:
        roster = Roster()
        for offset, entry in enumerate(self.journal[:read]):
            roster.take(offset, entry, now + offset)
        return roster

    def _check(self) -> None:
        told: dict[int, Any] = {}
        for number, reader in enumerate(self.readers):
            if not reader.lives:
                continue
            roster = self._roster(reader.read, now=100.0 * number)  # each has a separate clock
            owners = roster.owners()
            sharing = {name for name, member in roster.members.items() if member.queues}
            if sharing and set(owners) != set(self.queues):
                raise BrokenModelError(f"the queues with an owner are {sorted(owners)}")
            counts = [list(owners.values()).count(member) for member in sharing]
            if counts and max(counts) - min(counts) > 1:
                raise BrokenModelError(f"the shares are {counts}")
            if not set(owners.values()) <= sharing:
                raise BrokenModelError(f"{set(owners.values()) - sharing} own queues and take no share")
            if told.setdefault(reader.read, (roster.term, owners)) != (roster.term, owners):
                raise BrokenModelError(f"two members that have read {reader.read} entries do not agree")
        living = {_name(n) for n, reader in enumerate(self.readers) if reader.lives and not reader.leaves}
        is_read = all(reader.read == len(self.journal) for reader in self.readers if reader.lives)
        if living and is_read and not any(choice[0] == "gone" and not choice[4] for choice in self.choices()):
            read = self._roster(len(self.journal)).members
            members = {name for name, member in read.items() if member.queues}
            if members != living:
                raise BrokenModelError(
                    f"{sorted(living)} live, but the members of the journal are {sorted(members)}"
                )

    def check_end(self) -> str:
        """Return the kind of this end: all have left or died."""
        return "without a member"


def _name(number: int) -> str:
    return f"pod-{number}"


def rosters_explored(members: int, queues: int, *, again: int = 0, alarms: int = 0) -> Found:
    """Go through all states of the members' journal.

    Args:
        members: how many members there are. Each may join, leave and die.
        queues: how many queues they share.
        again: how many times a member may join again after it has left or died.
        alarms: how many times a living member is believed to be gone.

    Raises:
        BrokenModelError: an invariant does not hold; the error lists the steps that lead there.
    """
    names = tuple(f"q.{number}" for number in range(queues))
    return searched(RosterWorld(names, [Reader() for _ in range(members)], again, alarms))


def main() -> None:
    """Explore, and print how much there was."""
    sizes = tuple(map(int, sys.argv[1:5]))
    for members, queues, again, alarms in [sizes] if len(sizes) == 4 else [(3, 4, 0, 0), (2, 4, 1, 1)]:
        result = rosters_explored(members, queues, again=again, alarms=alarms)
        print(
            f"{members} members, {queues} queues, {again} further runs, {alarms} false alarms: {result}",
            flush=True,
        )


if __name__ == "__main__":
    main()
