"""Which member is to have each queue, and when another one lets go of it: decided from the journal alone, without a clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rabbit_chx.consuming.roster import Roster

__all__ = ["Ownership", "QueueOwner"]


@dataclass(frozen=True, slots=True)
class QueueOwner:
    """The member that is to have a queue.

    Attributes:
        member: its name.
        token: tells this run of the member from others of the same name.
        since: the place in the journal since which the queue is to be its.
    """

    member: str
    token: str
    since: int


class Ownership:
    """What one member knows of who is to have which queue.

    Whoever is not the owner consumes behind it. A member that waits steps back as soon as a queue has another owner. A member
    that has the queue lets go when the owner has shown that it is there:

    - by one sign of life since the queue is its, if this member claimed the queue before. By then, those that wait have
      stepped back, and the broker elects the owner.
    - by two signs of life since the claim of this member, if it claimed the queue later. Then it was elected because the owner is gone,
      which the others do not know yet, or because the owner was not there in time.

    Args:
        token: tells this run of this member from others.
    """

    def __init__(self, token: str) -> None:
        self.owners: dict[str, QueueOwner] = {}
        self._token = token
        self._heard: dict[
            str, tuple[int, int]
        ] = {}  # the last sign of life but one, and the last one, by token

    def heard(self, token: str, offset: int) -> None:
        """Note a sign of life.

        Args:
            token: the run of the member that gave it.
            offset: its place in the journal.
        """
        _, last = self._heard.get(token, (-1, -1))
        self._heard[token] = last, offset

    def share_out(self, roster: Roster) -> list[str]:
        """Take the members of a new term, and return the queues that another member is to have now and was not to have before.

        Args:
            roster: what was read so far.
        """
        before = self.owners
        self.owners = {}
        for queue, member in roster.owners().items():
            token = roster.members[member].token
            known = before.get(queue)
            same = known is not None and known.token == token
            self.owners[queue] = known if known and same else QueueOwner(member, token, roster.term)
        runs = {member.token for member in roster.members.values()}
        self._heard = {token: signs for token, signs in self._heard.items() if token in runs}
        return [
            queue
            for queue, owner in self.owners.items()
            if owner.token != self._token and owner != before.get(queue)
        ]

    def is_mine(self, queue: str) -> bool:
        """Whether this member is to have a queue.

        Args:
            queue: the queue.
        """
        owner = self.owners.get(queue)
        return owner is not None and owner.token == self._token

    def is_new_owner(self, term: int) -> bool:
        """Whether this member is to have a queue since the last change of the members.

        Args:
            term: the place of that change in the journal.
        """
        return any(owner.token == self._token and owner.since == term for owner in self.owners.values())

    def is_overdue(self, queue: str, claimed: int | None) -> bool:
        """Whether this member has a queue that its owner waits for.

        Args:
            queue: the queue, which this member has.
            claimed: the place in the journal of its claim.
        """
        owner = self.owners.get(queue)
        if owner is None or owner.token == self._token:
            return False
        last_but_one, last = self._heard.get(owner.token, (-1, -1))
        if claimed is None or claimed < owner.since:
            return last > owner.since
        return last_but_one > claimed
