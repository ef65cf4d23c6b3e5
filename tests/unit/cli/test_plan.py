"""Plans and their application on the command line, as far as that goes without a broker."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from modelled_commands import ModelledCommands
from slot_files import live_of

from rabbit_chx.analysis.findings import Finding
from rabbit_chx.cli.plan import options_to_permit
from rabbit_chx.cli.plan_report import PlanReport
from rabbit_chx.fixes import Argument
from rabbit_chx.rendering import Facts, Section
from rabbit_chx.topology import LiveTopology, Topology, plan
from rabbit_chx.topology.planning.refusals import ALLOW_DELETE, allow_moved

BROKER = ("--url", "amqp://127.0.0.1:1")
SLOTS = (
    '[[exchanges]]\nname = "events"\ntype = "x-consistent-hash"\nslots = 4\nmembers = [{ queue = "q{1..2}" }]\n'
    '[[queues]]\nname = "q{1..2}"\n'
)


@pytest.mark.parametrize(
    ("overrides", "options"),
    [
        ([], {}),
        ([ALLOW_DELETE, ALLOW_DELETE], {"allow_delete": True}),
        ([allow_moved(0.25), ALLOW_DELETE, allow_moved(0.3)], {"allow_moved": 0.3, "allow_delete": True}),
        ([allow_moved(0.3), allow_moved(0.25)], {"allow_moved": 0.3}),
        ([ALLOW_DELETE, None], None),
    ],
)
def test_the_options_that_permit_all_refusals(
    overrides: list[Argument | None], options: dict[str, object] | None
) -> None:
    refusals = [Finding("ring", "says", override=override) for override in overrides]
    assert options_to_permit(refusals) == options


def test_many_refusals_say_how_to_see_the_rest() -> None:
    refusals = [Finding("deletion", f"reason {chr(97 + n)}", override=ALLOW_DELETE) for n in range(26)]
    blocks = list(PlanReport(plan(Topology(), LiveTopology()), refusals=refusals).blocks())
    section = next(block for block in blocks if isinstance(block, Section))
    facts = section.blocks[0]
    assert isinstance(facts, Facts)
    assert facts.pairs[-1] == ("...", "6 more; --all shows them")
    whole = list(PlanReport(plan(Topology(), LiveTopology()), refusals=refusals, whole=True).blocks())
    assert isinstance(whole[-1], Section)
    assert len(whole[-1].blocks[0].pairs) == 26  # type: ignore[union-attr]


def test_the_exit_code_of_a_plan_is_its_result(
    ran: Callable[..., tuple[int, str, str]], modelled: ModelledCommands
) -> None:
    """Also where nothing is to change: the file is of another cluster, or messages are parked, which an application publishes."""
    modelled.holds(live_of(Topology.from_toml(SLOTS)))
    code, out, _ = ran(*modelled.arguments("plan", SLOTS))
    assert (code, "none: the broker matches the topology" in out) == (0, True)
    code, out, _ = ran(*modelled.arguments("plan", f'cluster = "rabbit@prod"\n{SLOTS}'))
    assert (code, "for the cluster rabbit@prod, and this is rabbit@model" in out) == (4, True)
    code, out, _ = ran(*modelled.arguments("plan", f'vhost = "staging"\n{SLOTS}'))
    assert (code, "for the vhost staging, and this is /" in out, "--allow-vhost" in out) == (4, True, True)
    modelled.messages = {"events.park": 3}
    code, out, _ = ran(*modelled.arguments("plan", SLOTS))
    assert code == 1
    assert "Apply it with: rabbit-chx topology apply" in out
    code, out, _ = ran(*modelled.arguments("plan", SLOTS, "-o", "json"))
    document = json.loads(out)
    assert (code, document["changes"]) == (1, [])
    assert document["broker"] == {
        "cluster": "rabbit@model",
        "release": {"version": "4.3.6", "store": "khepri", "store_known": True},
        "vhost": "/",
    }
    assert Path(document["file"]).suffix == ".toml"
    modelled.messages = {}
    assert ran(*modelled.arguments("plan", f'{SLOTS}[[queues]]\nname = "q3"\n'))[0] == 1
    assert ran(*modelled.arguments("plan", f'owns = ["q*"]\n{SLOTS.replace("2}", "1}")}'))[0] == 4


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("apply", "-"), 2, "needs a terminal to ask: pass --yes, or --checksum"),
        (("apply", "{file}", "--yes"), 69, "127.0.0.1:1"),
        (("plan", "{file}"), 69, "127.0.0.1:1"),
        (("plan", "{of an empty vhost}"), 69, "127.0.0.1:1"),
    ],
)
def test_impossible_changes_are_reported_before_the_question(
    ran: Callable[..., tuple[int, str, str]],
    tmp_path: Path,
    arguments: tuple[Any, ...],
    code: int,
    words: str,
) -> None:
    (tmp_path / "file").write_text('[[queues]]\nname = "q"\n')
    (tmp_path / "of an empty vhost").write_text('cluster = "rabbit@prod"\n')
    files = {f"{{{path.name}}}": str(path) for path in tmp_path.iterdir()}
    found, out, errors = ran("topology", *(files.get(one, one) for one in arguments), *BROKER)
    assert (found, out) == (code, "")
    assert words in errors


@pytest.mark.extended
def test_a_plan_names_the_command_that_moves_less(
    ran: Callable[..., tuple[int, str, str]], modelled: ModelledCommands
) -> None:
    ring = '[[exchanges]]\nname = "orders"\ntype = "x-consistent-hash"\nring = [{ queue = "q.{%s}", weight = 10 }]\n'
    queues = '[[queues]]\nname = "q.{1..9}"\n'
    modelled.holds(live_of(Topology.from_toml(ring % "1..9" + queues)))
    _, out, _ = ran(*modelled.arguments("plan", ring % "2..9" + queues))
    assert "Move less by:  rabbit-chx topology arrange" in out
    _, out, _ = ran(*modelled.arguments("plan", ring % "1..8" + queues))
    assert "Move less by" not in out
