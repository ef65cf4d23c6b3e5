"""The records of `make long WHAT=fire`, their totals in docs/guarantees.md, and the table of runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import guarantees
import pytest
from guarantees import RESULTS, read_records, replace_records

#: A record of Publisher on 4.3, and one that it does not replace.
RECORD = next(
    one for one in read_records(RESULTS) if one.path == "Publisher" and one.release.startswith("4.3.")
)
OTHER = replace(RECORD, release="3.10.0", path="Spark batch", lost=2, recover_s=None)


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
    monkeypatch.setattr(guarantees, "_records", guarantees._records.__wrapped__)
    replace_records(file, [replace(RECORD, test="tests/fire/test_nothing.py::test_gone")])
    with pytest.raises(SystemExit, match=r"test_gone, which does not exist: remove these lines"):
        guarantees.runs()
