"""The commands about streams: how times and addresses are written, what is refused, and what results look like."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from exposition import parsed_exposition
from scripted_api import ScriptedApi

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.cli import replay, stream_options, stream_show
from rabbit_chx.cli.replay import ReplayedRow, no_rows_text
from rabbit_chx.cli.stream_options import StreamMap, StreamOptions, parse_addresses, parse_time
from rabbit_chx.cli.stream_show import RowPlace, ShownStream, StreamsReport
from rabbit_chx.cli.verify import StoredReport
from rabbit_chx.consuming.stream_status import StreamShare
from rabbit_chx.errors import BrokerRefusedError, InputError
from rabbit_chx.rendering import ConsoleOutput, PrometheusOutput
from rabbit_chx.rendering.output import metrics_text
from rabbit_chx.routing import HashRing
from rabbit_chx.streams import MisplacedRow, StreamParity
from rabbit_chx.streams.frames import Code, StreamMetadata
from rabbit_chx.streams.references import writers_of

NOW = datetime(2026, 11, 22, 18, tzinfo=UTC)
READ = HashRing.from_buckets(["s0", "s1"])
ASSUMED = HashRing.from_bindings([("s0", 1), ("s1", 1)], provenance="assumed")
ROW = MisplacedRow(7, b"k\xff", "s1")
NOBODY = ("--url", "rabbitmq-stream://127.0.0.1:1", "--management-url", "")


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("90s", NOW - timedelta(seconds=90)),
        ("30min", NOW - timedelta(minutes=30)),
        ("1.5h", NOW - timedelta(minutes=90)),
        (" 7d ", NOW - timedelta(days=7)),
        ("2026-11-22T10:00:00Z", NOW - timedelta(hours=8)),
        ("2026-11-22T12:00+02:00", NOW - timedelta(hours=8)),
    ],
)
def test_a_time_is_a_date_with_its_zone_or_how_long_ago(text: str, moment: datetime) -> None:
    assert parse_time("--since", text, NOW) == moment


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("yesterday", "--since is 'yesterday': give ISO 8601 with a time zone"),
        ("2h30", "--since is '2h30'"),
        ("-2h", "--since is '-2h'"),
        ("2026-11-22T10:00", r"lacks a time zone: write 2026-11-22T10:00Z for UTC"),
        ("2026-11-22", "lacks a time zone"),
        ("9999999d", "before the year 1"),
    ],
)
def test_another_time_is_refused_and_the_remedy_named(text: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        parse_time("--since", text, NOW)


@pytest.mark.parametrize(
    "text",
    ["2026-11-22", "20261122", "2026-W47", "2026-11-22 10", "2026-11-22T10:00", " 2026-11-22 10:00:05.5 "],
)
def test_the_advice_about_a_time_zone_is_accepted(text: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_time("--since", text, NOW)
    utc, other = re.findall(r"write (\S.*\S) for UTC, or (\S.*\S)", str(refused.value))[0]
    moments = [parse_time("--since", advice, NOW) for advice in (utc, other)]
    assert None not in moments
    assert moments[0] - moments[1] == timedelta(hours=2)  # type: ignore[operator]


@pytest.mark.parametrize(("zone", "hours"), [("Z", 0), ("+02:00", 2), ("-0500", -5)])
def test_a_day_with_a_time_zone_begins_at_midnight(zone: str, hours: int) -> None:
    assert parse_time("--since", f"2026-11-22{zone}", NOW) == datetime(2026, 11, 22, tzinfo=UTC) - timedelta(
        hours=hours
    )


def test_a_time_ago_is_the_same_for_all_streams_of_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = itertools.count()

    class Clock(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
            return NOW.astimezone(tz) + timedelta(seconds=next(moments))

    monkeypatch.setattr(stream_options, "datetime", Clock)
    given = StreamOptions(None, None, None, by_message_id=False, since="90s", until="30s", addresses=())
    assert given.range == (NOW - timedelta(seconds=90), NOW - timedelta(seconds=30))
    assert given.range == (NOW - timedelta(seconds=90), NOW - timedelta(seconds=30))


def test_addresses_are_pairs() -> None:
    assert parse_addresses(("Rabbit-0:5552=127.0.0.1:15552", "[0:0::1]:1=h:2", "FE80::1=h:3")) == {
        "rabbit-0:5552": "127.0.0.1:15552",
        "[::1]:1": "h:2",
        "[fe80::1]": "h:3",
    }
    for text in ("rabbit-0:5552", "rabbit-0=127.0.0.1:1", "a:1=b", "a:0=b:1", "a:1=b:65536"):
        with pytest.raises(InputError, match="give rabbit-0:5552="):
            parse_addresses((text,))


def test_nobody_answers(ran: Callable[..., tuple[int, str, str]]) -> None:
    code, _, errors = ran("stream", "show", "s", *NOBODY, "--wait", "0.1")
    assert (code, "no server answers there" in errors, "(after --wait 0.1)" in errors) == (69, True, True)


def test_only_a_group_of_streams_has_several_exchanges(ran: Callable[..., tuple[int, str, str]]) -> None:
    code, _, errors = ran("group", "show", "orders", "events", "--url", "amqp://127.0.0.1:1")
    assert (code, "give one, or --stream-group NAME" in " ".join(errors.split())) == (2, True), errors


def report(ring: HashRing = READ, **counts: Any) -> StoredReport:
    examples = (ROW,) if counts.get("wrong") else ()
    streams = [StreamParity("s0", sum(counts.values()), **counts, examples=examples), StreamParity("s1")]
    return StoredReport(StreamMap("orders", ring), "shop", streams, 1.25)


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (report(right=9), 0),
        (report(right=9, without_key=1, other_exchange=1), 0),
        (report(right=9, wrong=1), 1),
        (report(), 3),
        (report(without_key=5), 3),
        (report(ASSUMED, right=9), 3),
        (report(ASSUMED, right=9, wrong=1), 1),
    ],
)
def test_the_exit_code_is_the_result(found: StoredReport, code: int) -> None:
    assert found.code == code


def test_stored_rows_as_a_table_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    found = report(right=9, wrong=1, without_key=2)
    ConsoleOutput().show(found)
    lines = capsys.readouterr().out.splitlines()
    assert "compared  10 of 12 rows" in lines
    assert "wrong     1" in lines
    assert [line.split() for line in lines if line.startswith((" s0 ", " all"))] == [
        ["s0", "12", "9", "1", "2", "0"],
        ["all", "12", "9", "1", "2", "0"],
        ["s0", "7", r"k\xff", "s1"],
    ]
    document = found.as_json()
    assert (document["format"], document["format_version"], document["way"]) == (
        "rabbit-chx/verify",
        2,
        "stored",
    )
    counts = {"rows": 12, "right": 9, "wrong": 1, "without_key": 2, "other_exchange": 0}
    assert counts.items() <= document.items()
    assert document["streams"][0] == {"stream": "s0", **counts}
    (finding,) = document["findings"]
    assert (document["determined"], finding["kind"]) == (False, "contradicted")
    assert finding["fix"] in " ".join(" ".join(lines).split())
    assert finding["message"].startswith(
        r"the key 'k\\xff' reached s0 (offset 7), and the ring sends it to s1; 1 row"
    )
    assert any(line.startswith("finding   contradicted: the key") for line in lines)
    assert document["examples"] == [{"stream": "s0", "offset": 7, "key_base64": "a/8=", "belongs_to": "s1"}]


def test_the_fields_of_a_row_and_its_json() -> None:
    row = ReplayedRow("s0", 3, datetime(2026, 11, 22, 10, 0, 0, 5_000, UTC), b"user\t7", b"\xff\x00")
    assert dict(row.as_row()) == {
        "stream": "s0",
        "offset": "3",
        "time": "2026-11-22T10:00:00.005Z",
        "key": "user\t7",
        "value": "base64:/wA=",
    }
    assert row.as_json() == {
        "format": "rabbit-chx/row",
        "format_version": 1,
        "stream": "s0",
        "offset": 3,
        "timestamp": "2026-11-22T10:00:00.005Z",
        "key": "user\t7",
        "value_base64": "/wA=",
    }


@pytest.mark.parametrize(
    ("keys", "counts", "says"),
    [
        (["k"], {"read": 1_000_000}, "no rows with the key 'k': 1,000,000 rows were read"),
        (["k", "l"], {"read": 1}, "no rows with one of the keys: 1 row was read"),
        (["k"], {}, "no rows with the key 'k': 0 rows were read"),
        (
            ["k"],
            {"read": 9, "other_exchange": 2},
            "no rows with the key 'k' were published to 'sales': 9 rows were read, and 2 with the key 'k' were published to another exchange: give it with --published-to",
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
    ran: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
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


def test_the_reader_of_a_command_ends_at_until(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[dict[str, Any]] = []
    monkeypatch.setattr("rabbit_chx.streams.StreamReader", lambda *_, **given: opened.append(given))
    at: Any = SimpleNamespace(settings=ConnectionSettings())
    moment = datetime(2026, 11, 22, tzinfo=UTC)
    options = StreamOptions(since="2026-11-22T00:00Z", until="2026-11-22T00:00Z", addresses=())
    options.reader(at, "s0")
    StreamOptions(addresses=()).reader(at, "s0")
    assert [(given["start"], given["end"]) for given in opened] == [(moment, moment), ("first", None)]


def test_a_stream_that_the_user_may_not_read_is_an_error() -> None:
    """The broker leaves out the error where missing streams are allowed."""
    forbidden = StreamMetadata(None, (), Code.ACCESS_REFUSED)

    def metadata(names: Sequence[str], *, missing_ok: bool = False) -> dict[str, StreamMetadata]:
        if not missing_ok:
            raise BrokerRefusedError("the user may not read it")
        return dict.fromkeys(names, forbidden)

    connection: Any = SimpleNamespace(metadata=metadata)
    with pytest.raises(BrokerRefusedError, match="may not read"):
        stream_options.find_streams(connection, ["s0"])


def test_the_last_row_is_the_one_before_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    chunks = {
        "first": SimpleNamespace(offset=5, time=NOW),
        "last": SimpleNamespace(offset=80, end=100, time=NOW),
    }
    finder = SimpleNamespace(
        first=lambda _: chunks["first"], chunk_at=lambda _stream, place, _s: chunks[place]
    )
    monkeypatch.setattr("rabbit_chx.streams.ends.ChunkFinder", lambda *_: finder)
    monkeypatch.setattr(
        "rabbit_chx.streams.nodes.open_at", lambda *_, **__: SimpleNamespace(close=lambda: None)
    )
    stream = ShownStream("s0")
    found = stream_show._with_ends(ConnectionSettings(), stream, {}, None)
    assert (found.first, found.last, found.span) == (RowPlace(5, NOW), RowPlace(99, NOW), 95)


def test_the_first_problem_of_the_management_api_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> Any:
        raise BrokerRefusedError(f"problem {next(numbers)}")

    numbers = itertools.count(1)
    monkeypatch.setattr(stream_show, "writers_of", refuse)
    at: Any = SimpleNamespace(management_url="http://h", settings=ConnectionSettings())
    stream = ShownStream("s0")
    assert list(stream_show._with_writers(at, [stream] * 3)) == [stream] * 3
    said = capsys.readouterr().err
    assert ("problem 1" in said, "problem 2" in said, "problem 3" in said) == (True, False, False)


def test_a_plugin_that_is_not_enabled_is_named_with_the_remedy() -> None:
    with ScriptedApi() as api, pytest.raises(BrokerRefusedError) as caught:
        writers_of(f"http://{api.address}", ConnectionSettings(), "s")
    assert "rabbitmq-plugins enable rabbitmq_stream_management" in str(caught.value)
    assert "management_url" not in str(caught.value)


def test_tables_of_streams_fit_into_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    end = RowPlace(123_456_789_012, NOW)
    stream = ShownStream("orders-0", None, end, end, {"w": 1})
    ConsoleOutput().show(StreamsReport("b:5552", "shop", "4.3.6", [stream], NOW))
    (row, times, *_) = [line.split() for line in capsys.readouterr().out.splitlines() if "orders-0" in line]
    assert row[-3:] == ["1", "of", "255"]
    assert times == ["orders-0", "2026-11-22", "18:00:00Z", "2026-11-22", "18:00:00Z"]


def test_streams_as_tables_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    first, last = RowPlace(5, NOW), RowPlace(1_104, NOW + timedelta(milliseconds=1_001))
    full = ShownStream(
        "s0",
        "orders",
        first,
        last,
        {f"w{n}": n for n in range(21)},
    )
    found = StreamsReport("b:5552", "shop", "4.3.6", [full, ShownStream("s1")], NOW)
    ConsoleOutput().show(found)
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "s0 5 1,104 1,100 21 of 255" in lines
    assert "s1 - - 0 -" in lines
    assert "s0 2026-11-22 18:00:00Z 2026-11-22 18:00:01Z" in lines
    assert "s1 - -" in lines
    assert lines[-1] == "and 1 more writer; --output json shows all"
    assert sum(line.startswith("s0 w") for line in lines) == 20
    ConsoleOutput().show(replace(found, streams=[replace(full, writers={f"w{n}": n for n in range(20)})]))
    assert "more writer" not in capsys.readouterr().out
    document = found.as_json()
    assert (document["format"], document["format_version"]) == ("rabbit-chx/streams", 2)
    shown, empty = document["streams"]
    first_row = {"offset": 5, "time": "2026-11-22T18:00:00.000Z"}
    assert (shown["first"], shown["offsets"], len(shown["writers"])) == (first_row, 1_100, 21)
    assert (empty["first"], empty["offsets"], empty["writers"]) == (None, 0, None)
    assert (document["group"], shown["lag_rows"], shown["lag_s"]) == (None, None, None)


def test_streams_as_metrics(capsys: pytest.CaptureFixture[str]) -> None:
    first, last = RowPlace(5, NOW - timedelta(minutes=2)), RowPlace(1_104, NOW)
    share = StreamShare("s0", None, None, None, 1_100, 4, 1.5)
    full = ShownStream("s0", "orders", first, last, {"w": 1}, share)
    empty = ShownStream("s1", share=StreamShare("s1", None, None, None, None, 0, 0))
    found = StreamsReport("b:5552", "shop", "4.3.6", [full, empty], NOW, "billing")
    PrometheusOutput().show(found)
    metrics = parsed_exposition(capsys.readouterr().out)
    expected = {
        "rabbit_chx_stream_offsets": [1_100, 0],
        "rabbit_chx_stream_oldest_row_age_seconds": [120],
        "rabbit_chx_stream_publisher_references": [1],
        "rabbit_chx_stream_group_lag_rows": [4, 0],
        "rabbit_chx_stream_group_lag_seconds": [1.5, 0],
    }
    assert {name: list(metric.values.values()) for name, metric in metrics.items()} == expected
    assert metrics["rabbit_chx_stream_offsets"].value(vhost="shop", stream="s0") == 1_100
    assert metrics["rabbit_chx_stream_group_lag_rows"].value(vhost="shop", group="billing", stream="s0") == 4
    ConsoleOutput().show(found)
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert {"stream group billing", "s0 1,100 4 2", "s1 - 0 0"} <= set(lines)
    document = found.as_json()
    assert document["group"] == "billing"
    assert [(each["lag_rows"], each["lag_s"]) for each in document["streams"]] == [(4, 1.5), (0, 0.0)]


def test_metrics_without_values_are_omitted() -> None:
    """Neither the management API nor a stream group; a clock that is behind that of the broker."""
    later = RowPlace(0, NOW + timedelta(seconds=1))
    stream = ShownStream("s0", None, later, later)
    metrics = parsed_exposition(
        metrics_text(StreamsReport("b:5552", "shop", "4.3.6", [stream], NOW).metrics())
    )
    assert set(metrics) == {"rabbit_chx_stream_offsets", "rabbit_chx_stream_oldest_row_age_seconds"}
    assert metrics["rabbit_chx_stream_oldest_row_age_seconds"].value(stream="s0") == 0
