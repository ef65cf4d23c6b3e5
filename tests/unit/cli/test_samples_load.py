"""The load of slots by a sample of keys."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rabbit_chx import ExchangeRef, HashRing, SlotTable
from rabbit_chx.analysis import SlotLoad
from rabbit_chx.cli.samples import parse_keys, read_load
from rabbit_chx.errors import InputError

SLOTS = [ExchangeRef(f"events.slot.{n:02}") for n in range(8)]
TABLE = SlotTable(HashRing.from_buckets(SLOTS), {slot: f"events.{n % 2 + 1}" for n, slot in enumerate(SLOTS)})


def counted(keys: str | Path, **arguments: str) -> SlotLoad:
    return read_load(parse_keys(str(keys)), arguments, TABLE)


def test_a_range_makes_the_sample_that_a_file_of_its_keys_is(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("".join(f"user-{n}\n" for n in range(50)))
    made, read = counted("user-{0..49}"), counted(path)
    assert replace(made, source=read.source) == read
    assert made.source == "user-{0..49}"
    path.write_text("")
    with pytest.raises(InputError, match="has no keys, or all counts are 0"):
        counted(path)
