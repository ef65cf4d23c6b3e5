"""Declarations of options: name, type with unit and range, default and meaning, once for Python, Spark and the command line.

An option is a field of a dataclass. From it follow an argument of a constructor (`takes`), its entry in a docstring (`documented`), its
line in a page, and an option of Spark. Options that belong together are a value, such as the limits of a publisher, which is one argument.
Python gives an option as a value, which `ValueKind.fits` judges. Spark and the command line give a text, which `ValueKind.parse` reads.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from functools import update_wrapper
from inspect import cleandoc
from typing import Any, Concatenate, ParamSpec, TypeVar

from rabbit_chx.checks import is_finite, is_whole, shown, similar
from rabbit_chx.errors import InputError

_P = ParamSpec("_P")
_T = TypeVar("_T")
_Options = TypeVar("_Options")

_DOC_WIDTH = 110
_SECTION = re.compile(r"\n\n(?=[A-Z]\w+::?\n)")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|min|h)?")
_IN_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600}
_SIZE = re.compile(r"(\d+)\s*(b|k|kib|m|mib|g|gib)?", re.IGNORECASE)
_IN_BYTES = {"b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_FLAGS = {"true": True, "false": False}


# -- a declaration


@dataclass(frozen=True, slots=True)
class ValueKind:
    """The type of an option.

    Attributes:
        label: type, unit and range, for documents.
        fits: tells whether a value can be.
        remedy: the values that can be, for errors.
        parse: returns the value of a text. Raises an InputError with its own message, or a ValueError.
        write: the inverse of `parse`, for a default in documents.
        text_label: the type of a text, for documents, if it is not `label`.
        texts: the texts that can be, for errors, if they are not `remedy`.
        words: the values, if they can be listed.
        bounds: the least and the largest value, for the help of commands.
    """

    label: str
    fits: Callable[[Any], bool] = lambda _: True
    remedy: str = ""
    parse: Callable[[str], Any] = str
    write: Callable[[Any], str] = str
    text_label: str = ""
    texts: str = ""
    words: tuple[str, ...] = ()
    bounds: str = ""

    def check(self, name: str, value: object) -> None:
        """Raise an InputError for a value that cannot be; the name is for the error."""
        if not self.fits(value):
            raise InputError(f"{name} is {shown(value)}: pass {self.remedy}")

    def value_of(self, text: str) -> Any:  # each kind has its own type
        """Return the value of a text; an InputError with its own message, or a ValueError, if there is none."""
        value = self.parse(text)
        if not self.fits(value):
            raise ValueError(text)
        return value


@dataclass(frozen=True, slots=True)
class Option:
    """The declaration of one option.

    Attributes:
        name: that of its field.
        meaning: one or two clauses for docstrings and pages; links are those of a page in docs.
        default: the value if the option is not given; MISSING for a required one.
        otherwise: the meaning of a default of None, in words.
        spark: its name in Spark, if it does not follow from `name`; users may write it in any case.
        heading: the heading of this and the following options of Spark in the documents; empty for the one before.
        only: the kind of write (``amqp``, ``streams``, ``exactly-once``) or read (``batch``, ``streaming``) of Spark that has the option;
            empty for all.
    """

    name: str
    kind: ValueKind
    meaning: str
    default: Any = None
    otherwise: str = ""
    spark: str = ""
    heading: str = ""
    only: str = ""

    @property
    def type_text(self) -> str:
        """Type, unit, range and default, for documents."""
        if self.default is MISSING:
            return f"{self.kind.label}; required"
        default = self.default
        if isinstance(default, str):
            text = f'"{default}"'
        else:
            text = f"{type(default).__name__}()" if is_dataclass(default) else repr(default)
        return f"{self.kind.label}; default {self.otherwise or f'`{text}`'}"

    @property
    def spark_name(self) -> str:
        """The name in camelCase, without the unit: a text has its own."""
        first, *others = self.name.removesuffix("_s").split("_")
        return self.spark or first + "".join(map(str.capitalize, others))

    @property
    def default_text(self) -> str:
        """The default as text; empty if the option has none."""
        return "" if self.default in (None, "", (), {}) else self.kind.write(self.default)


def option(kind: ValueKind, meaning: str, default: object = None, **more: str) -> Any:  # a field of any type
    """Return the dataclass field of an option with a default; `more` are attributes of `Option`."""
    return field_of(Option("", kind, meaning, default, **more))


def field_of(declaration: Option, **other: Any) -> Any:  # a field of any type
    """Return the dataclass field of an option that is declared elsewhere; `other` are the attributes that differ here."""
    here = replace(declaration, **other)
    if isinstance(here.default, dict):
        return field(default_factory=here.default.copy, metadata={"option": here})
    return field(default=here.default, metadata={"option": here})


def declared(
    kind: ValueKind, meaning: str, otherwise: str = "", default: object = MISSING
) -> Mapping[str, Any]:
    """Return the metadata of the field of an option, for a field that `option` cannot make."""
    return {"option": Option("", kind, meaning, default, otherwise)}


def options_of(values: Any) -> dict[str, Option]:
    """Return the options of a class or value by name, in the order of its arguments."""
    return {
        member.name: replace(member.metadata["option"], name=member.name)
        for member in sorted(fields(values), key=lambda member: member.kw_only is True)
        if member.metadata
    }


def check_options(values: object) -> None:
    """Raise an InputError if an option has a value that it cannot have. A default is valid."""
    for name, each in options_of(values).items():
        if each.default is not MISSING:  # a URL may hold a password
            value = getattr(values, name)
            if value is not each.default:
                each.kind.check(name, value)


def documented(values: type | None = None) -> Callable[[type[_T]], type[_T]]:
    """Add the options of a class, by default the decorated one, to the docstring of the decorated one, before its other sections."""

    def extend(documented_class: type[_T]) -> type[_T]:
        if documented_class.__doc__ is not None:  # python -OO
            text, *rest = _SECTION.split(cleandoc(documented_class.__doc__))
            entries = map(_entry, options_of(values or documented_class).values())
            section = "\n".join(["Args:" if values else "Attributes:", *entries])
            documented_class.__doc__ = "\n\n".join([text, section, *rest]) + "\n"
        return documented_class

    return extend


def _entry(each: Option) -> str:
    text = f"{each.name} ({each.type_text}): {each.meaning}."
    return textwrap.fill(
        text, _DOC_WIDTH, initial_indent=" " * 4, subsequent_indent=" " * 8, break_on_hyphens=False
    )


def takes(
    options: Callable[_P, _Options],
) -> Callable[[Callable[[Any, _Options], None]], Callable[Concatenate[Any, _P], None]]:
    """Give a constructor the arguments of a class of options, of which it gets one value.

    It also takes the options of a value among them, such as `Limits`, by their own names: they change the given value, or the default.
    """
    values = {name: each.default for name, each in options_of(options).items() if is_dataclass(each.default)}
    known = [*options_of(options), *(name for default in values.values() for name in options_of(default))]

    def decorate(construct: Callable[[Any, _Options], None]) -> Callable[Concatenate[Any, _P], None]:
        def __init__(self: Any, /, *arguments: _P.args, **named: _P.kwargs) -> None:  # noqa: N807
            single: dict[str, dict[str, Any]] = {}
            try:
                for name in named.keys() - known:
                    meant = similar(name, known)
                    remedy = f"did you mean {meant!r}?" if meant else "leave it out"
                    raise InputError(f"{type(self).__name__} has no argument {name!r}: {remedy}")
                for value, default in values.items():
                    single[value] = {name: named.pop(name) for name in options_of(default) if name in named}
                try:
                    given = _with_single(options(*arguments, **named), single)
                except TypeError as cause:  # in the words of the caller
                    own = f"{getattr(options, '__name__', '')}.__init__()"
                    raise TypeError(str(cause).replace(own, f"{type(self).__name__}()")) from None
            finally:
                del arguments, named, single  # a traceback with local variables must not show the password
            construct(self, given)

        update_wrapper(__init__, options.__init__)  # its signature
        return __init__

    return decorate


def _with_single(given: Any, single: Mapping[str, Mapping[str, Any]]) -> Any:
    """Return options with other values; what is not such a value stays, and `check_options` refuses it."""
    changed = {
        name: replace(getattr(given, name), **mine)
        for name, mine in single.items()
        if mine and is_dataclass(getattr(given, name))
    }
    return replace(given, **changed) if changed else given


# -- kinds


def whole(least: int, most: int | None = None, *, unit: str = "") -> ValueKind:
    """Return the kind of a whole number within these bounds."""
    bounds = f"{least} or more" if most is None else f"{least} to {most}"
    return ValueKind(
        f"`int`, {unit}{bounds}",
        lambda value: is_whole(value, least, math.inf if most is None else most),
        f"a whole number{', ' if most is None else ' from '}{bounds}",
        int,
        text_label="integer",
        bounds=bounds,
    )


def size(least: int) -> ValueKind:
    """Return the kind of a number of bytes."""
    return replace(
        whole(least, unit="bytes, "),
        parse=_size,
        write=_size_text,
        text_label="size",
        texts="bytes, as 65536 or with a unit of 1,024: 64KiB, 8MiB, 1GiB (or k, m, g)",
    )


def number(most: float) -> ValueKind:
    """Return the kind of a number from 0 to this one."""
    bounds = f"0 to {most:,}"
    return ValueKind(
        "number", lambda value: 0 <= value <= most, f"a number from {bounds}", float, bounds=bounds
    )


def one_of(*words: str) -> ValueKind:
    """Return the kind of one of these words; a text may be in any case."""
    return ValueKind(
        " or ".join(f'`"{word}"`' for word in words),
        lambda value: value in words,
        " or ".join(map(repr, words)),
        lambda text: text.strip().lower(),
        text_label=" or ".join(words),
        words=words,
    )


def value_of(kind: type) -> ValueKind:
    """Return the kind of a value of options."""
    return ValueKind(f"`{kind.__name__}`", lambda value: isinstance(value, kind), f"{kind.__name__}(...)")


def _share(text: str) -> float:
    share = float(text.removesuffix("%"))
    if math.isfinite(share) and (share > 1 or text.endswith("%")):
        raise InputError(f"{text!r} is not a share from 0 to 1: write {share:g}% as {share / 100:g}.")
    return share


def _flag(text: str) -> bool:
    try:
        return _FLAGS[text.strip().lower()]
    except KeyError:
        raise ValueError from None


def _seconds(text: str) -> float:
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError
    return float(match[1]) * _IN_SECONDS[match[2] or "s"]


def _size(text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError
    return int(match[1]) * _IN_BYTES[(match[2] or "b")[0].lower()]


def _size_text(size: int) -> str:
    for unit in ("g", "m", "k"):
        if size % _IN_BYTES[unit] == 0:
            return f"{size // _IN_BYTES[unit]}{unit.upper()}iB"
    return str(size)


FLAG = ValueKind(
    "`bool`",
    lambda flag: isinstance(flag, bool),
    "True or False",
    parse=_flag,
    write=lambda flag: str(flag).lower(),
    text_label="boolean",
    texts="true or false",
)
COUNT = whole(1)
WHOLE = whole(0)
BYTES = size(1)
SECONDS = ValueKind(
    "`float`, seconds, 0 or more",
    lambda value: is_finite(value) and value >= 0,
    "a finite number of seconds, 0 or more",
    _seconds,
    lambda seconds: f"{seconds:g}s",
    text_label="duration",
    texts="seconds, as 60 or with a unit: 500ms, 60s, 5m, 1h",
)
POSITIVE_SECONDS = replace(
    SECONDS,
    label="`float`, seconds, more than 0",
    fits=lambda value: is_finite(value) and value > 0,
    remedy="a finite number of seconds, more than 0",
    texts="more than 0 seconds, as 60 or with a unit: 500ms, 60s, 5m, 1h",
)
TEXT = ValueKind("`str`", text_label="string")
SHARE = replace(number(1), label="share", remedy="a share from 0 to 1", parse=_share)
