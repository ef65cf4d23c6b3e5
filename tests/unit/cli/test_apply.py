"""``rabbit-chx apply``: checksums and versions of stored plans; all else is in the transcripts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import Ran
from modelled_commands import ModelledCommands

from rabbit_chx.topology import Topology

QUEUES = '[[queues]]\nname = "q{{1..{}}}"\n'
TWO, THREE, FOUR = map(QUEUES.format, (2, 3, 4))


@pytest.fixture
def two(modelled: ModelledCommands) -> ModelledCommands:
    """A broker with two queues; a plan of THREE adds one."""
    modelled.holds(Topology.from_toml(TWO))
    return modelled


def checksum_of(ran: Ran, commands: ModelledCommands, text: str) -> str:
    """Return the checksum that the plan has now."""
    _, out, _ = ran(*commands.arguments("plan", text, "-o", "json"))
    found: str = json.loads(out)["checksum"]
    return found


@pytest.mark.parametrize(
    "wrong",
    ["", "{:.12}", "{:.63}", "{}0", "0" * 64],
    ids=["empty", "as messages show it", "a digit less", "a digit more", "another"],
)
@pytest.mark.parametrize("yes", [(), ("--yes",)])
def test_a_checksum_is_that_of_the_plan_or_nothing_is_changed(
    ran: Ran, two: ModelledCommands, wrong: str, yes: tuple[str, ...]
) -> None:
    wrong = wrong.format(checksum_of(ran, two, THREE))
    code, out, errors = ran(*two.arguments("apply", THREE, "--checksum", wrong, *yes))
    assert (code, out, len(two.model.queues)) == (4, "", 2)
    assert f"and not {wrong}: nothing was changed" in errors


def test_a_checksum_or_a_stored_plan_takes_the_place_of_an_answer(
    ran: Ran, two: ModelledCommands, tmp_path: Path
) -> None:
    right = checksum_of(ran, two, THREE)
    assert ran(*two.arguments("apply", THREE, "--checksum", right))[0] == 0
    assert len(two.model.queues) == 3
    code, _, errors = ran(*two.arguments("apply", THREE, "--checksum", right))
    assert code == 4, "there is nothing to do any more, which is another plan"
    assert "the file or the broker has changed since" in errors
    stored = str(tmp_path / "plan.json")
    assert ran(*two.arguments("plan", FOUR, "--plan-out", stored))[0] == 1
    code, _, errors = ran(*two.arguments("apply", THREE, "--plan", stored))
    assert (code, "nothing was changed" in errors, len(two.model.queues)) == (4, True, 3)
    assert ran(*two.arguments("apply", FOUR, "--plan", stored))[0] == 0
    assert len(two.model.queues) == 4


@pytest.mark.parametrize("version", [1, 3, None])
def test_a_stored_plan_of_another_version_is_refused(
    ran: Ran, two: ModelledCommands, tmp_path: Path, version: int | None
) -> None:
    stored = tmp_path / "plan.json"
    assert ran(*two.arguments("plan", THREE, "--plan-out", str(stored)))[0] == 1
    stored.write_text(json.dumps({**json.loads(stored.read_text()), "format_version": version}))
    found, _, errors = ran(*two.arguments("apply", THREE, "--plan", str(stored)))
    assert (found, len(two.model.queues)) == (2, 2)
    assert f"has format_version {version}, and this release reads 2: write it again with" in errors
    assert f"plan --plan-out {stored}" in errors
