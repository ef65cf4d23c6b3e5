"""`rabbit-chx verify --stored`: the exit code, and what is shown of rows in another stream."""

from __future__ import annotations

from typing import Any

import pytest
from command_line import Stored

from rabbit_chx.cli.stream_options import StreamMap
from rabbit_chx.cli.verify import StoredReport
from rabbit_chx.rendering import ConsoleOutput
from rabbit_chx.routing import HashRing, ModulusHashExchange, Release
from rabbit_chx.streams import MisplacedRow, StreamParity

READ = HashRing.from_buckets(["s0", "s1"])
ASSUMED = HashRing.from_bindings([("s0", 1), ("s1", 1)], provenance="assumed")
ASSUMED_MODULUS = ModulusHashExchange("m", [("s0", "1"), ("s1", "2")], Release("4.0.5"), "assumed")
ROW = MisplacedRow(7, b"k\xff", "s1")


def report(ring: HashRing | ModulusHashExchange = READ, **counts: Any) -> StoredReport:
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
        (report(ASSUMED_MODULUS, right=9), 3),
    ],
)
def test_the_exit_code_is_the_result(found: StoredReport, code: int) -> None:
    assert found.code == code


@pytest.mark.parametrize(
    ("ring", "remedy"), [(ASSUMED, "pass --ring-via to read it"), (ASSUMED_MODULUS, "by name from 4.3 on")]
)
def test_a_guess_is_shown_with_what_would_determine_it(
    capsys: pytest.CaptureFixture[str], ring: HashRing | ModulusHashExchange, remedy: str
) -> None:
    ConsoleOutput().show(report(ring, right=9))
    assert remedy in " ".join(capsys.readouterr().out.split())


def test_stored_rows_as_a_table_and_as_json(stored: Stored) -> None:
    stored("verify-stored", report(right=9, wrong=1, without_key=2))
