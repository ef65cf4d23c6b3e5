"""Shares and counts in words, the same in every finding and report."""

from __future__ import annotations

__all__ = ["percent", "plural"]

_LEAST_SHOWN = 0.000005


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
