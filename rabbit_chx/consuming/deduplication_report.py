"""What a de-duplicator has done, and how far back it knows."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DeduplicationReport"]


@dataclass(frozen=True, slots=True)
class DeduplicationReport:
    """The counts of a de-duplicator, as they are now.

    Attributes:
        effects: how many effects it has run to their end.
        repeats: how many messages it has recognized as repeats, and not handled.
        failures: how many messages ended in an error, mostly of their effect. Their ids are not kept.
        forgotten: how many ids it has dropped to stay in its bounds. A repeat that comes later is handled again.
        ids: how many ids it keeps.
        reaches_back_s: the age of the oldest id that it keeps, in seconds; None where it keeps none.
    """

    effects: int
    repeats: int
    failures: int
    forgotten: int
    ids: int
    reaches_back_s: float | None

    def __str__(self) -> str:
        back = "" if self.reaches_back_s is None else f", back to {self.reaches_back_s:,.0f} s ago"
        return (
            f"{self.effects:,} effects, {self.repeats:,} repeats, {self.failures:,} failures; "
            f"{self.ids:,} ids kept{back}, {self.forgotten:,} forgotten"
        )
