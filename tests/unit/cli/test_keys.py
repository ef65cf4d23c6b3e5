"""Keys that land on a queue."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import BIND, RING


def test_keys_land_where_they_should(answer: Callable[..., Any], shown: Callable[..., str]) -> None:
    document = answer("keys", *BIND, "q1", "--count", "20", "--pattern", "a key {n}")
    assert len(document["keys"]) == 20
    assert {RING.destination_for(key) for key in document["keys"]} == {"q1"}
    lines = shown("keys", *BIND, "q1", "--count", "20", "--pattern", "a key {n}").splitlines()
    assert lines == document["keys"]


def test_keys_of_a_header_reach_their_queue_with_the_type_of_the_header(answer: Callable[..., Any]) -> None:
    found = answer("keys", *BIND, "q1", "--hash-header", "h:long", "--pattern", "{n}")["keys"]
    (row,) = answer("route", *BIND, "--hash-header", "h:long", *found)["answers"]
    assert row["destination"] == "q1"


MODULUS = ("--exchange-type", "x-modulus-hash", "--bind", "q1=1", "--bind", "q2=1", "--bind", "q3=1")
STREAM = ("--exchange-type", "super-stream/rstream", "--bind", "s-0=0", "--bind", "s-1=1")


@pytest.mark.parametrize(("given", "wanted"), [(MODULUS, "q2"), (STREAM, "s-1")])
def test_keys_of_an_exchange_without_a_ring_reach_their_destination(
    answer: Callable[..., Any], given: tuple[str, ...], wanted: str
) -> None:
    document = answer("keys", *given, wanted, "--count", "20")
    assert len(document["keys"]) == 20
    routed = answer("route", *given, *document["keys"])
    assert {answer["destination"] for answer in routed["answers"]} == {wanted}
    assert document["ring"] is None
    kind = "modulus" if given is MODULUS else "super_stream"
    assert document[kind] == routed[kind]


def test_an_empty_ring_offers_no_destination(
    ran: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    (tmp_path / "t.toml").write_text('[[exchanges]]\nname = "x"\ntype = "x-consistent-hash"\nring = []\n')
    code, _, errors = ran("keys", "--topology", str(tmp_path / "t.toml"), "q1")
    assert (code, errors) == (
        2,
        "rabbit-chx: q1 does not have a bucket, because no destination has one: bind a queue first\n",
    )
