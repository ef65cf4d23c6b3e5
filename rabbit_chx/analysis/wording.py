"""Shares, counts and destinations in words, the same in every finding and report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from rabbit_chx.routing.bindings import Place

_LEAST_SHOWN = 0.000005
_NOWHERE = "(nowhere)"


def percent(share: float) -> str:
    """Return a share, 0 to 1, in percent; a share above 0 is never shown as 0."""
    return "<0.001%" if 0 < share < _LEAST_SHOWN else f"{share:.3%}"


def plural(count: int, what: str) -> str:
    """Return a count and a noun with the plural s, such as ``2 buckets``."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def listed(texts: Sequence[str], most: int, separator: Literal[",", ";"] = ",") -> str:
    """Return the first of some texts and the number of the others, such as ``a, b and 3 more``; use a semicolon for texts with commas."""
    more = len(texts) - most
    rest = f"{'' if separator == ',' else separator} and {more:,} more" if more > 0 else ""
    return f"{separator} ".join(texts[:most]) + rest


def place_text(place: Place) -> str:
    """Return a destination's name; None, an unroutable message, is ``(nowhere)``."""
    return _NOWHERE if place is None else str(place)
