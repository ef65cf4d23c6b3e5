"""Every document for programs says its format and the version of that."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from modelled_commands import ModelledCommands

from rabbit_chx.topology import Topology

FILE = '[[exchanges]]\nname = "x"\ntype = "x-consistent-hash"\nring = [{ queue = "q{1..2}" }]\n[[queues]]\nname = "q{1..2}"\n'
BIND = ("--bind", "q1=1", "--bind", "q2=1")


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["route", *BIND, "k"], "route"),
        (["route", *BIND, "--keys", "keys.txt"], "answer"),
        (["simulate", *BIND], "simulate"),
        (["compare", *BIND, "--to-bind", "q2=1"], "compare"),
        (["keys", *BIND, "q1"], "keys"),
        (["compare", "--topology", "t.toml", "--release", "3.12", "--to-release", "4.3"], "compare"),
        (["topology", "plan", "t.toml"], "plan"),
        (["topology", "apply", "t.toml", "--yes"], "apply"),
        (["topology", "arrange", "t.toml"], "arrange"),
        (["topology", "check", "t.toml"], "check"),
        (["ring", "check", "x"], "check"),
        (["ring", "repair", "x"], "repair"),
    ],
)
def test_a_document_says_its_format_and_version(
    ran: Callable[..., tuple[int, str, str]],
    modelled: ModelledCommands,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    command: list[str],
    name: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.toml").write_text(FILE)
    Path("keys.txt").write_text("k\n")
    modelled.holds(Topology.from_toml(FILE))
    live = modelled.arguments("plan", FILE)[3:] if command[0] in ("topology", "ring") else ()
    _, out, errors = ran(*command, *live, "--output", "json")
    assert out, errors
    document = json.loads(out)
    assert (document["format"], document["format_version"]) == (f"rabbit-chx/{name}", 1)
