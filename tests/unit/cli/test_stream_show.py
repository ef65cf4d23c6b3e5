"""`rabbit-chx stream show`: what is asked of the broker, what is refused, and what tables, JSON and metrics look like."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from command_line import Ran, Stored
from exposition import parsed_exposition
from scripted_api import ScriptedApi

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.cli import stream_options
from rabbit_chx.cli.stream_show import RowPlace, ShownStream, StreamsReport
from rabbit_chx.consuming.stream_status import StreamShare
from rabbit_chx.errors import BrokerRefusedError
from rabbit_chx.rendering import ConsoleOutput
from rabbit_chx.rendering.output import metrics_text
from rabbit_chx.streams.frames import Code, StreamMetadata
from rabbit_chx.streams.references import writers_of

NOW = datetime(2026, 11, 22, 18, tzinfo=UTC)
NOBODY = ("--url", "rabbitmq-stream://127.0.0.1:1", "--management-url", "")


def test_a_command_that_nobody_answers_exits_with_69(ran: Ran) -> None:
    code, _, errors = ran("stream", "show", "s", *NOBODY, "--wait", "0.1")
    assert (code, "no server answers there" in errors, "(after --wait 0.1)" in errors) == (69, True, True)


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


def test_a_plugin_that_is_not_enabled_is_named_with_the_remedy() -> None:
    with ScriptedApi() as api, pytest.raises(BrokerRefusedError) as caught:
        writers_of(f"http://{api.address}", ConnectionSettings(), "s")
    assert "rabbitmq-plugins enable rabbitmq_stream_management" in str(caught.value)
    assert "management_url" not in str(caught.value)


def test_streams_as_tables_json_and_metrics(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, stored: Stored
) -> None:
    first, last = (
        RowPlace(5, NOW - timedelta(minutes=2)),
        RowPlace(1_104, NOW + timedelta(milliseconds=1_001)),
    )
    full = ShownStream("s0", "orders", first, last, {f"w{n}": n for n in range(21)})
    found = StreamsReport("b:5552", "shop", "4.3.6", [full, ShownStream("s1")], NOW)
    stored("streams", found)
    share, none = (
        StreamShare("s0", None, None, None, 1_100, 4, 1.5),
        StreamShare("s1", None, None, None, None, 0, 0),
    )
    streams = [replace(full, writers={"w": 1}, share=share), ShownStream("s1", share=none)]
    stored("streams-of-group", replace(found, streams=streams, group="billing"))
    ConsoleOutput().show(replace(found, streams=[replace(full, writers={f"w{n}": n for n in range(20)})]))
    assert "more writer" not in capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", "80")
    end = RowPlace(123_456_789_012, NOW)
    ConsoleOutput().show(replace(found, streams=[ShownStream("orders-0", None, end, end, {"w": 1})]))
    (row, times, *_) = [line.split() for line in capsys.readouterr().out.splitlines() if "orders-0" in line]
    assert row[-3:] == ["1", "of", "255"], "it fits into 80 columns"
    assert times == ["orders-0", "2026-11-22", "18:00:00Z", "2026-11-22", "18:00:00Z"]


def test_metrics_without_values_are_omitted() -> None:
    """Neither the management API nor a stream group; a clock that is behind that of the broker."""
    later = RowPlace(0, NOW + timedelta(seconds=1))
    stream = ShownStream("s0", None, later, later)
    metrics = parsed_exposition(
        metrics_text(StreamsReport("b:5552", "shop", "4.3.6", [stream], NOW).metrics())
    )
    assert set(metrics) == {"rabbit_chx_stream_offsets", "rabbit_chx_stream_oldest_row_age_seconds"}
    assert metrics["rabbit_chx_stream_oldest_row_age_seconds"].value(stream="s0") == 0
