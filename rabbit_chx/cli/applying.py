"""Plans that are applied: shown, agreed to, and applied with their progress. `apply` and `repair` share it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from rabbit_chx.cli.broker_options import BrokerAddresses, count_progress, disk_alarms, unwound_by_signals
from rabbit_chx.cli.command import say
from rabbit_chx.cli.printed import in_words
from rabbit_chx.rendering import ConsoleOutput, Document, MarkdownOutput, sign_of_life
from rabbit_chx.topology import Plan
from rabbit_chx.topology.live.applying import Applied
from rabbit_chx.words import plural

if TYPE_CHECKING:
    from rabbit_chx.broker import Broker

#: The problem of a plan that the user declined.
DECLINED = "the answer was no"


def has_terminal() -> bool:
    """Return True if the user can be asked."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


def apply_shown(
    at: BrokerAddresses,
    opened: Broker,
    plan: Plan,
    *,
    verbose: bool = False,
    seen: Callable[[int], None] = lambda _: None,
    **permissions: Any,
) -> Applied:
    """Apply a plan, and show its progress. `seen` receives each number of completed changes."""
    size, done = len(plan.changes), 0
    if alarms := disk_alarms():
        say(f"{alarms}: once its disk is full, RabbitMQ 4.3 refuses every login after a change")
    verbose = verbose or (sys.stderr is not None and sys.stderr.isatty())
    with unwound_by_signals(), count_progress("applied", size) as counting, ExitStack() as checking:
        checking.enter_context(sign_of_life("checking the plan against the broker"))

        def progress(count: int, _: int) -> None:
            nonlocal done
            checking.close()
            before, done = done, count  # first, since an interruption may come while this writes
            seen(count)
            for number, change in enumerate(plan.changes[before:count], before + 1) if verbose else ():
                say(f"done {number:,} of {size:,}: {change}")
            counting(count)

        try:
            applied = opened.apply(
                plan, progress=progress, waiting=say, records=at.stores_records, **permissions
            )
        except KeyboardInterrupt:
            say(
                f"at least {done:,} of {plural(size, 'change')} were done: run the command again for the others"
            )
            raise
    for note in applied.unrecorded:
        say(note)
    return applied


def ask(plan: Plan) -> bool:
    """Ask whether to apply a plan. Note on stderr if the answer is no."""
    if plan.changes:
        size = len(plan.changes)
        question = f"Make {'this' if size == 1 else 'these'} {plural(size, 'change')}?"
    else:
        question = f"Publish {plural(sum(plan.parked_messages.values()), 'parked message')} again?"
    answer = click.confirm(question, err=True)
    if not answer:
        say("nothing was changed")
    return answer


def show_planned(report: Document, output: str) -> None:
    """Print the plan before it is applied; on stderr if stdout is for programs."""
    if output == "markdown":
        MarkdownOutput().show(report, in_words)
        sys.stdout.write("\n---\n\n")  # a line between the plan and the result
        return
    stream = sys.stdout if output == "table" else sys.stderr
    ConsoleOutput(stream).show(report, in_words)
    stream.write("\n")
