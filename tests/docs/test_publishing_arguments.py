"""The list of arguments in docs/publishing.md has every argument of `Publisher`, with its default."""

from __future__ import annotations

import ast
import inspect
import re

from blocks import page

from rabbit_chx import Publisher


def test_the_arguments_are_those_of_the_code() -> None:
    section = page("docs/publishing.md").split("## All arguments")[1].split("\n## ")[0]
    rows = re.findall(r"^- `(\w+)` \(.*?; (?:default `(.*?)`|required)", section, re.MULTILINE)
    arguments = inspect.signature(Publisher).parameters.values()
    assert [
        (name, ast.literal_eval(default) if default else inspect.Parameter.empty) for name, default in rows
    ] == [(argument.name, argument.default) for argument in arguments]
