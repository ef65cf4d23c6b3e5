"""Names that are imported on first use: public names of a package, and the report of a value that a notebook shows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from importlib.util import find_spec


def lazy(
    package: str, names: Mapping[str, Collection[str]]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return the ``__getattr__`` and the ``__dir__`` of a package that imports some of its names late.

    The package also imports these names under ``TYPE_CHECKING``, so that type checkers know them.
    """
    homes = {name: module for module, defined in names.items() for name in defined}

    def load(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)  # so that Python does not call this again
        return value

    def listed() -> list[str]:
        known = vars(sys.modules[package])
        return sorted({*known, *known["__all__"]})

    return load, listed


def shown_by(module: str, report: str) -> Callable[[object], str | None]:
    """Return a ``_repr_html_``, by which a notebook shows a value as ``-o html`` does.

    Args:
        module: the module of the report, which is imported when the value is shown.
        report: its function that returns the document of a value.
    """

    def _repr_html_(value: object) -> str | None:
        make = getattr(import_module(module), report)
        found: str | None = import_module("rabbit_chx.rendering.output").part_of_page(lambda: make(value))
        return found

    return _repr_html_


def is_installed(package: str) -> bool:
    """Return True for an installed package. ``__all__`` omits names that need a missing one, so that ``import *`` and ``help`` work."""
    try:
        return find_spec(package) is not None
    except (ImportError, ValueError):
        return False
