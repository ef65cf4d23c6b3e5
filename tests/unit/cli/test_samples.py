"""Samples of keys."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from command_line import BIND, Ran, ended
from pyarrow import parquet

from rabbit_chx.analysis import simulation
from rabbit_chx.cli import samples
from rabbit_chx.cli.samples import KeySource, parse_keys
from rabbit_chx.errors import InputError, MissingExtraError


def test_a_range_is_all_its_keys() -> None:
    source = parse_keys("user-{01..12}")
    assert list(source.read().keys) == [f"user-{n:02}" for n in range(1, 13)]
    assert [key for batch in source.batches() for key in batch.keys] == source.made


# ---- files of keys: text and tables


ROWS = [("a", 3), ("b, c", 1), ("", 0), ("7", 2)]
CSV = 'id,count,key\n1,3,a\n2,1,"b, c"\n3,0,\n4,2,7\n'


def _put(path: Path, content: str | pa.Table) -> str:
    if isinstance(content, str):
        path.write_text(content, errors="surrogateescape")
    else:
        parquet.write_table(content, path)
    return str(path)


@pytest.mark.parametrize("name", ["k.csv", "k.CSV", "k.parquet"])
def test_a_table_gives_its_keys_and_counts(tmp_path: Path, name: str) -> None:
    keys, counts = zip(*ROWS, strict=True)
    content = _table(pa.array(keys), *counts) if name == "k.parquet" else CSV
    batches = list(KeySource(_put(tmp_path / name, content)).batches())

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
    (batch,) = KeySource(_put(tmp_path / "k.parquet", _table(values, 1.0, 2.0))).batches()
    assert (batch.keys, batch.messages) == (keys, [1, 2])


def _table(values: pa.Array[Any], *counts: float) -> pa.Table:
    return pa.table({"count": pa.array(counts), "key": values})


def _short(value: object) -> str:
    return str(value)[:30]


MOMENT = pa.array([2**60], pa.timestamp("ms"))


def test_parquet_needs_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _put(tmp_path / "k.parquet", _table(pa.array(["a"]), 1))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"needs pyarrow: .*, or pass CSV"):
        list(KeySource(path).batches())


CONTENTS: list[tuple[str, str | pa.Table, str]] = [
    ("k.csv", "kye,count\na,1\n", r"has no column 'key': it has kye, count$"),
    ("k.parquet", pa.table({"kye": ["a"]}), r"has no column 'key': it has kye$"),
    *(
        (name, CSV, r"has the suffix \.\w+: pass lines of text as .txt, or a table")
        for name in ("k.jsonl", "k.tsv", "k.csv.gz", "k.xlsx")
    ),
    ("k.csv", "", "has no column 'key': it has no columns"),
    (
        "k.csv",
        "key,count\na,x\n",
        r"row 1 of .*k\.csv has the count 'x': a number of messages is a whole number",
    ),
    ("k.csv", "key,count\na,\n", "row 1 of .* has the count ''"),
    ("k.csv", "key,count\na,-1\n", "row 1 of .* has the count '-1'"),
    ("k.csv", "count,key\n1,a\n1\n", "row 2 of .* has 1 column, and the header has 2"),
    ("k.csv", 'key,count\n"a\nb",1\n\nc,1_000\n', "row 2 of .* has the count '1_000'"),
    ("k.csv", 'key,count\n"b,1\nc,1\n', "row 1 of .* cannot be read: "),
    ("k.csv", "key,count\ra,1\rb,2\r", "the key file .* cannot be read: new-line character"),
    ("k.csv", "key,count," + "x" * 200_000, "field larger than field limit"),
    ("k.csv", "key,key,count\na,b,1\n", "contains several columns 'key': name each differently"),
    ("k.csv", "key,count\na,9223372036854775808\n", "row 1 of .* has the count '9223372036854775808'"),
    ("k.csv", "key,count\na,1\n\n\udcff,1\n", "row 2 of .* is not UTF-8: convert the file first"),
    ("k.csv", "k\udcff,count\na,1\n", "the key file .* cannot be read: .* codec"),
    ("k.parquet", "PAR1", "the key file .* cannot be read: "),
    ("k.parquet", _table(MOMENT, 1), r"'key' of .* has the type timestamp\[ms\]: a key is text"),
    ("k.parquet", _table(pa.array([True]), 1), "has the type bool: a key is text or an integer"),
    ("k.parquet", _table(pa.array(["a", None]), 1, 1), "row 2 of .* has null in the column 'key'"),
    ("k.parquet", _table(pa.array(["a"]), 0.5), "'count' of .* cannot be read: .* 0.50* was truncated"),
    ("k.parquet", _table(pa.array(["a"]), -1.0), "the column 'count' of .* cannot be read: "),
    ("k.parquet", _table(pa.array([b"\xff"]), 1), "'key' of .* cannot be read: Invalid UTF8"),
]


@pytest.mark.parametrize(("name", "content", "says"), CONTENTS, ids=_short)
def test_a_file_without_such_keys_is_refused_and_the_reason_named(
    tmp_path: Path, name: str, content: str | pa.Table, says: str
) -> None:
    with pytest.raises(InputError, match=says) as caught:
        list(KeySource(_put(tmp_path / name, content)).batches())
    assert len(str(caught.value)) < 400


LONG = ("--hash-header", "h:long")


@pytest.mark.parametrize(
    ("name", "content", "options", "says"),
    [
        ("k.txt", "a\n" * 20_000 + "b\n" + "x" * 300, (), "line 20002 of {}: the routing key"),
        ("k.txt", "1\n2\nthree", LONG, "line 3 of {}: 'three' is not a valid long"),
        ("k.csv", 'key,count\n\n"1",2\n"x\n",1\n', LONG, "row 2 of {}: "),
        ("k.parquet", _table(pa.array(["a", "b" * 256]), 1, 1), (), "row 2 of {}: "),
        ("k.csv", "key,count\n\n\n", (), "{} has no keys, or all counts are 0"),
        ("k.csv", "key,count\na,0\n", (), "{} has no keys, or all counts are 0"),
    ],
    ids=_short,
)
def test_a_key_that_cannot_be_sent_is_named_by_its_file_and_place(
    ran: Ran,
    tmp_path: Path,
    *,
    name: str,
    content: str | pa.Table,
    options: tuple[str, ...],
    says: str,
) -> None:
    path = _put(tmp_path / name, content)
    for command in (("compare", *BIND), ("compare", *BIND, "--to", "q=1")):
        code, _, errors = ran(*command, *options, "--keys", path)
        assert (code, errors.startswith(f"rabbit-chx: {says.format(path)}")) == (2, True), errors


@pytest.mark.parametrize("name", ["k.csv", "k.parquet"])
def test_rows_are_numbered_over_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(samples, "_ROWS", 2)
    content = "key\n" + "a\n" * 5 if name == "k.csv" else pa.table({"key": ["a"] * 5})
    rows = [batch.numbers for batch in KeySource(_put(tmp_path / name, content)).batches()]
    assert rows == [range(1, 3), range(3, 5), range(5, 6)]


def test_only_the_begin_of_a_file_has_a_mark_and_a_line_is_of_any_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        samples, "_CHUNK_BYTES", 5
    )  # each of the first lines is read alone, and the long ones in parts
    path = tmp_path / "keys"
    keys = ["a", "\ufeffb", "\ufeffc", "long" * 5, "d", "longer" * 5]
    path.write_text("\ufeff" + "\n".join(keys), encoding="utf-8")
    assert [key for batch in KeySource(str(path)).batches() for key in batch.keys] == keys


def test_too_many_distinct_keys_are_not_counted_and_this_is_reported(
    ran: Ran, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "keys"
    path.write_text("".join(f"k{n}\n" + "hot\n" * (n % 3 == 0) for n in range(30_000)))
    command = ("compare", *BIND, "--keys", str(path), "--add", "q9=1")
    code, exact_text, errors = ran(*command, "-o", "json")
    assert (code, errors) == (0, "")
    exact = json.loads(exact_text)
    monkeypatch.setattr(simulation, "MOST_DISTINCT", 20_000)
    bounded = json.loads(ran(*command, "-o", "json")[1])

    assert bounded["change"] == {**exact["change"], "moves": None}
    assert bounded["sample"]["messages"] == exact["sample"]["messages"] == 40_000
    places = [place["messages"] for place in bounded["sample"]["destinations"]]
    assert places == [place["messages"] for place in exact["sample"]["destinations"]]
    assert bounded["sample"]["keys"] is None
    heaviest = bounded["sample"]["heaviest"][0]
    assert (heaviest["key"], 9_000 < heaviest["messages"] <= 10_000) == ("hot", True)
    assert "which are not counted" in " ".join(ran(*command[:-2])[1].split())


@pytest.mark.extended
def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_bytes(b"".join(b"customer-%d\n" % n for n in range(100_000)) * 20)
    program = (
        "import sys; from rabbit_chx.cli import main; main(sys.argv[1:]);"
        "print(next(line for line in open('/proc/self/status') if line.startswith('VmHWM')), file=sys.stderr)"
    )

    done = ended(sys.executable, "-c", program, "compare", *BIND, "--keys", path, "-o", "json")

    assert json.loads(done.stdout)["sample"]["messages"] == 2_000_000
    assert int(done.stderr.split()[-2]) < 180_000  # KiB
