"""Variables of a topology file: one file for several environments.

``${NAME}`` in any text of the file is a value that is passed: by ``--set NAME=VALUE``, the environment, or ``values`` in Python. In a table,
such as ``arguments``, the names are texts, too. Ranges are expanded afterwards: ``orders.{1..${COUNT}}``. ``$${NAME}`` is the text ``${NAME}``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from rabbit_chx.analysis.findings import Finding
from rabbit_chx.checks import similar
from rabbit_chx.errors import InputError
from rabbit_chx.topology.file.fields import Problems
from rabbit_chx.topology.objects.toml_values import show_value, toml_key

#: A reference; with ``$`` before it, its text. Any other text in braces is a mistake, but ``${1..3}`` is ``$`` and a range.
_REFERENCE = re.compile(r"(\$?)\$\{(?![^{}]*\.\.|[0-9]+ *[-,:] *[0-9]+\})([^{}]*)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
#: A step of a path such as ``queues[0].arguments."a b"``.
_STEP = re.compile(r"""\[([0-9]+)\]|\.?([A-Za-z0-9_-]+)|\.?("(?:[^"\\]|\\.)*")""")


def escape(value: Any) -> Any:
    """Escape the texts of a value: ``${NAME}`` becomes ``$${NAME}``."""
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
        yield from (name for escaped, name in _REFERENCE.findall(value) if not escaped)
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from names_in(name)
            yield from names_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from names_in(inner)


def substitute(document: Mapping[str, Any], values: Mapping[str, str], problems: Problems) -> dict[str, Any]:
    """Return a parsed file with values in the place of references.

    Args:
        document: the parsed file.
        values: the texts of the variables, by their names.
        problems: receives the mistakes: names that are not set, or not used.

    Raises:
        InputError: `values` is not a mapping of names to texts.
    """
    if not isinstance(values, Mapping) or not all(
        isinstance(part, str) for pair in values.items() for part in pair
    ):
        raise InputError(
            f"values is {values!r:.60}: pass a dict of names and texts, such as {{'ENV': 'prod'}}"
        )
    used = set(names_in(document))
    for name in values.keys() - used:
        close = similar(name, used)
        fix = f"did you mean {close}?" if close else f"write ${{{name}}} where it belongs, or do not pass it"
        problems.add(toml_key(name), None, f"the file does not use the variable {name}, which is given", fix)
    return {name: _replace(value, name, values, problems) for name, value in document.items()}


def _replace(value: Any, path: str, values: Mapping[str, str], problems: Problems) -> Any:
    if isinstance(value, str):
        return _text(value, path, values, problems)
    if isinstance(value, list):
        return [_replace(inner, f"{path}[{number}]", values, problems) for number, inner in enumerate(value)]
    if not isinstance(value, Mapping):
        return value
    result: dict[str, Any] = {}
    for written, inner in value.items():
        inner_path = f"{path}.{toml_key(written)}"
        name = _text(written, inner_path, values, problems)
        if name in result:
            message = f"its variables make the name {show_value(name)}, which the table has already"
            problems.add(inner_path, None, message, "write each name once")
        result[name] = _replace(inner, inner_path, values, problems)
    return result


def _text(text: str, path: str, values: Mapping[str, str], problems: Problems) -> str:
    def value_of(reference: re.Match[str]) -> str:
        is_escaped = reference[1]
        name = reference[2]
        if is_escaped:
            return reference[0][1:]
        if name in values:
            return values[name]
        fix: str
        as_text = f"$${{{name}}} is this text itself"
        if _NAME.fullmatch(name):
            fix = f"set it by `--set {name}=VALUE` (`values={{{name!r}: VALUE}}`), or for a command by the environment variable {name}; {as_text}"
            problems.add(path, None, f"the variable {name} is not set", fix)
        else:
            fix = f"write ${{NAME}}, with a name of letters, digits, _ and -; {as_text}"
            message = f"{show_value(f'${{{name}}}')} is not a reference to a variable"
            problems.add(path, None, message, fix)
        return ""

    return _REFERENCE.sub(value_of, text)


def with_variables(problem: Finding, written: Mapping[str, Any]) -> Finding:
    """Return a mistake of a value with the variables that make the value.

    Args:
        problem: the mistake, in a file with values in the place of references.
        written: the parsed file.
    """
    value: Any = written
    try:
        for key in _steps(problem.subject):
            value = value[key]
    except (LookupError, TypeError):
        return problem  # something is missing
    if not isinstance(value, str) or not has_reference(value):
        return problem
    return replace(problem, message=f"{problem.message} (written as {show_value(value)})")


def _steps(subject: str) -> Iterator[str | int]:
    """Yield the steps of the path with which the subject of a mistake begins."""
    end = 0
    while step := _STEP.match(subject, end):
        end = step.end()
        if step[1]:
            yield int(step[1])
        else:
            yield json.loads(step[3]) if step[3] else step[2]
