"""Rings, releases and what an exchange hashes, as options give them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from command_line import BIND, RING

from rabbit_chx.routing import HashRing, Release

IGNORES = "changes nothing: RabbitMQ 4.3.6 ignores a second binding of q1"


def shown_ring(path: Path, arguments: Mapping[str, Any] | None, ring: HashRing = RING) -> str:
    """A file as `ring show --output json` writes it."""
    path.write_text(json.dumps(json.loads(ring.to_json()) | {"arguments": arguments}))
    return str(path)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("route", "--bind", "q1=1", "--bind", "q1=2", "k"), f"the binding q1=2 {IGNORES}"),
        (("simulate", *BIND, "--add", "q1=2"), f"the binding q1=2 {IGNORES}"),
        (("simulate", *BIND, "--add", "q3=1", "--add", "q3=2"), "RabbitMQ 4.3.6 ignores a second binding of q3"),
        (("compare", *BIND, "--to-bind", "q1=1", "--to-bind", "q1=2"), f"the binding q1=2 {IGNORES}"),
        (
            ("route", "--bind", "q1=1", "--bind", "q1=1", "--release", "3.8.9", "k"),
            "q1=1 is given twice: for the broker it is one",
        ),
    ],
)  # fmt: skip
def test_a_binding_that_the_broker_ignores_is_said(
    ran: Callable[..., tuple[int, str, str]], arguments: tuple[str, ...], words: str
) -> None:
    _, _, errors = ran(*arguments)
    assert words in errors
    assert errors.count("\n") == 1


def test_a_release_that_adds_a_second_binding_has_nothing_to_say(
    ran: Callable[..., tuple[int, str, str]],
) -> None:
    bindings = ("--bind", "q1=1", "--bind", "q1=2", "--release", "3.8.9")
    assert ran("simulate", *bindings, "--unbind", "q1=1", "--add", "q1=5")[2] == ""
    assert ran("simulate", *bindings, "--add", "q1=5")[2] == ""


def test_a_series_is_its_newest_patch_and_that_is_said(ran: Callable[..., tuple[int, str, str]]) -> None:
    for series in ("3.8", "4.3"):
        newest = Release(series).version
        code, out, errors = ran("route", *BIND, "--release", series, "k", "--output", "json")
        assert json.loads(out)["ring"]["release"]["version"] == newest
        assert (code, errors) == (
            0,
            f"rabbit-chx: release {series} is taken as {newest}, the newest of that series that is known here\n",
        )
    code, out, errors = ran("compare", *BIND, "--release", "3.12.14", "--to-release", "4.3", "-o", "json")
    assert json.loads(out)["after"]["release"]["version"] == Release("4.3").version
    assert errors.count("\n") == 1
    assert ran("route", *BIND, "--release", "9.9", "k")[0] == 2


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ({"hash-header": "tenant"}, ("--hash-header", "tenant")),
        ({"hash-property": "message_id"}, ("--hash-property", "message_id")),
    ],
)
def test_a_shown_ring_brings_what_its_exchange_hashes(
    ran: Callable[..., tuple[int, str, str]],
    tmp_path: Path,
    arguments: Mapping[str, str],
    options: tuple[str, ...],
) -> None:
    old = RING.with_release(Release("3.12.14"))  # a header is hashed with its type there, so answers differ
    path = shown_ring(tmp_path / "r", arguments, old)
    keys = [f"k{n}" for n in range(40)]
    (name, value), *_ = arguments.items()
    code, out, errors = ran("route", "--ring", path, *keys)
    assert (code, out) == ran("route", "--ring", path, *options, *keys)[:2]
    assert f"the exchange of this ring hashes {name} {value!r}" in errors
    for other in (("--hash-header", "x"), ("--hash-property", "correlation_id")):
        code, _, errors = ran("route", "--ring", path, *other, "k")
        assert code == 2
        assert f"the exchange of this ring hashes {name} {value!r}, not {other[0][2:]} {other[1]!r}" in errors


def test_a_ring_of_routing_keys_refuses_a_header(
    ran: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    path = shown_ring(tmp_path / "r", {})
    assert ran("route", "--ring", path, "k")[::2] == (0, "")
    code, _, errors = ran("route", "--ring", path, "--hash-header", "h", "k")
    assert (code, "hashes routing key, not hash-header 'h'" in errors) == (2, True)


def test_the_type_of_a_header_that_the_ring_brings(
    ran: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    path = shown_ring(tmp_path / "r", {"hash-header": "tenant"})
    assert (
        "header 'tenant'" in ran("route", "--ring", path, "--hash-header", "tenant:long", "5", "--explain")[1]
    )


def test_two_rings_that_hash_other_things_are_not_compared(
    ran: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    one, other = shown_ring(tmp_path / "1", {"hash-header": "h"}), shown_ring(tmp_path / "2", {})
    code, _, errors = ran("compare", "--ring", one, "--to-ring", other)
    assert (code, "hash-header 'h', that of the other routing key" in errors) == (2, True)
    code, _, errors = ran("compare", *BIND, "--to-ring", one)
    assert (code, "the exchange of this ring hashes hash-header 'h'" in errors) == (0, True)
