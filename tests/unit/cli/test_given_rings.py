"""Where a ring comes from: bindings, a file, an exchange of a broker or of a definitions file."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from command_line import BIND, RING

from rabbit_chx.routing import HashRing, Release

CHX = "x-consistent-hash"
BINDINGS = [("q2", 10), ("q1", 1)]


def definitions(path: Path, **changes: Any) -> str:
    """A definitions file as RabbitMQ writes it: the exchange `orders`, and one that hashes a header."""

    def exchange(name: str, type_: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return {"name": name, "vhost": "/", "type": type_, "durable": True, "arguments": arguments}

    document = {
        "rabbitmq_version": "3.12.14",
        "vhosts": [{"name": "/"}, {"name": "other"}],
        "exchanges": [
            exchange("orders", CHX, {}),
            exchange("tenants", CHX, {"hash-header": "tenant"}),
            exchange("empty", CHX, {"alternate-exchange": "spare"}),
            exchange("plain", "direct", {}),
        ],
        "queues": [{"name": name, "vhost": "/", "durable": True, "arguments": {}} for name in ("q1", "q2")],
        "bindings": [
            {
                "source": name,
                "vhost": "/",
                "destination": queue,
                "destination_type": "queue",
                "routing_key": str(weight),
                "arguments": {},
            }
            for name in ("orders", "tenants")
            for queue, weight in BINDINGS
        ],
        "policies": [],
    }
    path.write_text(json.dumps(document | changes))
    return str(path)


@pytest.mark.parametrize(
    "command",
    [
        ("route", "k"),
        ("simulate", "--pattern", "k-{n}", "--count", "5"),
        ("compare", "--pattern", "k-{n}", "--count", "5", "--to-release", "4.3.6"),
        ("keys", "q1"),
    ],
)
def test_no_command_takes_another_value_for_the_routing_key_in_silence(
    ran: Callable[..., tuple[int, str, str]], tmp_path: Path, command: tuple[str, ...]
) -> None:
    path = tmp_path / "ring.json"
    for change, words in (
        (
            {"arguments": {"hash-header": "tenant"}},
            "the exchange of this ring hashes hash-header 'tenant', so",
        ),
        ({"arguments": {"hash-property": "message_id"}}, "hashes hash-property 'message_id', so"),
        (
            {"arguments": None},
            "hashes, as it was read without the management API, so it is taken for the routing",
        ),
        ({}, f"{path} does not say what the exchange hashes, so it is taken for the routing key"),
    ):
        path.write_text(json.dumps(json.loads(RING.to_json()) | change))
        code, _, errors = ran(*command, "--ring", str(path))
        assert (code in (0, 1), words in errors) == (True, True), errors
        file = definitions(tmp_path / "d.json")
    code, _, errors = ran(*command, "--definitions", file, "--exchange", "tenants")
    assert "hashes hash-header 'tenant', so that is hashed here, and not the routing key" in errors


def test_an_option_that_says_what_is_hashed_leaves_no_doubt(
    ran: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    path = tmp_path / "ring.json"
    path.write_text(RING.to_json())
    assert ran("route", "--ring", str(path), "--hash-header", "h", "k")[::2] == (0, "")
    assert ran("simulate", "--ring", str(path))[::2] == (0, "")  # shares depend on no key


def test_a_ring_of_a_definitions_file_is_assumed_and_that_is_said(
    ran: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    path = definitions(tmp_path / "d.json")
    code, out, errors = ran("route", "--definitions", path, "--exchange", "orders", "k", "-o", "json")
    document = json.loads(out)
    ring = HashRing.from_bindings(BINDINGS, Release("3.12.14"))
    assert (code, document["answers"]) == (0, [{"key": "k", "destination": ring.destination_for("k")}])
    assert document["ring"]["provenance"] == "assumed"
    assert document["ring"]["release"]["version"] == "3.12.14"
    assert errors == (
        f"rabbit-chx: the ring of exchange 'orders' is assumed from the bindings, and {path} does not hold their order: "
        "read the ring of the broker to know it\n"
    )


def test_the_release_of_a_definitions_file_may_be_given(
    ran: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    path = definitions(tmp_path / "d.json")
    of = ("--definitions", path, "--exchange", "orders", "k", "-o", "json")
    assert json.loads(ran("route", *of, "--release", "4.0.5")[1])["ring"]["release"]["version"] == "4.0.5"
    path = definitions(tmp_path / "d.json", rabbitmq_version=None)
    code, out, errors = ran("route", *of)
    assert (code, json.loads(out)["ring"]["release"]["version"]) == (0, Release("4.3.6").version)
    assert f"{path} does not name its release: the rules are those of 4.3.6" in errors


def test_an_alternate_exchange_is_said_where_keys_go_nowhere(
    ran: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    of = ("--definitions", definitions(tmp_path / "d.json"), "--exchange")
    assert "every message goes to the alternate exchange 'spare'" in ran("route", *of, "empty", "k")[2]
    assert "alternate exchange" not in ran("route", *of, "orders", "k")[2]


def test_two_exchanges_of_a_definitions_file_are_compared(
    ran: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    path = definitions(tmp_path / "d.json")
    of = ("--definitions", path, "--exchange", "orders", "--to-exchange")
    assert ran("compare", *of, "orders")[0] == 0
    assert (
        "that of the other hash-header 'tenant': no key is the same for both"
        in ran("compare", *of, "tenants")[2]
    )
    code, out, _ = ran("compare", *BIND, "--definitions", path, "--to-exchange", "orders", "-o", "json")
    assert (code, json.loads(out)["after"]["release"]["version"]) == (1, "3.12.14")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("route", "k"), "give --bind QUEUE=WEIGHT for each queue, or --ring FILE, or --exchange NAME"),
        (("route", *BIND, "--exchange", "x", "k"), "the ring is given twice, as bindings and as the exchange x"),
        (
            ("route", "--ring", "f", "--exchange", "x", "k"),
            "the ring is given twice, as the file f and as the exchange x",
        ),
        (
            ("compare", *BIND, "--to-bind", "q=1", "--to-exchange", "x"),
            "the other ring is given twice, as bindings and as the exchange x",
        ),
        (("route", "--definitions", "DEFS", "k"), "DEFS holds many exchanges: give --exchange NAME too"),
        (("route", "--definitions", "DEFS", *BIND, "k"), "DEFS holds many exchanges: give --exchange NAME too"),
        (
            ("route", "--definitions", "DEFS", "--exchange", "orders", "--url", "amqp://h", "k"),
            "--url is about a live broker, and --definitions DEFS is a file",
        ),
        (("route", *BIND, "--url", "amqp://h", "k"), "--url is about a live broker, and no exchange of it is asked"),
        (("route", *BIND, "--vhost", "v", "k"), "--vhost is about a live broker, and no exchange"),
        (
            ("route", "--definitions", "DEFS", "--exchange", "gone", "k"),
            "DEFS has no exchange 'gone' in vhost '/': give --exchange empty or --exchange orders or --exchange tenants",
        ),
        (
            ("route", "--definitions", "DEFS", "--exchange", "plain", "k"),
            "DEFS has 'plain' with type direct in vhost '/': give --exchange empty",
        ),
        (
            ("route", "--definitions", "DEFS", "--exchange", "orders", "--vhost", "other", "k"),
            "DEFS has no exchange 'orders' in vhost 'other': there is none of type x-consistent-hash in it",
        ),
        (
            ("route", "--definitions", "DEFS", "--exchange", "orders", "--vhost", "gone", "k"),
            "there is no vhost 'gone' in the file; give one of '/', 'other'",
        ),
        (("route", "--definitions", "gone", "--exchange", "orders", "k"), "the definitions file gone cannot be read"),
        (
            ("route", "--exchange", "orders", "--url", "amqp://h", "k"),
            "AMQP alone shows neither the ring of exchange 'orders' nor its bindings: give --ring-via",
        ),
        (("route", "--exchange", "orders", "k"), "there is no broker: give --url"),
        (
            ("route", "--exchange", "", "--url", "amqp://h", "--management-url", "http://h", "k"),
            "'' names no exchange: give its name",
        ),
        (("compare", "--exchange", "orders"), "there is nothing to compare with: give --to-release"),
        (("compare", "--to-exchange", "orders", "--url", "amqp://h"), "there is no ring: give --bind"),
    ],
)  # fmt: skip
def test_what_does_not_name_one_ring_is_refused(
    ran: Callable[..., tuple[int, str, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    words: str,
) -> None:
    for name in ("AMQP_URL", "RABBIT_CHX_MANAGEMENT_URL", "RABBIT_CHX_RING_VIA", "RABBIT_CHX_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    file = definitions(tmp_path / "d.json")
    code, out, errors = ran(*(file if one == "DEFS" else one for one in arguments))
    assert (code, out) == (2, "")
    assert words.replace("DEFS", file) in errors
