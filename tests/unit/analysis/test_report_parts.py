"""The words and tables that commands share; transcripts show all of them but the buckets of a destination."""

from __future__ import annotations

from rabbit_chx.analysis.reports import bucket_ranges


def test_separate_runs_of_buckets_are_distinguished() -> None:
    places = enumerate(["a", "a", "b", None, "a", "a", "a"])
    assert bucket_ranges(places) == {"a": "0-1, 4-6", "b": "2", None: "3"}
