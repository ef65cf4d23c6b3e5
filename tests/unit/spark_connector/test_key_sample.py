"""Samples of keys that tell whether a key is in two partitions."""

from __future__ import annotations

import pickle

import pyarrow as pa

from spark_connector.reports import KeySample, KeySampler, SplitKeys


def sample(keys: range, *, batch: int = 3_000) -> KeySample:
    sampler = KeySampler()
    for at in range(0, len(keys), batch):
        sampler.add(pa.array([b"%d" % key for key in keys[at : at + batch]] * 2, pa.binary()))
    return sampler.sample()


def test_few_keys_are_all_compared() -> None:
    assert SplitKeys.of([sample(range(10)), sample(range(10, 30))]) == SplitKeys(30, 0, complete=True)
    assert SplitKeys.of([sample(range(10)), sample(range(8, 30))]) == SplitKeys(30, 2, complete=True)
    assert SplitKeys.of([]) == SplitKeys(0, 0, complete=True)
    assert SplitKeys.of([sample(range(5)), KeySample()]) == SplitKeys(5, 0, complete=True)


def test_of_many_keys_a_sample_that_both_partitions_have_whole() -> None:
    apart = SplitKeys.of(
        [sample(range(20_000)), sample(range(20_000, 50_000)), sample(range(50_000, 50_005))]
    )
    assert apart.split == 0
    assert not apart.complete
    assert apart.compared > 1_000
    shared = SplitKeys.of([sample(range(20_000)), sample(range(20_000))])
    assert shared.split == shared.compared == 1_000
    few = SplitKeys.of([sample(range(1_100)), sample(range(100_000))])
    assert few.compared < 1_050  # up to the hash that the sample of the larger one reaches
    half = SplitKeys.of([sample(range(20_000)), sample(range(10_000, 30_000))])
    assert 0.2 < half.split / half.compared < 0.5  # a third of the keys are in both


def test_a_sample_is_small_and_knows_a_constant_key() -> None:
    assert len(pickle.dumps(sample(range(100_000)))) < 8_300
    sampler = KeySampler()
    sampler.add([b"k"] * 5)
    assert SplitKeys.of([sampler.sample(), sampler.sample()]) == SplitKeys(1, 1, complete=True)
