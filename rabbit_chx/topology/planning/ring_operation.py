"""One operation on a ring: a bind or an unbind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from rabbit_chx.topology.objects import RingMember

__all__ = ["RingStep", "StepAction"]

StepAction: TypeAlias = Literal["bind", "unbind"]


@dataclass(frozen=True, slots=True)
class RingStep:
    """One operation on a ring.

    Attributes:
        action: ``bind`` or ``unbind``.
        member: the binding that is made or goes.
    """

    action: StepAction
    member: RingMember
