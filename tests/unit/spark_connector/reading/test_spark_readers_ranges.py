"""Ranges of offsets: nothing is left out or comes twice, and bounds are kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbit_chx.streams import Fingerprint
from spark_connector.reading.micro_batches import bound_bytes, bound_rows
from spark_connector.reading.spark_readers import Range, split

BEFORE = Fingerprint(7, 1, 2)
COUNTS = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 10**12), min_size=1)


def test_a_range_is_split_by_its_share() -> None:
    ranges = [Range("a", 10, 100, BEFORE), Range("b", 5, 5), Range("c", 0, 10)]
    assert split(ranges, None) == [ranges[0], ranges[2]]
    assert split(ranges, 2) == [ranges[0], ranges[2]]
    assert split(ranges, 4) == [
        Range("a", 10, 32, BEFORE),
        Range("a", 32, 55),
        Range("a", 55, 77),
        Range("a", 77, 100),
        Range("c", 0, 10),
    ]
    assert split([Range("a", 3, 5)], 10) == [Range("a", 3, 4), Range("a", 4, 5)]
    assert split([], 10) == []


@given(COUNTS, st.integers(1, 200))
def test_splits_are_whole(counts: dict[str, int], least: int) -> None:
    ranges = [Range(stream, 3, 3 + count) for stream, count in counts.items()]
    parts = split(ranges, least)
    assert len(parts) >= min(least, sum(counts.values()))
    for stream, count in counts.items():
        at = 3
        for part in parts:
            if part.stream == stream:
                assert part.start == at < part.end
                at = part.end
        assert at == 3 + count


@given(COUNTS, st.integers(1, 10**12))
def test_a_bound_is_reached_and_not_passed(counts: dict[str, int], most: int) -> None:
    found = bound_rows(counts, most)
    assert sum(found.values()) == min(most, sum(counts.values()))
    assert all(0 <= found[stream] <= count for stream, count in counts.items())


def test_a_bound_is_shared_by_what_streams_have() -> None:
    assert bound_rows({"a": 900, "b": 100, "c": 0}, 100) == {"a": 90, "b": 10, "c": 0}
    assert bound_rows({"a": 5, "b": 5}, 1) == {"a": 1, "b": 0}
    assert bound_rows({"a": 5}, 9) == {"a": 5}


@pytest.mark.parametrize(("most", "found"), [(10**6, 1_000), (5_000, 500), (1, 1)])
def test_a_bound_of_bytes(most: int, found: int) -> None:
    assert bound_bytes({"a": 1_000, "b": 0}, {"a": 10.0, "b": 0.0}, most) == {"a": found, "b": 0}
