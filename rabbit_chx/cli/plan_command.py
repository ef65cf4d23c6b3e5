"""``rabbit-chx topology plan``: what it takes to turn what is there into what a file says."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rabbit_chx.cli.live_options import LiveBroker, live_options
from rabbit_chx.cli.live_plan import planned, whole_option
from rabbit_chx.cli.outcome import DIFFERENCE, DONE, Outcome
from rabbit_chx.errors import InputError

if TYPE_CHECKING:
    from rabbit_chx.topology import PlanRefusal

__all__ = ["lifting_flags", "plan"]


@click.command(
    epilog="Example: rabbit-chx topology plan topology.toml --ring-via 'docker exec rabbitmq'",
    short_help="What it takes to get there, and which keys move.",
)
@click.argument("file")
@live_options
@click.option("--plan-out", metavar="FILE", help="Write the plan to this file as JSON, too.")
@whole_option
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "markdown"]),
    default="table",
    show_default=True,
    help="The form of the result. Markdown is for a pull request.",
)
def plan(*, file: str, broker: LiveBroker, plan_out: str | None, whole: bool, output: str) -> Outcome:
    """Show what it takes to turn what is on the broker into what FILE says: the changes in their order, field by field, and
    for each ring the exact share of keys that moves, in the end and at the worst moment.

    Nothing is changed on the broker. The exit code is 0 where nothing is to change and no
    message is parked, else 1.

    FILE is a topology file, or a definitions file of RabbitMQ; - is stdin. --ring-via reads the true rings. Without it a
    ring is assumed, and a plan that changes it is refused.
    """
    found = planned(file, broker)
    made = found.plan
    if plan_out is not None:
        _write(plan_out, made.to_json())
    ending = []
    flags = lifting_flags(made.refusals)
    if (made.changes or made.parked) and flags is not None:
        ending.append(f"Apply it with: rabbit-chx topology apply {shlex.join([file, *flags])}")
    code = DIFFERENCE if made.changes or made.refusals or made.parked else DONE
    return Outcome(output, found.report(whole=whole, ending=ending), code=code)


def lifting_flags(refusals: Iterable[PlanRefusal]) -> list[str] | None:
    """Return the flags that lift all refusals, as words of a command line; None where none does.

    Args:
        refusals: why a plan is refused.
    """
    flags: dict[str, float | None] = {}
    for one in refusals:
        if one.allow_with is None:
            return None
        flag, _, share = one.allow_with.partition(" ")
        flags[flag] = max(float(share), flags.get(flag) or 0) if share else None
    return list(_words(flags.items()))


def _words(flags: Iterable[tuple[str, float | None]]) -> Iterator[str]:
    for flag, share in flags:
        yield flag
        if share is not None:
            yield f"{share:g}"


def _write(path: str, text: str) -> None:
    try:
        Path(path).write_text(f"{text}\n", encoding="utf-8")
    except OSError as error:
        raise InputError(f"the plan cannot be written to {path}: {error.strerror}") from None
