"""Keys that land on a queue."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from command_line import BIND, RING

from rabbit_chx.cli import main


def test_keys_land_where_they_should(answer: Callable[..., Any], shown: Callable[..., str]) -> None:
    document = answer("keys", *BIND, "q1", "--count", "20", "--pattern", "a key {n}")
    assert len(document["keys"]) == 20
    assert {RING.destination_for(key) for key in document["keys"]} == {"q1"}
    lines = shown("keys", *BIND, "q1", "--count", "20", "--pattern", "a key {n}").splitlines()
    assert lines == document["keys"]


def test_keys_of_a_header_of_another_type(answer: Callable[..., Any]) -> None:
    found = answer("keys", *BIND, "q1", "--hash-header", "h:long", "--pattern", "{n}")["keys"]
    (row,) = answer("route", *BIND, "--hash-header", "h:long", *found)["answers"]
    assert row["destination"] == "q1"


def test_keys_found_before_the_search_ends_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["keys", "--bind", "q1=1", "--bind", "q2=500", "q1", "--count", "50", "--tries", "900"]
    assert main(arguments) == 3
    found = capsys.readouterr()
    assert found.out == "canary-462\n"
    assert found.err.startswith("rabbit-chx: not all of 50 keys were found: 900 keys in a row")
    assert main([*arguments, "--output", "json"]) == 3
    assert json.loads(capsys.readouterr().out)["keys"] == ["canary-462"]


MODULUS = ("--exchange-type", "x-modulus-hash", "--bind", "q1=1", "--bind", "q2=1", "--bind", "q3=1")
STREAM = ("--exchange-type", "super-stream/rstream", "--bind", "s-0=0", "--bind", "s-1=1")


@pytest.mark.parametrize(("given", "wanted"), [(MODULUS, "q2"), (STREAM, "s-1")])
def test_keys_of_an_exchange_without_a_ring(
    answer: Callable[..., Any], given: tuple[str, ...], wanted: str
) -> None:
    document = answer("keys", *given, wanted, "--count", "20")
    assert len(document["keys"]) == 20
    routed = answer("route", *given, *document["keys"])
    assert {answer["destination"] for answer in routed["answers"]} == {wanted}
    assert document["ring"] is None
    kind = "modulus" if given is MODULUS else "super_stream"
    assert document[kind] == routed[kind]


def test_a_queue_that_is_not_bound_has_no_keys(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", *MODULUS, "q4"]) == 2
    assert "q4 is not bound to offline; bound are q1, q2, q3" in capsys.readouterr().err
    assert main(["keys", *MODULUS, "q1", "--release", "4.0.5/khepri"]) == 2
    assert "use 4.3 or x-consistent-hash" in capsys.readouterr().err


def test_so_many_keys_that_nobody_waits_for_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "--bind", "a=1", "a", "--count", "9" * 20]) == 2
    assert "is not in the range 1<=x<=1000000000" in capsys.readouterr().err
    assert main(["simulate", "--bind", "a=1", "--pattern", "{n}", "--count", "9" * 20]) == 2
    assert "is not in the range 1<=x<=100000000" in capsys.readouterr().err
