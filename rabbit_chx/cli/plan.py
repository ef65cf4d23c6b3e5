"""``rabbit-chx plan``: the changes between the live topology and that of a file."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from rabbit_chx.analysis.findings import Finding
from rabbit_chx.broker.recording import why_not_resumable
from rabbit_chx.cli.applying import Permissions
from rabbit_chx.cli.broker_options import BrokerOptions
from rabbit_chx.cli.command import ExitCode, Outcome, argument, command, option, options, say
from rabbit_chx.cli.inputs import STDIN, VariableOptions, read_topology
from rabbit_chx.cli.live_plan import LivePlan, unknown_order, whole_option
from rabbit_chx.cli.printed import as_printed
from rabbit_chx.cli.read_rings import say_unrecorded_rings
from rabbit_chx.cli.samples import KeySource, heaviest_moves, keys_option
from rabbit_chx.cli.written_files import write_file
from rabbit_chx.command_texts import command_text
from rabbit_chx.planning.plan_value import Plan
from rabbit_chx.rendering.document import Document


@command(
    example="rabbit-chx plan topology.toml --ring-via 'docker exec rabbitmq'",
    has_pictures=True,
)
def plan(
    *,
    file: str = argument(),
    broker: BrokerOptions = options(BrokerOptions, without=("no_record",)),
    variables: VariableOptions = options(VariableOptions),
    permissions: Permissions = options(Permissions),
    keys: KeySource | None = keys_option(
        "A sample of keys, of which the plan says whether the heaviest move"
    ),
    plan_out: str | None = option(metavar="FILE", help="Also write the plan to this file, as JSON."),
    whole: bool = whole_option(),
) -> Outcome:
    """Show the changes that FILE requires, in their order, and for each ring the exact share of keys that
    move: at the end and at the peak, while bindings change. No ring is changed. Exit codes:
    0 no changes, 1 changes to apply, 4 refused. --allow means the same as in apply.

    FILE is a topology file, or a definitions file of RabbitMQ; - is stdin. Rings are those of the records on the
    broker, or are read by --ring-via. Otherwise their order is not known, and a plan that changes one is refused.

    Exit codes also: 1 messages are parked, 3 no changes, but the order of a ring is not known.
    """
    at = broker.live()
    permissions.arguments()  # refuses contradictions before the broker is asked
    given = read_topology(file, at.settings.vhost, variables=variables, is_compared=True)
    with at.open() as opened:
        live = LivePlan.read(opened, given, at.settings.vhost)
        say_unrecorded_rings(live.live)
    if note := why_not_resumable(live.plan, live.live):
        say(note)
    heaviest = {} if keys is None else heaviest_moves(keys, live.plan)
    made, report = report_plan(live, file, permissions, whole=whole, heaviest=heaviest)
    if plan_out is not None:
        text = json.dumps(as_printed(report).as_json(), ensure_ascii=False)
        write_file(Path(plan_out), f"{text}\n")
    code = (
        ExitCode.REFUSED
        if made.refusals
        else ExitCode.DIFFERENCE
        if made.changes or made.parked_messages
        else unknown_order(made, live.live) or ExitCode.DONE
    )
    return Outcome(report, code)


def report_plan(live: LivePlan, file: str, permissions: Permissions, **shown: Any) -> tuple[Plan, Document]:
    """Return the plan of a file with the refusals that are not permitted, and its report with the commands that follow.

    `shown` are arguments of `plan_parts`.
    """
    remaining = live.refused(permissions)
    live = replace(live, plan=replace(live.plan, refusals=remaining))
    made = live.plan
    permitting = options_to_permit(permissions.options, remaining)
    ending = []
    override = ""
    if not live.file.is_definitions and file != STDIN and _can_move_less(made):
        ending.append(f"To move fewer keys, run: {command_text('arrange', file, '--write')}")
    if (made.changes or made.parked_messages) and permitting is not None:
        # apply cannot ask if stdin is the file
        reviewed = ["--checksum", made.checksum] if file == STDIN else []
        command = f"Apply it with: {command_text('apply', file, *permitting, *reviewed)}"
        if remaining:
            override = command
        else:
            ending.append(command)
    return made, live.report(ending=ending, override=override, **shown)


def _can_move_less(plan: Plan) -> bool:
    return any(
        proposal.strategy == "least-moving-order" and proposal.moved_at_worst < ring.moved_at_worst
        for ring in plan.rings.values()
        for proposal in ring.proposals
    )


def options_to_permit(given: Iterable[str], refusals: Iterable[Finding]) -> list[str] | None:
    """Return the words of the options that permit all refusals, and of those that are given; None if no option permits one of the refusals."""
    options: dict[str, str] = {}
    permitting = [refusal.allow_with for refusal in refusals]
    for each in (*given, *permitting):
        if each is None:
            return None
        name = each.partition("=")[0]
        options[name] = max(options.get(name, each), each, key=_share_in)
    return [word for each in options.values() for word in each.split()]


def _share_in(option: str) -> float:
    """Return the share of keys that an option permits to move; 0 for another option."""
    return float(option.partition("=")[2] or 0)
