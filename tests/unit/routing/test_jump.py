"""The jump hash, walked and looked up."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbit_chx.errors import InputError
from rabbit_chx.routing import jump, jump_consistent_hash
from rabbit_chx.routing.arrays.seeds import all_buckets, buckets_of_seeds
from rabbit_chx.routing.jump import bucket_of_seed, seed_of


def test_a_list_stands_for_its_head_and_the_empty_list_for_itself() -> None:
    assert seed_of([["a", "x"], "b"]) == seed_of("a")
    assert seed_of([[], "b"]) == seed_of([]) == 113427502 & 0x1FFFFF


def test_with_one_bucket_nothing_is_hashed() -> None:
    assert jump_consistent_hash(object(), 1) == 0  # type: ignore[arg-type]


@pytest.mark.parametrize("buckets", [0, -1, 1.5, True, "2", None])
def test_a_bucket_count_is_a_number_from_1(buckets: Any) -> None:
    with pytest.raises(InputError, match="bucket count"):
        jump_consistent_hash("k", buckets)


@given(st.integers(), st.integers(1, 2**40))
def test_only_21_bits_of_an_integer_matter(value: int, buckets: int) -> None:
    assert jump_consistent_hash(value, buckets) == jump_consistent_hash(value % 2**21, buckets)


@given(st.binary(), st.integers(1, 2**40))
def test_one_bucket_more_moves_keys_to_it_alone(key: bytes, buckets: int) -> None:
    before, after = jump_consistent_hash(key, buckets), jump_consistent_hash(key, buckets + 1)
    assert 0 <= before < buckets
    assert after in (before, buckets)


@pytest.mark.parametrize("buckets", [1, 2, 255, 256, 65_535, 65_536, 1_000_000])
def test_a_table_holds_what_is_walked(buckets: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jump, "opened", {})
    seeds = np.random.default_rng(1).integers(0, 2**21, 2_000).astype(np.uint32)
    walked = [bucket_of_seed(int(seed), buckets) for seed in seeds]
    assert not jump.opened
    jump.open_table(buckets)
    for _ in range(2):  # the second time each seed is known
        assert [bucket_of_seed(int(seed), buckets) for seed in seeds] == walked
    monkeypatch.setattr(jump, "opened", {})
    assert buckets_of_seeds(seeds, buckets).tolist() == walked
    assert [bucket_of_seed(int(seed), buckets) for seed in seeds] == walked


def test_tables_are_few_and_the_one_least_asked_for_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jump, "opened", {})
    first = jump.open_table(1)
    for buckets in range(2, jump.MAX_TABLES + 1):
        jump.open_table(buckets)
    assert jump.open_table(1) is first
    jump.open_table(1000)
    assert len(jump.opened) == jump.MAX_TABLES
    assert jump.opened.get(1) is first
    assert jump.opened.get(2) is None


def test_threads_fill_one_table_with_the_same_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = all_buckets(37)
    monkeypatch.setattr(jump, "opened", {})
    seeds = np.random.default_rng(2).integers(0, 2**21, 40_000).astype(np.uint32)
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: buckets_of_seeds(seeds, 37), range(16)))
    assert all((answer == alone[seeds]).all() for answer in answers)


@pytest.mark.parametrize(("buckets", "bytes_"), [(255, 1), (256, 2), (65_535, 2), (65_536, 4)])
def test_no_bucket_is_the_mark_of_a_cell_that_is_not_filled(buckets: int, bytes_: int) -> None:
    cells, unfilled = jump.open_table(buckets)
    assert cells.itemsize == bytes_
    assert unfilled >= buckets
