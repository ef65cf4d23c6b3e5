"""Files of observed keys and queues."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from rabbit_chx.analysis.key_routing import Hashing
from rabbit_chx.cli.observations import ObservedOptions
from rabbit_chx.errors import InputError, NotDeterminedError
from rabbit_chx.routing.observations import Observation

WRITTEN = """key,queue,time,exchange
a,q1,2026-11-26T03:02:00Z,orders
a,q1,2026-11-26T03:02:01Z,orders
"b, c",q2,,orders
a,q2,2026-11-26T03:02:02Z,orders
d,q2,,audit
,q3,,orders
"""
PAIRS = [
    Observation("a", "q1", "2026-11-26T03:02:00Z", messages=2),
    Observation("b, c", "q2"),
    Observation("a", "q2", "2026-11-26T03:02:02Z"),
    Observation("", "q3"),
]


def read(
    path: Path, content: str | pa.Table, exchange: str = "orders", *columns: str, started: float | None = None
) -> list[Observation]:
    """Write a file of observations, and read it."""
    if isinstance(content, str):
        path.write_text(content)
    else:
        parquet.write_table(content, path)
    return ObservedOptions(f"{path}#{','.join(columns)}").read(exchange, Hashing(), started)


def test_each_pair_of_the_exchange_is_read_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "seen.csv"
    assert read(path, WRITTEN) == PAIRS
    assert "1 message of other exchanges left out ('audit'); if 'orders' gets" in capsys.readouterr().err
    assert Observation("d", "q2") in read(path, WRITTEN, "orders", "exchange=")
    with pytest.raises(InputError, match=r"seen\.csv has no key of the exchange 'bills'"):
        read(path, WRITTEN, "bills")


def test_pairs_from_before_a_restart_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "seen.csv"
    later = WRITTEN + "e,q1,2026-11-26 03:02:01,orders\nf,q1,yesterday,orders\n"
    found = read(path, later, started=datetime(2026, 11, 26, 3, 2, 1, tzinfo=UTC).timestamp())
    assert [each.key for each in found] == ["a", "b, c", "a", "", "e", "f"]
    assert found[0].time == "2026-11-26T03:02:01Z"
    assert "1 message from before the last start of the broker left out" in capsys.readouterr().err
    early = "key,queue,time\na,q1,2026-11-26T03:02:00Z\nb,q2,2026-11-26T03:02:01Z\n"
    with pytest.raises(NotDeterminedError, match=r"all 2 messages of 'orders' .* are from before the last"):
        read(path, early, started=datetime(2026, 11, 26, 4, tzinfo=UTC).timestamp())


def test_columns_of_parquet_have_any_name_and_type(tmp_path: Path) -> None:
    path = tmp_path / "seen.parquet"
    table = {
        "user": pa.array([7, 8]),
        "to": pa.array(["q1", "q2"]).dictionary_encode(),
        "at": pa.array([datetime(2026, 11, 26, 3, 2, tzinfo=UTC), None]),
    }
    first, second = read(path, pa.table(table), "orders", "key=user", "queue=to", "time=at")
    assert (first.key, first.queue, str(first.time)[:16]) == ("7", "q1", "2026-11-26 03:02")
    assert second == Observation("8", "q2")
    options = ObservedOptions(f"{path}#key=user,queue=to")
    stamps = options.read("x", Hashing(hash_property="timestamp"))
    assert [each.key for each in stamps] == [7, 8]


@pytest.mark.parametrize("column", ["time", "exchange"])
def test_optional_columns_are_text(tmp_path: Path, column: str) -> None:
    path = tmp_path / "seen.parquet"
    for values in (pa.array([[1]]), pa.array([b"\xff"])):
        with pytest.raises(InputError, match=f"the column '{column}' of .*, which is no text"):
            read(path, pa.table({"key": ["a"], "queue": ["q1"], column: values}))
    keys, queues = pa.array(["a"], pa.string_view()), pa.array(["q1"], pa.large_string())
    views: dict[str, Any] = {"key": keys, "queue": queues, column: [None]}
    assert read(path, pa.table(views)) == [Observation("a", "q1")]


@pytest.mark.parametrize(
    ("name", "content", "columns", "message"),
    [
        ("f.csv", "key,destination\na,q1\n", (), "does not contain the column 'queue': it has key, destination; write .*#key=NAME,queue=NAME"),
        ("f.csv", "key,queue\na,q1\n", ("time=at",), "does not contain the column 'at'"),
        ("f.csv", "key,queue\na\n", (), "cannot be read: CSV parse error"),
        ("f.txt", "a q1\n", (), "is not a table: pass one as .csv or .parquet"),
        ("f.csv", "key,queue\na,q1\n", ("routing_key",), "names no column: write .*#key=NAME,queue=NAME"),
        ("f.csv", "key,queue\na,q1\n", ("key=",), "names no column"),
        ("f.csv", "key,queue\na,q1\n", ("key=queue",), "the column 'queue' belongs to key and queue"),
        ("f.csv", "key,queue\na,q1\nb,\n", (), "row 2 of .* has no queue"),
    ],
)  # fmt: skip
def test_mistakes_are_named(
    tmp_path: Path, name: str, content: str, columns: tuple[str, ...], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        read(tmp_path / name, content, "x", *columns)
