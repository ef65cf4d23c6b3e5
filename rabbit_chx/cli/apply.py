"""``rabbit-chx topology apply``: change the live topology to that of a file."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import click

from rabbit_chx.analysis.findings import Finding
from rabbit_chx.analysis.wording import plural
from rabbit_chx.cli.broker_options import BrokerOptions, counted, unwound_by_signals
from rabbit_chx.cli.command import (
    DONE,
    PARTLY,
    REFUSED,
    TEXT,
    Number,
    Outcome,
    argument,
    command,
    option,
    options,
    say,
)
from rabbit_chx.cli.inputs import STDIN, read_topology
from rabbit_chx.cli.plan import LivePlan, changes_table, whole_option
from rabbit_chx.cli.report import document, entries, entry, ring_document, ring_text
from rabbit_chx.errors import ApplyError, InputError, PlanOutdatedError, PlanRefusedError
from rabbit_chx.rendering import Block, ConsoleOutput, Facts, Report, Section
from rabbit_chx.routing import HashRing
from rabbit_chx.topology import Plan, QueueDefinition
from rabbit_chx.topology.applying import Applied
from rabbit_chx.topology.changes import PlannedChange
from rabbit_chx.topology.hand_over import HAND_OVER_LEVELS, HandOverLevel
from rabbit_chx.topology.plan_output import change_entry, counted_changes

if TYPE_CHECKING:
    from rabbit_chx.broker import Broker

#: The result of an application.
ApplyState: TypeAlias = Literal["applied", "unchanged", "refused", "partly"]
_CODES: dict[ApplyState, int] = {"applied": DONE, "unchanged": DONE, "refused": REFUSED, "partly": PARTLY}


@dataclass(frozen=True, slots=True)
class ApplyReport:
    """The result of applying a plan.

    Attributes:
        planned: the number of planned changes.
        changes: the completed changes.
        rings: the changed rings, as they are afterwards.
        problem: the error, in words; None without an error.
        done: the results for slots and parked messages; None if nothing was done.
    """

    state: ApplyState
    checksum: str
    planned: int
    changes: Sequence[PlannedChange] = ()
    rings: Mapping[str, HashRing] | None = None
    refusals: Sequence[Finding] = ()
    problem: str | None = None
    done: Applied | None = None

    def blocks(self) -> Iterator[Block]:
        """Return the completed changes. The plan is printed before it."""
        if self.state == "unchanged":
            yield Facts(
                [("applied", "nothing: what is there is as the file says"), ("checksum", self.checksum)]
            )
        elif self.state == "applied":
            counted = f"{plural(self.planned, 'change')}: {counted_changes(self.changes)}"
            facts = [("applied", counted if self.changes else "no change: what is there is as the file says")]
            rings = [("ring", f"{name}: {ring_text(ring)}") for name, ring in (self.rings or {}).items()]
            yield Facts([*facts, *self._slot_facts(), *rings])
        elif self.state == "partly":
            done = f"{len(self.changes):,} of {plural(self.planned, 'change')}"
            left = "apply again: it plans anew, and does the rest"
            yield Facts([("done", done), *self._slot_facts(), ("left", left)])
            if self.changes:
                yield Section("Done", [changes_table(self.changes, whole=False)])

    def _slot_facts(self) -> Iterator[tuple[str, str]]:
        if self.done is None:
            return
        if self.done.handed_over:
            yield "slots", f"{plural(len(self.done.handed_over), 'slot')} with another queue"
        if self.done.unparked:
            yield "parked", f"{plural(self.done.unparked, 'message')} published once more"
        for sentence in self.done.overtaken:
            yield "overtaken", sentence

    def as_json(self) -> dict[str, Any]:
        """Return the JSON document of this command."""
        done, slots = self.done, {}
        if done is not None and (done.handed_over or done.unparked):
            handed_over = [{"slot": slot, "old": old, "new": new} for slot, old, new in done.handed_over]
            slots = {"handed_over": handed_over, **entry(done, "unparked", "overtaken")}
        return document(
            "apply",
            **entry(self, "state", "checksum", "planned"),
            changes=list(map(change_entry, self.changes)),
            rings=[
                {"exchange": name, "ring": ring_document(ring)} for name, ring in (self.rings or {}).items()
            ],
            refusals=entries(self.refusals, "says=text", "message", "fix", "allow_with"),
            says=self.problem,
            **slots,
        )


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
        help="The same with the checksum in this file, which `plan --plan-out` wrote.",
    )
    allow_moved: float | None = option(
        type=Number(0, 1),
        metavar="SHARE",
        help="The share of keys that may move in each ring, 0 to 1.",
    )
    allow_delete: bool = option(is_flag=True, help="Permit the deletions and replacements of the plan.")
    allow_loss: bool = option(is_flag=True, help="Also delete queues that contain messages.")
    hand_over: HandOverLevel = option(
        type=click.Choice(HAND_OVER_LEVELS),
        default="parked",
        show_default=True,
        help="How slots move to another queue: parked loses no message; in-order also keeps the order, and requires a ConsumerGroup.",
    )
    whole: bool = whole_option()
    verbose: bool = option(
        "-v",
        "--verbose",
        is_flag=True,
        help="Report each completed change on stderr, as at a terminal.",
    )

    def expected(self) -> str | None:
        """Return the required checksum, given directly or as a plan; None if it is not given."""
        path, checksum = self.plan_file, self.checksum
        if path is None:
            return checksum
        try:
            plan = json.loads(Path(path).read_bytes())
        except OSError as error:
            raise InputError(f"the plan {path} cannot be read: {error.strerror}") from None
        except ValueError:
            plan = None
        of_plan = plan.get("checksum") if isinstance(plan, dict) else None
        if not isinstance(of_plan, str) or plan.get("format") != "rabbit-chx/plan":
            raise InputError(f"{path} is not a plan: give what rabbit-chx topology plan --plan-out wrote")
        if checksum is not None and checksum != of_plan:
            raise InputError(f"--checksum is {checksum}, and that of {path} is {of_plan}: give one of them")
        return of_plan


@command(example="rabbit-chx topology apply topology.toml --ring-via 'docker exec rabbitmq'")
def apply(
    *,
    file: str = argument(),
    broker: BrokerOptions = options(BrokerOptions),
    how: ApplyOptions = options(ApplyOptions),
    output: str,
) -> Outcome:
    """Show the plan of FILE, ask, and apply it. Afterwards the rings are read and compared with the plan.

    After an interruption, apply the file again: the rest is planned from the live topology.

    The exit code is 0 if the plan was applied or nothing had to be done, 3 if it was applied in part, 4 if it
    was refused and nothing was changed.
    """
    at, expected = broker.live(), how.expected()
    asks = not how.yes and expected is None
    if asks and (file == STDIN or not has_terminal()):
        raise InputError(
            "apply asks before it changes anything, and there is nobody to ask: give --yes, or --checksum with the checksum "
            "of a plan that was looked at"
        )
    given = read_topology(file, at.settings.vhost)
    with at.broker() as opened:
        live = LivePlan.read(opened, given, at.settings.vhost)
        plan, size = live.plan, len(live.plan.changes)
        refusals = (
            *plan.refused(allow_moved=how.allow_moved, allow_delete=how.allow_delete),
            *_exclusive(plan),
        )
        if expected is not None and plan.checksum != expected:
            raise PlanOutdatedError(
                f"the plan of {given.name} has the checksum {plan.checksum} now, and not {expected}: nothing was changed; the "
                "file or the broker is another one since, so look at the new plan"
            )
        if not size and not refusals and not plan.parked_messages:
            return Outcome(ApplyReport("unchanged", plan.checksum, size))
        report = live.report(refusals, whole=how.whole)
        if refusals:
            refused = ApplyReport(
                "refused", plan.checksum, size, refusals=refusals, problem="nothing was changed"
            )
            say("the plan is refused, and nothing was changed")
            return Outcome(refused if output == "json" else report, code=REFUSED)
        if output == "table" or asks:
            show_planned(report, output)
        if asks and not click.confirm(_question(plan), err=True):
            say("nothing was changed")
            refused = ApplyReport("refused", plan.checksum, size, problem="the answer was no")
            return Outcome(refused if output == "json" else None, code=REFUSED)
        done = _done(opened, plan, how, output)
        return Outcome(done, _CODES[done.state])


def _done(opened: Broker, plan: Plan, how: ApplyOptions, output: str) -> ApplyReport:
    size, done = len(plan.changes), 0
    with unwound_by_signals(), counted("applied", size) as seen:

        def progress(count: int, _: int) -> None:
            nonlocal done
            before, done = done, count
            tell_done(plan.changes, before, count, always=how.verbose)
            seen(count)

        try:
            applied = opened.apply(
                plan,
                allow_moved=how.allow_moved,
                allow_delete=how.allow_delete,
                allow_loss=how.allow_loss,
                hand_over=how.hand_over,
                progress=progress,
            )
        except ApplyError as error:
            say(str(error))
            part = error.applied
            return ApplyReport("partly", plan.checksum, size, part.changes, problem=str(error), done=part)
        except PlanOutdatedError:
            raise
        except PlanRefusedError as error:
            if output != "json":
                raise
            return ApplyReport("refused", plan.checksum, size, refusals=error.refusals, problem=str(error))
        except KeyboardInterrupt:
            say(f"at least {done:,} of {plural(size, 'change')} were done: apply again, which does the rest")
            raise
    return ApplyReport("applied", applied.checksum, size, applied.changes, applied.rings, done=applied)


def tell_done(changes: Sequence[PlannedChange], before: int, now: int, *, always: bool = False) -> None:
    """Print each completed change on stderr, if that is a terminal."""
    if always or (sys.stderr is not None and sys.stderr.isatty()):
        for number, change in enumerate(changes[before:now], before + 1):
            kind = "" if change.kind == "binding" else f"{change.kind} "
            say(f"done {number:,} of {len(changes):,}: {change.action} {kind}{change.name}")


def _question(plan: Plan) -> str:
    if not plan.changes:
        return f"Publish {plural(sum(plan.parked_messages.values()), 'parked message')} once more?"
    return question_of(plan)


def show_planned(report: Report, output: str) -> None:
    """Print the plan before it is applied; on stderr if stdout is for programs."""
    stream = sys.stdout if output == "table" else sys.stderr
    ConsoleOutput(stream).show(report)
    stream.write("\n")


def question_of(plan: Plan) -> str:
    """Return the question whether to apply a plan."""
    size = len(plan.changes)
    return f"Do {'this' if size == 1 else 'these'} {plural(size, 'change')}?"


def _exclusive(plan: Plan) -> Iterator[Finding]:
    for change in plan.changes:
        queue = change.wanted
        if isinstance(queue, QueueDefinition) and queue.exclusive:
            yield Finding(
                "exclusive",
                f"queue {queue.name} is exclusive: it would belong to this command's connection, and go when that ends",
                'leave it out of the file, or write owner = "external", as its client declares it',
            )


def has_terminal() -> bool:
    """Return True if the user can be asked."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))
