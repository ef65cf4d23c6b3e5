"""`rabbit-chx replay`: the fields of a row, the exchange that is read, and what is said without rows."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from command_line import Ran

from rabbit_chx.cli import replay
from rabbit_chx.cli.replay import ReplayedRow, no_rows_text
from rabbit_chx.routing import HashRing

NOW = datetime(2026, 11, 22, 18, tzinfo=UTC)
READ = HashRing.from_buckets(["s0", "s1"])


def test_the_fields_of_a_row_and_its_json() -> None:
    row = ReplayedRow("s0", 3, datetime(2026, 11, 22, 10, 0, 0, 5_000, UTC), b"user\t7", b"\xff\x00")
    assert dict(row.as_row()) == {
        "stream": "s0", "offset": "3", "time": "2026-11-22T10:00:00.005Z", "key": "user\t7", "value": "base64:/wA=",
    }  # fmt: skip
    assert row.as_json() == {
        "format": "rabbit-chx/row", "format_version": 1, "stream": "s0", "offset": 3,
        "timestamp": "2026-11-22T10:00:00.005Z", "key": "user\t7", "value_base64": "/wA=",
    }  # fmt: skip


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
    assert [len(rows) for rows in replay._records(batches, shown)] == [2, 3]
    assert shown == {"s0": 5}


def test_a_replay_reads_the_rows_of_the_exchange_that_they_were_published_to(
    ran: Ran, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[str] = []

    def read(*_: object, exchange: str, **__: object) -> tuple[()]:
        asked.append(exchange)
        return ()

    monkeypatch.setattr("rabbit_chx.streams.replay", read)
    ring = tmp_path / "ring.json"
    ring.write_text(READ.to_json())
    command = ("replay", "k", "--exchange", "orders", "--ring", str(ring), "--url", "rabbitmq-stream://h")
    for more, exchange in (((), "orders"), (("--published-to", "former"), "former")):
        code, _, errors = ran(*command, *more)
        assert (code, asked.pop()) == (0, exchange), errors
        assert "no rows with the key 'k'" in errors
