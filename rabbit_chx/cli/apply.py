"""``rabbit-chx apply``: apply the plan of a topology file."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from rabbit_chx.broker.applying import WAIT_S
from rabbit_chx.broker.hand_over import HAND_OVER_LEVELS, HandOverLevel
from rabbit_chx.broker.recording import find_unrecorded
from rabbit_chx.checks import json_object
from rabbit_chx.cli.app import go_on_without_reader
from rabbit_chx.cli.broker_options import (
    BrokerOptions,
)
from rabbit_chx.cli.command import (
    TEXT,
    CommandResult,
    ExitCode,
    Rules,
    argument,
    command,
    has_terminal,
    option,
    options,
    say,
)
from rabbit_chx.cli.inputs import STDIN, VariableOptions, read_topology
from rabbit_chx.cli.plan import (
    DECLINED,
    ApplyReport,
    LivePlan,
    Permissions,
    apply_plan,
    ask,
    show_planned,
    unknown_order,
    wait_after,
    whole_option,
    why_no_wait,
)
from rabbit_chx.errors import InputError, PlanOutdatedError
from rabbit_chx.options import ValueKind, number, one_of
from rabbit_chx.planning.plan_value import DRAIN_S, Plan

#: The version of a plan file.
_PLAN_VERSION = 2
#: The largest --drain and --wait-drained, in seconds: one day.
_MAX_DRAIN_S = 86_400


def _read_wait(text: str) -> float:
    try:
        return float(number(_MAX_DRAIN_S).value_of(text))
    except ValueError:
        raise InputError(
            f"{text!r:.80} is not a number of seconds up to {_MAX_DRAIN_S}: put FILE before --wait-drained, or write --wait-drained=600."
        ) from None


@dataclass(frozen=True, slots=True)
class ApplyOptions:
    """The options for applying a plan."""

    yes: bool = option(help="Do not ask. Required without a terminal, unless --checksum or --plan is given.")
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
    wait_drained: float | None = option(
        type=ValueKind("number", parse=_read_wait),
        metavar="[SECONDS]",
        is_flag=False,
        flag_value=f"{WAIT_S:g}",
        help="After an append, wait until each old queue has been empty once since the bind, then say that consumers of the new queue may "
        f"start; at most SECONDS, or {WAIT_S:g} if none are given.",
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
) -> CommandResult:
    """Show the plan of FILE, ask, and apply it. Afterwards the rings are read and compared with the plan.

    The broker keeps a record of the order of each ring, in an exchange rabbit-chx.ring.NAME: later commands need
    neither rabbitmqctl nor a file.

    A queue is unbound before it is deleted or replaced, and its consumers empty it. A queue that is not empty after --drain
    seconds, or has messages and no consumers, is left unbound: the exit code is 3.

    After an interruption, apply the file again, with the same options: it does what was left.

    Queues that are appended while messages flow get their consumers last: --wait-drained waits until each of the old queues
    has been empty once, which the statistics of the broker show some seconds later. If one never is, it is named, and the
    exit code is 3; the plan is applied all the same. It is refused beforehand if nothing can keep the order.

    The exit code is 0 if the plan was applied or no change was required, 3 if it was partly applied, 4 if it
    was refused and nothing was changed.
    """
    go_on_without_reader()
    at = broker.live()
    expected = given.read_checksum()
    allowed = given.permissions.arguments()
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
            return CommandResult(unchanged.document(), unknown_order(plan, live.live) or ExitCode.DONE)
        drain_s = None if "allow_loss" in allowed else given.drain
        report = live.report(refusals, whole=given.whole, drain_s=drain_s)
        if refusals:
            say("the plan is refused, and nothing was changed")
            refused = ApplyReport("refused", plan, refusals=refusals, problem="nothing was changed")
            return CommandResult(refused.document() if output == "json" else report, code=ExitCode.REFUSED)
        if output != "json" or asks:
            show_planned(report, output)
        done = _decline(plan, given, asks=asks)
        if done is None:
            done = apply_plan(
                at,
                opened,
                plan,
                output,
                verbose=given.verbose,
                **allowed,
                hand_over=given.hand_over,
                drain_s=given.drain,
            )
            if given.wait_drained is not None and done.state == "applied":
                done = wait_after(opened, done, given.wait_drained)
        is_shown = output == "json" or done.state != "refused"
        return CommandResult(done.document() if is_shown else None, done.code)


def _decline(plan: Plan, given: ApplyOptions, *, asks: bool) -> ApplyReport | None:
    """Return the report of a plan that is not applied, as no wait keeps its order or as the user says no; None if it is applied."""
    problem = None if given.wait_drained is None else why_no_wait(plan)
    if problem is None and asks and not ask(plan):
        problem = DECLINED
    return None if problem is None else ApplyReport("refused", plan, problem=problem)
