"""How a command is declared: each option is stated once, as a field of a dataclass or a parameter of the command's function.

::

    @dataclass(frozen=True, slots=True)
    class HashingOptions:
        hash_header: str | None = option(metavar="NAME", help="The exchange's argument hash-header.")

    @command(example="rabbit-chx route --bind q1=1 user-1")
    def route(*, keys: tuple[str, ...] = argument(), hashing: HashingOptions = options(HashingOptions)) -> Outcome:
        ...

The function gets values: each option converted, each group of options as an instance of its dataclass.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from rabbit_chx.errors import InputError, RabbitChxError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from rabbit_chx.rendering import Record, Report

_PLOT_SUFFIXES = (".svg", ".png", ".pdf")
_PLOT_DPI = 200
DONE, DIFFERENCE, WRONG_USAGE, PARTLY, REFUSED = range(5)


class PartlyDoneError(RabbitChxError):
    """Part of what was asked was done and shown, and part was not."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a command, not yet shown.

    Attributes:
        report: a whole result.
        code: the exit code.
        batches: results that come one by one, in place of a report; each batch is shown at once.
        finish: called when everything is shown; raises an error where the result is not complete, and may return an exit code in
            place of `code`.
        output: the form of the result, such as ``table``.
        draw: draws the result for ``--plot``, of a command that has this option.
    """

    report: Report | None = None
    code: int = DONE
    batches: Iterable[Sequence[Record]] | None = None
    finish: Callable[[], int | None] | None = None
    output: str = "table"
    draw: Callable[[], Axes] | None = None


class Text(click.types.StringParamType):
    """Text that is valid UTF-8; a shell may pass other bytes."""

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text, or fail where it is not UTF-8."""
        text = super().convert(value, param, ctx)
        try:
            text.encode()
        except UnicodeEncodeError:
            self.fail(
                f"{text!r:.60} is not UTF-8: the command line takes only text; route bytes in Python",
                param,
                ctx,
            )
        return text


class _PlotFile(Text):
    """A file in one of the formats of a plot."""

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name, or fail where its suffix is of another format."""
        name = super().convert(value, param, ctx)
        if not name.lower().endswith(_PLOT_SUFFIXES):
            self.fail(f"{name!r:.80} does not end in {', '.join(_PLOT_SUFFIXES)}.", param, ctx)
        return name


class Number(click.FloatRange):
    """A number within bounds. NaN is within any bounds for click, as it compares with none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:  # noqa: ANN401  # as click has it
        """Return the number, or fail where it is none or out of bounds."""
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return number


TEXT = Text()
STORES = click.Choice(["mnesia", "khepri"])


def option(*names: str, default: Any = None, **attributes: Any) -> Any:  # noqa: ANN401  # a field's default
    """Return a field that is an option.

    Args:
        names: its names on the command line; without them that of the field.
        default: its value where it is not given.
        attributes: what else `click.Option` takes, such as its help.
    """
    if default is not None:
        attributes["default"] = default
    if attributes.get("metavar") == "FILE":
        attributes["shell_complete"] = _file_names

    def parameters(name: str, text: str | None) -> Iterator[click.Parameter]:
        given = attributes if text is None else {**attributes, "help": text}
        yield click.Option([*(names or [_flag(name)]), name], **given)

    return field(default=default, metadata={"parameters": parameters})


def argument(**attributes: Any) -> Any:  # noqa: ANN401  # a field's default
    """Return a field that is an argument.

    Args:
        attributes: what `click.Argument` takes.
    """

    def parameters(name: str, _: str | None) -> Iterator[click.Parameter]:
        completed = _file_names if name == "file" else None
        yield click.Argument([name], shell_complete=completed, **attributes)

    return field(metadata={"parameters": parameters})


def options(group: type, **helps: str) -> Any:  # noqa: ANN401  # a field's default
    """Return a field that has the options of a dataclass.

    Args:
        group: the dataclass.
        helps: for options of it, the help here.
    """

    def parameters(_: str, __: str | None) -> Iterator[click.Parameter]:
        for part in fields(group):
            yield from part.metadata["parameters"](part.name, helps.get(part.name))

    return field(default_factory=group, metadata={"parameters": parameters, "group": group})


def command(
    *,
    example: str,
    outputs: Sequence[str] = ("table", "json"),
    output_help: str = "The form of the result.",
    plot_help: str | None = None,
) -> Callable[[Callable[..., Outcome]], click.Command]:
    """Return a decorator that makes a function a command. Its docstring is the help.

    Args:
        example: how it is called.
        outputs: the forms of its result. A function with a parameter ``output`` gets the one that was asked for.
        output_help: the help of the option that asks for one.
        plot_help: the help of the option ``--plot``; None for a command that draws nothing.
    """

    def decorate(function: Callable[..., Outcome]) -> click.Command:
        given = inspect.signature(function).parameters
        declared: dict[str, Field[Any]] = {
            name: parameter.default for name, parameter in given.items() if name != "output"
        }

        def run(*, output: str, plot: str | None = None, **read: Any) -> Outcome:  # noqa: ANN401
            if plot is not None:
                import rabbit_chx.plot  # noqa: F401  # what it needs is missing before the work begins, and not after it
            values = {name: _value(name, part, read) for name, part in declared.items()}
            if "output" in given:
                values["output"] = output
            outcome = replace(function(**values), output=output)
            if plot is not None and outcome.draw is not None:
                _save(outcome.draw(), plot)
            return outcome

        output = click.Option(
            ["-o", "--output"],
            type=click.Choice(outputs),
            default=outputs[0],
            show_default=True,
            help=output_help,
        )
        shared = [output]
        if plot_help is not None:
            shared.append(
                click.Option(
                    ["--plot"],
                    type=_PlotFile(),
                    metavar="FILE.svg|png|pdf",
                    shell_complete=_file_names,
                    help=f"{plot_help} It needs the extra `plot`.",
                )
            )
        made = [
            parameter
            for name, part in declared.items()
            for parameter in part.metadata["parameters"](name, None)
        ]
        return click.Command(
            function.__name__,
            callback=run,
            params=[*made, *shared],
            help=inspect.getdoc(function),
            epilog=f"Example: {example}",
        )

    return decorate


def _save(ax: Axes, name: str) -> None:
    try:
        ax.figure.savefig(name, dpi=_PLOT_DPI)  # type: ignore[union-attr]  # a Figure of its own
    except OSError as error:
        raise InputError(f"the plot cannot be written to {name}: {error.strerror}") from None


def typed(group: type) -> list[str]:
    """Return which options of a dataclass are on the command line, and not only in the environment.

    Args:
        group: the dataclass.
    """
    context = click.get_current_context()
    return [
        _flag(part.name)
        for part in fields(group)
        if context.get_parameter_source(part.name) is click.core.ParameterSource.COMMANDLINE
    ]


def _file_names(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Let the shell complete a file name."""
    return [CompletionItem(incomplete, type="file")]


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _value(name: str, part: Field[Any], read: Mapping[str, Any]) -> Any:  # noqa: ANN401
    group = part.metadata.get("group")
    if group is None:
        return read[name]
    return group(**{inner.name: _value(inner.name, inner, read) for inner in fields(group)})
