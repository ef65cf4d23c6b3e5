"""The chi-square test: its tail, its thresholds, and the plugin's table."""

from __future__ import annotations

from typing import Any

import pytest
import scipy  # type: ignore[import-untyped]  # it has no types of its own, and loads stats when it is used
from hypothesis import given, settings
from hypothesis import strategies as st

from rabbit_chx.analysis import (
    PUBLISHED,
    chi_square,
    chi_square_of_keys,
    chi_square_tail,
    chi_square_threshold,
    count_keys,
    uniformity,
    uniformity_table,
)
from rabbit_chx.errors import EmptyRingError, InputError
from rabbit_chx.routing import HashRing

RING = HashRing.from_bindings([("q1", 1), ("q2", 2), ("q3", 3)])
KEYS = [f"key-{n}" for n in range(6000)]


@settings(max_examples=500)
@given(degrees=st.integers(1, 10_000), ratio=st.floats(0, 4))
def test_the_tail_is_that_of_scipy(degrees: int, ratio: float) -> None:
    expected = float(scipy.stats.chi2.sf(degrees * ratio, degrees))
    assert chi_square_tail(degrees * ratio, degrees) == pytest.approx(expected, rel=1e-9, abs=1e-300)


@settings(max_examples=100)
@given(degrees=st.integers(1, 10_000), p=st.floats(1e-9, 1 - 1e-9))
def test_the_threshold_is_that_of_scipy(degrees: int, p: float) -> None:
    assert chi_square_threshold(p, degrees) == pytest.approx(
        float(scipy.stats.chi2.isf(p, degrees)), rel=1e-6
    )


def test_the_ends_of_the_tail() -> None:
    assert chi_square_tail(0, 3) == 1
    assert chi_square_tail(float("inf"), 3) == 0
    assert chi_square_tail(1e6, 3) == 0


@pytest.mark.parametrize(
    ("statistic", "degrees"),
    [(-1, 3), (float("nan"), 3), (1, 0), (1, float("nan")), (1, 1.5), (1, True), (1e10, 10**10)],
)
def test_the_tail_refuses_what_has_none(statistic: float, degrees: Any) -> None:
    with pytest.raises(InputError):
        chi_square_tail(statistic, degrees)


@pytest.mark.parametrize("p", [0, 1, -0.1, 2])
def test_the_threshold_refuses_what_is_no_probability(p: float) -> None:
    with pytest.raises(InputError, match=r"between 0 and 1"):
        chi_square_threshold(p, 3)


def test_the_test_is_that_of_scipy() -> None:
    counts, shares = count_keys(KEYS, RING), RING.shares()
    expected = scipy.stats.chisquare(list(counts.values()), [len(KEYS) * share for share in shares.values()])
    result = chi_square(counts, shares)
    assert result.statistic == pytest.approx(float(expected.statistic))
    assert result.p_value == pytest.approx(float(expected.pvalue))
    assert result.degrees_of_freedom == 2
    assert result.threshold(0.05) == pytest.approx(5.991, abs=1e-3)
    assert not result.rough
    assert result.smallest_expected == len(KEYS) * min(shares.values())


def test_a_key_that_comes_often_is_one_draw() -> None:
    assert chi_square_of_keys([*KEYS, *["hot"] * 5000], RING) == chi_square_of_keys([*KEYS, "hot"], RING)


def test_keys_that_favour_a_queue_are_found_out() -> None:
    favoured = [key for key in KEYS if RING.destination_for(key) != "q1"]
    assert chi_square_of_keys(favoured, RING).p_value < 1e-9


def test_few_keys_make_a_rough_test() -> None:
    assert chi_square_of_keys(KEYS[:10], RING).rough


@pytest.mark.parametrize(("keys", "rough"), [(19, True), (20, False)])
def test_five_expected_keys_are_enough(keys: int, rough: bool) -> None:  # noqa: FBT001
    result = chi_square({"q1": keys}, {"q1": 0.75, "q2": 0.25})
    assert (result.smallest_expected, result.rough) == (keys / 4, rough)


def test_one_destination_leaves_nothing_to_test() -> None:
    result = chi_square_of_keys(KEYS, HashRing.from_bindings([("q", 3)]))
    assert (result.statistic, result.degrees_of_freedom, result.p_value) == (0, 0, 1)
    assert result.threshold(0.05) is None


def test_holes_count_as_a_place() -> None:
    ring = HashRing.from_buckets(["a", None, "b", "c"])
    counts = count_keys(KEYS, ring)
    assert counts[None] == sum(ring.destination_for(key) is None for key in KEYS)
    assert sum(counts.values()) == len(KEYS)
    assert ring.shares()["c"] == 0  # three buckets count, and c stands fourth
    assert chi_square(counts, ring.shares()).degrees_of_freedom == 2


def test_what_cannot_be_tested() -> None:
    with pytest.raises(InputError, match="no keys"):
        chi_square({"q1": 0}, RING.shares())
    with pytest.raises(InputError, match="other, which has no share"):
        chi_square({"other": 3}, RING.shares())
    with pytest.raises(EmptyRingError):
        count_keys(KEYS, HashRing.from_buckets([]))


def test_a_tail_that_takes_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uniformity, "_MAX_TERMS", 10)
    for statistic in (900, 1100):
        with pytest.raises(InputError, match="takes too long"):
            chi_square_tail(statistic, 1000)


def test_the_tail_of_the_most_degrees_of_freedom() -> None:
    for ratio in (0.999, 1, 1.001):
        expected = float(scipy.stats.chi2.sf(uniformity._MAX_DEGREES * ratio, uniformity._MAX_DEGREES))
        assert chi_square_tail(uniformity._MAX_DEGREES * ratio, uniformity._MAX_DEGREES) == pytest.approx(
            expected, rel=1e-5
        )


@pytest.mark.parametrize("count", [-1, 1.5, float("nan"), True])
def test_a_count_is_a_whole_number(count: Any) -> None:
    with pytest.raises(InputError, match="whole number, 0 or more"):
        chi_square({"q1": 5, "q2": count}, RING.shares())


@pytest.mark.parametrize("share", [-0.1, 1.5, float("nan")])
def test_a_share_is_a_part_of_one(share: float) -> None:
    with pytest.raises(InputError, match="no part of 1"):
        chi_square({"q1": 5}, {"q1": 1, "q2": share})


def test_the_table_has_the_rows_of_the_plugin_and_no_statistic_that_chance_would_not_give() -> None:
    rows = uniformity_table()
    assert [row.buckets for row in rows] == list(range(2, 21))
    assert all(row.published == PUBLISHED[row.buckets] for row in rows)
    assert all(row.result.statistic < row.threshold_05 for row in rows)
    assert [round(row.result.statistic, 3) for row in rows[:4]] == [1.063, 0.457, 2.923, 4.699]


def test_the_published_thresholds_are_ours_but_for_the_known_slips() -> None:
    close = {
        row.buckets
        for row in uniformity_table(KEYS)
        if row.published.threshold_05 == pytest.approx(row.threshold_05, abs=0.02)
        and row.published.threshold_01 == pytest.approx(row.threshold_01, abs=0.02)
    }
    assert set(PUBLISHED) - close == {5, 18, 19, 20}


def test_the_published_statistics_stay_under_the_true_thresholds_too() -> None:
    assert all(row.published.statistic < row.threshold_05 for row in uniformity_table(KEYS))
