"""Declarations of options: name, type with unit and range, default and meaning, once for each.

An option is a field of a dataclass. From it follow an argument of a constructor (`takes`), its entry in a docstring (`documented`), and its
line in a page. Options that belong together are a value, such as the limits of a publisher, which is one argument.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from functools import partial, update_wrapper
from inspect import cleandoc
from typing import Any, Concatenate, ParamSpec, TypeVar

from rabbit_chx.checks import check_seconds, check_whole, shown, similar
from rabbit_chx.errors import InputError

_P = ParamSpec("_P")
_T = TypeVar("_T")
_Options = TypeVar("_Options")

_DOC_WIDTH = 110
_SECTION = re.compile(r"\n\n(?=[A-Z]\w+::?\n)")
_LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")


# -- a declaration


@dataclass(frozen=True, slots=True)
class ValueKind:
    """The type of an option.

    Attributes:
        label: type, unit and range, for documents.
        check: raises an InputError for a value that cannot be; the name is for the error.
    """

    label: str
    check: Callable[[str, object], None] = lambda _name, _value: None


@dataclass(frozen=True, slots=True)
class Option:
    """The declaration of one option.

    Attributes:
        name: that of its field.
        meaning: one or two clauses for docstrings and pages; links are those of a page in docs.
        default: the value if the option is not given; MISSING for a required one.
        otherwise: the meaning of a default of None, in words.
        former: its name before; an error for this name tells the new one.
    """

    name: str
    kind: ValueKind
    meaning: str
    default: Any
    otherwise: str = ""
    former: str = ""

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


def option(
    kind: ValueKind, meaning: str, default: object, *, otherwise: str = "", former: str = ""
) -> Any:  # a field of any type
    """Return the dataclass field of an option with a default; `otherwise` words what None means, `former` is an old name."""
    return field(default=default, metadata={**declared(kind, meaning, otherwise), "former": former})


def declared(kind: ValueKind, meaning: str, otherwise: str = "") -> Mapping[str, Any]:
    """Return the metadata of the field of an option, for a field that `option` cannot make."""
    return {"kind": kind, "meaning": meaning, "otherwise": otherwise}


def options_of(values: Any) -> dict[str, Option]:
    """Return the options of a class or value by name, in the order of its arguments."""
    return {
        member.name: Option(member.name, default=member.default, **member.metadata)
        for member in sorted(fields(values), key=lambda member: member.kw_only is True)
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
    meaning = _LINK.sub(r"\1", each.meaning)
    text = f"{each.name} ({each.type_text}): {meaning}."
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
    renamed = {each.former: name for name, each in options_of(options).items() if each.former}
    known = [*options_of(options), *(name for default in values.values() for name in options_of(default))]

    def decorate(construct: Callable[[Any, _Options], None]) -> Callable[Concatenate[Any, _P], None]:
        def __init__(self: Any, /, *arguments: _P.args, **named: _P.kwargs) -> None:  # noqa: N807
            single: dict[str, dict[str, Any]] = {}
            try:
                for name in named.keys() & renamed.keys():
                    raise TypeError(f"the argument {name!r} is called {renamed[name]!r}")
                for name in named.keys() - known:
                    meant = similar(name, known)
                    remedy = f"did you mean {meant!r}?" if meant else "leave it out"
                    raise InputError(f"{type(self).__name__} has no argument {name!r}: {remedy}")
                for value, default in values.items():
                    single[value] = {name: named.pop(name) for name in options_of(default) if name in named}
                given = _with_single(options(*arguments, **named), single)
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


def whole(least: int, most: int | None = None, *, unit: str = "") -> ValueKind:
    """Return the kind of a whole number within these bounds."""
    bounds = f"{least} or more" if most is None else f"{least} to {most}"
    return ValueKind(f"`int`, {unit}{bounds}", lambda name, value: check_whole(name, value, least, most))


def one_of(*words: str) -> ValueKind:
    """Return the kind of one of these texts."""
    texts = " or ".join(map(repr, words))

    def check(name: str, value: object) -> None:
        if value not in words:
            raise InputError(f"{name} is {shown(value)}: pass {texts}")

    return ValueKind(" or ".join(f'`"{word}"`' for word in words), check)


def value_of(kind: type) -> ValueKind:
    """Return the kind of a value of options."""

    def check(name: str, value: object) -> None:
        if not isinstance(value, kind):
            raise InputError(f"{name} is {shown(value)}: pass {kind.__name__}(...)")

    return ValueKind(f"`{kind.__name__}`", check)


FLAG = ValueKind("`bool`")
COUNT = whole(1)
WHOLE = whole(0)
BYTES = whole(1, unit="bytes, ")
SECONDS = ValueKind("`float`, seconds, 0 or more", check_seconds)
POSITIVE_SECONDS = ValueKind("`float`, seconds, more than 0", partial(check_seconds, zero=False))
TEXT = ValueKind("`str`")
