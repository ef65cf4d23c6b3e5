"""Plans and their application on the command line, as far as that goes without a broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import Ran
from given_report import console_text
from modelled_commands import ModelledCommands
from slot_files import live_of

from rabbit_chx.analysis.findings import Finding
from rabbit_chx.cli.plan import options_to_permit
from rabbit_chx.planning.plan_report import plan_parts, plan_report
from rabbit_chx.rendering.output import part_of_page
from rabbit_chx.topology import LiveTopology, Topology, plan

DELETE = "--allow delete"


@pytest.mark.parametrize(
    ("given", "permitting", "options"),
    [
        ([], [], ""),
        ([], [DELETE, DELETE], DELETE),
        ([], ["--allow moved=0.25", DELETE, "--allow moved=0.3"], "--allow moved=0.3 --allow delete"),
        ([], ["--allow moved=0.3", "--allow moved=0.25"], "--allow moved=0.3"),
        (["--allow loss", "--allow moved=0.2"], ["--allow moved=0.3"], "--allow loss --allow moved=0.3"),
        ([DELETE], ["--no-record"], "--allow delete --no-record"),
        ([], [DELETE, None], None),
    ],
)
def test_the_options_that_permit_all_refusals(
    given: list[str], permitting: list[str | None], options: str | None
) -> None:
    refusals = [Finding("ring", "says", allow_with=option) for option in permitting]
    words = options_to_permit(given, refusals)
    assert words == (None if options is None else options.split())


def test_many_refusals_say_how_to_see_the_rest() -> None:
    refusals = [Finding("deletion", f"reason {chr(97 + n)}", allow_with=DELETE) for n in range(26)]
    made = plan(Topology(), LiveTopology())

    def shown(*, whole: bool) -> str:
        parts = plan_parts(made, refusals=refusals, whole=whole)
        return console_text(plan_report(made, list(parts)))

    assert shown(whole=False).startswith("REFUSED: reason a (and 25 more reasons)\n")
    assert "6 more; `--all` shows them" in shown(whole=False)
    whole = shown(whole=True)
    assert whole.count("reason ") == 27, "each once, and the first in the headline"
    assert whole.count("more") == 1


def test_the_override_of_a_refusal_is_folded_and_never_last() -> None:
    refusals = [Finding("deletion", "queue q has 2 messages", "keep it", allow_with=DELETE)]
    made = plan(Topology(), LiveTopology())
    override = "Apply it with: `rabbit-chx apply t.toml --allow delete`"
    parts = list(plan_parts(made, refusals=refusals, ending=["the end"], override=override))
    text = console_text(plan_report(made, parts))
    assert text.startswith("REFUSED: queue q has 2 messages\n\ninstead  keep it\n")
    assert text.endswith("the end\n")
    assert "Apply it" not in text
    page = part_of_page(lambda: plan_report(made, parts))
    assert page is not None
    assert '<p class="alarm" role="status">REFUSED: queue q has 2 messages</p>' in page
    assert "<details><summary>Apply it all the same</summary>" in page


def test_a_plan_names_the_command_that_moves_less(ran: Ran, modelled: ModelledCommands) -> None:
    ring = '[[exchanges]]\nname = "orders"\ntype = "x-consistent-hash"\nring = [{ queue = "q.{%s}" }]\n'
    queues = '[[queues]]\nname = "q.{1..9}"\n'
    modelled.holds(live_of(Topology.from_toml(ring % "1..9" + queues)))
    _, out, _ = ran(*modelled.arguments("plan", ring % "2..9" + queues))
    assert "To move fewer keys, run: rabbit-chx arrange" in out
    _, out, _ = ran(*modelled.arguments("plan", ring % "1..8" + queues))
    assert "To move fewer keys" not in out


def test_a_plan_with_permissions_exits_as_its_apply_would(ran: Ran, modelled: ModelledCommands) -> None:
    text = '[[exchanges]]\nname = "orders"\ntype = "x-consistent-hash"\nmax_share_moved = 0.1\nring = [{ queue = "q.{%s}" }]\n'
    text += '[[queues]]\nname = "q.{1..3}"\n'
    modelled.holds(live_of(Topology.from_toml(text % "1..2")))
    code, out, _ = ran(*modelled.arguments("plan", text % "1..3", "-o", "json"))
    (refusal,) = json.loads(out)["refusals"]
    assert (code, refusal["allow_with"]) == (4, "--allow moved=0.3332")
    for share, expected in ((0.3, 4), (0.3332, 1)):
        allowed = ("--allow", f"moved={share}")
        code, out, _ = ran(*modelled.arguments("plan", text % "1..3", *allowed, "-o", "json"))
        assert (code, len(json.loads(out)["refusals"])) == (expected, expected // 4)
    _, out, _ = ran(*modelled.arguments("plan", text % "1..3", *allowed))
    assert "--allow moved=0.3332" in out.partition("Apply it with: ")[2]
    assert ran(*modelled.arguments("apply", text % "1..3", *allowed, "--yes"))[0] == 0


def test_a_plan_is_refused_as_its_apply_for_an_exclusive_queue(ran: Ran, modelled: ModelledCommands) -> None:
    text = '[[queues]]\nname = "q"\nexclusive = true\n'
    modelled.holds(live_of(Topology()))
    code, out, _ = ran(*modelled.arguments("plan", text, "-o", "json"))
    (refusal,) = json.loads(out)["refusals"]
    assert (code, refusal["allow_with"]) == (4, None)
    assert "is exclusive" in refusal["message"]
    code, out, _ = ran(*modelled.arguments("apply", text, "--yes", "-o", "json"))
    assert (code, json.loads(out)["refusals"]) == (4, [refusal])


def test_a_plan_with_a_sample_says_whether_the_heaviest_key_moves(
    ran: Ran, modelled: ModelledCommands, tmp_path: Path
) -> None:
    text = '[[exchanges]]\nname = "orders"\ntype = "x-consistent-hash"\nring = [{ queue = "q{1..%d}" }]\n[[queues]]\nname = "q{1..3}"\n'
    modelled.holds(live_of(Topology.from_toml(text % 2)))
    _, out, _ = ran("compare", "q1=1,q2=1", "--to", "q1=1,q2=1,q3=1", "--keys", "k{1..40}", "-o", "json")
    moved = {move["key"] for move in json.loads(out)["change"]["moves"]}
    (stays, *_), (moves, *_) = sorted({f"k{n}" for n in range(1, 41)} - moved), sorted(moved)
    sample = tmp_path / "keys.txt"
    for heavy, says in ((stays, "stays in q"), (moves, "to q3")):
        sample.write_text(f"{heavy}\n{heavy}\nother")
        _, out, _ = ran(*modelled.arguments("plan", text % 3, "--keys", str(sample)))
        (line,) = [line for line in out.splitlines() if line.startswith("heaviest")]
        assert f"'{heavy}', 66.7% of the messages: " in line
        assert says in line
    assert "heaviest" not in ran(*modelled.arguments("plan", text % 3))[1]
