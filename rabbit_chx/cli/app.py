"""The commands in one program: it shows their results and turns errors into exit codes.

====  =======================================================
code  meaning
====  =======================================================
0     done
1     found a difference, or refused an unsafe plan
2     wrong usage
3     partly done, and that is shown
69    no broker
70    failed
77    the broker refused, or would close the channel
130   interrupted: Ctrl-C; SIGTERM and SIGHUP too, while the command has something to undo
141   the reader of the output closed it
143   ended by SIGTERM
====  =======================================================
"""

from __future__ import annotations

import io
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import click

from rabbit_chx.analysis import NoKeyFoundError
from rabbit_chx.cli.compare_command import compare
from rabbit_chx.cli.group_command import group
from rabbit_chx.cli.keys_command import keys
from rabbit_chx.cli.option_groups import show_help
from rabbit_chx.cli.outcome import WRONG_USAGE, Outcome, PartlyDoneError
from rabbit_chx.cli.rehearse_command import rehearse
from rabbit_chx.cli.ring_command import ring
from rabbit_chx.cli.route_command import route
from rabbit_chx.cli.rules_command import rules
from rabbit_chx.cli.shards_command import shards
from rabbit_chx.cli.simulate_command import simulate
from rabbit_chx.cli.slots_command import slots
from rabbit_chx.cli.stderr import say
from rabbit_chx.cli.topology_command import topology
from rabbit_chx.cli.uniformity_command import uniformity
from rabbit_chx.cli.verify_command import verify
from rabbit_chx.errors import (
    ApplyError,
    BrokerRefusedError,
    InputError,
    PlanRefusedError,
    PublishError,
    RabbitChxError,
    RingSourceError,
    TopologyError,
    UnreachableError,
)
from rabbit_chx.rendering import ConsoleOutput, JsonOutput, MarkdownOutput, Output, PrometheusOutput

__all__ = ["CODES", "app", "run"]

_BROKEN_PIPE = 141

#: The first class that fits decides.
CODES: tuple[tuple[type[BaseException], int], ...] = (
    (click.ClickException, WRONG_USAGE),
    (click.Abort, 130),
    (KeyboardInterrupt, 130),
    (NoKeyFoundError, 70),
    (PartlyDoneError, 3),
    (InputError, WRONG_USAGE),
    (PublishError, 3),
    (ApplyError, 3),
    (PlanRefusedError, 1),
    (UnreachableError, 69),
    (RingSourceError, 70),
    (BrokerRefusedError, 77),
    (BaseException, 70),
)

_OUTPUTS: dict[str, type[ConsoleOutput | JsonOutput | MarkdownOutput | PrometheusOutput]] = {
    "table": ConsoleOutput,
    "json": JsonOutput,
    "markdown": MarkdownOutput,
    "prometheus": PrometheusOutput,
}


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    invoke_without_command=True,
    epilog="Exit codes: 0 done, 1 found a difference, 2 wrong usage, 3 partly done, 69 no broker, 70 failed, "
    "77 the broker refused.",
)
@click.version_option(None, "-V", "--version", package_name="rabbit-chx", message="%(prog)s %(version)s")
@click.pass_context
def app(context: click.Context) -> None:
    """See where RabbitMQ's x-consistent-hash exchange sends each key.

    Example: rabbit-chx route --bind q1=1 --bind q2=10 user-42
    """
    if context.invoked_subcommand is None:
        show_help(context)


for command in (
    route,
    simulate,
    compare,
    keys,
    uniformity,
    rules,
    ring,
    shards,
    slots,
    topology,
    group,
    verify,
    rehearse,
):
    app.add_command(command)


def run(arguments: Sequence[str]) -> int:
    """Run a command line, show its result and return the exit code.

    Args:
        arguments: the arguments without the program's name.
    """
    if sys.stdout is None:  # Python sets None where the stream is closed
        say("stdout is closed: there is nowhere to write a result")
        return WRONG_USAGE
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal may lack a character of a key
    try:
        with _warnings_as_lines():
            result = app.main(list(arguments), prog_name="rabbit-chx", standalone_mode=False)
            code = _shown(result) if isinstance(result, Outcome) else int(result or 0)
        sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter flushes stdout once more at its end, and would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _BROKEN_PIPE
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  # a user needs a message, not a traceback
        say(_message(error), keep_lines=isinstance(error, (TopologyError, PlanRefusedError)))
        return next(code for kind, code in CODES if isinstance(error, kind))
    return code


def _shown(outcome: Outcome) -> int:
    output: Output = _OUTPUTS[outcome.output]()
    for batch in outcome.batches or ():
        output.show_each(batch)
    if outcome.report is not None:
        output.show(outcome.report)
    if outcome.finish is not None:
        sys.stdout.flush()
        outcome.finish()
    return outcome.code


@contextmanager
def _warnings_as_lines() -> Iterator[None]:
    """Show each warning of the library as one line, whatever Python does with warnings."""

    def show(message: Warning | str, *_: object, **__: object) -> None:
        say(str(message))

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        yield


def _message(error: BaseException) -> str:
    if isinstance(error, click.UsageError):
        path = error.ctx.command_path if error.ctx else "rabbit-chx"
        return f"{error.format_message()} (see {path} -h)"
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, (click.Abort, KeyboardInterrupt)):
        return "interrupted"
    if isinstance(error, (RabbitChxError, OSError)):
        return str(error)
    return f"this is a bug in rabbit-chx, please report it: {type(error).__name__}: {error}"
