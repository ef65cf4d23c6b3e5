"""Two rings, or two releases."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import BIND, EQUAL, RING
from definitions_file import definitions_file
from upgrade_topologies import FILE, MIXED

from rabbit_chx.routing import HashRing


def test_compare_finds_what_an_upgrade_moves(answer: Callable[..., Any]) -> None:
    releases = ("--release", "3.12.14", "--to-release", "4.3.6")
    sample = ("--pattern", "tenant-{n}", "--count", "300")
    document = answer("compare", *EQUAL, *releases, *sample, "--hash-header", "tenant", code=1)
    assert document["exact"] is None
    assert document["sample"]["keys"] == 300
    assert document["sample"]["moved"] == len(document["sample"]["moves"]) > 100
    assert answer("compare", *EQUAL, *releases, *sample)["sample"]["moved"] == 0


def test_compare_reports_what_a_release_refuses(
    answer: Callable[..., Any], shown: Callable[..., str], tmp_path: Path
) -> None:
    path = tmp_path / "keys"
    path.write_text('[]\n["a"]\n')
    command = ("compare", *EQUAL, "--hash-header", "h:array", "--keys", str(path))
    releases = ("--release", "3.13.7", "--to-release", "4.3.6")
    (move,) = answer(*command, *releases, code=1)["sample"]["moves"]
    assert (move["key"], set(move["before"])) == ("[]", {"refused"})
    assert "1 only before: the header 'h' is an empty array" in shown(*command, *releases, code=1)


def test_a_sample_that_stays_hides_no_keys_that_move(answer: Callable[..., Any], tmp_path: Path) -> None:
    other = HashRing.from_bindings([("q1", 1), ("q2", 11)])
    stays = next(
        key for key in map(str, range(100)) if RING.destination_for(key) == other.destination_for(key)
    )
    path = tmp_path / "keys"
    path.write_text(stays)
    arguments = ("compare", *BIND, "--to-bind", "q1=1", "--to-bind", "q2=11", "--keys", str(path))
    document = answer(*arguments, code=1)
    assert document["sample"]["moved"] == 0
    assert document["exact"]["moved"] == RING.share_moved(other) > 0


def test_a_moved_share_counts_each_message(shown: Callable[..., str], tmp_path: Path) -> None:
    releases = ("--release", "3.12.14", "--to-release", "4.3.6", "--hash-header", "t")
    path = tmp_path / "keys"
    path.write_text("tenant-7\n" * 3 + "tenant-0\n")
    text = shown("compare", *EQUAL, *releases, "--keys", str(path), code=1)
    assert "moved   3 of 4 keys, 75.000%" in text


def test_compare_reports_by_which_rules_keys_move(shown: Callable[..., str], tmp_path: Path) -> None:
    releases = ("--release", "3.12.14", "--to-release", "4.3.6", "--hash-header", "t:long")
    path = tmp_path / "keys"
    path.write_text("".join(f"{n}\n" for n in range(10)))
    text = shown("compare", *EQUAL, *releases, "--keys", str(path), code=1)
    assert "\nrule    before, header value: with its wire type" in text
    assert "\nrule    after, header with an integer: the integer itself is the seed" in text
    assert "\nrule" not in shown("compare", *BIND, "--to-bind", "q1=3", "--keys", str(path), code=1)


def test_compare_two_rings_exactly(answer: Callable[..., Any], tmp_path: Path) -> None:
    other = HashRing.from_buckets(["q2", "q1"])
    path = tmp_path / "ring.json"
    path.write_text(other.to_json())
    ring = HashRing.from_bindings([("q1", 1), ("q2", 1)])
    for arguments in (("--to-ring", str(path)), ("--to-bind", "q2=1", "--to-bind", "q1=1")):
        document = answer("compare", *EQUAL, *arguments, code=1)
        assert document["exact"]["moved"] == ring.share_moved(other) == 1
    assert answer("compare", *EQUAL, "--to-bind", "q1=1", "--to-bind", "q2=1")["exact"]["moved"] == 0


def test_the_other_ring_has_the_rules_of_the_first_by_default(answer: Callable[..., Any]) -> None:
    arguments = ("compare", *EQUAL, "--release", "3.9.0", "--to-bind", "q1=1", "--to-bind", "q2=1")
    assert answer(*arguments)["after"]["release"]["version"] == "3.9.0"
    assert answer(*arguments, "--to-release", "4.3.6")["after"]["release"]["version"] == "4.3.6"


MODULUS = ("--exchange-type", "x-modulus-hash", "--bind", "q2=1", "--bind", "q1=2")
MODULUS_FILE = """
[[exchanges]]
name = "x"
type = "x-modulus-hash"
[[bindings]]
source = "x"
queue = "q2"
routing_key = "1"
[[bindings]]
source = "x"
queue = "q1"
routing_key = "2"
[[queues]]
name = "q{1..2}"
"""


@pytest.fixture
def modulus(tmp_path: Path) -> tuple[str, str]:
    """The exchange of `MODULUS` as a topology file."""
    path = tmp_path / "modulus.toml"
    path.write_text(MODULUS_FILE)
    return ("--topology", str(path))


def test_exchanges_without_a_ring_are_compared(answer: Callable[..., Any], modulus: tuple[str, str]) -> None:
    """4.0 counts by binding key, and 4.3 by name: each key moves."""
    sample = ("--pattern", "k-{n}", "--count", "50")
    document = answer("compare", *modulus, "--release", "4.0.5", "--to-release", "4.3.6", *sample, code=1)
    assert document["before"]["modulus"]["destinations"] == ["q2", "q1"]
    assert document["after"]["modulus"]["destinations"] == ["q1", "q2"]
    assert (document["exact"]["moved"], document["sample"]["moved"]) == (1.0, 50)
    move = document["sample"]["moves"][0]
    for release, which in (("4.0.5", "before"), ("4.3.6", "after")):
        (one,) = answer("route", *MODULUS, "--release", release, move["key"])["answers"]
        assert one["destination"] == move[which]


def test_bindings_of_an_exchange_without_a_ring_are_compared_exactly(
    answer: Callable[..., Any], shown: Callable[..., str], modulus: tuple[str, str]
) -> None:
    more = ("--to-bind", "q2=1", "--to-bind", "q1=2", "--to-bind", "q3=3")
    exact = answer("compare", *modulus, *more, code=1)["exact"]
    simulated = answer("simulate", *MODULUS, "--add", "q3=3")["change"]["shares"]
    assert (exact["moved"], exact["cells"]) == (simulated["moved"], simulated["cells"])
    assert "of all keys, by all hashes" in shown("compare", *modulus, *more, code=1)
    stays = ("--to-bind", "q1=2", "--to-bind", "q2=1")
    assert answer("compare", *modulus, *stays)["exact"]["moved"] == 0


@pytest.fixture
def file(tmp_path: Path) -> str:
    """A topology file with a hash exchange of each kind."""
    path = tmp_path / "topology.toml"
    path.write_text(FILE)
    return str(path)


UPGRADE = ("--release", "3.12.14", "--to-release", "4.3.6")


def test_each_exchange_of_a_file_is_compared_on_two_releases(answer: Callable[..., Any], file: str) -> None:
    document = answer("compare", "--topology", file, *UPGRADE, code=1)
    assert (document["release"]["version"], document["to_release"]["version"]) == ("3.12.14", "4.3.6")
    by_name = {exchange["exchange"]: exchange for exchange in document["exchanges"]}
    assert {name: (exchange["verdict"], exchange["order"]) for name, exchange in by_name.items()} == {
        "accounts": ("moves", "lost"), "images": ("moves", "none"), "mails": ("repair", "lost"),
        "orders": ("repair", "lost"), "tenants": ("moves", "lost"),
    }  # fmt: skip
    assert by_name["orders"]["moved"] == by_name["orders"]["exact"]["moved"] == 0
    assert by_name["images"]["moved"] == by_name["images"]["exact"]["moved"] == 1
    assert (by_name["accounts"]["moved"], by_name["accounts"]["exact"]) == (
        pytest.approx(0.75, abs=1e-3),
        None,
    )
    assert f"--file {file}" in by_name["orders"]["findings"][0]["fix"]


def test_the_share_of_a_file_is_that_of_one_exchange_of_it(answer: Callable[..., Any], file: str) -> None:
    both = {"orders": ("4.0.9", "4.3.6"), "images": ("4.0.9", "4.3.6")}
    for name, (before, after) in both.items():
        releases = ("--topology", file, "--release", before, "--to-release", after)
        (whole,) = (
            found for found in answer("compare", *releases, code=1)["exchanges"] if found["exchange"] == name
        )
        code = 1 if whole["moved"] else 0
        assert answer("compare", *releases, "--exchange", name, code=code)["exact"] == whole["exact"]


def test_no_exchange_of_a_file_moves(answer: Callable[..., Any], file: str) -> None:
    document = answer("compare", "--topology", file, "--release", "4.3.0", "--to-release", "4.3.6")
    assert {exchange["verdict"] for exchange in document["exchanges"]} == {"safe"}


def test_the_page_of_an_upgrade_has_a_verdict_for_each_exchange(
    ran: Callable[..., tuple[int, str, str]], file: str
) -> None:
    releases = ("--release", "3.12", "--to-release", "4.3")
    code, page, said = ran("compare", "--topology", file, *releases, "--output", "markdown")
    assert code == 1
    assert "release 3.12 means 3.12.14" in said
    assert "| orders | routing-key | 0.000% | safe after a ring repair |" in page
    assert "| tenants | header 'tenant' | about 37.5% | keys move |" in page
    assert "| images | all routing keys | 100.000% | keys move |" in page
    assert "### Effects and remedies" in page
    assert "<summary>Exchange images</summary>" in page


def test_a_definitions_file_reports_its_release(
    ran: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    path = tmp_path / "definitions.json"
    path.write_text(json.dumps({**json.loads(definitions_file(MIXED)), "rabbitmq_version": "3.12.14"}))
    code, out, said = ran("compare", "--topology", str(path), "--to-release", "4.3.6", "--output", "json")
    assert code == 1
    assert "is assumed to be that of the bindings" in said
    document = json.loads(out)
    assert document["release"]["version"] == "3.12.14"
    assert document["source"].endswith("rings assumed as the bindings are listed")
    orders = next(exchange for exchange in document["exchanges"] if exchange["exchange"] == "orders")
    assert "topology export --exchange orders > orders.toml" in orders["findings"][0]["fix"]
    code, _, said = ran("compare", "--topology", str(path), "--release", "3.11.0", "--to-release", "4.3.6")
    assert (code, "it is compared as of 3.11.0" in said) == (1, True)
