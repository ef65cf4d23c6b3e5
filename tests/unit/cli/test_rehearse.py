"""An upgrade predicted without brokers, and options that do not go together."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from definitions_file import definitions_file
from upgrade_topologies import FILE, MIXED

RELEASES = ("--from", "3.12.14", "--to", "4.3.6")


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "topology.toml"
    path.write_text(FILE)
    return str(path)


def test_the_document(answer: Callable[..., Any], file: str) -> None:
    sample = ("--type", "account=long", "--count", "50", "--no-brokers")
    document = answer("rehearse", file, *RELEASES, *sample, code=1)
    assert (document["format"], document["format_version"]) == ("rabbit-chx/rehearse", 1)
    assert (document["proven"], document["proof"]) == (False, None)
    assert document["not_proven"] == "it was not asked for"
    by_name = {exchange["exchange"]: exchange for exchange in document["exchanges"]}
    assert {name: exchange["verdict"] for name, exchange in by_name.items()} == {
        "accounts": "moves", "images": "moves", "mails": "repair", "orders": "repair", "tenants": "moves",
    }  # fmt: skip
    accounts = by_name["accounts"]
    assert accounts["sample"]["keys"] == 50
    assert accounts["sample"]["moved"] == len(accounts["sample"]["moves"]) > 20
    assert accounts["kept_in_array"] == 50
    assert accounts["sample"]["moves"][0]["key"].isdigit()
    assert by_name["orders"]["exact"]["moved"] == 0
    assert by_name["images"]["exact"]["moved"] == 1
    assert f"--file {file}" in by_name["orders"]["findings"][0]["cure"]


def test_nothing_moves_is_0(answer: Callable[..., Any], file: str) -> None:
    document = answer("rehearse", file, "--from", "4.3.0", "--to", "4.3.6", "--count", "5", "--no-brokers")
    assert {exchange["verdict"] for exchange in document["exchanges"]} == {"safe"}


def test_the_page(ran: Callable[..., tuple[int, str, str]], file: str) -> None:
    command = ("rehearse", file, "--from", "3.12", "--to", "4.3", "--count", "20", "--no-brokers")
    code, page, said = ran(*command, "--output", "markdown")
    assert code == 1
    assert "release 3.12 is taken as 3.12.14" in said
    assert page.startswith("### Upgrade of RabbitMQ 3.12.14 to 4.3.6\n")
    assert "- **safe after a ring repair**: mails, orders" in page
    assert "- **proven**: nothing: it was not asked for" in page
    assert "### What happens, and what to do" in page
    assert "<summary>Exchange tenants</summary>" in page


def test_one_exchange_of_a_file(answer: Callable[..., Any], file: str) -> None:
    command = ("rehearse", file, "--exchange", "mails", *RELEASES, "--count", "5", "--no-brokers")
    (mails,) = answer(*command, code=1)["exchanges"]
    assert mails["exchange"] == "mails"


def test_a_definitions_file_says_its_release(
    ran: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    definitions = json.loads(definitions_file(MIXED))
    path = tmp_path / "definitions.json"
    path.write_text(json.dumps({**definitions, "rabbitmq_version": "3.12.14"}))
    command = ("rehearse", str(path), "--to", "4.3.6", "--count", "5", "--no-brokers", "--output", "json")
    code, out, said = ran(*command)
    assert code == 1
    assert "is assumed as the bindings are listed" in said
    document = json.loads(out)
    assert document["from"]["version"] == "3.12.14"
    orders = next(exchange for exchange in document["exchanges"] if exchange["exchange"] == "orders")
    assert orders["before"]["provenance"] == "assumed"
    assert "topology export --exchange orders > orders.toml" in orders["findings"][0]["cure"]


def test_without_docker_nothing_is_proven(
    ran: Callable[..., tuple[int, str, str]], file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")
    command = ("rehearse", file, "--from", "3.11.0", "--to", "3.12.14", "--count", "5", "--output", "json")
    code, out, said = ran(*command)
    document = json.loads(out)
    assert (code, document["proven"]) == (1, False)
    assert "there is no broker of RabbitMQ 3.11: " in document["not_proven"]
    assert "nothing is proven: there is no broker of RabbitMQ 3.11" in said


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((*RELEASES, "--type", "nothing"), "is no AMQP field type"),
        (
            (*RELEASES, "--type", "gone=long"),
            "no exchange hashes the header 'gone': give one of account, tenant",
        ),
        ((*RELEASES, "--type", "account=long", "--pattern", "user-{n}"), "does not suit exchange 'accounts'"),
        (("--to", "4.3.6"), "does not say its release: give --from"),
        (("--from", "4.3.6", "--to", "4.0.9"), "4.0.9 is older than 4.3.6"),
        ((*RELEASES, "--url", "amqp://localhost"), "--url is about a live broker"),
    ],
)
def test_options_that_do_not_go_together(
    ran: Callable[..., tuple[int, str, str]], file: str, options: tuple[str, ...], words: str
) -> None:
    code, out, said = ran("rehearse", file, *options, "--no-brokers")
    assert (code, out) == (2, "")
    assert words in said


def test_there_is_something_to_rehearse(
    ran: Callable[..., tuple[int, str, str]], file: str, tmp_path: Path
) -> None:
    assert "nothing to rehearse: give a topology file" in ran("rehearse", *RELEASES)[2]
    assert ran("rehearse", file, "--exchange", "gone", *RELEASES)[0] == 2
    code, _, errors = ran("rehearse", file, "--exchange", "audit", *RELEASES)
    assert code == 2
    assert "hashes nothing" in errors
    empty = tmp_path / "empty.toml"
    empty.write_text('[[queues]]\nname = "q"\n')
    assert "nothing to rehearse" in ran("rehearse", str(empty), *RELEASES)[2]
