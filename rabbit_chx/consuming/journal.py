"""The journal of the groups of a vhost, a stream. All readers of the same entries derive the same members, claims and assigned owners."""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypeAlias, get_args

from rabbit_chx.checks import is_number

#: The default journal, shared by all groups of a vhost.
JOURNAL = "rabbit-chx.groups"
#: The remedy for a broker that has no streams.
WITHOUT_JOURNAL = (
    "On a broker without streams pass journal=None: messages then have no generation, and shares are less even "
    "(docs/operate/managed-brokers.md, 'ConsumerGroup without streams')"
)

#: ready: the member is healthy and takes its share; repeated now and then, for members that start reading later. alive: a heartbeat.
#: left: the member has left. gone: another member has missed its heartbeats. claim: it has received its first message of a queue.
#: released: it has finished with a queue.
EntryKind: TypeAlias = Literal["ready", "alive", "left", "gone", "claim", "released"]
_KINDS: tuple[EntryKind, ...] = get_args(EntryKind)
#: The end of the year 9999, in seconds since 1970: datetime has no later time.
_LAST_MOMENT = 253_402_300_799.0
#: The number of priorities of the scores of members that have warmed up; the others have as many below them.
_PRIORITY_STEPS = 1 << 20


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """An entry of the journal. The stream offset of a claim is its generation.

    Attributes:
        at: the time, in seconds since 1970 by the clock of the writer; informational only.
        weight: the member's weight (ready).
        queues: the queues that the member consumes (ready).
        queue: the queue (claim, released).
        token: identifies the claim (claim), or the run of the member (all others).
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
        fields = {name: value for name, value in asdict(self).items() if value not in ("", ())}
        return json.dumps(fields).encode()


def entry_in(body: bytes | None) -> JournalEntry | None:
    """Return the entry in a message; None if it cannot be read.

    Any client may write anything into the stream. So each field must have its type, and a value with which every member can go on.
    """
    try:
        fields: dict[str, Any] = json.loads(body or b"")
        return JournalEntry(
            _KINDS[_KINDS.index(fields["kind"])],  # ValueError for an unknown kind
            _text(fields["member"]),
            _number(fields["at"], 0.0, _LAST_MOMENT),
            _number(fields.get("weight", 1.0), math.ulp(0.0), sys.float_info.max),
            tuple(map(_text, _list(fields.get("queues", [])))),
            _text(fields.get("queue", "")),
            _text(fields.get("token", "")),
        )
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError):
        return None


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    value.encode()  # a ValueError for half of a surrogate pair
    return value


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise TypeError
    return value


def _number(value: object, least: float, most: float) -> float:
    if not is_number(value) or not least <= value <= most:
        raise ValueError
    return float(value)


@dataclass(frozen=True, slots=True)
class RosterMember:
    """A member with a share of the queues; `since` is the offset of its `ready` entry, `token` identifies this run of it."""

    weight: float
    queues: frozenset[str]
    since: int
    token: str


@dataclass(frozen=True, slots=True)
class QueueClaim:
    """The last claim of a queue.

    Attributes:
        member: the member that claimed it. It is active, unless it has left since.
        generation: the offset of the claim.
        at: the time, in seconds since 1970 by the member's clock.
        held: whether the member has not released the queue since.
    """

    member: str
    generation: int
    at: float
    token: str
    held: bool = True


class Roster:
    """The state of the groups after some entries of the journal.

    Attributes:
        members: the members by name.
        claims: the last claim of each queue, by queue.
        term: the offset of the last entry that changed the members; -1 before the first.
        seen: the time of each member's last heartbeat, by the clock of the reader.
    """

    def __init__(self) -> None:
        self.members: dict[str, RosterMember] = {}
        self.claims: dict[str, QueueClaim] = {}
        self.term = -1
        self.seen: dict[str, float] = {}

    def take(self, offset: int, entry: JournalEntry, now: float = 0.0) -> bool:
        """Apply the next entry, read at `now` by a monotonic clock, and return whether it changed the members."""
        if entry.kind == "claim":
            self.claims[entry.queue] = QueueClaim(entry.member, offset, entry.at, entry.token)
            return False
        if entry.kind == "released":
            self._release(entry.member, (entry.queue,))
            return False

        before = self.members.get(entry.member)
        if entry.kind in ("left", "gone"):
            if before is None or (entry.token and before.token != entry.token):
                return False  # about an earlier run of the member
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
        """Return the members without a heartbeat for more than `longest_s` seconds before `now`."""
        return sorted(member for member, seen_at in self.seen.items() if now - seen_at > longest_s)

    def owners(self) -> dict[str, str]:
        """Return the assigned owner of each queue, shared by weight among the members that consume it."""
        consumers: dict[frozenset[str], list[str]] = {}
        members = self.members.copy()  # another thread may ask for the health of a member
        for queue in frozenset().union(*(member.queues for member in members.values())):
            names = frozenset(name for name, member in members.items() if queue in member.queues)
            consumers.setdefault(names, []).append(queue)
        return {
            queue: owner
            for names, queues in consumers.items()
            for queue, owner in queue_owners(queues, {name: members[name].weight for name in names}).items()
        }

    def _release(self, member: str, queues: tuple[str, ...]) -> None:
        for queue in queues:
            claim = self.claims.get(queue)
            if claim is not None and claim.member == member:
                self.claims[queue] = replace(claim, held=False)


class LivenessClock:
    """The clock that measures the silence of members. It only runs while this member can write and read the journal.

    Each heartbeat of this member that it reads back advances the clock, by at most `longest_s`. So after an hour in which the broker blocks
    all publishers, every member still counts as alive. `longest_s` is less than the silence that evicts a member.
    """

    def __init__(self, longest_s: float) -> None:
        self._longest_s = longest_s
        self._read_at: float | None = None  # when our last heartbeat was read
        self._elapsed = 0.0

    def now(self, monotonic: float) -> float:
        """Return the time of this clock, in seconds."""
        since_s = 0.0 if self._read_at is None else min(monotonic - self._read_at, self._longest_s)
        return self._elapsed + since_s

    def tick(self, monotonic: float) -> float:
        """Advance the clock because a heartbeat of this member was read; return its time."""
        self._elapsed = self.now(monotonic)
        self._read_at = monotonic
        return self._elapsed


@dataclass(frozen=True, slots=True)
class Assignment:
    """The assigned owner of a queue."""

    member: str
    token: str  # of this run of the member
    since: int  # offset of the entry that assigned it


class Assignments:
    """The assigned owner of each queue, as one member has read it from the journal.

    All other members consume after the assigned owner. A member that only waits steps back as soon as the assignment changes. A member that
    holds the queue releases it when the assigned owner has proved to be alive:

    - by one heartbeat since the assignment, if this member's claim is older than the assignment. By then the waiting members have stepped
      back, and the broker elects the assigned owner.
    - by two heartbeats since this member's claim, if that is newer. In this case the broker elected this member because the assigned owner
      was dead, which the journal does not show yet, or had not subscribed in time.
    """

    def __init__(self, token: str) -> None:
        self.owners: dict[str, Assignment] = {}
        self._token = token
        self._heartbeats: dict[str, tuple[int, int]] = {}  # offsets of the last two heartbeats, by token

    def on_heartbeat(self, token: str, offset: int) -> None:
        """A heartbeat of a run of a member was read."""
        _, last = self._heartbeats.get(token, (-1, -1))
        self._heartbeats[token] = last, offset

    def update(self, roster: Roster) -> list[str]:
        """Assign the queues to the members of a new term; return the queues that other members have gained."""
        before = self.owners
        self.owners = {}
        for queue, member in roster.owners().items():
            token = roster.members[member].token
            assignment = before.get(queue)
            if assignment is None or assignment.token != token:
                assignment = Assignment(member, token, roster.term)
            self.owners[queue] = assignment
        runs = {member.token for member in roster.members.values()}
        self._heartbeats = {token: last for token, last in self._heartbeats.items() if token in runs}
        return [
            queue
            for queue, owner in self.owners.items()
            if owner.token != self._token and owner != before.get(queue)
        ]

    def is_mine(self, queue: str) -> bool:
        """Return whether a queue is assigned to this member."""
        owner = self.owners.get(queue)
        return owner is not None and owner.token == self._token

    def is_new_owner(self, term: int) -> bool:
        """Return whether this member has gained a queue at `term`."""
        return any(owner.token == self._token and owner.since == term for owner in self.owners.values())

    def is_overdue(self, queue: str, claimed: int | None) -> bool:
        """Return whether the assigned owner waits for a queue that this member claimed at the offset `claimed`."""
        owner = self.owners.get(queue)
        if owner is None or owner.token == self._token:
            return False
        previous, last = self._heartbeats.get(owner.token, (-1, -1))
        if claimed is None or claimed < owner.since:
            return last > owner.since
        return previous > claimed


def queue_owners(queues: Iterable[str], weights: Mapping[str, float]) -> dict[str, str]:
    """Return the assigned owner of each queue, by rendezvous hashing with bounded shares.

    Each member has its share by weight, rounded up or down. Pairs of member and queue are taken by descending score. So a queue is assigned
    to the member with its highest score, unless that member has its full share, and few queues move when a member joins or leaves.
    """
    names = sorted(set(queues))
    free = _shares(len(names), weights)
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
        if queue not in owners and free[member]:
            owners[queue] = member
            free[member] -= 1
    return owners


def _shares(count: int, weights: Mapping[str, float]) -> dict[str, int]:
    """Return the number of queues of each member, by the largest remainder method."""
    most = max(weights.values(), default=1.0)
    # A sum of weights may be too large.
    relative = {member: weight / most for member, weight in weights.items()}
    total = sum(relative.values())
    exact = {member: count * weight / total for member, weight in relative.items()}
    shares = {member: int(share) for member, share in exact.items()}
    remainder = count - sum(shares.values())
    by_remainder = sorted(
        exact, key=lambda member: (shares[member] - exact[member], -score(member, ""), member)
    )
    for member in by_remainder[:remainder]:
        shares[member] += 1
    return shares


def score(member: str, queue: str, weight: float = 1.0) -> float:
    """Return the score of weighted rendezvous hashing, from 0 to 1; weight 2 has the highest score for twice as many queues as weight 1."""
    # The length marks the end of the member's name, so that two pairs never have the same bytes.
    digest = hashlib.sha256(f"{len(member)}:{member}{queue}".encode()).digest()
    uniform = (int.from_bytes(digest[:8], "big") + 1) / (2**64 + 1)
    return math.exp(math.log(uniform) / weight)


def priority_without_journal(member: str, queue: str, weight: float, *, has_warmed_up: bool) -> int:
    """Return the ``x-priority`` of a member without a journal, by its score; a member that has not warmed up is below all that have."""
    return int(score(member, queue, weight) * (_PRIORITY_STEPS - 1)) - (
        _PRIORITY_STEPS if has_warmed_up else 2 * _PRIORITY_STEPS
    )
