"""Samples of keys."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import BIND

from rabbit_chx.cli.samples import SampleOptions


@pytest.mark.parametrize(
    ("options", "lines", "says"),
    [
        ((), ["a"] * 20_000 + ["b", "x" * 300], "line 20002 of {path}: the routing key"),
        (
            ("--hash-header", "h:long"),
            ["1", "2", "three"],
            "line 3 of {path}: 'three' is not a valid long",
        ),
    ],
)
def test_a_key_that_cannot_be_sent_is_named_by_file_and_line(
    ran: Callable[..., tuple[int, str, str]],
    tmp_path: Path,
    options: tuple[str, ...],
    lines: list[str],
    says: str,
) -> None:
    path = tmp_path / "keys"
    path.write_text("\n".join(lines))
    for command in (("simulate", *BIND), ("compare", *BIND, "--to-bind", "q=1")):
        code, _, errors = ran(*command, *options, "--keys", str(path))
        assert code == 2
        assert errors.startswith(f"rabbit-chx: {says.format(path=path)}")


def test_a_key_of_a_pattern_that_cannot_be_sent_is_named(ran: Callable[..., tuple[int, str, str]]) -> None:
    code, _, errors = ran("simulate", *BIND, "--pattern", "x" * 254 + "{n}", "--count", "11")
    assert code == 2
    assert errors.startswith("rabbit-chx: key 'xxx")


def test_a_count_alone_is_enough_where_there_is_a_pattern_by_default() -> None:
    few = SampleOptions(None, None, 5000, None).read_or_make("{n}")
    assert few == SampleOptions(None, "{n}", 5000, None).read_or_make("")
    assert len(few.keys) == 5000


@pytest.mark.parametrize(
    ("command", "shown"),
    [("verify", "10,000"), ("simulate", "100,000"), ("compare", "100,000")],
)
def test_the_help_reports_how_many_keys_a_pattern_makes(
    ran: Callable[..., tuple[int, str, str]], command: str, shown: str
) -> None:
    words = " ".join(ran(command, "--help-all")[1].split())
    assert f"The number of keys of the pattern. [default: {shown}]" in words
