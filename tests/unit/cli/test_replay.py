"""`rabbit-chx replay`: the fields of a row, and what is said without rows."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from rabbit_chx.cli import replay
from rabbit_chx.cli.replay import no_rows_text

NOW = datetime(2026, 11, 22, 18, tzinfo=UTC)


def test_the_fields_of_a_row_and_its_json() -> None:
    row = {
        "stream": "s0", "offset": 3, "timestamp": datetime(2026, 11, 22, 10, 0, 0, 5_000, UTC), "key": b"user\t7", "value": b"\xff\x00",
    }  # fmt: skip
    (batch,) = replay._records([pa.RecordBatch.from_pylist([row])], Counter())
    names = [column.heading for column in batch.table.columns]
    assert dict(zip(names, batch.table.rows[0], strict=True)) == {
        "stream": "s0", "offset": 3, "time": "2026-11-22T10:00:00.005Z", "key": "user\t7", "value": "base64:/wA=",
    }  # fmt: skip
    assert [*batch.as_json()] == [{
        "format": "rabbit-chx/row", "format_version": 1, "stream": "s0", "offset": 3,
        "timestamp": "2026-11-22T10:00:00.005Z", "key": "user\t7", "value_base64": "/wA=",
    }]  # fmt: skip


@pytest.mark.parametrize(
    ("keys", "counts", "says"),
    [
        (["k"], {"read": 1_000_000}, "no rows with the key 'k': 1,000,000 rows were read"),
        (["k", "l"], {"read": 1}, "no rows with one of the keys: 1 row was read"),
        (["k"], {}, "no rows with the key 'k': 0 rows were read"),
        (
            ["k"],
            {"read": 9, "other_exchange": 2},
            "no rows with the key 'k' were published to 'sales': 9 rows were read, and 2 with the key 'k' were published to another exchange: pass it with --published-to",
        ),
    ],
)
def test_a_replay_without_rows_reports_what_was_read(
    keys: list[str], counts: dict[str, int], says: str
) -> None:
    assert no_rows_text(keys, "sales", Counter(counts)) == says


def test_a_replay_counts_the_rows_of_all_batches() -> None:
    row = {"stream": "s0", "offset": 1, "timestamp": NOW, "key": b"k", "value": b"v"}
    batches = [pa.RecordBatch.from_pylist([row] * count) for count in (2, 3)]
    shown = Counter[str]()
    assert [len(batch.table.rows) for batch in replay._records(batches, shown)] == [2, 3]
    assert shown == {"s0": 5}
