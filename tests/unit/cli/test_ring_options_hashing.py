"""Where a ring comes from: bindings, a file, an exchange of a broker."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import RING


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
            "because it was read without the management API, so the routing key is assumed",
        ),
        ({}, f"{path} does not contain the arguments of the exchange, so the routing key is assumed"),
    ):
        path.write_text(json.dumps(json.loads(RING.to_json()) | change))
        code, _, errors = ran(*command, "--ring", str(path))
        assert (code in (0, 1), words in errors) == (True, True), errors


def test_an_explicit_hash_option_is_not_a_guess(
    ran: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    path = tmp_path / "ring.json"
    path.write_text(RING.to_json())
    assert ran("route", "--ring", str(path), "--hash-header", "h", "k")[::2] == (0, "")
    assert ran("simulate", "--ring", str(path))[::2] == (0, "")  # shares depend on no key
