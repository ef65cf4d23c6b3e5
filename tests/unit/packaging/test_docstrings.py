"""Public functions and methods document their arguments."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from importlib import import_module

import pytest
from tables import PACKAGES


def functions_of(package: str) -> Iterator[tuple[str, Callable[..., object]]]:
    """The functions that a package exports, and the public methods of the classes that it exports; of a module all that are public."""
    module = import_module(package)
    own = [name for name, value in vars(module).items() if getattr(value, "__module__", "") == package]
    for name in getattr(module, "__all__", [name for name in own if not name.startswith("_")]):
        value = getattr(module, name)
        if inspect.isfunction(value):
            yield name, value
        elif inspect.isclass(value):
            for method in vars(value):
                member = getattr(value, method)
                if not method.startswith("_") and inspect.isroutine(member):
                    yield f"{name}.{method}", member


#: The modules of rendering that other packages use.
RENDERING = [f"rabbit_chx.rendering.{name}" for name in ("document", "output", "progress")]


@pytest.mark.parametrize("package", [*PACKAGES, *RENDERING])
def test_every_argument_is_documented(package: str) -> None:
    """By an entry of its own, or in the text, in backticks."""
    functions = list(functions_of(package))
    assert functions
    missing = []
    for name, function in functions:
        text = inspect.getdoc(function) or ""
        for argument in inspect.signature(function).parameters:
            entry = rf"^ +\*{{0,2}}{argument}:|`{argument}`"
            if argument not in {"self", "cls"} and not re.search(entry, text, re.MULTILINE):
                missing.append(f"{name}({argument})")
    assert missing == []
