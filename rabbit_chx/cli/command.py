"""Declaration of commands: each option is declared once, as a field of a dataclass or a parameter of the command's function.

::

    @dataclass(frozen=True, slots=True)
    class HashingOptions:
        section: ClassVar = "Message"
        hash_header: str | None = option(metavar="NAME", help="The exchange's argument hash-header.")

    @command(example="rabbit-chx route q1=1 user-1")
    def route(*, keys: tuple[str, ...] = argument(), hashing: HashingOptions = options(HashingOptions)) -> CommandResult:
        ...

The function receives each option converted, and each group of options as an instance of its dataclass.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import Field, dataclass, field, fields, replace
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click
from click.shell_completion import CompletionItem

from rabbit_chx.errors import InputError, masked_urls
from rabbit_chx.options import ValueKind
from rabbit_chx.rendering.document import Document, printable
from rabbit_chx.rendering.output import FORMATS, environment, wrap
from rabbit_chx.rendering.progress import clear_bar
from rabbit_chx.text import EXCHANGE_PREFIX, with_options

if TYPE_CHECKING:
    from rabbit_chx.rendering.document import Batch

# -- What a command prints about commands: each with the broker options of the command that prints it, so that it acts on the same broker, and
# with its values of variables if it reads a topology file.

#: Options of a command line and their values.
Options: TypeAlias = Sequence[tuple[str, str]]

_USER_PASSWORD = re.compile(r"(?<=://)([^:@/?#]*):[^@/?#]*@")
_KEY_PASSWORD = re.compile(r"(?<=[?&])password=[^&]*&?")
_NO_PASSWORD = re.compile(r"[^:]*://(?:[^:@/?#]*@)?[^@]*")

#: The commands that read a topology file. One of `check` in a text does so only with ``--offline``.
_OF_FILES = re.compile(r"rabbit-chx (?:plan|arrange|apply)\b|.* --offline(?= |$)", re.DOTALL)

_given_by_user: ContextVar[Options] = ContextVar("broker options of this command line", default=())
_variables: ContextVar[Options] = ContextVar("values of variables of this command line", default=())
_without: ContextVar[tuple[str, ...]] = ContextVar("printed options without their password", default=())


def on_line(context: click.Context) -> Iterator[tuple[click.Parameter, Any]]:
    """Yield the options and arguments that are on a command line, and not only in the environment, each with its value."""
    for parameter in context.command.params:
        name = str(parameter.name)
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            yield parameter, context.params.get(name)


def remember_options(context: click.Context | None) -> None:
    """Record the broker options and the values of variables of a command line; None: there are none yet."""
    _without.set(())
    given: dict[str, list[tuple[str, str]]] = {"Broker": [], "Variable": []}
    for option, value in () if context is None else on_line(context):
        for one in value if isinstance(value, tuple) else [value]:
            text = f"{one:g}" if isinstance(one, float) else str(one)
            given.get(getattr(option, "section", ""), []).append((max(option.opts, key=len), text))
    _given_by_user.set(given["Broker"])
    _variables.set(given["Variable"])


def without_passwords(url: str) -> str:
    """Return a URL without the passwords of the user and of the TLS key; ``URL`` if it is malformed."""
    shown = _KEY_PASSWORD.sub("", _USER_PASSWORD.sub(r"\1@", url)).rstrip("?&")
    return shown if _NO_PASSWORD.fullmatch(shown) else "URL"


def names_file(argument: str) -> bool:
    """Return True if an argument of `check` is a topology file, and not the name of an exchange."""
    if argument.startswith(EXCHANGE_PREFIX):
        return False
    return argument == "-" or argument.endswith((".toml", ".json")) or Path(argument).is_file()


def exchange_named(text: str) -> str:
    """Return the name of an exchange of the broker, which ``exchange:NAME`` or ``NAME`` is."""
    return text.removeprefix(EXCHANGE_PREFIX)


def with_own_options(text: str) -> str:
    """Return a text with the options of this command line in its commands."""
    return with_options(text, _own_options)


def as_printed(document: Document) -> Document:
    """Return a document with the options of this command line in the commands of its texts."""
    return document.with_texts(with_own_options)


def _own_options(command: str) -> Iterator[tuple[str, str]]:
    """Yield the options of this command line that belong to a command as well, without passwords."""
    of_file = _variables.get() if _OF_FILES.match(command) else ()
    for name, value in (*_given_by_user.get(), *of_file):
        shown = without_passwords(value) if "url" in name else value
        if shown != value and name not in _without.get():
            _without.set((*_without.get(), name))
        yield name, shown


def password_note() -> str:
    """Return a sentence about the passwords that the printed commands do not have; empty if there are none."""
    variables = {"--url": "$AMQP_URL", "--management-url": "$RABBIT_CHX_MANAGEMENT_URL"}
    sources = " and ".join(f"{variables[name]} for {name}" for name in _without.get())
    return (
        f"a printed command does not contain a password: put the URL with it into {sources}"
        if sources
        else ""
    )


#: The blanks by which the further lines of a message are indented on a terminal.
_MARGIN = 2


class ExitCode(IntEnum):
    """The exit codes of results; `app` has those of errors."""

    DONE = 0
    DIFFERENCE = 1
    WRONG_USAGE = 2
    PARTLY = 3
    REFUSED = 4


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The result of a command, not yet printed.

    Attributes:
        batches: incremental results instead of a report; each batch is printed at once.
        finish: called after the output; raises an error if the result is not complete, and may return an exit code that replaces `code`.
        output: the form of the result, such as ``table``.
    """

    report: Document | None = None
    code: int = ExitCode.DONE
    batches: Iterable[Batch] | None = None
    finish: Callable[[], int | None] | None = None
    output: str = "table"


class _KindType(click.types.StringParamType):
    """The click type of a kind of values."""

    def __init__(self, kind: ValueKind) -> None:
        self.name = kind.label
        self.kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value of a text, or fail; a default is a value already."""
        try:
            return self.kind.value_of(value) if isinstance(value, str) else value
        except InputError as error:
            self.fail(str(error), param, ctx)
        except ValueError:
            self.fail(f"{value!r:.80} is not {self.kind.remedy}.", param, ctx)


def _with_click_type(attributes: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes of a parameter, in which a kind of values is a type of click."""
    kind = attributes.pop("type", None)
    made = {"type": click.Choice(kind.words) if kind.words else _KindType(kind)} if kind else {}
    return attributes | made


def _utf8(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        remedy = "the command line takes only text; route bytes in Python"
        raise InputError(f"{text!r:.60} is not UTF-8: {remedy}") from None
    return text


#: Text that is valid UTF-8; a shell may pass other bytes.
TEXT = ValueKind("text", parse=_utf8)
#: An exchange of the broker.
EXCHANGE = ValueKind("text", parse=exchange_named)
OWN = "Command"
OUTPUT = "Output"
#: The groups of options in the help, in order. Each dataclass of options names its group as `section`.
SECTIONS = (
    OWN,
    "Consumers",
    "Ring",
    "Other ring",
    "Message",
    "Sample",
    "Variable",
    "Broker",
    OUTPUT,
)


class CommandOption(click.Option):
    """An option with the title of its group in the help.

    Args:
        names: its names.
        section: the title.
        is_rare: True: only ``--help-all`` shows it.
        attributes: those of click's option.
    """

    def __init__(
        self, names: Sequence[str], *, section: str, is_rare: bool = False, **attributes: Any
    ) -> None:  # as click has them
        super().__init__(names, **attributes)
        self.section = section
        self.is_rare = is_rare
        if isinstance(self.type, _KindType) and self.type.kind.bounds:
            self.help = f"{self.help}  [{self.type.kind.bounds}]"


_is_debugged: ContextVar[bool] = ContextVar("whether --debug is given", default=False)


def debug_option() -> click.Option:
    """Return the option ``--debug`` of the program, which each command takes, too."""

    def remember(_: click.Context, __: click.Parameter, is_given: bool) -> None:  # noqa: FBT001  # click calls it
        if is_given:
            _is_debugged.set(True)

    return click.Option(
        ["--debug"], is_flag=True, is_eager=True, expose_value=False, callback=remember, hidden=True
    )


def is_debugged() -> bool:
    """Return whether the traceback of an error is to be shown."""
    return _is_debugged.get() or bool(os.environ.get("RABBIT_CHX_DEBUG"))


#: The key of a context whose help is to be whole.
_HELP_ALL = "rabbit_chx.help_all"
#: The first clause of a help text.
_CLAUSE = re.compile(r"(.*?)(?:[.;:](?=\s|$)|\s\(|, such as\s|$)", re.DOTALL)
#: Where a command may be broken: between an option and its value it may not.
_BREAK = re.compile(r" (?=-)")


class Command(click.Command):
    """A command whose help has its options in groups.

    ``--help`` shows the purpose, an example, and a line for each common option; ``--help-all`` shows all.

    Args:
        example: a command line, which the help shows.
        rules: which of its options go together.
        attributes: those of click's command.
    """

    def __init__(self, *arguments: Any, example: str, rules: Rules, **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.example = example
        self.rules = rules
        self.params += (
            debug_option(),
            CommandOption(
                ["--help-all"], section=OUTPUT, is_flag=True, is_eager=True, expose_value=False, callback=_show_all,
                help="Show the whole help, with all options.",
            ),
        )  # fmt: skip

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the purpose and the example, which may be copied as it is printed."""
        text = self.help or ""
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(text if _HELP_ALL in ctx.meta else text.partition("\n\n")[0])
        write_example(formatter, self.example)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the groups of options in the order of `SECTIONS`."""
        records = self.options_by_section(ctx, common=_HELP_ALL not in ctx.meta)
        for section in filter(records.get, SECTIONS):
            with formatter.section(f"{section} options"):
                formatter.write_dl(
                    [record if _HELP_ALL in ctx.meta else _brief(record) for _, record in records[section]]
                )

    def options_by_section(
        self, ctx: click.Context, *, common: bool = False
    ) -> dict[str, list[tuple[str, tuple[str, str]]]]:
        """Return the name and the help record of each option, or of the common ones, by the title of its group."""
        records: dict[str, list[tuple[str, tuple[str, str]]]] = {}
        for parameter in self.get_params(ctx):
            is_rare = getattr(parameter, "is_rare", parameter is self.get_help_option(ctx))
            if common and is_rare:
                continue
            if isinstance(parameter, click.Option) and (record := parameter.get_help_record(ctx)):
                name = max(parameter.opts, key=len)
                records.setdefault(getattr(parameter, "section", OUTPUT), []).append((name, record))
        return records


def _show_all(ctx: click.Context, _: click.Parameter, is_given: bool) -> None:  # noqa: FBT001  # click calls it
    if is_given and not ctx.resilient_parsing:
        ctx.meta[_HELP_ALL] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


def _brief(record: tuple[str, str]) -> tuple[str, str]:
    name, text = record
    clause = _CLAUSE.match(text)
    assert clause is not None  # it matches any text
    return name, f"{clause[1]}."


def write_example(formatter: click.HelpFormatter, command: str) -> None:
    """Write a command into a help, in lines that may be copied together."""
    with formatter.section("Example"):
        for line in _broken(command, formatter.width - 4):
            formatter.write(f"  {line}\n")


def _broken(command: str, width: int) -> list[str]:
    """Return a command in lines that a shell reads as one."""
    first, *others = _BREAK.split(command)
    lines = [first]
    for part in others:
        if len(lines[-1]) + 1 + len(part) + 2 <= width:
            lines[-1] += f" {part}"
        else:
            lines[-1] += " \\"
            lines.append(f"  {part}")
    return lines


def option(
    *names: str, default: Any = None, section: str | None = None, is_rare: bool = False, **attributes: Any
) -> Any:  # a field's default
    """Return a field that is an option; a rare one is in ``--help-all`` only. Its `type` is a `ValueKind`.

    The annotation of the field decides the rest: a bool is a flag, and a tuple an option that may be repeated.
    """
    attributes = _with_click_type(attributes)
    if default is not None:
        attributes["default"] = default
    if "FILE" in attributes.get("metavar", ""):
        attributes["shell_complete"] = _file_names

    def parameters(name: str, annotation: str, text: str | None, of_group: str) -> Iterator[click.Parameter]:
        given = attributes if text is None else {**attributes, "help": text}
        given = given | {
            "is_flag": True if annotation == "bool" else given.get("is_flag"),
            "multiple": annotation.startswith("tuple["),
        }
        yield CommandOption(
            [*(names or [_flag(name)]), name], section=section or of_group, is_rare=is_rare, **given
        )

    return field(default=default, metadata={"parameters": parameters})


def argument(**attributes: Any) -> Any:  # a field's default
    """Return a field that is an argument."""

    def parameters(name: str, *_: object) -> Iterator[click.Parameter]:
        completed = _file_names if name in ("file", "ring", "subjects") else None
        yield click.Argument([name], shell_complete=completed, **_with_click_type(attributes))

    return field(metadata={"parameters": parameters})


def options(group: type, *, without: Sequence[str] = (), **helps: str) -> Any:  # a field's default
    """Return a field that has the options of a dataclass."""
    parts = [part for part in fields(group) if part.name not in without]

    def parameters(_: str, __: str, ___: str | None, of_group: str) -> Iterator[click.Parameter]:
        for part in parts:
            section = getattr(group, "section", of_group)
            yield from part.metadata["parameters"](part.name, str(part.type), helps.get(part.name), section)

    metadata = {"parameters": parameters, "group": group, "parts": parts}
    return field(default_factory=group, metadata=metadata)


def command(
    *,
    example: str,
    has_metrics: bool = False,
    has_pictures: bool = False,
    has_output: bool = True,
    output_help: str | None = None,
    rules: Rules | None = None,
) -> Callable[[Callable[..., CommandResult]], click.Command]:
    """Return a decorator that makes a function a command. Its docstring is the help."""
    has = {"report": True, "pictures": has_pictures, "metrics": has_metrics}
    outputs = [name for name, form in FORMATS.items() if has[form.takes]]

    def decorate(function: Callable[..., CommandResult]) -> click.Command:
        given = inspect.signature(function).parameters
        declared: dict[str, Field[Any]] = {
            name: parameter.default for name, parameter in given.items() if name != "output"
        }

        def run(*, output: str = "table", **read: Any) -> CommandResult:
            context = click.get_current_context()
            remember_options(context)
            if rules is not None:
                rules.check(context)
            if FORMATS[output].takes == "pictures":
                environment()  # a missing package is reported before the work begins
            values = {name: _value(name, part, read) for name, part in declared.items()}
            if "output" in given:
                values["output"] = output
            return replace(function(**values), output=output)

        output = CommandOption(
            ["-o", "--output"],
            section=OUTPUT,
            type=click.Choice(outputs),
            default="table",
            show_default=True,
            help=output_help or output_help_of(outputs),
        )
        made = [
            parameter
            for name, part in declared.items()
            for parameter in part.metadata["parameters"](name, given[name].annotation, None, OWN)
        ]
        return Command(
            function.__name__,
            callback=run,
            params=[*made, output] if has_output else made,
            help=inspect.getdoc(function),
            example=example,
            rules=rules or Rules(),
        )

    return decorate


@dataclass(frozen=True, slots=True)
class Rules:
    """Which options and arguments of a command go together. An option may have its value behind it, an argument has its name in the usage.

    Attributes:
        needs: an option that each of some has no effect without.
        excludes: pairs of which one may be given.
        of_one: the options about one EXCHANGE.
    """

    needs: Mapping[str, str] = field(default_factory=dict)
    excludes: Sequence[tuple[str, str]] = ()
    of_one: Sequence[str] = ()

    def check(self, context: click.Context) -> None:
        """Raise an error that names both of two that do not go together."""
        given = _given(context)
        for name, needed in self.needs.items():
            if name in given and needed not in given:
                raise lacking(name, needed)
        for pair in self.excludes:
            if given.keys() >= {*pair}:
                raise excluding(*pair)
        for name in self.of_one:
            if name in given:
                check_one(name, given.get("EXCHANGE", ()))


def lacking(name: str, needed: str) -> InputError:
    """Return the error for an option without another one, or an argument, that it needs."""
    return InputError(f"{name} has no effect without {needed}: pass {needed} too, or leave {name} out")


def excluding(name: str, other: str) -> InputError:
    """Return the error for two options, or an option and an argument, that exclude each other."""
    return InputError(f"{name} and {other} exclude each other: leave one of them out")


def check_one(name: str, exchanges: Sequence[str]) -> None:
    """Raise an error for an option about one exchange, where there is another number of them."""
    if len(exchanges) != 1:
        raise InputError(f"{name} is about one exchange: pass one EXCHANGE, or leave {name} out")


def _given(context: click.Context) -> dict[str, Any]:
    """Return the value of each option and argument of a command line."""
    given: dict[str, Any] = {}
    for parameter, value in on_line(context):
        if value:
            name = (
                parameter.human_readable_name.strip("[].")
                if isinstance(parameter, click.Argument)
                else max(parameter.opts, key=len)
            )
            given |= {name: value, f"{name} {value}": value}
    return given


def output_help_of(names: Iterable[str]) -> str:
    """Return the help of ``--output`` for these formats."""
    uses = [f"{name} {FORMATS[name].use}" for name in names if FORMATS[name].use]
    return f"The form of the result; {', '.join(uses)}."


def typed(group: type) -> list[str]:
    """Return the options of a dataclass that are on the command line, and not only in the environment."""
    names = {part.name for part in fields(group)}
    given = on_line(click.get_current_context())
    return [max(option.opts, key=len) for option, _ in given if option.name in names]


def _file_names(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(incomplete, type="file")]


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _value(name: str, part: Field[Any], read: Mapping[str, Any]) -> Any:
    group = part.metadata.get("group")
    if group is None:
        return read[name]
    return group(**{inner.name: _value(inner.name, inner, read) for inner in part.metadata["parts"]})


def _fold_line(line: str, width: int) -> str:
    margin = len(line) - len(line.lstrip()) + _MARGIN
    return wrap(line, width - margin, margin)


def has_terminal() -> bool:
    """Return True if the user can be asked."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


def say(message: str, *, keep_lines: bool = False) -> None:
    """Write a message to stderr without passwords of URLs and with control characters escaped, on one line unless it is a list; on a terminal
    in lines of its width.
    """
    if sys.stderr is None:
        return
    message = f"rabbit-chx: {masked_urls(with_own_options(message))}"
    lines = [
        printable(line) for line in (message.splitlines() if keep_lines else [" ".join(message.split())])
    ]
    if sys.stderr.isatty():
        with suppress(OSError, ValueError):
            width = os.get_terminal_size(sys.stderr.fileno()).columns or 80
            lines = [_fold_line(line, width) for line in lines]
    clear_bar()
    sys.stderr.write("\n".join(lines) + "\n")
