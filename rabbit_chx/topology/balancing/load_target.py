"""How much of the load a queue may have."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self

from rabbit_chx.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["LoadTarget"]

_PERCENT = 100.0
_TEXT = re.compile(r"([0-9]+(?:\.[0-9]+)?)(%?)", re.ASCII)


@dataclass(frozen=True, slots=True)
class LoadTarget:
    """How much of the load a queue may have.

    A factor is over the part that is due to a queue by its weight: with four queues of one weight 1.2 is 30 % of the load. A
    share is of the whole load, and the same for each queue, whatever its weight.

    Attributes:
        value: the factor, such as 1.2, or the share, such as 0.3.
        kind: which of both it is.

    Raises:
        InputError: the value is not above 0, or a share is above 1.
    """

    value: float
    kind: Literal["factor", "share"] = "factor"

    def __post_init__(self) -> None:
        if self.kind not in ("factor", "share"):
            raise InputError(f"{self.kind!r:.40} is no kind of target: give 'factor' or 'share'")
        if not 0 < self.value < float("inf") or (self.kind == "share" and self.value > 1):
            raise InputError(
                f"the target {self.value!r:.40} is no {self.kind}: give a factor such as 1.2, or a share such as 0.3"
            )

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Return the target of a text: ``1.2`` is a factor, ``30%`` a share.

        Args:
            text: the text.

        Raises:
            InputError: it is neither.
        """
        found = _TEXT.fullmatch(text.strip())
        if found is None:
            raise InputError(
                f"the target {text!r:.40} is none: give a factor such as 1.2, or a share of the load such as 30%"
            )
        number = float(found[1])
        return cls(number / _PERCENT, "share") if found[2] else cls(number)

    def __str__(self) -> str:
        return f"{self.value:.10g}" if self.kind == "factor" else f"{self.value * _PERCENT:.10g}%"

    def limits(self, weights: Mapping[str, int], load: float) -> dict[str, float]:
        """Return the load that each queue may have.

        Args:
            weights: the weight of each queue.
            load: the load of all of them.
        """
        total = sum(weights.values())
        parts = {queue: weight / total if self.kind == "factor" else 1.0 for queue, weight in weights.items()}
        return {queue: self.value * part * load for queue, part in parts.items()}
