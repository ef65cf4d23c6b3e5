"""Files of keys: text and tables."""

from __future__ import annotations

import gzip
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
from rabbit_chx.cli.key_files import KeyFile
from rabbit_chx.errors import InputError

ROWS = [("a", 3), ("b, c", 1), ("", 0), ("7", 2)]
TEXTS = {
    "csv": 'id,n,key\n1,3,a\n2,1,"b, c"\n3,0,\n4,2,7\n',
    "tsv": "id\tn\tkey\n1\t3\ta\n2\t1\tb, c\n3\t0\t\n4\t2\t7\n",
    "jsonl": "".join(json.dumps({"n": n, "key": int(key) if key == "7" else key}) + "\n" for key, n in ROWS),
}


def _written(folder: Path, kind: str, *, packed: bool = False) -> Path:
    path = folder / f"keys.{kind}"
    if kind == "parquet":
        keys, counts = zip(*ROWS, strict=True)
        parquet.write_table(pa.table({"n": pa.array(counts), "key": pa.array(keys)}), path)
    else:
        path.write_text(TEXTS[kind])
    if packed:
        path = path.with_name(f"{path.name}.gz")
        path.write_bytes(gzip.compress((folder / f"keys.{kind}").read_bytes()))
    return path


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet"])
def test_a_table_gives_its_keys_and_counts(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    kind: str,
    packed: bool,  # noqa: FBT001
) -> None:
    path = _written(tmp_path, kind, packed=packed)
    batches = list(KeyFile(str(path), "key", "n").batches())

    assert [
        (key, n) for batch in batches for key, n in zip(batch.keys, batch.messages or (), strict=True)
    ] == ROWS
    word = {"jsonl": "JSON lines", "parquet": "Parquet"}.get(kind, kind.upper())
    said = capsys.readouterr().err
    assert f"is read as {word}{' in gzip' if packed else ''}: the column 'key' has the keys" in said


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet"])
def test_a_table_without_column_is_refused_and_its_columns_are_named(tmp_path: Path, kind: str) -> None:
    path = _written(tmp_path, kind)

    with pytest.raises(InputError, match=r"say by --column which has the keys: (id, )?n, key$"):
        list(KeyFile(str(path)).batches())
    with pytest.raises(InputError, match="has no column 'kye': it has"):
        list(KeyFile(str(path), "kye").batches())


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("k.csv", "key,n\na,x\n", "line 2 of .* has 'x' in the column 'n': a count is a whole number from 0"),
        ("k.csv", "n,key\n1\n", "line 2 of .* does not fit the header, 1 against 2 columns"),
        ("k.jsonl", '{"key": "a", "n": 1}\n[1]\n', "line 2 of .* is no JSON object"),
        ("k.jsonl", '{"key": "a", "n": 1}\n{"n": 1}\n', "line 2 of .* has None in the column 'key'"),
        ("k.parquet", "PAR1", "is no Parquet that can be read"),
        (
            "k.tsv",
            'key\tn\na\t1\n\n"b\t1\nc\t1\n',
            "line 4 of .* is no CSV .* unexpected end of data: mend its quotes",
        ),
        ("k.csv", "key,n\ra,1\rb,2\r", "line 1 of .*: its lines end in CR: convert them to LF"),
        ("k.csv", "key,n," + "x" * 200_000, "line 1 of .* field larger than field limit"),
        ("k.csv", "key,key,n\na,b,1\n", "has 2 columns 'key': give each a name of its own"),
        ("k.csv", "key,n\na,b,1\n", "line 2 of .* does not fit the header, 3 against 2 columns"),
        ("k.csv", 'key,n\n"a\nb",1\n\nc,1_000\n', "line 5 of .* has '1_000' in the column 'n'"),
        ("k.csv", "key,n\na,\u0663\n", "line 2 of .* a count is a whole number"),
        ("k.csv", "key,n\na,9223372036854775808\n", "a count is a whole number from 0, below 2\\^63"),
        ("k.csv", "key,n\na," + "9" * 400, "a count is a whole number"),
        ("k.csv", "key,n\na,1\n\n\udcff,1\n", "line 4 of .* is not UTF-8"),
        ("k.jsonl", '{"key": "a", "n": 1}\n\n{"key": "\udcff"}\n', "line 3 of .* is not UTF-8"),
        ("k.jsonl", '\n{"key": "a", "n": true}\n', "line 2 of .* has True in the column 'n'"),
        ("k.jsonl", '{"key": "a", "n": 1.5}\n', "line 1 of .* has 1.5 in the column 'n'"),
        ("k.jsonl", '{"key": ' + "[" * 200_000, "line 1 of .* is no JSON"),
    ],
    ids=lambda text: text[:40],
)
def test_a_row_that_has_no_key_is_named(tmp_path: Path, name: str, content: str, says: str) -> None:
    path = tmp_path / name
    path.write_text(content, errors="surrogateescape")

    with pytest.raises(InputError, match=says):
        list(KeyFile(str(path), "key", "n").batches())


@pytest.mark.parametrize(
    ("values", "counts", "says"),
    [
        (pa.array([2**60], pa.timestamp("ms")), [1.0], "is no Parquet that can be read"),
        (pa.array(["a", "b"]), [1.0, 0.5], "row 2 of .* has 0.5 in the column 'n'"),
        (pa.array([b"a", b"\xff"]), [1.0, 1.0], "row 2 of .* a key is UTF-8"),
    ],
    ids=["time", "count", "bytes"],
)
def test_a_row_of_parquet_is_named(
    tmp_path: Path, values: pa.Array[Any], counts: list[float], says: str
) -> None:
    parquet.write_table(pa.table({"key": values, "n": pa.array(counts)}), tmp_path / "k.parquet")

    with pytest.raises(InputError, match=says):
        list(KeyFile(str(tmp_path / "k.parquet"), "key", "n").batches())


@pytest.mark.parametrize("counted", [(), ("--count-column", "n")])
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("k.csv", 'key,n\n\n"1",2\n"x\n",1\n'),
        ("k.jsonl", '{"key": 1, "n": 2}\n\n\n{"key": "x", "n": 1}\n'),
    ],
)
def test_a_key_that_does_not_suit_is_named_by_its_line(
    ran: Callable[..., tuple[int, str, str]],
    tmp_path: Path,
    name: str,
    content: str,
    counted: tuple[str, ...],
) -> None:
    path = tmp_path / name
    path.write_text(content)
    hashed = ("--hash-header", "h", "--type", "long")
    table = ("--keys", str(path), "--column", "key", *counted)

    for command in (("simulate", *BIND), ("compare", *BIND, "--to-bind", "q=1")):
        code, _, said = ran(*command, *hashed, *table)
        assert (code, f"line 4 of {path}: " in said) == (2, True), said


def test_a_key_of_parquet_that_does_not_suit_is_named_by_its_row(
    ran: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    path = tmp_path / "k.parquet"
    parquet.write_table(pa.table({"key": pa.array(["a", "b" * 256])}), path)
    for command in (("route", *BIND), ("simulate", *BIND), ("compare", *BIND, "--to-bind", "q=1")):
        code, _, said = ran(*command, "--keys", str(path), "--column", "key")
        assert (code, f"row 2 of {path}: " in said) == (2, True), said


@pytest.mark.parametrize("content", ["key,n\n\n\n", "key,n\na,0\n"])
def test_a_table_without_messages_is_refused(
    ran: Callable[..., tuple[int, str, str]], tmp_path: Path, content: str
) -> None:
    path = tmp_path / "k.csv"
    path.write_text(content)

    for command in (("simulate", *BIND), ("compare", *BIND, "--to-bind", "q=1")):
        code, _, said = ran(*command, "--keys", str(path), "--column", "key", "--count-column", "n")
        assert (code, "has no keys, or all counts are 0" in said) == (2, True)


@pytest.mark.parametrize("packed", [False, True])
def test_a_slow_pipe_is_taken_for_what_it_is(
    tmp_path: Path,
    packed: bool,  # noqa: FBT001
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    long = "a" * (1 << 21)  # more than is read to know what it is
    content = json.dumps({"key": long}).encode() + b'\n{"key":"b"}\n'
    content = gzip.compress(content) if packed else content

    def write() -> None:
        with pipe.open("wb", buffering=0) as file:
            for part in (content[:8], content[8:20], content[20:]):
                file.write(part)
                time.sleep(0.05)  # so that each is read alone

    with ThreadPoolExecutor() as pool:
        pool.submit(write)
        batches = list(KeyFile(str(pipe), "key").batches())

    assert [key for batch in batches for key in batch.keys] == [long, "b"]


def test_a_tab_separates_by_the_name_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "k.tsv"
    path.write_text("a,b,c\tkey\n1\tx\n")

    assert [batch.keys for batch in KeyFile(str(path), "key").batches()] == [["x"]]


def test_text_in_gzip_is_lines(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_bytes(gzip.compress(b"a\r\nb,c\n\nd"))

    assert [key for batch in KeyFile(str(path)).batches() for key in batch.keys] == ["a", "b,c", "", "d"]


def test_counts_are_messages(ran: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    path = _written(tmp_path, "csv")
    lines = tmp_path / "lines"
    lines.write_text("".join(f"{key}\n" * n for key, n in ROWS))

    table = ("--keys", str(path), "--column", "key", "--count-column", "n")
    for command in (("simulate", *BIND), ("compare", *BIND, "--to-bind", "q=1")):
        code, counted, said = ran(*command, *table)
        assert f"{path} is read as CSV" in said
        assert (code, counted) == ran(*command, "--keys", str(lines))[:2]


def test_too_many_distinct_keys_are_not_counted_and_that_is_said(
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
    assert "so keys are not counted" in " ".join(ran(*command)[1].split())


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "keys.gz"
    lines = b"".join(b"customer-%d\n" % n for n in range(100_000))
    path.write_bytes(gzip.compress(lines, 1) * 20)  # gzip's parts in a row are one file
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
