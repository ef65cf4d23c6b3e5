"""The records of `make long WHAT=fire`, their totals in docs/guarantees.md, and the table of runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import guarantees
import pytest
from guarantees import FireRecord, read_records, replace_records

RECORD = FireRecord(
    path="Publisher",
    fault="the line breaks",
    promise="Every row is confirmed.",
    release="4.3.6",
    test="tests/unit/packaging/test_guarantees.py::test_a_record_replaces_the_older_one_and_has_only_the_measured_fields[x]",
    rows=1_000,
    confirmed=1_000,
    lost=0,
    repeated=3,
    out_of_order=None,
    wrong_queue=0,
    recover_s=0.25,
    outcome="complete",
    seconds=9.5,
    date="2026-01-31",
    machine="4 cores, 16 GiB",
)
OTHER = replace(RECORD, release="3.10.8", path="Spark batch", lost=2, recover_s=None)


def test_a_record_replaces_the_older_one_and_has_only_the_measured_fields(tmp_path: Path) -> None:
    file = tmp_path / "figures" / "records.jsonl"
    assert read_records(file) == []
    replace_records(file, [RECORD, OTHER])
    replace_records(file, [replace(RECORD, rows=7)])
    assert read_records(file) == [OTHER, replace(RECORD, rows=7)]
    group = replace(RECORD, path="StreamGroup", test="a", group_pause_s=0.5, overlap_s=0.0)
    replace_records(file, [group], gone=[OTHER.place])
    assert read_records(file) == [group, replace(RECORD, rows=7)]
    (of_group, of_publisher) = file.read_text().splitlines()
    assert '"group_pause_s": 0.5, "overlap_s": 0.0}' in of_group
    assert "_pause_s" not in of_publisher


def test_a_record_of_a_test_that_does_not_exist(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    monkeypatch.setattr(guarantees, "RESULTS", file)
    guarantees._records.cache_clear()
    try:
        replace_records(file, [replace(RECORD, test="tests/fire/test_nothing.py::test_gone")])
        with pytest.raises(SystemExit, match=r"test_gone, which does not exist: remove these lines"):
            guarantees.runs()
    finally:
        guarantees._records.cache_clear()
