"""Shares of a ring, and what a change moves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from command_line import BIND, EQUAL, RING

from rabbit_chx.analysis import movement
from rabbit_chx.routing import HashRing, Release


def test_simulate_gives_exact_shares_and_what_a_change_moves(answer: Callable[..., Any]) -> None:
    document = answer("simulate", *BIND, "--unbind", "q1", "--add", "q9=2")
    assert {row["destination"]: row["share"] for row in document["shares"]} == RING.shares()
    changed = RING.unbind("q1").bind("q9", 2)
    assert document["change"]["shares"]["moved"] == RING.share_moved(changed)
    less = document["change"]["less"]
    assert set(less) == {"arranged", "slots"}
    assert 0 < less["arranged"] <= document["change"]["shares"]["moved"]
    cells = {(cell["from"], cell["to"]): cell["amount"] for cell in document["change"]["shares"]["cells"]}
    assert cells == movement(RING, changed).amounts
    assert (document["sample"], document["change"]["messages"]) == (None, None)


def test_an_empty_ring_is_reported(shown: Callable[..., str], tmp_path: Path) -> None:
    path = tmp_path / "topology.toml"
    path.write_text('[[exchanges]]\nname = "o"\ntype = "x-consistent-hash"\nring = []\n')
    text = shown("simulate", "--topology", str(path), "--exchange", "o", code=1)
    assert "no buckets: every message is unroutable" in " ".join(text.split())


def test_simulate_counts_a_sample(answer: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_bytes(b"hot\nhot\r\nhot\nk1\nk2\n\nk3")
    sample = answer("simulate", *BIND, "--keys", str(path))["sample"]
    assert (sample["messages"], sample["keys"]) == (7, 5)
    assert sample["heaviest"][0] == {
        "key": "hot",
        "messages": 3,
        "destination": RING.destination_for("hot"),
    }
    assert sum(row["messages"] for row in sample["destinations"]) == 7


def test_keys_that_are_one_value_keep_their_names(answer: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("05\n5\n+5\n")
    sample = ("--hash-header", "t:long", "--keys", str(path))
    document = answer("compare", *EQUAL, "--release", "3.12.14", "--to-release", "4.3.6", *sample, code=1)
    assert [move["key"] for move in document["sample"]["moves"]] == ["05", "5", "+5"]
    counted = answer("simulate", *EQUAL, *sample)["sample"]
    assert (counted["keys"], counted["messages"]) == (1, 3)
    assert counted["heaviest"] == [{"key": "05", "messages": 3, "destination": "q1"}]


def test_one_binding_of_several_can_be_unbound(answer: Callable[..., Any], tmp_path: Path) -> None:
    ring = HashRing.from_buckets(["q1", "q1", "q=2"], Release("3.8.9"))
    path = tmp_path / "ring.json"
    path.write_text(ring.to_json())
    for text, changed in (("q1=2", ring.unbind("q1", 2)), ("q=2=1", ring.unbind("q=2", 1))):
        change = answer("simulate", "--ring", str(path), "--unbind", text)["change"]
        assert change["shares"]["moved"] == ring.share_moved(changed)
    named = answer("simulate", "--bind", "q1=1", "--bind", "q=2=1", "--unbind", "q=2")["change"]
    assert named["ring"]["destinations"] == ["q1"]


def test_holes_have_no_ideal(answer: Callable[..., Any], shown: Callable[..., str], tmp_path: Path) -> None:
    path = tmp_path / "ring.json"
    path.write_text(HashRing.from_buckets([None, None, None, "q3", "q3"], Release("3.8.9")).to_json())
    rows = answer("simulate", "--ring", str(path), code=1)["shares"]
    assert [(row["destination"], row["share"], row["ideal"], row["skew"]) for row in rows] == [
        ("q3", 0.0, 1.0, -1.0),
        (None, 1.0, 0.0, 0.0),
    ]
    assert shown("simulate", "--ring", str(path), code=1).splitlines()[-1].split() == [
        "(nowhere)",
        "3",
        "100.000%",
        "0.000%",
    ]
    text = shown("route", "--ring", str(path), "--hash-header", "h", "k", code=1)
    assert "(nowhere)" in text


def test_simulate_reports_when_less_is_possible(shown: Callable[..., str]) -> None:
    queues = [f"--bind=q{n}=10" for n in range(12)]
    (less,) = (
        line for line in shown("simulate", *queues, "--unbind", "q4").splitlines() if line.startswith("less")
    )
    ring = HashRing.from_bindings([(f"q{n}", 10) for n in range(12)])
    last_in_the_gap = HashRing.from_bindings([(f"q{n}", 10) for n in (0, 1, 2, 3, 11, *range(5, 11))])
    assert less == (
        f"less    {ring.share_moved(last_in_the_gap):.3%} in the order that topology arrange writes; "
        f"{ring.shares()['q4']:.3%} with slots instead of the ring"
    )


def test_no_skew_is_below_zero_by_rounding(shown: Callable[..., str]) -> None:
    stream = ("--exchange-type", "super-stream", "--bind", "s-0=0", "--bind", "s-1=1", "--bind", "s-2=2")
    out = shown("simulate", *stream)
    assert ("+0.00%" in out, "-0.00%" in out) == (True, False)
