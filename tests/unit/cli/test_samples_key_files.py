"""Files of keys: text and tables."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from command_line import BIND
from pyarrow import parquet

from rabbit_chx.analysis import simulation
from rabbit_chx.cli import samples
from rabbit_chx.cli.samples import KeyFile
from rabbit_chx.errors import InputError, MissingExtraError

ROWS = [("a", 3), ("b, c", 1), ("", 0), ("7", 2)]
CSV = 'id,n,key\n1,3,a\n2,1,"b, c"\n3,0,\n4,2,7\n'


def _written(folder: Path, kind: str) -> Path:
    path = folder / f"keys.{kind}"
    if kind == "parquet":
        keys, counts = zip(*ROWS, strict=True)
        parquet.write_table(pa.table({"n": pa.array(counts), "key": pa.array(keys)}), path)
    else:
        path.write_text(CSV)
    return path


@pytest.mark.parametrize("kind", ["csv", "CSV", "parquet"])
def test_a_table_gives_its_keys_and_counts(tmp_path: Path, kind: str) -> None:
    batches = list(KeyFile(str(_written(tmp_path, kind)), "key=n").batches())

    assert [
        (key, n) for batch in batches for key, n in zip(batch.keys, batch.messages or (), strict=True)
    ] == ROWS
    assert [(batch.numbers, batch.unit) for batch in batches] == [(range(1, 5), "row")]


@pytest.mark.parametrize(
    ("values", "keys"),
    [
        (pa.array([7, -1]), ["7", "-1"]),
        (pa.array(["a", "b"], pa.large_string()), ["a", "b"]),
        (pa.array(["a", "b"]).dictionary_encode(), ["a", "b"]),
        (pa.array([b"a", b"b"]), ["a", "b"]),
    ],
    ids=["numbers", "large", "categories", "bytes"],
)
def test_keys_of_parquet_are_text_and_whole_numbers(
    tmp_path: Path, values: pa.Array[Any], keys: list[str]
) -> None:
    parquet.write_table(pa.table({"key": values, "n": pa.array([1.0, 2.0])}), tmp_path / "k.parquet")

    (batch,) = KeyFile(str(tmp_path / "k.parquet"), "key=n").batches()
    assert (batch.keys, batch.messages) == (keys, [1, 2])


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_table_without_column_is_refused_and_its_columns_are_named(tmp_path: Path, kind: str) -> None:
    path = _written(tmp_path, kind)

    with pytest.raises(InputError, match=r"has columns: pass --column NAME, one of (id, )?n, key$"):
        list(KeyFile(str(path)).batches())
    with pytest.raises(InputError, match=r"does not contain the column 'kye': it has (id, )?n, key$"):
        list(KeyFile(str(path), "kye").batches())


@pytest.mark.parametrize("name", ["k.jsonl", "k.tsv", "k.csv.gz", "k.xlsx"])
def test_a_suffix_that_is_not_known_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(CSV)

    for column in (None, "key"):
        with pytest.raises(InputError, match=r"has the suffix \.\w+: pass lines of text as .txt, or a table"):
            list(KeyFile(str(path), column).batches())


def test_lines_of_text_have_no_columns(tmp_path: Path) -> None:
    path = tmp_path / "keys.txt"
    path.write_text(CSV)

    with pytest.raises(InputError, match=r"contains lines, not the column 'key': pass a table as \.csv"):
        list(KeyFile(str(path), "key").batches())


def test_a_table_needs_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _written(tmp_path, "csv")
    monkeypatch.setitem(sys.modules, "pyarrow", None)

    with pytest.raises(MissingExtraError, match=r"needs pyarrow: .*, or pass lines"):
        list(KeyFile(str(path), "key").batches())


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("k.csv", "", "does not contain the column 'key': it has no columns"),
        ("k.csv", "key,n\na,x\n", "Row #1: .* invalid value 'x'"),
        ("k.csv", "key,n\na,\n", "row 1 of .* has null in the column 'n'"),
        ("k.csv", "key,n\na,-1\n", "invalid value '-1'"),
        ("k.csv", "n,key\n1,a\n1\n", "Row #2: Expected 2 columns, got 1"),
        ("k.csv", "key,n\na,b,1\n", "Row #1: Expected 2 columns, got 3"),
        ("k.csv", 'key,n\n"a\nb",1\n\nc,1_000\n', "Row #2: .* invalid value '1_000'"),
        ("k.csv", 'key,n\n"b,1\nc,1\n', "Row #1: Expected 2 columns, got 1"),
        ("k.csv", "key,n\ra,1\rb,2\r", "the key file .* cannot be read: new-line character"),
        ("k.csv", "key,n," + "x" * 200_000, "field larger than field limit"),
        ("k.csv", "key,key,n\na,b,1\n", "contains several columns 'key': name each differently"),
        ("k.csv", "key,n\na,\u0663\n", "Row #1: .* invalid value"),
        ("k.csv", "key,n\na,9223372036854775808\n", "the column 'n' of .* not in range"),
        ("k.csv", "key,n\na," + "9" * 400, "Row #1: .* invalid value '9+"),
        ("k.csv", "key,n\na,1\n\n\udcff,1\n", "Row #2: .* invalid UTF8 data"),
        ("k.csv", "k\udcff,n\na,1\n", "the key file .* cannot be read: .* codec"),
        ("k.parquet", "PAR1", "the key file .* cannot be read: "),
    ],
    ids=lambda text: text[:40],
)
def test_a_row_that_has_no_key_is_named(tmp_path: Path, name: str, content: str, says: str) -> None:
    path = tmp_path / name
    path.write_text(content, errors="surrogateescape")

    with pytest.raises(InputError, match=says) as caught:
        list(KeyFile(str(path), "key=n").batches())
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("values", "counts", "says"),
    [
        (
            pa.array([2**60], pa.timestamp("ms")),
            [1.0],
            r"the column 'key' of .* has the type timestamp\[ms\]: a key is text",
        ),
        (pa.array([True]), [1.0], "has the type bool: a key is text or an integer"),
        (pa.array(["a", None]), [1.0, 1.0], "row 2 of .* has null in the column 'key'"),
        (pa.array(["a", "b"]), [1.0, 0.5], "the column 'n' of .* cannot be read: .* 0.50* was truncated"),
        (pa.array(["a", "b"]), [1.0, -1.0], "the column 'n' of .* cannot be read: "),
        (pa.array([b"a", b"\xff"]), [1.0, 1.0], "the column 'key' of .* cannot be read: Invalid UTF8"),
    ],
    ids=["time", "flag", "null", "count", "negative", "bytes"],
)
def test_a_column_of_parquet_is_named(
    tmp_path: Path, values: pa.Array[Any], counts: list[float], says: str
) -> None:
    parquet.write_table(pa.table({"key": values, "n": pa.array(counts)}), tmp_path / "k.parquet")

    with pytest.raises(InputError, match=says):
        list(KeyFile(str(tmp_path / "k.parquet"), "key=n").batches())


@pytest.mark.parametrize("column", ["key", "key=n"])
def test_a_key_that_does_not_suit_is_named_by_its_row(
    ran: Callable[..., tuple[int, str, str]], tmp_path: Path, column: str
) -> None:
    path = tmp_path / "k.csv"
    path.write_text('key,n\n\n"1",2\n"x\n",1\n')
    hashed = ("--hash-header", "h:long")
    table = ("--keys", str(path), "--column", column)

    for command in (("simulate", *BIND), ("compare", *BIND, "--to-bind", "q=1")):
        code, _, said = ran(*command, *hashed, *table)
        assert (code, f"row 2 of {path}: " in said) == (2, True), said


def test_a_key_of_parquet_that_does_not_suit_is_named_by_its_row(
    ran: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    path = tmp_path / "k.parquet"
    parquet.write_table(pa.table({"key": pa.array(["a", "b" * 256])}), path)
    for command in (("route", *BIND), ("simulate", *BIND), ("compare", *BIND, "--to-bind", "q=1")):
        code, _, said = ran(*command, "--keys", str(path), "--column", "key")
        assert (code, f"row 2 of {path}: " in said) == (2, True), said


def test_rows_are_numbered_over_batches_of_any_length() -> None:
    batches = [pa.record_batch({"key": ["a"] * count}) for count in (3, 1, 2)]
    rows = [batch.numbers for batch in KeyFile("k.parquet", "key")._rows(batches, ["key"])]
    assert rows == [range(1, 4), range(4, 5), range(5, 7)]


def test_only_the_begin_of_a_file_has_a_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "_CHUNK_BYTES", 5)  # so that each line is read alone
    path = tmp_path / "keys"
    path.write_text("\ufeffa\n\ufeffb\n\ufeffc", encoding="utf-8")
    keys = [key for batch in KeyFile(str(path)).batches() for key in batch.keys]
    assert keys == ["a", "\ufeffb", "\ufeffc"]


@pytest.mark.parametrize("content", ["key,n\n\n\n", "key,n\na,0\n"])
def test_a_table_without_messages_is_refused(
    ran: Callable[..., tuple[int, str, str]], tmp_path: Path, content: str
) -> None:
    path = tmp_path / "k.csv"
    path.write_text(content)

    for command in (("simulate", *BIND), ("compare", *BIND, "--to-bind", "q=1")):
        code, _, said = ran(*command, "--keys", str(path), "--column", "key=n")
        assert (code, "has no keys, or all counts are 0" in said) == (2, True)


def test_a_slow_pipe_of_lines_is_read_line_by_line(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    long = "a" * (1 << 21)  # more than is read at once
    content = f"{long}\nb\n".encode()

    def write() -> None:
        with pipe.open("wb", buffering=0) as file:
            for part in (content[:8], content[8:20], content[20:]):
                file.write(part)
                time.sleep(0.05)  # so that each is read alone

    with ThreadPoolExecutor() as pool:
        pool.submit(write)
        batches = list(KeyFile(str(pipe)).batches())

    assert [key for batch in batches for key in batch.keys] == [long, "b"]


def test_a_table_on_stdin_is_csv(
    ran: Callable[..., tuple[int, str, str]], stdin: Callable[[str], None]
) -> None:
    stdin(CSV)
    code, out, errors = ran("route", *BIND, "--keys", "-", "--column", "key")
    assert [line.split("\t")[0] for line in out.splitlines()] == [key for key, _ in ROWS]
    assert (code, errors) == (0, "")


def test_counts_are_messages(ran: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    path = _written(tmp_path, "csv")
    lines = tmp_path / "lines"
    lines.write_text("".join(f"{key}\n" * n for key, n in ROWS))

    table = ("--keys", str(path), "--column", "key=n")
    for command in (("simulate", *BIND), ("compare", *BIND, "--to-bind", "q=1")):
        code, counted, said = ran(*command, *table)
        assert (code, counted, said) == ran(*command, "--keys", str(lines))


def test_too_many_distinct_keys_are_not_counted_and_this_is_reported(
    answer: Callable[..., Any],
    ran: Callable[..., tuple[int, str, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "keys"
    path.write_text("".join(f"k{n}\n" + "hot\n" * (n % 3 == 0) for n in range(30_000)))
    command = ("simulate", *BIND, "--keys", str(path), "--add", "q9=1")
    exact = answer(*command)
    monkeypatch.setattr(simulation, "MOST_DISTINCT", 20_000)
    bounded = answer(*command)

    assert bounded["change"] == exact["change"]
    assert bounded["sample"]["messages"] == exact["sample"]["messages"] == 40_000
    places = [place["messages"] for place in bounded["sample"]["destinations"]]
    assert places == [place["messages"] for place in exact["sample"]["destinations"]]
    assert bounded["sample"]["keys"] is None
    heaviest = bounded["sample"]["heaviest"][0]
    assert (heaviest["key"], 9_000 < heaviest["messages"] <= 10_000) == ("hot", True)
    assert "which are not counted" in " ".join(ran(*command)[1].split())


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_bytes(b"".join(b"customer-%d\n" % n for n in range(100_000)) * 20)
    program = (
        "import sys; from rabbit_chx.cli import main; main(sys.argv[1:]);"
        "print(next(line for line in open('/proc/self/status') if line.startswith('VmHWM')), file=sys.stderr)"
    )

    done = subprocess.run(
        [sys.executable, "-c", program, "simulate", *BIND, "--keys", path, "-o", "json"],
        check=True,
        capture_output=True,
    )

    assert json.loads(done.stdout)["sample"]["messages"] == 2_000_000
    assert int(done.stderr.split()[-2]) < 180_000  # KiB
