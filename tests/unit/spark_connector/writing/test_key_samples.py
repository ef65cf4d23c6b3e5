"""Whether partitions share keys, by samples of them."""

from __future__ import annotations

import pickle

import pyarrow as pa

from spark_connector.writing.preflight import add_to_sample, count_split_keys


def sample(keys: range, *, batch: int = 3_000) -> bytes:
    found = b""
    for at in range(0, len(keys), batch):
        part = pa.array([b"%d" % key for key in keys[at : at + batch]] * 2, pa.binary())
        found = add_to_sample(found, part)
    return found


def test_few_keys_are_all_compared() -> None:
    assert count_split_keys([sample(range(10)), sample(range(10, 30))]) == (30, 0, True)
    assert count_split_keys([sample(range(10)), sample(range(8, 30))]) == (30, 2, True)
    assert count_split_keys([]) == (0, 0, True)
    assert count_split_keys([sample(range(5)), b""]) == (5, 0, True)


def test_of_many_keys_a_sample_that_both_partitions_have_whole() -> None:
    several = [sample(range(20_000)), sample(range(20_000, 50_000)), sample(range(50_000, 50_005))]
    compared, split, has_all = count_split_keys(several)
    assert (split, has_all) == (0, False)
    assert compared > 1_000
    assert count_split_keys([sample(range(20_000)), sample(range(20_000))]) == (1_000, 1_000, False)
    compared, _, _ = count_split_keys([sample(range(1_100)), sample(range(100_000))])
    assert compared < 1_050  # up to the hash that the sample of the larger one reaches
    compared, split, _ = count_split_keys([sample(range(20_000)), sample(range(10_000, 30_000))])
    assert 0.2 < split / compared < 0.5  # a third of the keys are in both


def test_a_partition_of_as_many_keys_as_a_sample_is_compared_as_a_whole() -> None:
    assert count_split_keys([sample(range(1_000)), sample(range(999, 1_500))]) == (1_500, 1, True)
    assert count_split_keys([sample(range(1_001)), b""])[::2] == (1_000, False)


def test_a_sample_is_small_and_detects_a_constant_key() -> None:
    assert len(pickle.dumps(sample(range(100_000)))) < 8_300
    assert count_split_keys([add_to_sample(b"", [b"k"] * 5)] * 2) == (1, 1, True)
