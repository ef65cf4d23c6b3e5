"""What one member of a group is, as a value."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from rabbit_chx.checks import is_finite
from rabbit_chx.consuming.group_pace import GroupPace
from rabbit_chx.consuming.handling import Handling
from rabbit_chx.consuming.journal_entry import JOURNAL
from rabbit_chx.errors import InputError

__all__ = ["GroupMember"]

_LONGEST_NAME = 100


@dataclass(frozen=True)
class GroupMember:
    """A member, and how it handles messages.

    Attributes:
        name: its name, 1 to 100 bytes.
        weight: how much it takes, beside the other members.
        handling: how it handles messages.
        pace: the times of the group.
        hooks: the user's hooks, by ``gained`` and ``lost``.
        journal: the stream that is the journal; None for none.
    """

    name: str
    weight: float = 1.0
    handling: Handling = field(default_factory=Handling)
    pace: GroupPace = field(default_factory=GroupPace)
    hooks: Mapping[str, Callable[[str], Awaitable[None]] | None] = field(default_factory=dict)
    journal: str | None = JOURNAL

    def __post_init__(self) -> None:
        name, weight = self.name, self.weight
        if not isinstance(name, str) or not 0 < len(name.encode(errors="replace")) <= _LONGEST_NAME:
            raise InputError(
                f"member is {name!r:.60}: give text of 1 to {_LONGEST_NAME} bytes, such as the name of the pod"
            )
        if not is_finite(weight) or weight <= 0:
            raise InputError(f"weight is {weight!r}: give a finite number, more than 0")
