"""``rabbit-chx topology apply``: what it refuses, what it asks, what it returns. The broker is one made of values."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from modelled_commands import ModelledCommands
from slot_files import live_of

from rabbit_chx.topology import Topology

if TYPE_CHECKING:
    Ran = Callable[..., tuple[int, str, str]]

QUEUES = '[[queues]]\nname = "q{{1..{}}}"\n'
TWO, THREE = map(QUEUES.format, (2, 3))
SLOTS = (
    '[[exchanges]]\nname = "events"\ntype = "x-consistent-hash"\nslots = 4\nmembers = [{ queue = "q{1..2}" }]\n'
    + QUEUES.format(2)
)


@pytest.fixture
def two(modelled: ModelledCommands) -> ModelledCommands:
    """A broker with two queues."""
    modelled.holds(Topology.from_toml(TWO))
    return modelled


@pytest.fixture
def parked(modelled: ModelledCommands) -> ModelledCommands:
    """A broker as the file says, with messages in the park."""
    modelled.holds(live_of(Topology.from_toml(SLOTS)))
    modelled.messages = {"events.park": 3}
    return modelled


def queues(commands: ModelledCommands) -> int:
    """Return how many queues there are: two before, three when the plan was done."""
    return len(commands.model.queues)


def checksum_of(ran: Ran, commands: ModelledCommands, text: str) -> str:
    """Return the checksum that the plan has now."""
    _, out, _ = ran(*commands.arguments("plan", text, "-o", "json"))
    found: str = json.loads(out)["checksum"]
    return found


def test_a_plan_is_applied_without_asking_with_yes(ran: Ran, two: ModelledCommands) -> None:
    code, out, errors = ran(*two.arguments("apply", THREE, "--yes", "--verbose"))
    assert (code, queues(two)) == (0, 3)
    assert "applied  1 change: 1 queue created" in out
    assert errors == "rabbit-chx: done 1 of 1: create queue q3\n"


def test_a_terminal_shows_each_change_when_it_is_done(ran: Ran, two: ModelledCommands) -> None:
    two.terminal()
    assert ran(*two.arguments("apply", QUEUES.format(4), "--yes"))[0] == 0
    assert two.said.splitlines() == [
        "rabbit-chx: done 1 of 2: create queue q3",
        "rabbit-chx: done 2 of 2: create queue q4",
    ]


def test_a_refused_plan_changes_nothing_and_names_the_flag(ran: Ran, two: ModelledCommands) -> None:
    apply = two.arguments("apply", f'owns = ["q2"]\n{QUEUES.format(1)}', "--yes")
    code, out, errors = ran(*apply)
    assert (code, queues(two)) == (4, 2)
    assert errors == "rabbit-chx: the plan is refused, and nothing was changed\n"
    assert "\n--allow-delete  queue q2 is not in the topology, which owns it" in out
    assert ran(*apply, "--allow-delete")[0] == 0
    assert queues(two) == 1


def test_a_refused_plan_for_programs(ran: Ran, modelled: ModelledCommands) -> None:
    ring = '[[exchanges]]\nname = "x"\ntype = "x-consistent-hash"\nmax_share_moved = 0.1\nring = [{{ queue = "q{}" }}]\n'
    modelled.holds(Topology.from_toml(ring.format(1) + TWO))
    apply = modelled.arguments("apply", ring.format("{1..2}") + TWO, "--yes", "-o", "json")
    code, out, _ = ran(*apply)
    document = json.loads(out)
    assert (code, document["state"], document["changes"]) == (4, "refused", [])
    assert modelled.model.topology().rings["x"].buckets == ("q1",)
    (refusal,) = document["refusals"]
    assert refusal["allow_with"].startswith("--allow-moved 0.5")
    assert ran(*apply, *refusal["allow_with"].split())[0] == 0
    assert modelled.model.topology().rings["x"].buckets == ("q1", "q2")


def test_an_exclusive_queue_is_refused(ran: Ran, two: ModelledCommands) -> None:
    """It would go with the connection of the command."""
    exclusive = '[[queues]]\nname = "mine"\nexclusive = true\ndurable = false\n'
    code, out, _ = ran(*two.arguments("apply", THREE + exclusive, "--yes"))
    assert (code, queues(two)) == (4, 2)
    assert "queue mine is exclusive" in out


@pytest.mark.parametrize("output", ["table", "json"])
def test_messages_are_only_deleted_where_that_is_allowed(
    ran: Ran, two: ModelledCommands, output: str
) -> None:
    two.messages = {"q2": 7}
    apply = two.arguments("apply", f'owns = ["q2"]\n{QUEUES.format(1)}', "-o", output)
    code, out, errors = ran(*apply, "--yes", "--allow-delete", "--drain", "5")
    assert (code, queues(two)) == (3, 2)
    assert ("its consumers have 5 s to empty it" in out) is (output == "table")
    assert "waiting until q2 is empty: 0 of 5 s" in errors
    assert "queue q2 still has 7 messages and no consumers" in errors
    assert ("--allow-loss" in json.loads(out)["message"]) if output == "json" else "--allow-loss" in errors
    assert ran(*apply, "--yes", "--allow-delete", "--allow-loss")[0] == 0
    assert queues(two) == 1


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
    assert (code, out, queues(two)) == (4, "", 2)
    assert f"and not {wrong}: nothing was changed" in errors


def test_the_checksum_of_the_plan_takes_the_place_of_an_answer(ran: Ran, two: ModelledCommands) -> None:
    right = checksum_of(ran, two, THREE)
    assert ran(*two.arguments("apply", THREE, "--checksum", right))[0] == 0
    assert queues(two) == 3
    code, _, errors = ran(*two.arguments("apply", THREE, "--checksum", right))
    assert code == 4, "there is nothing to do any more, which is another plan"
    assert "the file or the broker has changed since" in errors


def test_a_stored_plan_takes_the_place_of_an_answer(ran: Ran, two: ModelledCommands, tmp_path: Path) -> None:
    stored = str(tmp_path / "plan.json")
    assert ran(*two.arguments("plan", THREE, "--plan-out", stored))[0] == 1
    code, _, errors = ran(*two.arguments("apply", TWO, "--plan", stored))
    assert (code, "nothing was changed" in errors) == (4, True)
    assert ran(*two.arguments("apply", THREE, "--plan", stored))[0] == 0
    assert queues(two) == 3


@pytest.mark.parametrize("version", [1, 3, None])
def test_a_stored_plan_of_another_version_is_refused(
    ran: Ran, two: ModelledCommands, tmp_path: Path, version: int | None
) -> None:
    stored = tmp_path / "plan.json"
    assert ran(*two.arguments("plan", THREE, "--plan-out", str(stored)))[0] == 1
    stored.write_text(json.dumps({**json.loads(stored.read_text()), "format_version": version}))
    found, _, errors = ran(*two.arguments("apply", THREE, "--plan", str(stored)))
    assert (found, queues(two)) == (2, 2)
    assert f"has format_version {version}, and this release reads 2: write it again with" in errors
    assert f"topology plan --plan-out {stored}" in errors


@pytest.mark.parametrize(("stdin", "stderr"), [(False, False), (True, False), (False, True)])
def test_where_nobody_can_be_asked_somebody_has_to_say_yes(
    ran: Ran, two: ModelledCommands, *, stdin: bool, stderr: bool
) -> None:
    two.terminal("y\n", stdin=stdin, stderr=stderr)
    code, out, _ = ran(*two.arguments("apply", THREE))
    assert (code, out, two.opened, queues(two)) == (2, "", 0, 2)
    assert "needs a terminal to ask: pass --yes, or --checksum" in two.said


def test_who_types_the_file_cannot_be_asked(ran: Ran, two: ModelledCommands) -> None:
    two.terminal("y\n")
    command, _, *options = two.arguments("apply", THREE)[1:]
    assert ran("topology", command, "-", *options)[0] == 2
    assert two.opened == 0


@pytest.mark.parametrize(("typed", "code", "after"), [("y", 0, 3), ("n", 4, 2), ("", 4, 2)])
def test_somebody_at_a_terminal_sees_the_plan_and_is_asked(
    ran: Ran, two: ModelledCommands, typed: str, code: int, after: int
) -> None:
    two.terminal(f"{typed}\n")
    found, out, _ = ran(*two.arguments("apply", THREE))
    assert (found, queues(two)) == (code, after)
    assert "create queue" in out
    assert "Make this 1 change? [y/N]:" in two.said
    assert ("nothing was changed" in two.said) == (after == 2)
    assert ("applied  1 change" in out) == (after == 3)


def test_an_answer_that_was_no_for_programs(ran: Ran, two: ModelledCommands) -> None:
    two.terminal("n\n")
    code, out, _ = ran(*two.arguments("apply", THREE, "-o", "json"))
    document = json.loads(out)
    assert (code, document["state"], document["message"]) == (4, "refused", "the answer was no")
    assert "create queue" in two.said, "the plan is not on stdout, and still shown"


@pytest.mark.parametrize(("typed", "code"), [("y", 0), ("n", 4)])
def test_a_page_has_the_plan_and_the_result(ran: Ran, two: ModelledCommands, typed: str, code: int) -> None:
    two.terminal(f"{typed}\n")
    found, out, _ = ran(*two.arguments("apply", THREE, "-o", "markdown"))
    planned, result = out.split("\n---\n")
    assert "| 1 | create queue | `q3` |" in planned
    assert (found, result.strip()) == (code, "- **applied**: 1 change: 1 queue created" if code == 0 else "")


def test_where_there_is_nothing_to_do_nobody_is_asked(ran: Ran, two: ModelledCommands) -> None:
    two.terminal()
    code, out, _ = ran(*two.arguments("apply", TWO))
    assert (code, two.said) == (0, "")
    assert "nothing: the broker matches the topology" in out
    document = json.loads(ran(*two.arguments("apply", TWO, "-o", "json"))[1])
    assert (document["state"], document["planned"]) == ("unchanged", 0)


@pytest.mark.parametrize(("typed", "code", "left"), [("y", 0, {}), ("n", 4, {"events.park": 3})])
def test_parked_messages_are_asked_about_where_nothing_else_is_to_be_done(
    ran: Ran, parked: ModelledCommands, typed: str, code: int, left: dict[str, int]
) -> None:
    parked.terminal(f"{typed}\n")
    found, out, _ = ran(*parked.arguments("apply", SLOTS))
    assert (found, parked.messages) == (code, left)
    assert "Publish 3 parked messages again? [y/N]:" in parked.said
    assert ("3 messages published again" in out) == (not left)


def test_parked_messages_alone_are_worth_an_application(ran: Ran, parked: ModelledCommands) -> None:
    code, out, _ = ran(*parked.arguments("apply", SLOTS, "--yes", "-o", "json"))
    document = json.loads(out)
    assert (code, parked.messages) == (0, {})
    assert (document["state"], document["planned"], document["unparked"]) == ("applied", 0, 3)


def test_the_slots_that_changed_hands_are_listed(ran: Ran, modelled: ModelledCommands) -> None:
    modelled.holds(live_of(Topology.from_toml(SLOTS)))
    third = SLOTS.replace("q{1..2}", "q{1..3}")
    code, out, _ = ran(*modelled.arguments("apply", third, "--yes", "--allow-moved", "1", "-o", "json"))
    (hand,) = json.loads(out)["handed_over"]
    assert (code, sorted(hand), hand["new"]) == (0, ["new", "old", "slot"], "q3")


def test_partial_changes_are_reported_and_completed_next_time(ran: Ran, two: ModelledCommands) -> None:
    more = f'{TWO}[[queues]]\nname = "r{{1..3}}"\n'
    two.refuses = {"r2"}
    code, out, errors = ran(*two.arguments("apply", more, "--yes"))
    assert (code, queues(two)) == (3, 3)
    assert "1 of 3 changes were done: plan and apply again" in errors
    assert "done  1 of 3 changes" in out

    two.refuses = {"r3"}
    code, out, _ = ran(*two.arguments("apply", more, "--yes", "-o", "json"))
    document = json.loads(out)
    assert (code, document["state"], document["planned"], len(document["changes"])) == (3, "partly", 2, 1)

    code, out, errors = ran(*two.arguments("apply", more, "--yes", "-o", "json"))
    assert (code, out, queues(two)) == (77, "", 4), "nothing was done"
    two.refuses = set()
    document = json.loads(ran(*two.arguments("apply", more, "--yes", "-o", "json"))[1])
    assert (document["state"], document["planned"], queues(two)) == ("applied", 1, 5)


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "[]", "{", '{"format": "rabbit-chx/check", "checksum": "a"}']
)
def test_what_is_not_a_stored_plan_is_named(
    ran: Ran, two: ModelledCommands, tmp_path: Path, text: str
) -> None:
    (tmp_path / "plan.json").write_text(text)
    code, _, errors = ran(*two.arguments("apply", THREE, "--plan", str(tmp_path / "plan.json")))
    assert (code, "is not a plan: pass a file that topology plan --plan-out wrote" in errors) == (2, True)


VARIED = """
[variables]
weight = 1
[[exchanges]]
name = "orders"
type = "x-consistent-hash"
ring = [{ queue = "q2", weight = "${weight}" }, { queue = "q1" }, { queue = "q3" }]
"""
HEADINGS = """
[[exchanges]]
name = "orders"
type = "x-consistent-hash"
[[exchanges.ring]]
queue = "q2"
[[exchanges.ring]]
queue = "q1"
[[exchanges.ring]]
queue = "q3"
"""


@pytest.mark.parametrize("text", [VARIED, HEADINGS])
def test_an_order_that_arrange_cannot_write_is_shown(ran: Ran, modelled: ModelledCommands, text: str) -> None:
    ring = '[[exchanges]]\nname = "orders"\ntype = "x-consistent-hash"\nring = [{ queue = "q{1..3}" }]\n'
    modelled.holds(Topology.from_toml(ring + QUEUES.format(3)))
    text += QUEUES.format(3)
    code, out, errors = ran(*modelled.arguments("arrange", text))
    assert (code, out.strip()) == (3, text.strip())
    assert 'write by hand [{ queue = "q{1..3}", weight = 1 }]' in errors
