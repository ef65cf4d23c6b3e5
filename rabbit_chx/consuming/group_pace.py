"""How fast a group takes notice of its members."""

from __future__ import annotations

from dataclasses import dataclass, fields

from rabbit_chx.checks import check_seconds
from rabbit_chx.errors import InputError

__all__ = ["GroupPace"]


@dataclass(frozen=True)
class GroupPace:
    """The times of a group. All members of a group should have the same.

    Attributes:
        settle_s: seconds for which a member must be healthy before it takes its share of the queues. A member in a crash loop
            never gets that far, so it takes no queue from another.
        alive_s: seconds between two entries of the journal which say that the member is alive.
        gone_s: seconds without such an entry after which the other members share the queues anew. The broker gives
            the queues of a dead member to those that wait long before.
        watch_s: seconds between two looks at queues that have nothing to do.
        hook_s: the most seconds for a hook.
        stop_s: the most seconds for the messages in hand when the group stops. Then their handlers are cancelled.
        journal_s: the most seconds until a claim is read in the journal.
        park_s: seconds without a parked message after which the end of a slot's hand-over is not awaited any more: whoever moved
            the slot has died. The messages of the queue wait meanwhile.
    """

    settle_s: float = 5.0
    alive_s: float = 3.0
    gone_s: float = 10.0
    watch_s: float = 15.0
    hook_s: float = 10.0
    stop_s: float = 30.0
    journal_s: float = 30.0
    park_s: float = 30.0

    def __post_init__(self) -> None:
        for field in fields(self):
            check_seconds(field.name, getattr(self, field.name), zero=False)
        if self.gone_s <= self.alive_s:
            raise InputError(
                f"gone_s is {self.gone_s:g}, and alive_s {self.alive_s:g}: a member must be missed for longer than it may be silent"
            )
