"""The tables of seeds: filled on demand, few, and shared by threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from rabbit_chx.routing import arrays, bucket_of_seed, jump


@pytest.mark.parametrize("buckets", [1, 2, 255, 256, 65_535, 65_536, 1_000_000])
def test_a_table_holds_what_is_walked(buckets: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jump, "opened", {})
    seeds = np.random.default_rng(1).integers(0, 2**21, 2_000).astype(np.uint32)
    walked = [bucket_of_seed(int(seed), buckets) for seed in seeds]
    assert not jump.opened
    assert arrays.buckets_of_seeds(seeds, buckets).tolist() == walked
    assert [bucket_of_seed(int(seed), buckets) for seed in seeds] == walked


def test_tables_are_few_and_the_one_least_asked_for_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jump, "opened", {})
    first = jump.open_table(1)
    for buckets in range(2, jump.MAX_TABLES + 1):
        jump.open_table(buckets)
    assert jump.open_table(1) is first
    jump.open_table(1000)
    assert len(jump.opened) == jump.MAX_TABLES
    assert jump.table_of(1) is first
    assert jump.table_of(2) is None


def test_threads_fill_one_table_with_the_same_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = arrays.all_buckets(37)
    monkeypatch.setattr(jump, "opened", {})
    seeds = np.random.default_rng(2).integers(0, 2**21, 40_000).astype(np.uint32)
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: arrays.buckets_of_seeds(seeds, 37), range(16)))
    assert all((answer == alone[seeds]).all() for answer in answers)
