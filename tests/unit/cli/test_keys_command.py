"""Keys that land on a queue."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from command_line import BIND, RING

from rabbit_chx.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


def test_keys_land_where_they_should(answer: Callable[..., Any], shown: Callable[..., str]) -> None:
    document = answer("keys", *BIND, "q1", "--count", "20", "--pattern", "a key {n}")
    assert len(document["keys"]) == 20
    assert {RING.destination_for(key) for key in document["keys"]} == {"q1"}
    lines = shown("keys", *BIND, "q1", "--count", "20", "--pattern", "a key {n}").splitlines()
    assert lines == document["keys"]


def test_keys_of_a_header_of_another_type(answer: Callable[..., Any]) -> None:
    found = answer("keys", *BIND, "q1", "--hash-header", "h", "--type", "long", "--pattern", "{n}")["keys"]
    (row,) = answer("route", *BIND, "--hash-header", "h", "--type", "long", *found)["answers"]
    assert row["destination"] == "q1"


def test_keys_found_before_the_search_ends_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["keys", "--bind", "q1=1", "--bind", "q2=500", "q1", "--count", "50", "--tries", "900"]
    assert main(arguments) == 3
    found = capsys.readouterr()
    assert found.out == "canary-462\n"
    assert found.err.startswith("rabbit-chx: not all of 50 keys are found: 900 keys in a row")
    assert main([*arguments, "--output", "json"]) == 3
    assert json.loads(capsys.readouterr().out)["keys"] == ["canary-462"]
