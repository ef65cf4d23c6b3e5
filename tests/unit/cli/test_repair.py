"""The result of a repair: exit codes, lines and JSON."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import pytest
from modelled_commands import ModelledCommands

from rabbit_chx.analysis import Finding
from rabbit_chx.cli.repair import RepairReport, RepairState
from rabbit_chx.rendering import ConsoleOutput
from rabbit_chx.routing import HashRing, Release
from rabbit_chx.topology import RingMember, Topology, plan, repair_target
from rabbit_chx.topology.live.member_gaps import MemberGaps

Ran: TypeAlias = Callable[..., tuple[int, str, str]]
WANTED = Topology.from_toml(
    '[[exchanges]]\nname = "orders"\ntype = "x-consistent-hash"\nring = [{ queue = "q{1..3}" }]\n[[queues]]\nname = "q{0..3}"\n'
)
RING = HashRing.from_buckets(["q2", "q1", "q3"], Release("4.3.6"))
LIVE = WANTED.with_rings({"orders": RING})
PLAN = plan(repair_target(LIVE, "orders", WANTED), LIVE)
ABOUT = (("exchange", "orders"),)


def report(state: RepairState, **more: Any) -> RepairReport:
    return RepairReport(state, "orders", ABOUT, PLAN, MemberGaps(PLAN, "orders").longest, **more)


def text(one: RepairReport) -> str:
    stream = io.StringIO()
    ConsoleOutput(stream, 200).show(one)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("state", "code"), [("planned", 1), ("unchanged", 0), ("refused", 4), ("applied", 0), ("partly", 3)]
)
def test_the_exit_code_is_that_of_the_state(state: RepairState, code: int) -> None:
    assert report(state).code == code


def test_a_dry_run_shows_steps_movement_and_gap() -> None:
    shown = text(report("planned"))
    assert "unbind" in shown
    assert "of the keys in the end" in shown
    assert "its messages go to other queues: for at most 1 operation (q2)." in shown
    assert shown.endswith("Nothing was changed: --apply makes the changes.\n")
    assert "left as it is" not in shown  # the queue q0 is no matter of this repair


def test_applied_changes_are_reported_with_the_time_without_a_bucket() -> None:
    shown = text(report("applied", changes=PLAN.changes, ring=RING, gap_s=0.0123))
    assert "gap       no member was without a bucket for more than 12.3 ms" in shown
    assert "check     sound" in shown
    left = Finding(
        "transient-destination", "q1 is exclusive", "", exchange="orders", destination="q1", share=0.3
    )
    assert "check     transient-destination: q1 is exclusive" in text(report("applied", left=[left]))
    assert "nothing to do" in text(report("unchanged"))
    assert "0 of " in text(report("partly"))


def test_a_repair_that_cannot_help_does_not_call_the_ring_sound() -> None:
    left = Finding(
        "unroutable-share",
        "100.000% of all keys end in no queue",
        "bind a queue",
        exchange="orders",
        share=1.0,
    )
    one = report("unchanged", left=[left])
    assert one.code == 1
    assert text(one) == (
        "exchange  orders\nrepair    no bind or unbind of this exchange helps\n\n"
        "unroutable-share  100.000% of all keys end in no queue\nfix               bind a queue\n"
    )
    assert "nothing to do: the ring is sound" in text(report("unchanged"))


FILE = WANTED.to_toml()


@pytest.fixture
def repair(modelled: ModelledCommands) -> tuple[str, ...]:
    """The command that repairs `orders`, whose ring has another order than the file."""
    ring = tuple(RingMember(queue) for queue in ("q2", "q1", "q3"))
    modelled.holds(replace(WANTED, exchanges=(replace(WANTED.exchanges[0], ring=ring),)))
    _, _, path, *options = modelled.arguments("plan", FILE)
    return ("ring", "repair", "orders", "--file", path, *options)


def order(commands: ModelledCommands) -> list[str]:
    return [str(place) for place in commands.model.topology().rings["orders"].buckets]


def test_without_a_terminal_apply_is_the_yes(
    ran: Ran, modelled: ModelledCommands, repair: tuple[str, ...]
) -> None:
    assert ran(*repair)[0] == 1
    assert order(modelled) == ["q2", "q1", "q3"]
    code, out, _ = ran(*repair, "--apply")
    assert (code, order(modelled)) == (0, ["q1", "q2", "q3"])
    assert "check     sound" in out


@pytest.mark.parametrize(("typed", "code"), [("y", 0), ("n", 4), ("", 4)])
def test_somebody_at_a_terminal_sees_the_steps_and_is_asked(
    ran: Ran, modelled: ModelledCommands, repair: tuple[str, ...], typed: str, code: int
) -> None:
    modelled.terminal(f"{typed}\n")
    found, out, _ = ran(*repair, "--apply")
    assert (found, order(modelled)[0]) == (code, "q2" if code else "q1")
    assert "unbind" in out
    assert "--apply does it" not in out
    assert re.search(r"Make these \d changes\? \[y/N\]:", modelled.said)
    assert ("nothing was changed" in modelled.said) == (code == 4)


def test_an_answer_that_was_no_for_programs(
    ran: Ran, modelled: ModelledCommands, repair: tuple[str, ...]
) -> None:
    modelled.terminal("n\n")
    code, out, _ = ran(*repair, "--apply", "-o", "json")
    document = json.loads(out)
    assert (code, document["state"], document["message"]) == (4, "refused", "the answer was no")
    assert "unbind" in modelled.said, "the steps are not on stdout, and still shown"


def test_yes_alone_does_not_apply(ran: Ran, modelled: ModelledCommands, repair: tuple[str, ...]) -> None:
    code, out, errors = ran(*repair, "--yes")
    assert (code, out, modelled.opened) == (2, "", 0)
    assert "pass --apply too" in errors
