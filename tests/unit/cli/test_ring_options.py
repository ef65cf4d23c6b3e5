"""Rings, releases and what an exchange hashes, as options give them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from command_line import BIND, RING

from rabbit_chx.routing import HashRing, Release


def shown_ring(path: Path, arguments: Mapping[str, Any] | None, ring: HashRing = RING) -> str:
    """A file as `ring show --output json` writes it."""
    path.write_text(json.dumps(json.loads(ring.to_json()) | {"arguments": arguments}))
    return str(path)


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


def test_the_header_of_a_ring_may_be_given_a_type(
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
