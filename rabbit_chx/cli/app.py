"""The commands in one program: it shows their results and turns errors into exit codes.

====  =======================================================
code  meaning
====  =======================================================
0     done
1     found a difference
2     wrong usage
3     partly done, and that is shown
4     refused an unsafe plan, and changed nothing
69    no broker
70    failed
77    the broker refused, or would close the channel
130   interrupted: Ctrl-C; SIGTERM and SIGHUP too, while the command has something to undo
141   the reader of the output closed it
143   ended by SIGTERM
====  =======================================================
"""

from __future__ import annotations

import difflib
import io
import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem

from rabbit_chx.cli.command import PARTLY, REFUSED, WRONG_USAGE, Outcome, PartlyDoneError
from rabbit_chx.cli.stderr import say
from rabbit_chx.errors import (
    ApplyError,
    BrokerRefusedError,
    InputError,
    NotFoundError,
    PlanRefusedError,
    PublishError,
    RabbitChxError,
    RingSourceError,
    TopologyError,
    UnreachableError,
)
from rabbit_chx.rendering import ConsoleOutput, JsonOutput, MarkdownOutput, PrometheusOutput

_BROKEN_PIPE = 141

#: The first class that fits decides.
CODES: tuple[tuple[type[BaseException], int], ...] = (
    (click.ClickException, WRONG_USAGE),
    (click.Abort, 130),
    (KeyboardInterrupt, 130),
    (PartlyDoneError, PARTLY),
    (InputError, WRONG_USAGE),
    (PublishError, PARTLY),
    (ApplyError, PARTLY),
    (PlanRefusedError, REFUSED),
    (UnreachableError, 69),
    (RingSourceError, 70),
    (NotFoundError, WRONG_USAGE),  # a name that the caller gave
    (BrokerRefusedError, 77),
    (BaseException, 70),
)

_OUTPUTS: dict[str, type[ConsoleOutput | JsonOutput | MarkdownOutput | PrometheusOutput]] = {
    "table": ConsoleOutput,
    "json": JsonOutput,
    "markdown": MarkdownOutput,
    "prometheus": PrometheusOutput,
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called: its help is this table.

    Args:
        table: for each command its line of help, and a group, or where its function is, as ``module:function``.
    """

    def __init__(self, *, table: Mapping[str, tuple[str, str | click.Group]], **attributes: Any) -> None:  # noqa: ANN401  # as click has them
        super().__init__(invoke_without_command=True, **attributes)
        self._table = table
        self.callback = self._help_if_alone

    def line_of(self, name: str) -> str:
        """Return a command's line of help."""
        return self._table[name][0]

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the names of the commands."""
        return sorted(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Return a command, imported; None where there is none."""
        _, place = self._table.get(cmd_name, ("", None))
        if not isinstance(place, str):
            return place
        module, _, function = place.partition(":")
        command: click.Command = getattr(import_module(f"rabbit_chx.cli.{module}"), function)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that is called; where there is none, the error names a similar one."""
        if args and args[0] not in self._table and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], self._table, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            ctx.fail(f"No such command {args[0]!r:.60}.{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of the commands, and import none."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.line_of(name)) for name in self.list_commands(ctx)])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands and options that begin so, and import no command."""
        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        commands = [CompletionItem(name, help=self.line_of(name)) for name in names]
        return commands + click.Command.shell_complete(self, ctx, incomplete)

    @staticmethod
    @click.pass_context
    def _help_if_alone(context: click.Context) -> None:
        """Show the help of a group that was called without a command; a help that nobody asked for is no result."""
        if context.invoked_subcommand is None:
            click.echo(context.get_help(), err=True)
            context.exit(WRONG_USAGE)


_RING = LazyGroup(
    help="Read the ring of an exchange from a live broker, check and repair it.",
    epilog="Example: rabbit-chx ring show orders --ring-via 'docker exec rabbitmq'",
    table={
        "show": ("The buckets of each destination.", "ring:show"),
        "list": ("Each x-consistent-hash exchange, and what is wrong with it.", "ring:list_rings"),
        "check": ("Does each key of an exchange come to a queue?", "check:check_ring"),
        "repair": (
            "Restore the order of a ring; a dry run unless --apply is given.",
            "repair:repair",
        ),
    },
)

_SHARDS = LazyGroup(
    help="Inspect an exchange that the plugin rabbitmq_sharding shards.",
    epilog="Example: rabbit-chx shards show images --management-url http://localhost:15672",
    table={"show": ("Its queues on all nodes, with messages and consumers.", "shards:show")},
)

_SLOTS = LazyGroup(
    help="Read who has which slot of an exchange, and propose who should.",
    epilog="Example: rabbit-chx slots show events --ring-via 'docker exec rabbitmq'",
    table={
        "show": ("The queue and the load of each slot.", "slots:show"),
        "balance": ("Slots to move so that no queue has too much.", "slots:balance"),
    },
)

_TOPOLOGY = LazyGroup(
    help="Say in a file which exchanges, queues, bindings and policies there should be.",
    epilog="Example: rabbit-chx topology plan topology.toml --ring-via 'docker exec rabbitmq'",
    table={
        "export": ("What is there, as a topology file.", "export:export"),
        "plan": ("What it takes to get there, and which keys move.", "plan:plan"),
        "arrange": ("Write each ring in the order that moves least.", "arrange:arrange"),
        "apply": ("Do what the plan says.", "apply:apply"),
        "check": ("Is what is there as the file says, and sound?", "check:check_topology"),
    },
)

_GROUP = LazyGroup(
    help="See the consumers of a group: who is active, who waits, what is left to do.",
    epilog="Example: rabbit-chx group show orders --management-url http://localhost:15672",
    table={"show": ("Lag, active member and last switch of each queue.", "group:show")},
)

_STREAM = LazyGroup(
    help="See what is in streams.",
    epilog="Example: rabbit-chx stream show orders-0 --management-url http://localhost:15672",
    table={"show": ("Rows, times, nodes and writers of streams.", "stream_show:show")},
)

app = LazyGroup(
    help="""See where RabbitMQ's x-consistent-hash exchange sends each key.

    Example: rabbit-chx route --bind q1=1 --bind q2=10 user-42
    """,
    epilog="Exit codes: 0 done, 1 found a difference, 2 wrong usage, 3 partly done, "
    "4 refused an unsafe plan, 69 no broker, 70 failed, 77 the broker refused.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    table={
        "route": ("Where keys go, and why.", "route:route"),
        "simulate": (
            "Shares of a ring, a sample on it, and what a change moves.",
            "simulate:simulate",
        ),
        "compare": ("Which keys move to another release or ring.", "compare:compare"),
        "keys": ("Keys that land on a queue.", "keys:keys"),
        "ring": ("The ring of a live exchange.", _RING),
        "shards": ("The shards of an exchange of rabbitmq_sharding.", _SHARDS),
        "slots": ("The slots of a live exchange.", _SLOTS),
        "topology": ("A topology file: export, plan, apply, check.", _TOPOLOGY),
        "group": ("Who consumes the queues of an exchange.", _GROUP),
        "stream": ("What is in streams, and who writes.", _STREAM),
        "replay": ("The rows of some keys, from a time on.", "replay:replay"),
        "verify": ("Is every message where the mirror says?", "verify:verify"),
        "completion": ("Completion for bash, zsh or fish.", "completion:completion"),
    },
)
click.version_option(None, "-V", "--version", package_name="rabbit-chx", message="%(prog)s %(version)s")(app)


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
    output = _OUTPUTS[outcome.output]()
    for batch in outcome.batches or ():
        output.show_each(batch)
    if outcome.report is not None:
        output.show(outcome.report)
    if outcome.finish is not None:
        sys.stdout.flush()
        code = outcome.finish()
        return outcome.code if code is None else code
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
    if isinstance(error, ModuleNotFoundError) and error.name and not error.name.startswith("rabbit_chx"):
        return f"this needs {error.name}, which is not installed: pip install {error.name}"
    return f"this is a bug in rabbit-chx, please report it: {type(error).__name__}: {error}"
