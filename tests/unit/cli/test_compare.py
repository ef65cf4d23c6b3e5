"""Two rings, or two releases."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import BIND, RING, Answer, Ran
from definitions_file import definitions_file
from upgrade_topologies import FILE, MIXED

from rabbit_chx.routing import HashRing


def test_a_sample_that_stays_hides_no_keys_that_move(answer: Answer, tmp_path: Path) -> None:
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


@pytest.fixture
def file(tmp_path: Path) -> str:
    """A topology file with a hash exchange of each kind."""
    path = tmp_path / "topology.toml"
    path.write_text(FILE)
    return str(path)


UPGRADE = ("--release", "3.12.14", "--to-release", "4.3.6")


def test_each_exchange_of_a_file_is_compared_on_two_releases(answer: Answer, file: str) -> None:
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


def test_the_share_of_a_file_is_that_of_one_exchange_of_it(answer: Answer, file: str) -> None:
    both = {"orders": ("4.0.9", "4.3.6"), "images": ("4.0.9", "4.3.6")}
    for name, (before, after) in both.items():
        releases = ("--topology", file, "--release", before, "--to-release", after)
        (whole,) = (
            found for found in answer("compare", *releases, code=1)["exchanges"] if found["exchange"] == name
        )
        code = 1 if whole["moved"] else 0
        assert answer("compare", *releases, "--exchange", name, code=code)["exact"] == whole["exact"]


def test_no_exchange_of_a_file_moves(answer: Answer, file: str) -> None:
    document = answer("compare", "--topology", file, "--release", "4.3.0", "--to-release", "4.3.6")
    assert {exchange["verdict"] for exchange in document["exchanges"]} == {"safe"}


def test_the_page_of_an_upgrade_has_a_verdict_for_each_exchange(ran: Ran, file: str) -> None:
    releases = ("--release", "3.12", "--to-release", "4.3")
    code, page, said = ran("compare", "--topology", file, *releases, "--output", "markdown")
    assert code == 1
    assert "release 3.12 means 3.12.14" in said
    assert "| orders | routing-key | 0.000% | safe after a ring repair |" in page
    assert "| tenants | header 'tenant' | about 37.5% | keys move |" in page
    assert "| images | all routing keys | 100.000% | keys move |" in page
    assert "### Effects and remedies" in page
    assert "<summary>Exchange images</summary>" in page


def test_a_definitions_file_reports_its_release(ran: Ran, tmp_path: Path) -> None:
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
