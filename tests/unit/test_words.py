"""Shares and counts in words."""

from __future__ import annotations

from rabbit_chx.words import percent, plural


def test_a_positive_share_is_never_shown_as_zero() -> None:
    assert [percent(share) for share in (0, 1e-9, 0.5, 1)] == ["0.000%", "<0.001%", "50.000%", "100.000%"]
    assert [percent(share, 1) for share in (0, 1e-4, 1e-3, 0.125)] == ["0.0%", "<0.1%", "0.1%", "12.5%"]


def test_counts_have_their_noun() -> None:
    assert [plural(count, "bucket") for count in (0, 1, 1000)] == ["0 buckets", "1 bucket", "1,000 buckets"]
