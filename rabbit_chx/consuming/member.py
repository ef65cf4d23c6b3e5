"""What a member of a group is: its name and weight, how it handles messages, and the times of its group."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from rabbit_chx.checks import check_seconds, check_whole, is_finite
from rabbit_chx.consuming.journal import JOURNAL
from rabbit_chx.errors import InputError
from rabbit_chx.retry import Backoff

OnFailure: TypeAlias = Literal["stop", "dead-letter"]
Hook: TypeAlias = Callable[[str], Awaitable[None]]

_LONGEST_NAME = 100
_MOST_LANES = 256
_MOST_PREFETCH = 1000
_LONGEST_BACKOFF_S = 30.0


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
        for name, value in vars(self).items():
            check_seconds(name, value, zero=False)
        if self.gone_s <= self.alive_s:
            raise InputError(
                f"gone_s is {self.gone_s:g}, and alive_s {self.alive_s:g}: a member must be missed for longer than it may be silent"
            )


@dataclass(frozen=True)
class GroupMember:
    """A member of a group, as its arguments say. `ConsumerGroup` tells what each of them is."""

    name: str
    weight: float = 1.0
    lanes: int = 1
    prefetch: int = 32
    retries: int = 5
    backoff_s: float = 0.2
    on_failure: OnFailure = "stop"
    on_gained: Hook | None = None
    on_lost: Hook | None = None
    pace: GroupPace = field(default_factory=GroupPace)
    journal: str | None = JOURNAL

    def __post_init__(self) -> None:
        name, weight = self.name, self.weight
        if not isinstance(name, str) or not 0 < len(name.encode(errors="replace")) <= _LONGEST_NAME:
            raise InputError(
                f"member is {name!r:.60}: give text of 1 to {_LONGEST_NAME} bytes, such as the name of the pod"
            )
        if not is_finite(weight) or weight <= 0:
            raise InputError(f"weight is {weight!r}: give a finite number, more than 0")
        check_whole("lanes", self.lanes, 1, _MOST_LANES)
        check_whole("prefetch", self.prefetch, self.lanes, _MOST_PREFETCH)
        check_whole("retries", self.retries, 0, 1 << 31)
        check_seconds("backoff_s", self.backoff_s)
        if self.on_failure not in get_args(OnFailure):
            raise InputError(f"on_failure is {self.on_failure!r}: give 'stop' or 'dead-letter'")

    def delay_s(self, attempts: int) -> float:
        """Return the seconds to wait when some attempts, 1 or more, have failed."""
        return Backoff(self.backoff_s, _LONGEST_BACKOFF_S).delay_s(attempts - 1)
