"""The settings of a group member."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from rabbit_chx.checks import check_seconds, check_whole, is_finite
from rabbit_chx.consuming.journal import JOURNAL
from rabbit_chx.consuming.message import GroupMessage
from rabbit_chx.errors import InputError
from rabbit_chx.retry import Backoff

OnFailure: TypeAlias = Literal["stop", "dead-letter"]
Hook: TypeAlias = Callable[[str], Awaitable[None]]

_MAX_NAME_BYTES = 100
_MAX_LANES = 256
_MAX_PREFETCH = 1000
_MAX_BACKOFF_S = 30.0


@dataclass(frozen=True)
class GroupPace:
    """Intervals and time limits of a group. All members of a group should have the same.

    Attributes:
        settle_s: seconds for which a member must be healthy before it takes its share of the queues. A member in a crash loop never reaches
            that, so it takes no queue from another.
        alive_s: seconds between two heartbeats in the journal.
        gone_s: seconds without a heartbeat after which the other members reassign the queues. The broker delivers the queues of a dead
            member to waiting members long before.
        watch_s: seconds between two checks of idle queues.
        hook_s: time limit of a hook, in seconds.
        stop_s: time limit for the messages in progress when the group stops, in seconds. Then their handlers are cancelled.
        journal_s: time limit until a claim is read back from the journal, in seconds.
        loop_timeout_s: seconds without an answer of the event loop, such as while a handler blocks it, after which a member gives up its
            queues. A `StreamGroup` does so itself; the connections of a `ConsumerGroup` are closed by the broker, after two missed
            heartbeats. When the loop answers again, the member joins again. It counts as unhealthy after `gone_s`.
        park_s: seconds without a parked message after which a member stops waiting for the end of a slot's hand-over, because the process
            that moved the slot has died. The messages of the queue wait meanwhile.
    """

    settle_s: float = 5.0
    alive_s: float = 3.0
    gone_s: float = 10.0
    watch_s: float = 15.0
    hook_s: float = 10.0
    stop_s: float = 30.0
    journal_s: float = 30.0
    loop_timeout_s: float = 60.0
    park_s: float = 30.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            check_seconds(name, value, zero=False)
        if self.gone_s <= self.alive_s:
            raise InputError(
                f"gone_s is {self.gone_s:g}, and alive_s {self.alive_s:g}: gone_s must be longer than alive_s"
            )


@dataclass(frozen=True)
class GroupMember:
    """The validated arguments of a `ConsumerGroup`, which documents them."""

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
    group: str = ""  # of a `StreamGroup`
    observe: Callable[[GroupMessage], None] | None = None  # called with each message that was handled

    def __post_init__(self) -> None:
        name = self.name
        if not isinstance(name, str) or not 0 < len(name.encode(errors="replace")) <= _MAX_NAME_BYTES:
            raise InputError(
                f"member is {name!r:.60}: give text of 1 to {_MAX_NAME_BYTES} bytes, such as the name of the pod"
            )
        if not is_finite(self.weight) or self.weight <= 0:
            raise InputError(f"weight is {self.weight!r}: give a finite number, more than 0")
        check_whole("lanes", self.lanes, 1, _MAX_LANES)
        check_whole("prefetch", self.prefetch, self.lanes, _MAX_PREFETCH)
        check_whole("retries", self.retries, 0, 1 << 31)
        check_seconds("backoff_s", self.backoff_s)
        if self.on_failure not in get_args(OnFailure):
            raise InputError(f"on_failure is {self.on_failure!r}: give 'stop' or 'dead-letter'")

    def retry_delay_s(self, attempts: int) -> float:
        """Return the delay before the next attempt, in seconds, after 1 or more failed attempts."""
        return Backoff(self.backoff_s, _MAX_BACKOFF_S).delay_s(attempts - 1)
