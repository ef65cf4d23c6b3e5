"""Files of observed keys and queues."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import click
import pyarrow as pa
import pytest
from command_line import Ran, ended
from pyarrow import parquet
from sides import as_live
from slot_files import live_of

from rabbit_chx import Release, Topology
from rabbit_chx.analysis.key_routing import Hashing
from rabbit_chx.cli import broker_options, record
from rabbit_chx.cli.broker_options import offer_to_end
from rabbit_chx.cli.record import EvidenceOptions, _observed_pairs, _why_left_out, read_trace
from rabbit_chx.errors import InputError, NotDeterminedError, PlanRefusedError
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
    return EvidenceOptions(observed=f"{path}#{','.join(columns)}").read_file(
        exchange, Hashing(), (lambda _: "") if started is None else partial(_why_left_out, started)
    )


def test_each_pair_of_the_exchange_is_read_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "seen.csv"
    assert read(path, WRITTEN) == PAIRS
    assert "1 message of other exchanges left out ('audit'); if 'orders' gets" in capsys.readouterr().err
    assert Observation("d", "q2") in read(path, WRITTEN, "orders", "exchange=")
    with pytest.raises(InputError, match=r"seen\.csv has no key of the exchange 'bills'"):
        read(path, WRITTEN, "bills")


def test_counts_are_those_of_messages(tmp_path: Path) -> None:
    content = "key,queue,n\na,q1,200\nb,q2,49\nb,q2,1\n"
    found = read(tmp_path / "seen.csv", content, "orders", "count=n")
    assert found == [Observation("a", "q1", messages=200), Observation("b", "q2", messages=50)]
    assert read(tmp_path / "seen.csv", content.replace(",n", ",count")) == found


def test_on_mnesia_only_pairs_after_the_last_start_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "seen.csv"
    later = (
        WRITTEN
        + "e,q1,2026-11-26 03:02:01,orders\nf,q1,yesterday,orders\ng,q1,2026-11-26T05:02:01+02:00,orders\n"
    )
    found = read(path, later, started=datetime(2026, 11, 26, 3, 2, 1, tzinfo=UTC).timestamp())
    assert [(each.key, each.queue) for each in found] == [("a", "q1"), ("a", "q2"), ("g", "q1")]
    said = capsys.readouterr().err
    assert "1 message from before the last start of the broker left out" in said
    assert "3 messages without a time left out" in said
    assert "1 message of a time without an offset left out" in said
    epoch = "key,queue,time\na,q1,1764126121\nb,q1,1764126120.5\nc,q2,1764126121000\nd,q2,1764126120000\n"
    found = read(path, epoch, started=1764126121.0)
    assert [each.key for each in found] == ["a", "c"]
    early = "key,queue,time\na,q1,2026-11-26T03:02:00Z\nb,q2,2026-11-26T03:02:01\n"
    with pytest.raises(
        NotDeterminedError,
        match=r"all 2 messages of 'orders' .* are from before the last start of the broker or of a time",
    ):
        read(path, early, started=datetime(2026, 11, 26, 4, tzinfo=UTC).timestamp())


@pytest.mark.parametrize(("release", "pairs"), [("4.0.5", 1), ("4.3.6", 2)])
def test_how_long_messages_waited_is_asked_for_unless_their_queues_are_empty(
    tmp_path: Path, release: str, pairs: int
) -> None:
    """The broker started a minute ago; `late` was consumed 10 s after that."""
    path = tmp_path / "seen.csv"
    started = time.time() - 60
    texts = [datetime.fromtimestamp(started + after, UTC).isoformat() for after in (10, 30)]
    path.write_text(f"key,queue,time\nlate,q1,{texts[0]}\nlater,q2,{texts[1]}\n")
    text = """exchanges = [{ name = "orders", type = "x-consistent-hash", ring = [{ queue = "q{1..2}", weight = 1 }] }]
queues = [{ name = "q{1..2}" }]"""
    live = replace(live_of(Topology.from_toml(text)), release=Release(release))

    def read_with(messages: int, waited: float | None) -> int:
        asked = as_live(live, nodes={"rabbit@one": started}, messages={"q1": messages, "other": 5})
        return len(_observed_pairs(EvidenceOptions(observed=str(path), waited=waited), asked, "orders"))

    assert (read_with(0, None), read_with(7, 5), read_with(7, 20)) == (2, 2, pairs)
    if pairs == 1:
        with pytest.raises(NotDeterminedError, match=r"7 messages wait in q1, .*: pass --waited SECONDS"):
            read_with(7, None)


def test_neither_observations_nor_keys_in_csv_need_pyarrow(tmp_path: Path) -> None:
    path = tmp_path / "seen.csv"
    path.write_text("key,queue,time,count\na,q1,,3\n")
    program = (
        "import sys; sys.modules['pyarrow'] = None; sys.modules['numpy'] = None\n"
        "from rabbit_chx.analysis.key_routing import Hashing\n"
        "from rabbit_chx.cli.record import EvidenceOptions\n"
        "from rabbit_chx.cli.samples import parse_keys\n"
        "print(EvidenceOptions(observed=sys.argv[1]).read_file('x', Hashing()), parse_keys(sys.argv[1]).read())"
    )
    done = ended(sys.executable, "-c", program, path)
    assert "messages=3" in done.stdout, done.stderr
    assert "['a', 'a', 'a']" in done.stdout


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
    options = EvidenceOptions(observed=f"{path}#key=user,queue=to")
    stamps = options.read_file("x", Hashing(hash_property="timestamp"))
    assert [each.key for each in stamps] == [7, 8]


@pytest.mark.parametrize("column", ["time", "exchange"])
def test_optional_columns_are_text(tmp_path: Path, column: str) -> None:
    path = tmp_path / "seen.parquet"
    for values in (pa.array([[1]]), pa.array([b"\xff"])):
        with pytest.raises(
            InputError, match=f"the column '{column}' of .* has the type .* and cannot be read"
        ):
            read(path, pa.table({"key": ["a"], "queue": ["q1"], column: values}))
    keys, queues = pa.array(["a"], pa.string_view()), pa.array(["q1"], pa.large_string())
    views: dict[str, Any] = {"key": keys, "queue": queues, column: [None]}
    assert read(path, pa.table(views)) == [Observation("a", "q1")]


@pytest.mark.parametrize(
    ("name", "content", "columns", "message"),
    [
        ("f.csv", "key,destination\na,q1\n", (), "has no column 'queue': it has key, destination; write .*#key=NAME,queue=NAME"),
        ("f.csv", "key,queue\na,q1\n", ("time=at",), "has no column 'at'"),
        ("f.csv", "key,queue\na\n", (), "row 1 of .* has 1 column, and the header has 2"),
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


def at_terminal(monkeypatch: pytest.MonkeyPatch, *, answer: bool | None) -> list[str]:
    """Let the user answer; None: there is no terminal. Return what is asked."""
    asked: list[str] = []

    def confirm(question: str, **_: Any) -> bool:
        asked.append(question)
        return bool(answer)

    for module in (record, broker_options):
        monkeypatch.setattr(module, "has_terminal", lambda: answer is not None)
    monkeypatch.setattr(click, "confirm", confirm)
    return asked


@pytest.mark.parametrize(
    ("answer", "yes", "is_on", "traces"),
    [
        (True, False, False, True), (False, False, False, False), (None, False, False, False),
        (None, True, False, True), (None, False, True, True),
    ],
)  # fmt: skip
def test_tracing_is_switched_on_only_if_the_user_agrees(
    monkeypatch: pytest.MonkeyPatch, *, answer: bool | None, yes: bool, is_on: bool, traces: bool
) -> None:
    asked = at_terminal(monkeypatch, answer=answer)
    opened = Mock()
    opened.is_traced.return_value = is_on
    opened.trace.return_value = [("k", ("q",))]
    given = EvidenceOptions(2.0, yes=yes)
    if traces:
        assert read_trace(opened, "/", "x", given) == [("k", ("q",))]
    else:
        with pytest.raises(PlanRefusedError, match="nothing was switched on"):
            read_trace(opened, "/", "x", given)
    assert opened.trace.called == traces
    assert len(asked) == (answer is not None)
    assert all("tracing costs each message of vhost '/' a copy for 2 s" in question for question in asked)


def test_no_message_is_not_determined() -> None:
    opened = Mock()
    opened.is_traced.return_value, opened.trace.return_value = True, []
    with pytest.raises(
        NotDeterminedError, match="no message was published to exchange 'x' of vhost '/' in 2 s"
    ):
        read_trace(opened, "/", "x", EvidenceOptions(2.0))


@pytest.mark.parametrize(
    ("answer", "yes", "ends"),
    [(True, False, True), (False, False, False), (None, False, False), (None, True, True)],
)
def test_what_is_left_on_is_named_and_may_be_ended(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    answer: bool | None,
    yes: bool,
    ends: bool,
) -> None:
    asked = at_terminal(monkeypatch, answer=answer)
    opened = Mock()
    opened.left_trace.return_value = "me@host at noon"
    offer_to_end(opened, "/", yes=yes)
    said = capsys.readouterr().err
    assert opened.end_trace.called == ends
    assert "me@host at noon" in "".join([said, *asked])
    assert ("rabbit-chx check --yes" in said) == (not ends)
    opened.left_trace.return_value = None
    offer_to_end(opened, "/", yes=yes)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (("record", "x", "y", "--trace", "1"), "--trace is about one exchange"),
        (("verify", "x", "--trace", "1", "--observed", "a.csv"), "--trace and --observed exclude each other"),
        (("verify", "x", "--observed", "a.csv", "--keys", "k{1..9}"), "--observed and --keys exclude each other"),
        (("record", "--all", "--trace", "1"), "--trace and --all exclude each other"),
        (("record", "x", "--from", "r.json", "--trace", "1"), "--trace and --from exclude each other"),
        (("verify", "x", "--trace", "1", "--keys", "k{1..9}"), "--trace and --keys exclude each other"),
        (("verify", "x", "--trace", "0"), "--trace 0 sees no message"),
    ],
)  # fmt: skip
def test_what_tells_keys_otherwise_is_refused(ran: Ran, command: tuple[str, ...], says: str) -> None:
    code, _, err = ran(*command, "--url", "amqp://127.0.0.1:1")
    assert code == 2
    with pytest.raises(InputError, match=says):
        raise InputError(err)
