"""``rabbit-chx topology apply``: turns what is there into what a file says."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rabbit_chx.cli.apply_report import ApplyReport
from rabbit_chx.cli.live_options import LiveBroker, counted, live_options, unwound_by_signals
from rabbit_chx.cli.live_plan import LivePlan, plan_on, whole_option
from rabbit_chx.cli.notation import plural
from rabbit_chx.cli.option_groups import TEXT, Number, output_option
from rabbit_chx.cli.outcome import DIFFERENCE, PARTLY, Outcome
from rabbit_chx.cli.stderr import say
from rabbit_chx.cli.topology_input import read_topology
from rabbit_chx.errors import ApplyError, InputError, PlanOutdatedError, PlanRefusedError
from rabbit_chx.rendering import ConsoleOutput
from rabbit_chx.topology import Plan, PlannedChange, PlanRefusal, QueueDefinition
from rabbit_chx.topology.hand_over import HAND_OVER_LEVELS, HandOverLevel

if TYPE_CHECKING:
    from rabbit_chx.broker import Broker

__all__ = ["apply"]

_REFUSED = DIFFERENCE


@dataclass(frozen=True, slots=True)
class AskedApplication:
    """How a plan is to be applied.

    Attributes:
        allow_moved: the share of keys that may move in each ring; None: what the file says.
        allow_delete: whether objects may be deleted and replaced.
        allow_loss: whether queues may be deleted that have messages or consumers.
        asks: whether somebody at a terminal is asked.
        whole: whether a long plan is shown whole.
        verbose: whether each change is told when it is done.
        hand_over: how slots change hands.
        output: the form of the result.
    """

    allow_moved: float | None
    allow_delete: bool
    allow_loss: bool
    asks: bool
    whole: bool
    verbose: bool
    hand_over: HandOverLevel
    output: str


@click.command(
    epilog="Example: rabbit-chx topology apply topology.toml --ring-via 'docker exec rabbitmq'",
    short_help="Do what the plan says.",
)
@click.argument("file")
@live_options
@click.option(
    "--yes", is_flag=True, help="Do not ask. Needed where there is no terminal, unless --checksum is given."
)
@click.option(
    "--checksum",
    type=TEXT,
    metavar="C",
    help="Apply only the plan with this checksum, without asking. Nothing lifts one that differs.",
)
@click.option(
    "--plan",
    "plan_file",
    metavar="FILE",
    help="The same, with the checksum of a plan that `plan --plan-out` wrote.",
)
@click.option(
    "--allow-moved",
    type=Number(0, 1),
    metavar="SHARE",
    help="The share of keys that may move in each ring, 0 to 1.",
)
@click.option("--allow-delete", is_flag=True, help="Delete and replace what the plan says.")
@click.option("--allow-loss", is_flag=True, help="Delete queues that have messages or consumers, too.")
@click.option(
    "--hand-over",
    type=click.Choice(HAND_OVER_LEVELS),
    default="parked",
    show_default=True,
    help="How slots change hands: parked loses nothing; in-order overtakes nothing either, and needs a ConsumerGroup.",
)
@whole_option
@click.option("-v", "--verbose", is_flag=True, help="Tell each change on stderr when it is done.")
@output_option
def apply(
    *,
    file: str,
    broker: LiveBroker,
    yes: bool,
    checksum: str | None,
    plan_file: str | None,
    allow_moved: float | None,
    allow_delete: bool,
    allow_loss: bool,
    hand_over: HandOverLevel,
    whole: bool,
    verbose: bool,
    output: str,
) -> Outcome:
    """Show the plan of FILE, ask, and do it: turn what is on the broker into what FILE says.

    The rings are read afterwards and compared with the plan. If it is interrupted, apply again: it plans anew from what is
    there, and does the rest.

    The exit code is 0 where it was applied or there was nothing to do, 1 where it was refused and nothing was changed, and
    3 where it was done in part.

    FILE is a topology file, or a definitions file of RabbitMQ; - is stdin.
    """
    expected = _expected(checksum, plan_file)
    asked = AskedApplication(
        allow_moved, allow_delete, allow_loss, not yes and expected is None, whole, verbose, hand_over, output
    )
    if asked.asks and (file == "-" or not _has_terminal()):
        raise InputError(
            "apply asks before it changes anything, and there is nobody to ask: give --yes, or --checksum with the checksum "
            "of a plan that was looked at"
        )
    vhost = broker.settings.vhost
    given = read_topology(file, vhost)
    with broker.broker() as opened:
        found = plan_on(opened, given, vhost)
        return _applied(opened, found, expected, asked)


def _applied(opened: Broker, found: LivePlan, expected: str | None, asked: AskedApplication) -> Outcome:
    plan, output = found.plan, asked.output
    refusals = (
        *plan.refused(allow_moved=asked.allow_moved, allow_delete=asked.allow_delete),
        *_exclusive(plan),
    )
    size = len(plan.changes)
    if expected is not None and plan.checksum != expected:
        raise PlanOutdatedError(
            f"the plan of {found.given.name} has the checksum {plan.checksum} now, and not {expected}: nothing was changed; the "
            "file or the broker is another one since, so look at the new plan"
        )
    if not size and not refusals and not plan.parked:
        return Outcome(output, ApplyReport("unchanged", plan.checksum, size))
    report = found.report(whole=asked.whole, refusals=refusals)
    if refusals:
        refused = ApplyReport("refused", plan.checksum, size, refusals=refusals, says="nothing was changed")
        say("the plan is refused, and nothing was changed")
        return Outcome(output, refused if output == "json" else report, code=_REFUSED)
    if output == "table" or asked.asks:
        stream = sys.stdout if output == "table" else sys.stderr
        ConsoleOutput(stream).show(report)
        stream.write("\n")
    if asked.asks and not click.confirm(_question(plan), err=True):
        say("nothing was changed")
        refused = ApplyReport("refused", plan.checksum, size, says="the answer was no")
        return Outcome(output, refused if output == "json" else None, code=_REFUSED)
    return _done(opened, plan, asked)


def _done(opened: Broker, plan: Plan, asked: AskedApplication) -> Outcome:
    size, done = len(plan.changes), 0
    with unwound_by_signals(), counted("applied", size) as seen:

        def progress(count: int, _: int) -> None:
            nonlocal done
            told, done = plan.changes[done:count], count
            seen(count)
            for change in told if asked.verbose else ():
                say(f"done: {_told(change)}")

        try:
            applied = opened.apply(
                plan,
                allow_moved=asked.allow_moved,
                allow_delete=asked.allow_delete,
                allow_loss=asked.allow_loss,
                hand_over=asked.hand_over,
                progress=progress,
            )
        except ApplyError as error:
            say(str(error))
            partly = ApplyReport(
                "partly", plan.checksum, size, error.applied.changes, says=str(error), done=error.applied
            )
            return Outcome(asked.output, partly, code=PARTLY)
        except PlanOutdatedError:
            raise
        except PlanRefusedError as error:
            if asked.output != "json":
                raise
            refused = ApplyReport("refused", plan.checksum, size, refusals=error.refusals, says=str(error))
            return Outcome(asked.output, refused, code=_REFUSED)
        except KeyboardInterrupt:
            say(f"at least {done:,} of {plural(size, 'change')} were done: apply again, which does the rest")
            raise
    report = ApplyReport("applied", applied.checksum, size, applied.changes, applied.rings, done=applied)
    return Outcome(asked.output, report)


def _question(plan: Plan) -> str:
    size = len(plan.changes)
    if not size:
        return f"Publish {plural(sum(plan.parked.values()), 'parked message')} once more?"
    return f"Do {'this' if size == 1 else 'these'} {plural(size, 'change')}?"


def _told(change: PlannedChange) -> str:
    kind = "" if change.kind == "binding" else f"{change.kind} "
    return f"{change.action} {kind}{change.name}"


def _exclusive(plan: Plan) -> Iterator[PlanRefusal]:
    for change in plan.changes:
        queue = change.wanted
        if isinstance(queue, QueueDefinition) and queue.exclusive:
            yield PlanRefusal(
                f"queue {queue.name} is exclusive: it would belong to this command's connection, and go when that ends; leave "
                'it out of the file, or write owner = "external", as its client declares it'
            )


def _expected(checksum: str | None, path: str | None) -> str | None:
    """Return the checksum that is asked for, given as it is or as a plan; None where none is."""
    if path is None:
        return checksum
    try:
        document = json.loads(Path(path).read_bytes())
    except OSError as error:
        raise InputError(f"the plan {path} cannot be read: {error.strerror}") from None
    except ValueError:
        document = None
    found = document.get("checksum") if isinstance(document, dict) else None
    if not isinstance(found, str) or document.get("format") != "rabbit-chx/plan":
        raise InputError(f"{path} is not a plan: give what rabbit-chx topology plan --plan-out wrote")
    if checksum is not None and checksum != found:
        raise InputError(f"--checksum is {checksum}, and that of {path} is {found}: give one of them")
    return found


def _has_terminal() -> bool:
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))
