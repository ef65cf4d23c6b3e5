"""``rabbit-chx apply``: apply the plan of a topology file."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from rabbit_chx.analysis.findings import Finding
from rabbit_chx.analysis.report_parts import ring_text
from rabbit_chx.analysis.wording import refusals_as_json
from rabbit_chx.checks import json_object
from rabbit_chx.cli.applying import DECLINED, Permissions, apply_shown, ask, show_planned
from rabbit_chx.cli.broker_options import (
    BrokerAddresses,
    BrokerOptions,
)
from rabbit_chx.cli.command import (
    TEXT,
    ExitCode,
    Outcome,
    Rules,
    argument,
    command,
    has_terminal,
    option,
    options,
    say,
)
from rabbit_chx.cli.inputs import STDIN, VariableOptions, read_topology
from rabbit_chx.cli.live_plan import LivePlan, unknown_order, whole_option
from rabbit_chx.errors import ApplyError, InputError, PlanOutdatedError, PlanRefusedError
from rabbit_chx.fixes import Fix
from rabbit_chx.options import number, one_of
from rabbit_chx.rendering import Block, Data, Document, Facts, Section
from rabbit_chx.topology import Plan
from rabbit_chx.topology.live.applying import DRAIN_S, Applied
from rabbit_chx.topology.live.hand_over import HAND_OVER_LEVELS, HandOverLevel
from rabbit_chx.topology.live.recording import find_unrecorded
from rabbit_chx.topology.planning.plan_value import count_changes, no_change, order_facts
from rabbit_chx.topology.reports.plan_report import changes_table
from rabbit_chx.words import plural

if TYPE_CHECKING:
    from rabbit_chx.broker import Broker

#: The result of an application.
ApplyState: TypeAlias = Literal["applied", "unchanged", "refused", "partly"]
_CODES: dict[ApplyState, int] = {
    "applied": ExitCode.DONE,
    "unchanged": ExitCode.DONE,
    "refused": ExitCode.REFUSED,
    "partly": ExitCode.PARTLY,
}
#: The version of a plan file.
_PLAN_VERSION = 2
#: The largest --drain, in seconds: one day.
_MAX_DRAIN_S = 86_400


@dataclass(frozen=True, slots=True)
class ApplyReport:
    """The result of applying a plan.

    Attributes:
        applied: the completed changes; None if nothing was changed.
        refusals: the reasons to refuse the plan.
        problem: the error, in words; None without an error.
    """

    state: ApplyState
    plan: Plan
    applied: Applied | None = None
    refusals: Sequence[Finding] = ()
    problem: str | None = None

    def document(self) -> Document:
        """Return the completed changes. The plan is printed before it."""
        applied, plan = self.applied, self.plan
        slots: dict[str, object] = {}
        if applied is not None and (applied.handed_over or applied.unparked):
            slots = {
                "handed_over": [
                    {"slot": slot, "old": old, "new": new} for slot, old, new in applied.handed_over
                ],
                "unparked": applied.unparked,
                "overtaken": applied.overtaken,
            }
        rings = applied.rings if applied and self.state == "applied" else {}
        fields = {
            "state": self.state,
            "checksum": plan.checksum,
            "planned": len(plan.changes),
            "changes": applied.changes if applied else (),
            "rings": [{"exchange": name, "ring": ring} for name, ring in rings.items()],
            "refusals": refusals_as_json(self.refusals),
            "message": self.problem,
            **slots,
        }
        return Document("apply", [Data(fields), *self._shown()])

    def _shown(self) -> Iterator[Block]:
        if self.applied is None:
            if self.state == "unchanged":
                resumes = self.plan.resumes
                yield Facts(
                    [
                        *([("resumes", resumes)] if resumes else []),
                        ("applied", f"nothing: {no_change(self.plan)}"),
                        *order_facts(self.plan),
                        ("checksum", self.plan.checksum),
                    ]
                )
            return
        changes, planned = self.applied.changes, plural(len(self.plan.changes), "change")
        slots = list(_slot_facts(self.applied))
        if self.state == "applied":
            counted = (
                f"{planned}: {count_changes(changes)}" if changes else f"no changes: {no_change(self.plan)}"
            )
            rings = [("ring", Fix(f"{name}: ", ring_text(ring))) for name, ring in self.applied.rings.items()]
            yield Facts([("applied", counted), *slots, *rings])
        else:
            done = f"{len(changes):,} of {planned}"
            left = len(changes) < len(self.plan.changes)
            following = [("next", "apply the same file again: it makes the other changes")] if left else []
            yield Facts([("done", done), *slots, *following])
            if changes:
                yield Section("Done", [changes_table(changes, whole=False)])


def _slot_facts(applied: Applied) -> Iterator[tuple[str, str]]:
    if applied.handed_over:
        yield "slots", f"{plural(len(applied.handed_over), 'slot')} with another queue"
    if applied.unparked:
        yield "parked", f"{plural(applied.unparked, 'message')} published again"
    for sentence in applied.overtaken:
        yield "overtaken", sentence


@dataclass(frozen=True, slots=True)
class ApplyOptions:
    """The options for applying a plan."""

    yes: bool = option(
        is_flag=True, help="Do not ask. Required without a terminal, unless --checksum or --plan is given."
    )
    checksum: str | None = option(
        type=TEXT,
        metavar="C",
        help="Apply the plan without asking if it has this checksum. No option permits a plan with another checksum.",
    )
    plan_file: str | None = option(
        "--plan",
        metavar="FILE",
        help="Apply without asking if the plan is that of this file: the output of `plan --plan-out`.",
    )
    permissions: Permissions = options(Permissions)
    drain: float = option(
        type=number(_MAX_DRAIN_S),
        metavar="SECONDS",
        default=DRAIN_S,
        show_default=True,
        help="The time in which consumers must empty the queues that are deleted or replaced, after these are unbound.",
    )
    hand_over: HandOverLevel = option(
        type=one_of(*HAND_OVER_LEVELS),
        default="parked",
        show_default=True,
        help="How slots move to another queue: parked loses no message; in-order also keeps the order, and requires a ConsumerGroup.",
    )
    whole: bool = whole_option()
    verbose: bool = option(
        "-v",
        "--verbose",
        is_rare=True,
        is_flag=True,
        help="Report each completed change on stderr, as at a terminal.",
    )

    def read_checksum(self) -> str | None:
        """Return the required checksum, given directly or as a plan; None if it is not given."""
        path = self.plan_file
        if path is None:
            return self.checksum
        try:
            plan = json_object(Path(path).read_bytes())
        except OSError as error:
            raise InputError(f"the plan {path} cannot be read: {error.strerror}") from None
        of_plan = plan.get("checksum")
        if not isinstance(of_plan, str) or plan.get("format") != "rabbit-chx/plan":
            raise InputError(f"{path} is not a plan: pass a file that plan --plan-out wrote")
        version = plan.get("format_version")
        if version != _PLAN_VERSION:
            raise InputError(
                f"the plan {path} has format_version {version!r:.60}, and this release reads {_PLAN_VERSION}: write it again with "
                f"plan --plan-out {shlex.quote(path)}"
            )
        return of_plan


@command(
    example="rabbit-chx apply topology.toml --ring-via 'docker exec rabbitmq'",
    rules=Rules(excludes=[("--checksum", "--plan")]),
)
def apply(
    *,
    file: str = argument(),
    broker: BrokerOptions = options(BrokerOptions),
    variables: VariableOptions = options(VariableOptions),
    given: ApplyOptions = options(ApplyOptions),
    output: str,
) -> Outcome:
    """Show the plan of FILE, ask, and apply it. Afterwards the rings are read and compared with the plan.

    The broker keeps a record of the order of each ring, in an exchange rabbit-chx.ring.NAME: later commands need
    neither rabbitmqctl nor a file.

    A queue is unbound before it is deleted or replaced, and its consumers empty it. A queue that is not empty after --drain
    seconds, or has messages and no consumers, is left unbound: the exit code is 3.

    After an interruption, apply the file again, with the same options: it does what was left.

    The exit code is 0 if the plan was applied or no change was required, 3 if it was partly applied, 4 if it
    was refused and nothing was changed.
    """
    at, expected, allowed = broker.live(), given.read_checksum(), given.permissions.arguments()
    asks = not given.yes and expected is None
    if asks and (file == STDIN or not has_terminal()):
        raise InputError(
            "apply asks before it changes the broker, and needs a terminal to ask: pass --yes, or --checksum with the checksum "
            "of a reviewed plan"
        )
    wanted = read_topology(file, at.settings.vhost, variables=variables, is_compared=True)
    with at.open() as opened:
        live = LivePlan.read(opened, wanted, at.settings.vhost)
        plan = live.plan
        refusals = live.refused(given.permissions, records=at.stores_records)
        if expected is not None and plan.checksum != expected:
            raise PlanOutdatedError(
                f"the plan of {wanted.name} has the checksum {plan.checksum} now, and not {expected}: nothing was changed; the "
                "file or the broker has changed since, so review the new plan"
            )
        if not plan.changes and not refusals and not plan.parked_messages:
            if at.stores_records and find_unrecorded(plan, live.live):
                for note in opened.apply(plan).unrecorded:
                    say(note)
            unchanged = ApplyReport("unchanged", plan)
            return Outcome(unchanged.document(), unknown_order(plan, live.live) or ExitCode.DONE)
        drain_s = None if "allow_loss" in allowed else given.drain
        report = live.report(refusals, whole=given.whole, drain_s=drain_s)
        if refusals:
            say("the plan is refused, and nothing was changed")
            refused = ApplyReport("refused", plan, refusals=refusals, problem="nothing was changed")
            return Outcome(refused.document() if output == "json" else report, code=ExitCode.REFUSED)
        if output != "json" or asks:
            show_planned(report, output)
        if asks and not ask(plan):
            declined = ApplyReport("refused", plan, problem=DECLINED)
            return Outcome(declined.document() if output == "json" else None, code=ExitCode.REFUSED)
        done = _apply(at, opened, plan, given, output)
        return Outcome(done.document(), _CODES[done.state])


def _apply(at: BrokerAddresses, opened: Broker, plan: Plan, given: ApplyOptions, output: str) -> ApplyReport:
    try:
        applied = apply_shown(
            at,
            opened,
            plan,
            verbose=given.verbose,
            **given.permissions.arguments(),
            hand_over=given.hand_over,
            drain_s=given.drain,
        )
    except ApplyError as error:
        say(str(error))
        return ApplyReport("partly", plan, error.applied, problem=str(error))
    except PlanRefusedError as error:
        if output != "json" or isinstance(error, PlanOutdatedError):
            raise
        return ApplyReport("refused", plan, refusals=error.refusals, problem=str(error))
    return ApplyReport("applied", plan, applied)
