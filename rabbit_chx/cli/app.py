"""The program: its commands, and the exit code of their results and errors.

====  =======================================================
code  meaning
====  =======================================================
0     done
1     difference found
2     usage error
3     partly done, and the output shows which part
4     unsafe plan refused, nothing changed
69    no broker
70    failed
77    refused by the broker, or the broker would close the channel
130   interrupted by Ctrl-C, or by SIGTERM or SIGHUP while the command has something to undo
141   the reader closed the output
143   ended by SIGTERM
====  =======================================================
"""

from __future__ import annotations

import io
import os
import pathlib
import sys
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import copy_context
from dataclasses import replace
from importlib import import_module
from typing import Any

import click
from click.shell_completion import BashComplete, CompletionItem, FishComplete, ZshComplete

from rabbit_chx import errors
from rabbit_chx.checks import is_whole
from rabbit_chx.cli.command import (
    CommandResult,
    ExitCode,
    as_printed,
    debug_option,
    is_debugged,
    password_note,
    remember_options,
    say,
)
from rabbit_chx.rendering.output import FORMATS
from rabbit_chx.version import __version__

# -- stdout and stderr whose reader may end, as with ``| head``
# A command that reads ends then. One that changes a broker goes on, and what it still writes is discarded: whether a change is made does not
# depend on who reads the output.

#: The exit code that a shell gives a program that ended because nobody reads its output.
NO_READER = 141


class _Watched(io.FileIO):
    """A standard stream that notices the end of its reader.

    Attributes:
        is_lost: the reader has ended.
        is_needed: False: the rest is discarded without an error.
    """

    def __init__(self, handle: int, *, is_needed: bool) -> None:
        super().__init__(handle, "wb", closefd=False)
        self.is_lost = False
        self.is_needed = is_needed

    def write(self, data: Any, /) -> int:
        """Write to the stream; after the end of its reader, to nowhere."""
        try:
            return super().write(data)
        except BrokenPipeError:
            self.is_lost = True
            with pathlib.Path(os.devnull).open("wb") as nowhere:
                os.dup2(nowhere.fileno(), self.fileno())
            if self.is_needed:
                raise
            return len(data)


@contextmanager
def watched_streams() -> Iterator[None]:
    """Watch the stdout and stderr of this process during a block; those that a test has replaced stay."""
    before = sys.stdout, sys.stderr
    if sys.stdout is sys.__stdout__ and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout = _watch(sys.stdout, is_needed=True)
    if sys.stderr is sys.__stderr__ and isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr = _watch(sys.stderr, is_needed=False)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(BrokenPipeError, AttributeError):
                stream.flush()
        sys.stdout, sys.stderr = before


def _watch(stream: io.TextIOWrapper, *, is_needed: bool) -> io.TextIOWrapper:
    """Return a stream that writes each line at once where the given one does, which is unbuffered with PYTHONUNBUFFERED."""
    raw = _Watched(stream.fileno(), is_needed=is_needed)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        stream.encoding,
        stream.errors,
        line_buffering=stream.line_buffering or stream.write_through,
    )


def _of_stdout() -> _Watched | None:
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return raw if isinstance(raw, _Watched) else None


def go_on_without_reader() -> None:
    """Let this command, which changes a broker, do its work whether or not anybody reads what it says."""
    if (raw := _of_stdout()) is not None:
        raw.is_needed = False


def is_reader_lost() -> bool:
    """Return whether the reader of stdout has ended."""
    raw = _of_stdout()
    return raw is not None and raw.is_lost


_MOST_ERRNO = 1 << 16

#: The first matching class applies.
CODES: tuple[tuple[type[BaseException], int], ...] = (
    (click.ClickException, ExitCode.WRONG_USAGE),
    (click.Abort, 130),
    (KeyboardInterrupt, 130),
    (errors.NotDeterminedError, ExitCode.PARTLY),
    (errors.InputError, ExitCode.WRONG_USAGE),
    (errors.PublishError, ExitCode.PARTLY),
    (errors.ApplyError, ExitCode.PARTLY),
    (errors.PlanRefusedError, ExitCode.REFUSED),
    (errors.UnreachableError, 69),
    (errors.RingSourceError, 70),
    (errors.NotFoundError, ExitCode.WRONG_USAGE),  # a name in the arguments
    (errors.MismatchError, ExitCode.WRONG_USAGE),  # a name in the arguments that has another type
    (errors.BrokerRefusedError, 77),
    (BaseException, 70),
)

#: Each command by purpose: its help line, and its function as ``module:function`` of this package.
COMMANDS: dict[str, dict[str, tuple[str, str]]] = {
    "Look at exchanges": {
        "show": ("Show hash exchanges: members, shares, slots, consumers.", "show:show"),
        "check": (
            "Find problems: lost keys, a changed order, differences from a file.",
            "check:check_broker",
        ),
        "ui": ("Look at exchanges in a browser.", "command:ui"),
    },
    "Predict where keys go, and verify it": {
        "route": ("Show the destination of each key, or the keys that reach a queue.", "route:route"),
        "compare": ("Show the shares of a ring, and the keys that a change moves.", "compare:compare"),
        "verify": ("Compare real messages with the prediction.", "verify:verify"),
    },
    "Change exchanges by a topology file": {
        "export": ("Write the live topology as a file.", "export:export"),
        "plan": ("Show the changes that a file requires, and the keys that move.", "plan:plan"),
        "arrange": ("Rewrite each ring in the order that moves the fewest keys.", "arrange:arrange"),
        "apply": ("Apply the plan.", "apply:apply"),
    },
    "Repair and record rings": {
        "repair": ("Restore the order of a ring: shows the steps, asks, does them.", "repair:repair"),
        "record": ("Store the order of a ring on the broker.", "record:record"),
    },
    "The shell": {
        "completion": ("Print the completion script of bash, zsh or fish.", "app:completion"),
    },
}
#: The help line of each command, and its function.
_TABLE = {name: command for commands in COMMANDS.values() for name, command in commands.items()}


class Program(click.Group):
    """The whole program. Its help lists the commands by purpose; a command is imported on use."""

    def __init__(self, **attributes: Any) -> None:  # as click has them
        super().__init__(invoke_without_command=True, **attributes)
        self.callback = self._usage_error

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the names of the commands."""
        return sorted(_TABLE)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import and return a command; None for an unknown name."""
        if cmd_name not in _TABLE:
            return None
        module, _, function = _TABLE[cmd_name][1].partition(":")
        package = "rabbit_chx.ui" if cmd_name == "ui" else "rabbit_chx.cli"
        command: click.Command = getattr(import_module(f"{package}.{module}"), function)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command of the arguments; the error for an unknown command suggests a similar one."""
        if args and args[0] not in _TABLE and not args[0].startswith("-"):
            from rabbit_chx.checks import similar
            from rabbit_chx.text import listed

            meant = similar(args[0], _TABLE)
            hint = (
                f" Did you mean {meant}?"
                if meant
                else f" The commands are {listed([*_TABLE], most=len(_TABLE))}."
            )
            ctx.fail(f"No such command {args[0]!r:.60}.{hint}")
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the commands by purpose, without importing them; the usage has the options."""
        width = max(map(len, _TABLE))
        for purpose, commands in COMMANDS.items():
            rows = [(name.ljust(width), line) for name, (line, _) in commands.items()]
            with formatter.section(purpose):
                formatter.write_dl(rows)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the matching commands and options without importing a command."""
        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        commands = [CompletionItem(name, help=_TABLE[name][0]) for name in names]
        return commands + click.Command.shell_complete(self, ctx, incomplete)

    @staticmethod
    @click.pass_context
    def _usage_error(context: click.Context) -> None:
        """Show the help without a command. Usage goes to stderr with exit code 2."""
        if context.invoked_subcommand is None:
            click.echo(context.get_help(), err=True)
            context.exit(ExitCode.WRONG_USAGE)


app = Program(
    help="Predict and control where RabbitMQ's x-consistent-hash exchange routes keys.",
    epilog="Without a broker, try: rabbit-chx compare 'q{1..10}=1' --remove q1\n\n"
    "Broker: AMQP_URL, RABBIT_CHX_MANAGEMENT_URL and RABBIT_CHX_RING_VIA, or --url, --management-url and --ring-via. "
    "Exit codes: 0 done, 1 difference found or messages lost, 2 usage error, 3 partly done or not determined, "
    "4 unsafe plan refused, 69 no broker, 70 failed, 77 refused by the broker.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    subcommand_metavar="COMMAND [ARGS]...",
    options_metavar="[-V | --version] [-h | --help] [--debug]",
    params=[debug_option()],
)
click.version_option(__version__, "-V", "--version", message="%(prog)s %(version)s")(app)


#: Set by the shell that asks for completions.
_COMPLETE = "_RABBIT_CHX_COMPLETE"
_SHELLS = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}


@click.command(epilog="Example: rabbit-chx completion bash > rabbit-chx.bash")
@click.argument("shell", type=click.Choice(list(_SHELLS)))
def completion(shell: str) -> None:
    """Write the script that completes commands, options, choices and file names in SHELL.

    In ~/.bashrc, for bash 4.4 or newer: `eval "$(rabbit-chx completion bash)"`

    In ~/.zshrc, after compinit: `eval "$(rabbit-chx completion zsh)"`

    Once for fish: `rabbit-chx completion fish > ~/.config/fish/completions/rabbit-chx.fish`
    """
    click.echo(_SHELLS[shell](app, {}, "rabbit-chx", _COMPLETE).source(), nl=False)


def run(arguments: Sequence[str]) -> int:
    """Run a command line, show its result and return the exit code. What it remembers for its output ends with it."""
    with watched_streams():
        code = copy_context().run(_run, arguments)
        if code == ExitCode.DONE and is_reader_lost():
            return NO_READER
        return code


def _run(arguments: Sequence[str]) -> int:
    if sys.stdout is None:  # Python sets None if the stream is closed
        say("stdout is closed: the result cannot be written")
        return ExitCode.WRONG_USAGE
    remember_options(None)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal may lack a character of a key
    try:
        with _warnings_as_lines():
            result = app.main(list(arguments), prog_name="rabbit-chx", standalone_mode=False)
            code = _shown(result) if isinstance(result, CommandResult) else int(result or 0)
        sys.stdout.flush()
    except BaseException as error:  # noqa: BLE001  # a user needs a message, not a traceback
        if is_reader_lost() and isinstance(
            error, (BrokenPipeError, SystemExit)
        ):  # click makes the second one of the first
            return NO_READER
        if isinstance(error, SystemExit) and isinstance(error.code, int) and _COMPLETE in os.environ:
            return error.code  # click ends the process with it
        if not isinstance(error, click.ClickException):
            say_traceback(error)
        say(_message(error), keep_lines=isinstance(error, (errors.TopologyError, errors.PlanRefusedError)))
        code = _code_of(error)
    if note := password_note():
        say(note)
    return code


def _code_of(error: BaseException) -> int:
    """Return the exit code of an error. An answer that is not one of the management API refuses nothing: it has no code, or is a page 404."""
    if type(error) is errors.BrokerRefusedError and error.reply_code in (None, 404):
        return 70
    return next(code for kind, code in CODES if isinstance(error, kind))


def _shown(outcome: CommandResult) -> int:
    output = FORMATS[outcome.output]()
    for batch in outcome.batches or ():
        output.show_each(batch)
    if (report := outcome.report) is not None:
        from rabbit_chx.analysis.findings import moment_text  # the command has loaded it

        about = ", ".join(filter(None, (report.about, moment_text(time.time()))))
        output.show(as_printed(replace(report, about=about)))
    if outcome.finish is not None:
        sys.stdout.flush()
        code = outcome.finish()
        return outcome.code if code is None else code
    return outcome.code


@contextmanager
def _warnings_as_lines() -> Iterator[None]:
    """Print each warning of the library as one line, whatever warning filters Python has."""

    def show(message: Warning | str, *_: object, **__: object) -> None:
        say(str(message))

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        yield


def _hint(error: BaseException) -> str:
    if not isinstance(error, errors.BrokerRefusedError | errors.BrokerTimeoutError):
        return ""
    from rabbit_chx.cli.broker_options import alarms_hint, found_hint  # the command has loaded it

    with suppress(Exception):  # it asks the broker, and a fault of this does not replace the error
        return found_hint(error) if isinstance(error, errors.NotFoundError) else alarms_hint(error)
    return ""


def _message(error: BaseException) -> str:
    if isinstance(error, click.UsageError):
        path = error.ctx.command_path if error.ctx else "rabbit-chx"
        if isinstance(error, click.MissingParameter) and error.ctx:
            example = str(getattr(error.ctx.command, "example", "")).partition(" --")[0]
            return f"{error.format_message().rstrip('.')}: write it, as in {example}"
        return f"{error.format_message()} (see {path} -h)"
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, errors.RabbitChxError):
        return f"{error}{_hint(error)}"
    return "interrupted" if isinstance(error, (click.Abort, KeyboardInterrupt)) else unexpected(error)


def unexpected(error: BaseException) -> str:
    """Return a sentence about an error that is none of ours, with its place and without values."""
    if isinstance(error, ModuleNotFoundError) and error.name and not error.name.startswith("rabbit_chx"):
        return f"this needs {error.name}, which is not installed: pip install {error.name}"
    # Without the text of the error: others than ours may contain a password or a message. Its number may be anything.
    if isinstance(error, OSError) and is_whole(error.errno, 0, _MOST_ERRNO):
        return f"the system says: {os.strerror(error.errno)} (in {_place(error)})"
    return (
        f"this is a bug in rabbit-chx, please report it: {type(error).__name__} in {_place(error)}; "
        "with --debug the traceback is shown, without values"
    )


def _place(error: BaseException) -> str:
    """Return the module and the line of our code that an error came through last."""
    places = [
        f"{module}:{line}"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if (module := str(frame.f_globals.get("__name__"))).startswith("rabbit_chx")
    ]
    return places[-1] if places else "rabbit_chx"


def say_traceback(error: BaseException) -> None:
    """Write the traceback of an error to stderr without values, if ``--debug`` is given."""
    if is_debugged():
        say(_masked_traceback(error), keep_lines=True)


def _masked_traceback(error: BaseException) -> str:
    """Return the traceback of an error and its causes, each once. In place of their texts it has ``***``."""
    parts: list[str] = []
    seen: set[int] = set()
    last: BaseException | None = error
    while last is not None and id(last) not in seen:
        seen.add(id(last))
        parts.append(f"{''.join(traceback.format_tb(last.__traceback__))}{type(last).__name__}: ***")
        last = last.__cause__ if last.__suppress_context__ else last.__context__
    return "\nthen:\n".join(reversed(parts))
