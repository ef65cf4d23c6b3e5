"""The journal of the groups of a vhost, and what each reader of it computes: the members, who is to have which queue, who has it.

The journal is a stream. Whoever has read the same entries knows the same.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypeAlias, get_args

#: The stream that the groups of a vhost share, unless they are told otherwise.
JOURNAL = "rabbit-chx.groups"

#: ready: the member is healthy and takes its share; it repeats this now and then, for those that read from later on. alive: it
#: still is. left: it leaves. gone: another member has not seen it alive for too long. claim: it has got its first message of a
#: queue. released: it has finished with a queue.
EntryKind: TypeAlias = Literal["ready", "alive", "left", "gone", "claim", "released"]
_KINDS: tuple[EntryKind, ...] = get_args(EntryKind)
_STEPS = 1 << 20


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """An entry of the journal. Its place in the stream is the generation of a claim.

    Attributes:
        kind: what happened.
        member: the member that it happened to.
        at: when, in seconds since 1970 by the clock of the writer; for people, nothing is decided by it.
        weight: the member's weight (ready).
        queues: the queues that the member consumes (ready). Only this entry has them: an `alive` each few seconds is short.
        queue: the queue (claim, released).
        token: tells this claim from others (claim), or this run of the member (the others).
    """

    kind: EntryKind
    member: str
    at: float
    weight: float = 1.0
    queues: tuple[str, ...] = ()
    queue: str = ""
    token: str = ""

    def to_json(self) -> bytes:
        """Return the body of the message."""
        return json.dumps(
            {name: value for name, value in asdict(self).items() if value not in ("", ())}
        ).encode()

    @classmethod
    def from_json(cls, body: bytes) -> JournalEntry | None:
        """Return the entry that a message is; None where this version does not know it.

        Args:
            body: the body of the message.
        """
        try:
            fields: dict[str, Any] = json.loads(body)
            entry = cls(
                _KINDS[_KINDS.index(fields["kind"])],
                str(fields["member"]),
                float(fields["at"]),
                float(fields.get("weight", 1.0)),
                tuple(map(str, fields.get("queues", ()))),
                str(fields.get("queue", "")),
                str(fields.get("token", "")),
            )
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            return None
        return entry if 0 < entry.weight < float("inf") else None


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
        """Return the members that were not seen alive for more than `longest_s` at `now`, by the clock of the reader."""
        return sorted(member for member, seen_at in self.seen.items() if now - seen_at > longest_s)

    def owners(self) -> dict[str, str]:
        """Return the member that is to have each queue.

        Members with the same queues share them by weight. A queue that only some consume is shared among these.
        """
        consumers: dict[frozenset[str], list[str]] = {}
        for queue in frozenset().union(*(member.queues for member in self.members.values())):
            names = frozenset(name for name, member in self.members.items() if queue in member.queues)
            consumers.setdefault(names, []).append(queue)
        return {
            queue: owner
            for names, queues in consumers.items()
            for queue, owner in queue_owners(
                queues, {name: self.members[name].weight for name in names}
            ).items()
        }

    def _release(self, member: str, queues: tuple[str, ...]) -> None:
        for queue in queues:
            claim = self.claims.get(queue)
            if claim is not None and claim.member == member:
                self.claims[queue] = replace(claim, held=False)


class SilenceClock:
    """The clock by which a member misses others: it goes on only while the member can write and read.

    Each sign of life that the member wrote itself and has read moves it on, by some seconds at most. If the broker blocks all
    publishers for an hour, nobody has been silent for longer than that when it ends. `longest_s` is how far it goes on without a sign
    of life of its own. That is less than members may be silent.
    """

    def __init__(self, longest_s: float) -> None:
        self._longest_s = longest_s
        self._at: float | None = None  # of the last sign of life
        self._shown = 0.0

    def read(self, now: float) -> float:
        """Return what it shows at `now`, in seconds of a clock that only goes forward."""
        return self._shown + (0.0 if self._at is None else min(now - self._at, self._longest_s))

    def ticked(self, now: float) -> float:
        """Note that a sign of life of this member was read, and return what it shows."""
        self._shown, self._at = self.read(now), now
        return self._shown


@dataclass(frozen=True, slots=True)
class QueueOwner:
    """The member that is to have a queue."""

    member: str
    token: str  # of this run of the member
    since: int  # the place in the journal


class Ownership:
    """What one member knows of who is to have which queue.

    Whoever is not the owner consumes behind it. A member that waits steps back as soon as a queue has another owner. A member
    that has the queue lets go when the owner has shown that it is there:

    - by one sign of life since the queue is its, if this member claimed the queue before. By then, those that wait have
      stepped back, and the broker elects the owner.
    - by two signs of life since the claim of this member, if it claimed the queue later. Then it was elected because the owner is gone,
      which the others do not know yet, or because the owner was not there in time.

    `token` tells this run of this member from others.
    """

    def __init__(self, token: str) -> None:
        self.owners: dict[str, QueueOwner] = {}
        self._token = token
        # The last sign of life but one, and the last one, by token.
        self._heard: dict[str, tuple[int, int]] = {}

    def heard(self, token: str, offset: int) -> None:
        """Note a sign of life of a run of a member, and its place in the journal."""
        _, last = self._heard.get(token, (-1, -1))
        self._heard[token] = last, offset

    def share_out(self, roster: Roster) -> list[str]:
        """Take the members of a new term, and return the queues that another member is to have now and was not to have before."""
        before = self.owners
        self.owners = {}
        for queue, member in roster.owners().items():
            token = roster.members[member].token
            known = before.get(queue)
            stays = known is not None and known.token == token
            self.owners[queue] = known if known and stays else QueueOwner(member, token, roster.term)
        runs = {member.token for member in roster.members.values()}
        self._heard = {token: signs for token, signs in self._heard.items() if token in runs}
        return [
            queue
            for queue, owner in self.owners.items()
            if owner.token != self._token and owner != before.get(queue)
        ]

    def is_mine(self, queue: str) -> bool:
        """Return whether this member is to have a queue."""
        owner = self.owners.get(queue)
        return owner is not None and owner.token == self._token

    def is_new_owner(self, term: int) -> bool:
        """Return whether this member is to have a queue since the change of the members at `term`."""
        return any(owner.token == self._token and owner.since == term for owner in self.owners.values())

    def is_overdue(self, queue: str, claimed: int | None) -> bool:
        """Return whether the owner of a queue waits for it. This member has it since its claim at the place `claimed`."""
        owner = self.owners.get(queue)
        if owner is None or owner.token == self._token:
            return False
        last_but_one, last = self._heard.get(owner.token, (-1, -1))
        if claimed is None or claimed < owner.since:
            return last > owner.since
        return last_but_one > claimed


def queue_owners(queues: Iterable[str], weights: Mapping[str, float]) -> dict[str, str]:
    """Return the member that is to have each queue.

    Each member has its share by weight, rounded up or down. Of all pairs of a member and a queue, those with the highest
    scores come first. So a queue goes where rendezvous hashing puts it, unless that member has its share already, and few
    queues move when a member comes or goes.
    """
    names = sorted(set(queues))
    room = _shares(len(names), weights)
    pairs = sorted(
        (
            (score(member, queue, weight), member, queue)
            for member, weight in weights.items()
            for queue in names
        ),
        reverse=True,
    )
    owners: dict[str, str] = {}
    for _, member, queue in pairs:
        if queue not in owners and room[member]:
            owners[queue] = member
            room[member] -= 1
    return owners


def _shares(count: int, weights: Mapping[str, float]) -> dict[str, int]:
    """Return how many queues each member gets: the largest remainders are rounded up."""
    total = sum(weights.values())
    exact = {member: count * weight / total for member, weight in weights.items()}
    shares = {member: int(share) for member, share in exact.items()}
    remainder = count - sum(shares.values())
    by_remainder = sorted(
        exact, key=lambda member: (shares[member] - exact[member], -score(member, ""), member)
    )
    for member in by_remainder[:remainder]:
        shares[member] += 1
    return shares


def score(member: str, queue: str, weight: float = 1.0) -> float:
    """Return a number from 0 to 1; the member with the highest one is meant for the queue.

    A member of weight 2 has the highest number for twice as many queues as one of weight 1 (weighted rendezvous hashing).
    """
    # The length tells where the name of the member ends, so that no two pairs give the same bytes.
    digest = hashlib.sha256(f"{len(member)}:{member}{queue}".encode()).digest()
    uniform = (int.from_bytes(digest[:8], "big") + 1) / (2**64 + 1)
    return math.exp(math.log(uniform) / weight)


def priority_without_journal(member: str, queue: str, weight: float, *, settled: bool) -> int:
    """Return the ``x-priority`` of a member that knows of no other: the higher the score, the higher.

    A member that was not healthy for some time is not settled, and comes behind all that are.
    """
    return int(score(member, queue, weight) * (_STEPS - 1)) - (_STEPS if settled else 2 * _STEPS)
