"""Variables of a topology file: one file for several environments.

- ``[variables]`` declares names with their defaults: texts, numbers, ``true``, ``false``, and lists. A default may refer to other
  variables.
- ``${name}`` in any text of the file is the value of a variable. A text that is nothing but ``${name}`` becomes the value itself, so
  ``weight = "${weight}"`` is a number, and ``ring = "${ring}"`` a list. Ranges are expanded afterwards: ``orders.{1..${count}}``.
- ``${name:regex}`` is the value as a regular expression that matches only this text; of a list, any of its texts.
- ``$${name}`` is the text ``${name}``.
- In a table, such as ``arguments``, the names are texts, too.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeAlias

from rabbit_chx.amqp.fields import INTEGER_RANGES
from rabbit_chx.analysis.findings import Finding
from rabbit_chx.checks import similar
from rabbit_chx.errors import InputError
from rabbit_chx.topology.file.fields import Problems
from rabbit_chx.topology.objects.ranges import Items
from rabbit_chx.topology.objects.toml_values import show_value, toml_key

#: The value of a variable.
Value: TypeAlias = str | int | float | bool | list[Any]

TABLE = "variables"
#: A reference; with ``$`` before it, its text. Any other text in braces is a mistake, but ``${1..3}`` is ``$`` and a range.
_REFERENCE = re.compile(r"(\$?)\$\{(?![^{}]*\.\.|[0-9]+ *[-,:] *[0-9]+\})([^{}]*)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
#: A step of a path such as ``queues[0].arguments."a b"``.
_STEP = re.compile(r"""\[([0-9]+)\]|\.?([A-Za-z0-9_-]+)|\.?("(?:[^"\\]|\\.)*")""")
#: The name in a reference with blanks or, as in a shell, with a default.
_ASKED = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*(?:$|:?[-=?+]|\|)")
_INTEGER = re.compile(r"[+-]?(?:0|[1-9][0-9]{0,17})")
_REGEX = ":regex"
#: The characters that mean something in a regular expression of Erlang, which is that of PCRE.
_SPECIAL = re.compile(r"[\\^$.|?*+()\[\]{}]")
_FLAGS = {"true": True, "false": False}
#: Limits of references to other variables, so that no file needs much time or memory.
_MOST_LEVELS, _MOST_CHARACTERS = 100, 65_536
_LONG = INTEGER_RANGES["long"]
_WORDS: Mapping[type, str] = {
    bool: "true or false", int: "an integer", float: "a number", str: "a text", list: "a list",
}  # fmt: skip
_ANY = "a text, a number, true or false, or a list"


def escape(value: Any) -> Any:
    """Escape the texts of a value: ``${name}`` becomes ``$${name}``."""
    if isinstance(value, str):
        return _REFERENCE.sub(r"$\g<0>", value)
    if isinstance(value, Mapping):
        return {escape(name): escape(inner) for name, inner in value.items()}
    return type(value)(map(escape, value)) if isinstance(value, (list, tuple)) else value


def has_reference(value: object) -> bool:
    """Return whether a text, or one within a value, refers to a variable."""
    return any(True for _ in names_in(value))


def names_in(value: object) -> Iterator[str]:
    """Yield the names of the variables to which the texts of a value refer."""
    if isinstance(value, str):
        yield from (name.removesuffix(_REGEX) for escaped, name in _REFERENCE.findall(value) if not escaped)
    elif isinstance(value, (Mapping, list)):
        for inner in value:
            yield from names_in(inner)
        for inner in value.values() if isinstance(value, Mapping) else ():
            yield from names_in(inner)


def whole_reference(value: object) -> str | None:
    """Return the name of the variable of a text that is nothing but a reference; None for any other value."""
    whole = _REFERENCE.fullmatch(value) if isinstance(value, str) else None
    return whole[2] if whole and not whole[1] and not whole[2].endswith(_REGEX) else None


def resolve(document: Mapping[str, Any], given: Mapping[str, Value], problems: Problems) -> dict[str, Any]:
    """Return a parsed file without ``[variables]``, and with values in the place of references.

    Args:
        document: the parsed file.
        given: the values that replace defaults. A text is read as the type of the default; without a default, ``3`` and ``true`` are no
            texts.
        problems: receives the mistakes: undefined and unused names, cycles, and values of a wrong type.

    Raises:
        InputError: `given` is not a mapping of names.
    """
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise InputError(
            f"variables is {given!r:.60}: pass a dict of names and values, such as {{'env': 'prod'}}"
        )
    return _Variables(document.get(TABLE, {}), given, problems).resolve(document)


def with_variables(problem: Finding, written: Mapping[str, Any]) -> Finding:
    """Return a mistake of a value with the variables that make the value.

    Args:
        problem: the mistake, in a file with values in the place of references.
        written: the parsed file.
    """
    value: Any = written
    try:
        for key in _steps(problem.subject):
            if whole_reference(value) is not None:
                break  # a place in a list that is the value of a variable
            value = value[key]
    except (LookupError, TypeError):
        return problem  # something is missing
    if isinstance(value, Mapping) or not has_reference(value):
        return problem
    if (whole := whole_reference(value)) is not None:
        return replace(problem, fix=f"correct the variable {whole}: {problem.fix}")
    return replace(problem, message=f"{problem.message} (written as {show_value(value)})")


def _steps(subject: str) -> Iterator[str | int]:
    """Yield the steps of the path with which the subject of a mistake begins."""
    end = 0
    while step := _STEP.match(subject, end):
        end = step.end()
        yield int(step[1]) if step[1] else json.loads(step[3]) if step[3] else step[2]


class _Variables:
    def __init__(self, declared: Any, given: Mapping[str, Value], problems: Problems) -> None:
        self._problems = problems
        self._pending: list[str] = []
        if not isinstance(declared, Mapping):
            problems.add(
                TABLE, declared, "`variables` must be a table", "write [variables], and name = value below it"
            )
            declared = {}
        self._declared: dict[str, Value] = {
            name: value for name, value in declared.items() if self._is_valid(name, value)
        }
        self._bad = declared.keys() - self._declared.keys()
        self._values: dict[str, Value] = {}
        self._given = {name: self._convert(name, value) for name, value in given.items()}

    def resolve(self, document: Mapping[str, Any]) -> dict[str, Any]:
        content = {name: self._replace(value, name) for name, value in document.items() if name != TABLE}
        named = set(names_in(document))  # also by a default that another value replaces
        for name in self._declared.keys() - named:
            fix = f"remove it, or write ${{{name}}} where it belongs"
            self._problems.add(_path(name), None, f"the variable {name} is not used", fix)
        for name in self._declared:
            self._value(name, _path(name))  # for its mistakes
        for name in self._given.keys() - self._declared.keys() - named - self._bad:
            if not _NAME.fullmatch(name):
                message = f"{show_value(name)} is given, and is not the name of a variable"
                self._problems.add(
                    _path(name),
                    None,
                    message,
                    "use a name of letters, digits, _ and -, which begins with a letter",
                )
                continue
            close = similar(name, {*self._declared, *named})
            fix = (
                f"did you mean {close}?"
                if close
                else f"write ${{{name}}} where it belongs, or do not pass it"
            )
            message = f"the file does not use the variable {name}, which is given"
            self._problems.add(_path(name), None, message, fix)
        return content

    def _is_valid(self, name: str, value: object) -> bool:
        if not _NAME.fullmatch(name):
            fix = "write a name of letters, digits, _ and -, which begins with a letter"
            self._problems.add(_path(name), None, f"{show_value(name)} is not the name of a variable", fix)
        elif type(value) not in _WORDS:
            self._problems.add(_path(name), value, f"a variable is {_ANY}", "write one of them")
        elif _is_endless(value):
            message = "the number is not finite, or has more than 64 bits"
            self._problems.add(_path(name), value, message, "write a smaller one")
        else:
            return True
        return False

    def _convert(self, name: str, value: Value) -> Value:
        """Return a given value as the type of the default. A default that refers to other variables has any type."""
        default = self._declared.get(name)
        wanted = None if default is None or has_reference(str(default)) else type(default)
        read = _read(value, wanted) if isinstance(value, str) and wanted is not str else value
        if _is_endless(read):
            message = f"the given value {show_value(value)} is not finite, or has more than 64 bits"
            self._problems.add(_path(name), None, message, "pass a smaller number")
            return "" if default is None else default
        if wanted is float and type(read) is int:
            read = float(read)
        if type(read) in _WORDS and wanted in (None, type(read)):
            return read
        expected = _WORDS[wanted] if wanted else _ANY
        message = f"the given value {show_value(value)} is not {expected}"
        where = ", in a file of values" if wanted is list else ""
        self._problems.add(_path(name), None, message, f"pass {expected}, as the default is{where}")
        return "" if default is None else default

    def _replace(self, value: Any, path: str) -> Any:
        if isinstance(value, Mapping):
            return self._table(value, path)
        if isinstance(value, list):
            return [self._replace(inner, f"{path}[{number}]") for number, inner in enumerate(value)]
        return self._text(value, path) if isinstance(value, str) else value

    def _table(self, table: Mapping[str, Any], path: str) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for written, value in table.items():
            inner = f"{path}.{toml_key(written)}"
            name = "".join(self._pieces(written, inner))
            if name in result:
                message = f"its variables make the name {show_value(name)}, which the table has already"
                self._problems.add(inner, None, message, "write each name once")
            result[name] = self._replace(value, inner)
        return result

    def _text(self, text: str, path: str) -> Value:
        whole = whole_reference(text)
        if whole is not None:
            return self._value(whole, path)
        replaced = "".join(self._pieces(text, path))
        if len(replaced) <= max(_MOST_CHARACTERS, len(text)):
            return replaced
        message = f"with the values of its variables the text has {len(replaced):,} characters"
        self._problems.add(path, None, message, f"write at most {_MOST_CHARACTERS:,}")
        return ""

    def _pieces(self, text: str, path: str) -> Iterator[str]:
        end = 0
        for match in _REFERENCE.finditer(text):
            yield text[end : match.start()]
            yield match[0][1:] if match[1] else self._piece(match[2], path)
            end = match.end()
        yield text[end:]

    def _piece(self, name: str, path: str) -> str:
        """Return the value of a variable within a text."""
        is_regex = name.endswith(_REGEX)
        name = name.removesuffix(_REGEX)
        value = self._value(name, path)
        if is_regex:
            texts = value if isinstance(value, list) else [value]
            alternatives = "|".join(_SPECIAL.sub(r"\\\g<0>", _as_text(text)) for text in texts)
            return f"({alternatives})" if isinstance(value, list) else alternatives
        if isinstance(value, list):
            message = f"the variable {name} is a list, and stands in a text"
            self._problems.add(path, None, message, f'write the value as "${{{name}}}" and nothing else')
            return ""
        return _as_text(value)

    def _value(self, name: str, path: str) -> Value:
        """Return the value of a variable for a text at a path; "" after a mistake."""
        if name in self._values:
            return self._values[name]
        value: Value = ""
        if name in self._pending:
            chain = " -> ".join([*self._pending[self._pending.index(name) :], name])
            message = f"the variable {name} refers to itself: {chain}"
            self._problems.add(_path(name), None, message, "set one of them")
            return value
        if not _NAME.fullmatch(name):
            meant = _ASKED.match(name)
            fix = (
                f"write ${{{meant[1]}}}"
                if meant
                else "write ${name}, with a name of letters, digits, _ and -"
            )
            message = f"{show_value(f'${{{name}}}')} is not a reference to a variable"
            self._problems.add(path, None, message, f"{fix}; $${{{name}}} is this text itself")
        elif name in self._given:
            value = self._given[name]
            value = Items(value) if isinstance(value, list) else value
        elif name in self._declared and len(self._pending) == _MOST_LEVELS:
            message = f"more than {_MOST_LEVELS} variables refer to each other, up to this one"
            self._problems.add(_path(name), None, message, "set one of them")
        elif name in self._declared:
            self._pending.append(name)
            declared: Value = self._declared[name]
            value = self._replace(declared, _path(name))
            value = Items(value) if isinstance(value, list) else value
            self._pending.pop()
        elif name not in self._bad:
            close = similar(name, [*self._declared, *self._given])
            fix = (
                f"did you mean ${{{close}}}?" if close else "declare it below [variables], or pass its value"
            )
            fix = f"{fix}; $${{{name}}} is this text itself"
            self._problems.add(path, None, f"the variable {name} is not defined", fix)
        self._values[name] = value
        return value


def _path(name: str) -> str:
    return f"{TABLE}.{toml_key(name)}"


def _is_endless(value: object) -> bool:
    if isinstance(value, (list, dict)):
        return any(map(_is_endless, value.values() if isinstance(value, dict) else value))
    return (
        not math.isfinite(value)
        if isinstance(value, float)
        else isinstance(value, int) and value not in _LONG
    )


def _as_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _read(text: str, wanted: type | None) -> Value:
    """Return a given text as an integer, ``true`` or ``false``, or as a number if one is wanted; the text itself if it is none of these."""
    if text in _FLAGS:
        return _FLAGS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if wanted is float:
        with suppress(ValueError):
            return float(text)
    return text
