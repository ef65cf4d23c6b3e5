"""Shares, counts and destinations in words, the same in every finding and report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from rabbit_chx.routing.bindings import Place

_LEAST_SHOWN = 0.000005
_NOWHERE = "(nowhere)"


def percent(share: float) -> str:
    """Return a share in percent; a share above 0 is never shown as 0.

    Args:
        share: the share, 0 to 1.
    """
    return "<0.001%" if 0 < share < _LEAST_SHOWN else f"{share:.3%}"


def plural(count: int, what: str) -> str:
    """Return a count and a noun, such as ``2 buckets``.

    Args:
        count: the number.
        what: the noun in the singular; its plural ends in s.
    """
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def listed(texts: Sequence[str], most: int, separator: Literal[",", ";"] = ",") -> str:
    """Return the first of some texts, and how many more there are, such as ``a, b and 3 more``.

    Args:
        texts: the texts.
        most: how many of them to show.
        separator: what is between them; texts with commas of their own take a semicolon, before ``and`` too.
    """
    more = len(texts) - most
    rest = f"{'' if separator == ',' else separator} and {more:,} more" if more > 0 else ""
    return f"{separator} ".join(texts[:most]) + rest


def place_text(place: Place) -> str:
    """Return a destination's name; None, an unroutable message, is ``(nowhere)``."""
    return _NOWHERE if place is None else str(place)
