"""The records of `make fire`, their totals in docs/guarantees.md, and the table of runs."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import guarantees
import pytest
from fire_record import FireRecord, read_records, replace_records

RECORD = FireRecord(
    path="Publisher",
    fault="the line breaks",
    promise="Every row is confirmed.",
    release="4.3.6",
    test="tests/unit/packaging/test_guarantees.py::test_a_record_replaces_the_older_one[x]",
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
GROUP = replace(
    RECORD,
    path="ConsumerGroup",
    out_of_order=0,
    refused=2,
    queue_pause_s=21.8,
    group_pause_s=0.2,
    all_back_s=9.0,
)
OTHER = replace(RECORD, release="3.10.8", path="Spark batch", lost=2, recover_s=None)


def test_a_record_replaces_the_older_one(tmp_path: Path) -> None:
    file = tmp_path / "figures" / "records.jsonl"
    assert read_records(file) == []
    replace_records(file, [RECORD, OTHER])
    replace_records(file, [replace(RECORD, rows=7)])
    assert read_records(file) == [OTHER, replace(RECORD, rows=7)]
    replace_records(file, (), gone=[OTHER.place])
    assert read_records(file) == [replace(RECORD, rows=7)]


def test_a_publishers_record_has_no_figure_of_a_group(tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    replace_records(file, [RECORD, replace(GROUP, release="3.10.8")])
    assert "group_pause_s" not in file.read_text().splitlines()[1]
    assert read_records(file) == [replace(GROUP, release="3.10.8"), RECORD]


def test_processes_that_write_at_once(tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    records = [replace(RECORD, test=f"tests/t.py::test_{number:02}") for number in range(40)]
    with ProcessPoolExecutor(4, mp_context=get_context("spawn")) as pool:
        list(pool.map(replace_records, [file] * 40, [[record] for record in records]))
    assert read_records(file) == records


def test_totals_are_counted_for_each_subject() -> None:
    text = guarantees.measured([RECORD] * 100)
    assert "| Publisher | 100 | 100,000 | 0 | 300 | 0 | 0 |" in text
    assert "fewer than 3.0 % of such runs" in text
    assert "2 confirmed rows were lost." in guarantees.measured([RECORD, OTHER])
    text = guarantees.measured([GROUP, replace(RECORD, path="Spark stream, foreachBatch"), OTHER])
    assert "| Spark into queues | 2 | 2,000 | 2 |" in text
    assert "| ConsumerGroup | 1 | 1,000 |" in text


def test_runs_have_a_line_for_each_fault_and_release() -> None:
    records = [RECORD, replace(RECORD, release="3.10.8"), OTHER]
    text = guarantees.runs([*records, replace(RECORD, fault="a queue is deleted", gone=5, moved=1_007)])
    assert "| complete; 5 confirmed rows removed by the fault; 1,007 rows in another queue" in text
    assert (
        "| the line breaks | Every row is confirmed. | 4.3.6 | 1,000 | 1,000 | 0 | 3 |  | 0 | 0.2 | complete |"
        in text
    )
    assert "|  |  | 3.10.8 | 1,000 |" in text
    assert "## Spark batch\n" in text


def test_groups_have_columns_of_their_own() -> None:
    text = guarantees.runs([RECORD, GROUP])
    assert "## ConsumerGroup\n" in text
    assert "| 4.3.6 | 1,000 | 0 | 3 | 0 | 2 | 21.8 | 0.2 | 0.2 | 9.0 |" in text


def test_the_page_links_every_test_that_has_records() -> None:
    page = (guarantees.RESULTS.parents[1] / "guarantees.md").read_text(encoding="utf-8")
    files = {record.test.partition("::")[0] for record in read_records(guarantees.RESULTS)}
    assert {file for file in files if f"(../{file})" not in page} <= {"tests/fire/test_stream_soak.py"}


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
